# SPDX-License-Identifier: Apache-2.0
"""Volumes that are extended and reverted while another node is off.

It has their snapshots, or the sources of those that hydrate.
"""

from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations

#: Offset in MiB of the part that is copied last, and of one that only an
#: extended volume has.
LAST, BEYOND = 1000, 1500
#: Seconds until a volume is complete after its source's node has returned.
LATER = 300
#: Where a process writes what it has read.
LOG = '/run/read.log'
_READ = ('(setsid dd if=%s of=/dev/null bs=1M skip=%d count=1 iflag=direct '
         '< /dev/null > %s 2>&1 &)')


@slow
class SizeAndContentTest(operations.Operations, base.E2ETest):
    """What needs no data of the other node is done, the rest is refused."""

    TO_END = 180

    def setUp(self):
        super().setUp()
        self.near = self.lab.node('node1')
        self.far = self.other(self.near)

    def make_with_snapshot(self):
        """Create a volume that leaves its snapshot on the other node.

        :returns: (its id, the snapshot's id, the snapshot's checksum, the
            volume's checksum)
        """
        volume_id, before, moved = self.make(self.far)
        snapshot_id = self.take_snapshot(volume_id)
        self.move(volume_id, self.near)
        return volume_id, snapshot_id, before, moved

    def test_extended_and_reverted(self):
        kept, of_kept, in_snapshot, in_kept = self.make_with_snapshot()
        reverted, of_reverted, _, in_reverted = self.make_with_snapshot()
        hydrating, _, in_hydrating = self.make(self.far)
        waiting, _, in_waiting = self.make(self.far)
        for each in kept, reverted:
            self.hydrated(each)
        with self.slow_network(self.near):
            # Its content is the snapshot's, until it is written as in a move.
            self.revert(reverted, of_reverted)
            for each in reverted, hydrating, waiting:
                self.move(each, self.near)
            for each in reverted, hydrating, waiting:
                self.assertNotEqual([], self.placeholders(each))
            with self.power_cut(self.far):
                for each in reverted, hydrating:
                    self._extended(each)
                self._refused_while_a_read_waits(waiting)
                self._not_reverted(kept, of_kept, in_kept)
        for volume_id, expected in ((reverted, in_reverted),
                                    (hydrating, in_hydrating)):
            self.hydrated(volume_id, timeout=LATER)
            self.assert_data(volume_id, expected, 2)
            self._compare_beyond(volume_id)
        self._extended_later(waiting, in_waiting)
        self.revert(kept, of_kept)
        self.assert_data(kept, in_snapshot)
        self.hydrated(kept, timeout=LATER)
        self.assert_data(kept, in_snapshot)

    def _extended(self, volume_id):
        """Extend a volume without its source, and use what is new."""
        self.extend(volume_id)
        with self.attached(volume_id, self.near) as path:
            self.assertEqual(2 << 30, self._size(path))
            self.write(self.near, path, BEYOND, 'beyond')
            self.assertIn('clone', self.clone_status(self.near, path))
            # What was written here is here.
            self.assertEqual('one', self.near.run(
                'dd if=%s bs=1M skip=20 count=1 iflag=direct status=none | '
                'head -c 3' % path))

    def _size(self, path):
        return int(self.near.run('blockdev --getsize64 ' + path))

    def _compare_beyond(self, volume_id):
        with self.attached(volume_id, self.near) as path:
            self.assertEqual('beyond', self.near.run(
                'dd if=%s bs=1M skip=%d count=1 iflag=direct status=none | '
                'head -c 6' % (path, BEYOND)))

    def _refused_while_a_read_waits(self, volume_id):
        """Extend a volume that a process still reads."""
        attachment = self.user.attach(volume_id, self.near)
        path = user_module.path(attachment)
        self.near.run(_READ % (path, LAST, LOG))
        wait.until(lambda: self.near.run(
            'pgrep -f "^dd if=%s"' % path, check=False), 'the read', 10)
        self.user.detach(attachment['id'])
        self.user.settled(volume_id, 'available')
        said = len(self.user.messages(volume_id))
        self.extend(volume_id, 'error_extending')
        self.assertEqual(1, self.user.volume(volume_id)['size'])
        self.assertGreater(len(self.user.messages(volume_id)), said)
        self.assertEqual(1 << 30, self._size(path))
        self.assertEqual('', self.near.run('cat ' + LOG))

    def _extended_later(self, volume_id, expected):
        """Extend it when the read has ended."""
        self.assertIn('copied', wait.until(
            lambda: self.near.run('cat ' + LOG), 'the read to end', 60))
        self.reset(volume_id)
        self.extend(volume_id)
        self.assert_data(volume_id, expected, 2)
        self.hydrated(volume_id, timeout=LATER)
        self.assert_data(volume_id, expected, 2)

    def _not_reverted(self, volume_id, snapshot_id, expected):
        """Revert a volume in vain; do what its user is told to do then."""
        said = len(self.user.messages(volume_id))
        self.revert(volume_id, snapshot_id, 'error')
        self.assertGreater(len(self.user.messages(volume_id)), said)
        # Cinder sets the volume's status first.
        wait.until(lambda: self.snapshot_status(snapshot_id) == 'available',
                   'the snapshot to be available again', 10)
        (of_cinder,), = self.lab.sql(
            "SELECT id FROM snapshots WHERE NOT deleted AND volume_id = '%s' "
            "AND id != '%s'" % (volume_id, snapshot_id))
        self.user.delete_snapshot(of_cinder)
        self.reset(volume_id)
        self.assert_data(volume_id, expected)
