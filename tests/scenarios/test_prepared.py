# SPDX-License-Identifier: Apache-2.0
"""Requests about a volume with two attachments: a move that is prepared."""

from dmclone_driver.node.names import Names
from lab.common import volumes
from lab import wait
from tests.scenarios.lib import backups
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations
from tests.scenarios.lib import writers


@slow
class PreparedTest(backups.Backups, operations.Operations,
                   base.TwoAttachmentsTest):
    """All are done on the old node, and the move stays prepared."""

    TO_END = 180

    def filled_volume(self, mib=volumes.DATA, **attributes):
        """Create the volume with the type that has limits."""
        attributes.setdefault('volume_type', self.limited_type())
        return super().filled_volume(mib, **attributes)

    def assert_passive(self):
        super().assert_passive()
        self.user.settled(self.volume_id, 'in-use')
        self.assertEqual(2, len(self.user.attachments(self.volume_id)))

    def test_copies_lists_and_a_backup(self):
        # When it starts it resets volumes that are being backed up.
        self.run_backups()
        for attachment in self.first, self.second:
            self.assert_limited(attachment)
        snapshot_id = self.take_snapshot(self.volume_id)
        now = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        copies = [
            (self.user.create_volume(**request), request, expected)
            for request, expected in (
                ({'snapshot_id': snapshot_id}, self.before),
                ({'size': 2, 'snapshot_id': snapshot_id}, self.before),
                ({'size': 2, 'source_volid': self.volume_id}, now))]
        self.assert_passive()
        for copy, request, expected in copies:
            self.assertIs(self.old, self.home(copy['id']), request)
            self.assert_data(copy['id'], expected, request.get('size', 1))
        self._nothing_is_safe_to_manage(snapshot_id)
        made = self.backup(self.volume_id, force=True)
        self.assert_passive()
        self.assert_data(self.restored(self.begin_restore(made['id'])), now)
        self.end_snapshot(snapshot_id)
        self.assert_passive()
        # The guest has seen nothing of it, and moves.
        self.assertEqual(now, self.checksum(self.old, self.old_path))
        self.user.detach(self.first['id'])
        self.assertIs(self.new, self.home(self.volume_id))
        self.assertEqual(now, self.checksum(self.new, self.new_path))

    def _nothing_is_safe_to_manage(self, snapshot_id):
        """Check both nodes' lists, which have all that the volume has."""
        placeholder_id, = self.placeholders(self.volume_id)
        on_old = self.unsafe_to_manage(self.old)
        self.assertIn(Names(self.volume_id).volume, on_old)
        self.assertTrue([name for name in on_old if snapshot_id in name],
                        on_old)
        self.assertIn(Names(placeholder_id).volume,
                      self.unsafe_to_manage(self.new))

    def test_a_snapshot_is_unmanaged(self):
        """Here, and at rest; LVM keeps it, and it is managed again."""
        snapshot_id = self.take_snapshot(self.volume_id)
        now = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        name = self.unmanage_and_find(snapshot_id, self.old)
        self.assert_passive()
        again = self.manage_snapshot(self.volume_id, name)
        self.assert_passive()
        self.user.detach(self.second['id'])
        self.assertEqual([], self.placeholders(self.volume_id))
        name = self.unmanage_and_find(again, self.old)
        again = self.manage_snapshot(self.volume_id, name)
        copy = self.user.create_volume(snapshot_id=again)
        self.assert_data(copy['id'], self.before)
        self.assertEqual(now, self.checksum(self.old, self.old_path))


@slow
class FollowingTest(operations.Operations, writers.Writers,
                    base.TwoAttachmentsTest):
    """A snapshot on the node to which the volume is about to move."""

    TO_END = 180

    def filled_volume(self, mib=volumes.DATA, **attributes):
        """Create a volume that has left its snapshot on the other node."""
        volume_id, home, checksum = super().filled_volume(mib, **attributes)
        self.snapshot_id = self.take_snapshot(volume_id)
        new = self.other(home)
        with self.attached(volume_id, new):
            self.hydrated(volume_id)
        return volume_id, new, checksum

    def test_snapshot_follows(self):
        """It is taken along to the volume's node, and the move goes on."""
        with self.writing(self.old, self.old_path, self.volume_id) as writer:
            code, lines, err = self.command(
                self.old, 'move', '--with-snapshots', self.volume_id,
                self.old.name)
            self.assertEqual(0, code, err)
            self.assertTrue([line for line in lines
                             if self.snapshot_id in line], lines)
            wait.until(lambda: self.old.name + '@' in self.lab.sql(
                "SELECT provider_id FROM snapshots WHERE id = '%s'"
                % self.snapshot_id)[0][0], 'the snapshot to follow', 240)
            self.assert_passive()
            writer.goes_on()
        self.assert_passive()
        copy = self.user.create_volume(snapshot_id=self.snapshot_id)
        self.assertIs(self.old, self.home(copy['id']))
        self.assert_data(copy['id'], self.before)
        # The guest moves.
        self.user.detach(self.first['id'])
        self.assertIs(self.new, self.home(self.volume_id))
        with self.writing(self.new, self.new_path, self.volume_id) as again:
            self.assertGreater(again.last, writer.last)
            self.hydrated(self.volume_id)
        self.compare(self.new, self.new_path, self.volume_id, again.last)
        self.assert_data(copy['id'], self.before)
