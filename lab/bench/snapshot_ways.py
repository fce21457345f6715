# SPDX-License-Identifier: Apache-2.0
"""Measure two ways to snapshot a hydrating volume: tools/bench snapshot-ways.

Above the clone, as the driver does it, and below: a snapshot of LVM of the
clone's logical volume, with a copy of its metadata, from which a second clone
is made. All is on one node, whose service is stopped meanwhile. Each
measurement is done without a snapshot, too.
"""

import contextlib

from lab.bench import metadata
from lab.bench import ratios
from lab.bench.snapshot_ways_on_node import ABOVE
from lab.bench.snapshot_ways_on_node import BELOW
from lab.bench.snapshot_ways_on_node import NONE
from lab import lab

PATH = 'bench-snapshot-ways.json'
#: Seconds of one measurement at most.
TIMEOUT = 240
#: {name in the JSON of the node: what it is}.
VALUES = {'pause': 'longest pause in ms', 'seconds': 'seconds to take it',
          'written': 'written per byte of the guest',
          'read': 'read per byte of the guest',
          'complete': 'seconds until all is copied'}
WAYS = {NONE: 'no snapshot', ABOVE: 'above the clone', BELOW: 'below, by LVM'}


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    value, way = ratios.parts(name)
    base = WAYS[ABOVE if value == VALUES['seconds'] else NONE]
    return None if way == base else '%s, %s' % (value, base)


class Bench:
    """Snapshots of volumes that hydrate on a node."""

    ROUNDS, MINUTES = 4, 7

    def __init__(self):
        self.node = next(iter(lab.Lab.load().nodes.values()))
        self.results = ratios.Ratios()

    @contextlib.contextmanager
    def prepared(self):
        """Have the disk to ourselves, in the group of a stopped service."""
        with contextlib.ExitStack() as made:
            made.callback(self.node.wait_ready)
            made.callback(self.node.start_service, 'cinder-volume')
            self.node.stop('cinder-volume')
            self._run('warm')
            yield

    def _run(self, what):
        return metadata.run(
            self.node, what, module='lab.bench.snapshot_ways_on_node',
            timeout=TIMEOUT)

    def round(self):
        """Measure each way once."""
        for way, name in WAYS.items():
            found, = self._run(way)
            for key, value in VALUES.items():
                if way != NONE or key != 'seconds':
                    self.results.note('%s, %s' % (value, name), found[key])

    def report(self):
        """Print medians and ratios, and save the results."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
