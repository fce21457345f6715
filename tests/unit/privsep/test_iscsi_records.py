# SPDX-License-Identifier: Apache-2.0
"""Empty node records of open-iscsi, in a temporary folder."""

import pathlib

import fixtures

from dmclone_driver import privsep
from dmclone_driver.privsep import iscsi_records
from tests.unit import base

IQN = 'iqn.2010-10.org.openstack:dmclone-x'


class IscsiRecordsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.patch('dmclone_driver.privsep.iscsi_records.FOLDERS',
                   new=(str(self.folder / 'none'), str(self.folder)))

    def record(self, target, name, text=''):
        path = self.folder / target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def test_delete_empty(self):
        empty = [self.record(IQN, '192.0.2.1,3260'),
                 self.record(IQN, '192.0.2.1,3260,1/default')]
        kept = [self.record(IQN, '192.0.2.2,3260', '# BEGIN RECORD'),
                self.record(IQN + '2', '192.0.2.1,3260'),
                self.record(IQN.replace('x', '?'), '192.0.2.1,3260')]
        self.assertEqual(empty, iscsi_records.delete_empty(IQN))
        self.assertEqual(sorted(kept), sorted(
            str(path) for path in self.folder.rglob('*') if path.is_file()))
        self.assertEqual([], iscsi_records.delete_empty(IQN))

    def test_no_record(self):
        self.assertEqual([], iscsi_records.delete_empty(IQN))
