# SPDX-License-Identifier: Apache-2.0
"""The privileged functions, as far as they can be tested without root."""

import os
import pathlib
import struct
import time
from unittest import mock

from eventlet import patcher
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import privsep
from dmclone_driver.privsep import block
from dmclone_driver.privsep import command
from dmclone_driver.privsep import events
from dmclone_driver.privsep import ram_disks
from tests.unit import base


class PrivsepTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.path = os.path.join(self.folder, 'device')
        with open(self.path, 'wb') as stream:
            stream.write(b'x' * 10000)


class ActionsTestCase(PrivsepTestCase):

    def test_zero_start(self):
        block.zero_start(self.path, 4096)
        with open(self.path, 'rb') as stream:
            self.assertEqual(b'\0' * 4096 + b'x' * 5904, stream.read())

    def test_zero_out(self):
        """All of it, if nothing else has it."""
        asked = []
        self.patch('fcntl.ioctl', new=lambda fd, *words: asked.append(words))
        block.zero_out(self.path)
        self.assertEqual([(0x127f, struct.pack('QQ', 0, 10000))], asked)
        with mock.patch('os.open', side_effect=OSError) as opened:
            self.assertRaises(OSError, block.zero_out, self.path)
        self.assertTrue(opened.call_args.args[1] & os.O_EXCL)

    def test_ioctls(self):
        """The numbers are those of linux/fs.h, and files are closed."""
        asked = []

        def ioctl(fd, request, argument):
            asked.append((request, argument))
            return b'\2\0\0\0\0\0\0\0' if argument else 0

        self.patch('fcntl.ioctl', new=ioctl)
        before = os.listdir('/proc/self/fd')
        block.flush_buffers(self.path)
        block.set_read_only(self.path, True)
        block.set_read_only(self.path, False)
        self.assertEqual(2, block.size(self.path))
        self.assertEqual([(0x1261, 0), (0x125d, b'\1\0\0\0'),
                          (0x125d, b'\0\0\0\0'),
                          (0x80081272, b'\0' * 8)], asked)
        self.assertEqual(len(before), len(os.listdir('/proc/self/fd')))

    def test_failed_ioctl_closes_the_file(self):
        before = os.listdir('/proc/self/fd')
        # The file is not a block device.
        self.assertRaises(OSError, block.flush_buffers, self.path)
        self.assertEqual(len(before), len(os.listdir('/proc/self/fd')))

    def test_commands(self):
        run = self.patch('oslo_concurrency.processutils.execute',
                         return_value=('out', 'err'))
        self.assertEqual('out', command.dmsetup((['info', '-c'], None)))
        run.assert_called_once_with('dmsetup', 'info', '-c',
                                    process_input=None,
                                    env_variables=mock.ANY)
        # The driver parses its output.
        self.assertEqual('C', run.call_args.kwargs['env_variables']['LC_ALL'])
        command.dmsetup((['create', 'x'], '0 1 zero\n'),
                        (['suspend', 'x'], None))
        self.assertEqual([('0 1 zero\n',), (None,)], [
            (call.kwargs['process_input'],)
            for call in run.call_args_list[1:]])

    def lvm(self, script, timeout=60):
        """Run a command of LVM, with a script in place of LVM."""
        program = os.path.join(self.folder, 'lvm')
        with open(program, 'w') as stream:
            stream.write('#!/bin/sh\n' + script)
        os.chmod(program, 0o755)
        self.useFixture(fixtures.EnvironmentVariable('PATH', '%s:%s' % (
            self.folder, os.environ['PATH'])))
        return command.lvm(['lvs', 'a/b'], ['LVM_X=y'], timeout)

    def test_lvm(self):
        self.assertEqual('C y lvs a/b\n',
                         self.lvm('echo $LC_ALL $LVM_X "$@"'))

    def test_lvm_fails(self):
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.lvm, 'echo why >&2; exit 5')
        self.assertEqual(
            (5, 'why\n', 'env LC_ALL=C LVM_X=y lvm lvs a/b'),
            (error.exit_code, error.stderr, error.cmd))

    def test_lvm_does_not_end(self):
        """It is terminated, and the caller does not wait for its end."""
        path = os.path.join(self.folder, 'pid')
        error = self.assertRaises(
            processutils.ProcessExecutionError, self.lvm,
            'echo $$ > %s; exec sleep 60' % path, 1)
        self.assertEqual(command.TIMED_OUT, error.exit_code)
        with open(path) as stream:
            pid = int(stream.read())
        for _attempt in range(100):
            if not _runs(pid):
                return
            time.sleep(0.05)
        self.fail('it still runs')


def _runs(pid):
    try:
        with open('/proc/%d/stat' % pid) as stream:
            return stream.read().rpartition(')')[2].split()[0] != 'Z'
    except FileNotFoundError:
        return False


class HoldTestCase(PrivsepTestCase):
    """Holding devices, with a dmsetup that logs its arguments."""

    PROGRAM = ('#!/bin/sh\necho "$@" >> %(log)s\n'
               'case $1 in suspend) read line <> %(pipe)s;; esac\n')

    def setUp(self):
        super().setUp()
        self.log = os.path.join(self.folder, 'log')
        pipe = os.path.join(self.folder, 'pipe')
        os.mkfifo(pipe)
        program = os.path.join(self.folder, 'dmsetup')
        with open(program, 'w') as stream:
            stream.write(self.PROGRAM % {'log': self.log, 'pipe': pipe})
        os.chmod(program, 0o755)
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', self.folder + ':' + os.environ['PATH']))
        # Opened for reading and writing, so that neither end waits.
        self.pipe = os.open(pipe, os.O_RDWR)
        self.addCleanup(os.close, self.pipe)
        self.processes = {}
        self.patch('dmclone_driver.privsep.command._holding',
                   new=self.processes)
        self.addCleanup(self.end)

    def end(self):
        """End the pending suspends."""
        running = [process for process in self.processes.values()
                   if process.poll() is None]
        os.write(self.pipe, b'\n' * len(running))
        for process in running:
            process.wait()

    def said(self):
        with open(self.log) as stream:
            return sorted(stream.read().splitlines())

    def test_it_ends_by_itself(self):
        command.hold('one')
        self.end()
        self.assertEqual(['resume one', 'suspend --noflush --nolockfs one'],
                         self.said())

    def test_one_for_each_device(self):
        for name in ('one', 'two', 'one'):
            command.hold(name)
        self.assertEqual({'one', 'two'}, set(self.processes))
        self.end()
        self.assertEqual(['resume one', 'resume two',
                          'suspend --noflush --nolockfs one',
                          'suspend --noflush --nolockfs two'], self.said())

    def test_again_after_its_end(self):
        command.hold('one')
        first = self.processes['one']
        self.end()
        command.hold('two')
        self.assertEqual({'two'}, set(self.processes))
        command.hold('one')
        self.assertIsNot(first, self.processes['one'])


class QueueTestCase(PrivsepTestCase):

    def setUp(self):
        super().setUp()
        self.patch('dmclone_driver.privsep.block.SYSFS', new=self.folder)
        os.makedirs(os.path.join(self.folder, 'block/sdx/queue'))

    def queue(self, name, value=None):
        path = os.path.join(self.folder, 'block/sdx/queue', name)
        if value is not None:
            with open(path, 'w') as stream:
                stream.write(value)
        with open(path) as stream:
            return stream.read()

    def test_deepen(self):
        self.queue('scheduler', 'mq-deadline [none]\n')
        self.queue('nr_requests', '113\n')
        block.deepen_queue('/dev/sdx')
        self.assertEqual(('mq-deadline', '2048'), (
            self.queue('scheduler'), self.queue('nr_requests')))

    def test_deep_already(self):
        """The settings are not written, which would wait for requests."""
        self.queue('nr_requests', '2048\n')
        self.queue('scheduler', '[other]\n')
        block.deepen_queue('/dev/sdx')
        self.assertEqual('[other]\n', self.queue('scheduler'))


class RecoveryTimeoutTestCase(PrivsepTestCase):
    """A disk in sysfs, as the kernel shows one of an iSCSI session."""

    def setUp(self):
        super().setUp()
        self.patch('dmclone_driver.privsep.block.SYSFS', new=self.folder)
        self.limit = self.make('iscsi_session/session12', 'recovery_tmo')

    def make(self, folder, name):
        folder = os.path.join(self.folder, folder)
        os.makedirs(folder)
        path = os.path.join(folder, name)
        open(path, 'w').close()
        return path

    def disk(self, *parents):
        """Create a disk; returns a link to it."""
        below = os.path.join('devices', *parents, 'target3:0:0', '3:0:0:1')
        self.make(below, 'state')
        os.makedirs(os.path.join(self.folder, 'block/sdx'))
        os.symlink(os.path.join(self.folder, below),
                   os.path.join(self.folder, 'block/sdx/device'))
        os.symlink('/dev/sdx', os.path.join(self.folder, 'by-path'))
        return os.path.join(self.folder, 'by-path')

    def written(self):
        with open(self.limit) as stream:
            return stream.read()

    def test_seconds(self):
        disk = self.disk('platform', 'host3', 'session12')
        for seconds in (0, 45):
            open(self.limit, 'w').close()
            block.set_recovery_timeout(disk, seconds)
            self.assertEqual(str(seconds), self.written())

    def test_no_limit(self):
        """The kernel refuses a negative number."""
        block.set_recovery_timeout(
            self.disk('platform', 'host3', 'session12'), -1)
        self.assertEqual('off', self.written())

    def test_no_session(self):
        error = self.assertRaises(OSError, block.set_recovery_timeout,
                                  self.disk('pci', 'host0'), 5)
        self.assertIn('no iSCSI session', str(error))

    def test_commands(self):
        """A source that waits for its own source may answer days later."""
        disk = self.disk('platform', 'host3', 'session12')
        limit = os.path.join(self.folder, 'block/sdx/device/timeout')
        pathlib.Path(limit).write_text('30\n')
        block.wait_for_commands(disk)
        seconds = int(pathlib.Path(limit).read_text())
        self.assertGreater(seconds, 24 * 3600)
        # The kernel multiplies it, in an int: with HZ, and with 2 for a flush
        # (sdev_store_timeout in drivers/scsi/scsi_sysfs.c,
        # SD_FLUSH_TIMEOUT_MULTIPLIER in drivers/scsi/sd.h).
        self.assertLess(seconds * 1000 * 2, 1 << 31)

    def test_session_of(self):
        self.disk('platform', 'host3', 'session12')
        self.assertEqual(os.path.join(self.folder, 'iscsi_session/session12'),
                         block.session_of('sdx'))
        self.assertRaises(OSError, block.session_of, 'sdy')

    def test_no_attribute(self):
        disk = self.disk('platform', 'host3', 'session13')
        self.assertRaises(OSError, block.set_recovery_timeout, disk, 5)
        self.assertEqual('', self.written())


class EventsTestCase(PrivsepTestCase):
    """struct dm_ioctl has 312 bytes; _IOWR(0xfd, 16, struct dm_ioctl)."""

    def setUp(self):
        super().setUp()
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)
        self.addCleanup(os.close, self.writer)
        self.patch('dmclone_driver.privsep.events._control', new=self.reader)
        self.armed = []
        self.patch('dmclone_driver.node.devicemapper.ioctl._ioctl',
                   new=self._ioctl)
        # The daemon is a separate process without eventlet.
        self.patch('dmclone_driver.privsep.events.select',
                   new=patcher.original('select'))

    def _ioctl(self, fd, request, buffer):
        self.armed.append((fd, request, len(buffer)))

    def test_event(self):
        os.write(self.writer, b'x')
        self.assertTrue(events.wait(30))
        self.assertEqual([(self.reader, 0xc138fd10, 312)], self.armed)

    def test_no_event(self):
        self.assertFalse(events.wait(0.01))
        self.assertEqual(1, len(self.armed))


class LoopTestCase(PrivsepTestCase):
    """The file below the anchor, whose loop device exists once."""

    def test_loop(self):
        path = os.path.join(self.folder, 'small')
        self.patch('dmclone_driver.privsep.ram_disks.SMALL_FILE', new=path)
        run = self.patch('oslo_concurrency.processutils.execute',
                         side_effect=[('\n', ''), ('/dev/loop7\n', ''),
                                      ('/dev/loop7\n', '')])
        for _time in range(2):
            self.assertEqual('/dev/loop7', ram_disks.loop(4096))
        self.assertEqual(4096, os.path.getsize(path))
        self.assertEqual(['--associated', '--find', '--associated'],
                         [call.args[1] for call in run.call_args_list])
