# SPDX-License-Identifier: Apache-2.0
"""Failing disks: requests fail or wait, and no data is lost."""

import errno

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import block
from lab.common import clones
from tests.functional import base

REGION = 128
REGION_BYTES = REGION * 512
#: The data of the guest's writes.
WRITTEN = b'written!' * 512
#: Fails all writes, permanently.
FLAKEY = '0 %d flakey %s 0 0 1 1 error_writes'
LINEAR = '0 %d linear %s 0'


class BadDiskTest(base.FunctionalTest):
    """A test with an exported source and helpers for its clone."""

    def setUp(self):
        super().setUp()
        for module in ('dm-dust', 'dm-flakey'):
            clones.run('modprobe', module)
        self.source, self.disk, self.data = self.exported_source()

    def status(self):
        return dmsetup.clone(self.names.of(CLONE))

    def hydrate(self):
        """Hydrate the clone; returns its status."""
        LocalVolume(self.names).start_hydration()
        return clones.wait_until(self.complete, 'complete clone')

    def complete(self):
        return self.status().complete and self.status()

    def expect(self, data):
        self.assertEqual(data, clones.read(self.names.path(), 0, len(data)))

    def expect_linear(self, data):
        """Complete the clone, and compare its own disk."""
        self.hydrate()
        self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        LocalVolume(self.names).remove(GATE, SOURCE)
        self.expect(data)
        self.assertEqual(data, clones.read(self.lv.path, 0, len(data)))

    def assertFails(self, function, *args):
        with self.assertRaises(OSError) as caught:
            function(*args)
        self.assertEqual(errno.EIO, caught.exception.errno)


class SourceTest(BadDiskTest):
    """A block of the source is unreadable."""

    #: The region of the block.
    BAD = 40

    def setUp(self):
        super().setUp()
        size = block.size(self.disk) // 512
        self.dust = self.raw('0 %d dust %s 0 512' % (size, self.disk))
        self.bad_block = devices.MARGIN + self.BAD * REGION + 8
        self.tell('addbadblock %d' % self.bad_block)
        self.tell('enable')
        self.names, self.lv = self.clone(self.dust, passive=False)
        LocalVolume(self.names).start_hydration()
        LocalVolume(self.names).copy_one_by_one()
        clones.wait_until(lambda: self.status().hydrated ==
                          self.status().total - 1,
                          'copy of all but one region')

    def tell(self, text):
        clones.run('dmsetup', 'message', self.dust, '0', *text.split())

    def test_guest_sees_an_error_there_and_nowhere_else(self):
        at = self.BAD * REGION_BYTES
        self.assertFails(clones.read, self.names.path(), at + 4096, 4096)
        self.assertEqual(self.data[:at],
                         clones.read(self.names.path(), 0, at))
        after = at + REGION_BYTES
        self.assertEqual(self.data[after:], clones.read(
            self.names.path(), after, len(self.data) - after))
        self.assertTrue(self.status().healthy)
        self.assertFalse(LocalVolume(self.names).make_linear(self.lv))

    def test_part_of_the_region_cannot_be_written(self):
        """The write fails, since the rest of the region would be lost."""
        at = self.BAD * REGION_BYTES
        self.assertFails(clones.write, self.names.path(), at, WRITTEN)
        self.tell('removebadblock %d' % self.bad_block)
        self.expect_linear(self.data)

    def test_guest_overwrites_the_region(self):
        """It can be overwritten completely while hydration is off."""
        at, new = self.BAD * REGION_BYTES, WRITTEN * 16
        self.assertTrue(LocalVolume(self.names).stop_hydration())
        clones.write(self.names.path(), at, new)
        self.expect_linear(self.data[:at] + new +
                           self.data[at + len(new):])

    def test_disk_is_good_again(self):
        self.tell('removebadblock %d' % self.bad_block)
        self.expect_linear(self.data)


class DestinationTest(BadDiskTest):
    """Writes to the destination's disk fail."""

    def test_disk_is_good_again(self):
        self.names, self.lv = self.clone(self.disk, passive=False)
        clones.write(self.names.path(), 0, WRITTEN)
        gate, sectors = self.names.path(GATE), self.lv.size // 512
        clones.swap(gate, FLAKEY % (sectors, self.lv.path))
        self.assertFails(clones.write, self.names.path(), clones.MIB, WRITTEN)
        LocalVolume(self.names).start_hydration()
        self.expect(WRITTEN + self.data[4096:])
        self.assertEqual(1, self.status().hydrated)
        self.assertTrue(self.status().healthy)
        self.assertFalse(LocalVolume(self.names).make_linear(self.lv))
        clones.swap(gate, LINEAR % (sectors, self.lv.path))
        self.expect_linear(WRITTEN + self.data[4096:])


class MetadataTest(BadDiskTest):
    """Writes to the metadata device fail."""

    def make_clone(self, sectors=4096):
        """Create a clone with a metadata device of some sectors."""
        self.names, self.lv = self.logical_volume()
        self.below, _ = self.metadata.create(self.names, self.lv.size, REGION)
        self.addCleanup(self.metadata.remove, self.names)
        self.bitmap = self.raw(LINEAR % (sectors, self.below))
        self.addCleanup(LocalVolume(self.names).remove, HANDLE, CLONE, GATE,
                        SOURCE)
        self.build_again()

    def build_again(self):
        LocalVolume(self.names).remove(HANDLE, CLONE, GATE, SOURCE)
        LocalVolume(self.names).build_clone(self.lv, self.bitmap, REGION,
                                            clones.TUNING, disk=self.disk)

    def expect_sick(self, acknowledged, tried):
        """Check that the clone is not healthy, readable, and never linear.

        :param tried: offset of a write that failed
        """
        self.assertFalse(self.status().healthy)
        self.assertTrue(LocalVolume(self.names).is_sick())
        self.expect_all_but(tried, acknowledged)
        LocalVolume(self.names).start_hydration()
        self.assertFalse(LocalVolume(self.names).make_linear(self.lv))

    def expect_all_but(self, tried, data):
        found = clones.read(self.names.path(), 0, len(data))
        self.assertIn(found[tried:tried + 4096],
                      (WRITTEN, data[tried:tried + 4096]))
        self.assertEqual(data[:tried], found[:tried])
        self.assertEqual(data[tried + 4096:], found[tried + 4096:])
        return found

    def test_disk_is_good_again(self):
        self.make_clone()
        clones.write(self.names.path(), 0, WRITTEN)
        acknowledged = WRITTEN + self.data[4096:]
        clones.swap(self.bitmap, FLAKEY % (4096, self.below))
        self.assertFails(clones.write, self.names.path(), clones.MIB, WRITTEN)
        self.expect_sick(acknowledged, clones.MIB)
        clones.swap(self.bitmap, LINEAR % (4096, self.below))
        # Like a reboot of the node.
        self.build_again()
        self.assertEqual(1, self.status().hydrated)
        self.expect_linear(self.expect_all_but(clones.MIB, acknowledged))

    def test_device_is_full(self):
        """A metadata device that is smaller than the driver's becomes full."""
        self.make_smallest()
        acknowledged, tried = bytearray(self.data), None
        for at in range(0, len(self.data), REGION_BYTES):
            try:
                clones.write(self.names.path(), at, WRITTEN)
            except OSError as error:
                self.assertEqual(errno.EIO, error.errno)
                tried = at
                break
            acknowledged[at:at + 4096] = WRITTEN
        self.assertIsNotNone(tried)
        acknowledged = bytes(acknowledged)
        self.expect_sick(acknowledged, tried)
        self.build_again()
        self.expect_all_but(tried, acknowledged)

    def make_smallest(self):
        """Create a clone with the smallest metadata device possible."""
        self.make_clone()
        for blocks in range(4, 64):
            LocalVolume(self.names).remove(HANDLE, CLONE, GATE, SOURCE)
            block.zero_start(self.below, 4096)
            clones.swap(self.bitmap, LINEAR % (8 * blocks, self.below))
            try:
                self.build_again()
                return
            except processutils.ProcessExecutionError:
                continue
        self.fail('no metadata is large enough')
