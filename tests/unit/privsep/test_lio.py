# SPDX-License-Identifier: Apache-2.0
"""Creating a target of LIO: read-only, for one initiator, with CHAP."""

import sys
from unittest import mock

import fixtures

from dmclone_driver import privsep
from dmclone_driver.privsep import lio
from tests.unit import base

IQN = 'iqn.2010-10.org.openstack:dmclone-x'


class RtslibError(Exception):
    pass


class CreateReadOnlyTestCase(base.PlainTestCase):
    """The calls of rtslib, which is replaced since it needs a kernel."""

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.rtslib = mock.MagicMock(RTSLibError=RtslibError)
        self.useFixture(fixtures.MonkeyPatch('sys.modules', dict(
            sys.modules, rtslib_fb=self.rtslib)))

    def create(self):
        lio.create_read_only(IQN, '/dev/x', 'iqn.of.node2', 'user', 'secret',
                             '192.0.2.1', 3260)

    def test_create(self):
        self.create()
        rtslib = self.rtslib
        rtslib.BlockStorageObject.assert_called_once_with(
            IQN, dev='/dev/x', readonly=True)
        group = rtslib.TPG.return_value
        group.set_attribute.assert_called_once_with('authentication', '1')
        rtslib.NodeACL.assert_called_once_with(group, 'iqn.of.node2',
                                               mode='create')
        access = rtslib.NodeACL.return_value
        self.assertEqual(('user', 'secret'), (access.chap_userid,
                                              access.chap_password))
        unit = rtslib.LUN.return_value.lun
        rtslib.MappedLUN.assert_called_once_with(access, unit, unit,
                                                 write_protect=True)
        rtslib.NetworkPortal.assert_called_once_with(
            group, '192.0.2.1', 3260, mode='any')
        self.assertIs(True, group.enable)

    def test_errors_can_pass_privsep(self):
        self.rtslib.NodeACL.side_effect = RtslibError('no such device')
        error = self.assertRaises(RuntimeError, self.create)
        self.assertIn('no such device', str(error))
