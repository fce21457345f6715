# SPDX-License-Identifier: Apache-2.0
"""Reading the metadata of thin pools, with a script in place of thin_dump."""

import errno
import os
import time

import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import privsep
from dmclone_driver.privsep import thin
from tests.unit import base


@ddt.ddt
class ThinTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', self.folder + ':' + os.environ['PATH']))
        self.sent = []
        #: Messages that fail, each as often as it is here.
        self.failing = []
        self.error = errno.EBUSY, 'busy'
        self.patch('dmclone_driver.node.devicemapper.ioctl.message',
                   new=self.message)
        self.addCleanup(thin._left.clear)

    def message(self, name, text):
        if text in self.failing:
            self.failing.remove(text)
            raise OSError(*self.error)
        self.sent.append((name, text.partition('_')[0]))

    def program(self, script):
        path = os.path.join(self.folder, 'thin_dump')
        with open(path, 'w') as stream:
            stream.write('#!/bin/sh\n' + script)
        os.chmod(path, 0o700)

    def dump(self, seconds=60):
        return thin.dump('pool', '/dev/mapper/meta', 7, seconds)

    def assertReleased(self):
        self.assertEqual([('pool', 'reserve'), ('pool', 'release')],
                         self.sent)

    def test_dump(self):
        self.program('echo "$@"')
        self.assertEqual('--dev-id 7 --metadata-snap /dev/mapper/meta\n',
                         self.dump())
        self.assertReleased()

    def test_failure(self):
        self.program('echo no such device >&2; exit 1')
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.dump)
        self.assertIn('no such device', error.stderr)
        self.assertReleased()

    def test_takes_too_long(self):
        self.program('exec sleep 60')
        began = time.monotonic()
        self.assertRaises(processutils.ProcessExecutionError, self.dump, 0.2)
        self.assertLess(time.monotonic() - began, 30)
        self.assertReleased()

    def test_is_too_long(self):
        self.patch('dmclone_driver.privsep.thin.MOST', new=1000)
        self.program('exec yes')
        self.assertRaises(processutils.ProcessExecutionError, self.dump)
        self.assertReleased()

    def test_no_program(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', self.folder))
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.dump)
        self.assertIn('thin_dump: No such file', error.stderr)
        self.assertReleased()

    def test_version(self):
        self.program('echo "thin_dump 1.0 $@"')
        self.assertEqual('thin_dump 1.0 --version', thin.version())
        self.assertEqual([], self.sent)

    def test_version_of_no_program(self):
        self.useFixture(fixtures.EnvironmentVariable('PATH', self.folder))
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  thin.version)
        self.assertIn('thin_dump: No such file', error.stderr)

    def test_another_one_reads(self):
        """Its copy is not released."""
        self.failing = ['reserve_metadata_snap']
        self.assertRaises(processutils.ProcessExecutionError, self.dump)
        self.assertEqual([], self.sent)

    @ddt.data(1, 2)
    def test_release_fails(self, times):
        """The next one tries it again, each time."""
        self.program('true')
        self.failing = ['release_metadata_snap'] * times
        for _ in range(times):
            self.assertRaises(processutils.ProcessExecutionError, self.dump)
        self.sent = []
        self.dump()
        self.assertEqual([('pool', 'release'), ('pool', 'reserve'),
                          ('pool', 'release')], self.sent)

    def test_something_else_releases_it(self):
        """Then what was read is not used, but the next one is read."""
        self.program('true')
        self.failing = ['release_metadata_snap'] * 2
        self.error = errno.EINVAL, 'nothing to release'
        self.assertRaises(processutils.ProcessExecutionError, self.dump)
        self.dump()
        self.assertEqual([('pool', 'reserve')] * 2 + [('pool', 'release')],
                         self.sent)

    def test_release(self):
        self.assertTrue(thin.release('pool'))
        self.assertEqual([('pool', 'release')], self.sent)

    def test_release_of_none(self):
        self.failing = ['release_metadata_snap']
        self.error = errno.EINVAL, 'nothing to release'
        self.assertFalse(thin.release('pool'))

    def test_release_of_one_that_is_being_read(self):
        with thin._turn:
            self.assertFalse(thin.release('pool'))
        self.assertEqual([], self.sent)
