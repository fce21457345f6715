# SPDX-License-Identifier: Apache-2.0
"""Looks and changes in the privileged daemon, without a kernel."""

import errno
import os

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import udev
from dmclone_driver import privsep
from dmclone_driver.privsep import device_mapper
from tests.unit import base


class DaemonTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        #: {device: number of the error of its ioctls, or None}
        self.devices = {}
        self.done = []

    def ioctl(self, name, answer=None):
        """Replace an ioctl."""
        def do(device, *arguments):
            number = self.devices.get(device, errno.ENXIO)
            if number:
                raise OSError(number, '%s ioctl on %s failed: %s' % (
                    name, device, os.strerror(number)))
            self.done.append((name, device, *arguments))
            return answer and answer(device)

        self.patch('dmclone_driver.node.devicemapper.ioctl.' + name, new=do)


class LookTestCase(DaemonTestCase):

    def setUp(self):
        super().setUp()
        self.ioctl('info', lambda name: status.Device(name, 'U1', 0, False))
        self.ioctl('status', lambda name: 'status of ' + name)
        self.patch('dmclone_driver.node.devicemapper.ioctl.names',
                   new=lambda: list(self.devices))

    def test_all(self):
        """One that has gone since it was listed is left out."""
        self.devices = {'one': None, 'two': errno.ENXIO, 'three': None}
        self.assertEqual(['one', 'three'], [
            found['name'] for found in device_mapper.devices()])

    def test_by_ending(self):
        """The others are not asked."""
        self.devices = dict.fromkeys(['a', 'a-clone', 'b-gate'])
        self.assertEqual({'a-clone': 'status of a-clone'},
                         device_mapper.statuses_by_ending('-clone'))
        self.assertEqual([('status', 'a-clone')], self.done)
        self.assertEqual({}, device_mapper.statuses_by_ending('-source'))

    def test_no_name(self):
        self.devices = {'one': None}
        self.assertEqual({}, device_mapper.statuses())

    def test_some(self):
        self.devices = {'one': None, 'two': None}
        found, = device_mapper.devices('two', 'gone')
        self.assertEqual(status.Device('two', 'U1', 0, False),
                         status.Device(**found))
        self.assertEqual({'two': 'status of two'},
                         device_mapper.statuses('two', 'gone'))
        self.assertEqual({'two'}, {call[1] for call in self.done})

    def test_other_failures_are_not_taken_for_an_absent_device(self):
        """The exception is that of a dmsetup that fails."""
        self.devices = {'one': errno.EACCES}
        for look, *names in ((device_mapper.devices,),
                             (device_mapper.devices, 'one'),
                             (device_mapper.statuses, 'one')):
            with self.subTest(look):
                error = self.assertRaises(
                    processutils.ProcessExecutionError, look, *names)
                self.assertIn('on one failed: Permission denied',
                              error.stderr)

    def test_no_device_mapper(self):
        self.patch('dmclone_driver.node.devicemapper.ioctl.names',
                   side_effect=FileNotFoundError(errno.ENOENT, 'none'))
        for look, *words in ((device_mapper.devices,),
                             (device_mapper.statuses_by_ending, '-clone')):
            error = self.assertRaises(processutils.ProcessExecutionError,
                                      look, *words)
            self.assertEqual('none', error.stderr)


class ChangeTestCase(DaemonTestCase):

    def setUp(self):
        super().setUp()
        self.devices = {'one': None}
        for name in ('suspend', 'load', 'message'):
            self.ioctl(name)
        # Whether there is an event for udev.
        self.ioctl('resume', lambda name: False)
        self.patch('dmclone_driver.privsep.command.dmsetup',
                   new=lambda call: self.done.append(('dmsetup', *call)))

    def test_order(self):
        device_mapper.change(
            ['dmsetup', ['create', 'one'], '0 8 zero\n'],
            ['suspend', 'one', True], ['load', 'one', '0 8 error\n', True],
            ['resume', 'one'], ['message', 'one', 'a b'])
        cookie = self.done[3][2]
        self.assertEqual([
            ('dmsetup', ['create', 'one'], '0 8 zero\n'),
            ('suspend', 'one', True), ('load', 'one', '0 8 error\n', True),
            ('resume', 'one', cookie), ('message', 'one', 'a b')], self.done)

    def create(self):
        """Create two devices; returns the arguments of dmsetup."""
        self.patch('dmclone_driver.node.devicemapper.udev.TIMEOUT', new=0)
        device_mapper.change(['create', 'one,U1,,rw,0 8 zero;two,U2,,rw,'])
        (_program, arguments, _table), = self.done
        return arguments

    def count_one(self, code=0):
        """Have dmsetup count one event, and end with a code."""
        def count(call):
            self.done.append(('dmsetup', *call))
            semaphore = udev._checked(udev._libc.semget(
                int(call[0][2]), 1, 0))
            udev._checked(udev._libc.semtimedop(
                semaphore, udev._OPERATION.pack(0, 1, 0), 1, None))
            if code:
                raise processutils.ProcessExecutionError(exit_code=code)

        self.patch('dmclone_driver.node.devicemapper.udev.RUNS', new='/')
        self.patch('dmclone_driver.privsep.command.dmsetup', new=count)

    def test_create(self):
        """udev is waited for once, and has as long as for a resume."""
        self.count_one()
        cookie = self.create()[2]
        self.assertEqual(
            ('dmsetup', ['create', '--udevcookie', cookie, '--concise',
                         'one,U1,,rw,0 8 zero;two,U2,,rw,'], None),
            self.done[0])
        self.assertIn('the resume of device one within 0 seconds',
                      self.log.output)
        self.assertIn('the resume of device two', self.log.output)

    def test_create_fails(self):
        """udev is waited for: dmsetup counts no event that does not come."""
        self.count_one(code=1)
        self.assertRaises(processutils.ProcessExecutionError, self.create)
        self.assertIn('the resume of device one', self.log.output)

    def test_create_is_killed(self):
        """It has counted the event of a device that it has not resumed."""
        self.count_one(code=-9)
        self.assertRaises(processutils.ProcessExecutionError, self.create)
        self.assertNotIn('the resume of device', self.log.output)

    def test_create_without_udev(self):
        self.patch('dmclone_driver.node.devicemapper.udev.RUNS',
                   new='/nowhere')
        self.assertEqual(['create', '--concise',
                          'one,U1,,rw,0 8 zero;two,U2,,rw,'], self.create())

    def test_udev_hangs(self):
        self.ioctl('resume', lambda name: True)
        self.patch('dmclone_driver.node.devicemapper.udev.RUNS', new='/')
        self.patch('dmclone_driver.node.devicemapper.udev.TIMEOUT', new=0)
        device_mapper.change(['resume', 'one'])
        self.assertIn('the resume of device one within 0 seconds',
                      self.log.output)

    def test_failure(self):
        """What follows it is not done."""
        error = self.assertRaises(
            processutils.ProcessExecutionError, device_mapper.change,
            ['suspend', 'one', True], ['suspend', 'gone', True],
            ['resume', 'one'])
        self.assertIn('suspend ioctl on gone failed: No such device',
                      error.stderr)
        self.assertEqual([('suspend', 'one', True)], self.done)

    def test_no_dmsetup(self):
        """That is not the failure of a device."""
        self.patch('dmclone_driver.privsep.command.dmsetup',
                   side_effect=FileNotFoundError(2, 'none', 'dmsetup'))
        self.assertRaises(FileNotFoundError, device_mapper.change,
                          ['dmsetup', ['remove', 'one'], None])
