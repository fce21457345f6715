# SPDX-License-Identifier: Apache-2.0
"""Logical volumes and their tags."""

from dmclone_driver.node import logical_volumes
from tests.unit import base

REPORT = '''{"report": [{"lv": [
  {"vg_name":"volumes", "lv_name":"one", "lv_size":"4194304",
   "lv_active":"active", "lv_tags":"dmclone.region=8,other"},
  {"vg_name":"fast", "lv_name":"two", "lv_size":"512",
   "lv_active":"", "lv_tags":""}]}], "log": []}'''


class ParseTestCase(base.PlainTestCase):

    def test_parse(self):
        one, two = logical_volumes.parse(REPORT)
        self.assertEqual(('volumes', 'one', 4194304, True),
                         (one.group, one.name, one.size, one.active))
        self.assertEqual('/dev/volumes/one', one.path)
        self.assertEqual({'dmclone.region=8', 'other'}, one.tags)
        self.assertEqual((False, frozenset()), (two.active, two.tags))

    def test_tagged(self):
        one, two = logical_volumes.parse(REPORT)
        self.assertEqual('8', one.tagged(logical_volumes.REGION_TAG))
        self.assertIsNone(one.tagged(logical_volumes.METADATA_TAG))
        self.assertIsNone(two.tagged(logical_volumes.REGION_TAG))
        # Without a value it is there all the same.
        self.assertEqual('', one.tagged('other'))


class LogicalVolumesTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.lv = self.logical_volume()[1]

    def read(self):
        return logical_volumes.find(self.lv.name)

    def test_find(self):
        self.assertEqual(self.lv, self.read())
        self.assertEqual(self.lv, logical_volumes.find(self.lv.name,
                                                       'volumes'))
        self.assertIsNone(logical_volumes.find(self.lv.name, 'fast'))
        self.assertIsNone(logical_volumes.find('other'))

    def test_tags(self):
        place = self.lv.group, self.lv.name
        logical_volumes.tag(*place, 'a=1', 'b')
        self.assertEqual({'a=1', 'b'}, self.read().tags)
        logical_volumes.tag(*place, 'b')
        logical_volumes.untag(*place, 'a=1', 'c')
        self.assertEqual({'b'}, self.read().tags)

    def test_retag_is_one_step(self):
        logical_volumes.tag(self.lv.group, self.lv.name, 'a=1', 'b')
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
