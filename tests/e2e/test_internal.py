# SPDX-License-Identifier: Apache-2.0
"""Cinder's own access to volumes never moves one."""

import hashlib

from tests.e2e import base

IMAGE = bytes(range(256)) * 4096 * 8


class InternalTest(base.E2ETest):
    """Images, and the new size of a volume."""

    def _image(self):
        image = self.user.cloud.image.create_image(
            'dmclone-test', disk_format='raw', container_format='bare',
            data=IMAGE, wait=True)
        self.addCleanup(self.user.cloud.image.delete_image, image.id)
        return image

    def test_image_to_volume_and_back(self):
        volume = self.user.create_volume(imageRef=self._image().id)
        home = self.home(volume['id'])
        with self.attached(volume['id'], home) as path:
            self.assertEqual(hashlib.sha256(IMAGE).hexdigest(),
                             self.checksum(home, path, len(IMAGE) >> 20))
        # Upload it from the node that it has moved to meanwhile.
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
            digest.update(chunk[:len(IMAGE) - size])
            size += len(chunk)
            if size >= len(IMAGE):
                break
        self.assertEqual(hashlib.sha256(IMAGE).hexdigest(),
                         digest.hexdigest())

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
