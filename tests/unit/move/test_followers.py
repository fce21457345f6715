# SPDX-License-Identifier: Apache-2.0
"""Snapshots that follow their volume to another node."""

import dataclasses
from unittest import mock

from cinder import exception as cinder_exception
import ddt

from dmclone_driver import exception
from dmclone_driver.move import follower_records
from dmclone_driver.move import jobs
from dmclone_driver.move import left_behind
from dmclone_driver.move import leftovers
from dmclone_driver.move import lookups
from dmclone_driver.move import lost_node
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots


class FollowersTestCase(test_snapshots.SnapshotsTestCase):

    def setUp(self):
        super().setUp()
        self.taken = self.snapshot()

    def take_along(self, snapshot=None, node=None):
        """Have a snapshot follow, as the command does."""
        node = node or self.b
        with self.cloud.on(node):
            rpcapi.PeerClient().take_along(
                self.context, node.host, (snapshot or self.taken).id)

    def follow(self, snapshot=None, node=None):
        """Have a snapshot follow until its follower is complete."""
        self.take_along(snapshot, node)
        self.cloud.watch(4)

    def follower(self, snapshot=None):
        """Return the row of the follower of a snapshot, or None."""
        def follows(row):
            found = follower_records.get(self.context, row.name_id)
            return found is not None and found.id == row.id

        found = [row for row in self.cloud.placeholders() if row.snapshot_id
                 == (snapshot or self.taken).id and row.name_id != row.id and
                 follows(row)]
        return found[-1] if found else None

    def lv(self):
        """Return the logical volume of the follower."""
        return logical_volumes.find(self.follower().name, 'volumes')

    def assertOn(self, node, snapshot=None):
        """Check that exactly one node has a snapshot, and its row says so."""
        self.assertEqual(node.pool, self.read(snapshot or self.taken).
                         provider_id)
        for each in self.cloud.nodes.values():
            with self.cloud.on(each):
                found = each.parts.snapshots.find(
                    (snapshot or self.taken).id)
            self.assertEqual(each is node, found is not None)


@ddt.ddt
class FollowTestCase(FollowersTestCase):

    def test_after_its_volume(self):
        self.move()
        self.follow()
        self.assertOn(self.b)
        self.assertEqual([State.FOLLOWED], self.cloud.states())
        # Its origin was kept for it alone.
        self.minute()
        self.assertEqual([], self.a.lvm.names())
        with self.cloud.on(self.a):
            self.assertEqual([], list(left_behind.find('volumes')))
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.b)

    def test_revert_on_the_old_node(self):
        """Its old copy there may be deleted at any moment."""
        self.copy(self.taken, self.a)
        self.take_along()
        # The volume that was made of it goes on reading the old copy.
        self.a.hydrate = lambda: None
        self.cloud.watch(4)
        self.assertEqual(self.b.pool, self.read(self.taken).provider_id)
        with self.cloud.on(self.a):
            self.assertTrue(self.a.parts.snapshots.find(
                self.taken.id).hidden)
            # Cinder copies what is on the other node.
            self.leave_no_room()
            self.assertRaises(
                NotImplementedError, self.a.driver.revert_to_snapshot,
                self.context, self.row(), self.read(self.taken))

    def test_before_it_is_complete(self):
        self.take_along()
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.assertEqual({State.FOLLOWING, State.SWITCHED},
                         set(self.cloud.states()))
        volume = self.copy(self.taken, self.a)
        self.cloud.watch(4)
        self.assertOn(self.b)
        self.delete(volume)

    def test_of_a_volume_that_hydrates(self):
        self.cloud.attach(self.volume, self.b)
        taken = self.snapshot()
        self.take_along(taken, self.a)
        self.cloud.watch(6)
        self.assertOn(self.a, taken)

    def test_while_a_move_is_prepared(self):
        """The volume is on the other node, and may come back."""
        self.move()
        for node in self.b, self.a:
            self.cloud.attach(self.volume, node)
        self.follow()
        self.assertOn(self.b)
        self.assertEqual({State.FOLLOWED, State.PREPARED},
                         set(self.cloud.states()))
        self.cloud.detach(self.volume, self.b)
        self.cloud.watch(4)
        self.assertOn(self.b)
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEqual([State.FOLLOWED], self.cloud.states())

    def test_volume_from_it(self):
        self.follow()
        for node in (self.a, self.b):
            volume = self.copy(self.taken, node)
            self.assertRaises(cinder_exception.CinderException,
                              self.delete_if_free, node)
            self.cloud.watch(4)
            self.assertIsNone(lookups.placeholder(
                self.context, self.cloud.row(volume.id).name_id))
        self.assertOn(self.b)

    def delete_if_free(self, node):
        """Refuse what would take the data of a reader away."""
        with self.cloud.on(self.b):
            if not self.b.parts.snapshots._delete(self.taken.id):
                raise cinder_exception.SnapshotIsBusy(
                    snapshot_name=self.taken.id)

    def test_deleted_while_a_volume_reads_it(self):
        self.follow()
        volume = self.copy(self.taken, self.a)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIsNotNone(self.follower())
        self.cloud.watch(4)
        self.minute()
        self.assertIsNone(self.follower())
        self.delete(volume)
        self.assertIdle(self.a)

    def test_old_one_is_kept_for_its_readers(self):
        volume = self.copy(self.taken, self.a)
        self.take_along()
        hydrate = self.a.hydrate
        self.a.hydrate = lambda: None
        self.cloud.watch(4)
        self.assertEqual(self.b.pool, self.read(self.taken).provider_id)
        with self.cloud.on(self.a):
            old = self.a.parts.snapshots.find(self.taken.id)
        self.assertTrue(old.hidden and bool(old.readers))
        error = self.assertRaises(exception.PeerFailed, self.take_along,
                                  node=self.a)
        self.assertIn('as it was there before', error.msg)
        self.a.hydrate = hydrate
        self.cloud.watch(4)
        self.assertOn(self.b)
        self.delete(volume)

    def test_back(self):
        self.follow()
        self.follow(node=self.a)
        self.assertOn(self.a)
        self.assertEqual([State.FOLLOWED], self.cloud.states())
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertIdle(self.a)

    def test_revert(self):
        self.follow()
        self.move()
        self.assertCopiedBack(Names(self.follower().name_id).path())

    def test_after_a_reboot(self):
        self.follow()
        for node in (self.b, self.a):
            node.reboot()
            node.start()
        self.cloud.watch(2)
        self.assertOn(self.b)
        device = self.b.kernel.get(Names(self.follower().name_id).path())
        self.assertTrue(device.read_only)
        volume = self.copy(self.taken, self.a)
        self.cloud.watch(4)
        self.delete(volume)

    def test_cleared_after_a_reboot(self):
        self.follow()
        self.b.reboot()
        self.b.start()
        self.cloud.watch(2)
        self.b.backend.configuration.volume_clear = 'zero'
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertNotEqual([], self.b.kernel.zeroed)
        self.assertEqual([], self.cloud.placeholders())

    def test_unmanage(self):
        self.follow()
        self.move()
        with self.cloud.on(self.b):
            error = self.assertRaises(
                cinder_exception.SnapshotIsBusy,
                self.b.driver.unmanage_snapshot, self.read(self.taken))
        self.assertIn('Create a volume from it', error.msg)

    def test_twice(self):
        self.take_along()
        rows = {row.id for row in self.cloud.placeholders()}
        self.take_along()
        self.assertEqual(rows, {row.id for row in self.cloud.placeholders()})
        self.cloud.watch(4)
        self.take_along()
        self.assertOn(self.b)

    def test_request_with_an_old_object(self):
        """Cinder's API has read the snapshot before it has followed."""
        old = self.read(self.taken)
        self.follow()
        with self.cloud.on(self.a):
            self.a.driver.delete_snapshot(old)
        old.destroy()
        self.minute()
        self.assertIsNone(self.follower())
        self.assertIdle(self.a)

    def test_volume_from_an_old_object(self):
        """The snapshot has followed after Cinder has read it."""
        old = self.read(self.taken)
        self.follow()
        volume = self.new(self.a)
        with self.cloud.on(self.a):
            self.a.driver.create_volume_from_snapshot(volume, old)
        self.cloud.watch(4)
        self.assertOn(self.b)

    @ddt.data(False, True)
    def test_deleted_meanwhile(self, complete):
        self.take_along()
        if complete:
            # Cinder's API has begun.
            self.set_status('deleting')
            self.cloud.watch(4)
            self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.delete_snapshot(self.taken)
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertIdle(self.a)

    def set_status(self, status):
        snapshot = self.read(self.taken)
        snapshot.status = status
        snapshot.save()

    def test_its_node_is_down_as_it_follows(self):
        self.move()
        self.take_along()
        self.b.look()
        self.b.hydrate()
        self.a.die()
        self.cloud.watch(4)
        self.assertEqual(self.b.pool, self.read(self.taken).provider_id)
        self.delete_snapshot(self.taken)
        self.minute()
        self.a.start()
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertIdle(self.b)

    def test_row_is_purged_as_it_follows(self):
        """The follower's row proves that the snapshot's has been there."""
        self.take_along()
        self.b.stop()
        self.delete_snapshot(self.taken)
        self.minute()
        self.purge(self.taken)
        self.b.start()
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertIdle(self.a)

    def test_row_is_purged_after_it_has_followed(self):
        """It is kept, named, and deleted when an operator says so."""
        self.follow()
        self.b.stop()
        self.delete_snapshot(self.taken)
        self.purge(self.taken)
        self.b.start()
        self.cloud.watch(4)
        self.minute()
        with self.cloud.on(self.b):
            lv = self.lv()
            line, = (each.line() for each in leftovers.Leftovers(
                self.b.backend).run(self.context, remove=True))
            self.assertIn('run "lvchange --addtag dmclone.hidden %s" and '
                          'restart' % lv.full_name, line)
            logical_volumes.tag(lv, logical_volumes.HIDDEN_TAG)
        self.b.stop()
        self.b.start()
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.placeholders())
        self.assertIdle(self.a)

    def test_row_is_purged_while_a_volume_reads_it(self):
        self.follow()
        volume = self.copy(self.taken, self.a)
        self.delete_snapshot(self.taken)
        self.minute()
        self.purge(self.taken)
        self.cloud.watch(4)
        self.minute()
        self.assertIsNone(self.follower())
        self.delete(volume)
        self.assertIdle(self.a)

    def test_metadata_is_lost(self):
        self.take_along()
        self.b.reboot()
        for name in self.b.lvm.names():
            if 'metadata' in name:
                del self.b.lvm.volumes['/dev/volumes/' + name]
        self.b.start()
        self.cloud.watch(4)
        self.assertOn(self.a)
        self.assertEqual([], self.cloud.placeholders())
        self.follow()
        self.assertOn(self.b)

    def test_back_before_a_start_deletes_the_old_one(self):
        """The start has seen the old one, hidden, minutes before."""
        seen = self.hidden_one()
        self.follow()
        self.follow(node=self.a)
        self.delete_unfinished(seen)
        self.assertOn(self.a)

    def test_not_hidden_any_longer_when_a_start_deletes_it(self):
        self.delete_unfinished(self.hidden_one())
        self.assertOn(self.a)

    def hidden_one(self):
        """Return the snapshot's logical volume as if it were hidden."""
        with self.cloud.on(self.a):
            lv = self.a.parts.snapshots.find(self.taken.id)
        return dataclasses.replace(
            lv, tags=frozenset([logical_volumes.HIDDEN_TAG]))

    def delete_unfinished(self, *seen):
        with self.cloud.on(self.a):
            self.a.parts.snapshots.delete_unfinished(self.context,
                                                     list(seen))

    def test_no_command_changes_its_row(self):
        self.follow()
        row = self.follower()
        with self.cloud.on(self.b):
            self.assertRaises(cinder_exception.VolumeIsBusy,
                              self.b.driver.delete_volume, row)
        self.assertOn(self.b)

    def test_nothing_is_left_over(self):
        self.take_along()
        for _number in range(5):
            with self.cloud.on(self.b):
                self.assertEqual([], leftovers.Leftovers(
                    self.b.backend).run(self.context, remove=True))
            self.cloud.watch()
        self.assertOn(self.b)

    @ddt.data({}, {'killed': True})
    def test_each_step_of_the_begin(self, fault):
        self.each(self.take_along, **fault)

    @ddt.data({'after': True}, {'killed': True})
    def test_each_step_of_the_end(self, fault):
        self.each(self.complete, self.hydrated, **fault)

    def complete(self, snapshot):
        """Let the follower become the snapshot."""
        for _number in range(2):
            self.cloud.pass_time(1000)
            self.b.look()
            self.cloud.settle()

    def hydrated(self, snapshot):
        self.take_along(snapshot)
        self.cloud.settle()
        self.b.look()
        self.cloud.settle()
        self.b.hydrate()

    def each(self, act, before=None, **fault):
        """Fail at each step of an action; see that a snapshot follows then."""
        snapshots = {}

        def prepare(volume):
            snapshots[volume.id] = self.snapshot(volume)
            if before:
                before(snapshots[volume.id])
        for step, volume, _error in self.each_step(
                lambda volume: act(snapshots[volume.id]), prepare, **fault):
            snapshot = snapshots.pop(volume.id)
            if fault.get('killed'):
                for node in self.cloud.nodes.values():
                    node.start()
            self.cloud.watch(2)
            self.follow(snapshot)
            self.assertOn(self.b, snapshot)
            self.delete_snapshot(snapshot)
            self.minute()
            self.assertIsNone(self.follower(snapshot), step)


class LagsTestCase(FollowersTestCase):
    """A node reads an old copy of the database, where nothing followed."""

    def setUp(self):
        super().setUp()
        self.move()
        self.take_along()
        old = lookups.get(self.context, self.follower().id)
        get, self.lags = lookups.get, None

        def read(context, row_id):
            return (old if row_id == old.id and self.cloud.here is self.lags
                    else get(context, row_id))
        self.patch('dmclone_driver.move.lookups.get', new=read)

    def test_old_node(self):
        self.lags = self.a
        self.cloud.watch(4)
        self.assertOn(self.b)
        self.minute()
        self.assertEqual([], self.a.lvm.names())

    def test_new_node(self):
        """The old one is deleted, too, though its node is down now."""
        self.a.die()
        self.b.hydrate()
        self.cloud.watch(4)
        self.assertEqual(self.b.pool, self.read(self.taken).provider_id)
        self.lags = self.b
        self.delete_snapshot(self.taken)
        self.minute()
        self.a.start()
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.a.lvm.names())


class RefusalsTestCase(FollowersTestCase):

    def refused(self, reason, error=exception.PeerFailed, **arguments):
        found = self.assertRaises(error, self.take_along, **arguments)
        self.assertIn(reason, found.msg)
        self.assertEqual([], self.cloud.placeholders())

    def test_unknown(self):
        self.refused('could not be found', snapshot=mock.Mock(id='x'))

    def test_status(self):
        self.taken.status = 'backing-up'
        self.taken.save()
        self.refused('its status is backing-up')

    def test_space(self):
        self.b.lvm.groups['volumes'] = storage.GIB // 2
        self.refused('it needs 1 GiB')

    def test_no_such_backend(self):
        self.taken.provider_id = 'node9@dmclone#dmclone'
        self.taken.save()
        self.refused('there is no backend node9')

    def test_to_two_nodes(self):
        self.cloud.add('node3')
        self.take_along()
        error = self.assertRaises(
            exception.PeerFailed, self.take_along,
            node=self.cloud.nodes['node3'])
        self.assertIn('it is being copied to ' + self.b.pool, error.msg)

    def test_changed_meanwhile(self):
        describe = self.b.destination.describe

        def begin():
            self.taken.status = 'deleting'
            self.taken.save()
            return describe()
        self.b.destination.describe = begin
        self.refused('another request has just changed it')

    def test_its_node_is_down(self):
        self.a.die()
        error = self.assertRaises(exception.PeerFailed, self.take_along)
        for part in (self.taken.id, 'did not answer', 'Nothing was changed'):
            self.assertIn(part, error.msg)
        self.assertNotIn('Delete', error.msg)
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.a.start()
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())


class RepeatedTestCase(FollowersTestCase):
    """A request is repeated, after one that has failed."""

    def fail_once(self):
        with mock.patch.object(self.b.builder, 'build_copy',
                               side_effect=OSError('no')):
            self.assertRaises(exception.PeerFailed, self.take_along)

    def test_at_once(self):
        self.fail_once()
        self.assertIsNone(self.follower())
        self.assertEqual([], self.b.left(jobs.SETTLE_FOLLOWER))
        self.take_along()
        self.assertIn(self.follower().name, self.b.lvm.names())
        self.cloud.watch(4)
        self.assertOn(self.b)

    def test_not_given_up_yet(self):
        """The request queues that again; the queue may have been lost."""
        with mock.patch.object(self.b.parts.followers._teardown, 'remove',
                               side_effect=OSError('no')):
            self.fail_once()
            for _number in range(9):
                self.cloud.pass_time(60)
                self.b.look()
        self.b.jobs._kinds[jobs.SETTLE_FOLLOWER].clear()
        self.b.look()
        self.take_along()
        self.b.look()
        self.assertIsNone(self.follower())
        self.follow()
        self.assertOn(self.b)


class RestoredDatabaseTestCase(FollowersTestCase):
    """The database is restored to a state before the end."""

    def test_follows_again(self):
        self.take_along()
        rows = {row.id: dict(row.items()) for row in
                self.cloud.placeholders()}
        host = self.read(self.taken).provider_id
        self.cloud.watch(4)
        self.assertOn(self.b)
        for row_id, fields in rows.items():
            self.restore(row_id, fields)
        snapshot = self.read(self.taken)
        snapshot.provider_id = host
        snapshot.save()
        for node in (self.a, self.b):
            node.start()
        self.cloud.watch(4)
        self.assertOn(self.b)
        self.assertEqual([State.FOLLOWED], self.cloud.states())

    def restore(self, row_id, fields):
        """Write an older state of a row, deleted or not."""
        with db_api.main_context_manager.writer.using(
                self.context):
            row = self.context.session.query(models.Volume).filter_by(
                id=row_id).one()
            row.update({name: fields[name] for name in (
                'replication_driver_data', 'provider_id', 'host')})
            row.deleted, row.deleted_at = False, None

    def test_before_it_began(self):
        """The only copy is neither deleted nor taken for the old one."""
        self.follow()
        row = self.follower()
        records.destroy(self.context, row.id)
        snapshot = self.read(self.taken)
        snapshot.provider_id = self.a.pool
        snapshot.save()
        volume = self.new(self.b)
        self.assertRaises(exception.SnapshotNotServed, self.fill, volume,
                          self.b, self.taken)
        for node in (self.a, self.b):
            node.start()
        self.cloud.watch(3)
        with self.cloud.on(self.b):
            self.assertIsNotNone(self.b.parts.snapshots.find(self.taken.id))
            found = leftovers.Leftovers(self.b.backend).run(
                self.context, remove=True)
        self.assertIn('it is snapshot %s, which' % self.taken.id,
                      found[-1].kept)
        self.take_along()
        self.assertOn(self.b)
        self.cloud.watch(4)
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertEqual([], self.b.lvm.names())


class LostNodeTestCase(FollowersTestCase):

    def forget(self, lost, backend):
        lost.die()
        with self.cloud.on(backend):
            for _number in range(2):
                list(lost_node.LostNode(
                    backend.backend, backend.requests, lost.name).run(
                        self.context, True))
        self.cloud.watch(3)

    def test_new_node(self):
        self.take_along()
        self.forget(self.b, self.a)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual((self.a.pool, 'available'), (
            self.read(self.taken).provider_id, self.read(self.taken).status))

    def test_new_node_after_it_has_followed(self):
        self.follow()
        self.forget(self.b, self.a)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual('error', self.read(self.taken).status)

    def test_old_copy_is_there(self):
        """The old node has not looked whether the snapshot has followed."""
        self.take_along()
        self.cloud.later.clear()
        self.a.die()
        self.cloud.watch(4)
        self.assertEqual(self.b.pool, self.read(self.taken).provider_id)
        self.cloud.add('node3')
        self.forget(self.b, self.cloud.nodes['node3'])
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.a.start()
        self.assertBack()

    def test_old_copy_is_hidden(self):
        """It is taken back between two steps of its end."""
        self.take_along()
        self.cloud.add('node3')
        destroy = records.destroy

        def forget_before(context, row_id):
            self.patch('dmclone_driver.move.records.destroy', new=destroy)
            self.assertEqual({logical_volumes.HIDDEN_TAG}, self.old().tags)
            with mock.patch.object(self.cloud, 'watch'):
                self.forget(self.b, self.cloud.nodes['node3'])
            destroy(context, row_id)
        self.patch('dmclone_driver.move.records.destroy', new=forget_before)
        self.cloud.watch(4)
        self.assertTrue(self.b.down)
        self.assertBack()

    def test_old_copy_is_read(self):
        """It is hidden, and kept for a volume."""
        volume = self.copy(self.taken, self.a)
        hydrate, self.a.hydrate = self.a.hydrate, lambda: None
        self.follow()
        self.assertTrue(self.old().hidden)
        self.forget(self.b, self.a)
        self.assertEqual(self.a.pool, self.read(self.taken).provider_id)
        self.a.hydrate = hydrate
        self.cloud.watch(4)
        self.assertBack()
        self.delete(volume)

    def test_old_copy_of_a_deleted_snapshot(self):
        self.take_along()
        self.a.die()
        self.cloud.watch(4)
        self.delete_snapshot_there()
        self.cloud.add('node3')
        self.forget(self.b, self.cloud.nodes['node3'])
        self.a.start()
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertIdle(self.a)

    def delete_snapshot_there(self):
        with self.cloud.on(self.b):
            self.b.driver.delete_snapshot(self.read(self.taken))
        self.read(self.taken).destroy()

    def old(self):
        with self.cloud.on(self.a):
            return self.a.parts.snapshots.find(self.taken.id)

    def assertBack(self):
        """Check that the snapshot is where it was, as it was."""
        self.cloud.watch(4)
        self.minute()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual((self.a.pool, 'available'), (
            self.read(self.taken).provider_id, self.read(self.taken).status))
        self.assertEqual(frozenset(), self.old().tags)

    def test_old_node(self):
        self.move()
        self.take_along()
        self.forget(self.a, self.b)
        self.assertEqual('error', self.read(self.taken).status)
        self.delete_snapshot(self.taken)
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([self.row().name], list(self.b.lvm.names()))
