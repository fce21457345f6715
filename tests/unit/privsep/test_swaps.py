# SPDX-License-Identifier: Apache-2.0
"""Swaps with real processes, some of which are killed.

Their ioctls are functions that log what they are called with, and can be
stopped at a verb.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from unittest import mock

import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep
from dmclone_driver.privsep import swaps
from tests.unit import base

LINEAR = '0 64 linear \n'
#: The table that replaces it.
TABLE = '0 128 linear a 0\n'
FINISHED = ['status', 'suspend', 'status', 'load ' + TABLE.strip(), 'resume']

#: Replaces the ioctls in each of the processes.
IOCTLS = """\
import ctypes
import errno
import os
from dmclone_driver.node.devicemapper import ioctl

FOLDER = %r
libc = ctypes.CDLL(None, use_errno=True)


def text(name):
    with open(os.path.join(FOLDER, name)) as stream:
        return stream.read().strip()


def stop():
    open(os.path.join(FOLDER, 'stop'), 'w').close()
    with open(os.path.join(FOLDER, 'stopped'), 'w') as stream:
        stream.write('%%d %%d' %% (os.getpid(), os.getppid()))
    # Python's own functions go on after a signal, the kernel's do not.
    go = os.open(os.path.join(FOLDER, 'go'), os.O_RDWR)
    if libc.read(go, ctypes.create_string_buffer(1), 1) < 0:
        raise OSError(ctypes.get_errno(), 'interrupted')


def do(verb, *words):
    if verb == text('stop'):
        stop()
    if verb == text('fail'):
        raise OSError(errno.ENXIO, verb + ' ioctl failed: no such thing')
    with open(os.path.join(FOLDER, 'done'), 'a') as stream:
        stream.write(' '.join([verb, *words]) + '\\n')


def status(name):
    do('status')
    return text('status')


def suspend(name, flush):
    do('suspend')


def load(name, table, read_only):
    do('load', table.strip())


def resume(name, cookie):
    do('resume')


VERBS = (status, suspend, load, resume)
"""

#: Makes the ioctls of a process these.
INSTALL = """\
for function in VERBS:
    setattr(ioctl, function.__name__, function)
"""

#: Has udev handle no event.
UDEV_HANGS = """\
from dmclone_driver.node.devicemapper import udev
udev.RUNS, udev.TIMEOUT = '/', 0
ioctl.resume = lambda *arguments: resume(*arguments) is None
"""

#: Acts as the service and its privileged daemon.
CALLER = """\
import sys
exec(open(sys.argv[3]).read())
from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep
from dmclone_driver.privsep import swaps
import json
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    # Whatever the tests have inherited.
    signal.signal(number, signal.SIG_DFL)
swap.LOCKS = sys.argv[1]
swap.PROGRAM = sys.argv[4]
privsep.dmclone_context.set_client_mode(False)
swaps.swap(json.loads(sys.argv[2]))
"""

#: Is swap.PROGRAM with these ioctls.
PROGRAM = swap.PROGRAM.replace(
    'from ', 'exec(open(%r).read()); from ', 1)


class SwapsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.locks = os.path.join(self.folder, 'locks')
        self.patch('dmclone_driver.node.devicemapper.swap.LOCKS',
                   new=self.locks)
        self.tell('ioctls', IOCTLS % self.folder + INSTALL)
        self.program = PROGRAM % self.path('ioctls')
        self.patch('dmclone_driver.node.devicemapper.swap.PROGRAM',
                   new=self.program)
        # Those of this process.
        replacements = {}
        exec(IOCTLS % self.folder, replacements)
        for function in replacements['VERBS']:
            self.patch('dmclone_driver.node.devicemapper.ioctl.' +
                       function.__name__, new=function)
        self.tell('status', LINEAR)
        self.tell('fail')
        self.tell('stop')

    def path(self, name):
        return os.path.join(self.folder, name)

    def tell(self, name, text=''):
        with open(self.path(name), 'w') as stream:
            stream.write(text)

    def done(self):
        """Return what was done, in order."""
        with open(self.path('done')) as stream:
            return stream.read().splitlines()

    def request(self, hold=False, clone=None):
        return {'name': 'x', 'lock': 'x', 'table': TABLE,
                'expected': swap.LINEAR,
                'clone': clone, 'hold': hold, 'limit': 9}


class SwapTestCase(SwapsTestCase):

    def test_swap(self):
        self.assertIsNone(swaps.swap(self.request()))
        self.assertEqual(FINISHED, self.done())
        self.assertEqual([], os.listdir(self.locks))

    def test_clone_below(self):
        """It is suspended, too, and both are resumed."""
        self.assertIsNone(swaps.swap(self.request(clone='x-clone')))
        self.assertEqual([*FINISHED[:2], 'suspend', *FINISHED[2:],
                          'resume'], self.done())

    def test_clone_below_whose_table_cannot_be_loaded(self):
        self.tell('fail', 'load')
        self.assertRaises(processutils.ProcessExecutionError, swaps.swap,
                          self.request(clone='x-clone'))
        # The last two are the parent's.
        self.assertEqual(['status', 'suspend', 'suspend', 'status'] +
                         ['resume'] * 4, self.done())

    def test_udev_hangs(self):
        """The process tells its parent, which logs it."""
        self.tell('ioctls', IOCTLS % self.folder + INSTALL + UDEV_HANGS)
        self.assertIsNone(swaps.swap(self.request()))
        self.assertEqual(FINISHED, self.done())
        self.assertIn('the resume of device x within', self.log.output)

    def test_not_as_expected(self):
        self.tell('status', '0 64 error \n')
        self.assertEqual('0 64 error', swaps.swap(self.request()))
        self.assertEqual(['status'], self.done())

    def test_ioctl_fails(self):
        self.tell('fail', 'load')
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  swaps.swap, self.request())
        self.assertEqual('load ioctl failed: no such thing',
                         error.stderr.strip())
        # The last resume is the parent's, which does not know the reason.
        self.assertEqual(['status', 'suspend', 'status', 'resume', 'resume'],
                         self.done())

    def test_device_that_is_held(self):
        self.tell('fail', 'load')
        self.assertRaises(processutils.ProcessExecutionError,
                          swaps.swap, self.request(hold=True))
        self.assertEqual(['status', 'suspend', 'status'], self.done())

    def test_resume_left(self):
        self.assertTrue(swaps.resume_left('x', ['x', 'x-clone']))
        self.assertEqual(['resume', 'resume'], self.done())
        self.assertEqual([], os.listdir(self.locks))

    def test_resume_left_fails(self):
        self.tell('fail', 'resume')
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  swaps.resume_left, 'x', ['x'])
        self.assertIn('resume ioctl failed', error.stderr)


@ddt.ddt
class KilledTestCase(SwapsTestCase):
    """Processes are killed while an ioctl is stopped at a verb."""

    def setUp(self):
        super().setUp()
        # Opened for reading and writing, so that neither end waits.
        self.stopped, self.go = (self.fifo(name) for name in ('stopped',
                                                              'go'))
        self.addCleanup(self.let_go)

    def fifo(self, name):
        os.mkfifo(self.path(name))
        fd = os.open(self.path(name), os.O_RDWR)
        self.addCleanup(os.close, fd)
        return fd

    def let_go(self):
        os.write(self.go, b'\n')

    def swap_until(self, verb, hold=False):
        """Begin a swap, which stops at a verb."""
        self.tell('stop', verb)
        self.caller = subprocess.Popen(
            [sys.executable, '-c', CALLER, self.locks,
             json.dumps(self.request(hold)), self.path('ioctls'),
             self.program],
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.caller.stderr.close)
        self.addCleanup(self.caller.wait)
        self.addCleanup(self.caller.kill)
        self.assertReady(self.stopped)
        self.process, parent = map(int, os.read(self.stopped, 99).split())
        self.assertEqual(self.caller.pid, parent)

    def assertReady(self, fd):
        self.assertEqual([fd], select.select([fd], [], [], 60)[0])

    def kill(self, pid):
        """Kill a process that is not a child, and wait for its end."""
        fd = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            self.assertReady(fd)
        finally:
            os.close(fd)

    def assertAlone(self):
        """Check that no swap is running."""
        with swap.alone('x', self.locks):
            pass

    @ddt.data('suspend', 'load', 'resume')
    def test_caller_is_killed(self, verb):
        self.swap_until(verb)
        self.caller.kill()
        self.caller.wait(60)
        self.assertFalse(swaps.resume_left('x', ['x']))
        self.let_go()
        self.assertAlone()
        self.assertEqual(FINISHED, self.done())

    def test_suspend_takes_too_long(self):
        """It is killed, and the device resumed with its table."""
        self.tell('stop', 'suspend')
        self.assertEqual(swap.WAITS, swaps.swap(dict(self.request(),
                                                     limit=0.5)))
        self.assertEqual(['status', 'resume'], self.done())
        self.assertAlone()

    @ddt.data(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    def test_all_are_asked_to_end(self, number):
        """The swap is completed, although all processes get a signal."""
        self.swap_until('suspend')
        for pid in (self.process, self.caller.pid):
            os.kill(pid, number)
        self.caller.wait(60)
        self.let_go()
        self.assertAlone()
        self.assertEqual(FINISHED, self.done())

    def test_session_of_its_own(self):
        self.swap_until('suspend')
        self.assertEqual(self.process, os.getsid(self.process))
        self.let_go()
        self.assertEqual(0, self.caller.wait(60))

    @ddt.data(('suspend', 1), ('load', 3))
    @ddt.unpack
    def test_process_is_killed(self, verb, steps):
        """Its parent resumes the device."""
        self.swap_until(verb)
        self.kill(self.process)
        self.assertIn('Exit code: -9', self.caller_error())
        self.assertEqual(FINISHED[:steps] + ['resume'], self.done())

    def test_process_is_killed_and_the_device_held(self):
        self.swap_until('suspend', hold=True)
        self.kill(self.process)
        self.caller_error()
        self.assertEqual(['status'], self.done())

    def caller_error(self):
        error = self.caller.stderr.read()
        self.assertNotEqual(0, self.caller.wait(60))
        return error

    def test_all_are_killed(self):
        """Then resume_left resumes the device."""
        self.swap_until('load')
        self.caller.kill()
        self.kill(self.process)
        self.assertTrue(swaps.were_killed())
        self.assertFalse(swaps.were_killed())
        self.assertTrue(swaps.resume_left('x', ['x']))
        self.assertEqual(['status', 'suspend', 'status', 'resume'],
                         self.done())

    def test_message(self):
        """It is sent between two swaps."""
        with mock.patch('dmclone_driver.node.devicemapper.ioctl.message') as (
                sent), mock.patch.object(swaps, 'PATIENCE', 0.1):
            with swap.alone('x'):
                error = self.assertRaises(
                    processutils.ProcessExecutionError, swaps.message, 'x',
                    'x-clone', ['enable_hydration'])
                self.assertEqual([], sent.mock_calls)
            self.assertIn('of x', error.stderr)
            swaps.message('x', 'x-clone', ['hydration_threshold 1',
                                           'enable_hydration'])
        self.assertEqual(
            [('x-clone', 'hydration_threshold 1'),
             ('x-clone', 'enable_hydration')],
            [call.args for call in sent.mock_calls])
        self.assertEqual([], os.listdir(self.locks))

    def test_message_waits(self):
        """A process that marks has the lock for a moment."""
        self.swap_until('load')
        timer = threading.Timer(0.3, self.let_go)
        timer.start()
        self.addCleanup(timer.join)
        with mock.patch('dmclone_driver.node.devicemapper.ioctl.message',
                        side_effect=lambda *_: self.assertEqual(
                            FINISHED, self.done())) as sent:
            swaps.message('x', 'x-clone', ['enable_hydration'])
        sent.assert_called_once()

    def test_nobody_was_killed(self):
        """One that runs, though its caller is killed, resumes the device."""
        self.assertFalse(swaps.were_killed())
        os.makedirs(os.path.join(self.locks, 'no lock'))
        self.swap_until('load')
        self.assertFalse(swaps.were_killed())
        self.caller.kill()
        self.caller.wait(60)
        self.assertFalse(swaps.were_killed())
        self.let_go()
        self.assertAlone()
        self.assertFalse(swaps.were_killed())
