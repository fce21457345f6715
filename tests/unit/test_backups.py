# SPDX-License-Identifier: Apache-2.0

from cinder import objects
from cinder.objects import fields

from dmclone_driver import exception
from dmclone_driver.node.names import Names
from tests.unit import base


class BackupTestCase(base.CloudTestCase):
    """Backups, as VolumeManager.get_backup_device begins them."""

    def backup(self, **options):
        backup = objects.Backup(
            self.context, volume_id=self.volume.id, user_id='user',
            project_id='project', status=fields.BackupStatus.CREATING,
            **options)
        backup.create()
        return backup

    def begin(self, backup, previous='in-use'):
        volume = self.row()
        volume.previous_status, volume.status = previous, 'backing-up'
        volume.save()
        node = self.cloud.by_host[volume.host.partition('#')[0]]
        with self.cloud.on(node):
            return node.driver.get_backup_device(self.context, backup)

    def assertFailed(self, backup, *reasons):
        backup = objects.Backup.get_by_id(self.context, backup.id)
        self.assertEqual(fields.BackupStatus.ERROR, backup.status)
        for reason in reasons:
            self.assertIn(reason, backup.fail_reason)

    def test_volume_in_use_that_moves(self):
        """A clone of it is backed up."""
        self.cloud.attach(self.volume, self.b)
        found, _is_snapshot = self.begin(self.backup())
        self.assertNotEqual(self.volume.id, found.id)
        self.assertEqual('clone', self.b.kernel.get(
            Names(self.cloud.row(found.id).name_id).path()).kinds)

    def test_source_does_not_answer(self):
        """It cannot be cloned; it is in use again, and the user told."""
        path = self.cloud.attach(self.volume, self.b)
        device = self.b.kernel.get(path)
        self.b.kernel.get(Names(self.row().name_id).path(
            'source')).suspended = True
        device.clone.waiting = 1
        backup = self.backup()
        self.assertRaises(exception.RequestsWait, self.begin, backup)
        self.assertFailed(backup, self.volume.id, 'requests wait')
        row = self.row()
        self.assertEqual(('in-use', 'error_backing-up'),
                         (row.status, row.previous_status))
        self.assertEqual(2, len(self.cloud.rows()))
        device.clone.waiting = 0

    def test_of_a_snapshot(self):
        snapshot = objects.Snapshot(
            self.context, volume_id=self.volume.id, volume_size=1,
            status=fields.SnapshotStatus.BACKING_UP, user_id='user',
            project_id='project')
        snapshot.create()
        backup = self.backup(snapshot_id=snapshot.id)
        self.patch('dmclone_driver.driver.DMCloneVolumeDriver.'
                   'create_volume_from_snapshot', side_effect=OSError('full'))
        self.assertRaises(OSError, self.begin, backup)
        self.assertFailed(backup, 'full')
        snapshot.refresh()
        self.assertEqual(fields.SnapshotStatus.AVAILABLE, snapshot.status)
        self.assertEqual('backing-up', self.row().status)

    def test_volume_that_hydrates(self):
        """Cinder reads a volume that is not in use itself."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        device, is_snapshot = self.begin(self.backup(), 'available')
        self.assertEqual((self.volume.id, False), (device.id, is_snapshot))
