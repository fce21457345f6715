# SPDX-License-Identifier: Apache-2.0
"""Holds in a real process, whose ioctls are functions.

The process waits in the kernel as in a suspend: a signal ends the wait, and
only that, unless a test ends it.
"""

import os
import signal
import time
import uuid

import ddt
import fixtures

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver import privsep
from dmclone_driver.privsep import pacing
from tests.unit import base

WINDOW = 128
STATUS = ('0 4096 clone 8 12/1024 8 %d/512 %d 1 no_discard_passdown 4 '
          'hydration_threshold 128 hydration_batch_size 128 rw\n'
          '4096 8 linear \n')

#: Replaces what a hold does with devices.
KERNEL = """\
import ctypes
import os
import time
from dmclone_driver.node.devicemapper import status

FOLDER = %r
libc = ctypes.CDLL(None, use_errno=True)


def text(name):
    with open(os.path.join(FOLDER, name)) as stream:
        return stream.read()


def wait():
    # Python's own functions go on after a signal, the kernel's do not.
    if libc.read(GO, ctypes.create_string_buffer(1), 1) < 0:
        raise OSError(ctypes.get_errno(), 'interrupted')


class Kernel:
    reads = 0
    begun = 0
    held = False

    def note(self, *words):
        with open(os.path.join(FOLDER, 'done'), 'a') as stream:
            stream.write(' '.join(map(str, words)) + '\\n')

    def answers(self, name):
        return text('lost') != name

    def info(self, name):
        return status.Device(name, '', 0, name == text('suspended'))

    def status(self, name):
        if name == 'dmclone-anchor':
            return '0 8 delay %%d 0 0\\n' %% self.reads
        return text('status').replace('BEGUN', str(self.begun))

    def commit(self, name):
        self.note('commit')
        if text('stuck'):
            wait()

    def message(self, name, words):
        if self.held and text('drains'):
            self.begun = int(words.split()[1])

    def read(self, name, offset):
        self.note('read', offset)
        self.reads += 1
        time.sleep(holds.LASTS)
        self.reads -= 1

    def suspend(self, name):
        self.note('suspend')
        self.held, self.begun = True, 0
        try:
            wait()
        finally:
            self.held = False

    def resume(self, name):
        self.note('resume')


GO = os.open(os.path.join(FOLDER, 'go'), os.O_RDWR)
"""


class ProcessTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.locks = os.path.join(self.folder, 'locks')
        self.patch('dmclone_driver.node.devicemapper.swap.LOCKS',
                   new=self.locks)
        # The process starts slowly on a busy machine.
        self.patch('dmclone_driver.privsep.pacing._PATIENCE', new=60)
        self.tell('kernel', KERNEL % self.folder)
        self.use_program()
        os.mkfifo(self.path('go'))
        # Opened for reading and writing, so that neither end waits.
        self.go = os.open(self.path('go'), os.O_RDWR)
        self.addCleanup(os.close, self.go)
        self.names = Names(str(uuid.uuid4()))
        self.tell('status', STATUS.replace('%d/512 %d', '9/512 BEGUN'))
        self.tell('drains', 'yes')
        for name in ('lost', 'suspended', 'stuck', 'done'):
            self.tell(name)
        self.holder = pacing.Holder()
        self.addCleanup(self.end)

    def use_program(self, more=''):
        """Have the process begin with this kernel, and with patience."""
        self.patch(
            'dmclone_driver.node.devicemapper.holds.PROGRAM',
            new=holds.PROGRAM.replace('holds.main()', (
                'exec(open(%r).read()); holds.Kernel = Kernel; '
                'holds.hurry = lambda: None; '
                'holds.LIMIT, holds.LASTS, holds.LEFT = 60, 60, 30; '
                'holds.PATIENCE = holds.MOST = 60; %s'
                'holds.main()') % (self.path('kernel'), more)))

    def end(self):
        process = self.holder._process
        if process:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def path(self, name):
        return os.path.join(self.folder, name)

    def tell(self, name, text=''):
        with open(self.path(name), 'w') as stream:
            stream.write(text)

    def text(self, name):
        with open(self.path(name)) as stream:
            return stream.read()

    def done(self):
        """Return what was done, in order."""
        return self.text('done').splitlines()

    def hold(self):
        return self.holder.hold(self.names.of(CLONE), WINDOW)

    def assertAlone(self):
        """Check that there may be a swap."""
        with swap.alone(self.names.of(HANDLE), self.locks, wait=False):
            pass


@ddt.ddt
class HoldTestCase(ProcessTestCase):

    def test_full(self):
        """A signal ends the hold when the copies have begun."""
        result = self.hold()
        self.assertEqual(holds.FULL, result.ended)
        # It ends by itself, not by the timer.
        self.assertLess(result.seconds, 60)
        self.assertEqual(['commit', 'read %d' % (4096 * 512), 'suspend'],
                         self.done())
        self.assertAlone()

    def test_read_of_the_tail_is_used_twice(self):
        self.hold()
        self.assertEqual(holds.FULL, self.hold().ended)
        self.assertEqual(1, sum(line.startswith('read')
                                for line in self.done()))

    def test_new_read_of_the_tail(self):
        """The former one would end too soon."""
        self.use_program('holds.LASTS = holds.LEFT + 0.001; ')
        self.hold()
        time.sleep(0.01)
        self.assertEqual(holds.FULL, self.hold().ended)
        self.assertEqual(2, sum(line.startswith('read')
                                for line in self.done()))

    def test_requests_do_not_end(self):
        """A timer ends the hold."""
        self.use_program('holds.LIMIT = %s; ' % holds.LIMIT)
        self.tell('drains')
        result = self.hold()
        self.assertEqual(holds.LATE, result.ended)
        self.assertLessEqual(holds.LIMIT, result.seconds)
        self.assertNotIn('resume', self.done())
        self.assertAlone()

    def test_too_long(self):
        """As without free processors: the copies have begun, though."""
        self.use_program('holds.MOST = 0; ')
        self.assertEqual(holds.SLOW, self.hold().ended)

    def test_few_regions_are_left(self):
        self.tell('status', STATUS.replace('%d/512 %d', '500/512 BEGUN'))
        self.assertEqual(holds.FULL, self.hold().ended)

    def test_suspended_nevertheless(self):
        """As if the read of the tail had ended first: it is resumed."""
        self.tell('drains')
        os.write(self.go, b'\n')
        self.assertEqual(holds.SUSPENDED, self.hold().ended)
        self.assertEqual(['suspend', 'resume'], self.done()[-2:])

    def test_guest_has_paused(self):
        self.tell('status', STATUS % (9, WINDOW))
        self.assertEqual(holds.FULL, self.hold().ended)
        self.assertNotIn('suspend', self.done())

    def test_copies_of_a_guest_that_writes(self):
        """They are no copies in the background."""
        self.use_program('holds.LIMIT = %s; ' % holds.LIMIT)
        self.tell('status', STATUS % (9, 8))
        self.assertEqual(holds.LATE, self.hold().ended)

    @ddt.data(CLONE, GATE, SOURCE)
    def test_requests_would_wait(self, role):
        """At a closed gate, for a lost source, or for a swap that is lost."""
        self.tell('suspended', self.names.of(role))
        self.assertEqual(holds.REFUSED, self.hold().ended)
        self.assertEqual([], self.done())

    def test_session_is_lost(self):
        self.tell('lost', self.names.of(SOURCE))
        self.assertEqual(holds.REFUSED, self.hold().ended)
        self.assertEqual([], self.done())

    @ddt.data(('1 no_discard_passdown', '2 no_hydration no_discard_passdown'),
              (' rw', ' ro'), ('BEGUN', '0'))
    @ddt.unpack
    def test_nothing_to_copy(self, old, new):
        text = STATUS.replace('%d/512 %d', '512/512 BEGUN' if new == '0'
                              else '9/512 BEGUN')
        self.tell('status', text.replace(old, new))
        self.assertEqual(holds.REFUSED, self.hold().ended)
        self.assertEqual([], self.done())

    def test_no_tail(self):
        """A clone that an earlier version has built."""
        self.tell('status', STATUS.replace('4096 8 linear \n', '') % (9, 0))
        self.assertEqual(holds.NO_TAIL, self.hold().ended)
        self.assertEqual([], self.done())

    def test_no_clone(self):
        self.tell('status', '0 4096 linear \n')
        self.assertEqual(holds.FAILED, self.hold().ended)
        self.assertEqual(holds.REFUSED,
                         self.holder.hold('another', WINDOW).ended)

    def test_swap_is_running(self):
        """What is suspended then is the swap's."""
        with swap.alone(self.names.of(HANDLE), self.locks):
            self.assertEqual(holds.BUSY, self.hold().ended)
        self.assertEqual([], self.done())
        self.assertEqual(holds.FULL, self.hold().ended)


class EndTestCase(ProcessTestCase):

    def hold_for_ever(self):
        """Begin a hold that only the end of the process can end."""
        self.tell('drains')
        process = self.holder._running()
        process.stdin.write(b'["%s", 128]\n' %
                            self.names.of(CLONE).encode())
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while 'suspend' not in self.text('done'):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return process

    def test_killed(self):
        """The next hold has another process."""
        process = self.hold_for_ever()
        process.kill()
        self.assertEqual(-signal.SIGKILL, process.wait(60))
        process.stdin.close()
        process.stdout.close()
        self.tell('drains', 'yes')
        self.assertEqual(holds.FULL, self.hold().ended)

    def test_asked_to_end(self):
        """With the service: nothing has to be finished."""
        process = self.hold_for_ever()
        process.terminate()
        self.assertEqual(-signal.SIGTERM, process.wait(60))

    def test_daemon_has_ended(self):
        """The process ends, although a read is under way."""
        self.hold()
        process = self.holder._process
        process.stdin.close()
        self.assertEqual(0, process.wait(60))

    def test_nothing_to_hold(self):
        self.use_program('holds.IDLE = 0.1; ')
        self.hold()
        process = self.holder._process
        self.assertEqual(0, process.wait(60))
        process.stdin.close()
        process.stdout.close()
        self.assertEqual(holds.FULL, self.hold().ended)

    def test_process_that_is_stuck(self):
        """It is killed: a metadata disk may not answer."""
        self.patch('dmclone_driver.privsep.pacing._PATIENCE', new=1)
        self.tell('stuck', 'yes')
        process = self.holder._running()
        self.assertEqual(holds.FAILED, self.hold().ended)
        self.assertEqual(-signal.SIGKILL, process.wait(60))
        process.stdin.close()
        process.stdout.close()

    def test_process_that_cannot_begin(self):
        self.use_program('raise SystemExit("no module"); ')
        self.assertEqual(holds.FAILED, self.hold().ended)


class KernelTestCase(base.PlainTestCase):
    """A process that holds is started only if there is no other way."""

    def setUp(self):
        super().setUp()
        self.begin = self.patch(
            'dmclone_driver.node.devicemapper.quotas.Quotas.begin')
        self.hold = self.patch('dmclone_driver.privsep.pacing.Holder.hold')

    def test_quota(self):
        for end in holds.BEGUN, holds.REFUSED:
            self.begin.return_value = holds.Result(end)
            self.assertEqual(end, pacing._Kernel().hold('x', 128).ended)
            self.begin.assert_called_with('x', 128)
        self.hold.assert_not_called()

    def test_hold(self):
        self.begin.return_value = None
        self.assertEqual(self.hold.return_value,
                         pacing._Kernel().hold('x', 128))
        self.hold.assert_called_once_with('x', 128)

    def test_remembers(self):
        """Each second has another call of the same daemon."""
        self.assertIs(pacing._Kernel()._quotas, pacing._Kernel()._quotas)
        self.assertIs(pacing._Kernel()._holder, pacing._Kernel()._holder)


class RunTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)

    def test_values(self):
        """What goes to the daemon and back are simple values."""
        text = STATUS % (512, 0)
        status = self.patch(
            'dmclone_driver.privsep.pacing._Kernel.status',
            return_value=text)
        self.assertEqual(
            {'x-clone': {'text': text, 'held': 0, 'missed': None,
                         'seconds': 0, 'beside': 0}},
            pacing.run([{'name': 'x-clone', 'window': 128, 'budget': None,
                         'holds': 1}], 1))
        status.assert_called_once_with('x-clone')
        self.assertEqual({'name', 'window', 'budget', 'holds', 'part',
                          'share'},
                         set(pokes.Request.__dataclass_fields__))
