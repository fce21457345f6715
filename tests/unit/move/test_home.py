# SPDX-License-Identifier: Apache-2.0
"""The home's side of a move: the results on both nodes and in the rows."""

from unittest import mock

from cinder.volume import volume_types
import ddt

from dmclone_driver import exception
from dmclone_driver.move import home
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import row_fields
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import storage

COMPLETE = {'handle': 'linear'}
CLONE = {'handle': 'clone', 'clone': 'clone', 'gate': 'linear',
         'source': 'linear'}
EXPORTED = {'handle': 'linear', 'export': 'zero linear zero'}


class HomeTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.old = Names(self.volume.id)

    def migrate(self):
        """Attach on both nodes, as a live migration does."""
        self.home = self.cloud.attach(self.volume, self.a)
        self.there = self.cloud.attach(self.volume, self.b)
        self.new = Names(lookups.prepared_move(self.row()))
        self.gate = self.b.kernel.get(self.new.path('gate'))

    def attach_error(self, node=None):
        """Attach; return the error of the refusal or failure."""
        return self.assertRaises(
            (exception.MoveRefused, exception.MoveFailed),
            self.cloud.attach, self.volume, node or self.b)


class AttachTestCase(HomeTestCase):
    """Attach a volume without another attachment."""

    def test_attach_at_home(self):
        path = self.cloud.attach(self.volume, self.a)
        self.assertEqual('/dev/mapper/dmclone-' + self.volume.id, path)
        self.assertIdle(self.a)

    def test_attach_away(self):
        path = self.cloud.attach(self.volume, self.b)
        row, = self.cloud.placeholders()
        new = Names(row.id)
        self.assertEqual(new.path(), path)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual(new.name_id, self.row().name_id)
        self.assertEqual(self.b.service.uuid, self.row().service_uuid)
        self.assertEqual('zone-node2', self.row().availability_zone)
        self.assertEqual((self.a.pool, self.volume.id),
                         (row.host, row.name_id))
        self.assertEqual(State.SWITCHED, placeholders.record_of(row).state)
        self.assertIsNone(lookups.prepared_move(self.row()))
        self.assertEqual(CLONE, self.b.kernel.roles(new))
        self.assertEqual(EXPORTED, self.a.kernel.roles(self.old))
        handle = self.b.kernel.get(path)
        self.assertTrue(handle.clone.hydration)
        self.assertFalse(self.b.kernel.get(new.of('clone')).discards)
        self.assertTrue(self.b.kernel.write(path))
        self.assertRaises(OSError, self.a.kernel.write, self.old.path())
        self.assertEqual({}, self.a.prepared_moves.known)

    def test_source_is_exported_read_only_to_one_initiator(self):
        self.cloud.attach(self.volume, self.b)
        (path, initiator, auth), = self.a.target.exports.values()
        self.assertEqual(self.old.path('export'), path)
        self.assertTrue(self.a.kernel.get(path).read_only)
        self.assertEqual(self.b.initiator, initiator)
        self.assertTrue(auth.startswith('CHAP '))

    def test_complete(self):
        path = self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertIdle(self.b)
        self.assertEqual(COMPLETE, self.b.kernel.roles(
            Names(self.row().name_id)))
        self.assertEqual(path, Names(self.row().name_id).path())

    def test_there_and_back_before_it_is_complete(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEqual(2, len(self.a.lvm.names()) - 1)
        self.cloud.watch(6)
        self.assertIdle(self.a)

    def test_peer_does_not_answer_after_the_switchover(self):
        """The move continues when the peer is back."""
        switch_over = records.switch_over

        def lose_peer(*args):
            self.b.stop()
            return switch_over(*args)

        self.patch('dmclone_driver.move.records.switch_over',
                   side_effect=lose_peer)
        path = self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertTrue(self.b.kernel.get(path + '-gate').suspended)
        self.b.start()
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def test_attachment_is_deleted_meanwhile(self):
        prepare = self.a.backend.client.prepare

        def delete_attachment(*args, **kwargs):
            result = prepare(*args, **kwargs)
            for record in self.row().volume_attachment:
                record.destroy()
            return result

        self.a.backend.client.prepare = delete_attachment
        self.assertIn('attachment was deleted', self.attach_error().msg)
        self.assertIdle(self.a)


class MigrationTestCase(HomeTestCase):
    """A live migration: two attachments at a time."""

    def test_stays_passive(self):
        self.migrate()
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.assertTrue(self.gate.suspended)
        self.assertFalse(self.b.kernel.get(self.there).clone.hydration)
        self.assertTrue(self.a.kernel.write(self.home))
        self.assertFalse(self.b.kernel.write(self.there))
        self.assertEqual({self.volume.id: self.new.name_id},
                         self.a.prepared_moves.known)

    def test_gate_is_closed_from_the_first_moment_until_the_switchover(self):
        """Checked after every step of both nodes."""
        seen = set()

        def look():
            for name in self.b.clones():
                gate = self.b.kernel.get(name.removesuffix('clone') + 'gate')
                switched = self.row().host == self.b.pool
                seen.add((switched, gate.suspended))

        self.cloud.steps.observe = look
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.assertEqual({(False, True), (True, True), (True, False)}, seen)

    def test_home_attachment_goes(self):
        self.migrate()
        self.assertFalse(self.b.kernel.write(self.there))
        self.assertTrue(self.cloud.detach(self.volume, self.a))
        self.assertEqual(self.b.pool, self.row().host)
        self.assertFalse(self.gate.suspended)
        self.assertEqual(0, self.b.kernel.get(self.there).clone.waiting)
        self.assertIn(self.there, self.b.kernel.flushed)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_home_seals_before_it_asks_for_the_gate(self):
        """So the peer does not request a seal before it opens the gate."""
        self.migrate()
        self.cloud.steps.start()
        self.cloud.detach(self.volume, self.a)
        steps = [step for step in self.cloud.steps.log if
                 'set_read_only' in step or '-gate' in step or 'ask' in step]
        opened, = [number for number, step in enumerate(steps)
                   if 'resume' in step]
        self.assertIn(self.old.path(), steps[0])
        self.assertEqual([], [step for step in steps[:opened]
                              if 'seal_source' in step])

    def test_home_cannot_seal(self):
        """Then the peer requests the seal before it opens the gate."""
        self.migrate()
        self.cloud.steps.start()
        with mock.patch('dmclone_driver.node.devices.LocalVolume.seal',
                        side_effect=[OSError, True, True]):
            self.cloud.detach(self.volume, self.a)
        steps = [step for step in self.cloud.steps.log if
                 'seal_source' in step or '-gate' in step]
        self.assertIn('seal_source', steps[0])

    def test_hydration_waits_until_nobody_can_write_the_source(self):
        self.migrate()
        self.a.kernel.get(self.home).opened += 1
        self.b.kernel.write(self.there)
        self.cloud.watch(hydrate=False)
        clone = self.b.kernel.get(self.there).clone
        self.assertTrue(self.a.kernel.get(self.home).sealed)
        self.cloud.watch()
        self.assertFalse(clone.hydration)
        self.a.kernel.get(self.home).opened -= 1
        self.cloud.watch()
        self.assertTrue(clone.hydration)

    def test_peer_attachment_goes(self):
        self.migrate()
        self.assertFalse(self.cloud.detach(self.volume, self.b))
        self.assertIdle(self.a)
        self.assertTrue(self.a.kernel.write(self.home))
        self.assertEqual({}, self.a.prepared_moves.known)

    def test_peer_does_not_see_that_it_has_aborted(self):
        """It reads an old row without the session, and discards later."""
        self.migrate()
        older, get = self.cloud.row(self.new.name_id), lookups.get

        def read(context, row_id):
            lags = self.cloud.here is self.b and row_id == older.id
            return older if lags else get(context, row_id)

        with mock.patch('dmclone_driver.move.lookups.get', new=read):
            self.cloud.detach(self.volume, self.b)
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.cloud.watch(3)
        self.assertIdle(self.a)

    def test_peer_attachment_goes_after_a_write(self):
        """The move switches over, since the destination was written."""
        self.migrate()
        self.b.kernel.write(self.there)
        self.assertTrue(self.cloud.detach(self.volume, self.b))
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual([State.SWITCHED], self.cloud.states())
        self.assertFalse(self.gate.suspended)
        self.assertEqual(1, self.b.kernel.get(
            self.there).clone.bitmap['hydrated'])

    def test_peer_attachment_goes_while_the_handle_is_open(self):
        """The move is aborted, since the open handle was not written."""
        self.migrate()
        handle = self.b.kernel.get(self.there)
        handle.opened += 1
        self.assertFalse(self.cloud.detach(self.volume, self.b))
        self.assertEqual(self.a.pool, self.row().host)
        self.assertTrue(self.a.kernel.write(self.home))
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.assertFalse(self.b.kernel.write(self.there))
        handle.opened -= 1
        handle.clone.waiting = 0
        self.cloud.watch(2)
        self.assertIdle(self.a)

    def test_peer_attachment_goes_before_it_was_complete(self):
        """The move is aborted: only a guest's write switches over."""
        self.migrate()
        self.cloud.set_attach_status(self.volume, self.b, 'attaching')
        handle = self.b.kernel.get(self.there)
        handle.opened += 1
        self.assertFalse(self.b.kernel.write(self.there))
        self.cloud.steps.observe = lambda: self.close_after_error(handle)
        self.assertFalse(self.cloud.detach(self.volume, self.b))
        self.assertIdle(self.a)
        self.assertTrue(self.a.kernel.write(self.home))

    @staticmethod
    def close_after_error(handle):
        if not (handle.clone and handle.clone.waiting):
            handle.opened = 0

    def test_all_attachments_go_by_force(self):
        self.migrate()
        with self.cloud.on(self.a):
            self.a.driver.terminate_connection(self.row(), None)
        self.assertIdle(self.a)

    def test_names_of_the_host_differ(self):
        """Nova's and Cinder's host names differ; the address is compared."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b, host='node2.example.org')
        self.cloud.watch(2)
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.cloud.detach(self.volume, self.a)
        self.assertEqual(self.b.pool, self.row().host)

    def test_next_migration_while_one_is_prepared(self):
        self.migrate()
        third = self.cloud.add('node3')
        error = self.attach_error(third)
        for part in (self.volume.id, 'node3', self.b.pool):
            self.assertIn(part, error.msg)
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.assertEqual([], third.lvm.names())

    def test_next_migration_after_one_that_left_its_move(self):
        self.migrate()
        for record in self.row().volume_attachment:
            if record.connector['host'] == 'node2':
                record.destroy()
        third = self.cloud.add('node3')
        self.cloud.attach(self.volume, third)
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(3)
        self.assertIdle(third)

    def test_orphan(self):
        self.migrate()
        for record in self.row().volume_attachment:
            if record.connector['host'] == 'node2':
                record.destroy()
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertIdle(self.a)
        self.assertEqual({}, self.a.prepared_moves.known)

    def test_orphan_that_a_start_has_not_seen(self):
        """The rows at the start were older; the orphan is found later."""
        self.migrate()
        before = self.row()
        before.replication_driver_data = None
        self.a.stop()
        with mock.patch('dmclone_driver.move.lookups.on_host',
                        return_value=[before]):
            self.a.start()
        self.assertEqual({}, self.a.prepared_moves.known)
        for record in self.row().volume_attachment:
            if record.connector['host'] == 'node2':
                record.destroy()
        with self.cloud.on(self.a):
            self.a.driver._update_volume_stats()
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertEqual([], self.cloud.placeholders())

    def test_orphan_that_cannot_be_deleted(self):
        """The other orphans are aborted, and it is retried."""
        other = self.a.create()
        self.migrate()
        self.cloud.attach(other, self.a)
        self.cloud.attach(other, self.b)
        for volume in self.volume, other:
            for record in self.cloud.row(volume.id).volume_attachment:
                record.destroy()
        roll_back = self.a.prepared_moves.roll_back

        def fails(context, volume, reason):
            if volume.id == self.volume.id:
                raise OSError
            return roll_back(context, volume, reason)

        self.a.prepared_moves.roll_back = fails
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertEqual([self.volume.id], list(self.a.prepared_moves.known))

    def test_orphan_that_was_written(self):
        self.migrate()
        self.b.kernel.write(self.there)
        for record in self.row().volume_attachment:
            record.destroy()
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertEqual(self.b.pool, self.row().host)

    def test_database_forgets_a_switchover_that_only_the_home_knows(self):
        """The clone is kept until the database has the commit again."""
        self.migrate()
        ids = self.volume.id, self.new.name_id
        older = self.rows(*ids)
        self.b.stop()
        self.cloud.detach(self.volume, self.a)
        newest = self.rows(*ids)
        self.write_rows(older)
        self.b.start()
        log = self.patch('dmclone_driver.move.prepared_moves.LOG')
        with self.cloud.on(self.a):
            self.a.prepared_moves.known[self.volume.id] = self.new.name_id
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertEqual(1, log.error.call_count)
        self.assertEqual(older, self.rows(*ids))
        self.assertEqual(CLONE, self.b.kernel.roles(self.new))
        self.write_rows(newest)
        for node in (self.a, self.b):
            node.stop()
            node.start()
        self.cloud.settle()
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def rows(self, *ids):
        """Read the columns of some rows that the driver writes."""
        fields = (*row_fields.EXCHANGED, 'replication_driver_data')
        return {row_id: {field: self.cloud.row(row_id)[field]
                         for field in fields} for row_id in ids}

    def write_rows(self, rows):
        for row_id, values in rows.items():
            db_api.volume_update(self.context, row_id, values)

    def test_no_orphan(self):
        self.migrate()
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.assertEqual(CLONE, self.b.kernel.roles(self.new))

    def test_no_query_without_a_prepared_move(self):
        self.patch('dmclone_driver.move.lookups.get',
                   side_effect=AssertionError('a query'))
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)

    def test_placeholder_was_deleted(self):
        self.migrate()
        records.destroy(self.context, self.new.name_id)
        with self.cloud.on(self.a):
            self.assertTrue(self.a.prepared_moves.roll_back(
                self.context, self.row(), 'test'))
        self.assertIsNone(lookups.prepared_move(self.row()))


class PeerDownTestCase(HomeTestCase):
    """The peer does not answer when a move is aborted."""

    def setUp(self):
        super().setUp()
        self.migrate()
        self.b.stop()
        self.cloud.detach(self.volume, self.b)

    def test_placeholder_stays_aborted(self):
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.assertIsNone(lookups.prepared_move(self.row()))
        self.assertEqual({}, self.a.target.exports)
        self.assertEqual(COMPLETE, self.a.kernel.roles(self.old))
        self.assertTrue(self.a.kernel.write(self.home))

    def test_peer_cleans_up(self):
        self.b.start()
        self.cloud.watch(2)
        self.assertIdle(self.a)

    def test_peer_cleans_up_after_a_reboot(self):
        self.b.reboot()
        self.b.start()
        self.cloud.watch(2)
        self.assertIdle(self.a)

    def test_volume_can_be_attached_elsewhere(self):
        third = self.cloud.add('node3')
        self.cloud.detach(self.volume, self.a)
        self.cloud.attach(self.volume, third)
        self.b.start()
        self.cloud.watch(3)
        self.assertIdle(third)

    def test_write_to_an_aborted_destination_fails(self):
        """It was not acknowledged."""
        self.b.kernel.write(self.there)
        self.b.start()
        self.cloud.watch(3)
        self.assertIdle(self.a)


@ddt.ddt
class FailureTestCase(HomeTestCase):
    """If a step fails, the volume has one home, without leftovers."""

    def _attach(self, volume):
        self.cloud.attach(volume, self.b)

    @ddt.data(False, True)
    def test_each_step_of_a_move(self, after):
        """A failure before the switchover undoes everything at once."""
        wrong, failed = {}, 0
        for step, volume, error in self.each_step(self._attach, after=after):
            if error is None:
                # After the switchover a failed step is repeated later.
                self.cloud.watch(4)
                home = self.b
            else:
                failed += 1
                home = self.a
            row = self.cloud.row(volume.id)
            left = self.cloud.leftovers()
            if row.host != home.pool:
                left.append('it is on ' + row.host)
            if left:
                wrong[step] = left
        self.assertEqual({}, wrong)
        # Some steps are before the switchover.
        self.assertGreater(failed, 15 * base.PERCENT // 100)

    @ddt.data(False, True)
    def test_each_step_of_a_move_back(self, after):
        """The peer's attachment is deleted; a failed step is repeated."""
        def before(volume):
            self.cloud.attach(volume, self.a)
            self.cloud.attach(volume, self.b)

        wrong = {}
        for step, volume, error in self.each_step(
                lambda volume: self.cloud.detach(volume, self.b),
                before=before, after=after):
            if error is not None:
                with self.cloud.on(self.a):
                    self.a.driver.terminate_connection(
                        self.cloud.row(volume.id), self.b.connector)
            self.cloud.watch(3)
            if self.cloud.leftovers():
                wrong[step] = self.cloud.leftovers()
        self.assertEqual({}, wrong)

    def test_switchover_fails(self):
        self.patch('dmclone_driver.move.records.switch_over',
                   side_effect=RuntimeError('no database'))
        error = self.attach_error()
        self.assertIsInstance(error, exception.MoveFailed)
        for part in (self.volume.id, self.b.host, 'no database',
                     'It stays where it was'):
            self.assertIn(part, error.msg)
        self.assertIdle(self.a)

    def test_reason_is_a_sentence(self):
        """A reason that ends with a full stop is not given another one."""
        self.patch('dmclone_driver.move.records.switch_over',
                   side_effect=RuntimeError('The volume group is full.'))
        self.assertIn('is full. It stays', self.attach_error().msg)

    def lose_answer(self, function):
        """Make a function of records raise after its transaction."""
        real = getattr(records, function)

        def lose(*args, **kwargs):
            real(*args, **kwargs)
            raise RuntimeError('lost')
        return mock.patch('dmclone_driver.move.records.' + function, new=lose)

    def test_answer_to_the_beginning_is_lost(self):
        """The begun move is an orphan, and is aborted."""
        with self.lose_answer('begin'):
            self.assertRaises(RuntimeError, self.cloud.attach, self.volume,
                              self.b)
        self.assertEqual([State.PREPARED], self.cloud.states())
        for attachment in self.row().volume_attachment:
            attachment.destroy()
        self.cloud.watch(2)
        self.assertIdle(self.a)

    def test_beginning_is_not_there_where_the_volume_is_read(self):
        begin = records.begin
        stale = mock.patch('cinder.objects.Volume.refresh')
        self.addCleanup(stale.stop)

        def begins(*args):
            begin(*args)
            stale.start()

        with mock.patch('dmclone_driver.move.records.begin', new=begins):
            error = self.attach_error()
        stale.stop()
        self.assertIn('last transactions', error.msg)
        self.cloud.settle()
        self.assertIdle(self.a)

    def test_answer_to_the_switchover_is_lost(self):
        """The volume has moved, and the error says so."""
        self.cloud.steps.start()
        with self.lose_answer('switch_over'):
            error = self.attach_error()
        self.assertIsInstance(error, exception.MoveRefused)
        self.assertIn('it has just moved to ' + self.b.pool, error.msg)
        self.assertNotAskedItself()
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def test_peer_switches_over_at_the_same_moment(self):
        self.migrate()
        real = records.switch_over
        self.cloud.steps.start()
        with mock.patch('dmclone_driver.move.records.switch_over',
                        new=lambda *args: real(*args) and real(*args)):
            self.cloud.detach(self.volume, self.a)
        self.assertNotAskedItself()
        self.assertEqual({}, self.a.requests.pending)
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def assertNotAskedItself(self):
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if step.startswith('node1: ask node1')])

    def test_peer_that_does_not_answer_an_abort_is_asked_once(self):
        self.migrate()
        self.b.stop()
        self.cloud.steps.start()
        self.cloud.detach(self.volume, self.b)
        self.assertEqual(1, len([step for step in self.cloud.steps.log
                                 if step.startswith('node1: ask node2')]))
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.b.start()
        self.cloud.watch(2)
        self.assertIdle(self.a)

    def test_export_that_could_not_be_ended_is_needed_again(self):
        self.migrate()
        unexport = self.a.backend.target.unexport
        self.a.backend.target.unexport = None
        self.cloud.detach(self.volume, self.b)
        self.a.backend.target.unexport = unexport
        self.cloud.attach(self.volume, self.b)
        self.cloud.pass_time(1000)
        self.a.look()
        self.assertEqual(1, len(self.a.target.exports))

    def test_peer_is_lost_while_it_prepares(self):
        """The destination is removed when the peer is back."""
        prepare = self.a.backend.client.prepare

        def lose_peer(*args, **kwargs):
            prepare(*args, **kwargs)
            self.b.stop()
            return prepare(*args, **kwargs)

        self.a.backend.client.prepare = lose_peer
        error = self.attach_error()
        for part in (self.volume.id, self.b.host, 'did not answer prepare'):
            self.assertIn(part, error.msg)
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.assertEqual({}, self.a.target.exports)
        self.b.start()
        self.cloud.watch(2)
        self.assertIdle(self.a)


@ddt.ddt
class RefusalTestCase(HomeTestCase):
    """Moves that cannot succeed are refused without any change."""

    def assertRefused(self, *parts):
        error = self.attach_error()
        self.assertIsInstance(error, exception.MoveRefused)
        for part in (self.volume.id, 'node2') + parts:
            self.assertIn(part, error.msg)
        self.assertEqual(1, len(self.cloud.rows()))
        self.assertEqual({}, self.a.target.exports)
        self.assertEqual([], self.b.lvm.names())

    def test_names_that_the_record_cannot_keep(self):
        self.b.initiator = 'iqn.' + 'x' * 160
        self.assertRefused('iqn.xxx', 'too long together')

    def test_too_many_at_a_time(self):
        waited = []
        turns = mock.Mock(acquire=lambda timeout: waited.append(timeout))
        with mock.patch.dict(self.a.home_side._turns, {self.b.host: turns}):
            self.assertRefused('2 volumes at a time', 'try again')
        self.assertLess(1, waited[0])
        turns.release.assert_not_called()
        for _ in range(home.MOVES_AT_ONCE + 1):
            # A refused one gives its turn back.
            with mock.patch.object(self.a.preflight, 'check',
                                   side_effect=OSError('no')):
                self.assertRefused('no')
        self.cloud.attach(self.volume, self.b)

    def test_exported(self):
        records.set_export(self.context, self.row(), 'somewhere', 'x')
        self.assertRefused('in use over iSCSI')

    def test_open(self):
        self.a.kernel.get(self.old.path()).opened += 1
        self.assertRefused(self.old.path(), 'still open')

    def test_clone_whose_metadata_has_failed(self):
        """It is refused, since the clone cannot be a source."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        name, = self.b.clones()
        self.b.kernel.get(name).clone.mode = 'ro'
        error = self.attach_error(self.a)
        self.assertIn('metadata', error.msg)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_disk_that_cannot_flush(self):
        """It is refused, since acknowledged writes would be lost."""
        self.patch('dmclone_driver.privsep.block.flush_disk',
                   side_effect=OSError('no flush'))
        error = self.attach_error()
        self.assertIn('no flush', error.msg)
        self.assertIdle(self.a)

    def test_open_where_it_is_attached(self):
        self.cloud.attach(self.volume, self.a)
        self.a.kernel.get(self.old.path()).opened += 1
        self.cloud.attach(self.volume, self.b)
        self.assertEqual([State.PREPARED], self.cloud.states())

    def test_no_room(self):
        self.b.lvm.groups['volumes'] = storage.GIB // 2
        self.assertRefused('needs 1 GiB', 'only 0.50 GiB left')

    def test_reserved_room(self):
        self.override_config('reserved_percentage', 100,
                             group=cloud.BACKEND)
        self.assertRefused('needs 1 GiB', 'only 0.00 GiB left',
                           'reserved_percentage = 100')

    def give_type(self, **extra_specs):
        """Give the volume a type with extra specs."""
        volume_type = volume_types.create(self.context, 'picky', extra_specs)
        row = self.row()
        row.volume_type_id = volume_type['id']
        row.save()

    def test_type_that_wants_other_metadata(self):
        self.give_type(**{'capabilities:dmclone_metadata_backend': 'zram'})
        self.assertRefused('wants dmclone_metadata_backend zram',
                           'there it is lvm')

    def test_type_that_wants_this_metadata(self):
        self.give_type(dmclone_metadata_persistent='<is> True', other='x')
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.b.pool, self.row().host)

    @ddt.data('zone-node1', 'zone-node1, zone-node3', '')
    def test_type_of_other_zones(self, zones):
        self.give_type(**{'RESKEY:availability_zones': zones})
        self.assertRefused('availability zones %s,' % zones,
                           'in zone-node2')

    def test_type_of_this_zone(self):
        self.give_type(**{'RESKEY:availability_zones':
                          'zone-node1, zone-node2'})
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.b.pool, self.row().host)

    def test_peer_does_not_answer(self):
        self.b.stop()
        self.assertRefused('node2@dmclone did not answer describe')

    def test_another_peer_does_not_answer(self):
        """An attach does not wait for another volume's peer."""
        other = self.a.create()
        third = self.cloud.add('node3')
        self.cloud.attach(other, self.a)
        self.cloud.attach(other, third)
        third.stop()
        self.cloud.detach(other, third)
        self.assertEqual(1, len(self.a.requests.pending))
        self.cloud.steps.start()
        self.cloud.attach(self.volume, self.b)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'ask ' + third.host in step])


class WhileMovingTestCase(HomeTestCase):

    def refuse(self):
        volume = self.row()
        node = self.cloud.by_host[lookups.backend_of(volume)]
        with self.cloud.on(node):
            node.preflight.refuse_while_moving(self.context, volume, 'lift')

    def assertMoving(self):
        error = self.assertRaises(exception.NotWhileMoving, self.refuse)
        for part in ('lift', self.volume.id, 'from node1 to node2'):
            self.assertIn(part, error.msg)

    def test_in_one_place(self):
        self.refuse()

    def test_prepared(self):
        self.migrate()
        self.assertMoving()

    def test_switched(self):
        self.cloud.attach(self.volume, self.b)
        self.assertMoving()

    def test_complete(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.refuse()

    def test_complete_but_the_old_home_is_away(self):
        """The released source on the old home does not count."""
        self.cloud.attach(self.volume, self.b)
        self.a.stop()
        self.cloud.watch(3)
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.refuse()
