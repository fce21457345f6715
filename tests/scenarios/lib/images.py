# SPDX-License-Identifier: Apache-2.0
"""Base of scenarios with an image."""

import hashlib

from tests.scenarios.lib import base

IMAGE = bytes(range(256)) * 4096 * 8
#: The image's size in MiB, and its checksum.
MIB, CHECKSUM = len(IMAGE) >> 20, hashlib.sha256(IMAGE).hexdigest()


class ImageTest(base.E2ETest):
    """A test with an image."""

    #: A node deletes the snapshots that volumes have read within a minute.
    TO_END = 180

    def image(self):
        image = self.user.cloud.image.create_image(
            'dmclone-test', disk_format='raw', container_format='bare',
            data=IMAGE, wait=True)
        self.addCleanup(self.user.cloud.image.delete_image, image.id)
        return image
