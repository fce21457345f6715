# SPDX-License-Identifier: Apache-2.0
"""Clearing and deletion of logical volumes."""

import types

from cinder import exception
import ddt

from dmclone_driver.node import deletion
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from tests.unit import base
from tests.unit.fakes import storage


@ddt.ddt
class DeletionTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.lv = self.logical_volume()
        self.group = storage.Group(self.lvm, 'volumes')
        self.configuration = types.SimpleNamespace(
            volume_clear='zero', volume_clear_size=0,
            volume_clear_ionice='-c3')
        self.clear = self.patch('cinder.volume.volume_utils.clear_volume')

    def delete(self):
        deletion.delete_volume(self.names, self.group, self.configuration)

    def assertCleared(self, path):
        self.clear.assert_called_once_with(
            1024, path, volume_clear='zero', volume_clear_size=0,
            volume_clear_ionice='-c3')

    @ddt.data(True, False)
    def test_volume(self, with_handle):
        """It is cleared through a handle, which is created if necessary."""
        if with_handle:
            LocalVolume(self.names).ensure_linear(self.lv)
        self.delete()
        self.assertCleared(self.names.path())
        self.assertEqual(([], {}), (self.lvm.names(), self.kernel.devices))
        # A repeated deletion succeeds.
        self.delete()

    def test_clearing_fails(self):
        self.clear.side_effect = OSError
        self.assertRaises(OSError, self.delete)
        self.assertEqual([self.lv.name], self.lvm.names())

    def test_volume_with_a_snapshot(self):
        self.group.create_lv_snapshot('snap', self.lv.name)
        self.assertRaises(exception.VolumeIsBusy, self.delete)
        self.clear.assert_not_called()
        self.assertIn(self.lv.name, self.lvm.names())

    def test_group_is_missing(self):
        """The volume does not count as deleted."""
        del self.lvm.groups['volumes']
        self.assertRaises(lvm.GroupNotFound, self.delete)

    def test_no_clearing(self):
        self.configuration.volume_clear = 'none'
        self.delete()
        self.clear.assert_not_called()
        self.assertEqual([], self.lvm.names())

    def test_snapshot(self):
        self.group.create_lv_snapshot('clone-snap-1', self.lv.name)
        deletion.delete_snapshot(
            logical_volumes.find('clone-snap-1', 'volumes'), self.group,
            self.configuration)
        self.assertCleared('/dev/mapper/volumes-clone--snap--1-cow')
        self.assertEqual([self.lv.name], self.lvm.names())
