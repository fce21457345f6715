# SPDX-License-Identifier: Apache-2.0
"""Reverts at once: a clone of the snapshot takes the place of the data."""

import functools
from unittest import mock

from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import manager
import ddt
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import restorer
from dmclone_driver.move import revert_records
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit.fakes import steps
from tests.unit.fakes import storage
from tests.unit.move import test_lost_node
from tests.unit.move import test_snapshots

#: Where a volume is that is reverted to a snapshot of the first node: on the
#: other node, back in another logical volume, or still copied to the other.
PLACES = ('away', 'back', 'arriving')
FAULTS = (
    *(('away', fault) for fault in test_snapshots.FAULTS),
    ('away', {'killed': True, 'power': True}),
    ('back', {'after': True}), ('arriving', {'killed': True}))


class NewContentTestCase(test_snapshots.CascadeTestCase):

    def bring_to(self, place, volume):
        """Take a snapshot of a volume of the first node; move the volume."""
        taken = self.snapshot(volume)
        self.cloud.attach(volume, self.b)
        if place != 'arriving':
            self.cloud.watch(3)
        self.cloud.detach(volume, self.b)
        if place == 'back':
            self.cloud.attach(volume, self.a)
            self.cloud.watch(3)
            self.cloud.detach(volume, self.a)
        return taken

    def node_of(self, volume):
        return self.cloud.by_host[
            self.cloud.row(volume.id).host.partition('#')[0]]

    def revert(self, volume, snapshot=None):
        """Revert a volume to its first snapshot, or another one."""
        found = objects.SnapshotList.get_all_for_volume(self.context,
                                                        volume.id)
        snapshot = snapshot or min(found, key=lambda each: each.created_at)
        node = self.node_of(volume)
        with self.cloud.on(node):
            node.driver.revert_to_snapshot(
                self.context, self.cloud.row(volume.id),
                self.read(snapshot))

    def minutes(self):
        for _number in range(3):
            self.cloud.watch(2)
            self.minute()

    def assertConverged(self, volume, taken, step=None):
        """Check that a volume is complete; nothing but its snapshot is left.

        :param taken: the snapshot, of the first node
        """
        self.minutes()
        row, node = self.cloud.row(volume.id), self.node_of(volume)
        self.assertEqual([], self.cloud.placeholders(), step)
        self.assertEqual({'handle': 'linear'}, node.kernel.roles(
            Names(row.name_id)), step)
        self.assertFalse(node.kernel.get(
            Names(row.name_id).path()).sealed, step)
        tags = self.lv(node, row.name).tags
        self.assertLessEqual(
            tags, {logical_volumes.OPENED_TAG + volume.id}, step)
        self.assertEqual(set(), self.snapshot_lv(taken).tags, step)
        origin = self.snapshot_lv(taken).origin
        expected = {self.a: {origin, '_' + taken.name}, self.b: set()}
        expected[node].add(row.name)
        for each, names in expected.items():
            mine = [name for name in each.lvm.names()
                    if name != self.volume.name or volume is self.volume]
            self.assertEqual(sorted(names), sorted(mine), step)
            self.assertEqual({}, each.target.exports, step)


@ddt.ddt
class RevertTestCase(NewContentTestCase):

    @ddt.data(*PLACES)
    def test_at_once(self, place):
        taken = self.bring_to(place, self.volume)
        old, node = self.row(), self.node_of(self.volume)
        self.revert(self.volume)
        row = self.row()
        self.assertNotEqual(old.name_id, row.name_id)
        self.assertEqual((old.host, old.service_uuid, old.availability_zone),
                         (row.host, row.service_uuid, row.availability_zone))
        self.assertIn('clone', self.roles(self.volume, node))
        source = lookups.placeholder(self.context, row.name_id)
        self.assertEqual(taken.id, source.snapshot_id)
        self.assertEqual(self.a.host, source.backend)
        # It can be used at once.
        self.cloud.attach(self.volume, node)
        self.assertEqual(node.pool, self.row().host)
        self.cloud.detach(self.volume, node)
        self.assertConverged(self.volume, taken)

    @ddt.data(*FAULTS)
    @ddt.unpack
    def test_each_step(self, place, fault):
        """Each step fails: then the volume is as it was, or reverted."""
        taken, before = {}, {}

        def prepare(volume):
            taken[volume.id] = self.bring_to(place, volume)
            before[volume.id] = self.cloud.row(volume.id).name_id

        for step, volume, error in self.each_step(self.revert, prepare,
                                                  **fault):
            if isinstance(error, steps.Killed):
                self.node_of(volume).stop()
            for each in self.cloud.nodes.values():
                if each.down and fault.get('power'):
                    each.reboot()
                if each.down:
                    each.stop()
                    each.start()
            if error is None:
                self.assertNotEqual(before[volume.id], self.cloud.row(
                    volume.id).name_id, step)
            self.assertConverged(volume, taken[volume.id], step)

    def test_again(self):
        """The clone that hydrates is replaced by another one."""
        taken = self.bring_to('away', self.volume)
        self.revert(self.volume)
        first = self.row().name_id
        self.revert(self.volume)
        self.assertNotEqual(first, self.row().name_id)
        self.assertConverged(self.volume, taken)

    @ddt.data(*PLACES)
    def test_newer_snapshot(self, place):
        """Cinder takes one before a revert; it keeps the old data."""
        taken = self.bring_to(place, self.volume)
        node = self.node_of(self.volume)
        newer, old = self.snapshot(), self.row().name
        self.revert(self.volume, taken)
        self.minutes()
        found = self.lv(node, old)
        self.assertTrue(found.kept)
        self.assertEqual(self.row().name_id,
                         found.tagged(logical_volumes.SEALED_TAG))
        with self.cloud.on(node):
            self.assertIsNotNone(node.parts.snapshots.find(newer.id))
        self.delete_snapshot(newer)
        self.assertConverged(self.volume, taken)

    def test_reboot_while_the_old_data_hydrates(self):
        """It is the origin of a snapshot, and is never written again."""
        taken = self.bring_to('arriving', self.volume)
        newer, old = self.snapshot(), Names(self.row().name_id)
        self.revert(self.volume, taken)
        self.cloud.settle()
        self.b.reboot()
        self.b.start()
        self.cloud.settle()
        self.assertIn('clone', self.b.kernel.roles(old))
        self.assertTrue(self.b.kernel.get(old.path()).sealed)
        self.minutes()
        self.assertTrue(self.lv(self.b, old.volume).kept)
        self.delete_snapshot(newer)
        self.assertConverged(self.volume, taken)

    def test_snapshot_deleted_meanwhile(self):
        taken = self.bring_to('away', self.volume)
        self.revert(self.volume)
        self.delete_snapshot(taken)
        self.assertIsNotNone(self.snapshot_lv(taken))
        self.minutes()
        self.assertEqual([], self.a.lvm.names())
        self.assertIdle(self.b)

    def test_extended_after_the_snapshot(self):
        """Cinder refuses that; the part beyond is not the snapshot's."""
        taken = self.bring_to('away', self.volume)
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.row(), 2)
        self.revert(self.volume)
        found = self.lv(self.b, self.row().name)
        self.assertEqual((2 * storage.GIB, storage.GIB),
                         (found.size, found.cloned))
        self.assertConverged(self.volume, taken)

    def test_moves_before_it_is_complete(self):
        self.bring_to('away', self.volume)
        self.revert(self.volume)
        self.cloud.attach(self.volume, self.a)
        self.assertEqual(self.a.pool, self.row().host)
        self.cloud.detach(self.volume, self.a)
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.b.lvm.names())

    def test_deleted_before_it_is_complete(self):
        taken = self.bring_to('away', self.volume)
        self.revert(self.volume)
        self.delete_snapshot(taken)
        self.delete(self.volume)
        self.minutes()
        self.assertEqual([], self.a.lvm.names() + self.b.lvm.names())
        self.assertEqual([], self.cloud.placeholders())

    def test_node_of_the_snapshot_is_down(self):
        taken = self.bring_to('away', self.volume)
        before = self.row().name_id
        self.a.die()
        error = self.assertRaises(exception.RevertNotServed, self.revert,
                                  self.volume)
        self.assertIn("Can't revert volume %s" % self.volume.id, error.msg)
        self.assertNotIn('create it again', error.msg)
        self.assertEqual(before, self.row().name_id)
        self.a.start()
        self.assertConverged(self.volume, taken)

    def test_device_is_open(self):
        """An operator's process may write to it; Cinder copies it then."""
        self.bring_to('away', self.volume)
        self.b.kernel.get(Names(self.row().name_id).path()).opened = 1
        self.assertRaises(NotImplementedError, self.revert, self.volume)
        self.assertEqual([], self.cloud.placeholders())

    def test_no_room(self):
        """Cinder's copy needs it, too: then nothing is changed."""
        taken = self.bring_to('away', self.volume)
        before = self.row().name_id
        self.leave_no_room()
        service = mock.MagicMock(driver=self.b.driver)
        service._revert_to_snapshot_generic = functools.partial(
            manager.VolumeManager._revert_to_snapshot_generic, service)
        with self.cloud.on(self.b):
            self.assertRaises(
                processutils.ProcessExecutionError,
                manager.VolumeManager._revert_to_snapshot, service,
                self.context, self.row(), self.read(taken))
        service._copy_volume_data.assert_not_called()
        self.assertEqual(before, self.row().name_id)
        self.assertConverged(self.volume, taken)

    def test_volume_has_changed(self):
        """Another request has changed it after it was read."""
        taken = self.bring_to('away', self.volume)
        old = self.row()
        old.host = self.a.pool
        self.assertRaises(
            exception.MoveGone, revert_records.begin, self.context, old,
            old.id, old.id, taken.id, None, '')
        self.patch('dmclone_driver.move.revert_records.revert',
                   return_value=False)
        self.assertRaises(exception.MoveGone, self.revert, self.volume)
        self.assertConverged(self.volume, taken)

    def interrupt(self):
        """Kill the service of the second node before the exchange."""
        with self.patched('dmclone_driver.move.revert_records.revert'):
            self.assertRaises(steps.Killed, self.revert, self.volume)

    def patched(self, path):
        return mock.patch(path, side_effect=steps.Killed)

    def test_interrupted_clone_is_never_opened(self):
        taken = self.bring_to('away', self.volume)
        self.interrupt()
        row, = (each for each in self.cloud.placeholders()
                if placeholders.state_of(each) == State.REVERTING)
        # The process goes on looking, in this test.
        self.cloud.watch(2)
        self.assertFalse(self.lv(self.b, row.name).opened)
        self.b.stop()
        self.b.start()
        self.assertConverged(self.volume, taken)

    def test_interrupted_and_deleted(self):
        taken = self.bring_to('away', self.volume)
        self.interrupt()
        self.delete_snapshot(taken)
        self.delete(self.volume)
        self.b.stop()
        self.b.start()
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.a.lvm.names() + self.b.lvm.names())

    def test_restored_database(self):
        """The old data is not taken for the volume, nor for a source."""
        self.bring_to('away', self.volume)
        self.snapshot()
        before = self.row()
        self.revert(self.volume)
        self.cloud.settle()
        new = self.row().name_id
        for row in self.cloud.placeholders():
            db_api.volume_destroy(self.context, row.id)
        row = self.row()
        row._name_id = before.name_id
        row.save()
        with self.cloud.on(self.b):
            error = self.assertRaises(
                cinder_exception.CinderException,
                self.b.driver.extend_volume, self.row(), 2)
            self.assertIsInstance(error, exception.MovedAway)
            said = self.assertRaises(plan.Refused, list, restorer.Restorer(
                self.b.backend).run(self.context, self.volume.id, True))
        self.assertIn('was reverted to snapshot', str(said))
        self.assertIn(new, str(said))


class LostTestCase(NewContentTestCase, test_lost_node.LostNodeTestCase):

    def test_before_the_exchange(self):
        taken = self.bring_to('away', self.volume)
        RevertTestCase.interrupt(self)
        self.b.die()
        done = self.forget(lost=self.b, on=self.a)
        self.assertIn('was not reverted on', '\n'.join(done))
        self.a.stop()
        self.a.start()
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(set(), self.snapshot_lv(taken).tags)

    patched = RevertTestCase.patched
