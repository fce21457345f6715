# SPDX-License-Identifier: Apache-2.0
"""Two attachments of one instance, as in a live migration."""

from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import named
from tests.scenarios.lib.marks import slow


class TwoAttachmentsTest(base.TwoAttachmentsTest):
    """A prepared move, its switchover and its abort."""

    def test_old_attachment_goes(self):
        expected = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        self.assert_passive()
        self.user.detach(self.first['id'])
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        expected = self.checksum_with(self.new, self.new_path, 30, 'new')
        self.write(self.new, self.new_path, 30, 'new')
        self.hydrated(self.volume_id)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))

    def test_new_attachment_goes(self):
        expected = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        self.checksum(self.new, self.new_path)
        self.assert_passive()
        self.user.detach(self.second['id'])
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertEqual([], self.placeholders(self.volume_id))
        self.assertEqual('', leftovers.devices(self.new))
        self.write(self.old, self.old_path, 10, 'late')
        self.assertEqual(expected, self.checksum(self.old, self.old_path))

    def test_guest_writes_before_the_old_attachment_goes(self):
        self.assert_passive()
        expected = self.checksum_with(self.old, self.old_path, 30, 'new')
        self.write(self.new, self.new_path, 30, 'new')
        wait.until(lambda: self.home(self.volume_id) is self.new,
                   'the peer to switch over', 10)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        # As in scenario 7 of live migration: the new one is deleted first.
        self.user.detach(self.second['id'])
        self.user.detach(self.first['id'])
        self.hydrated(self.volume_id)
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(expected, self.checksum(self.new, path))

    def test_write_before_the_new_attachment_is_complete(self):
        """It fails: Nova formats encrypted volumes that seem to be empty."""
        self.user.detach(self.second['id'])
        early = self.user.attach(self.volume_id, self.new, self.instance,
                                 complete=False)
        self.new_path = user_module.path(early)
        self.begin('dd if=/dev/zero of=%s bs=64k count=1 oflag=direct'
                   % self.new_path)
        self.assertEqual('1', self.end())
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.user.detach(early['id'])
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertEqual('', leftovers.devices(self.new))
        self.assertEqual(self.before,
                         self.checksum(self.old, self.old_path))

    def test_flush_before_the_old_attachment_goes(self):
        self.flush()
        self.user.detach(self.first['id'])
        self.assertEqual('0', self.end())
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(self.before, self.checksum(self.new, self.new_path))

    @named
    def test_second_instance_and_a_snapshot(self):
        """The former is refused; the latter is taken at the old home."""
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.attach(self.volume_id, self.new, user_module.uuid4())
        self.assertIn(refused.exception.status, (400, 409, 500))
        snapshot_id = self.user.create_snapshot(self.volume_id, 30)
        self.assert_passive()
        self.user.detach(self.first['id'])
        self.write(self.new, self.new_path, 10, 'later')
        copy = self.user.create_volume(snapshot_id=snapshot_id)
        with self.attached(copy['id'], self.new) as copied:
            self.assertEqual(self.before, self.checksum(self.new, copied))
        self.user.request('DELETE', '/snapshots/' + snapshot_id)
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM snapshots WHERE deleted = 0"),
            'the snapshot to be gone', 30)
        self.hydrated(copy['id'])
        self.hydrated(self.volume_id)
        wait.until(lambda: not leftovers.volumes(self.old),
                   'snapshot and origin to be deleted', 120)

    @slow
    def test_peer_loses_power_and_its_attachment_goes(self):
        self.new.cut_power()
        try:
            self.user.detach(self.second['id'])
            self.assertEqual(self.old, self.home(self.volume_id))
            # The target still has its session, but is removed.
            self.assertNotIn('-export', self.old.run('dmsetup ls'))
            self.write(self.old, self.old_path, 10, 'late')
        finally:
            self.new.start()
            self.new.wait_ready()
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.assertEqual('', leftovers.devices(self.new))

    @named
    def test_home_is_cut_off_and_the_guest_writes(self):
        self.old.stop('cinder-volume')
        self.addCleanup(self.old.wait_ready)
        self.addCleanup(self.old.start_service, 'cinder-volume')
        self.write(self.new, self.new_path, 30, 'new')
        self.assertEqual(self.new, self.home(self.volume_id))

    @slow
    def test_peer_reboots_and_the_old_attachment_goes(self):
        self.new.cut_power()
        self.new.start()
        self.new.wait_ready()
        self.write(self.old, self.old_path, 10, 'late')
        expected = self.checksum(self.old, self.old_path)
        self.user.detach(self.first['id'])
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        self.hydrated(self.volume_id)

    @slow
    def test_flush_before_the_new_attachment_goes(self):
        self.flush()
        self.user.detach(self.second['id'])
        self.end()
        self.assertEqual(self.old, self.home(self.volume_id))
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.assertEqual('', leftovers.devices(self.new))
