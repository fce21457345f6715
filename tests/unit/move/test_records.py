# SPDX-License-Identifier: Apache-2.0
"""The rows of volumes and placeholders, with a real database."""

from unittest import mock
import uuid

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.tests.unit import utils
from sqlalchemy import event
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import row_repairs
from dmclone_driver.move import transactions
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit import base

A, B, C = ('node%d@dmclone#dmclone' % number for number in (1, 2, 3))
LEFT = ('id', 'created_at', 'updated_at', 'deleted_at', 'deleted',
        'replication_driver_data')


def peer(host):
    return peers.Peer(backend_host=host.partition('#')[0], host=host,
                      service_uuid=str(uuid.uuid4()),
                      availability_zone='zone of ' + host)


class RecordsTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.context = cinder_context.RequestContext(
            user_id=uuid.uuid4().hex, project_id=uuid.uuid4().hex,
            is_admin=False)
        self.volume = utils.create_volume(
            self.context, host=A, size=7, volume_type_id=self.vt['id'],
            status='in-use', service_uuid=str(uuid.uuid4()),
            availability_zone='zone of A', provider_id='id of A',
            provider_geometry='geometry of A', display_name='mine')
        records.set_export(self.context, self.volume, 'where', 'secret')

    def begin(self, host=B, row=None):
        placeholder_id = str(uuid.uuid4())
        records.begin(self.context, row or self.read(self.volume.id),
                      placeholder_id, peer(host), 'iqn.of.' + host,
                      'nova-name')
        return placeholder_id

    def read(self, volume_id):
        return lookups.get(self.context, volume_id)

    def raw(self, *ids):
        """Read all columns of rows from the database."""
        admin = self.context.elevated()
        with db_api.main_context_manager.reader.using(admin):
            rows = {row.id: {column.name: getattr(row, column.name)
                             for column in models.Volume.__table__.columns}
                    for row in admin.session.query(models.Volume)}
        return [rows[row_id] for row_id in ids]

    def assertAllOrNothing(self, act, read):
        """Check that a transaction is rolled back after each write."""
        before, wrong = read(), []

        def fail(session, context):
            wrong[0] -= 1
            if not wrong[0]:
                raise ZeroDivisionError

        event.listen(orm.Session, 'after_flush', fail)
        self.addCleanup(event.remove, orm.Session, 'after_flush', fail)
        for number in range(1, 5):
            wrong[:] = [number]
            try:
                act()
            except ZeroDivisionError:
                self.assertEqual(before, read())
            else:
                break
        self.assertGreater(number, 1)
        self.assertNotEqual(before, read())


class BeginTestCase(RecordsTestCase):

    def test_placeholder(self):
        placeholder = self.read(self.begin())
        self.assertEqual(B, placeholder.host)
        self.assertEqual('zone of ' + B, placeholder.availability_zone)
        self.assertEqual('dmclone_driver', placeholder.project_id)
        self.assertEqual('dmclone_driver', placeholder.user_id)
        self.assertEqual(self.volume.volume_type_id,
                         placeholder.volume_type_id)
        self.assertEqual(7, placeholder.size)
        self.assertEqual('maintenance', placeholder.status)
        self.assertFalse(placeholder.use_quota)
        self.assertTrue(placeholders.is_placeholder(placeholder))
        self.assertEqual(self.volume.id,
                         placeholders.record_of(placeholder).volume)
        self.assertEqual(
            placeholders.Record(State.PREPARED, self.volume.id,
                                'iqn.of.' + B, 'nova-name'),
            placeholders.record_of(placeholder))

    def test_users_do_not_see_it(self):
        """A placeholder is not in the user's project."""
        placeholder_id = self.begin()
        seen = objects.VolumeList.get_all_by_project(
            self.context, self.context.project_id)
        self.assertEqual([self.volume.id], [row.id for row in seen])
        self.assertNotEqual(self.volume.id, placeholder_id)

    def test_volume_is_locked(self):
        placeholder_id = self.begin()
        volume = self.read(self.volume.id)
        self.assertEqual(placeholder_id, lookups.prepared_move(volume))
        self.assertEqual(A, volume.host)
        self.assertFalse(placeholders.is_placeholder(volume))
        self.assertRaises(exception.MoveRefused, self.begin, C)
        rows = objects.VolumeList.get_all(self.context.elevated())
        self.assertEqual(2, len(rows))

    def test_stale_copy_of_the_row(self):
        stale = self.read(self.volume.id)
        records.switch_over(self.context, self.volume.id, self.begin())
        self.assertRaises(exception.MoveRefused, self.begin, C, stale)

    def test_is_one_transaction(self):
        def read():
            return [(row.id, row.replication_driver_data) for row in
                    objects.VolumeList.get_all(self.context.elevated())]

        self.assertAllOrNothing(self.begin, read)

    def test_volume_is_gone(self):
        stale = self.read(self.volume.id)
        records.destroy(self.context, self.volume.id)
        self.assertRaises(exception.MoveRefused, self.begin, B, stale)

    def test_record_fits_its_column(self):
        record = placeholders.Record(State.SWITCHED, str(uuid.uuid4()),
                                     'i' * 80, 'n' * 64)
        self.assertGreater(255, len(record.text()))


class CheckPreparedTestCase(RecordsTestCase):

    def check(self, placeholder_id):
        return records.check_prepared(self.context, self.volume.id,
                                      placeholder_id)

    def test_prepared(self):
        self.check(self.begin())

    def test_aborted(self):
        placeholder_id = self.begin()
        records.abort(self.context, self.volume.id, placeholder_id)
        error = self.assertRaises(exception.MoveGone, self.check,
                                  placeholder_id)
        self.assertIn(self.volume.id, error.msg)
        self.assertIn('aborted', error.msg)

    def test_switched(self):
        placeholder_id = self.begin()
        records.switch_over(self.context, self.volume.id, placeholder_id)
        self.assertRaises(exception.MoveGone, self.check, placeholder_id)

    def test_another_has_its_place(self):
        old = self.begin()
        records.abort(self.context, self.volume.id, old)
        self.check(self.begin(C))
        self.assertRaises(exception.MoveGone, self.check, old)

    def test_deleted(self):
        placeholder_id = self.begin()
        records.destroy(self.context, placeholder_id)
        self.assertRaises(exception.MoveGone, self.check, placeholder_id)


class SwitchoverTestCase(RecordsTestCase):

    def switch_over(self, placeholder_id):
        return records.switch_over(self.context, self.volume.id,
                                   placeholder_id)

    def test_exchanges_what_belongs_to_the_logical_volume_only(self):
        placeholder_id = self.begin()
        ids = self.volume.id, placeholder_id
        mine, other = self.raw(*ids)
        self.assertTrue(self.switch_over(placeholder_id))
        mine_after, other_after = self.raw(*ids)
        exchanged = {'host', 'cluster_name', 'availability_zone',
                     'service_uuid', 'provider_id', 'provider_location',
                     'provider_auth', 'provider_geometry'}
        for field in exchanged:
            self.assertEqual((other[field], mine[field]),
                             (mine_after[field], other_after[field]), field)
        self.assertEqual((placeholder_id, self.volume.id),
                         (mine_after['_name_id'], other_after['_name_id']))
        for field in set(mine) - exchanged - set(LEFT) - {'_name_id'}:
            self.assertEqual((mine[field], other[field]),
                             (mine_after[field], other_after[field]), field)
        self.assertIsNone(mine_after['replication_driver_data'])
        self.assertEqual(State.SWITCHED, placeholders.record_of(
            self.read(placeholder_id)).state)
        # The export belongs to the exported logical volume.
        self.assertEqual('where', other_after['provider_location'])

    def test_twice(self):
        placeholder_id = self.begin()
        self.assertIs(True, self.switch_over(placeholder_id))
        before = self.raw(self.volume.id, placeholder_id)
        self.assertIs(False, self.switch_over(placeholder_id))
        self.assertEqual(before, self.raw(self.volume.id, placeholder_id))

    def test_after_abort(self):
        placeholder_id = self.begin()
        self.assertTrue(records.abort(self.context, self.volume.id,
                                      placeholder_id))
        before = self.raw(self.volume.id, placeholder_id)
        self.assertRaises(exception.MoveGone, self.switch_over,
                          placeholder_id)
        self.assertEqual(before, self.raw(self.volume.id, placeholder_id))

    def test_placeholder_says_otherwise(self):
        """It is refused unless both rows agree."""
        placeholder_id = self.begin()
        row = self.read(placeholder_id)
        row.replication_driver_data = placeholders.record_of(row).but(
            State.ABORTED).text()
        row.save()
        self.assertRaises(exception.MoveGone, self.switch_over,
                          placeholder_id)
        self.assertEqual(A, self.read(self.volume.id).host)

    def test_volume_that_has_never_moved_and_no_move(self):
        self.assertRaises(exception.MoveGone, records.switch_over,
                          self.context, self.volume.id, None)

    def test_after_the_placeholder_is_gone(self):
        placeholder_id = self.begin()
        records.abort(self.context, self.volume.id, placeholder_id)
        records.destroy(self.context, placeholder_id)
        self.assertRaises(exception.MoveGone, self.switch_over,
                          placeholder_id)
        self.assertEqual(A, self.read(self.volume.id).host)

    def test_is_one_transaction(self):
        placeholder_id = self.begin()
        with self.assertLogs(transactions.__name__, 'INFO') as logs:
            self.assertAllOrNothing(
                lambda: self.switch_over(placeholder_id),
                lambda: self.raw(self.volume.id, placeholder_id))
        # Nor is a line logged about what has not happened.
        self.assertEqual(1, len(logs.output))
        self.assertIn('%s is switched over to %s' % (self.volume.id, B),
                      logs.output[0])

    def test_chain(self):
        """From A to B to C, without hydration."""
        first = self.begin(B)
        self.switch_over(first)
        second = self.begin(C)
        self.switch_over(second)
        volume = self.read(self.volume.id)
        self.assertEqual((C, second), (volume.host, volume.name_id))
        for name_id, host, source in ((second, B, first),
                                      (first, A, self.volume.id)):
            row = lookups.source_row(self.context, name_id)
            self.assertEqual((host, source), (row.host, row.name_id))
        self.assertIsNone(lookups.source_row(self.context, self.volume.id))

    def chain(self):
        """Return the ids of the sources that the volume still needs."""
        return [each.id for each in lookups.chain(
            self.context, lookups.placeholder(
                self.context, self.read(self.volume.id).name_id))]

    def test_length_of_a_chain(self):
        self.assertEqual([], self.chain())
        first = self.begin(B)
        self.assertEqual([], self.chain())
        self.switch_over(first)
        second = self.begin(C)
        self.assertEqual([first], self.chain())
        self.switch_over(second)
        self.assertEqual([second, first], self.chain())
        records.lose(self.context, first)
        self.assertEqual([second, first], self.chain())

    def test_end_of_a_chain(self):
        """Neither a released source counts, nor what only it needs."""
        first = self.begin(B)
        self.switch_over(first)
        second = self.begin(C)
        self.switch_over(second)
        records.release(self.context, second)
        self.assertEqual([], self.chain())

    def test_chain_without_an_end(self):
        """An operator has recreated a row by hand."""
        first = self.begin(B)
        self.switch_over(first)
        db_api.volume_update(self.context, first, {'_name_id': first})
        self.assertEqual([first], self.chain())

    def test_there_and_back(self):
        """The names differ, since the old logical volume still exists."""
        first = self.begin(B)
        self.switch_over(first)
        second = self.begin(A)
        self.switch_over(second)
        rows = [self.read(row) for row in (self.volume.id, first, second)]
        self.assertEqual([(A, second), (A, self.volume.id), (B, first)],
                         [(row.host, row.name_id) for row in rows])


class AbortTestCase(RecordsTestCase):

    def abort(self, placeholder_id):
        return records.abort(self.context, self.volume.id, placeholder_id)

    def test_frees_the_volume(self):
        placeholder_id = self.begin()
        self.assertIs(True, self.abort(placeholder_id))
        volume, placeholder = map(self.read, (self.volume.id,
                                              placeholder_id))
        self.assertIsNone(lookups.prepared_move(volume))
        self.assertEqual(A, volume.host)
        self.assertEqual(State.ABORTED,
                         placeholders.record_of(placeholder).state)
        # The session is ended with the data of this row.
        self.assertEqual((None, None), (volume.provider_location,
                                        volume.provider_auth))
        self.assertEqual(('where', 'secret'), (
            placeholder.provider_location, placeholder.provider_auth))
        self.begin(C)

    def test_after_switchover(self):
        placeholder_id = self.begin()
        records.switch_over(self.context, self.volume.id, placeholder_id)
        before = self.raw(self.volume.id, placeholder_id)
        self.assertIs(False, self.abort(placeholder_id))
        self.assertEqual(before, self.raw(self.volume.id, placeholder_id))

    def test_after_loss(self):
        placeholder_id = self.begin()
        records.switch_over(self.context, self.volume.id, placeholder_id)
        self.assertTrue(records.lose(self.context, placeholder_id))
        self.assertIs(False, records.abort(self.context, self.volume.id,
                                           placeholder_id))
        self.assertEqual(State.LOST, lookups.placeholder(
            self.context, placeholder_id).state)

    def test_after_release(self):
        placeholder_id = self.begin()
        records.switch_over(self.context, self.volume.id, placeholder_id)
        records.release(self.context, placeholder_id)
        self.assertIs(False, self.abort(placeholder_id))

    def test_twice(self):
        placeholder_id = self.begin()
        self.abort(placeholder_id)
        self.assertIs(True, self.abort(placeholder_id))
        self.assertEqual('where', self.read(placeholder_id).provider_location)

    def test_leaves_its_successor_alone(self):
        old = self.begin()
        self.abort(old)
        new = self.begin(C)
        self.abort(old)
        self.assertEqual(new, lookups.prepared_move(
            self.read(self.volume.id)))

    def test_placeholder_is_gone(self):
        placeholder_id = self.begin()
        records.destroy(self.context, placeholder_id)
        self.assertIs(True, self.abort(placeholder_id))
        self.begin(C)

    def test_is_one_transaction(self):
        placeholder_id = self.begin()
        self.assertAllOrNothing(
            lambda: self.abort(placeholder_id),
            lambda: self.raw(self.volume.id, placeholder_id))


class OfABackendTestCase(RecordsTestCase):
    """Rows of a backend whose name another backend's begins with."""

    def test_others(self):
        self.begin()
        admin = self.context.elevated()
        self.assertEqual([self.volume.id], list(
            lookups.moves_from(admin, 'node1@dmclone').prepared))
        for other in ('node1@dmclon', 'node_@dmclone', 'node1@dmclone2'):
            self.assertEqual(lookups.Moves({}, []),
                             lookups.moves_from(admin, other))
        row = self.read(self.volume.id)
        row.provider_id = B
        row.save()
        self.assertEqual([self.volume.id],
                         row_repairs.altered(admin, 'node1@dmclone'))
        for other in ('node1@dmclon', 'node_@dmclone', 'node1@dmclone2'):
            self.assertEqual([], row_repairs.altered(admin, other))
        row.host = 'node3@dmclone'
        row.save()
        self.assertEqual([self.volume.id],
                         row_repairs.altered(admin, 'node3@dmclone'))


class ReleaseTestCase(RecordsTestCase):

    def unfinished(self):
        rows = lookups.placeholders_of(self.context, {self.volume.id})
        return [row.id for row in rows
                if row.state in (State.RELEASED, State.ABORTED)]

    def test_release(self):
        placeholder_id = self.begin()
        self.assertEqual([], self.unfinished())
        records.switch_over(self.context, self.volume.id, placeholder_id)
        self.assertEqual([], self.unfinished())
        self.assertIs(True, records.release(self.context, placeholder_id))
        self.assertEqual([placeholder_id], self.unfinished())
        self.assertIsNone(lookups.source_row(self.context, placeholder_id))

    def test_aborted(self):
        placeholder_id = self.begin()
        records.abort(self.context, self.volume.id, placeholder_id)
        self.assertEqual([placeholder_id], self.unfinished())
        records.destroy(self.context, placeholder_id)
        self.assertEqual([], self.unfinished())

    def test_gone(self):
        placeholder_id = self.begin()
        records.destroy(self.context, placeholder_id)
        self.assertIs(False, records.release(self.context, placeholder_id))

    def test_others_in_maintenance(self):
        """Cinder itself uses this status and migration_status."""
        utils.create_volume(self.context, status='maintenance',
                            volume_type_id=self.vt['id'],
                            migration_status='dmclone:' + self.volume.id)
        self.assertEqual([], self.unfinished())


class RowsTestCase(RecordsTestCase):

    def test_row_that_is_not_there_where_it_is_read(self):
        with mock.patch('cinder.objects.Volume.get_by_id',
                        side_effect=cinder_exception.VolumeNotFound(
                            volume_id=self.volume.id)):
            self.assertRaises(exception.ReadLagsBehind, self.read,
                              self.volume.id)
            self.assertIsNone(self.read(str(uuid.uuid4())))

    def test_placeholder(self):
        placeholder_id = self.begin()
        self.assertEqual(placeholder_id, lookups.placeholder(
            self.context, placeholder_id).id)
        for other in (self.volume.id, str(uuid.uuid4())):
            self.assertIsNone(lookups.placeholder(self.context, other))

    def test_source_row(self):
        self.assertIsNone(lookups.source_row(self.context, self.volume.id))
        self.assertIsNone(lookups.source_row(self.context,
                                             str(uuid.uuid4())))
        placeholder_id = self.begin()
        self.assertEqual(self.volume.id, lookups.source_row(
            self.context, placeholder_id).id)
        records.switch_over(self.context, self.volume.id, placeholder_id)
        self.assertEqual(placeholder_id, lookups.source_row(
            self.context, placeholder_id).id)

    def test_source_row_of_an_aborted_move(self):
        placeholder_id = self.begin()
        records.abort(self.context, self.volume.id, placeholder_id)
        self.assertIsNone(lookups.source_row(self.context, placeholder_id))

    def test_owner_row(self):
        def owner(name_id):
            return lookups.owner_row(self.context, name_id).id

        placeholder_id = self.begin()
        self.assertEqual(self.volume.id, owner(self.volume.id))
        self.assertEqual(placeholder_id, owner(placeholder_id))
        records.switch_over(self.context, self.volume.id, placeholder_id)
        self.assertEqual(placeholder_id, owner(self.volume.id))
        self.assertEqual(self.volume.id, owner(placeholder_id))
        self.assertIsNone(lookups.owner_row(self.context,
                                            str(uuid.uuid4())))

    def test_owner_row_needs_no_search(self):
        """No index of Cinder's has the column of name ids."""
        placeholder_id = self.begin()
        records.switch_over(self.context, self.volume.id, placeholder_id)
        with mock.patch('cinder.objects.VolumeList.get_all',
                        side_effect=AssertionError):
            self.assertEqual(self.volume.id, lookups.owner_row(
                self.context, placeholder_id).id)

    def test_owner_row_in_a_chain(self):
        """The first placeholder is not the volume's own source any longer."""
        first = self.begin()
        records.switch_over(self.context, self.volume.id, first)
        second = self.begin(C)
        records.switch_over(self.context, self.volume.id, second)
        self.assertEqual([self.volume.id, second, first], [
            lookups.owner_row(self.context, name_id).id
            for name_id in (second, first, self.volume.id)])

    def test_on_host(self):
        placeholder_id = self.begin()
        for host, expected in ((A, self.volume.id), (B, placeholder_id)):
            (one,), (other,) = (
                lookups.on_host(self.context, host.partition('#')[0], each)
                for each in (False, True))
            self.assertEqual(expected, one.id)
            self.assertEqual([False, True], [
                row.obj_attr_is_set('volume_attachment')
                for row in (one, other)])
            self.assertEqual(0, len(one.volume_attachment))
            self.assertEqual(*(row.obj_to_primitive() for row in (one,
                                                                  other)))

    def test_get(self):
        self.assertIsNone(self.read(str(uuid.uuid4())))
        placeholder_id = self.begin()
        records.destroy(self.context, placeholder_id)
        self.assertIsNone(self.read(placeholder_id))

    def test_export_of_a_volume_that_has_moved(self):
        """A late export by the old home does not change the new row."""
        placeholder_id = self.begin()
        late = self.read(self.volume.id)
        records.switch_over(self.context, self.volume.id, placeholder_id)
        records.set_export(self.context, late, 'late', 'secret')
        self.assertIsNone(lookups.get(
            self.context, self.volume.id).provider_location)

    def test_export_for_a_move_that_was_aborted(self):
        """A late export does not mark the volume as in use."""
        placeholder_id = self.begin()
        late = self.read(self.volume.id)
        records.abort(self.context, self.volume.id, placeholder_id)
        records.set_export(self.context, late, 'late', 'secret')
        self.assertIsNone(self.read(self.volume.id).provider_location)

    def test_set_export(self):
        records.set_export(self.context, self.volume, None, None)
        volume = self.read(self.volume.id)
        self.assertEqual((None, None), (volume.provider_location,
                                        volume.provider_auth))
