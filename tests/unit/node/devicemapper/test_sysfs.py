# SPDX-License-Identifier: Apache-2.0
"""Reading sysfs, with files like the kernel's."""

import os
import pathlib
from unittest import mock

import fixtures

from dmclone_driver.node.devicemapper import sysfs
from tests.unit import base


class SysfsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.mapper, self.block = folder / 'mapper', folder / 'block'
        self.mapper.mkdir()
        self.patch('dmclone_driver.node.devicemapper.sysfs.MAPPER',
                   new=str(self.mapper))
        self.patch('dmclone_driver.node.devicemapper.sysfs.BLOCK',
                   new=str(self.block))
        (self.block / 'dm-7/slaves').mkdir(parents=True)
        os.symlink('../dm-7', self.mapper / 'a')

    def test_devices(self):
        (self.mapper / 'control').touch()
        self.assertEqual(['a', 'control'], sorted(sysfs.devices()))

    def test_disks_below(self):
        self.assertEqual([], sysfs.disks_below('a'))
        # A disk whose session was ended.
        os.symlink('nowhere', self.block / 'dm-7/slaves/sdx')
        self.assertEqual(['sdx'], sysfs.disks_below('a'))

    def test_lowest_disks(self):
        """Through RAID and partitions, down to whole disks."""
        disks = self.block.parent / 'devices'
        (disks / 'sda/sda3').mkdir(parents=True)
        (disks / 'sda/sda3/partition').write_text('3\n')
        for name in ('sda', 'sdb', 'md0'):
            (disks / name / 'slaves').mkdir(parents=True)
            os.symlink(disks / name, self.block / name)
        os.symlink(disks / 'sda/sda3', self.block / 'sda3')
        for name in ('sda3', 'sdb'):
            os.symlink(disks / name, disks / 'md0/slaves' / name)
        self.assertEqual({'dm-7'}, sysfs.lowest_disks('a'))
        os.symlink(disks / 'md0', self.block / 'dm-7/slaves/md0')
        self.assertEqual({'sda', 'sdb'}, sysfs.lowest_disks('a'))
        self.assertRaises(FileNotFoundError, sysfs.lowest_disks, 'b')

    def test_answers(self):
        (self.block / 'dm-7/slaves/sdx').touch()
        # A device that has no state, as one of the mapper.
        self.assertTrue(sysfs.answers('a'))
        (self.block / 'sdx/device').mkdir(parents=True)
        for text, expected in (('running', True), ('blocked', False),
                               ('transport-offline', False)):
            (self.block / 'sdx/device/state').write_text(text + '\n')
            self.assertIs(expected, sysfs.answers('a'))

    def test_all_requests(self):
        stats = self.mapper.parent / 'diskstats'
        self.patch('dmclone_driver.node.devicemapper.sysfs.DISKSTATS',
                   new=str(stats))
        (self.mapper / 'control').touch()
        os.symlink('../dm-8', self.mapper / 'gone')
        # As from Linux 5.5 on.
        stats.write_text(
            '   7       0 loop0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n'
            ' 254       7 dm-7 5 90 91 92 6 93 94 95 7 96 97 8 98 99 100 9 '
            '101\n')
        self.assertEqual({'a': 5 + 6 + 7 + 8 + 9}, sysfs.all_requests())
        # The folder has changed, and may change again in the same moment.
        self.rename('a', 'b')
        self.assertEqual({'b'}, set(sysfs.all_requests()))
        for old, new, seconds in (('b', 'c', 1000), ('c', 'd', 1001)):
            self.rename(old, new)
            os.utime(self.mapper, (seconds, seconds))
            self.assertEqual({new}, set(sysfs.all_requests()))
        with mock.patch('os.readlink') as read:
            self.assertEqual({'d'}, set(sysfs.all_requests()))
        read.assert_not_called()

    def rename(self, old, new):
        os.rename(self.mapper / old, self.mapper / new)

    def test_in_flight(self):
        (self.block / 'dm-7/inflight').write_text('       3        4\n')
        self.assertEqual(7, sysfs.in_flight('a'))
        self.assertEqual(4, sysfs.writes_in_flight('a'))

    def test_is_suspended(self):
        (self.block / 'dm-7/dm').mkdir()
        for text, expected in (('1\n', True), ('0\n', False)):
            (self.block / 'dm-7/dm/suspended').write_text(text)
            self.assertIs(expected, sysfs.is_suspended('a'))

    def test_suspended(self):
        for number, values in enumerate((
                {'name': 'one', 'suspended': '1'},
                {'name': 'two', 'suspended': '0'},
                {'name': 'three', 'suspended': '1'},
                # A device that is removed meanwhile.
                {'suspended': '1'}, {})):
            folder = self.block / ('dm-%d' % number) / 'dm'
            folder.mkdir(parents=True)
            for name, value in values.items():
                (folder / name).write_text(value + '\n')
        (self.block / 'sda').mkdir()
        self.assertEqual({'one', 'three'}, set(sysfs.suspended()))

    def test_requests(self):
        """All kinds count, done or in flight; sectors and times do not."""
        numbers = [0] * 17
        for column, counts in enumerate((1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1,
                                         0, 0, 0, 1, 0)):
            numbers[column] = 10 ** column
            (self.block / 'dm-7/stat').write_text(
                ' '.join('%8d' % n for n in numbers) + '\n')
            self.assertEqual(counts * 10 ** column, sysfs.requests('a'))
            numbers[column] = 0

    def test_no_device(self):
        for read in (sysfs.disks_below, sysfs.in_flight, sysfs.requests,
                     sysfs.is_suspended, sysfs.writes_in_flight):
            self.assertRaises(FileNotFoundError, read, 'b')
