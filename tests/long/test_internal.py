# SPDX-License-Identifier: Apache-2.0
"""What Cinder copies by itself stays where Cinder puts it."""

from lab.common import user as user_module
from lab import wait
from tests.e2e import base


class CopyTest(base.E2ETest):
    """Migrations by copy, and volumes made from others."""

    def test_migration_by_copy(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        admin = user_module.User(self.lab, 'admin')
        admin.request('POST', '/volumes/%s/action' % volume_id, {
            'os-migrate_volume': {'host': other.name + '@dmclone#dmclone',
                                  'force_host_copy': True}})
        wait.until(lambda: admin.volume(volume_id)[
            'os-vol-mig-status-attr:migstat'] == 'success',
            'the migration', 180)
        self.assertEqual(other, self.home(volume_id))
        with self.attached(volume_id, other) as path:
            self.assertEqual(checksum, self.checksum(other, path))
        with self.attached(volume_id, home) as path:
            self.assertEqual(checksum, self.checksum(home, path))
            self.hydrated(volume_id)

    def test_volume_from_volume_and_from_snapshot(self):
        volume_id, home, checksum = self.filled_volume()
        snapshot = self.user.request('POST', '/snapshots', {'snapshot': {
            'volume_id': volume_id}})['snapshot']
        path = '/snapshots/' + snapshot['id']
        wait.until(lambda: self.user.request('GET', path)['snapshot'][
            'status'] == 'available', 'the snapshot', 30)
        with self.attached(volume_id, home) as device:
            self.write(home, device, 3, 'later')
            changed = self.checksum(home, device)
        for source, expected in (('snapshot_id', checksum),
                                 ('source_volid', changed)):
            source_id = snapshot['id'] if 'snap' in source else volume_id
            copy = self.user.create_volume(**{source: source_id})
            with self.attached(copy['id'], self.home(copy['id'])) as device:
                self.assertEqual(expected, self.checksum(home, device))
        self.user.request('DELETE', path)
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM snapshots WHERE deleted = 0"),
            'the snapshot to be gone', 60)
