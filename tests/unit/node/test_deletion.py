# SPDX-License-Identifier: Apache-2.0
"""Clearing and deletion of logical volumes."""

import threading
import types

from cinder import exception
import ddt
from oslo_concurrency import lockutils
from oslo_utils import units

from dmclone_driver.node import deletion
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage


@ddt.ddt
class DeletionTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.lv = self.logical_volume()
        self.group = storage.Group(self.lvm, 'volumes')
        self.configuration = types.SimpleNamespace(
            volume_clear='zero', volume_clear_size=0,
            volume_clear_ionice=None, volume_copy_bps_limit=0)

    def delete(self):
        deletion.delete_volume(self.names, self.group, self.configuration)

    def assertCleared(self, path, size=units.Gi):
        """From its start to its end, without a gap."""
        reached = 0
        for each, start, end in self.kernel.zeroed:
            self.assertEqual((path, reached), (each, start))
            reached = end
        self.assertEqual(size, reached)

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

    @ddt.data(False, True)
    def test_interrupted(self, killed):
        """Nothing is given back, and all is cleared by the next attempt."""
        self.steps.start()
        self.delete()
        second = [number for number, step in enumerate(self.steps.log)
                  if 'zero' in step][1]
        self.names, self.lv = self.logical_volume()
        self.kernel.zeroed = []
        self.steps.start(second, killed=killed)
        self.assertRaises(steps.Killed if killed else OSError, self.delete)
        self.assertEqual(1, len(self.kernel.zeroed))
        self.assertEqual([self.lv.name], self.lvm.names())
        self.steps.start()
        self.kernel.zeroed = []
        self.delete()
        self.assertCleared(self.names.path())
        self.assertEqual([], self.lvm.names())

    @ddt.data((100, 100 * units.Mi), (1024, units.Gi), (2000, units.Gi))
    @ddt.unpack
    def test_only_the_start(self, mebibytes, size):
        self.configuration.volume_clear_size = mebibytes
        self.delete()
        self.assertCleared(self.names.path(), size)

    def test_last_extent(self):
        """The logical volume may be larger than the volume."""
        self.lvm.volumes[self.lv.path]['size'] += 512
        self.delete()
        self.assertCleared(self.names.path(), units.Gi + 512)

    @ddt.data((None, 0, '-c3', 0), ('-c2', units.Mi, '-c2', units.Mi))
    @ddt.unpack
    def test_options(self, ionice, limit, *expected):
        self.configuration.volume_clear_ionice = ionice
        self.configuration.volume_copy_bps_limit = limit
        zero = self.patch('dmclone_driver.privsep.clearing.zero',
                          return_value=units.Gi)
        self.delete()
        self.assertEqual(tuple(expected), zero.call_args.args[-2:])

    def test_turns(self):
        """A small volume does not wait for the end of a large one."""
        small = logical_volumes.LogicalVolume('volumes', 'small', 2, True)
        large = logical_volumes.LogicalVolume('volumes', 'large', 9, True)
        lock = lockutils.internal_fair_lock('dmclone-clear')
        done = []

        def zero(path, start, end, *_):
            done.append(path)
            if len(done) == 1:
                thread.start()
                while not lock.has_pending_writers:
                    threading.Event().wait(0.01)
            return start + 1

        thread = threading.Thread(target=deletion._clear, args=(
            small, 'small', self.configuration))
        self.patch('dmclone_driver.privsep.clearing.zero', new=zero)
        deletion._clear(large, 'large', self.configuration)
        thread.join()
        self.assertEqual(['large', 'small'], done[:2])
        self.assertEqual([2, 9], [done.count('small'), done.count('large')])

    def test_volume_with_a_snapshot(self):
        self.group.create_lv_snapshot('snap', self.lv.name)
        self.assertRaises(exception.VolumeIsBusy, self.delete)
        self.assertEqual([], self.kernel.zeroed)
        self.assertIn(self.lv.name, self.lvm.names())

    def test_group_is_missing(self):
        """The volume does not count as deleted."""
        del self.lvm.groups['volumes']
        self.assertRaises(lvm.GroupNotFound, self.delete)

    def test_no_clearing(self):
        self.configuration.volume_clear = 'none'
        self.delete()
        self.assertEqual([], self.kernel.zeroed)
        self.assertEqual([], self.lvm.names())

    def test_thin_volume(self):
        """To clear it would allocate all of its blocks."""
        group = storage.Group(self.lvm, 'volumes', 'thin')
        group.create_volume('thin', '1g', 'thin')
        logical_volumes.take_snapshot(
            logical_volumes.find('thin', 'volumes'), 'snap')
        for name in 'thin', 'snap':
            deletion.delete_snapshot(logical_volumes.find(name, 'volumes'),
                                     group, self.configuration)
        self.assertEqual([self.lv.name], self.lvm.names())
        self.assertEqual([], self.kernel.zeroed)

    def test_snapshot(self):
        self.group.create_lv_snapshot('clone-snap-1', self.lv.name)
        deletion.delete_snapshot(
            logical_volumes.find('clone-snap-1', 'volumes'), self.group,
            self.configuration)
        self.assertCleared('/dev/mapper/volumes-clone--snap--1-cow')
        self.assertEqual([self.lv.name], self.lvm.names())
