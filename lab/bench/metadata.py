# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of each kind of metadata: tools/bench metadata.

fio writes and reads 4 KiB at a time, synchronously and without the page
cache, at random and (writes) sequentially. It uses a plain logical volume, a
linear handle, and clones with each kind of metadata whose source is on the
same node or on another. Hydration is off, and each clone begins empty.
The disks are those of slow_disks, except for the fast disk.
"""

import json

from lab.bench import on_node
from lab.bench import ratios
from lab.bench import remote_disk
from lab.bench import slow_disks
from lab import lab

MIB = 2 ** 20


def run(node, *arguments, module='lab.bench.on_node', timeout=3600):
    """Run a module on a node; returns its measurements.

    :param timeout: in seconds
    """
    group = slow_disks.DATA if 'metadata' in arguments else 'cinder-volumes'
    out = node.run('. /lab/node.env; cd $CHECKOUT; PYTHONDONTWRITEBYTECODE=1 '
                   'DMCLONE_TEST_GROUP=%s $VENV/bin/python -W ignore '
                   '-m %s %s' % (group, module, ' '.join(arguments)),
                   timeout=timeout)
    return [json.loads(line) for line in out.splitlines()
            if line.startswith('{')]


class Bench:
    """Rates on a node while its service is stopped."""

    WHAT = 'metadata'

    def __init__(self):
        here = lab.Lab.load()
        self.node, self.other_node = here.node('node1'), here.node('node2')
        self.results = ratios.Ratios()

    def round(self):
        """Measure everything once, alternately."""
        self.node.stop('cinder-volume')
        try:
            self._round()
        finally:
            self.node.start_service('cinder-volume')
            self.node.wait_ready()

    def _round(self):
        names = 'cinder-volumes', 'bench'
        size = on_node.SIZE
        self.other_node.run('lvcreate --yes --size %db --name %s %s' % (
            size + 2 * MIB, names[1], names[0]))
        try:
            with self.disks(), remote_disk.served(
                    self.other_node, '/dev/%s/%s' % names,
                    self.node) as disk:
                self.measure(self.WHAT, disk)
        finally:
            self.other_node.run('lvremove --yes %s/%s' % names)

    def disks(self):
        """Return a context with the disks that are measured."""
        return slow_disks.on(self.node)

    def measure(self, *arguments):
        """Run measurements on the node and keep their results."""
        for found in run(self.node, *arguments):
            self.note(found)

    def note(self, found):
        """Keep one measurement."""
        self.results.note(self.name(found), found['iops'])

    @staticmethod
    def name(found):
        """Return the name of a measurement."""
        return ', '.join(filter(None, (found['rw'], found['what'],
                                       found['store'])))

    @staticmethod
    def base_of(name):
        """Return the plain logical volume to compare a measurement with."""
        return name.partition(',')[0] + ', logical volume'

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(self.base_of)
        path = 'bench-%s.json' % self.WHAT
        self.results.save(path, self.base_of)
