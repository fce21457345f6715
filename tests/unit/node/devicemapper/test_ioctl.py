# SPDX-License-Identifier: Apache-2.0
"""The bytes of device-mapper's ioctls, as of linux/dm-ioctl.h."""

import ctypes
import errno
import os
import sys

import ddt
import fixtures

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status
from tests.unit import base

SIZE = 312
KIB_16 = 16 * 1024


def u32(number):
    return number.to_bytes(4, sys.byteorder)


def u64(number):
    return number.to_bytes(8, sys.byteorder)


def header(data_size, version=(4, 0, 0), targets=0, open_count=0, flags=0,
           event=0, dev=0, name=b'', uuid=b''):
    """Return struct dm_ioctl, a member a line."""
    return b''.join([
        u32(version[0]), u32(version[1]), u32(version[2]),
        u32(data_size),
        u32(SIZE),                  # data_start
        u32(targets),
        u32(open_count),
        u32(flags),
        u32(event),
        u32(0),                     # padding
        u64(dev),
        name.ljust(128, b'\0'),
        uuid.ljust(129, b'\0'),
        b'\0' * 7])


def target(start, length, following, kind, text):
    """Return struct dm_target_spec and its text, padded."""
    size = -(-(40 + len(text) + 1) // 8) * 8
    return b''.join([u64(start), u64(length), u32(0), u32(following),
                     kind.ljust(16, b'\0'), text]).ljust(size, b'\0')


def device_name(dev, following, name):
    """Return struct dm_name_list, with the number of its last event."""
    return b''.join([u64(dev), u32(following), name + b'\0']).ljust(
        -(-(13 + len(name)) // 8) * 8, b'\0') + u32(7) + u32(0)


class Control:
    """Answers ioctls in order, and keeps what was asked."""

    def __init__(self):
        self.asked = []
        self.answers = []

    def ioctl(self, descriptor, request, buffer):
        self.asked.append((request, buffer.raw))
        answer = self.answers.pop(0) if self.answers else b''
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        # Like the kernel, which changes no more than it says.
        ctypes.memmove(buffer, answer, len(answer))


class ControlTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.control = Control()
        self.patch('dmclone_driver.node.devicemapper.ioctl._ioctl',
                   new=self.control.ioctl)
        self.patch('dmclone_driver.node.devicemapper.ioctl._control', new=5)

    def answer(self, *answers):
        self.control.answers += answers

    def assertAsked(self, request, *buffer):
        """Compare the only ioctl with its bytes; the rest is zero."""
        (number, raw), = self.control.asked
        self.assertEqual('%#x' % request, '%#x' % number)
        expected = b''.join(buffer)
        self.assertEqual(expected, raw[:len(expected)])
        self.assertEqual(b'', raw[len(expected):].strip(b'\0'))
        self.assertEqual(int.from_bytes(raw[12:16], sys.byteorder), len(raw))


@ddt.ddt
class InfoTestCase(ControlTestCase):

    def test_asked(self):
        self.answer(header(SIZE, name=b'one', uuid=b'U1'))
        ioctl.info('one')
        self.assertAsked(0xc138fd07, header(SIZE, name=b'one'))

    @ddt.data((0x20, {'live': True}), (0, {'live': False}),
              (0x22, {'suspended': True}), (0x21, {'read_only': True}),
              # Only an inactive table.
              (0x40, {'live': False}))
    @ddt.unpack
    def test_flags(self, flags, fields):
        self.answer(header(305, (4, 48, 0), targets=1, open_count=3,
                           flags=flags, event=9, dev=0xfd05, name=b'one',
                           uuid=b'DMCLONE-handle-1'))
        self.assertEqual(status.Device(**{
            'name': 'one', 'uuid': 'DMCLONE-handle-1', 'open_count': 3,
            'suspended': False, 'live': True, 'read_only': False, **fields}),
            ioctl.info('one'))

    def test_no_such_device(self):
        self.answer(errno.ENXIO)
        error = self.assertRaises(OSError, ioctl.info, 'one')
        self.assertEqual(errno.ENXIO, error.errno)
        self.assertEqual('device-mapper: info ioctl on one failed: No such '
                         'device or address', error.strerror)

    def test_name_that_is_too_long(self):
        """A part of it could be the name of another device."""
        ioctl.info('x' * 127)
        error = self.assertRaises(OSError, ioctl.info, 'x' * 128)
        self.assertEqual(errno.ENAMETOOLONG, error.errno)
        self.assertEqual(1, len(self.control.asked))


def version(following, numbers, name):
    """Return struct dm_target_versions and the name."""
    return b''.join([u32(following), *map(u32, numbers), name + b'\0'])


class VersionsTestCase(ControlTestCase):

    def test_versions(self):
        first = version(24, (1, 10, 3), b'clone')
        self.assertEqual(22, len(first))
        self.answer(header(0) + first.ljust(24, b'\xff') +
                    version(0, (1, 7, 0), b'error'))
        self.assertEqual({'clone': (1, 10, 3), 'error': (1, 7, 0)},
                         ioctl.versions())
        self.assertAsked(0xc138fd0d, header(SIZE + KIB_16, (4, 1, 0)))

    def test_refused(self):
        self.answer(errno.EPERM)
        error = self.assertRaises(OSError, ioctl.versions)
        self.assertEqual('device-mapper: targets ioctl on /dev/mapper/control '
                         'failed: Operation not permitted', error.strerror)


class NamesTestCase(ControlTestCase):

    def test_names(self):
        first = device_name(0xfd00, 40, b'dmclone-1')
        self.assertEqual(32, len(first))
        self.answer(header(0, targets=0) + first.ljust(40, b'\xff') +
                    device_name(0xfd01, 0, b'vg-lv'))
        self.assertEqual(['dmclone-1', 'vg-lv'], ioctl.names())
        self.assertAsked(0xc138fd02, header(SIZE + KIB_16))

    def test_none(self):
        self.answer(header(0) + device_name(0, 0, b''))
        self.assertEqual([], ioctl.names())

    def test_answer_without_room(self):
        """The kernel returns the structure alone, and is asked again."""
        self.answer(header(305, flags=0x100), header(305, flags=0x100),
                    header(0) + device_name(0xfd00, 0, b'one'))
        self.assertEqual(['one'], ioctl.names())
        self.assertEqual([KIB_16 + SIZE, 2 * KIB_16 + SIZE,
                          4 * KIB_16 + SIZE],
                         [len(raw) for _number, raw in self.control.asked])

    def test_answer_that_never_has_room(self):
        self.patch('dmclone_driver.node.devicemapper.ioctl._ROOM_LIMIT',
                   new=4 * KIB_16)
        self.answer(*[header(305, flags=0x100)] * 9)
        error = self.assertRaises(OSError, ioctl.names)
        self.assertEqual(errno.EMSGSIZE, error.errno)
        self.assertEqual(3, len(self.control.asked))


class StatusTestCase(ControlTestCase):

    def test_linear(self):
        """The text is as of dmsetup, and nothing is flushed for it."""
        self.answer(header(0, targets=1) + target(0, 64, 48, b'linear', b''))
        self.assertEqual('0 64 linear \n', ioctl.status('one'))
        self.assertAsked(0xc138fd0c, header(SIZE + KIB_16, flags=0x800,
                                            name=b'one'))

    def test_commit(self):
        self.answer(header(305))
        ioctl.status('one', commit=True)
        self.assertAsked(0xc138fd0c, header(SIZE + KIB_16, name=b'one'))

    def test_targets(self):
        """Here "next" counts from the first one."""
        clone = b'8 12/1024 8 3/8 0 0 4 a 1 b 2 rw'
        self.answer(header(0, targets=2) +
                    target(0, 64, 80, b'clone', clone) +
                    target(64, 1 << 40, 128, b'snapshot-origin', b''))
        self.assertEqual('0 64 clone %s\n64 1099511627776 snapshot-origin \n'
                         % clone.decode(), ioctl.status('one'))

    def test_no_table(self):
        self.answer(header(305))
        self.assertEqual('', ioctl.status('one'))

    def test_answer_without_room(self):
        """What the kernel has returned by then is not used."""
        part = target(0, 64, 0, b'clone', b'8 12/10')
        self.answer(header(0, targets=1, flags=0x900) + part,
                    header(0, targets=1, flags=0x800) +
                    target(0, 64, 0, b'clone', b'8 12/1024'))
        self.assertEqual('0 64 clone 8 12/1024\n', ioctl.status('one'))
        self.assertEqual(2, len(self.control.asked))


class ChangeTestCase(ControlTestCase):

    def test_suspend(self):
        ioctl.suspend('one')
        self.assertAsked(0xc138fd06, header(SIZE, flags=0x2, name=b'one'))

    def test_suspend_without_flush(self):
        """Neither requests nor a filesystem are waited for."""
        ioctl.suspend('one', flush=False)
        self.assertAsked(0xc138fd06, header(SIZE, flags=0xc02, name=b'one'))

    def test_suspend_is_interrupted(self):
        self.answer(errno.EINTR)
        self.assertRaises(InterruptedError, ioctl.suspend, 'one')
        self.assertEqual(1, len(self.control.asked))

    def test_resume(self):
        self.answer(header(305, flags=0x2020))
        self.assertTrue(ioctl.resume('one', 0x601234))
        self.assertAsked(0xc138fd06, header(SIZE, event=0x601234,
                                            name=b'one'))
        self.answer(header(305, flags=0x20))
        self.assertFalse(ioctl.resume('one'))

    def test_load(self):
        """Here "next" counts from the target itself."""
        ioctl.load('one', '0 64 linear /dev/vg/lv 2048\n64 8 error\n')
        first = target(0, 64, 56, b'linear', b'/dev/vg/lv 2048')
        second = target(64, 8, 48, b'error', b'')
        self.assertEqual((56, 48), (len(first), len(second)))
        self.assertAsked(0xc138fd09, header(
            SIZE + 104, targets=2, name=b'one'), first, second)

    def test_load_of_a_clone(self):
        """The sizes are those of a target with a text of 8 bytes, and 1."""
        ioctl.load('one', '0 8 clone abcdefg\n', read_only=True)
        self.assertAsked(0xc138fd09, header(
            SIZE + 48, targets=1, flags=0x1, name=b'one'), target(
                0, 8, 48, b'clone', b'abcdefg'))
        self.control.asked.clear()
        ioctl.load('one', '0 8 clone abcdefgh\n')
        self.assertAsked(0xc138fd09, header(
            SIZE + 56, targets=1, name=b'one'), target(
                0, 8, 56, b'clone', b'abcdefgh'))

    def test_load_fails(self):
        self.answer(errno.EINVAL)
        error = self.assertRaises(OSError, ioctl.load, 'one', '0 8 zero\n')
        self.assertEqual('device-mapper: reload ioctl on one failed: Invalid '
                         'argument', error.strerror)

    def test_message(self):
        ioctl.message('one', 'hydration_batch_size 8')
        self.assertAsked(0xc138fd0e, header(
            SIZE + KIB_16, (4, 2, 0), name=b'one'), u64(0),
            b'hydration_batch_size 8\0')

    def test_arm(self):
        ioctl.arm(9)
        self.assertAsked(0xc138fd10, header(SIZE, (4, 37, 0)))


class RealTestCase(base.PlainTestCase):
    """A descriptor that is no control device."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'control')
        self.patch('dmclone_driver.node.devicemapper.ioctl.CONTROL',
                   new=self.path)
        self.patch('dmclone_driver.node.devicemapper.ioctl._control',
                   new=None)

    def test_refused(self):
        open(self.path, 'w').close()
        error = self.assertRaises(OSError, ioctl.info, 'one')
        self.assertEqual(errno.ENOTTY, error.errno)
        os.close(ioctl._control)

    def test_no_control(self):
        error = self.assertRaises(FileNotFoundError, ioctl.names)
        self.assertIn(self.path, error.strerror)
