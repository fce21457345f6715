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
