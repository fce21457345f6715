# SPDX-License-Identifier: Apache-2.0
"""The commands of a swap and their order."""

import contextlib
import ctypes
import os
import select
import signal
import struct

import ddt
import fixtures

from dmclone_driver.node.devicemapper import swap
from tests.unit import base

LINEAR = '0 64 linear \n'
CLONE = ('0 64 clone 8 12/1024 8 %s 0 1 no_discard_passdown 4 '
         'hydration_threshold 64 hydration_batch_size 64 %s\n')
COMPLETE = CLONE % ('8/8', 'rw')
INCOMPLETE = CLONE % ('7/8', 'rw')
FAILED = CLONE % ('8/8', 'ro')


class StateTestCase(base.PlainTestCase):

    def test_states(self):
        for text, expected in (
                (LINEAR, 'linear'), (COMPLETE, 'complete clone'),
                (INCOMPLETE, 'clone'), (FAILED, 'clone'), ('', ''),
                # With a tail.
                (COMPLETE + '64 8 linear \n', 'complete clone'),
                (INCOMPLETE + '64 8 linear \n', 'clone'),
                ('0 64 linear \n64 8 linear \n', 'linear linear'),
                ('0 64 clone Fail\n', 'clone'), ('0 64 error \n', 'error'),
                ('0 8 zero \n8 64 linear \n', 'zero linear'),
                # Of somebody else's device, with a line of its own.
                ('0 64 other 1\n2\n', 'other')):
            self.assertEqual(expected, swap.state(text))


class Kernel:
    """Logs what is done, and answers looks in order."""

    def __init__(self):
        #: The status of the device at each check.
        self.looks = []
        self.run = []
        self.fails = None

    def _do(self, *words):
        self.run.append(' '.join(words))
        if words[0] == self.fails:
            raise OSError(words[0])

    def status(self, name):
        self._do('status', name)
        return self.looks.pop(0)

    def suspend(self, name, flush, limit):
        self._do('suspend', name, *(() if flush else ('at once',)))
        if limit:
            raise swap.Waits

    def load(self, name, table, read_only):
        self._do('load', name, table.strip(), *(
            ('read-only',) if read_only else ()))

    def resume(self, name):
        self._do('resume', name)


@ddt.ddt
class PerformTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.kernel = Kernel()
        self.run = self.kernel.run

    def perform(self, expected, *looks, **options):
        self.kernel.looks = list(looks)
        return swap.perform(self.kernel, 'x', '0 64 linear a 0\n', expected,
                            **options)

    def verbs(self):
        return ' '.join(line.split()[0] for line in self.run)

    @ddt.data((swap.LINEAR, LINEAR), (swap.COMPLETE_CLONE, COMPLETE),
              (swap.COMPLETE_CLONE, LINEAR), (swap.CLONE, INCOMPLETE),
              (swap.CLONE, FAILED), (swap.CLONE, LINEAR))
    @ddt.unpack
    def test_as_expected(self, expected, text):
        self.assertIsNone(self.perform(expected, text, text))
        self.assertEqual(['status x', 'suspend x',
                          'status x', 'load x 0 64 linear a 0', 'resume x'],
                         self.run)

    @ddt.data((swap.LINEAR, COMPLETE), (swap.LINEAR, INCOMPLETE),
              (swap.COMPLETE_CLONE, INCOMPLETE), (swap.COMPLETE_CLONE, FAILED),
              (swap.CLONE, '0 64 error \n'), (swap.CLONE, ''))
    @ddt.unpack
    def test_not_as_expected(self, expected, text):
        """The state differs before the suspend, or after it."""
        self.assertEqual(text, self.perform(expected, text))
        self.assertEqual('status', self.verbs())
        self.run.clear()
        self.assertEqual(text, self.perform(expected, {
            swap.LINEAR: LINEAR, swap.COMPLETE_CLONE: COMPLETE,
            swap.CLONE: INCOMPLETE}[expected], text))
        self.assertEqual('status suspend status resume', self.verbs())

    def test_options(self):
        self.assertIsNone(self.perform(None, read_only=True, flush=False))
        self.assertEqual(['suspend x at once',
                          'load x 0 64 linear a 0 read-only', 'resume x'],
                         self.run)

    def test_begin(self):
        """They take effect while the requests to the device wait."""
        self.assertIsNone(self.perform(swap.LINEAR, LINEAR, LINEAR,
                                       begin=['a', 'b']))
        self.assertEqual(['load x 0 64 linear a 0', 'resume a', 'resume b',
                          'resume x'], self.run[3:])

    @ddt.data('suspend', 'load')
    def test_failure(self, verb):
        self.kernel.fails = verb
        self.assertRaises(OSError, self.perform, swap.LINEAR, LINEAR, LINEAR)
        self.assertEqual('resume x', self.run[-1])

    @ddt.data('suspend', 'load')
    def test_failure_of_what_is_held(self, verb):
        """It is not resumed: its requests would fail on the old table."""
        self.kernel.fails = verb
        self.assertRaises(OSError, self.perform, None, hold=True)
        self.assertEqual(verb, self.verbs().split()[-1])

    def test_clone_below(self):
        """It is suspended after the handle, and checked in its place."""
        self.assertIsNone(self.perform(swap.COMPLETE_CLONE, COMPLETE,
                                       COMPLETE, clone='y'))
        self.assertEqual(['status y', 'suspend x', 'suspend y',
                          'status y', 'load x 0 64 linear a 0', 'resume x',
                          'resume y'], self.run)

    def test_limit(self):
        self.assertEqual(swap.WAITS, self.perform(swap.LINEAR, LINEAR,
                                                  limit=5))
        self.assertEqual('status suspend resume', self.verbs())

    def test_first_look_fails(self):
        self.kernel.fails = 'status'
        self.assertRaises(OSError, self.perform, swap.LINEAR)
        self.assertEqual('status', self.verbs())


class SuspendTestCase(base.PlainTestCase):
    """A suspend with a limit, whose ioctl waits like the kernel's."""

    def setUp(self):
        super().setUp()
        self.kernel = swap.Kernel(None)
        #: The number of signals that come before the kernel waits.
        self.lost = 0
        self.pipe, writer = os.pipe()
        self.addCleanup(os.close, self.pipe)
        self.addCleanup(os.close, writer)
        self.addCleanup(signal.signal, signal.SIGALRM,
                        signal.getsignal(signal.SIGALRM))
        self.patch('dmclone_driver.node.devicemapper.ioctl.suspend',
                   new=self.suspend)
        self.suspends = 0
        self.waits = True

    def suspend(self, name, flush):
        self.suspends += 1
        for _signal in range(self.lost):
            signal.pause()
        if self.waits:
            # Python's own functions go on after a signal.
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.poll(struct.pack('ihh', self.pipe, select.POLLIN, 0),
                             1, 60000) < 0
            raise OSError(ctypes.get_errno(), 'interrupted')

    def test_requests_that_do_not_end(self):
        for lost in (0, 1, 3):
            self.lost = lost
            self.assertRaises(swap.Waits, self.kernel.suspend, 'x', True,
                              0.05)
            self.assertEqual((0, 0), signal.getitimer(signal.ITIMER_REAL))

    def test_requests_that_end(self):
        self.waits = False
        self.kernel.suspend('x', True, 60)
        self.assertEqual((0, 0), signal.getitimer(signal.ITIMER_REAL))
        self.kernel.suspend('x', True, None)
        self.assertEqual(2, self.suspends)


class AloneTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'locks')

    def alone(self, name='x'):
        return swap.alone(name, self.folder, wait=False)

    def test_one_at_a_time(self):
        with self.alone(), self.alone('y'):
            self.assertRaises(BlockingIOError, self.alone().__enter__)
        with self.alone():
            pass

    def test_leaves_nothing(self):
        before = os.listdir('/proc/self/fd')
        with contextlib.suppress(KeyError), self.alone():
            raise KeyError
        self.assertEqual([], os.listdir(self.folder))
        self.assertEqual(len(before), len(os.listdir('/proc/self/fd')))
