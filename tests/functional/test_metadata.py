# SPDX-License-Identifier: Apache-2.0
"""Each kind of metadata on a real kernel, and its computed size."""

import errno
import fcntl
import os
import struct
from unittest import mock
import uuid

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.metadata import brd
from dmclone_driver.node.metadata import device
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node.metadata import tmpfs
from dmclone_driver.node.metadata import zram
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import block
from dmclone_driver.privsep import ram_disks
from lab.common import clones
from tests.functional import base

GIB, TIB = 2 ** 30, 2 ** 40
# Bits per block of the metadata; a block is copied when one of them changes.
BITS = 4096 * 8
# From linux/fs.h.
BLKDISCARD = 0x1277


class KindTest(base.FunctionalTest):
    """A test of any kind of metadata."""

    def check_clone(self):
        """Use the metadata for a clone, with a start of the service."""
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        found = self.metadata.find(names)
        self.assertIn('/%s/' % self.metadata.group_name, found[0])
        LocalVolume(names).open_gate()
        clones.write(names.path(), 0, b'x' * 4096)
        self.metadata.check()
        self.assertEqual(found, self.metadata.find(names))
        LocalVolume(names).remove(HANDLE, CLONE, GATE, SOURCE)
        self.build(names, lv, path, passive=False)
        self.assertEqual(b'x' * 4096 + data[4096:],
                         clones.read(names.path(), 0, len(data)))


class RemovalTest(base.FunctionalTest):

    def test_blocks_are_zeros(self):
        """Those that a new volume gets, also if they are not discarded."""
        names = Names(str(uuid.uuid4()))
        path, _region = self.metadata.create(names, 8 * clones.MIB, 128)
        size = block.size(path)
        clones.write(path, 0, clones.pattern(size, 1))
        extents = clones.run('lvs', '--noheadings', '-o', 'seg_pe_ranges',
                             path).strip()
        with mock.patch('dmclone_driver.node.logical_volumes.remove',
                        new=lambda lv: clones.run('lvremove', '--yes',
                                                  lv.full_name)):
            self.metadata.remove(names)
        self.addCleanup(clones.run, 'lvremove', '--yes',
                        clones.GROUP + '/again')
        clones.run('lvcreate', '--yes', '--zero', 'n', '--wipesignatures', 'n',
                   '--size', '%db' % size, '--name', 'again', clones.GROUP,
                   extents)
        self.assertEqual(bytes(size), clones.read(
            '/dev/%s/again' % clones.GROUP, 0, size))


class VolatileTest(KindTest):
    """Memory is allocated on demand, up to a limit, and freed."""

    def use_memory(self, kind, memory=64):
        self.use(kind, dmclone_volatile_metadata=True,
                 dmclone_metadata_memory=memory)
        self.addCleanup(self.metadata.give_back)

    def check_memory(self, kind):
        """Check that removed metadata frees its memory."""
        self.use_memory(kind)
        names = Names(str(uuid.uuid4()))
        path, region = self.metadata.create(names, 8 * TIB, 128)
        size = block.size(path)
        before = ram_disks.available_memory()
        clones.write(path, 0, os.urandom(size))
        taken = before - ram_disks.available_memory()
        self.assertGreater(taken, size // 2)
        self.metadata.remove(names)
        given_back = taken - (before - ram_disks.available_memory())
        self.assertGreater(given_back, size // 2)
        self._check_limits()

    def _check_limits(self):
        with self.assertRaises(exception.NoRoomForMetadata):
            self.metadata.create(Names(str(uuid.uuid4())), 64 * TIB, 64)
        group = self.metadata.group_name
        self.use_memory(type(self.metadata), memory=32)
        self.assertEqual(31 * clones.MIB, volume_groups.find(group).size)
        self.metadata.give_back()
        self.assertIsNone(volume_groups.find(group))

    def test_clone_brd(self):
        self.use_memory(brd.BrdMetadata)
        self.check_clone()

    def test_clone_zram(self):
        self.use_memory(zram.ZramMetadata)
        self.check_clone()

    def test_clone_tmpfs(self):
        self.use_memory(tmpfs.TmpfsMetadata)
        self.check_clone()

    def test_memory_brd(self):
        self.check_memory(brd.BrdMetadata)

    def test_memory_zram(self):
        self.check_memory(zram.ZramMetadata)

    def test_memory_tmpfs(self):
        self.check_memory(tmpfs.TmpfsMetadata)

    def check_cut_off(self, kind):
        """A disk without a group, as after a crash, is created again."""
        self.use_memory(kind)
        for memory in (64, 32):
            volume_groups.remove(self.metadata.group_name)
            self.use_memory(kind, memory)
            self.assertEqual((memory - 1) * clones.MIB, volume_groups.find(
                self.metadata.group_name).size)

    def test_cut_off_brd(self):
        self.check_cut_off(brd.BrdMetadata)

    def test_cut_off_zram(self):
        self.check_cut_off(zram.ZramMetadata)

    def test_cut_off_tmpfs(self):
        self.check_cut_off(tmpfs.TmpfsMetadata)

    def test_brd_of_somebody_else(self):
        clones.run('modprobe', 'brd', 'rd_nr=1', 'rd_size=65536')
        self.addCleanup(clones.run, 'modprobe', '-r', 'brd')
        clones.write('/dev/ram0', 0, b'mine' * 1024)
        with self.assertRaises(exception.BadConfiguration):
            self.use_memory(brd.BrdMetadata)
        self.assertTrue(os.path.exists('/dev/ram0'))


class DeviceTest(KindTest):
    """A blank disk gets a volume group; a disk with data is refused."""

    def setUp(self):
        super().setUp()
        clones.run('truncate', '--size', '64M', '/run/disk-of-test')
        self.addCleanup(os.unlink, '/run/disk-of-test')
        self.disk = clones.run('losetup', '--find', '--show',
                               '/run/disk-of-test').strip()
        self.addCleanup(clones.run, 'losetup', '--detach', self.disk)

    def use_disk(self):
        self.use(device.DeviceMetadata, dmclone_metadata_device=self.disk)

    def assertRefused(self, text):
        with self.assertRaises(exception.BadConfiguration) as caught:
            self.use_disk()
        self.assertIn(text, caught.exception.msg)

    def test_blank_disk(self):
        self.use_disk()
        self.addCleanup(volume_groups.remove, self.metadata.group_name)
        self.check_clone()

    def test_disk_with_a_file_system(self):
        clones.run('mkfs.ext4', '-q', self.disk)
        self.assertRefused('wipefs')
        self.assertIn('ext4', clones.run('blkid', self.disk))

    def test_disk_of_another_group(self):
        clones.run('vgcreate', 'somebody', self.disk)
        self.addCleanup(clones.run, 'vgremove', 'somebody')
        self.assertRefused('belongs to volume group somebody')


class SizingTest(base.FunctionalTest):
    """The computed size is enough for the largest transaction.

    The kernel copies each block of its bitmap in which a bit changes, and
    frees the old block when the transaction ends. The worst case is one bit
    per block.
    """

    def after_the_worst(self, size, region=0):
        """Create a clone of zero devices, and discard one region per block.

        :returns: its status, and the expected number of hydrated regions
        """
        names = Names(str(uuid.uuid4()))
        path, region = self.metadata.create(
            names, size, sizing.region(size, region))
        self.addCleanup(self.metadata.remove, names)
        # Programs that udev starts would have it open at the end.
        zero = self.raw('0 %d zero' % (size // 512), probed=False)
        clone = self.raw(
            '0 %d clone %s %s %s %d 2 no_hydration no_discard_passdown' % (
                size // 512, path, zero, zero, region), probed=False)
        step = min(BITS * region * 512, size)
        with open(clone, 'wb') as stream:
            for offset in range(0, size, step):
                fcntl.ioctl(stream, BLKDISCARD, struct.pack(
                    'QQ', offset, region * 512))
        try:
            block.flush_disk(clone)
        except OSError as error:
            self.assertEqual(errno.EIO, error.errno)
        return dmsetup.clone(os.path.basename(clone)), -(-size // step)

    def assertEnough(self, size, region=0):
        status, hydrated = self.after_the_worst(size, region)
        self.assertEqual(('rw', hydrated), (status.mode, status.hydrated))

    def test_automatic_regions(self):
        for size in (GIB, 64 * GIB, TIB, 16 * TIB, 64 * TIB):
            with self.subTest(size=size):
                self.assertEnough(size)

    def test_smallest_regions(self):
        self.assertEnough(TIB, 4)

    def test_less_is_too_little(self):
        needed = sizing.metadata_size
        with mock.patch.object(sizing, 'metadata_size',
                               lambda count: needed(count) * 3 // 4):
            status, hydrated = self.after_the_worst(TIB, 4)
        # The kernel has restored the state before the transaction.
        self.assertEqual(('ro', 0), (status.mode, status.hydrated))
