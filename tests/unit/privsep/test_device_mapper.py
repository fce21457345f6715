# SPDX-License-Identifier: Apache-2.0
"""Looks and changes in the privileged daemon, without a kernel."""

import errno
import os

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import status
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
        self.assertEqual({'one': 'status of one', 'three': 'status of three'},
                         device_mapper.statuses())

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
        for look in (device_mapper.devices, device_mapper.statuses):
            for names in ((), ('one',)):
                error = self.assertRaises(
                    processutils.ProcessExecutionError, look, *names)
                self.assertIn('on one failed: Permission denied',
                              error.stderr)

    def test_no_device_mapper(self):
        self.patch('dmclone_driver.node.devicemapper.ioctl.names',
                   side_effect=FileNotFoundError(errno.ENOENT, 'none'))
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  device_mapper.devices)
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
