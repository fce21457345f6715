# SPDX-License-Identifier: Apache-2.0
"""Creating a target of LIO: read-only, for one initiator, with CHAP."""

import inspect
import json
import os
import sys
from unittest import mock
import uuid

import fixtures
import rtslib_fb

from dmclone_driver.node import names
from dmclone_driver import privsep
from dmclone_driver.privsep import lio
from tests.unit import base

IQN = 'iqn.2010-10.org.openstack:dmclone-x'


class RtslibError(Exception):
    pass


def replace_rtslib(test, module):
    """Have the code under test import another module, until its end."""
    patcher = mock.patch.dict(sys.modules, rtslib_fb=module)
    patcher.start()
    test.addCleanup(patcher.stop)


class CreateReadOnlyTestCase(base.PlainTestCase):
    """The calls of rtslib, which is replaced since it needs a kernel."""

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.rtslib = mock.MagicMock(RTSLibError=RtslibError)
        replace_rtslib(self, self.rtslib)

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


class ForgetSourcesTestCase(base.PlainTestCase):
    """The file from which a boot restores targets."""

    SOURCE = 'iqn.2010-10.org.openstack:' + names.Names(
        str(uuid.uuid4())).target
    REMOTE = 'iqn.2010-10.org.openstack:volume-' + str(uuid.uuid4())

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.path = os.path.join(self.folder, 'saveconfig.json')
        rtslib = mock.MagicMock()
        rtslib.root.default_save_file = self.path
        replace_rtslib(self, rtslib)

    @staticmethod
    def saved(*iqns):
        return {'fabric_modules': [], 'storage_objects': [
            {'dev': '/dev/x', 'name': iqn, 'plugin': 'block'}
            for iqn in iqns], 'targets': [
            {'fabric': 'iscsi', 'wwn': iqn, 'tpgs': []} for iqn in iqns]}

    def save(self, *iqns):
        with open(self.path, 'w') as stream:
            json.dump(self.saved(*iqns), stream)

    def read(self):
        with open(self.path) as stream:
            return json.load(stream)

    def test_saved_with_others(self):
        self.save(self.SOURCE, self.REMOTE)
        self.assertTrue(lio.forget_sources())
        self.assertEqual(self.saved(self.REMOTE), self.read())
        self.assertEqual(0o600, os.stat(self.path).st_mode & 0o777)
        self.assertFalse(lio.forget_sources())
        self.assertEqual(['saveconfig.json'], os.listdir(self.folder))

    def test_others_alone(self):
        """The file is not written."""
        self.save(self.REMOTE)
        before = self.written()
        self.assertFalse(lio.forget_sources())
        self.assertEqual(before, self.written())

    def written(self):
        """Return when the file was written, and not when it was read."""
        found = os.stat(self.path)
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns

    def test_nothing_saved(self):
        self.assertFalse(lio.forget_sources())
        self.assertEqual([], os.listdir(self.folder))

    def test_it_cannot_be_written(self):
        self.save(self.SOURCE)
        with mock.patch('os.fsync', side_effect=OSError):
            self.assertRaises(OSError, lio.forget_sources)
        self.assertEqual(self.saved(self.SOURCE), self.read())
        self.assertEqual(['saveconfig.json'], os.listdir(self.folder))

    def test_as_rtslib_saves_them(self):
        """By its own names of what is in the file."""
        self.assertEqual({}, lio.without_sources({}))
        for kind, key in ((rtslib_fb.Target, 'wwn'),
                          (rtslib_fb.BlockStorageObject, 'name')):
            self.assertIn("d['%s'] = self.%s" % (key, key), ''.join(
                inspect.getsource(each.dump) for each in kind.__mro__
                if 'dump' in vars(each)))
