# SPDX-License-Identifier: Apache-2.0
"""Backups of volumes, and their restoration, by cinder-backup on one node."""

from lab.common import user as user_module
from lab import wait

# Seconds until a backup or a restoration has ended.
TIME = 300


class Backups:
    """A mixin: backups, which are deleted at the end of the test."""

    def run_backups(self):
        """Run cinder-backup until the end of the test; returns its node.

        Always the same node, since Cinder's scheduler remembers services
        that were stopped.
        """
        node = self.lab.node('node1')
        node.start_service('cinder-backup')
        self.addCleanup(node.stop, 'cinder-backup')
        node.wait_ready()
        # Cinder's scheduler knows it by its first heartbeat.
        self.user.service_up('binary=cinder-backup', 'cinder-backup', TIME)
        return node

    def begin_backup(self, volume_id, **options):
        """Request a backup; returns its id."""
        made = self.user.request('POST', '/backups', {'backup': dict(
            options, volume_id=volume_id)})['backup']['id']
        self.addCleanup(self.delete_backup, made)
        return made

    def show_backup(self, backup_id):
        """Return a backup as the API shows it."""
        return self.user.request('GET', '/backups/' + backup_id)['backup']

    def backup_ended(self, backup_id, result='available'):
        """Return a backup once it has a result, which must be this one."""
        def ended():
            found = self.show_backup(backup_id)
            return found['status'] not in ('creating', 'restoring') and found
        found = wait.until(ended, 'backup %s to end' % backup_id, TIME)
        self.assertEqual(result, found['status'], found)
        return found

    def backup(self, volume_id, result='available', **options):
        """Back a volume up; return the backup once it has a result."""
        return self.backup_ended(self.begin_backup(volume_id, **options),
                                 result)

    def delete_backup(self, backup_id):
        """Delete a backup and wait until it is gone."""
        wait.until(lambda: self.show_backup(backup_id)['status'] not in (
            'creating', 'restoring'), 'backup %s to end' % backup_id, TIME)
        self.user.request('DELETE', '/backups/' + backup_id)

        def gone():
            try:
                status = self.show_backup(backup_id)['status']
            except user_module.ApiError as error:
                return error.status == 404
            assert 'error' not in status, status
            return False
        wait.until(gone, 'backup %s to be gone' % backup_id, 60)

    def begin_restore(self, backup_id, volume_id=None):
        """Request that a backup be restored; returns the volume's id.

        :param volume_id: of the volume that is overwritten; None for a new
            one
        """
        # It has another status until its last restoration has ended.
        self.backup_ended(backup_id)
        return self.user.request(
            'POST', '/backups/%s/restore' % backup_id,
            {'restore': {'volume_id': volume_id} if volume_id else {}})[
                'restore']['volume_id']

    def restored(self, volume_id):
        """Wait until a volume is restored; returns its id."""
        self.user.settled(volume_id, 'available', timeout=TIME)
        return volume_id
