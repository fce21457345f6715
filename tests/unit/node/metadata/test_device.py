# SPDX-License-Identifier: Apache-2.0
"""A disk for metadata: a blank disk is used, others are refused."""

from dmclone_driver import exception
from dmclone_driver.node.metadata import device
from tests.unit import base
from tests.unit.node.metadata import stores

DISK = '/dev/disk/by-id/nvme'


class DeviceTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.lv = self.logical_volume()
        stores.use_groups(self)

    def start(self, disk=DISK):
        store = device.DeviceMetadata(stores.configuration(
            dmclone_metadata_device=disk), None)
        store.check()
        return store

    def assertRefused(self, disk, *parts):
        before = dict(self.lvm.disks)
        error = self.assertRaises(exception.BadConfiguration, self.start,
                                  disk)
        for part in ('dmclone_metadata_device = %s' % disk, *parts):
            self.assertIn(part, error.msg)
        self.assertEqual(before, self.lvm.disks)

    def test_blank_disk(self):
        store = self.start()
        path, region = store.create(self.names, self.lv.size, 128)
        self.assertIn(self.lvm.disks[DISK], path)
        # The next start finds it, in the same group.
        self.assertEqual((path, 128), self.start().find(self.names))

    def test_verify_makes_no_group(self):
        device.DeviceMetadata(stores.configuration(
            dmclone_metadata_device=DISK), None).verify()
        self.assertEqual({}, self.lvm.disks)

    def test_disk_with_something_on_it(self):
        self.lvm.disks[DISK] = 'ext4'
        self.assertRefused(DISK, 'signature', 'wipefs')

    def test_disk_of_another_group(self):
        self.lvm.disks[DISK] = 'fast'
        self.assertRefused(DISK, 'belongs to volume group fast',
                           'dmclone_metadata_volume_group')

    def test_no_disk(self):
        self.assertRefused(None, 'needs the path')
