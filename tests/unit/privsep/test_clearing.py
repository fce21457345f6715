# SPDX-License-Identifier: Apache-2.0
"""Zeroing of devices: by the disk or by writing, and never in the way."""

import errno
import os

import ddt
import fixtures
from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver import privsep
from dmclone_driver.privsep import clearing
from tests.unit import base

PUNCH, ZERO = 0x3, 0x11


class ClearingTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.path = os.path.join(self.useFixture(fixtures.TempDir()).path,
                                 'device')
        self.ionice = self.patch('oslo_concurrency.processutils.execute')
        self.patch('dmclone_driver.node.devicemapper.sysfs.lowest_disks',
                   return_value={'sda', 'sdb'})
        self.patch('dmclone_driver.node.devicemapper.sysfs.requests',
                   side_effect=lambda disk: self.requests)
        self.requests = 0

    def make(self, size):
        with open(self.path, 'wb') as stream:
            stream.truncate(size)

    def zero(self, start, end, seconds=600, limit=0):
        return clearing.zero(self.path, start, end, seconds, '-c3', limit)


class FileTestCase(ClearingTestCase):
    """With a file, in which the kernel punches holes, too."""

    def setUp(self):
        super().setUp()
        with open(self.path, 'wb') as stream:
            stream.write(b'x' * (9 * units.Mi))

    def test_content(self):
        self.assertEqual(8 * units.Mi, self.zero(units.Mi, 8 * units.Mi))
        with open(self.path, 'rb') as stream:
            self.assertEqual(b'x' * units.Mi + b'\0' * (7 * units.Mi) +
                             b'x' * units.Mi, stream.read())

    def test_too_small(self):
        """The kernel would zero what there is, and succeed."""
        error = self.assertRaises(OSError, self.zero, 0, 9 * units.Mi + 512)
        self.assertEqual(errno.ENOSPC, error.errno)

    def test_no_device(self):
        """No file is made in its place."""
        self.path += '-away'
        self.assertRaises(FileNotFoundError, self.zero, 0, units.Mi)
        self.assertFalse(os.path.exists(self.path))

    def test_files_are_closed(self):
        before = os.listdir('/proc/self/fd')
        self.zero(0, 512)
        self.assertEqual(len(before), len(os.listdir('/proc/self/fd')))


@ddt.ddt
class PaceTestCase(ClearingTestCase):
    """With a simulated disk, and its time."""

    def setUp(self):
        super().setUp()
        self.now = 0.0
        #: Seconds of a piece, and of a MiB, if the disk zeroes or writes.
        self.speed = {PUNCH: (0.001, 0.0), ZERO: (0.001, 0.01)}
        self.refused = {}
        #: (seconds at the begin, mode, MiB)
        self.pieces = []
        self.others = False
        self.flushed = 0
        self.patch('dmclone_driver.privsep.clearing._fallocate', new=self.do)
        self.patch('os.fsync', new=self.flush)
        self.patch('dmclone_driver.privsep.clearing.time.monotonic',
                   new=lambda: self.now)
        self.patch('dmclone_driver.privsep.clearing.time.sleep',
                   new=self.sleep)
        self.make(64 * units.Gi)

    def do(self, fd, mode, start, length):
        mode |= 1
        if mode in self.refused:
            raise OSError(self.refused[mode], 'refused')
        self.pieces.append((self.now, mode, length / units.Mi))
        fixed, each = self.speed[mode]
        self.now += fixed + each * length / units.Mi

    def sleep(self, seconds):
        self.now += seconds
        self.requests += self.others

    def flush(self, fd):
        self.flushed += 1

    def test_disk_that_zeroes(self):
        """The pieces grow while they are done at once."""
        self.assertEqual(8 * units.Gi, self.zero(0, 8 * units.Gi))
        self.assertEqual({PUNCH}, {mode for _, mode, _ in self.pieces})
        self.assertEqual([4, 8, 16], [size for *_, size in self.pieces[:3]])
        self.assertEqual(1024, max(size for *_, size in self.pieces))
        self.assertEqual(8192, sum(size for *_, size in self.pieces))

    @ddt.data(errno.EOPNOTSUPP, errno.EREMOTEIO, errno.EINVAL)
    def test_disk_that_does_not(self, number):
        """Zeros are written, in pieces that others hardly feel."""
        self.refused[PUNCH] = number
        self.zero(0, units.Gi)
        self.assertEqual({ZERO}, {mode for _, mode, _ in self.pieces})
        self.assertEqual(1024, sum(size for *_, size in self.pieces))
        self.assertLessEqual(max(size for *_, size in self.pieces), 4)

    def test_slow_disk(self):
        """One piece is never longer than it takes others to notice."""
        self.refused[PUNCH] = errno.EOPNOTSUPP
        self.speed[ZERO] = (0.0, 0.05)
        self.zero(0, units.Gi)
        self.assertEqual(1, self.pieces[-1][-1])

    def test_failed_disk(self):
        self.refused = {PUNCH: errno.EIO, ZERO: errno.EIO}
        error = self.assertRaises(OSError, self.zero, 0, units.Gi)
        self.assertEqual(errno.EIO, error.errno)
        self.assertEqual(0, self.flushed)

    @ddt.data((False, 0.6, 0.7), (True, 0.15, 0.25))
    @ddt.unpack
    def test_others_first(self, others, least, most):
        """It takes two thirds of the time, or a fifth if others work."""
        self.refused[PUNCH] = errno.EOPNOTSUPP
        self.others = others
        self.zero(0, units.Gi)
        fixed, each = self.speed[ZERO]
        busy = sum(fixed + each * size for *_, size in self.pieces)
        self.assertTrue(least < busy / self.now < most, busy / self.now)

    def test_limit(self):
        self.refused[PUNCH] = errno.EOPNOTSUPP
        self.zero(0, units.Gi, limit=8 * units.Mi)
        self.assertAlmostEqual(128, self.now, delta=1)
        # A limit does not make it come in waves.
        starts = [now for now, *_ in self.pieces]
        self.assertLessEqual(max(map(float.__sub__, starts[1:], starts)), 1)

    def test_limit_is_for_what_is_written(self):
        self.zero(0, units.Gi, limit=units.Mi)
        self.assertLess(self.now, 1)

    def test_time(self):
        """It says where to continue, and flushes at the end alone."""
        self.refused[PUNCH] = errno.EOPNOTSUPP
        reached = self.zero(0, units.Gi, seconds=2)
        self.assertTrue(2 <= self.now < 2.2, self.now)
        self.assertEqual(reached / units.Mi,
                         sum(size for *_, size in self.pieces))
        self.assertEqual(0, self.flushed)
        self.assertEqual(units.Gi, self.zero(reached, units.Gi))
        self.assertEqual(1, self.flushed)
        self.assertEqual(1024, sum(size for *_, size in self.pieces))

    def test_priority(self):
        """That of the thread; without it nothing is touched."""
        self.zero(0, units.Mi)
        program, priority, option, _thread = self.ionice.call_args.args
        self.assertEqual(('ionice', '-c3', '-p'), (program, priority, option))
        self.pieces = []
        self.ionice.side_effect = processutils.ProcessExecutionError
        self.assertRaises(processutils.ProcessExecutionError, self.zero, 0,
                          units.Mi)
        self.assertEqual([], self.pieces)
