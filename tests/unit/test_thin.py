# SPDX-License-Identifier: Apache-2.0
"""Thin volumes: what differs from thick ones."""

import functools
import itertools
from unittest import mock

from cinder import exception as cinder_exception
import ddt
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.move import left_behind
from dmclone_driver.move import room
from dmclone_driver.move import rpcapi
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots

GIB = storage.GIB
POOL = '/dev/volumes/volumes-pool'


class Mixin:
    """What the tests of this file need."""

    def names(self, volume=None):
        return Names(self.cloud.row((volume or self.volume).id).name_id)

    def lv(self, node, name):
        with self.cloud.on(node):
            return logical_volumes.find(name, 'volumes')

    def mine(self, node, volume=None):
        """Return a volume's logical volume on a node."""
        return self.lv(node, self.names(volume).volume)

    def allocate(self, node, volume, size):
        """Have a volume allocate some GiB."""
        node.lvm.volumes[self.mine(node, volume).path]['allocated'] = (
            size * GIB)


class Moves(Mixin):
    """Moves between nodes, of which each has its own kind of volumes."""

    def test_life(self):
        """Created, extended, moved there and back, and deleted."""
        kinds = [kind == 'thin' for kind in self.KINDS]
        self.assertEqual(kinds[0], self.mine(self.a).thin)
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 3)
        for node, other, thin in ((self.b, self.a, kinds[1]),
                                  (self.a, self.b, kinds[0])):
            self.cloud.attach(self.volume, node)
            self.assertIn('clone', node.kernel.roles(self.names()))
            self.cloud.watch(3)
            self.assertIdle(node)
            self.assertEqual((thin, 3 * GIB), (self.mine(node).thin,
                                               self.mine(node).size))
            self.assertEqual([], other.lvm.names())
            self.cloud.detach(self.volume, node)
        self.delete(self.volume)
        self.assertEqual([], self.cloud.leftovers())


@ddt.ddt
class ThinToThinTestCase(Moves, base.CloudTestCase):
    KINDS = ('thin', 'thin')

    def test_destination_in_a_pool_that_takes_no_changes(self):
        """It is deleted when the pool takes that."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        for record in self.row().volume_attachment:
            record.destroy()
        self.b.lvm.volumes[POOL]['mode'] = 'ro'
        self.cloud.watch()
        self.assertEqual([self.names().volume], self.a.lvm.names())
        self.assertNotEqual([], self.b.lvm.names())
        self.b.lvm.volumes[POOL]['mode'] = 'rw'
        self.cloud.watch(4)
        self.assertEqual([], self.b.lvm.names())
        self.assertIdle(self.a)

    def test_source_in_a_pool_that_takes_no_changes(self):
        """It is deleted when the pool takes that."""
        self.cloud.attach(self.volume, self.b)
        self.a.lvm.volumes[POOL]['mode'] = 'ro'
        self.cloud.watch(3)
        self.assertNotEqual([], self.a.lvm.names())
        self.a.lvm.volumes[POOL]['mode'] = 'rw'
        self.cloud.watch(3)
        self.assertEqual([], self.a.lvm.names())
        self.assertIdle(self.b)

    @ddt.data((None, True), ('', True), ('dmclone.opened=1', False))
    @ddt.unpack
    def test_first_block(self, tag, written):
        """It is written for flushes, unless the volume was used here.

        As after the database was restored to a state before the switchover.

        :param tag: of the logical volume, '' for none; None if there is none
        """
        names = Names('1fc9ca0f-5a5c-4ee7-8eb9-8a9ea0b1a5f4')
        if tag is not None:
            self.b.lvm.add('volumes', names.volume, GIB, pool=POOL)
            self.b.lvm.volumes['/dev/volumes/' + names.volume][
                'tags'] = {tag} - {''}
        with self.cloud.on(self.b), mock.patch(
                'dmclone_driver.move.builder.block.zero_start') as write:
            self.b.builder._create_metadata(
                names, *self.b.builder._create_logical_volume(names, GIB))
        paths = [call.args[0] for call in write.mock_calls]
        self.assertEqual(written, '/dev/volumes/' + names.volume in paths)


class ThickToThinTestCase(Moves, base.CloudTestCase):
    KINDS = ('default', 'thin')


class ThinToThickTestCase(Moves, base.CloudTestCase):
    KINDS = ('thin', 'default')


@ddt.ddt
class RoomTestCase(Mixin, base.CloudTestCase):
    """The pool has 95 GiB of the group's 100, of which 1.9 are reserved."""

    KINDS = ('thin', 'thin')

    def allocated(self, size, of=None):
        """Create a volume that has allocated some GiB."""
        volume = self.a.create(of or size)
        self.allocate(self.a, volume, size)
        return volume

    def stats(self, node):
        with self.cloud.on(node):
            node.driver.get_volume_stats(refresh=True)
        return node.driver._stats['pools'][0]

    def free(self, node):
        with self.cloud.on(node):
            return round(node.destination.describe()['free_gb'], 2)

    @ddt.data((0, 0, 93.1), (0, 5, 88.1), (10, 5, 80.5), (10, 95, 0))
    @ddt.unpack
    def test_blocks(self, percentage, used, free):
        self.override_config('reserved_percentage', percentage,
                             group=cloud.BACKEND)
        large = self.a.create(95)
        self.allocate(self.a, large, used)
        self.assertEqual(free, self.free(self.a))

    @ddt.data(('2.0', 80, 10), ('auto', 80, 91), ('20.0', 80, 91))
    @ddt.unpack
    def test_over_subscription(self, ratio, size, free):
        """What may be provisioned counts, too."""
        self.override_config('max_over_subscription_ratio', ratio,
                             group=cloud.BACKEND)
        first = self.a.create(size + 19)
        self.a.create(size)
        self.allocate(self.a, first, 2)
        self.assertEqual(free, round(self.free(self.a)))

    def test_copies_under_way(self):
        """They will allocate what they have not copied yet."""
        large, other = (self.allocated(size) for size in (60, 36))
        self.cloud.attach(large, self.b)
        self.assertEqual(33.1, self.free(self.b))
        self.allocate(self.b, large, 20)
        self.assertEqual(33.1, self.free(self.b))
        error = self.assertRaises(
            exception.MoveRefused, self.cloud.attach, other, self.b)
        self.assertIn('has allocated 36.00 GiB, and the thin pool there has '
                      'only 33.10 GiB left for copies', error.msg)
        # Cinder's scheduler sees it, too: 75 without that.
        self.assertEqual(35, self.stats(self.b)['free_capacity_gb'])
        self.cloud.watch(3)
        self.assertEqual(73.1, self.free(self.b))

    def test_two_copies_at_once(self):
        """Each counts both, whatever there was room for before."""
        self.cloud.attach(self.allocated(60), self.b)
        large = self.allocated(60)
        with mock.patch.object(self.b.destination, '_free',
                               return_value=room.Free(95, 95, 95)):
            error = self.assertRaises(exception.MoveFailed,
                                      self.cloud.attach, large, self.b)
        self.assertIn('needs 26.90 GiB more', error.msg)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(1, len(self.b.lvm.names()))

    @ddt.data((0, '89.99', 95), (0, '90.00', 0), (20, '80.00', 0),
              (20, '79.99', 76))
    @ddt.unpack
    def test_metadata_of_the_pool(self, percentage, used, free):
        """Without room for it a copy would wait, and the volume be here."""
        self.override_config('reserved_percentage', percentage,
                             group=cloud.BACKEND)
        self.b.lvm.volumes[POOL]['metadata'] = used
        self.assertAlmostEqual(free, self.free(self.b), delta=2)
        if not free:
            self.assertRaises(exception.NoRoomOnPeer, self.cloud.attach,
                              self.volume, self.b)
            self.assertEqual(self.a.pool, self.row().host)

    def test_only_what_is_allocated(self):
        """A volume may be larger than what is left."""
        large = self.allocated(5, 90)
        self.allocate(self.b, self.b.create(95), 80)
        self.assertEqual(13.1, self.free(self.b))
        self.cloud.attach(large, self.b)
        self.assertEqual(8.1, self.free(self.b))
        self.cloud.watch(3)
        self.assertNotIn(logical_volumes.ALLOCATED_TAG,
                         str(self.mine(self.b, large).tags))

    def test_map_is_not_read(self):
        """Then all is copied, as far as there is room."""
        self.patch('dmclone_driver.privsep.thin.dump',
                   side_effect=processutils.ProcessExecutionError)
        large = self.allocated(5, 90)
        self.allocate(self.b, self.b.create(95), 80)
        self.cloud.attach(large, self.b)
        for _time in range(2):
            self.cloud.watch(hydrate=False)
        self.assertEqual(0, self.mine(self.b, large).marked)
        self.assertEqual(0, self.free(self.b))

    @ddt.data('dmclone_driver.privsep.thin.dump',
              'dmclone_driver.privsep.marks.run')
    def test_marked_later(self, function):
        """All would fill the pool, and could not end."""
        fails = mock.Mock(side_effect=processutils.ProcessExecutionError)
        self.assertMarkedLater(mock.patch(function, fails))
        self.assertLess(2, fails.call_count)

    def test_marked_later_beside_another_copy(self):
        """What that has not allocated yet is its own."""
        first = self.allocated(60)
        self.cloud.attach(first, self.b)
        self.cloud.watch(hydrate=False)
        # Its simulated copy stands still for minutes.
        self.assertMarkedLater(mock.patch(
            'dmclone_driver.privsep.thin.dump',
            side_effect=processutils.ProcessExecutionError), 50, 28.1, 0,
            [first.id])

    @ddt.data(('dmclone_driver.node.logical_volumes.retag', lvm.LVMError),
              ('dmclone_driver.move.marks._may', itertools.repeat(False)),
              ('dmclone_driver.move.marks.Marks._due', OSError))
    @ddt.unpack
    def test_marked_later_if_it_is_not_decided(self, function, effect):
        self.assertMarkedLater(mock.patch(function, side_effect=effect))

    def test_guest_leaves_no_moment(self):
        self.assertMarkedLater(mock.patch(
            'tests.unit.fakes.kernel.Kernel.never_ends', return_value=True))

    def assertMarkedLater(self, failing, size=90, free=8.1, used=80, told=()):
        large = self.allocated(5, size)
        self.allocate(self.b, self.b.create(95), used)
        self.cloud.attach(large, self.b)
        clone = self.b.kernel.get(self.names(large).of(names_module.CLONE))
        with failing:
            for _time in range(3):
                self.cloud.pass_time(70)
                self.cloud.settle()
                self.b.look()
                self.cloud.settle()
        self.assertFalse(clone.own.hydration)
        self.assertEqual(free, self.free(self.b))
        self.assertEqual(list(told), [
            each['resource_uuid'] for each in self.cloud.messages()])
        self.cloud.watch(hydrate=False)
        self.assertEqual((size - 5) * GIB, self.mine(self.b, large).marked)
        self.assertTrue(clone.own.hydration)

    def refused(self, volume):
        error = self.assertRaises(exception.NoRoomOnPeer, self.cloud.attach,
                                  volume, self.b)
        self.assertEqual(self.a.pool, self.cloud.row(volume.id).host)
        self.assertEqual([], self.cloud.placeholders())
        return error.msg

    def test_sizes(self):
        """What may be provisioned counts, whatever is allocated."""
        self.override_config('max_over_subscription_ratio', '1.0',
                             group=cloud.BACKEND)
        self.b.create(80)
        self.assertIn('has 90 GiB, and volumes of only 15.00 GiB may be added',
                      self.refused(self.allocated(5, 90)))

    @ddt.data((False, True), (True, False))
    def test_without_the_program(self, installed):
        """On the source's node, or on the destination's."""
        answers = iter(installed)
        self.patch('dmclone_driver.node.thin_maps.is_installed',
                   side_effect=lambda: next(answers))
        self.allocate(self.b, self.b.create(95), 80)
        self.assertIn('needs 90 GiB', self.refused(self.allocated(5, 90)))

    @ddt.data(('89.00', True), ('90.00', False))
    @ddt.unpack
    def test_metadata_of_the_old_home(self, used, fits):
        """Without room for it there would be no map, and all be copied."""
        self.a.lvm.volumes[POOL]['metadata'] = used
        self.allocate(self.b, self.b.create(95), 80)
        large = self.allocated(5, 90)
        if fits:
            self.cloud.attach(large, self.b)
        else:
            self.assertIn('needs 90 GiB', self.refused(large))

    def test_peer_of_the_version_before(self):
        """It does not say so, and takes no such argument."""
        describe = self.b.destination.describe
        self.patch('dmclone_driver.move.destination.Destination.describe',
                   new=lambda self: {
                       key: value for key, value in describe().items()
                       if key not in ('virtual_free_gb', 'free_blocks_gb')})
        with mock.patch.object(rpcapi.PeerEndpoint.target, 'version', '1.5'):
            self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.b.pool, self.row().host)

    def test_not_complete(self):
        """All is copied of a clone: its own source may have more."""
        large = self.allocated(5, 90)
        self.cloud.attach(large, self.b)
        self.allocate(self.a, self.a.create(95), 80)
        self.cloud.detach(large, self.b)
        error = self.assertRaises(exception.NoRoomOnPeer, self.cloud.attach,
                                  large, self.a)
        self.assertIn('needs 90 GiB', error.msg)

    def test_pool_does_not_zero(self):
        """All is copied then, whatever is allocated."""
        self.b.lvm.volumes[POOL]['zero'] = ''
        self.allocate(self.b, self.b.create(95), 80)
        self.assertIn('needs 90 GiB', self.refused(self.allocated(5, 90)))

    def test_clones_take_no_discards(self):
        """Those with a tail, if the kernel has nothing to be below it."""
        self.b.kernel.zero_discards = False
        self.patch('dmclone_driver.privsep.ram_disks.loop',
                   side_effect=processutils.ProcessExecutionError)
        self.override_config('dmclone_hydration_min_rate', 1,
                             group=cloud.BACKEND)
        first = self.a.create(1)
        self.cloud.attach(first, self.b)
        self.cloud.watch(3)
        self.allocate(self.b, self.b.create(95), 80)
        self.assertIn('needs 90 GiB', self.refused(self.allocated(5, 90)))

    def test_external_origin(self):
        """What is not allocated reads that, so all is copied."""
        large = self.allocated(5, 90)
        self.a.lvm.add('volumes', 'external', GIB)
        self.a.lvm.volumes[self.mine(self.a, large).path]['origin'] = (
            '/dev/volumes/external')
        self.allocate(self.b, self.b.create(95), 80)
        self.assertIn('needs 90 GiB', self.refused(large))

    @ddt.data(('ro', False), ('out_of_data_space', True))
    @ddt.unpack
    def test_mode_of_the_pool(self, mode, moves):
        """The map of the source is read from a copy that its pool makes."""
        large = self.allocated(5, 90)
        self.a.lvm.volumes[POOL]['mode'] = mode
        self.allocate(self.b, self.b.create(95), 80)
        if moves:
            self.cloud.attach(large, self.b)
        else:
            self.assertIn('needs 90 GiB', self.refused(large))

    def test_pool_of_the_source_has_failed(self):
        large = self.allocated(5, 90)
        self.a.lvm.volumes[self.mine(self.a, large).path]['failed'] = True
        error = self.assertRaises(exception.MoveRefused, self.cloud.attach,
                                  large, self.b)
        self.assertIn('has failed', error.msg)
        self.assertEqual([], self.cloud.placeholders())

    def test_no_pool(self):
        del self.b.lvm.volumes[POOL]
        self.assertRaises(cinder_exception.VolumeGroupNotFound, self.free,
                          self.b)

    def test_stats(self):
        self.allocate(self.a, self.volume, 1)
        pool = self.stats(self.a)
        with self.cloud.on(self.a):
            report = self.a.parts.reporter.report(self.context)
        self.assertEqual(
            (95, 94, 1, True, False),
            tuple(pool[key] for key in (
                'total_capacity_gb', 'free_capacity_gb',
                'provisioned_capacity_gb', 'thin_provisioning_support',
                'thick_provisioning_support')))
        self.assertEqual('99', pool['goodness_function'])
        # Cinder also copies to volumes that have data, for a revert.
        self.assertFalse(self.a.driver._stats['sparse_copy_volume'])
        self.assertEqual((94 * GIB, 95 * GIB), (report.free, report.total))


@ddt.ddt
class KindTestCase(Mixin, base.CloudTestCase):
    """What "auto" means."""

    def open(self, node, kind='auto', serves=True):
        """Open the backend of a node again; return its kind of volumes."""
        node.lvm_type = kind
        with self.cloud.on(node):
            driver = node._make_driver()
            # Also if it has to be tried again.
            for _attempt in range(2):
                driver.open_backend(serves)
        return driver.configuration.lvm_type

    @ddt.data('auto', 'thin')
    def test_command(self, kind):
        """It creates no pool, and uses one that is there."""
        self.assertEqual('default', self.open(self.b, kind, serves=False))
        self.assertEqual({}, self.b.lvm.volumes)
        self.open(self.b, kind)
        self.assertEqual('thin', self.open(self.b, kind, serves=False))

    def test_repeated_start(self):
        """All parts use one object of Cinder's for the group."""
        with self.cloud.on(self.a):
            self.a.driver.check_for_setup_error()
        self.assertIs(self.a.driver.vg, self.a.driver._backend.group)

    def test_thick_volumes(self):
        """No pool is created in a group that has volumes."""
        self.assertEqual('default', self.open(self.a))
        self.assertNotIn(POOL, self.a.lvm.volumes)

    def test_empty_group(self):
        self.assertEqual('thin', self.open(self.b))
        self.assertEqual(95 * GIB, self.b.lvm.volumes[POOL]['size'])

    def test_pool(self):
        self.a.lvm.add_pool('volumes', 50 * GIB)
        self.assertEqual('thin', self.open(self.a))
        self.assertEqual(50 * GIB, self.a.lvm.volumes[POOL]['size'])

    def test_old_lvm(self):
        self.patch('cinder.volume.volume_utils.supports_thin_provisioning',
                   return_value=False)
        self.assertEqual('default', self.open(self.b))

    def test_thin(self):
        """Cinder creates the pool, and old volumes stay thick."""
        self.assertEqual('thin', self.open(self.a, 'thin'))
        self.assertEqual(99 * GIB * 95 // 100,
                         self.a.lvm.volumes[POOL]['size'])
        self.assertFalse(self.mine(self.a).thin)

    def test_no_such_group(self):
        del self.b.lvm.groups['volumes']
        self.assertRaises(exception.BadConfiguration, self.open, self.b)


class SnapshotsTestCase(test_snapshots.SnapshotsTestCase):
    KINDS = ('thin', 'thin')

    names, mine = Mixin.names, Mixin.mine

    def assertOnlyOn(self, node):
        """Check that a node has the volume, and nothing is left over."""
        self.minute()
        self.assertIdle(node)


@ddt.ddt
class TakenTestCase(SnapshotsTestCase):
    """Snapshots of thin volumes."""

    def setUp(self):
        super().setUp()
        self.taken = self.snapshot()

    def test_takes_no_room(self):
        free = self.a.lvm.free('volumes')
        for _number in range(4):
            self.snapshot()
        self.assertEqual(free, self.a.lvm.free('volumes'))
        lv = self.snapshot_lv(self.taken)
        self.assertEqual((True, True, self.volume.name), (
            lv.thin, lv.active, lv.snapshot_of))
        self.assertEqual({}, {
            name: device for name, device in self.a.kernel.devices.items()
            if 'snapshot' in device.kinds})

    def test_is_durable(self):
        """It shares what the disk may not have written yet."""
        self.a.kernel.flushed.clear()
        with mock.patch.object(
                logical_volumes, 'take_snapshot',
                side_effect=lambda *args: self.a.kernel.flushed.append(
                    'taken')):
            self.snapshot()
        path = self.names().path()
        self.assertEqual([path, 'taken', path], self.a.kernel.flushed)

    def test_delete(self):
        self.delete_snapshot(self.taken)
        self.assertIsNone(self.snapshot_lv(self.taken))
        self.assertOnlyOn(self.a)

    def test_extend(self):
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 2)
        self.assertEqual(2 * GIB, self.a.kernel.get(self.names().path()).size)
        self.assertEqual(1 * GIB, self.snapshot_lv(self.taken).size)

    def test_volume_moves(self):
        """The snapshot stays, and so does its origin, until it is deleted."""
        name = self.names().volume
        self.move()
        self.assertTrue(self.lv(self.a, name).kept)
        self.assertIsNotNone(self.snapshot_lv(self.taken))
        self.delete_snapshot(self.taken)
        self.assertOnlyOn(self.b)

    def test_while_it_hydrates(self):
        """What it saves is in the pool."""
        self.delete_snapshot(self.taken)
        self.cloud.attach(self.volume, self.b)
        free = self.b.lvm.free('volumes')
        taken = self.snapshot()
        self.assertEqual(free, self.b.lvm.free('volumes'))
        lv = self.snapshot_lv(taken, self.b)
        self.assertEqual((True, self.names().name_id), (
            lv.thin, lv.taken.name_id))
        self.cloud.watch(3)
        later = self.snapshot()
        self.assertIsNone(self.snapshot_lv(later, self.b).taken)
        for each in taken, later:
            self.delete_snapshot(each)
        self.assertOnlyOn(self.b)

    def test_after_a_reboot(self):
        self.a.reboot()
        self.a.start()
        self.cloud.settle()
        volume = self.copy(self.taken, self.b)
        self.assertIn('clone', self.roles(volume, self.b))

    def test_group(self):
        """Snapshots of many volumes need no room."""
        volumes = [self.a.create(90) for _number in range(3)]
        rows = [mock.Mock(volume=volume, volume_size=90)
                for volume in volumes]
        with self.cloud.on(self.a):
            self.a.parts.groups.check_snapshots(rows)

    def test_group_of_thick_volumes(self):
        """Their snapshots are not in the pool, but in what is left."""
        self.a.lvm.volumes[self.mine(self.a).path]['pool'] = None
        with self.cloud.on(self.a):
            for size, fits in ((3, True), (5, False)):
                rows = [mock.Mock(volume=self.row(), volume_size=size)]
                if fits:
                    self.a.parts.groups.check_snapshots(rows)
                    continue
                error = self.assertRaises(
                    exception.NoRoomForSnapshots,
                    self.a.parts.groups.check_snapshots, rows)
                self.assertIn('4', error.msg)

    def test_unmanage(self):
        with self.cloud.on(self.a):
            self.a.driver.unmanage_snapshot(self.read(self.taken))
        self.assertIsNotNone(self.snapshot_lv(self.taken))

    def unmanage(self):
        """Unmanage the snapshot as Cinder does."""
        snapshot = self.read(self.taken)
        with self.cloud.on(self.a):
            self.a.driver.unmanage_snapshot(snapshot)
        snapshot.destroy()

    def test_volume_of_an_unmanaged_one_is_deleted(self):
        """The snapshot stays: it does not need the volume."""
        self.unmanage()
        self.a.lvm.snapshot('volumes', 'mine', self.mine(self.a).path)
        self.delete(self.volume)
        self.assertEqual(sorted(['mine', self.snapshot_lv(self.taken).name]),
                         self.a.lvm.names())

    def test_volume_of_a_managed_one_too(self):
        """Cinder's own has to be deleted before."""
        self.unmanage()
        self.taken = self.snapshot()
        error = self.assertRaises(exception.DeletionRefused, self.delete,
                                  self.volume)
        self.assertIn('delete them first', error.msg)
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.assertEqual(1, len(self.a.lvm.names()))

    def test_volume_of_one_that_is_read(self):
        """The volume's data is kept for it, whoever knows it."""
        volume = self.copy(self.taken, self.b)
        self.unmanage()
        self.delete(self.volume)
        self.assertEqual(2, len(self.a.lvm.names()))
        self.cloud.watch(3)
        self.delete(volume)
        self.a.stop()
        self.a.start()
        self.cloud.watch(3)
        self.assertEqual([self.snapshot_lv(self.taken).name],
                         self.a.lvm.names())

    def test_volume_with_one_that_is_read_and_one_that_is_unknown(self):
        """Its data goes with the former."""
        self.a.lvm.snapshot('volumes', 'mine', self.mine(self.a).path)
        volume = self.copy(self.taken, self.b)
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.assertEqual(3, len(self.a.lvm.names()))
        self.cloud.watch(3)
        self.assertEqual(['mine'], self.a.lvm.names())
        self.delete(volume)

    def test_external_origin_is_not_deleted(self):
        """LVM would delete what is in another pool with it."""
        self.unmanage()
        self.a.lvm.add('volumes', 'other', GIB)
        self.a.lvm.volumes['/dev/volumes/other']['is_pool'] = True
        self.a.lvm.volumes[self.snapshot_lv(self.taken).path]['pool'] = (
            '/dev/volumes/other')
        error = self.assertRaises(exception.DeletionRefused, self.delete,
                                  self.volume)
        self.assertIn(self.snapshot_lv(self.taken).full_name, error.msg)
        self.assertIn('lvremove', error.msg)

    def test_unmanage_what_was_not_taken(self):
        """Its logical volume is empty, whether or not it has an origin."""
        path = self.snapshot_lv(self.taken).path
        self.a.lvm.volumes[path].update(
            origin=None, tags={logical_volumes.NOT_TAKEN_TAG + 'a/b/1'})
        with self.cloud.on(self.a):
            self.assertRaises(
                cinder_exception.SnapshotIsBusy,
                self.a.driver.unmanage_snapshot, self.read(self.taken))
        self.a.lvm.volumes[path]['tags'].clear()

    @ddt.data((False, '0.25'), (True, '1.00'))
    @ddt.unpack
    def test_left_behind(self, failed, size):
        """What it has allocated counts, if that is known.

        :param failed: whether its pool has
        """
        path = self.mine(self.a).path
        self.a.lvm.volumes[path].update(allocated=GIB // 4, failed=failed,
                                        tags={logical_volumes.KEPT_TAG})
        with self.cloud.on(self.a):
            lines = [each.line() for each in left_behind.find('volumes')]
        self.assertIn(': %s GiB in' % size, lines[0])
        self.a.lvm.volumes[path].update(failed=False, tags=set())

    def test_pool_is_not_managed(self):
        with self.cloud.on(self.a):
            error = self.assertRaises(
                cinder_exception.ManageExistingInvalidReference,
                self.a.driver.manage_existing, self.new(self.a),
                {'source-name': 'volumes-pool'})
        self.assertIn('this driver uses', error.msg)

    # Reverts

    def revert(self, snapshot):
        with self.cloud.on(self.a):
            self.a.driver.revert_to_snapshot(self.context, self.row(),
                                             self.read(snapshot))

    def test_revert(self):
        """LVM exchanges the volume, and nothing is copied."""
        with mock.patch('cinder.volume.volume_utils.copy_volume') as copy:
            self.revert(self.taken)
        copy.assert_not_called()
        self.assertEqual(self.volume.name,
                         self.snapshot_lv(self.taken).snapshot_of)
        self.delete_snapshot(self.taken)
        self.assertOnlyOn(self.a)

    def test_revert_in_a_pool_that_takes_no_changes(self):
        self.a.lvm.volumes[POOL]['mode'] = 'ro'
        self.assertRaises(exception.PoolTakesNoChanges, self.revert,
                          self.taken)
        self.assertIsNotNone(self.a.kernel.get(self.names().path()))
        self.a.lvm.volumes[POOL]['mode'] = 'rw'
        self.revert(self.taken)

    @ddt.data(False, True)
    def test_deletion_in_a_pool_that_takes_no_changes(self, begun):
        """What has not begun leaves the snapshot available.

        :param begun: whether it was interrupted before
        """
        if begun:
            self.a.lvm.volumes[self.snapshot_lv(self.taken).path][
                'tags'].add(logical_volumes.DELETED_TAG)
        self.a.lvm.volumes[POOL]['mode'] = 'ro'
        with self.cloud.on(self.a):
            self.assertRaises(
                exception.PoolTakesNoChanges if begun else
                cinder_exception.SnapshotIsBusy,
                self.a.driver.delete_snapshot, self.read(self.taken))
        self.a.lvm.volumes[POOL]['mode'] = 'rw'
        self.delete_snapshot(self.taken)
        self.assertOnlyOn(self.a)

    @ddt.data({'progress': '0%'},
              {'group_snapshot_id': '77c1bf32-6bb1-43dc-a9f3-2d5f23d0c4f8'})
    def test_snapshot_that_must_not_be_available(self, columns):
        """It was not taken, or Cinder would delete its row."""
        self.taken.update(columns)
        self.assertNotAvailable(self.taken)

    def assertNotAvailable(self, snapshot):
        """Check that Cinder does not make a snapshot available."""
        self.a.lvm.volumes[POOL]['mode'] = 'ro'
        with self.cloud.on(self.a):
            self.assertRaises(exception.PoolTakesNoChanges,
                              self.a.driver.delete_snapshot, snapshot)
        self.a.lvm.volumes[POOL]['mode'] = 'rw'

    def test_snapshot_that_is_deleted_with_its_volume(self):
        """Cinder would delete the volume all the same."""
        row = self.row()
        row.status = 'deleting'
        row.save()
        self.assertNotAvailable(self.read(self.taken))
        self.delete_snapshot(self.taken)

    def test_managed_snapshot(self):
        """It is whole, which Cinder does not write down."""
        with self.cloud.on(self.a), mock.patch.object(
                self.a.driver, 'manage_existing') as rename:
            self.assertEqual(
                {'progress': '100%'},
                self.a.driver.manage_existing_snapshot(
                    self.taken, {'source-name': 'x'}))
        rename.assert_called_once()

    @ddt.data(({}, True), ({'launched_at': None}, False),
              ({'migration_status': 'deleting'}, False))
    @ddt.unpack
    def test_volume_in_a_pool_that_takes_no_changes(self, columns, available):
        """Cinder makes it available again only if it was.

        :param columns: of its row, {} if its user has deleted it
        """
        self.delete_snapshot(self.taken)
        row = self.row()
        row.update(columns)
        row.save()
        self.a.lvm.volumes[POOL]['mode'] = 'Fail'
        for begun in False, True:
            with self.cloud.on(self.a):
                self.assertRaises(
                    cinder_exception.VolumeIsBusy if available and not begun
                    else exception.PoolTakesNoChanges,
                    self.a.driver.delete_volume, row)
            lv = self.a.lvm.volumes[self.mine(self.a).path]
            self.assertEqual(begun, bool(lv['tags']))
            lv['tags'].add(logical_volumes.DELETED_TAG)
        self.a.lvm.volumes[POOL]['mode'] = 'rw'
        self.delete(self.volume)
        self.assertEqual([], self.a.lvm.names())

    def test_revert_while_a_volume_reads_another_snapshot(self):
        """Only the volume and this snapshot are deactivated."""
        self.copy(self.taken, self.b)
        latest = self.snapshot()
        with mock.patch('cinder.volume.volume_utils.copy_volume') as copy:
            self.revert(latest)
        copy.assert_not_called()

    def test_revert_after_lvm_has_forgotten_the_origin(self):
        """A merge removes the old origin, from all of its snapshots."""
        latest = self.snapshot()
        self.revert(latest)
        self.assertIsNone(self.snapshot_lv(self.taken).snapshot_of)
        self.delete_snapshot(latest)
        self.assertCopiedBack(self.snapshot_lv(self.taken).path)
        # It is still a snapshot.
        self.copy(self.taken, self.a)
        with self.cloud.on(self.a):
            self.a.driver.unmanage_snapshot(self.read(self.taken))

    def test_revert_while_a_reader_comes(self):
        """It waits: LVM would merge what is open at a later activation."""
        held = []
        merge = storage.Group.revert
        self.patch('tests.unit.fakes.storage.Group.revert', new=lambda *args: (
            held.extend(self.cloud.locks), merge(*args))[1])
        self.revert(self.taken)
        self.assertIn('dmclone-%s-%s' % (self.a.host, self.taken.id), held)

    def large(self):
        """Return a snapshot that LVM cannot merge, of 10 GiB.

        The group has 5 GiB outside of the pool.
        """
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 10)
        first, second = self.snapshot(), self.snapshot()
        self.revert(second)
        self.assertIsNone(self.snapshot_lv(first).snapshot_of)
        return first

    def test_revert_needs_room_in_the_pool(self):
        """Not in what is left of the group."""
        first = self.large()
        with mock.patch('cinder.volume.volume_utils.copy_volume') as copy:
            self.revert(first)
        copy.assert_not_called()
        self.assertIn('clone', self.roles(self.volume, self.a))

    @ddt.data(False, True)
    def test_revert_would_fill_the_pool(self, metadata):
        """Neither a clone nor a copy takes the reserve of others.

        :param metadata: whether there is room for the metadata of a clone
        """
        first = self.large()
        self.a.lvm.add('volumes', 'guests', 90 * GIB, pool=POOL)
        self.a.lvm.volumes['/dev/volumes/guests']['allocated'] = 90 * GIB
        if not metadata:
            self.leave_no_room()
        with mock.patch('cinder.volume.volume_utils.copy_volume') as copy:
            error = self.assertRaises(exception.NoRoomInPool, self.revert,
                                      first)
        copy.assert_not_called()
        self.assertIn('needs 6.90 GiB more', error.msg)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({'handle': 'linear'},
                         self.roles(self.volume, self.a))

    @ddt.data(40, 50)
    def test_revert_that_snapshots_above_a_clone_save(self, size):
        """Each of them takes as much of the pool as the volume does.

        The pool has 93 GiB for that.
        """
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), size)
        self.cloud.attach(self.volume, self.b)
        snapshot = self.snapshot()
        self.leave_no_room()
        with self.cloud.on(self.b), mock.patch(
                'cinder.volume.volume_utils.copy_volume') as copy:
            revert = functools.partial(
                self.b.driver.revert_to_snapshot, self.context, self.row(),
                self.read(snapshot))
            if size > 40:
                self.assertRaises(exception.NoRoomInPool, revert)
            else:
                revert()
        self.assertEqual(size == 40, copy.called)

    def test_extend_after_a_revert_without_its_end(self):
        """A guest writes nothing before the snapshot is taken again."""
        with mock.patch.object(logical_volumes, 'take_snapshot',
                               side_effect=lvm.LVMError('no space')):
            self.assertRaises(lvm.LVMError, self.revert, self.taken)
            with self.cloud.on(self.a):
                self.assertRaises(lvm.LVMError, self.a.driver.extend_volume,
                                  self.row(), 2)
            self.assertIsNone(self.a.kernel.get(self.names().path()))
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 2)
        self.assertEqual(1 * GIB, self.snapshot_lv(self.taken).size)
        self.assertEqual(2 * GIB,
                         self.a.kernel.get(self.names().path()).size)
        self.assertEqual(set(), self.mine(self.a).tags)

    @ddt.data({}, {'after': True}, {'killed': True},
              {'killed': True, 'after': True})
    def test_revert_that_fails(self, fault):
        """The volume can be used, and the snapshot is there again."""
        number = 0
        while True:
            self.cloud.steps.start(number, **fault)
            try:
                self.revert(self.taken)
                break
            except (Exception, test_snapshots.steps.Killed):
                pass
            step = self.cloud.steps.log[number]
            self.cloud.steps.start()
            self.cloud.watch()
            if fault.get('killed'):
                self.a.stop()
                self.a.start()
                self.cloud.settle()
            self.assertEqual(1 * GIB, self.snapshot_lv(self.taken).size)
            self.assertEqual(set(), self.mine(self.a).tags, (number, step))
            self.assertIsNotNone(self.a.kernel.get(self.names().path()))
            number += 1
        self.assertGreater(number, 5)


@ddt.ddt
class ClonesTestCase(SnapshotsTestCase):
    """Volumes that share blocks, and those that cannot."""

    def clone(self, source, size=1):
        volume = self.new(self.a, size)
        with self.cloud.on(self.a):
            volume.update(self.a.driver.create_cloned_volume(
                volume, self.cloud.row(source.id)))
        volume.status = 'available'
        volume.save()
        return self.cloud.row(volume.id)

    def assertShares(self, volume, size=1):
        """Check that a volume is complete, and has no placeholder."""
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.a))
        self.assertEqual([], self.cloud.placeholders())
        lv = self.mine(self.a, volume)
        self.assertEqual(
            (True, True, size * GIB, frozenset(), None),
            (lv.thin, lv.active, lv.size, lv.tags, lv.snapshot_of))
        self.assertEqual(size * GIB,
                         self.a.kernel.get(self.names(volume).path()).size)

    @ddt.data(1, 3)
    def test_from_a_snapshot(self, size):
        taken = self.snapshot()
        volume = self.copy(taken, self.a, size)
        self.assertShares(volume, size)
        # Neither needs the other.
        self.delete_snapshot(taken)
        self.delete(volume)
        self.assertOnlyOn(self.a)

    @ddt.data(1, 3)
    def test_of_a_volume(self, size):
        clone = self.clone(self.volume, size)
        self.assertShares(clone, size)
        second = self.clone(clone, size)
        self.delete(clone)
        self.delete(second)
        self.assertOnlyOn(self.a)

    def test_moves_away(self):
        """The clone's origin is no snapshot of it."""
        clone = self.clone(self.volume)
        self.move()
        self.assertEqual([self.names(clone).volume], self.a.lvm.names())

    def test_of_a_snapshot_on_another_node(self):
        volume = self.copy(self.snapshot(), self.b)
        self.assertIn('clone', self.roles(volume, self.b))

    def test_of_a_volume_that_hydrates(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        volume = self.new(self.b)
        with self.cloud.on(self.b):
            self.b.driver.create_cloned_volume(volume, self.row())
        self.assertIn('clone', self.roles(volume, self.b))
        self.cloud.watch(5)
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.b))
        self.minute()
        self.assertIdle(self.b)

    def test_thick_source(self):
        """Volumes of a group that was thick before."""
        self.a.lvm.volumes[self.mine(self.a).path]['pool'] = None
        self.assertIn('clone', self.roles(self.clone(self.volume), self.a))

    def test_snapshot_above_a_clone(self):
        """Its logical volume has what it saved, not its content."""
        self.cloud.attach(self.volume, self.b)
        taken = self.snapshot()
        volume = self.copy(taken, self.b)
        self.assertIn('clone', self.roles(volume, self.b))

    def test_name_is_taken(self):
        """A logical volume that was there before is kept."""
        taken = self.snapshot()
        other = self.a.create()
        before = self.mine(self.a, other)
        with self.cloud.on(self.a):
            self.assertRaises(
                processutils.ProcessExecutionError,
                self.a.driver.create_volume_from_snapshot, other, taken)
        self.assertEqual(before, self.mine(self.a, other))

    def test_has_moved_meanwhile(self):
        """The clone could lack what was written at the new home."""
        with mock.patch('dmclone_driver.move.lookups.has_moved',
                        return_value=True):
            self.assertRaises(exception.ReadLagsBehind, self.clone,
                              self.volume)
        self.assertEqual([self.volume.name], self.a.lvm.names())

    @ddt.data({}, {'after': True}, {'killed': True},
              {'killed': True, 'after': True})
    def test_creation_fails_anywhere(self, fault):
        """Its deletion removes what is there of it."""
        taken, number, done = self.snapshot(), 0, False
        while not done:
            volume = self.new(self.a, 2)
            self.cloud.steps.start(number, **fault)
            try:
                with self.cloud.on(self.a):
                    if number % 2:
                        self.a.driver.create_cloned_volume(volume, self.row())
                    else:
                        self.a.driver.create_volume_from_snapshot(volume,
                                                                  taken)
                done = self.cloud.steps.log and (
                    len(self.cloud.steps.log) <= number)
            except (Exception, test_snapshots.steps.Killed) as error:
                if isinstance(error, processutils.ProcessExecutionError):
                    self.assertIsNotNone(error.stderr)
            self.cloud.steps.start()
            if fault.get('killed'):
                self.a.stop()
                self.a.start()
                self.cloud.settle()
            self.delete(volume)
            number += 1
        self.assertGreater(number, 5)
        self.delete_snapshot(taken)
        self.assertOnlyOn(self.a)


class AdoptionTestCase(SnapshotsTestCase):
    """A backend of Cinder's LVM driver with thin volumes."""

    def setUp(self):
        super().setUp()
        self.taken = test_snapshots.cinder_utils.create_snapshot(
            self.context, self.volume.id, status='available', volume_size=1,
            volume_type_id=self.volume.volume_type_id)
        self.clone = self.a.create()
        with self.cloud.on(self.a):
            self.a.driver.unmanage(self.row())
            self.a.driver.unmanage(self.clone)
        for row in self.row(), self.cloud.row(self.clone.id):
            row.provider_id = None
            row.save()
        self.a.stop()
        # As that driver does (create_snapshot, create_cloned_volume).
        self.a.lvm.drop(self.mine(self.a, self.clone).path)
        group = storage.Group(self.a.lvm, 'volumes', 'thin')
        name = names_module.of_snapshot(self.taken.name)
        group.create_lv_snapshot(name, self.volume.name, 'thin')
        group.create_lv_snapshot(self.clone.name, self.volume.name, 'thin')
        group.activate_lv(self.clone.name)
        self.a.reboot()
        self.a.start()
        self.cloud.settle()

    def test_volumes_have_handles(self):
        for volume in self.volume, self.clone:
            self.assertEqual({'handle': 'linear'}, self.roles(volume, self.a))

    def test_clone_is_no_snapshot(self):
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.assertEqual([self.clone.name], self.a.lvm.names())
        self.delete(self.clone)
        self.assertEqual([], self.cloud.leftovers())

    def test_snapshot(self):
        """It is not active, and can be read nevertheless."""
        self.assertFalse(self.snapshot_lv(self.taken).active)
        volume = self.copy(self.taken, self.b)
        self.cloud.watch(3)
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.b))
        with (mock.patch('cinder.volume.volume_utils.copy_volume') as copy,
              self.cloud.on(self.a)):
            self.a.driver.revert_to_snapshot(self.context, self.row(),
                                             self.read(self.taken))
        copy.assert_not_called()

    def test_moves(self):
        self.cloud.attach(self.clone, self.b)
        self.cloud.watch(3)
        self.assertEqual({'handle': 'linear'},
                         self.roles(self.clone, self.b))
        self.assertEqual(
            sorted([self.volume.name, self.snapshot_lv(self.taken).name]),
            self.a.lvm.names())
