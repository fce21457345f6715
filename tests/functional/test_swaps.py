# SPDX-License-Identifier: Apache-2.0
"""A swap of tables is completed, or undone, if processes are killed.

The caller is a process with a privileged daemon, like the service. The ioctls
of the swap are the real ones, but it can be stopped before or after each.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import block
from lab.common import clones
from tests.functional import base

WRITTEN = b'W' * 4096

#: Run by the swap's process at its start.
IOCTLS = """\
import os
import time
from dmclone_driver.node.devicemapper import ioctl


def path(name):
    return os.path.join(%r, name)


def stop(point):
    try:
        with open(path('stop')) as stream:
            if stream.read() != point:
                return
    except FileNotFoundError:
        return
    os.remove(path('stop'))
    with open(path('new'), 'w') as stream:
        stream.write(str(os.getpid()))
    os.rename(path('new'), path('stopped'))
    while not os.path.exists(path('go')):
        time.sleep(0.1)


def stopping(verb, function):
    def act(*arguments):
        stop('before ' + verb)
        found = function(*arguments)
        stop('after ' + verb)
        return found
    return act


for verb in ('suspend', 'load', 'resume'):
    setattr(ioctl, verb, stopping(verb, getattr(ioctl, verb)))
"""

CALLER = """\
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver import privsep
from oslo_config import cfg
from oslo_privsep import priv_context
import sys
swap.PROGRAM = swap.PROGRAM.replace(
    'from ', 'exec(open(%r).read()); from ' % sys.argv[4], 1)
cfg.CONF([], project='test')
privsep.dmclone_context.start(priv_context.Method.FORK)
getattr(LocalVolume(Names(sys.argv[2])), sys.argv[1])(
    logical_volumes.find('volume-' + sys.argv[2], sys.argv[3]))
"""


def parent(pid):
    """Return the id of a process's parent."""
    with open('/proc/%d/stat' % pid) as stream:
        return int(stream.read().rpartition(')')[2].split()[1])


class KilledTest(base.FunctionalTest):
    """Processes are killed during a swap; a guest's write waits a moment."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(self.path('ioctls'), 'w') as stream:
            stream.write(IOCTLS % self.folder)
        self.names, self.lv = self.linear_volume()
        clones.run('lvextend', '--size', '%db' % (2 * self.lv.size),
                   '%s/%s' % (self.lv.group, self.lv.name))

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin(self, what, stop):
        """Run a method of LocalVolume in a process, until its swap stops."""
        with open(self.path('stop'), 'w') as stream:
            stream.write(stop)
        caller = subprocess.Popen(
            [sys.executable, '-c', CALLER, what, self.names.name_id,
             clones.GROUP, self.path('ioctls')])
        self.addCleanup(caller.wait)
        self.addCleanup(caller.kill)
        clones.wait_until(lambda: os.path.exists(self.path('stopped')), 'stop')
        with open(self.path('stopped')) as stream:
            self.process = int(stream.read())
        self.daemon = parent(self.process)
        self.caller = parent(self.daemon)
        self.assertEqual(caller.pid, self.caller)
        self.assertTrue(sysfs.is_suspended(self.names.of(HANDLE)))
        self.writer = clones.Background(self.names.path(), 0, WRITTEN)
        self.assertTrue(self.writer.waits())

    def kill(self, number, *pids):
        for pid in pids:
            # A daemon ends by itself after its caller, perhaps before it
            # is killed here.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def go_on(self):
        with open(self.path('go'), 'w'):
            pass
        self.expect_writes()

    def expect_writes(self):
        self.assertFalse(self.writer.waits(2))
        self.assertIsNone(self.writer.error)
        clones.wait_until(self.nobody_swaps, 'end')
        self.assertFalse(sysfs.is_suspended(self.names.of(HANDLE)))
        self.assertNotIn('Inactive', clones.run(
            'dmsetup', 'info', self.names.of(HANDLE)))
        self.assertEqual(WRITTEN, clones.read(self.names.path(), 0, 4096))

    def nobody_swaps(self):
        try:
            with swap.alone(self.names.of(HANDLE), wait=False):
                return True
        except BlockingIOError:
            return False

    def grown(self):
        """Return whether the handle has its new size."""
        return {self.lv.size: False, 2 * self.lv.size: True}[
            block.size(self.names.path())]

    def test_caller(self):
        self.begin('grow', 'after suspend')
        self.kill(signal.SIGKILL, self.caller)
        self.go_on()
        self.assertTrue(self.grown())

    def test_daemon(self):
        self.begin('grow', 'after suspend')
        self.kill(signal.SIGKILL, self.daemon)
        self.go_on()
        self.assertTrue(self.grown())

    def test_caller_and_daemon(self):
        for stop in ('after suspend', 'before load', 'before resume'):
            with self.subTest(stop):
                self.begin('grow', stop)
                self.kill(signal.SIGKILL, self.caller, self.daemon)
                self.go_on()
                self.assertTrue(self.grown())
                os.remove(self.path('go'))
                os.remove(self.path('stopped'))

    def test_all_are_asked_to_end(self):
        self.begin('grow', 'after suspend')
        self.kill(signal.SIGTERM, self.caller, self.daemon, self.process)
        self.go_on()
        self.assertTrue(self.grown())

    def test_process(self):
        """If the process is killed its parent resumes the device."""
        self.begin('grow', 'after suspend')
        self.kill(signal.SIGKILL, self.process)
        self.go_on()
        self.assertFalse(self.grown())

    def test_all(self):
        """If all are killed the next start, or the watcher, resumes it."""
        for stop, grown in (('before load', False), ('before resume', True)):
            with self.subTest(stop):
                self.begin('grow', stop)
                self.kill(signal.SIGKILL, self.caller, self.daemon,
                          self.process)
                # It holds the lock until the kernel has ended it.
                clones.wait_until(dmsetup.swap_was_killed, 'end')
                self.assertTrue(self.writer.waits())
                devices.resume_left()
                self.expect_writes()
                self.assertEqual(grown, self.grown())
                os.remove(self.path('stopped'))

    def test_completion(self):
        source, path, data = self.exported_source()
        self.names, lv = self.clone(path, passive=False)
        LocalVolume(self.names).start_hydration()
        clones.wait_until(lambda: dmsetup.clone(
            self.names.of(CLONE)).complete, 'complete clone')
        self.begin('make_linear', 'after suspend')
        self.kill(signal.SIGKILL, self.caller, self.daemon)
        self.go_on()
        # The caller would have removed it.
        self.assertTrue(LocalVolume(self.names).is_clone())
        self.assertTrue(LocalVolume(self.names).make_linear(lv))
        self.assertFalse(LocalVolume(self.names).is_clone())
        self.assertEqual(WRITTEN + data[4096:], clones.read(
            self.names.path(), 0, len(data)))


class GrowTest(base.FunctionalTest):

    def setUp(self):
        super().setUp()
        _, self.source, self.data = self.exported_source()
        self.names, self.lv = self.clone(self.source, passive=False)
        self.local = LocalVolume(self.names)

    def extended(self):
        """Extend the logical volume; return it with the clone's size."""
        clones.run('lvextend', '--size', '+4m', self.lv.full_name)
        logical_volumes.tag(self.lv, logical_volumes.CLONED_TAG +
                            str(self.lv.size))
        return logical_volumes.find(self.lv.name, self.lv.group)

    def test_clone(self):
        """The clone stays what it is; then its logical volume has all."""
        lv = self.extended()
        self.local.grow(lv)
        tail = clones.pattern(lv.size - self.lv.size, 3)
        clones.write(self.names.path(), self.lv.size, tail)
        self.assertEqual(self.data + tail, clones.read(
            self.names.path(), 0, lv.size))
        self.local.start_hydration()
        clones.wait_until(lambda: dmsetup.clone(
            self.names.of(CLONE)).complete, 'complete clone')
        self.assertTrue(self.local.make_linear(lv))
        self.assertEqual(self.data + tail, clones.read(
            self.names.path(), 0, lv.size))

    def test_rebuilt_clone(self):
        lv = self.extended()
        self.local.grow(lv)
        clones.write(self.names.path(), self.lv.size, WRITTEN)
        self.local.remove(HANDLE, CLONE, GATE, SOURCE)
        self.build(self.names, lv, self.source, passive=False)
        self.assertEqual(self.data + WRITTEN, clones.read(
            self.names.path(), 0, self.lv.size + len(WRITTEN)))

    def test_source_that_does_not_answer(self):
        """The guest's other requests do not wait longer than the limit."""
        lv = self.extended()
        dmsetup.suspend(self.names.of(SOURCE))
        waiting = threading.Thread(target=clones.read, args=(
            self.names.path(), 0, 4096))
        waiting.start()
        clones.wait_until(lambda: sysfs.in_flight(self.names.of(CLONE)),
                          'request that waits')
        with self.assertRaises(exception.RequestsWait):
            self.local.grow(lv)
        self.assertFalse(sysfs.is_suspended(self.names.of(HANDLE)))
        dmsetup.resume(self.names.of(SOURCE))
        waiting.join()
        self.local.grow(lv)
        self.assertEqual(lv.size, block.size(self.names.path()))
