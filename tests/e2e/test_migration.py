# SPDX-License-Identifier: Apache-2.0
"""Two attachments of one instance, as in a live migration."""

import time

from tests.e2e import base
from tests.e2e import user as user_module
from tests.lab import wait


class TwoAttachmentsTest(base.E2ETest):
    """A prepared transfer, and each of its ends."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.old, self.before = self.filled_volume()
        self.new = self.other(self.old)
        self.instance = user_module.uuid4()
        self.first = self.user.attach(self.volume_id, self.old, self.instance)
        self.second = self.user.attach(self.volume_id, self.new,
                                       self.instance)
        self.old_path = user_module.path(self.first)
        self.new_path = user_module.path(self.second)

    def _assert_passive(self):
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertIn(' 0/', self.clone_status(self.new, self.new_path))

    def begin(self, command):
        """Start a command on the new node that may have to wait."""
        self.new.run('rm -f /run/code; (%s; echo $? > /run/code) '
                     '> /dev/null 2>&1 &' % command)

    def end(self):
        """Wait for the end of that command; returns its code."""
        return wait.until(
            lambda: self.new.run('cat /run/code 2>/dev/null; true').strip(),
            'what waits at the gate to end', 30)

    def flush(self):
        """Let the guest flush before it has written anything."""
        self.begin("python3 -c 'import os; os.fsync(os.open(\"%s\", "
                   "os.O_RDWR))'" % self.new_path)
        time.sleep(3)
        self._assert_passive()

    def test_old_attachment_goes(self):
        expected = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        self._assert_passive()
        self.user.detach(self.first['id'])
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        self.write(self.new, self.new_path, 30, 'new')
        self.hydrated(self.volume_id)
        self.assertEqual(
            self.checksum_with(self.new, self.new_path, 30, 'new'),
            self.checksum(self.new, self.new_path))

    def test_new_attachment_goes(self):
        expected = self.checksum_with(self.old, self.old_path, 10, 'late')
        self.write(self.old, self.old_path, 10, 'late')
        self.checksum(self.new, self.new_path)
        self._assert_passive()
        self.user.detach(self.second['id'])
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertEqual([], self.placeholders(self.volume_id))
        self.assertNotIn('dmclone', self.new.run('dmsetup ls; lvs'))
        self.write(self.old, self.old_path, 10, 'late')
        self.assertEqual(expected, self.checksum(self.old, self.old_path))

    def test_guest_writes_before_the_old_attachment_goes(self):
        self._assert_passive()
        expected = self.checksum_with(self.old, self.old_path, 30, 'new')
        self.write(self.new, self.new_path, 30, 'new')
        wait.until(lambda: self.home(self.volume_id) is self.new,
                   'the peer to commit', 10)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        # As in scenario 7 of live migration: the new one goes first.
        self.user.detach(self.second['id'])
        self.user.detach(self.first['id'])
        self.hydrated(self.volume_id)
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(expected, self.checksum(self.new, path))

    def test_write_before_the_new_attachment_is_complete(self):
        """Nova formats what it takes for an empty encrypted volume."""
        self.user.detach(self.second['id'])
        early = self.user.attach(self.volume_id, self.new, self.instance,
                                 complete=False)
        self.new_path = user_module.path(early)
        self.begin('dd if=/dev/zero of=%s bs=64k count=1 oflag=direct'
                   % self.new_path)
        # The watcher looks several times a second.
        time.sleep(5)
        self._assert_passive()
        self.user.detach(early['id'])
        self.assertEqual('1', self.end())
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertEqual([], self.placeholders(self.volume_id))
        self.assertNotIn('dmclone', self.new.run('dmsetup ls; lvs'))
        self.assertEqual(self.before,
                         self.checksum(self.old, self.old_path))

    def test_flush_before_the_old_attachment_goes(self):
        self.flush()
        self.user.detach(self.first['id'])
        self.assertEqual('0', self.end())
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(self.before, self.checksum(self.new, self.new_path))

    def test_flush_before_the_new_attachment_goes(self):
        self.flush()
        self.user.detach(self.second['id'])
        self.end()
        self.assertEqual(self.old, self.home(self.volume_id))
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.assertNotIn('dmclone', self.new.run('dmsetup ls; lvs'))

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

    def test_operations_are_refused(self):
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.attach(self.volume_id, self.new, user_module.uuid4())
        self.assertIn(refused.exception.status, (400, 409, 500))
        snapshot = self.user.request('POST', '/snapshots', {'snapshot': {
            'volume_id': self.volume_id, 'force': True}})['snapshot']
        path = '/snapshots/' + snapshot['id']
        wait.until(lambda: self.user.request('GET', path)['snapshot'][
            'status'] == 'error', 'the snapshot to be refused', 30)
        self.user.request('DELETE', path)
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM snapshots WHERE deleted = 0"),
            'the snapshot to be gone', 30)
        self._assert_passive()

    def test_peer_loses_power_and_its_attachment_goes(self):
        self.new.cut_power()
        try:
            self.user.detach(self.second['id'])
            self.assertEqual(self.old, self.home(self.volume_id))
            # Its session lives on in the target, which goes nonetheless.
            self.assertNotIn('-export', self.old.run('dmsetup ls'))
            self.write(self.old, self.old_path, 10, 'late')
        finally:
            self.new.start()
            self.new.wait_ready()
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.assertNotIn('dmclone', self.new.run('dmsetup ls; lvs'))

    def test_home_is_cut_off_and_the_guest_writes(self):
        self.old.stop('cinder-volume')
        self.addCleanup(self.old.wait_ready)
        self.addCleanup(self.old.start_service, 'cinder-volume')
        self.write(self.new, self.new_path, 30, 'new')
        self.assertEqual(self.new, self.home(self.volume_id))
