# SPDX-License-Identifier: Apache-2.0
"""Logical volumes and their tags."""

import ddt

from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from tests.unit import base
from tests.unit.fakes import storage

ROWS = [
    {'vg_name': 'volumes', 'lv_name': 'one', 'lv_size': '4194304',
     'lv_active': 'active', 'lv_tags': 'dmclone.region=8,other',
     'origin': '', 'pool_lv': '', 'lv_layout': 'linear'},
    {'vg_name': 'a-b', 'lv_name': 'two-2', 'lv_size': '512',
     'lv_active': '', 'lv_tags': '', 'origin': 'one', 'pool_lv': '',
     'lv_layout': 'linear'}]
THIN = dict(ROWS[0], lv_name='thin', pool_lv='volumes-pool',
            lv_layout='thin,sparse')
CLONED = 'volume-00000000-0000-0000-0000-000000000001'


@ddt.ddt
class ParseTestCase(base.PlainTestCase):

    def test_parse(self):
        one, two = map(logical_volumes.parse, ROWS)
        self.assertEqual(('volumes', 'one', 4194304, True),
                         (one.group, one.name, one.size, one.active))
        self.assertEqual('/dev/volumes/one', one.path)
        self.assertEqual({'dmclone.region=8', 'other'}, one.tags)
        self.assertEqual((False, frozenset()), (two.active, two.tags))

    @ddt.data((THIN, True), (ROWS[0], False),
              # A volume with a cache, and the pool itself.
              (dict(ROWS[0], pool_lv='[fast_cpool]', lv_layout='cache'),
               False),
              (dict(ROWS[0], lv_layout='thin,pool'), False))
    @ddt.unpack
    def test_thin(self, row, thin):
        self.assertEqual(thin, logical_volumes.parse(row).thin)

    @ddt.data(('_snapshot-1', 'one'), (CLONED, None))
    @ddt.unpack
    def test_a_thin_clone_is_no_snapshot(self, name, origin):
        """LVM calls what a volume was cloned from its origin."""
        lv = logical_volumes.parse(dict(THIN, lv_name=name, origin='one'))
        self.assertEqual(('one', origin), (lv.origin, lv.snapshot_of))

    def test_saved_blocks(self):
        """LVM doubles each hyphen in the names of its devices."""
        self.assertEqual('/dev/mapper/a--b-two--2-cow',
                         logical_volumes.parse(ROWS[1]).saved_blocks)

    def test_tagged(self):
        one, two = map(logical_volumes.parse, ROWS)
        self.assertEqual('8', one.tagged(logical_volumes.REGION_TAG))
        self.assertIsNone(one.tagged(logical_volumes.METADATA_TAG))
        self.assertIsNone(two.tagged(logical_volumes.REGION_TAG))
        # A tag without a value counts, too.
        self.assertEqual('', one.tagged('other'))


class LogicalVolumesTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.lv = self.logical_volume()[1]

    def read(self):
        return logical_volumes.find(self.lv.name, self.lv.group)

    def test_find(self):
        self.assertEqual(self.lv, self.read())
        self.assertIsNone(logical_volumes.find(self.lv.name, 'fast'))
        self.assertIsNone(logical_volumes.find('other', 'volumes'))

    def test_find_anywhere(self):
        self.assertEqual(self.lv, logical_volumes.find_anywhere(self.lv.name))
        self.assertIsNone(logical_volumes.find_anywhere('other'))

    def test_group_is_missing(self):
        """The logical volume does not count as deleted."""
        self.assertRaises(lvm.GroupNotFound, logical_volumes.find,
                          self.lv.name, 'elsewhere')

    def test_tags(self):
        logical_volumes.tag(self.lv, 'a=1', 'b')
        self.assertEqual({'a=1', 'b'}, self.read().tags)
        logical_volumes.tag(self.lv, 'b')
        logical_volumes.untag(self.lv, 'a=1', 'c')
        self.assertEqual({'b'}, self.read().tags)

    def test_retag_is_one_step(self):
        logical_volumes.tag(self.lv, 'a=1', 'b')
        before = self.read()
        self.steps.start()
        logical_volumes.retag(before, 'a=', 'c')
        self.assertEqual(1, len(self.steps.log))
        self.assertEqual({'b', 'c'}, self.read().tags)
        logical_volumes.retag(self.read(), 'a=', 'c')
        self.assertEqual({'b', 'c'}, self.read().tags)

    def test_activate(self):
        logical_volumes.activate(self.lv)
        self.lvm.volumes[self.lv.path]['active'] = False
        self.assertFalse(self.read().active)
        logical_volumes.activate(self.read())
        self.assertTrue(self.read().active)

    def test_remove(self):
        logical_volumes.remove(self.lv)
        self.assertIsNone(self.read())


class ThinTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.group = storage.Group(self.lvm, 'volumes', 'thin')
        self.group.create_volume('thin', '1g', 'thin')
        self.lv = self.read('thin')

    @staticmethod
    def read(name):
        return logical_volumes.find(name, 'volumes')

    def test_create(self):
        """The pool is all of the group that it takes."""
        before = self.lvm.free('volumes')
        logical_volumes.create('volumes', 'large', 1000 * storage.GIB, 'a',
                               pool=self.lv.pool)
        lv = self.read('large')
        self.assertEqual((True, {'a'}, 1000 * storage.GIB),
                         (lv.thin, lv.tags, lv.size))
        self.assertEqual(before, self.lvm.free('volumes'))

    def test_take_snapshot(self):
        before = self.lvm.free('volumes')
        logical_volumes.take_snapshot(self.lv, 'snap', 'a', 'b')
        taken = self.read('snap')
        self.assertEqual((True, True, 'thin', {'a', 'b'}),
                         (taken.thin, taken.active, taken.snapshot_of,
                          taken.tags))
        self.assertEqual(before, self.lvm.free('volumes'))

    def test_activate_skipped_one(self):
        """Cinder's LVM driver leaves thin snapshots with that mark."""
        self.group.create_lv_snapshot('snap', 'thin', 'thin')
        self.assertFalse(self.read('snap').active)
        logical_volumes.activate(self.read('snap'))
        self.assertTrue(self.read('snap').active)

    def test_origin_is_deleted(self):
        logical_volumes.take_snapshot(self.lv, 'snap')
        logical_volumes.remove(self.lv)
        self.assertEqual((True, None), (self.read('snap').thin,
                                        self.read('snap').snapshot_of))
