# SPDX-License-Identifier: Apache-2.0
"""Measure many volumes from one snapshot: tools/bench golden.

Each second one is attached on the other node. All are used before their
copies are complete; then the snapshot is deleted. Its space has to be free
when the last copy is complete.
"""

import contextlib
import functools
import shutil
import time

from lab.bench import counters
from lab.bench import measurements
from lab.bench import snapshots
from lab.common import leftovers
from lab.common import user as user_module
from lab.common import volumes
from lab import errors
from lab import wait

#: Requests at a time.
AT_ONCE = 4
#: Seconds until a request is done, and until all copies are complete.
TO_USE, TO_COPY = 300, 3600
#: GiB that stay free on the machine, whose disk gets all copies.
SPARE = 10
#: The MiB that each volume writes, beyond the golden data.
PLACE = volumes.DATA + 6


def fitting(wanted, group, machine):
    """Return how many volumes of 1 GiB fit.

    :param group: free GiB of a node's volume group, which has the golden
        volume, its snapshot, and all volumes when they are created
    :param machine: free GiB of the disk that has the nodes' disks
    """
    # A hundredth is for metadata. Every second volume is copied on its first
    # node, too: the copy on the other one reads through that.
    return min(wanted, int(0.99 * group) - 2, int((machine - SPARE) / 1.5))


class Bench(snapshots.WithSnapshots):
    """A golden snapshot, and volumes from it on both nodes."""

    ROUNDS = 1

    def __init__(self, volumes):
        """Check the laboratory.

        :param volumes: how many are wanted
        """
        super().__init__()
        self.node = self.lab.node('node1')
        self.peer = self.other(self.node)
        self.results = measurements.Measurements()
        self._count = fitting(volumes, self.free(self.node), shutil.disk_usage(
            self.node.machine.folder).free / 2 ** 30)
        if self._count < 2:
            raise errors.LabError('there is no room for two volumes')
        print('%d volumes of 1 GiB' % self._count, flush=True)

    def round(self):
        """Measure everything once."""
        with contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            with self.created_on(self.node):
                golden, _home, checksum = self.filled_volume()
            snapshot_id = self.user.create_snapshot(golden)
            used = self._use_all(snapshot_id)
            made.callback(self._end_all, used)
            self._delete_golden(golden, snapshot_id)
            self._compare_all(used, checksum)

    def _use_all(self, snapshot_id):
        """Create and use all volumes; return {id: (node, path)}."""
        used = {}
        nodes = self.node, self.peer
        before = counters.read(self.lab, *nodes)
        self.results.timed('all volumes are used', self.at_once, [
            functools.partial(self._use, snapshot_id, nodes[number % 2], used)
            for number in range(self._count)], AT_ONCE)
        for name, count in counters.read(self.lab, *nodes).items():
            self.results.note('for each: ' + name,
                              (count - before[name]) / self._count, name)
        return used

    def _use(self, snapshot_id, node, used):
        """Create a volume, attach it, and write to it."""
        start = time.monotonic()
        volume_id = self.user.request('POST', '/volumes', {'volume': {
            'size': 1, 'snapshot_id': snapshot_id}})['volume']['id']
        self.user.settled(volume_id, 'available', timeout=TO_USE)
        path = user_module.path(self.user.attach(volume_id, node))
        self.write(node, path, PLACE, volume_id)
        self.results.note('used %s' % (
            'at home' if node is self.node else 'away'),
            time.monotonic() - start)
        used[volume_id] = node, path

    def _delete_golden(self, golden, snapshot_id):
        """Delete the snapshot while volumes read it; wait for its space."""
        copied = self.hydrating()
        self.results.note('copied when the snapshot is deleted', copied,
                          'volumes')
        if not copied:
            raise errors.LabError('all copies were complete before the '
                                  'snapshot could be deleted: more volumes '
                                  'are needed')
        self.results.timed('snapshot deleted, for its user',
                           self.user.delete_snapshot, snapshot_id, TO_USE)
        # Copies may have become complete before this look, not after it.
        here, copied = self._has(snapshot_id), self.hydrating()
        assert here or not copied, (
            'the snapshot is gone, and %d volumes are copied from it' % copied)
        self.results.timed('last copy complete', wait.until,
                           lambda: not self.hydrating(),
                           'all copies to be complete', TO_COPY, 1)
        self.results.timed('space given back', wait.until,
                           lambda: not self._has(snapshot_id),
                           'the snapshot to be deleted', TO_USE)
        wait.until(lambda: not self._unexpected(), 'nothing but volumes',
                   TO_USE, log=lambda: '\n'.join(self._unexpected()))
        self.user.delete_volume(golden, TO_USE)

    def _has(self, snapshot_id):
        """Return whether the snapshot's node still has it."""
        return any(snapshot_id in name
                   for name in leftovers.volumes(self.node))

    def _unexpected(self):
        """Return the logical volumes that are no data of a volume in use."""
        expected = {'volume-' + (name_id or volume_id)
                    for volume_id, name_id in self.lab.sql(
                        'SELECT id, _name_id FROM volumes WHERE deleted = 0')}
        return [name for node in (self.node, self.peer)
                for name in leftovers.volumes(node) if name not in expected]

    def _compare_all(self, used, checksum):
        """Compare what the volumes have with what they should have."""
        for volume_id, (node, path) in used.items():
            assert self.checksum(node, path) == checksum, volume_id
            written = set(node.run(
                'dd if=%s bs=1M skip=%d count=1 iflag=direct status=none | '
                'head -c %d | uniq' % (
                    path, PLACE, 1000 * (len(volume_id) + 1))).split())
            assert written == {volume_id}, (volume_id, written)

    def _end_all(self, used):
        self.at_once([functools.partial(self.end_volume, volume_id, TO_USE)
                      for volume_id in used], AT_ONCE)

    def report(self):
        """Print medians, spreads and a ratio."""
        self.results.report([('used away', 'used at home')])
