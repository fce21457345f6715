# SPDX-License-Identifier: Apache-2.0
"""Backups by cinder-backup, which runs on one node."""

from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow


@slow
class BackupTest(base.HydratingTest):
    """A volume that has just moved is backed up."""

    def setUp(self):
        super().setUp()
        # Always the same node, since Cinder's scheduler remembers services
        # that were stopped. The volume leaves it, so it reads by iSCSI.
        self.node = self.lab.node('node1')
        self.peer = self.other(self.node)
        if self.home(self.volume_id) is not self.node:
            with self.attached(self.volume_id, self.node):
                self.hydrated(self.volume_id)
        self.node.start_service('cinder-backup')
        self.addCleanup(self.node.stop, 'cinder-backup')
        self.node.wait_ready()

    def backup(self, result, **options):
        """Back the volume up; return the backup once it has a result."""
        made = self.user.request('POST', '/backups', {'backup': dict(
            options, volume_id=self.volume_id)})['backup']['id']
        self.addCleanup(self.delete, made)

        def ended():
            found = self.user.request('GET', '/backups/' + made)['backup']
            return found['status'] != 'creating' and found
        found = wait.until(ended, 'the backup', 240)
        self.assertEqual(result, found['status'], found)
        return found

    def delete(self, backup_id):
        self.user.request('DELETE', '/backups/' + backup_id)
        wait.until(lambda: not self.lab.sql(
            'SELECT id FROM backups WHERE deleted = 0'),
            'the backup to be gone', 60)

    def test_backup_while_it_hydrates(self):
        with self.slow_network(self.peer, mbit=100):
            expected = self.attach_and_write()[1]
            self.user.detach_all(self.volume_id)
            made = self.backup('available')
            self.assertNotEqual([], self.placeholders(self.volume_id))
        answer = self.user.request(
            'POST', '/backups/%s/restore' % made['id'], {'restore': {}})
        copy = answer['restore']['volume_id']
        self.user.settled(copy, 'available', timeout=240)
        with self.attached(copy, self.node) as path:
            self.assertEqual(expected, self.checksum(self.node, path))
        self.hydrated(self.volume_id)

    def test_backup_of_a_volume_in_use_that_hydrates(self):
        with self.slow_network(self.peer, mbit=100):
            path, expected = self.attach_and_write()
            made = self.backup('available', force=True)
            self.assertNotEqual([], self.placeholders(self.volume_id))
            self.user.settled(self.volume_id, 'in-use')
            self.assertEqual(expected, self.checksum(self.peer, path))
        answer = self.user.request(
            'POST', '/backups/%s/restore' % made['id'], {'restore': {}})
        copy = answer['restore']['volume_id']
        self.user.settled(copy, 'available', timeout=240)
        with self.attached(copy, self.node) as restored:
            self.assertEqual(expected, self.checksum(self.node, restored))
        self.user.detach_all(self.volume_id)
        self.hydrated(self.volume_id)
        self.hydrated(copy)
