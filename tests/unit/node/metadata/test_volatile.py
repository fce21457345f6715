# SPDX-License-Identifier: Apache-2.0
"""Metadata in memory: enabled by an option, limited, and freed."""

import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.node.metadata import brd
from dmclone_driver.node.metadata import tmpfs
from dmclone_driver.node.metadata import volatile
from dmclone_driver.node.metadata import zram
from dmclone_driver.privsep import ram_disks
from tests.unit import base
from tests.unit.node.metadata import stores

MIB = 2 ** 20
GROUP = 'clone-metadata-simulated'


class SimulatedDisk(volatile.VolatileMetadata):
    """Metadata on a simulated RAM disk."""

    kind = 'simulated'
    lvm = None
    disks = 0

    def make_disk(self, size):
        type(self).disks += 1
        self.lvm.sizes['/dev/ram-of-test'] = size
        return '/dev/ram-of-test'

    def remove_disk(self):
        type(self).disks -= 1
        self.lvm.disks.clear()


class VolatileTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'tests.unit.node.metadata.test_volatile.SimulatedDisk.disks', 0))
        self.names, self.lv = self.logical_volume()
        SimulatedDisk.lvm = self.lvm
        stores.use_groups(self)
        self.memory = self.patch(
            'dmclone_driver.privsep.ram_disks.available_memory',
            return_value=2 ** 30)

    def start(self, memory=64, **options):
        store = SimulatedDisk(stores.configuration(
            dmclone_metadata_memory=memory, **options), None)
        store.check()
        return store

    def create(self, store, region=128):
        return store.create(self.names, self.lv.size, region)

    def test_not_without_being_allowed(self):
        error = self.assertRaises(exception.BadConfiguration, self.start,
                                  dmclone_volatile_metadata=False)
        for part in ('dmclone_metadata_backend', 'lost', 'hydrating',
                     'dmclone_volatile_metadata'):
            self.assertIn(part, error.msg)
        self.assertEqual(0, SimulatedDisk.disks)

    def test_verify_makes_no_disk(self):
        SimulatedDisk(stores.configuration(), None).verify()
        self.assertEqual(0, SimulatedDisk.disks)

    def test_found_again_by_the_next_start(self):
        found = self.create(self.start())
        self.assertEqual(found, self.start().find(self.names))
        self.assertEqual(1, SimulatedDisk.disks)
        self.assertEqual(63 * MIB, self.lvm.groups[GROUP])

    def test_removed_volume_is_discarded(self):
        store = self.start()
        self.create(store)
        self.steps.start()
        store.remove(self.names)
        self.assertIn('devices/issue_discards=1', self.steps.log[-1])
        self.assertNotIn(self.names.metadata, self.lvm.names())

    def test_another_limit(self):
        self.start()
        self.start(128)
        self.assertEqual((1, 127 * MIB),
                         (SimulatedDisk.disks, self.lvm.groups[GROUP]))

    def test_another_limit_waits_while_clones_are_there(self):
        found = self.create(self.start())
        store = self.start(128)
        self.assertEqual(found, store.find(self.names))
        self.assertEqual(63 * MIB, self.lvm.groups[GROUP])

    def test_given_back(self):
        store = self.start()
        self.create(store)
        store.give_back()
        self.assertEqual(1, SimulatedDisk.disks)
        store.remove(self.names)
        for _ in range(2):
            store.give_back()
            self.assertEqual(0, SimulatedDisk.disks)
            self.assertNotIn(GROUP, self.lvm.groups)

    def test_never_more_than_the_limit(self):
        store = self.start(8)
        error = self.assertRaises(exception.NoRoomForMetadata,
                                  store.create, self.names, 2 ** 42, 128)
        self.assertIn('7 MiB are left', error.msg)

    def test_short_of_memory(self):
        store = self.start()
        self.memory.return_value = 4 * MIB
        error = self.assertRaises(exception.NoRoomForMetadata, self.create,
                                  store)
        self.assertIn('the node has only 4 MiB of memory left', error.msg)
        self.assertNotIn(self.names.metadata, self.lvm.names())

    def test_short_of_memory_with_metadata_there(self):
        store = self.start()
        found = self.create(store)
        self.memory.return_value = 0
        self.assertEqual(found, store.create(self.names, self.lv.size, 128,
                                             self.lv))

    def test_disk_can_not_be_made(self):
        self.patch(SimulatedDisk.__module__ + '.SimulatedDisk.make_disk',
                   side_effect=processutils.ProcessExecutionError(
                       stderr='no module'))
        error = self.assertRaises(exception.BadConfiguration, self.start)
        self.assertIn('no module', error.msg)


@ddt.ddt
class KindsTestCase(base.PlainTestCase):

    @ddt.data(brd.BrdMetadata, zram.ZramMetadata, tmpfs.TmpfsMetadata)
    def test_group_of_its_own(self, kind):
        store = kind(stores.configuration(), None)
        self.assertFalse(store.persistent)
        self.assertEqual('clone-metadata-' + store.kind, store.group_name)

    def brd_is_loaded(self, holds_nothing, group):
        self.patch('dmclone_driver.privsep.ram_disks.is_loaded',
                   return_value=True)
        self.patch('dmclone_driver.privsep.ram_disks.brd_holds_nothing',
                   return_value=holds_nothing)
        self.patch('dmclone_driver.node.volume_groups.of_device',
                   return_value=group)
        self.patch('time.sleep')
        self.modprobe = self.patch('dmclone_driver.privsep.command.modprobe')
        return brd.BrdMetadata(stores.configuration(), None)

    @ddt.data((False, None), (True, 'group'))
    @ddt.unpack
    def test_brd_of_somebody_else(self, holds_nothing, group):
        store = self.brd_is_loaded(holds_nothing, group)
        error = self.assertRaises(exception.BadConfiguration,
                                  store.make_disk, MIB)
        self.assertIn('unload it', error.msg)
        self.modprobe.assert_not_called()

    def test_brd_that_a_crash_has_left(self):
        store = self.brd_is_loaded(True, None)
        busy = processutils.ProcessExecutionError(stderr='in use')
        self.modprobe.side_effect = [busy, busy, None, None]
        self.assertEqual('/dev/ram0', store.make_disk(MIB))
        self.assertEqual(['--remove'] * 3 + ['brd'], [
            call.args[0] for call in self.modprobe.call_args_list])

    def test_brd_in_use(self):
        store = self.brd_is_loaded(True, None)
        self.modprobe.side_effect = processutils.ProcessExecutionError(
            stderr='in use')
        self.assertRaises(processutils.ProcessExecutionError,
                          store.remove_disk)

    def test_zram_without_a_mapping(self):
        self.patch('dmclone_driver.privsep.command.modprobe')
        self.patch('dmclone_driver.privsep.ram_disks.make_zram',
                   return_value='/dev/zram3')
        remove = self.patch('dmclone_driver.privsep.ram_disks.remove_zram')
        self.patch('dmclone_driver.node.devicemapper.dmsetup.device',
                   return_value=None)
        self.patch('dmclone_driver.node.devicemapper.dmsetup.create',
                   side_effect=processutils.ProcessExecutionError)
        store = zram.ZramMetadata(stores.configuration(), None)
        self.assertRaises(processutils.ProcessExecutionError,
                          store.make_disk, MIB)
        remove.assert_called_once_with('/dev/zram3')

    def test_available_memory(self):
        with open('/proc/meminfo') as stream:
            total = int(stream.readline().split()[1]) * 1024
        self.assertTrue(0 < ram_disks.available_memory() < total)
