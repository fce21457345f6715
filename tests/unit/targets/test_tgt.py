# SPDX-License-Identifier: Apache-2.0
"""Sources served by tgt: what its configuration says."""

import os
import types

from cinder import exception
from cinder.volume import configuration
from cinder.volume.drivers import lvm
import fixtures
from oslo_concurrency import lockutils
from oslo_concurrency import processutils
from oslo_config import fixture as config_fixture

from dmclone_driver import importer
from dmclone_driver.targets import tgt
from tests.unit import base

NAME = 'dmclone-0e7f4a7c-9a55-4c26-93a4-6b3a7ad8a1b3'
IQN = 'iqn.2010-10.org.openstack:' + NAME
INITIATOR = 'iqn.1993-08.org.debian:01:node2'


class Tgtd:
    """Keeps targets; learns them from the files."""

    def __init__(self, folder):
        self.folder = folder
        self.targets = {}
        self.broken = False
        self.dead = False

    def tgtadm_show(self):
        if self.dead:
            raise processutils.ProcessExecutionError(stderr='no tgtd')
        return self.tgtadmin_show()

    def tgtadmin_show(self):
        return ''.join('Target %d: %s\n        LUN: 1\n' % (number, iqn)
                       for number, iqn in enumerate(self.targets, 1)), ''

    def tgtadmin_update(self, name, force=False):
        if self.broken:
            raise processutils.ProcessExecutionError(stderr='no such device')
        path = os.path.join(self.folder, name.partition(':')[2])
        with open(path) as stream:
            self.targets[name] = [line.strip() for line in stream
                                  if line.strip()]
        return '', ''

    def tgtadm(self, arguments):
        if self.broken or '--force' not in arguments:
            raise processutils.ProcessExecutionError(stderr='in use')
        number = int(arguments[arguments.index('--tid') + 1])
        del self.targets[list(self.targets)[number - 1]]


class TgtTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        conf = self.useFixture(config_fixture.Config(lockutils.CONF))
        conf.config(lock_path=folder, group='oslo_concurrency')
        self.patch('tenacity.nap.sleep')
        self.tgtd = Tgtd(folder)
        self.patch('cinder.privsep.targets.tgt', new=self.tgtd)
        self.patch('dmclone_driver.targets.tgt.privsep_tgt', new=self.tgtd)
        self.patch('dmclone_driver.privsep.command.tgtadm',
                   new=self.tgtd.tgtadm)
        conf = configuration.Configuration(lvm.volume_opts)
        self.target = tgt.TgtSource(
            configuration=conf, executor=types.SimpleNamespace())
        self.target.volumes_dir = folder

    def export(self, path='/dev/mapper/x-export', auth=None):
        return self.target.export(NAME, path, INITIATOR, auth)

    def test_export(self):
        location, auth = self.export()
        lines = self.tgtd.targets[IQN]
        self.assertEqual('<target %s>' % IQN, lines[0])
        user, password = auth.split()[1:]
        for line in ('backing-store /dev/mapper/x-export', 'readonly 1',
                     'initiator-name ' + INITIATOR, 'bsoflags direct',
                     'incominguser %s %s' % (user, password)):
            self.assertIn(line, lines)
        # Of one initiator only, and of no address instead.
        self.assertEqual(1, sum('initiator' in line for line in lines))

    def test_importer_understands_it(self):
        found = importer.properties(*self.export())
        self.assertEqual((IQN, 1, 'CHAP'), (
            found['target_iqn'], found['target_lun'], found['auth_method']))
        self.assertRegex(found['target_portal'], r'^[\d.]+:3260$')

    def test_passwords_differ(self):
        self.assertNotEqual(self.export()[1], self.export()[1])

    def test_again_with_the_same_password(self):
        """The importer's sessions may log in again."""
        auth = self.export()[1]
        self.assertEqual(auth, self.export('/dev/mapper/y', auth)[1])
        self.assertIn('backing-store /dev/mapper/y', self.tgtd.targets[IQN])
        self.assertEqual([IQN], list(self.tgtd.targets))

    def test_two_initiators(self):
        """Each export names its own."""
        self.export()
        self.target.export(NAME[:-1] + '4', '/dev/x', 'iqn.of.node3')
        self.assertIn('initiator-name ' + INITIATOR, self.tgtd.targets[IQN])
        self.assertIn('initiator-name iqn.of.node3',
                      self.tgtd.targets[IQN[:-1] + '4'])

    def test_unexport(self):
        self.export()
        for _ in range(2):
            self.target.unexport(NAME)
            self.assertEqual({}, self.tgtd.targets)
            self.assertNotIn(NAME, os.listdir(self.tgtd.folder))

    def test_target_without_its_file(self):
        """It has the device open, and tgtd forgets nothing by itself."""
        self.export()
        os.unlink(os.path.join(self.tgtd.folder, NAME))
        self.target.unexport(NAME)
        self.assertEqual({}, self.tgtd.targets)

    def test_file_without_its_target(self):
        """It would bring the target back."""
        self.export()
        self.tgtd.targets.clear()
        self.target.unexport(NAME)
        self.assertNotIn(NAME, os.listdir(self.tgtd.folder))

    def test_tgtd_is_dead(self):
        """It has no targets then; volumes can still be deleted."""
        self.export()
        self.tgtd.dead = True
        self.target.unexport(NAME)
        self.assertNotIn(NAME, os.listdir(self.tgtd.folder))

    def test_removal_fails(self):
        self.export()
        self.tgtd.broken = True
        self.assertRaises(exception.ISCSITargetRemoveFailed,
                          self.target.unexport, NAME)
        self.assertIn(NAME, os.listdir(self.tgtd.folder))

    def test_failure(self):
        self.tgtd.broken = True
        self.assertRaises(exception.ISCSITargetCreateFailed, self.export)
        self.assertNotIn(NAME, os.listdir(self.tgtd.folder))
