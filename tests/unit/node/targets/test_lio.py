# SPDX-License-Identifier: Apache-2.0
"""Sources served by LIO: read-only, for one initiator, with CHAP."""

import os
import shutil

from cinder import exception
from cinder.volume import configuration
from cinder.volume.drivers import lvm
import ddt
import fixtures
from oslo_concurrency import lockutils
from oslo_config import fixture as config_fixture

from dmclone_driver.node import initiator as initiator_module
from dmclone_driver.node.targets import lio
from tests.unit import base

NAME = 'dmclone-0e7f4a7c-9a55-4c26-93a4-6b3a7ad8a1b3'
IQN = 'iqn.2010-10.org.openstack:' + NAME


@ddt.ddt
class LioTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        conf = self.useFixture(config_fixture.Config(lockutils.CONF))
        conf.config(lock_path=folder, group='oslo_concurrency')
        self.targets = {}
        self.saved = None
        self.patch('dmclone_driver.privsep.lio.create_read_only',
                   new=self._create)
        self.patch('cinder.volume.targets.lio.LioAdm._verify_rtstool')
        self.target = lio.LioSource(
            configuration=configuration.Configuration(lvm.volume_opts),
            executor=None)
        self.target._execute = self._execute
        self.target.TARGETS = folder

    def _create(self, iqn, path, initiator, *rest):
        if path == 'broken' or iqn in self.targets:
            raise RuntimeError(path)
        self.targets[iqn] = (path, initiator) + rest

    def _execute(self, program, verb, *arguments, **kwargs):
        if verb == 'get-targets':
            return '\n'.join(self.targets), ''
        if verb == 'delete':
            del self.targets[arguments[0]]
        if verb == 'save':
            self.saved = dict(self.targets)
        return '', ''

    def export(self, path='/dev/x', auth=None):
        return self.target.export(NAME, path, 'iqn.of.node2', auth)

    def test_export(self):
        location, auth = self.export()
        path, initiator, user, password, address, port = self.targets[IQN]
        self.assertEqual(('/dev/x', 'iqn.of.node2'), (path, initiator))
        self.assertEqual('CHAP %s %s' % (user, password), auth)
        found = initiator_module.properties(location, auth)
        self.assertEqual((IQN, 0), (found['target_iqn'],
                                    found['target_lun']))
        self.assertEqual('%s:%d' % (address, port), found['target_portal'])
        # It would be restored before its device exists, and cause errors.
        self.assertIsNone(self.saved)

    def show(self, enabled, unit):
        """Create the files in sysfs of a target."""
        group = os.path.join(self.target.TARGETS, IQN, 'tpgt_1')
        shutil.rmtree(group, ignore_errors=True)
        os.makedirs(os.path.join(group, 'acls', 'iqn.of.node2', unit))
        with open(os.path.join(group, 'enable'), 'w') as stream:
            stream.write(enabled)

    def test_again_while_it_is_used(self):
        """It is not created again, which would cause errors."""
        self.show('1\n', 'lun_0')
        self.export(auth='CHAP user password')
        self.assertEqual({}, self.targets)

    @ddt.data(('0\n', 'lun_0'), ('1\n', 'attrib'))
    @ddt.unpack
    def test_again_half_made(self, enabled, unit):
        self.show(enabled, unit)
        self.export(auth='CHAP user password')
        self.assertIn(IQN, self.targets)

    def test_again(self):
        auth = self.export()[1]
        self.assertEqual(auth, self.export('/dev/y', auth)[1])
        self.assertEqual('/dev/y', self.targets[IQN][0])

    def test_unexport(self):
        self.export()
        for _ in range(2):
            self.target.unexport(NAME)
            self.assertEqual({}, self.targets)

    def test_failure(self):
        self.assertRaises(exception.ISCSITargetCreateFailed, self.export,
                          'broken')

    def test_names(self):
        self.assertEqual([], self.target.names())
        os.mkdir(os.path.join(self.target.TARGETS, IQN))
        self.assertEqual([NAME], self.target.names())
        self.target.TARGETS = '/nowhere'
        self.assertEqual([], self.target.names())

    @ddt.data((True, 'left out'), (False, None),
              (OSError('read-only'), 'failed'))
    @ddt.unpack
    def test_forget_saved(self, answer, logged):
        """Cinder saves all targets for a connection of its own."""
        self.patch('dmclone_driver.privsep.lio.forget_sources',
                   side_effect=[answer])
        self.target.forget_saved()
        if logged:
            self.assertIn(logged, self.log.output)
        else:
            self.assertEqual('', self.log.output)
