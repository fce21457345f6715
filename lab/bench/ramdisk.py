# SPDX-License-Identifier: Apache-2.0
"""Measure volumes in memory, local and over iSCSI: tools/bench ramdisk.

fio reads and writes 4 KiB in a mix of 80 % reads, 80 % of them at random. It
uses logical volumes whose group is on the laboratory's disk, on brd, on zram
and on a loop device over tmpfs, on the same node and on the other node.
"""

import contextlib

from lab.bench import metadata
from lab.bench import on_node
from lab.bench import remote_disk

DISK = "the lab's disk"
KINDS = (DISK, 'brd', 'zram', 'tmpfs')


class Bench(metadata.Bench):
    """Rates and latencies of volumes in memory."""

    WHAT = 'ramdisk'

    def _round(self):
        for kind in KINDS:
            with self._volume(kind) as path:
                self._measure_on(self.node, kind, 'local', path)
                with remote_disk.served(self.node, path,
                                        self.other_node) as disk:
                    self._measure_on(self.other_node, kind, 'over iSCSI',
                                     disk)

    @contextlib.contextmanager
    def _volume(self, kind):
        if kind == DISK:
            self.node.run('lvcreate --yes --wipesignatures n --size %dm '
                          '--name bench cinder-volumes' % on_node.RAM)
            try:
                yield '/dev/cinder-volumes/bench'
            finally:
                self.node.run('lvremove --yes cinder-volumes/bench')
            return
        found, = metadata.run(self.node, 'ram', kind)
        try:
            yield found['path']
        finally:
            metadata.run(self.node, 'give-back', kind)

    def _measure_on(self, node, kind, where, path):
        for found in metadata.run(node, 'mix', path):
            name = '%s, depth %d, %s, %s' % (found['way'], found['depth'],
                                             kind, where)
            self.results.note(name + ': a second', found['iops'])
            self.results.note(name + ': microseconds', found['latency'])

    @staticmethod
    def base_of(name):
        """Return the disk's measurement on the same node to compare with."""
        way, depth, kind, rest = name.split(', ')
        return ', '.join((way, depth, DISK, rest))
