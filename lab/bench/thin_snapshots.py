# SPDX-License-Identifier: Apache-2.0
"""Measure what snapshots of a thin volume cost: tools/bench thin-snapshots.

A load on parts of a volume that are allocated, and shared with no snapshot,
with one or with five. Each part has it twice: the second time its blocks are
the volume's own again.
"""

from lab.bench import copies
from lab.bench import guest_load
from lab.bench import ratios
from lab.bench import snapshots
from lab.common import pools

AGAIN = ' again'


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = name.split(', ')
    base = copies.snapshots_name(0)
    return None if what == base else '%s, %s' % (way, base)


class Bench(snapshots.WithSnapshots):
    """A volume at rest, and its snapshots."""

    MINUTES = 5

    def __init__(self):
        super().__init__()
        self.node = self.lab.node('node1')
        self.results = ratios.Ratios()

    def end(self):
        """Delete all but the pools."""
        self.end_snapshots()
        self.end_volumes()

    def round(self):
        """Measure everything once, on nodes with pools of their own."""
        with pools.on(list(self.lab.nodes.values()), self.end):
            with self.created_on(self.node):
                volume_id = self.user.create_volume(guest_load.SIZE)['id']
            with self.attached(volume_id, self.node) as path:
                self.allocate(self.node, path, 0)
                taken = 0
                for number, count in enumerate(copies.SNAPSHOTS):
                    for _number in range(count - taken):
                        self.user.create_snapshot(volume_id)
                    taken = count
                    for again in ('', AGAIN):
                        self._note(copies.snapshots_name(count) + again,
                                   guest_load.run(self.node, path, number))

    def _note(self, what, found):
        for way, value in found.items():
            self.results.note('%s, %s' % (way, what), value)

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(base_of)
        self.results.save('bench-thin-snapshots.json', base_of)
