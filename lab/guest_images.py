# SPDX-License-Identifier: Apache-2.0
"""Upload the guest's images to the laboratory's Glance.

Runs inside the namespace with the environment's Python.
"""

import tempfile

from lab import guest
from lab import seed_cloud


def main():
    image = seed_cloud.connect().image
    parts = {}
    for kind, path in (('aki', guest.KERNEL), ('ari', guest.INITRD)):
        parts[kind] = image.create_image(
            name='guest-' + kind, filename=str(path), disk_format=kind,
            container_format=kind, visibility='public', wait=True).id
    with tempfile.NamedTemporaryFile() as disk:
        disk.truncate(1 << 20)
        # The disk is empty: the kernel is an image of its own.
        image.create_image(
            name='guest', filename=disk.name, disk_format='raw',
            container_format='bare', visibility='public', wait=True,
            kernel_id=parts['aki'], ramdisk_id=parts['ari'],
            os_command_line=guest.COMMAND_LINE)


if __name__ == '__main__':
    main()
