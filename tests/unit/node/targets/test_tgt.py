# SPDX-License-Identifier: Apache-2.0
"""Sources exported by tgt, and its configuration files."""

import os
import types
from unittest import mock

from cinder import exception
from cinder.volume import configuration
from cinder.volume.drivers import lvm
import fixtures
from oslo_concurrency import lockutils
from oslo_concurrency import processutils
from oslo_config import fixture as config_fixture

from dmclone_driver.node import initiator
from dmclone_driver.node.targets import tgt
from tests.unit import base

NAME = 'dmclone-0e7f4a7c-9a55-4c26-93a4-6b3a7ad8a1b3'
IQN = 'iqn.2010-10.org.openstack:' + NAME
INITIATOR = 'iqn.1993-08.org.debian:01:node2'


# Output of tgtadm of tgt 1.0.85, with two lines per unit.
SHOWN = """Target %d: %s
    System information:
        Driver: iscsi
        State: ready
    I_T nexus information:
    LUN information:
        LUN: 0
            Type: controller
            Backing store path: None
        LUN: 1
            Type: disk
            Backing store path: %s
    Account information:
        %s
    ACL information:
        %s
        %s
"""


class Tgtd:
    """A simulated tgtd, which reads targets from files."""

    def __init__(self, folder):
        self.folder = folder
        self.targets = {}
        self.broken = False
        self.dead = False
        self.updates = 0

    def tgtadm_show(self):
        if self.dead:
            raise processutils.ProcessExecutionError(stderr='no tgtd')
        return self.tgtadmin_show()

    def tgtadmin_show(self):
        return ''.join(
            SHOWN % (number, iqn, *(self._said(lines, word) for word in (
                '<backing-store', 'incominguser', 'initiator-address',
                'initiator-name')))
            for number, (iqn, lines) in enumerate(
                self.targets.items(), 1)), ''

    @staticmethod
    def _said(lines, word):
        return next((line.strip('<>').split()[1] for line in lines
                     if line.startswith(word)), '')

    def tgtadmin_update(self, name, force=False):
        if self.broken:
            raise processutils.ProcessExecutionError(stderr='no such device')
        self.updates += 1
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
        self.patch('dmclone_driver.node.targets.tgt.privsep_tgt',
                   new=self.tgtd)
        self.patch('dmclone_driver.privsep.command.tgtadm',
                   new=self.tgtd.tgtadm)
        self.block_size = self.patch(
            'dmclone_driver.privsep.block.logical_block_size',
            return_value=512)
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
        for line in ('<backing-store /dev/mapper/x-export>', 'readonly 1',
                     'initiator-name ' + INITIATOR, 'bsoflags direct',
                     'incominguser %s %s' % (user, password)):
            self.assertIn(line, lines)
        self.assertEqual(['scsi_sn ' + NAME, 'scsi_id ' + NAME], [
            line for line in lines if line.startswith('scsi')])
        # tgt accepts either; without an address it accepts any.
        self.assertEqual(['initiator-address 255.255.255.255',
                          'initiator-name ' + INITIATOR],
                         [line for line in lines if 'initiator' in line])

    def test_values_that_all_releases_give(self):
        """The template needs no more than Cinder 26.0 fills in."""
        self.export()
        self.target.VOLUME_CONF % dict.fromkeys((
            'name', 'path', 'driver', 'chap_auth', 'target_flags',
            'write_cache'))

    def test_blocks_are_those_of_the_device(self):
        for size in (512, 4096):
            self.block_size.return_value = size
            self.export()
            lines = self.tgtd.targets[IQN]
            # At another place tgt-admin ignores it.
            start = lines.index('<backing-store /dev/mapper/x-export>')
            self.assertEqual(['block-size %d' % size, '</backing-store>'],
                             lines[start + 1:start + 3])
        self.block_size.assert_called_with('/dev/mapper/x-export')

    def test_importer_understands_it(self):
        found = initiator.properties(*self.export())
        self.assertEqual((IQN, 1, 'CHAP'), (
            found['target_iqn'], found['target_lun'], found['auth_method']))
        self.assertRegex(found['target_portal'], r'^[\d.]+:3260$')

    def test_passwords_differ(self):
        self.assertNotEqual(self.export()[1], self.export()[1])

    def test_again_with_the_same_password(self):
        """So the initiator's sessions can log in again."""
        auth = self.export()[1]
        self.assertEqual(auth, self.export('/dev/mapper/y', auth)[1])
        self.assertIn('<backing-store /dev/mapper/y>',
                      self.tgtd.targets[IQN])
        self.assertEqual([IQN], list(self.tgtd.targets))

    def test_again_while_it_is_used(self):
        """It is not created again, which would cause errors."""
        auth = self.export()[1]
        self.export(auth=auth)
        self.assertEqual(1, self.tgtd.updates)

    def test_again_half_made(self):
        for lost in '<backing-store', 'initiator-name', 'initiator-address':
            auth = self.export()[1]
            self.tgtd.targets[IQN] = [line for line in self.tgtd.targets[IQN]
                                      if not line.startswith(lost)]
            before = self.tgtd.updates
            self.export(auth=auth)
            self.assertEqual(before + 1, self.tgtd.updates)

    def test_again_with_a_new_password(self):
        """The target is created again with a new password."""
        before = self.export()[1]
        auth = self.export()[1]
        self.assertNotEqual(before, auth)
        self.assertIn('incominguser ' + auth.removeprefix('CHAP '),
                      self.tgtd.targets[IQN])

    def test_again_with_an_older_password(self):
        """The older password is set, as after a restore of the database."""
        older = self.export()[1]
        self.export()
        self.export(auth=older)
        self.assertIn('incominguser ' + older.removeprefix('CHAP '),
                      self.tgtd.targets[IQN])

    def test_killed_before_the_target_was_closed(self):
        with mock.patch.object(self.target, 'close_after_reboot'):
            auth = self.export()[1]
        self.export(auth=auth)
        self.tgtd.tgtadmin_update(IQN)
        self.assertNotIn('initiator-name ' + INITIATOR,
                         self.tgtd.targets[IQN])

    def test_does_not_come_back_by_itself_after_a_reboot(self):
        """It would have no device, and cause errors."""
        self.export()
        self.tgtd.tgtadmin_update(IQN)
        self.assertEqual(['<target %s>' % IQN,
                          'initiator-address 255.255.255.255', '</target>'],
                         self.tgtd.targets[IQN])

    def test_two_initiators(self):
        """Each export has its initiator."""
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

    def test_file_without_its_target(self):
        """The file is removed; it would restore the target."""
        with open(os.path.join(self.tgtd.folder, NAME), 'w'):
            pass
        self.target.unexport(NAME)
        self.assertNotIn(NAME, os.listdir(self.tgtd.folder))

    def test_tgtd_is_dead(self):
        """Then there are no targets, and volumes can be deleted."""
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

    def test_names(self):
        self.export()
        self.assertIn(NAME, self.target.names())
        # tgtd creates a target from a file at its next start.
        self.tgtd.targets.clear()
        self.assertIn(NAME, self.target.names())
        self.target.unexport(NAME)
        self.tgtd.dead = True
        self.assertNotIn(NAME, self.target.names())
