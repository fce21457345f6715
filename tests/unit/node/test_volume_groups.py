# SPDX-License-Identifier: Apache-2.0
"""Volume groups."""

from oslo_concurrency import processutils

from dmclone_driver.node import volume_groups
from tests.unit import base

ROWS = [
    {'vg_name': 'clone-metadata-zram', 'vg_size': '66060288',
     'vg_free': '62914560', 'lv_count': '1', 'vg_tags': 'dmclone.metadata'},
    {'vg_name': 'data', 'vg_size': '1', 'vg_free': '0', 'lv_count': '0',
     'vg_tags': ''}]


class VolumeGroupsTestCase(base.MachineTestCase):

    def test_parse(self):
        own, other = map(volume_groups.parse, ROWS)
        self.assertEqual(
            ('clone-metadata-zram', 66060288, 62914560, 1, True),
            (own.name, own.size, own.free, own.volumes, own.own))
        self.assertEqual((0, False, frozenset()),
                         (other.volumes, other.own, other.tags))

    def test_of_device(self):
        self.assertIsNone(volume_groups.of_device('/dev/blank'))
        volume_groups.create('new', '/dev/blank')
        self.assertEqual('new', volume_groups.of_device('/dev/blank').name)
        volume_groups.remove('new')
        self.assertIsNone(volume_groups.find('new'))

    def test_of_device_without_a_group(self):
        self.patch('dmclone_driver.node.lvm.report',
                   return_value=[{'vg_name': ''}])
        self.assertIsNone(volume_groups.of_device('/dev/prepared'))

    def test_lvm_does_not_answer(self):
        self.patch('dmclone_driver.privsep.command.lvm',
                   side_effect=processutils.ProcessExecutionError(
                       exit_code=127))
        self.assertRaises(processutils.ProcessExecutionError,
                          volume_groups.of_device, '/dev/blank')
