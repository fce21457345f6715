# SPDX-License-Identifier: Apache-2.0
"""Print the ids of images and flavors that Tempest needs, as JSON.

Runs inside the namespace with the environment's Python. With instances it is
the laboratory's guest; otherwise a small image without a system, which is made
here.
"""

import json
import sys
import tempfile

from lab import seed_cloud

_NAME = 'tempest'


def _image(image):
    found = image.find_image(_NAME)
    if found:
        return found.id
    with tempfile.NamedTemporaryFile() as disk:
        disk.truncate(1 << 20)
        return image.create_image(
            name=_NAME, filename=disk.name, disk_format='raw',
            container_format='bare', visibility='public', wait=True).id


def main(nova):
    cloud = seed_cloud.connect()
    found = {}
    if nova:
        image = cloud.image.find_image('guest', ignore_missing=False).id
        for option, name in (('flavor_ref', 'guest'),
                             ('flavor_ref_alt', 'guest.larger')):
            found[option] = cloud.compute.find_flavor(
                name, ignore_missing=False).id
    else:
        image = _image(cloud.image)
    print(json.dumps(dict(found, image_ref=image, image_ref_alt=image)))


if __name__ == '__main__':
    main(sys.argv[1:] == ['nova'])
