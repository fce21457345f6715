# SPDX-License-Identifier: Apache-2.0
"""Cinder's internal attach and its copies, which do not move a volume."""

import hashlib

from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import images
from tests.scenarios.lib.marks import named
from tests.scenarios.lib.marks import slow


class InternalTest(images.ImageTest):
    """Images, and the extension of a volume."""

    def test_image_to_volume_and_back(self):
        volume = self.user.create_volume(imageRef=self.image().id)
        home = self.home(volume['id'])
        with self.attached(volume['id'], home) as path:
            self.assertEqual(images.CHECKSUM,
                             self.checksum(home, path, images.MIB))
        # Upload it from its new home.
        with self.attached(volume['id'], self.other(home)):
            self.hydrated(volume['id'])
        answer = self.user.request(
            'POST', '/volumes/%s/action' % volume['id'],
            {'os-volume_upload_image': {
                'image_name': 'dmclone-back', 'disk_format': 'raw',
                'container_format': 'bare'}})
        image_id = answer['os-volume_upload_image']['image_id']
        self.addCleanup(self.user.cloud.image.delete_image, image_id)
        self.user.settled(volume['id'], 'available', timeout=120)
        self.assertEqual(self.other(home), self.home(volume['id']))
        digest, size = hashlib.sha256(), 0
        chunks = self.user.cloud.image.download_image(
            image_id, stream=True).iter_content(1 << 20)
        for chunk in chunks:
            digest.update(chunk[:len(images.IMAGE) - size])
            size += len(chunk)
            if size >= len(images.IMAGE):
                break
        self.assertEqual(images.CHECKSUM, digest.hexdigest())

    @named
    def test_extend(self):
        volume_id, home, checksum = self.filled_volume()
        self.user.request('POST', '/volumes/%s/action' % volume_id,
                          {'os-extend': {'new_size': 2}})
        self.user.settled(volume_id, 'available')
        other = self.other(home)
        with self.attached(volume_id, other) as path:
            self.assertEqual(str(2 << 30), other.run(
                'blockdev --getsize64 ' + path).strip())
            self.assertEqual(checksum, self.checksum(other, path))
            self.hydrated(volume_id)

    def test_extend_while_attached(self):
        """Cinder's scheduler refuses it; the volume stays as it is."""
        volume = self.user.create_volume()
        home = self.home(volume['id'])
        with self.attached(volume['id'], home) as path:
            self.user.request('POST', '/volumes/%s/action' % volume['id'],
                              {'os-extend': {'new_size': 2}})
            wait.until(lambda: self.user.messages(volume['id']),
                       'the message to the user', 60)
            message, = self.user.messages(volume['id'])
            self.assertIn('Could not find any available weighted backend',
                          message['user_message'])
            self.assertEqual(1, self.user.settled(
                volume['id'], 'in-use')['size'])
            self.assertEqual(str(1 << 30), home.run(
                'blockdev --getsize64 ' + path).strip())


@slow
class CopyTest(images.ImageTest):
    """Migrations by copy, and cloned volumes."""

    def copy(self, volume_id, node):
        """Have Cinder copy a volume to a node."""
        admin = user_module.User(self.lab, 'admin')
        admin.request('POST', '/volumes/%s/action' % volume_id, {
            'os-migrate_volume': {'host': node.name + '@dmclone#dmclone',
                                  'force_host_copy': True}})
        wait.until(lambda: admin.volume(volume_id)[
            'os-vol-mig-status-attr:migstat'] == 'success',
            'the migration', 300)
        self.assertEqual(node, self.home(volume_id))

    def test_migration_by_copy_while_it_hydrates(self):
        """The copy reads through the handle; then the clone is deleted."""
        volume_id, home, _ = self.filled_volume()
        other = self.other(home)
        with self.attached(volume_id, home) as path:
            expected = self.checksum_with(home, path, 3, 'later')
        with self.slow_network(other, mbit=100):
            with self.attached(volume_id, other) as path:
                self.write(other, path, 3, 'later')
            self.assertNotEqual([], self.placeholders(volume_id))
            self.copy(volume_id, home)
        with self.attached(volume_id, home) as path:
            self.assertEqual(expected, self.checksum(home, path))
        wait.until(lambda: not leftovers.volumes(other),
                   'the original to be deleted', 120)

    def test_image_to_a_volume_that_hydrates(self):
        volume_id, home, _ = self.filled_volume()
        other = self.other(home)
        image = self.image()
        with self.slow_network(other):
            with self.attached(volume_id, other):
                pass
            self.user.request('POST', '/volumes/%s/action' % volume_id, {
                'os-reimage': {'image_id': image.id}})
            self.user.settled(volume_id, 'available')
            self.assertNotEqual([], self.placeholders(volume_id))
        self.hydrated(volume_id)
        with self.attached(volume_id, home) as path:
            self.assertEqual(images.CHECKSUM,
                             self.checksum(home, path, images.MIB))
            self.hydrated(volume_id)

    def test_migration_by_copy(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        self.copy(volume_id, other)
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
