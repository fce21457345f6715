# SPDX-License-Identifier: Apache-2.0
"""Snapshots that stay when their volume moves, and volumes from them."""

import contextlib
import functools
from unittest import mock

from cinder import exception as cinder_exception
from cinder import objects
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import manager
import ddt
from oslo_concurrency import processutils
from oslo_utils import timeutils

from dmclone_driver import exception
from dmclone_driver.move import deletion_records
from dmclone_driver.move import leftovers
from dmclone_driver.move import lookups
from dmclone_driver.move import lost_node
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SNAPSHOT
from dmclone_driver.privsep import block
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage
from tests.unit.move import test_lost_node

GIB = storage.GIB
FAULTS = ({}, {'after': True}, {'killed': True})


class SnapshotsTestCase(base.CloudTestCase):

    def snapshot(self, volume=None):
        """Take a snapshot as Cinder does."""
        volume = volume or self.volume
        snapshot = cinder_utils.create_snapshot(
            self.context, volume.id, status='available', volume_size=1,
            volume_type_id=volume.volume_type_id)
        home = self.home(snapshot)
        with self.cloud.on(home):
            snapshot.update(home.driver.create_snapshot(snapshot))
        snapshot.progress = '100%'
        snapshot.save()
        return snapshot

    def home(self, snapshot):
        return self.cloud.by_host[
            snapshot.volume.host.partition('#')[0]]

    def read(self, snapshot):
        return objects.Snapshot.get_by_id(self.context, snapshot.id)

    def delete_snapshot(self, snapshot):
        """Delete a snapshot as Cinder does."""
        snapshot = self.read(snapshot)
        home = self.home(snapshot)
        with self.cloud.on(home):
            home.driver.delete_snapshot(snapshot)
        snapshot.destroy()

    def purge(self, snapshot):
        """Remove the deleted row of a snapshot, as ``cinder-manage`` does."""
        with db_api.main_context_manager.writer.using(self.context):
            self.assertEqual(1, self.context.session.query(
                models.Snapshot).filter_by(
                    id=snapshot.id, deleted=True).delete())

    def minute(self):
        """Let a minute pass on each node."""
        for node in self.cloud.nodes.values():
            if not node.down:
                with self.cloud.on(node):
                    node.driver.get_volume_stats(refresh=True)
        self.cloud.watch(2)

    def new(self, node, size=1):
        """Return the row of a volume that is about to be created."""
        return cinder_utils.create_volume(
            self.context, host=node.pool, size=size,
            service_uuid=node.service.uuid, status='creating',
            availability_zone=node.service.availability_zone,
            volume_type_id=self.vt['id'], launched_at=timeutils.utcnow())

    def fill(self, volume, node, snapshot):
        """Create a volume from a snapshot as Cinder does."""
        with self.cloud.on(node):
            volume.update(node.driver.create_volume_from_snapshot(
                volume, self.read(snapshot)))
        volume.status = 'available'
        volume.save()

    def copy(self, snapshot, node, size=1):
        volume = self.new(node, size)
        self.fill(volume, node, snapshot)
        return self.cloud.row(volume.id)

    def leave_no_room(self):
        """Fill all volume groups, so that reverts cannot be clones."""
        for node in self.cloud.nodes.values():
            node.lvm.groups['volumes'] -= node.lvm.free('volumes')

    def assertCopiedBack(self, path, snapshot=None):
        """Revert at the volume's home, without room; check what is copied.

        :param path: of the snapshot's device
        """
        self.leave_no_room()
        home = self.cloud.by_host[self.row().host.partition('#')[0]]
        with self.cloud.on(home), mock.patch(
                'cinder.volume.volume_utils.copy_volume') as copy:
            home.driver.revert_to_snapshot(
                self.context, self.row(), self.read(snapshot or self.taken))
        handle = Names(self.row().name_id).path()
        self.assertEqual((path, handle, 1024), copy.call_args.args[:3])
        self.assertEqual(handle, home.kernel.flushed[-1])

    def roles(self, volume, node):
        return node.kernel.roles(Names(self.cloud.row(volume.id).name_id))

    def move(self):
        """Attach the volume on the other node until it is complete."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)

    def lv(self, node, name):
        with self.cloud.on(node):
            return logical_volumes.find(name, 'volumes')

    def snapshot_lv(self, snapshot, node=None):
        return self.lv(node or self.a,
                       names_module.of_snapshot(snapshot.name))


@ddt.ddt
class MoveTestCase(SnapshotsTestCase):
    """The volume moves away from its snapshot."""

    def setUp(self):
        super().setUp()
        self.taken = self.snapshot()

    def assertKept(self):
        """Check that the old home has origin and snapshot, nothing else."""
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(
            ['_' + self.taken.name, 'volume-' + self.volume.id],
            self.a.lvm.names())
        self.assertEqual({}, self.a.kernel.of_volumes())
        self.assertEqual({}, self.a.target.exports)

    def test_moves(self):
        self.move()
        self.assertKept()
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)

    def test_deleted_afterwards(self):
        self.move()
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.b)

    def test_deleted_before_the_source_is_released(self):
        self.cloud.attach(self.volume, self.b)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIsNone(self.snapshot_lv(self.taken))
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_one_of_two(self):
        other = self.snapshot()
        self.move()
        self.delete_snapshot(other)
        self.minute()
        self.assertKept()

    def test_snapshot_of_an_older_version(self):
        self.taken.provider_id = None
        self.taken.save()
        self.move()
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.b)

    def test_snapshots_of_both_homes(self):
        self.move()
        there = self.snapshot()
        self.assertEqual(self.b.pool, there.provider_id)
        self.delete_snapshot(there)
        self.assertIsNone(self.snapshot_lv(there, self.b))
        self.assertKept()

    def test_moves_back(self):
        self.move()
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.cloud.watch(3)
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEqual(3, len(self.a.lvm.names()))
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.a)

    @ddt.data('stop', 'reboot', 'die')
    def test_deleted_while_its_node_is_down(self, how):
        self.move()
        getattr(self.a, how)()
        self.delete_snapshot(self.taken)
        self.minute()
        self.a.start()
        self.minute()
        self.assertIdle(self.b)

    def reconcile(self):
        """Return the lines of dmclone-reconcile on the snapshot's node."""
        with self.cloud.on(self.a):
            return [each.line(True) for each in leftovers.Leftovers(
                self.a.backend).run(self.context, remove=True)]

    def test_row_is_purged_while_the_node_is_down(self):
        """The row may as well be missing since the database was restored."""
        self.move()
        self.a.stop()
        self.delete_snapshot(self.taken)
        self.assertEqual([], self.reconcile())
        self.purge(self.taken)
        self.a.start()
        self.minute()
        lv = self.snapshot_lv(self.taken)
        line, = self.reconcile()
        self.assertIn('snapshot %s: kept, ' % lv.full_name, line)
        self.assertIn('run "lvchange --addtag dmclone.hidden %s" and restart'
                      % lv.full_name, line)
        with self.cloud.on(self.a):
            logical_volumes.tag(lv, 'dmclone.hidden')
        self.a.stop()
        self.a.start()
        self.minute()
        self.assertEqual([], self.reconcile())
        self.assertIdle(self.b)

    def test_start_of_the_old_home(self):
        self.move()
        self.a.reboot()
        with self.assertNoLogs('dmclone_driver', 'ERROR'):
            self.a.start()
            self.cloud.watch(3)
        self.assertKept()

    def each(self, act, before, taken, **fault):
        """Fail each step; check that everything is right afterwards."""
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        for step, volume, _error in self.each_step(act, before, **fault):
            for node in self.cloud.nodes.values():
                if fault.get('killed') or node.down:
                    node.stop()
                    node.start()
            self.cloud.watch(3)
            if snapshot_rows.existing(self.context, [taken[volume.id].id]):
                self.delete_snapshot(taken[volume.id])
            self.minute()
            left = {'_' + taken[volume.id].name, 'volume-' + volume.id}
            self.assertEqual(set(), left.intersection(self.a.lvm.names()),
                             step)
            self.assertEqual(['volume-' + self.cloud.row(
                volume.id).name_id], self.b.lvm.names(), step)

    @ddt.data(FAULTS[0], FAULTS[2])
    def test_each_step_of_the_release(self, fault):
        taken = {}

        def before(volume):
            taken[volume.id] = self.snapshot(volume)
            self.cloud.attach(volume, self.b)
            self.b.look()
            self.b.hydrate()

        self.each(lambda volume: self.cloud.watch(1), before, taken, **fault)

    @ddt.data(*FAULTS)
    def test_each_step_of_the_deletion(self, fault):
        taken = {}

        def before(volume):
            taken[volume.id] = self.snapshot(volume)
            self.cloud.attach(volume, self.b)
            self.cloud.watch(3)

        def act(volume):
            snapshot = self.read(taken[volume.id])
            with self.cloud.on(self.b):
                self.b.driver.delete_snapshot(snapshot)
            snapshot.destroy()
            self.minute()

        self.each(act, before, taken, **fault)

    def test_restored_database_has_the_volume_here(self):
        """The origin is the volume again, by the database."""
        before = self.row()
        self.move()
        self.cloud.detach(self.volume, self.b)
        row = self.row()
        row.update({'_name_id': None, 'host': before.host,
                    'provider_id': before.provider_id})
        row.save()
        self.read(self.taken).destroy()
        with self.cloud.on(self.a):
            self.a.parts.snapshots._delete(self.taken.id)
        self.cloud.watch(3)
        self.assertEqual(['volume-' + self.volume.id], self.a.lvm.names())

    def test_missing_row(self):
        """A snapshot is kept whose row a restored database does not have."""
        self.move()
        snapshot = self.read(self.taken)
        snapshot.provider_id = snapshot_rows.TO_DELETE + self.a.pool
        snapshot.save()
        self.minute()
        self.assertKept()

    def test_unmanaged_after_an_interrupted_deletion(self):
        """An operator has reset the state *deleting*, and unmanages it."""
        snapshot = self.read(self.taken)
        snapshot.provider_id = snapshot_rows.TO_DELETE + self.a.pool
        snapshot.save()
        with self.cloud.on(self.a):
            self.a.driver.unmanage_snapshot(snapshot)
        snapshot.destroy()
        self.minute()
        self.assertIsNotNone(self.snapshot_lv(self.taken))

    def test_leftovers(self):
        self.move()
        with self.cloud.on(self.a):
            self.assertEqual([], leftovers.Leftovers(self.a.backend).run(
                self.context, remove=True))
        self.assertKept()

    def test_manageable(self):
        self.move()
        with self.cloud.on(self.a):
            driver = self.a.driver
            driver.vg.lv_get_origin = lambda name: ''
            found = (driver.get_manageable_volumes(
                [], None, 10, 0, ['size'], ['asc']) +
                driver.get_manageable_snapshots(
                    [], None, 10, 0, ['size'], ['asc']))
            self.assertEqual([False, False], [
                entry['safe_to_manage'] for entry in found])
            self.assertRaisesRegex(
                cinder_exception.ManageExistingInvalidReference,
                'this driver uses', driver.manage_existing, self.volume,
                {'source-name': '_' + self.taken.name})

    def test_revert(self):
        """Cinder copies a temporary volume, which comes from the snapshot.

        There was no room, but volumes are deleted.
        """
        self.move()
        self.cloud.detach(self.volume, self.b)
        self.patch('dmclone_driver.reverts.Reverts._has_room',
                   return_value=False)
        copied = []
        service = mock.MagicMock(driver=self.b.driver)
        service._revert_to_snapshot_generic = functools.partial(
            manager.VolumeManager._revert_to_snapshot_generic, service)
        service._copy_volume_data = lambda context, source, target: (
            copied.append((source.name_id, self.roles(source, self.b),
                           target.name_id)))
        service.driver_delete_volume = self.b.driver.delete_volume
        with self.cloud.on(self.b):
            manager.VolumeManager._revert_to_snapshot(
                service, self.context, self.row(), self.read(self.taken))
        (source, roles, target), = copied
        self.assertIn('clone', roles)
        self.assertNotEqual(source, target)
        self.assertEqual(self.row().name_id, target)
        self.cloud.watch(3)
        self.assertKept()
        self.assertEqual([self.row().name], self.b.lvm.names())

    def test_revert_at_home_again(self):
        """The volume is back, but its logical volume is another one."""
        self.move()
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.a)
        self.assertCopiedBack('/dev/volumes/_' + self.taken.name)

    def test_deletion_with_snapshots_elsewhere(self):
        """As with cascade: the snapshots first."""
        self.move()
        self.cloud.detach(self.volume, self.b)
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.minute()
        self.assertEqual([], self.a.lvm.names() + self.b.lvm.names())


@ddt.ddt
class CopyTestCase(SnapshotsTestCase):
    """A volume is created from a snapshot."""

    def setUp(self):
        super().setUp()
        self.taken = self.snapshot()

    def assertComplete(self, volume, node):
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({'handle': 'linear'}, self.roles(volume, node))
        self.assertEqual({}, node.kernel.disks)
        self.assertEqual([], self.cloud.violations())
        for each in self.cloud.nodes.values():
            self.assertEqual({}, each.target.exports)

    def assertRemoved(self, *volumes):
        """Delete everything; check that nothing is left."""
        for volume in volumes:
            self.delete(volume)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.a)

    @ddt.data(('node1', 1), ('node2', 1), ('node1', 3), ('node2', 3))
    @ddt.unpack
    def test_usable_at_once(self, name, size):
        node = self.cloud.nodes[name]
        volume = self.copy(self.taken, node, size)
        self.assertEqual('clone', self.roles(volume, node)['handle'])
        path = Names(volume.name_id).path()
        self.assertTrue(node.kernel.write(path))
        with self.cloud.on(node):
            self.assertEqual(size * GIB, block.size(path))
        self.cloud.watch(3)
        self.assertComplete(volume, node)
        self.assertEqual(set(), self.snapshot_lv(self.taken).tags)
        self.assertEqual({logical_volumes.OPENED_TAG + volume.id},
                         self.lv(node, volume.name).tags)
        self.assertRemoved(volume)

    @ddt.data('node1', 'node2')
    def test_snapshot_is_deleted_meanwhile(self, name):
        volume = self.copy(self.taken, self.cloud.nodes[name])
        self.delete_snapshot(self.taken)
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.driver.get_volume_stats(refresh=True)
        self.assertIsNotNone(self.snapshot_lv(self.taken))
        self.cloud.watch(3)
        self.assertIsNone(self.snapshot_lv(self.taken))
        self.assertComplete(volume, self.cloud.nodes[name])
        self.delete(volume)
        self.assertIdle(self.a)

    def deleted_while_it_is_read(self, node):
        """Return a volume that reads the snapshot, which is deleted."""
        volume = self.copy(self.taken, node)
        self.delete_snapshot(self.taken)
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        return volume

    @ddt.data(('node1', False), ('node2', False), ('node2', True))
    @ddt.unpack
    def test_row_is_purged_while_it_is_read(self, name, rebooted):
        """The node itself knows that the user has deleted the snapshot."""
        node = self.cloud.nodes[name]
        volume = self.deleted_while_it_is_read(node)
        self.purge(self.taken)
        if rebooted:
            self.a.reboot()
            self.a.start()
        self.cloud.watch(4)
        self.assertIsNone(self.snapshot_lv(self.taken))
        self.assertComplete(volume, node)
        self.delete(volume)
        self.assertIdle(self.a)

    @ddt.data('node1', None)
    def test_restored_database_has_it_again(self, name):
        """Also the row of one that an older version has taken."""
        volume = self.deleted_while_it_is_read(self.b)
        with db_api.main_context_manager.writer.using(self.context):
            self.context.session.query(models.Snapshot).filter_by(
                id=self.taken.id).update({
                    'deleted': False, 'deleted_at': None,
                    'status': 'available',
                    'provider_id': name and self.a.pool})
        self.cloud.watch(4)
        self.assertEqual(set(), self.snapshot_lv(self.taken).tags)
        self.assertComplete(volume, self.b)
        self.assertRemoved(volume)

    @ddt.data('node1', 'node2')
    def test_origin_is_deleted_meanwhile(self, name):
        node = self.cloud.nodes[name]
        volume = self.copy(self.taken, node)
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.assertTrue(self.lv(self.a, 'volume-' + self.volume.id).kept)
        self.cloud.watch(4)
        self.assertComplete(volume, node)
        self.delete(volume)
        self.assertEqual([], self.a.lvm.names())

    def test_origin_has_a_snapshot_that_is_not_deleted(self):
        volume = self.copy(self.taken, self.b)
        other = self.snapshot()
        with self.cloud.on(self.a):
            self.assertRaises(cinder_exception.VolumeIsBusy,
                              self.a.driver.delete_volume, self.row())
        self.delete_snapshot(other)
        self.assertRemoved(volume)

    def test_of_a_volume_that_has_moved(self):
        self.move()
        volume = self.copy(self.taken, self.b, 2)
        self.cloud.watch(3)
        self.assertComplete(volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.delete(volume)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.b)

    def test_several(self):
        volumes = [self.copy(self.taken, node)
                   for node in (self.a, self.b, self.a)]
        self.assertEqual(3, len(self.snapshot_lv(self.taken).readers))
        self.delete(volumes.pop())
        self.cloud.watch(3)
        self.assertComplete(volumes[0], self.a)
        self.assertComplete(volumes[1], self.b)
        self.assertRemoved(*volumes)

    @ddt.data(*((name, down) for name in ('node1', 'node2')
                for down in (('node1',), ('node2',), ('node1', 'node2'))))
    @ddt.unpack
    def test_reboot(self, name, down):
        node = self.cloud.nodes[name]
        volume = self.copy(self.taken, node)
        for each in down:
            self.cloud.nodes[each].reboot()
        for each in down:
            self.cloud.nodes[each].start()
        self.cloud.watch(4)
        self.assertComplete(volume, node)
        self.assertRemoved(volume)

    def test_attached_on_a_third_node_while_it_hydrates(self):
        volume = self.copy(self.taken, self.b)
        c = self.cloud.add('node3')
        self.cloud.attach(volume, c)
        self.cloud.watch(5)
        self.assertComplete(volume, c)
        self.cloud.detach(volume, c)
        self.assertRemoved(volume)

    def test_snapshot_while_it_hydrates(self):
        volume = self.copy(self.taken, self.b)
        other = self.snapshot(volume)
        self.cloud.watch(3)
        self.delete_snapshot(other)
        self.minute()
        self.assertComplete(volume, self.b)
        self.assertRemoved(volume)

    def test_node_is_silent(self):
        self.a.stop()
        volume = self.new(self.b)
        error = self.assertRaises(exception.SnapshotNotServed, self.fill,
                                  volume, self.b, self.taken)
        self.assertIn('did not answer', error.msg)
        self.assertEqual([], self.b.lvm.names())
        self.delete(volume)
        self.a.start()
        self.cloud.watch(2)
        self.assertRemoved()

    def test_no_room(self):
        volume = self.new(self.b, 1000)
        self.assertRaises(processutils.ProcessExecutionError, self.fill,
                          volume, self.b, self.taken)
        self.delete(volume)
        self.cloud.watch(2)
        self.assertEqual([], self.b.clones())
        self.assertRemoved()

    def test_snapshot_is_gone(self):
        with self.cloud.on(self.a):
            self.a.parts.snapshots._delete(self.taken.id)
        volume = self.new(self.b)
        error = self.assertRaises(exception.SnapshotNotServed, self.fill,
                                  volume, self.b, self.taken)
        self.assertIn('is not on ' + self.a.host, error.msg)
        self.delete(volume)
        self.assertRemoved()

    def test_partly_cleared(self):
        """After an interrupted deletion and reset-state it is not used."""
        with mock.patch('dmclone_driver.node.deletion._clear',
                        side_effect=OSError('interrupted')):
            self.assertRaises(OSError, self.delete_snapshot, self.taken)
        with self.cloud.on(self.a):
            self.assertRaises(exception.SnapshotUnavailable,
                              self.a.driver.revert_to_snapshot, self.context,
                              self.row(), self.read(self.taken))
        volume = self.new(self.b)
        self.assertRaises(exception.SnapshotNotServed, self.fill, volume,
                          self.b, self.taken)
        self.delete(volume)
        self.delete_snapshot(self.taken)
        self.assertEqual([self.volume.name], self.a.lvm.names())

    def test_revert_while_it_is_read(self):
        self.copy(self.taken, self.b)
        self.assertCopiedBack('/dev/volumes/_' + self.taken.name)
        self.assertIsNotNone(self.snapshot_lv(self.taken))

    def test_revert_while_another_one_is_read(self):
        """LVM could not deactivate the volume, after the merge."""
        other = self.snapshot()
        self.copy(self.taken, self.b)
        self.assertCopiedBack('/dev/volumes/_' + other.name, other)
        self.assertIsNotNone(self.snapshot_lv(other))

    def test_revert_while_one_of_cinders_driver_is_read(self):
        """A copy would overflow it; it was managed."""
        found = self.a.lvm.volumes['/dev/volumes/_' + self.taken.name]
        found.update(store=found['size'], chunk=4096)
        self.copy(self.taken, self.b)
        self.leave_no_room()
        with self.cloud.on(self.a):
            self.assertRaises(exception.SnapshotWouldOverflow,
                              self.a.driver.revert_to_snapshot, self.context,
                              self.row(), self.read(self.taken))

    def test_killed_before_it_is_a_clone(self):
        """The empty logical volume gets no handle at the start."""
        volume = self.new(self.b)
        with mock.patch('dmclone_driver.move.builder.Builder.'
                        '_create_metadata', side_effect=steps.Killed):
            self.assertRaises(steps.Killed, self.fill, volume, self.b,
                              self.taken)
        self.b.stop()
        self.b.start()
        self.cloud.watch(2)
        self.assertEqual({}, self.roles(volume, self.b))
        self.assertRemoved(volume)

    def test_row_is_a_copy_of_another(self):
        """A clone for an image does not inherit a prepared move."""
        volume = self.new(self.a)
        volume.update({'replication_driver_data': self.volume.id,
                       'provider_location': 'there'})
        volume.save()
        with mock.patch.object(self.a.driver, '_model_update',
                               return_value={}):
            row = self.copy_to(volume)
        self.assertIsNone(row.replication_driver_data)
        self.assertIsNone(row.provider_location)

    def copy_to(self, volume):
        self.fill(volume, self.a, self.taken)
        return self.cloud.row(volume.id)

    @ddt.data(*((name, fault) for name in ('node1', 'node2')
                for fault in FAULTS))
    @ddt.unpack
    def test_each_step(self, name, fault):
        """Each step of the creation fails; the volume is deleted then."""
        node, copies = self.cloud.nodes[name], {}

        def before(volume):
            # That of the attempt without a failure is still there.
            if len(copies) == 1:
                self.delete(*copies.values())
            copies[volume.id] = self.new(node)

        def act(volume):
            self.fill(self.cloud.row(copies[volume.id].id), node, self.taken)

        for step, volume, error in self.each_step(act, before, **fault):
            for each in self.cloud.nodes.values():
                if fault.get('killed') or each.down:
                    each.stop()
                    each.start()
            self.cloud.watch(3)
            copy = self.cloud.row(copies[volume.id].id)
            if error is None:
                self.assertComplete(copy, node)
            self.delete(copy)
            self.cloud.watch(3)
            self.assertEqual([], self.cloud.placeholders(), step)
            self.assertEqual(set(), self.snapshot_lv(self.taken).tags, step)
            self.assertEqual([], self.b.lvm.names(), step)
            self.assertEqual([], self.a.clones(), step)
        self.assertRemoved()

    @ddt.data(*((name, fault) for name in ('node1', 'node2')
                for fault in FAULTS))
    @ddt.unpack
    def test_each_step_of_the_completion(self, name, fault):
        node, copies = self.cloud.nodes[name], {}

        def before(volume):
            copies[volume.id] = self.copy(self.taken, node)

        for step, volume, _error in self.each_step(
                lambda volume: self.cloud.watch(1), before, **fault):
            for each in self.cloud.nodes.values():
                if fault.get('killed') or each.down:
                    each.stop()
                    each.start()
            self.cloud.watch(3)
            self.assertComplete(copies[volume.id], node)
            self.assertEqual(set(), self.snapshot_lv(self.taken).tags, step)
            self.delete(copies[volume.id])
        self.assertRemoved()

    def test_forgetful_database(self):
        """What a volume may read is kept if the database forgets it."""
        volume = self.copy(self.taken, self.b)
        for row_id in (volume.id, volume.name_id):
            records.destroy(self.context, row_id)
        self.a.reboot()
        self.a.start()
        self.cloud.watch(2)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIsNotNone(self.snapshot_lv(self.taken))
        self.assertIn(volume.name, self.b.lvm.names())

    def test_leftovers(self):
        """Devices of a reader that the database does not know are kept."""
        volume = self.copy(self.taken, self.b)
        for row_id in (volume.id, volume.name_id):
            records.destroy(self.context, row_id)
        devices = set(self.a.kernel.devices)
        with self.cloud.on(self.a):
            found = leftovers.Leftovers(self.a.backend).run(
                self.context, remove=True)
        self.assertEqual(devices, set(self.a.kernel.devices))
        self.assertIn('a volume may read snapshot', found[0].line())


class CascadeTestCase(SnapshotsTestCase):

    def delete(self, volume):
        """Delete a volume with its snapshots, as with cascade."""
        for each in objects.SnapshotList.get_all_for_volume(
                self.context, volume.id):
            self.delete_snapshot(each)
        super().delete(volume)


@ddt.ddt
class MergeTestCase(CascadeTestCase):
    """LVM merges a snapshot into its volume, and it is taken again."""

    def revert(self, volume):
        snapshot, = objects.SnapshotList.get_all_for_volume(self.context,
                                                            volume.id)
        with self.cloud.on(self.a):
            self.a.driver.revert_to_snapshot(
                self.context, self.cloud.row(volume.id), snapshot)

    def assertThere(self, volume, step=None):
        snapshot, = objects.SnapshotList.get_all_for_volume(self.context,
                                                            volume.id)
        self.assertIsNotNone(self.snapshot_lv(snapshot), step)
        self.assertEqual(set(), self.lv(self.a, volume.name).tags, step)
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.a),
                         step)

    def test_merged(self):
        self.snapshot()
        self.revert(self.volume)
        self.assertThere(self.volume)

    @ddt.data({'killed': True}, {'killed': True, 'power': True})
    def test_each_step(self, fault):
        """The next start of the service takes the snapshot again."""
        for step, volume, error in self.each_step(
                self.revert, self.snapshot, **fault):
            if error is not None:
                self.a.stop()
                if fault.get('power'):
                    self.a.reboot()
                self.a.start()
                self.cloud.settle()
            self.assertThere(volume, step)

    def test_snapshot_that_cannot_be_merged(self):
        """A later start does not take it again."""
        self.snapshot()
        with mock.patch.object(self.a.driver.vg, 'revert',
                               side_effect=OSError):
            self.assertRaises(OSError, self.revert, self.volume)
        self.assertThere(self.volume)


@ddt.ddt
class HydratingTestCase(CascadeTestCase):
    """Snapshots of a volume that hydrates."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.b)
        self.taken = self.snapshot()

    def device(self, snapshot, node=None):
        return (node or self.b).kernel.devices.get(
            Names(snapshot.id).of(SNAPSHOT))

    def handle(self, node=None):
        """Return the kinds of the handle's table."""
        return self._kinds(HANDLE, node or self.b)

    def origin(self):
        return self._kinds(ORIGIN, self.b)

    def _kinds(self, role, node):
        device = node.kernel.devices.get(Names(self.row().name_id).of(role))
        return device and [segment.kind for segment in device.table]

    def assertGone(self, *snapshots):
        """Check that the volume is as if it had never had a snapshot."""
        self.minute()
        self.assertEqual(['linear'], self.handle())
        self.assertIsNone(self.origin())
        for each in snapshots:
            self.assertIsNone(self.device(each))
            self.assertIsNone(self.snapshot_lv(each, self.b))
        self.cloud.detach(self.volume, self.b)
        self.assertIdle(self.b)

    def test_it_is_taken_above_the_clone(self):
        self.assertEqual(self.b.pool, self.taken.provider_id)
        self.assertEqual(['snapshot-origin'], self.handle())
        self.assertTrue(self.device(self.taken).read_only)
        self.assertFalse(self.device(self.taken).suspended)
        self.assertEqual('clone', self.b.kernel.get(
            Names(self.taken.id).path(SNAPSHOT)).kinds)

    def test_completion(self):
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(['snapshot-origin'], self.handle())
        self.assertEqual(['linear'], self.origin())
        self.delete_snapshot(self.taken)
        self.assertGone(self.taken)

    def test_deleted_while_it_hydrates(self):
        other = self.snapshot()
        self.delete_snapshot(self.taken)
        self.assertEqual(['snapshot-origin'], self.handle())
        self.delete_snapshot(other)
        self.cloud.watch(1, hydrate=False)
        self.assertIsNone(self.origin())
        self.cloud.watch(3)
        self.assertGone(self.taken, other)

    def test_extended(self):
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.row(), 3)
            self.assertEqual(3 * GIB, block.size(
                Names(self.row().name_id).path()))
            self.assertEqual(GIB, block.size(
                Names(self.taken.id).path(SNAPSHOT)))
        self.cloud.watch(3)
        self.assertEqual(['linear'], self.origin())
        self.delete_snapshot(self.taken)
        self.assertGone(self.taken)

    @ddt.data(True, False)
    def test_reboot(self, hydrated):
        if hydrated:
            self.cloud.watch(3)
        self.b.reboot()
        self.b.start()
        self.assertEqual(['snapshot-origin'], self.handle())
        self.assertIsNotNone(self.device(self.taken))
        self.cloud.watch(3)
        self.delete_snapshot(self.taken)
        self.assertGone(self.taken)

    def test_it_was_made_one_of_lvm(self):
        """For Cinder's LVM driver; then the volume came back."""
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)
        self.b.reboot()
        self.b.lvm.convert(self.snapshot_lv(self.taken, self.b).path,
                           '/dev/volumes/' + Names(self.row().name_id).volume)
        self.b.start()
        self.minute()
        self.assertEqual(['linear'], self.handle())
        self.assertIsNone(self.device(self.taken))
        other = self.snapshot()
        for each in self.taken, other:
            lv = self.snapshot_lv(each, self.b)
            self.assertEqual(Names(self.row().name_id).volume, lv.origin)
            with self.cloud.on(self.b):
                self.assertEqual(lv.path, self.b.parts.snapshots.path(lv))
            self.delete_snapshot(each)
        self.assertGone(self.taken, other)

    def test_deleted_on_a_source_after_a_reboot(self):
        """The handle of a source stays read-only."""
        self.cloud.watch(3)
        names = Names(self.row().name_id)
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.b.reboot()
        self.b.start()
        self.cloud.watch(1, hydrate=False)
        self.delete_snapshot(self.taken)
        with self.cloud.on(self.b):
            self.b.driver.get_volume_stats(refresh=True)
        self.cloud.watch(1, hydrate=False)
        handle = self.b.kernel.devices[names.of(HANDLE)]
        self.assertEqual('linear', handle.kinds)
        self.assertTrue(handle.read_only)
        self.cloud.watch(3)
        self.assertIdle(self.a)

    def test_clone_is_not_rebuilt(self):
        """Its logical volume is neither read nor written in its place."""
        copy = self.copy(self.taken, self.a)
        names = Names(self.row().name_id)
        self.b.reboot()
        path = '/dev/volumes/' + names.metadata
        metadata = self.b.lvm.volumes.pop(path)
        self.b.start()
        self.cloud.watch(2, hydrate=False)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.b.lvm.volumes[path] = metadata
        self.cloud.watch(1, hydrate=False)
        self.assertEqual([names.path('clone')], self.b.kernel.devices[
            names.of(ORIGIN)].table[0].paths())
        self.cloud.watch(4)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.a))
        self.delete(copy)
        self.delete_snapshot(self.taken)
        self.assertGone(self.taken)

    def test_source_that_is_not_cleared_up_is_not_kept_yet(self):
        """The end of the clean-up flushes the handle."""
        c = self.cloud.add('node3')
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, c)
        with mock.patch.object(self.b.parts.teardown, 'remove_devices',
                               side_effect=OSError):
            self.cloud.watch(4)
        self.cloud.watch(5)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({}, self.b.kernel.disks)
        self.cloud.detach(self.volume, c)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(c)

    def test_moves_on_and_completes(self):
        """The snapshot stays on the node where it was taken."""
        c = self.cloud.add('node3')
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, c)
        self.cloud.watch(5)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(['linear'], self.handle(c))
        self.assertIsNotNone(self.snapshot_lv(self.taken, self.b))
        self.b.reboot()
        self.b.start()
        copy = self.copy(self.taken, self.a)
        self.cloud.watch(3)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.a))
        self.delete(copy)
        self.cloud.detach(self.volume, c)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(c)

    @ddt.data('node1', 'node2')
    def test_volume_from_it(self, name):
        node = self.cloud.nodes[name]
        copy = self.copy(self.taken, node, 2)
        self.assertEqual('clone', self.roles(copy, node)['handle'])
        self.delete_snapshot(self.taken)
        self.assertIsNotNone(self.snapshot_lv(self.taken, self.b))
        self.cloud.watch(5)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, node))
        self.delete(copy)
        self.assertGone(self.taken)

    def test_source_does_not_answer(self):
        """Nothing is left of a snapshot that cannot be taken."""
        device = self.b.kernel.get(Names(self.row().name_id).path())
        self.b.kernel.get(Names(self.row().name_id).path(
            'source')).suspended = True
        device.clone.waiting = 1
        names = self.b.lvm.names()
        self.assertRaises(exception.RequestsWait, self.snapshot)
        self.assertEqual(names, self.b.lvm.names())
        self.b.kernel.get(Names(self.row().name_id).path(
            'source')).suspended = False

    def test_gate_is_closed(self):
        """The old home may not be sealed, so the data may still change."""
        other = self.a.create()
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.activate'):
            self.cloud.attach(other, self.b)
        self.assertRaises(exception.RequestsWait, self.snapshot, other)
        self.cloud.watch(1, hydrate=False)
        self.snapshot(other)

    def test_no_room(self):
        self.b.lvm.groups['volumes'] = 2 * GIB
        names = self.b.lvm.names()
        self.assertRaises(lvm.LVMError, self.snapshot)
        self.assertEqual(names, self.b.lvm.names())

    def test_unmanage(self):
        with self.cloud.on(self.b):
            self.assertRaisesRegex(
                cinder_exception.SnapshotIsBusy, 'only this driver',
                self.b.driver.unmanage_snapshot, self.taken)

    def test_manageable(self):
        with self.cloud.on(self.b):
            found = self.b.driver.get_manageable_volumes(
                [], None, 10, 0, ['size'], ['asc'])
        self.assertEqual({False}, {each['safe_to_manage']
                                   for each in found})

    def test_revert(self):
        self.assertCopiedBack(Names(self.taken.id).path(SNAPSHOT))

    def test_volume_is_deleted_with_its_snapshots(self):
        """As with cascade."""
        self.cloud.detach(self.volume, self.b)
        self.delete_snapshot(self.taken)
        self.delete(self.volume)
        self.cloud.watch(3)
        self.minute()
        self.assertEqual([], self.a.lvm.names() + self.b.lvm.names())
        self.assertEqual({}, self.b.kernel.of_volumes())

    def test_is_not_deleted_before_its_snapshots(self):
        self.cloud.detach(self.volume, self.b)
        with self.cloud.on(self.b):
            self.assertRaises(cinder_exception.VolumeIsBusy,
                              self.b.driver.delete_volume, self.row())

    @ddt.data(*FAULTS, {'killed': True, 'power': True})
    def test_each_step(self, fault):
        """Each step of taking it fails; nothing is left."""
        taken = {}

        def act(volume):
            taken[volume.id] = self.snapshot(volume)

        for step, volume, error in self.each_step(
                act, lambda volume: self.cloud.attach(volume, self.b),
                **fault):
            self._after(step, volume, error, taken, fault)

    def _after(self, step, volume, error, taken, fault):
        if fault.get('power'):
            self.b.reboot()
        if fault.get('killed'):
            self.b.stop()
            self.b.start()
        self.cloud.watch(3)
        self.assertEqual([], [row.id for row in self.cloud.placeholders()
                              if row.display_name.endswith(volume.id)], step)
        for snapshot in objects.SnapshotList.get_all_for_volume(
                self.context, volume.id):
            self.delete_snapshot(snapshot)
        self.minute()
        name_id = self.cloud.row(volume.id).name_id
        self.assertEqual(['linear'], [
            segment.kind for segment in
            self.b.kernel.devices[Names(name_id).of(HANDLE)].table], step)
        # Those of this test's own volume are left.
        self.assertEqual(1, len([name for name in self.b.lvm.names()
                                 if name.startswith('_')]), step)
        self.assertEqual(set(), {
            tag for tag in self.lv(self.b, 'volume-' + name_id).tags
            if not tag.startswith(logical_volumes.OPENED_TAG)}, step)

    @ddt.data(*FAULTS)
    def test_each_step_of_the_completion(self, fault):
        def before(volume):
            self.cloud.attach(volume, self.b)
            self.snapshot(volume)

        for step, volume, error in self.each_step(
                lambda volume: self.cloud.watch(1), before, **fault):
            self._after(step, volume, error, {}, fault)

    @ddt.data(*FAULTS)
    def test_each_step_of_the_deletion(self, fault):
        taken = {}

        def before(volume):
            self.cloud.attach(volume, self.b)
            taken[volume.id] = self.snapshot(volume)

        def act(volume):
            self.delete_snapshot(taken[volume.id])
            self.cloud.watch(1, hydrate=False)

        for step, volume, error in self.each_step(act, before, **fault):
            self._after(step, volume, error, {}, fault)


@ddt.ddt
class PreparedTestCase(SnapshotsTestCase):
    """Snapshots and clones while a live migration is prepared."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)

    def test_snapshot_stays_at_the_old_home(self):
        taken = self.snapshot()
        self.assertEqual(self.a.pool, taken.provider_id)
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertIsNotNone(self.snapshot_lv(taken, self.a))

    @ddt.data((False, exception.NotHere), (True, exception.ReadLagsBehind))
    @ddt.unpack
    def test_guest_writes_meanwhile(self, lags, error):
        """A snapshot that lacks acknowledged writes is not kept.

        :param lags: whether this node reads an old copy of the database
        """
        placeholder, = self.cloud.placeholders()
        take = logical_volumes.take_snapshot

        def write_before(*args):
            with self.cloud.on(self.b):
                records.switch_over(self.context, self.volume.id,
                                    placeholder.id)
            if lags:
                self.patch('cinder.objects.Volume.refresh')
            take(*args)

        self.patch('dmclone_driver.node.logical_volumes.take_snapshot',
                   side_effect=write_before)
        names = self.a.lvm.names()
        self.assertRaises(error, self.snapshot)
        self.assertEqual(names, self.a.lvm.names())


class ClonesTestCase(SnapshotsTestCase):

    def clone(self, volume=None, size=1, as_row=False):
        volume = self.cloud.row((volume or self.volume).id)
        node = self.cloud.by_host[volume.host.partition('#')[0]]
        if as_row:
            volume = db_api.volume_get(self.context, volume.id)
        copy = self.new(node, size)
        with self.cloud.on(node):
            copy.update(node.driver.create_cloned_volume(copy, volume))
        copy.status = 'available'
        copy.save()
        return self.cloud.row(copy.id)

    def assertClean(self, node, *copies):
        for copy in copies:
            self.assertEqual({'handle': 'linear'}, self.roles(copy, node))
            self.delete(copy)
        self.minute()
        self.assertIdle(node)


@ddt.ddt
class CloneTestCase(ClonesTestCase):
    """Clones of volumes, which can be used at once."""

    @ddt.data(1, 3)
    def test_usable_at_once(self, size):
        copy = self.clone(size=size)
        self.assertEqual('clone', self.roles(copy, self.a)['handle'])
        self.assertTrue(self.a.kernel.write(Names(copy.name_id).path()))
        with self.cloud.on(self.a):
            self.assertEqual(size * GIB,
                             block.size(Names(copy.name_id).path()))
        self.cloud.watch(3)
        self.assertClean(self.a, copy)

    def test_of_a_row(self):
        """2025.1 passes the database's row of an image's volume."""
        copy = self.clone(as_row=True)
        self.cloud.watch(3)
        self.assertClean(self.a, copy)

    def test_of_a_volume_that_hydrates(self):
        self.cloud.attach(self.volume, self.b)
        copy = self.clone()
        self.cloud.watch(5)
        self.cloud.detach(self.volume, self.b)
        self.assertClean(self.b, copy)

    def test_of_a_prepared_volume(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        copy = self.clone()
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(5)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.a))
        self.cloud.detach(self.volume, self.b)
        self.delete(copy)
        self.minute()
        self.assertIdle(self.b)

    def test_of_a_clone(self):
        first = self.clone()
        second = self.clone(first)
        self.cloud.watch(6)
        self.assertClean(self.a, first, second)

    def test_extended_at_once(self):
        """Cinder extends a volume right after it was cloned.

        It does so for the first volume of an image that is cached.
        """
        copy = self.clone()
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 3)
        self.cloud.watch(3)
        self.assertClean(self.a, copy)

    def test_origin_with_a_snapshot_is_extended_later(self):
        taken = self.snapshot()
        copy = self.clone()
        with self.cloud.on(self.a):
            self.assertRaises(exception.ClonesRead,
                              self.a.driver.extend_volume, self.row(), 3)
        self.cloud.watch(3)
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 3)
        self.delete_snapshot(taken)
        self.assertClean(self.a, copy)

    def test_origin_is_deleted_meanwhile(self):
        copy = self.clone()
        self.delete(self.volume)
        self.cloud.watch(5)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.a))
        self.delete(copy)
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual({}, self.a.kernel.of_volumes())

    def test_origin_is_unmanaged_meanwhile(self):
        copy = self.clone()
        with self.cloud.on(self.a):
            self.assertRaises(exception.ClonesRead,
                              self.a.driver.unmanage, self.row())
        self.cloud.watch(3)
        self.assertClean(self.a, copy)

    def test_origin_moves_meanwhile(self):
        copy = self.clone()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(5)
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.a))
        self.cloud.detach(self.volume, self.b)
        self.delete(copy)
        self.minute()
        self.assertIdle(self.b)

    @ddt.data(*FAULTS, {'killed': True, 'power': True})
    def test_each_step(self, fault):
        """Each step fails; Cinder then deletes the clone."""
        copies = {}

        def act(volume):
            copies[volume.id] = None
            copy = self.new(self.a)
            copies[volume.id] = copy.id
            with self.cloud.on(self.a):
                self.a.driver.create_cloned_volume(copy, volume)

        for step, volume, _error in self.each_step(act, **fault):
            self._repair(fault)
            self.delete(self.cloud.row(copies[volume.id]))
            self._repair({})
            self.assertEqual([], [name for name in self.a.lvm.names()
                                  if name.startswith('_')], step)
            self.assertEqual([], self.cloud.placeholders(), step)
            self.assertEqual(set(), self.lv(self.a, volume.name).tags, step)

    @ddt.data(*FAULTS)
    def test_each_step_of_the_completion(self, fault):
        copies = {}

        def before(volume):
            copies[volume.id] = self.clone(volume)

        for step, volume, _error in self.each_step(
                lambda volume: self.cloud.watch(1), before, **fault):
            self._repair(fault)
            copy = copies[volume.id]
            self.assertEqual({'handle': 'linear'},
                             self.roles(copy, self.a), step)
            self.delete(copy)
            self._repair({})
            self.assertEqual([], [name for name in self.a.lvm.names()
                                  if name.startswith('_')], step)
            self.assertEqual(set(), self.lv(self.a, volume.name).tags, step)

    def _repair(self, fault):
        if fault.get('power'):
            self.a.reboot()
        if fault.get('killed'):
            self.a.stop()
            self.a.start()
        self.cloud.watch(3)
        self.minute()


class ReadAndDeletedBase(ClonesTestCase):

    def prepare(self, volume=None):
        """Have a volume hydrate on the second node; return a clone of it."""
        volume = volume or self.volume
        self.cloud.attach(volume, self.b)
        self.cloud.detach(volume, self.b)
        return self.clone(volume)

    def minutes(self):
        for _number in range(3):
            self.cloud.watch(2)
            self.minute()

    def complete_one(self, waiting):
        """Complete one of some clones, which hydrate in turn."""
        for _number in range(20):
            self.cloud.watch(1, hydrate=False)
            for names in waiting:
                clone = names.of(names_module.CLONE)
                if self.b.kernel.devices[clone].own.hydration:
                    self.b.kernel.hydrate(clone)
                    return names
        self.fail('none hydrates')

    def assertNothing(self):
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.a.lvm.names() + self.b.lvm.names())
        for node in (self.a, self.b):
            self.assertEqual({}, node.kernel.of_volumes())
            self.assertEqual({}, node.target.exports)

    def assertConverged(self, copy, step=None):
        self.minutes()
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.b), step)
        self.assertEqual([copy.name], self.b.lvm.names(), step)
        self.assertEqual([], self.cloud.placeholders(), step)


@ddt.ddt
class ReadAndDeletedTestCase(ReadAndDeletedBase):
    """A volume that hydrates is deleted while a clone of it is copied."""

    def test_deferred(self):
        copy, names = self.prepare(), Names(self.row().name_id)
        self.delete(self.volume)
        self.assertIn('clone', self.b.kernel.roles(names))
        self.assertIn('clone', self.roles(copy, self.b))
        row, = [row for row in self.cloud.placeholders()
                if row.name_id == names.name_id]
        self.assertEqual(State.RELEASED, placeholders.state_of(row))
        self.assertConverged(copy)
        self.delete(copy)
        self.assertNothing()

    @ddt.data('kill', 'power')
    def test_node_goes_down(self, how):
        copy = self.prepare()
        self.delete(self.volume)
        if how == 'power':
            self.b.reboot()
        else:
            self.b.stop()
        self.b.start()
        self.assertConverged(copy)
        self.delete(copy)
        self.assertNothing()

    def test_clone_is_deleted_first(self):
        copy = self.prepare()
        self.delete(self.volume)
        self.cloud.watch(1, hydrate=False)
        self.delete(copy)
        self.cloud.watch(3, hydrate=False)
        self.assertNothing()

    @ddt.data((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 1, 0))
    def test_chain(self, order):
        """As Tempest's test_volume_dependency does."""
        first = self.clone()
        second = self.clone(first)
        volumes = [self.volume, first, second]
        for number in order:
            self.delete(volumes[number])
        self.cloud.watch(2, hydrate=False)
        self.assertNothing()

    def test_last_of_a_chain(self):
        first = self.prepare()
        second = self.clone(first)
        self.delete(self.volume)
        self.delete(first)
        self.minutes()
        self.assertConverged(second)

    def test_deletion_is_withdrawn(self):
        """An operator resets the state of a row that Cinder did not delete."""
        copy, names = self.prepare(), Names(self.row().name_id)
        with self.cloud.on(self.b):
            self.b.driver.delete_volume(self.row())
        # A group's rows have the status "deleted" before they are deleted.
        for status, left in (('deleting', True), ('deleted', True),
                             ('available', False)):
            row = self.row()
            row.status = status
            row.save()
            self.minutes()
            self.assertEqual(left, any(
                row.name_id == names.name_id
                for row in self.cloud.placeholders()), status)
        self.assertIsNotNone(self.lv(self.b, names.volume))
        self.assertFalse(self.lv(self.b, names.volume).kept)
        self.cloud.attach(self.volume, self.a)
        self.minutes()
        self.cloud.detach(self.volume, self.a)
        self.delete(copy)
        self.delete(self.volume)
        self.assertNothing()

    def begin(self, *statuses):
        """Delete the volume; Cinder fails then, and its state is reset.

        :param statuses: which it has, one after the other
        """
        with self.cloud.on(self.b):
            self.b.driver.delete_volume(self.row())
        self.reset(*statuses)

    def reset(self, *statuses):
        for status in statuses:
            row = self.row()
            row.status = status
            row.save()

    def owners(self, names):
        """Return the states of placeholders with a logical volume."""
        return [placeholders.state_of(row)
                for row in self.cloud.placeholders()
                if row.name_id == names.name_id]

    def test_moves_on_before_it_is_withdrawn(self):
        """Else a source would be deleted when the volume is."""
        copy, names = self.prepare(), Names(self.row().name_id)
        self.begin('available')
        self.cloud.attach(self.volume, self.a)
        self.assertEqual([State.SWITCHED], self.owners(names))
        self.cloud.detach(self.volume, self.a)
        there = self.clone(self.row())
        self.delete(copy)
        self.delete(self.volume)
        self.cloud.watch(8, hydrate=False)
        self.assertIsNotNone(self.lv(self.b, names.volume))
        self.minutes()
        self.assertEqual({'handle': 'linear'}, self.roles(there, self.a))
        self.delete(there)
        self.assertNothing()

    def test_reverted_before_it_is_withdrawn(self):
        self.prepare()
        names = Names(self.row().name_id)
        self.begin('available')
        taken = self.snapshot()
        with self.cloud.on(self.b):
            self.b.driver.revert_to_snapshot(self.context, self.row(),
                                             self.read(taken))
        self.assertEqual([State.RELEASED], self.owners(names))

    def test_unmanaged_before_it_is_withdrawn(self):
        copy, names = self.prepare(), Names(self.row().name_id)
        self.begin('deleting')
        self.minutes()
        self.assertEqual([State.RELEASED], self.owners(names))
        self.reset('available')
        with self.cloud.on(self.b):
            self.b.driver.unmanage(self.row())
        self.row().destroy()
        self.minutes()
        self.assertIsNotNone(self.lv(self.b, names.volume))
        self.assertFalse(self.lv(self.b, names.volume).kept)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.b))

    def test_reset_after_a_power_cut(self):
        self.prepare()
        path = Names(self.row().name_id).path()
        self.begin('deleting')
        self.b.reboot()
        self.b.start()
        self.reset('available')
        self.cloud.watch(2)
        device = self.b.kernel.get(path)
        self.assertFalse(device.sealed or device.read_only)

    def test_answer_of_the_database_is_lost(self):
        self.prepare()
        names = Names(self.row().name_id)
        begin = deletion_records.begin

        def lost(*args):
            begin(*args)
            raise cinder_exception.VolumeDriverException('lost')
        with mock.patch('dmclone_driver.move.deletion_records.begin', lost):
            self.assertRaises(cinder_exception.VolumeDriverException,
                              self.begin)
        self.assertEqual([State.RELEASED], self.owners(names))
        self.reset('available')
        self.cloud.watch(1)
        self.assertEqual([], self.owners(names))

    def test_waits_as_no_failure_does(self):
        """The copy may take hours."""
        self.prepare()
        self.delete(self.volume)
        self.cloud.watch(5, hydrate=False)
        self.assertEqual([], self.b.left('delete source'))
        self.assertEqual(1, len(self.b.left('watch deleted volume')))
        with self.cloud.on(self.b):
            found = self.b.parts.reporter.report(self.context)
        self.assertIn('needed', [each.state for each in found.sources])
        self.assertNotIn('released', [each.state for each in found.sources])

    def test_withdrawn_and_repeated(self):
        copy = self.prepare()
        for status in ('deleting', 'available', 'deleting'):
            row = self.row()
            row.status = status
            row.save()
            if status == 'deleting':
                with self.cloud.on(self.b):
                    self.b.driver.delete_volume(self.row())
            self.cloud.watch(5, hydrate=False)
        self.row().destroy()
        self.assertConverged(copy)

    def test_repeated_in_the_moment_in_which_it_is_withdrawn(self):
        """What the repetition has noted is not discarded."""
        copy = self.prepare()
        row_id = placeholders.id_of_deleted(self.row().name_id)
        self.begin('available')
        real = self.b.backend.lock

        @contextlib.contextmanager
        def lock(volume_id, timeout=None):
            with real(volume_id, timeout):
                yield
            if self.cloud.row(row_id) is None:
                self.b.backend.lock = real
                self.begin('deleting')

        self.b.backend.lock = lock
        self.cloud.watch(1, hydrate=False)
        self.assertEqual(real, self.b.backend.lock)
        self.assertIsNotNone(self.cloud.row(row_id))
        self.assertEqual(1, len(self.b.left('watch deleted volume')))
        self.row().destroy()
        self.assertConverged(copy)

    def test_kept_by_an_older_version(self):
        """It takes a deletion that was not withdrawn for an old source.

        A start gives the volume its handle back, as admin/upgrade says.
        """
        copy, names = self.prepare(), Names(self.row().name_id)
        self.begin('deleting')
        self.complete_one([names])
        self.cloud.watch(1, hydrate=False)
        self.reset('available')
        with self.cloud.on(self.b):
            placeholder = lookups.placeholder(
                self.context, placeholders.id_of_deleted(names.name_id))
            self.b.released_sources._keep(
                self.context, placeholder,
                self.b.backend.logical_volume(names))
            self.assertNotIn('handle', self.b.kernel.roles(names))
        self.b.stop()
        self.b.start()
        self.minutes()
        self.assertTrue(self.b.kernel.write(names.path()))
        self.assertEqual({'handle': 'linear'}, self.roles(copy, self.b))
        self.delete(self.volume)
        self.delete(copy)
        self.assertNothing()

    def test_open(self):
        self.prepare()
        path = Names(self.row().name_id).path()
        self.b.kernel.get(path).opened += 1
        with self.cloud.on(self.b):
            self.assertRaisesRegex(
                cinder_exception.VolumeIsBusy, 'still open',
                self.b.driver.delete_volume, self.row())
        self.b.kernel.get(path).opened -= 1

    @ddt.data({}, {'killed': True})
    def test_each_step_of_the_deletion(self, fault):
        copies = {}

        def before(volume):
            copies[volume.id] = self.prepare(volume)

        def act(volume):
            row = self.cloud.row(volume.id)
            row.status = 'deleting'
            row.save()
            with self.cloud.on(self.b):
                self.b.driver.delete_volume(row)
            self.cloud.watch(5)
            self.minute()

        for step, volume, _error in self.each_step(act, before, **fault):
            if fault.get('killed'):
                self.b.stop()
                self.b.start()
            # The user, or a start of Cinder, deletes it again.
            with self.cloud.on(self.b):
                self.b.driver.delete_volume(self.cloud.row(volume.id))
            self.minutes()
            copy = copies[volume.id]
            self.assertEqual({'handle': 'linear'},
                             self.roles(copy, self.b), step)
            self.delete(copy)

    def test_row_of_a_complete_volume_is_deleted_later(self):
        """As Cinder deletes those of a group: after all are deleted here."""
        for hydrates in (False, True):
            volume = self.a.create()
            copy = (self.prepare if hydrates else self.clone)(volume)
            for each in (volume, copy):
                row = self.cloud.row(each.id)
                home = self.cloud.by_host[row.host.partition('#')[0]]
                with self.cloud.on(home):
                    home.driver.delete_volume(row)
                row.status = 'deleted'
                row.save()
                self.cloud.watch(2, hydrate=False)
            for each in (volume, copy):
                self.cloud.row(each.id).destroy()
            self.minutes()
            self.assertEqual([], self.cloud.placeholders())
            self.assertEqual([self.volume.name], self.a.lvm.names())
            self.assertEqual([], self.b.lvm.names())

    def test_reset_and_completed(self):
        """The volume is used again before its placeholder is looked at."""
        self.prepare()
        names = Names(self.row().name_id)
        self.begin('deleting')
        self.minutes()
        self.assertFalse(self.lv(self.b, names.volume).in_parts)
        self.reset('available')
        for _number in range(2):
            self.b.stop()
            self.b.start()
            self.assertEqual('linear', self.b.kernel.get(names.path()).kinds)
        self.assertFalse(self.lv(self.b, names.volume).kept)
        self.minutes()
        self.cloud.attach(self.volume, self.b)
        self.assertTrue(self.b.kernel.write(names.path()))

    def test_reset_and_power_cut_when_it_is_complete(self):
        """The handle of a volume takes writes, whatever row is found."""
        self.prepare()
        names = Names(self.row().name_id)
        self.begin('deleting')
        self.cloud.watch(3)
        self.b.reboot()
        self.b.start()
        self.reset('available')
        self.cloud.watch(2)
        device = self.b.kernel.get(names.path())
        self.assertFalse(device.sealed or device.read_only)

    def test_other_node_is_down(self):
        """The source is deleted when its node is back."""
        copy = self.prepare()
        self.delete(self.volume)
        self.b.look()
        self.b.hydrate()
        self.a.stop()
        self.cloud.watch(4)
        self.minute()
        self.b.stop()
        self.b.start()
        self.cloud.watch(4)
        self.a.start()
        self.minutes()
        self.assertConverged(copy)
        self.delete(copy)
        self.assertNothing()


class ManyReadAndDeletedTestCase(base.QueriesTestCase, ReadAndDeletedBase):
    """Volumes that hydrate are deleted while clones of them are copied."""

    def more(self, number):
        """Delete some more; returns the names of their clones."""
        found = []
        for _number in range(number):
            volume = self.a.create()
            self.prepare(volume)
            found.append(Names(self.cloud.row(volume.id).name_id))
            self.delete(volume)
        # Until the longest pause is reached.
        self.cloud.watch(8, hydrate=False)
        return found

    def looked_at(self, act, *args):
        """Return the logical volumes whose deletion is tried meanwhile."""
        found = []
        real = self.b.released_sources.release

        def release(context, placeholder_id):
            found.append(self.cloud.row(placeholder_id).name_id)
            real(context, placeholder_id)

        with mock.patch.object(self.b.released_sources, 'release', release):
            act(*args)
        return found

    def test_only_what_is_complete_is_looked_at(self):
        """Not all of them, whenever one is."""
        waiting = self.more(3)
        while waiting:
            names = self.complete_one(waiting)
            self.cloud.pass_time(1)
            self.assertEqual([names.name_id], self.looked_at(self.b.look))
            self.assertTrue(self.lv(self.b, names.volume).kept)
            waiting.remove(names)
            self.assertEqual(len(waiting),
                             len(self.b.left('watch deleted volume')))

    def test_only_the_origin_of_a_deleted_snapshot_is_looked_at(self):
        self.more(2)
        row = self.a.create()
        copy = self.prepare(row)
        names = Names(self.cloud.row(row.id).name_id)
        self.delete(row)
        self.cloud.watch(8, hydrate=False)
        self.delete(copy)
        self.cloud.pass_time(1)
        self.assertEqual([names.name_id], self.looked_at(self.b.look))
        self.assertIsNone(self.lv(self.b, names.volume))
        self.assertEqual(2, len(self.b.left('watch deleted volume')))

    def test_a_look_at_all_costs_the_same_for_many(self):
        costs = set()
        for number in (1, 3):
            self.more(number)
            self.queries.clear()
            self.cloud.steps.start()
            with self.cloud.on(self.b):
                self.assertEqual([], self.looked_at(
                    self.b.released_sources.look_again, self.context))
            costs.add((self.queries.count('BEGIN'), len(self.queries),
                       len(self.cloud.steps.log)))
        self.assertEqual({(1, 2, 1)}, costs)


class LostNodeTestCase(SnapshotsTestCase, test_lost_node.LostNodeTestCase):
    """The node of a snapshot is lost."""

    def test_snapshot(self):
        taken = self.snapshot()
        self.move()
        there = self.snapshot()
        self.a.die()
        self.assertIn('snapshot ' + taken.id, self.forgotten())
        self.assertEqual(['error', 'available'], [
            self.read(each).status for each in (taken, there)])
        self.delete_snapshot(taken)

    def test_volume_that_reads_it(self):
        volume = self.copy(self.snapshot(), self.b)
        self.a.die()
        self.forgotten()
        self.assertEqual('error', self.cloud.row(volume.id).status)
        self.assertEqual(placeholders.State.LOST, *self.cloud.states())

    def test_home_is_lost_and_its_snapshot_is_not(self):
        taken = self.snapshot()
        self.move()
        self.b.die()
        with self.cloud.on(self.a):
            list(lost_node.LostNode(self.a.backend, self.a.requests,
                                    'node2').run(self.context, do_it=True))
        self.assertEqual('available', self.read(taken).status)
        volume = self.copy(taken, self.a)
        self.cloud.watch(3)
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.a))


class ReadAndDeletedLostNodeTestCase(test_lost_node.LostNodeTestCase,
                                     ReadAndDeletedBase):
    """A node is lost that a deleted volume was on, or hydrates from."""

    def test_source(self):
        copy = self.prepare()
        self.delete(self.volume)
        self.a.die()
        self.assertIn('is deleted, but clones of it', self.forgotten())
        self.assertIn(State.LOST, self.cloud.states())
        self.delete(copy)
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.b.lvm.names())

    def test_home(self):
        copy = self.prepare()
        self.delete(self.volume)
        self.b.die()
        self.forgotten(self.b, self.a)
        self.assertEqual('error', self.cloud.row(copy.id).status)
        self.cloud.watch(3)
        self.delete(copy)
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.a.lvm.names())

    def test_home_of_a_volume_whose_state_was_reset(self):
        """Its old home keeps the last data that there is of it."""
        self.prepare()
        with self.cloud.on(self.b):
            self.b.driver.delete_volume(self.row())
        row = self.row()
        row.status = 'available'
        row.save()
        self.b.die()
        self.assertIn('keeps, as', self.forgotten(self.b, self.a))
        self.cloud.settle()
        self.assertIsNotNone(self.lv(self.a, self.volume.name))
        self.assertEqual('error', self.row().status)
        self.delete(self.volume)
        self.cloud.watch(3)
        self.assertIsNone(self.lv(self.a, self.volume.name))

    def test_metadata_is_lost(self):
        """What reads it can be deleted, and then nothing is left."""
        copy = self.prepare()
        metadata = '/dev/volumes/' + Names(self.row().name_id).metadata
        self.delete(self.volume)
        self.b.reboot()
        del self.b.lvm.volumes[metadata]
        self.b.start()
        self.cloud.watch(3, hydrate=False)
        self.delete(copy)
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.b.lvm.names())
