# SPDX-License-Identifier: Apache-2.0
"""The reports of a backend: what they say, and that they do no harm."""

import json
from unittest import mock
import uuid

from cinder import context as cinder_context
from cinder.tests.unit import utils as cinder_utils
import ddt
from oslo_db import exception as db_exception

from dmclone_driver import exception
from dmclone_driver.move import hydration
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move import records
from dmclone_driver.move import report
from dmclone_driver.move.report import MoveState
from dmclone_driver.move.report import Role
from dmclone_driver.move.report import Wait
from dmclone_driver.move import report_rows
from dmclone_driver.move import rpcapi
from dmclone_driver.move import sightings
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit import base
from tests.unit.fakes import cloud

GIB = cloud.GIB


class ReporterTestCase(base.QueriesTestCase):

    def _query(self, connection, cursor, statement, *args):
        if statement != 'BEGIN':
            super()._query(connection, cursor, statement, *args)

    def report(self, node):
        """Return a node's report as another process gets it.

        Each call has a context that was not used before.
        """
        with self.cloud.on(node):
            found = node.server.endpoint.report(
                cinder_context.RequestContext('user', 'project'))
        return report.Report.parse(json.loads(json.dumps(found)))

    def move(self, node):
        """Return the only move in a node's report."""
        found, = self.report(node).moves
        return found

    def names(self):
        return Names(self.row().name_id)

    def clone(self):
        return self.b.kernel.devices[self.names().of('clone')].own


@ddt.ddt
class ContentTestCase(ReporterTestCase):

    def test_idle(self):
        self.assertEqual(report.Report(
            backend=self.a.host, version=self.a.driver.VERSION,
            database=True, looked=None, volumes=1, free=99 * GIB,
            total=100 * GIB, metadata='lvm', persistent=True),
            self.report(self.a))
        self.a.look()
        self.cloud.pass_time(5)
        self.assertEqual((0, 5), (self.report(self.b).volumes,
                                  self.report(self.a).looked))

    def test_client(self):
        with self.cloud.on(self.b):
            found = rpcapi.PeerClient().report(self.context, self.a.host)
        self.assertEqual((self.a.host, 1), (found.backend, found.volumes))

    def test_report_of_a_newer_version(self):
        plain = self.report(self.a).as_dict()
        plain['more'] = 1
        plain['sources'] = [{
            'placeholder': 'p', 'name_id': 'n', 'volume': 'v', 'reader': 'r',
            'state': 'switched', 'size': 1, 'more': 2}]
        found, = report.Report.parse(plain).sources
        self.assertEqual(('p', ''), (found.placeholder, found.snapshot))

    def test_prepared(self):
        """A live migration: both sides show it."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        placeholder = lookups.prepared_move(self.row())
        mine = dict(volume=self.volume.id, placeholder=placeholder,
                    source=self.a.host, destination=self.b.host)
        self.assertEqual(report.Move(
            role=Role.HOME, state=MoveState.PREPARED, waits=Wait.GATE,
            **mine), self.move(self.a))
        self.assertEqual(report.Move(
            role=Role.DESTINATION, state=MoveState.PREPARED, waits=Wait.GATE,
            hydrated=0, total=16384, copied=0, size=GIB, progress=0, **mine),
            self.move(self.b))
        self.assertEqual((1, 0), (self.report(self.a).volumes,
                                  self.report(self.b).volumes))

    def test_being_prepared(self):
        """Also if the node of the destination went down meanwhile."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        move = self.move(self.b)
        self.assertEqual((MoveState.PREPARED, Wait.PREPARATION, None),
                         (move.state, move.waits, move.hydrated))

    def test_hydrating(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        names = self.names()
        move = self.move(self.b)
        self.assertEqual(report.Move(
            volume=self.volume.id, placeholder=names.name_id,
            source=self.a.host, destination=self.b.host,
            role=Role.DESTINATION, state=MoveState.HYDRATING, hydrated=0,
            total=16384, copied=0, size=GIB, progress=0), move)
        kept = self.report(self.a)
        self.assertEqual((0, (), (report.Source(
            placeholder=names.name_id, name_id=self.volume.id,
            volume=self.volume.id, reader=self.b.host, state='switched',
            size=GIB),)), (kept.volumes, kept.moves, kept.sources))

    def test_progress_and_rate(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        for seconds, regions in ((5, 100), (5, 220), (3, 220)):
            self.cloud.pass_time(seconds)
            self.clone().bitmap['hydrated'] = regions
            self.b.look()
        self.cloud.pass_time(4)
        move = self.move(self.b)
        self.assertEqual((220, 220 * 65536, 7),
                         (move.hydrated, move.copied, move.progress))
        self.assertEqual(220 * 65536 / 10, move.rate)
        self.cloud.pass_time(hydration.STALLED)
        self.assertEqual(Wait.PROGRESS, self.move(self.b).waits)
        self.b.look()
        self.assertEqual(0, self.move(self.b).rate)

    def test_complete(self):
        self.cloud.attach(self.volume, self.b)
        self.b.hydrate()
        self.b.look()
        # The clone was seen, and is gone.
        move = self.move(self.b)
        self.assertEqual((MoveState.COMPLETE, Wait.NOTHING, GIB),
                         (move.state, move.waits, move.copied))
        self.b.look()
        self.assertEqual((), self.report(self.b).moves)
        self.cloud.watch(2)
        self.assertEqual((), self.report(self.a).sources)

    def test_session_is_lost(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        self.a.target.forget()
        self.a.server = None
        self.b.look_at_sessions()
        self.assertEqual(Wait.SESSION, self.move(self.b).waits)

    def test_source_is_not_there_after_a_reboot(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        self.a.die()
        self.b.reboot()
        self.b.start()
        move = self.move(self.b)
        self.assertEqual((MoveState.SWITCHED, Wait.RECOVERY, self.a.host),
                         (move.state, move.waits, move.source))
        self.cloud.settle()
        self.b.look()
        self.assertEqual(
            (MoveState.SWITCHED, Wait.CONNECTION),
            (self.move(self.b).state, self.move(self.b).waits))

    def test_hydration_has_to_start(self):
        self.cloud.attach(self.volume, self.b)
        self.clone().hydration = False
        with mock.patch.object(self.b.activation, 'hydrate',
                               return_value=False):
            self.b.look()
        self.assertEqual((MoveState.SWITCHED, Wait.START),
                         (self.move(self.b).state, self.move(self.b).waits))

    def test_metadata_has_failed(self):
        self.cloud.attach(self.volume, self.b)
        self.clone().mode = 'ro'
        self.b.look()
        move = self.move(self.b)
        self.assertEqual((MoveState.SWITCHED, Wait.METADATA, None),
                         (move.state, move.waits, move.hydrated))

    def test_source_is_lost(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        self.a.die()
        records.lose(self.context, self.row().name_id)
        self.b.look()
        move = self.move(self.b)
        self.assertEqual((MoveState.LOST, Wait.SOURCE),
                         (move.state, move.waits))

    def test_gate_of_a_volume_that_has_switched_over(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        placeholder = lookups.prepared_move(self.row())
        self.b.look()
        records.switch_over(self.context, self.volume.id, placeholder)
        move = self.move(self.b)
        self.assertEqual((MoveState.SWITCHED, Wait.SEAL, self.a.host),
                         (move.state, move.waits, move.source))

    def test_aborted(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        records.abort(self.context, self.volume.id,
                      lookups.prepared_move(self.row()))
        move = self.move(self.b)
        self.assertEqual((MoveState.ABORTED, Wait.REMOVAL, self.a.host),
                         (move.state, move.waits, move.source))
        self.assertEqual((), self.report(self.a).moves)

    def test_row_is_missing(self):
        self.cloud.attach(self.volume, self.b)
        self.b.look()
        db_api.volume_destroy(self.context, self.row().name_id)
        move = self.move(self.b)
        self.assertEqual((MoveState.HYDRATING, Wait.ROW, ''),
                         (move.state, move.waits, move.source))

    def test_copy_of_a_snapshot_on_the_same_node(self):
        snapshot = self.snapshot()
        copy = cinder_utils.create_volume(
            self.context, host=self.a.pool, size=1,
            volume_type_id=self.vt['id'])
        with self.cloud.on(self.a):
            copy.update(self.a.driver.create_volume_from_snapshot(
                copy, snapshot))
        copy.save()
        self.a.look()
        found = self.report(self.a)
        move, = found.moves
        source, = found.sources
        self.assertEqual(
            (copy.id, self.a.host, self.a.host, snapshot.id),
            (move.volume, move.source, move.destination, move.snapshot))
        self.assertEqual((copy.id, self.a.host, snapshot.id),
                         (source.volume, source.reader, source.snapshot))
        self.assertEqual(2, found.volumes)

    def snapshot(self):
        snapshot = self.snapshot_row()
        with self.cloud.on(self.a):
            snapshot.update(self.a.driver.create_snapshot(snapshot) or {})
        snapshot.save()
        return snapshot

    def test_left_behind(self):
        snapshot = self.snapshot()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(4)
        self.assertIsNone(self.report(self.a).listed)
        with self.cloud.on(self.a):
            self.a.driver._update_volume_stats()
        self.cloud.pass_time(20)
        found = self.report(self.a)
        self.assertEqual(20, found.listed)
        self.assertEqual(
            [('the origin of snapshots',
              'volumes/volume-' + self.volume.id),
             ('snapshot ' + snapshot.id,
              'volumes/_snapshot-' + snapshot.id)],
            [(each.what, each.logical_volume) for each in found.left_behind])
        self.assertEqual({self.volume.id},
                         {each.volume for each in found.left_behind})
        self.assertEqual(GIB, found.left_behind[0].size)

    def test_jobs(self):
        self.a.jobs.add('recover', self.volume.id)
        self.assertEqual({'recover': [self.volume.id]},
                         self.report(self.a).jobs)

    @ddt.data(True, False)
    def test_database_is_away(self, clone):
        if clone:
            self.cloud.attach(self.volume, self.b)
            self.b.look()
        self.patch('dmclone_driver.move.report_rows.of_backend',
                   side_effect=db_exception.DBConnectionError)
        found = self.report(self.b)
        self.assertEqual((False, None), (found.database, found.volumes))
        self.assertEqual(
            [(self.volume.id, MoveState.HYDRATING, Wait.NOTHING)] * clone,
            [(move.volume, move.state, move.waits) for move in found.moves])

    def test_rows_that_cinder_copies(self):
        """Cinder copies a volume: the new row has the old one's fields."""
        self.cloud.attach(self.volume, self.b)
        row = self.cloud.row(self.row().name_id)
        row.migration_status = placeholders.COPY_STATUS + self.volume.id
        row.save()
        self.assertEqual((), self.report(self.a).sources)


class HarmTestCase(ReporterTestCase):
    """A report reads, whatever state a node is in."""

    def setUp(self):
        super().setUp()
        for volume in (self.volume, *(self.a.create() for _ in range(2))):
            self.cloud.attach(volume, self.b)
        self.cloud.attach(self.a.create(), self.a)
        self.prepared = self.a.create()
        self.cloud.attach(self.prepared, self.a)
        self.cloud.attach(self.prepared, self.b)
        self.b.look()

    def rows(self):
        with db_api.main_context_manager.reader.using(self.context):
            return [dict(row._mapping) for row in self.context.session.execute(
                models.Volume.__table__.select())]

    def test_steps_and_locks(self):
        before = self.rows()
        self.patch('dmclone_driver.move.locks.Locks.hold',
                   side_effect=AssertionError)
        for node in (self.a, self.b):
            self.cloud.steps.start()
            self.report(node)
            for step in self.cloud.steps.log:
                self.assertIn(': sysfs ', step)
        self.assertEqual(before, self.rows())

    def queries_of(self, node):
        self.queries.clear()
        self.report(node)
        for statement in self.queries:
            self.assertTrue(statement.startswith('SELECT'), statement)
            self.assertNotIn('FOR UPDATE', statement)
        return len(self.queries)

    def test_queries(self):
        """They do not depend on the number of volumes."""
        before = [self.queries_of(node) for node in (self.a, self.b)]
        self.assertEqual([2, 2], before)
        for _ in range(5):
            self.a.create()
            self.cloud.attach(self.a.create(), self.b)
        self.b.look()
        self.assertEqual(8, len(self.report(self.b).moves) - 1)
        self.assertEqual(before, [self.queries_of(node)
                                  for node in (self.a, self.b)])

    def test_many_ids(self):
        self.queries.clear()
        self.patch('dmclone_driver.move.report_rows.CHUNK', new=2)
        ids = [each.id for each in (self.volume, self.prepared)]
        self.assertEqual(set(ids), set(report_rows.with_ids(
            self.context, [*ids, str(uuid.uuid4())])))
        self.assertEqual(2, len(self.queries))

    def test_disappearing_devices(self):
        """The clones are gone since the watcher has seen them."""
        self.b.kernel.reboot()
        self.assertEqual(4, len(self.report(self.b).moves))


class TooOldTestCase(base.PlainTestCase):

    def test_error(self):
        client = rpcapi.PeerClient.__new__(rpcapi.PeerClient)
        client._call = mock.Mock(side_effect=exception.PeerTooOld(
            host='a', call='report'))
        self.assertRaises(exception.PeerTooOld, client.report, None, 'a')
        self.assertEqual('1.3', client._call.call_args.kwargs['version'])


class SightingsTestCase(base.PlainTestCase):

    def test_clone_that_is_built_again(self):
        """It may begin with fewer regions."""
        now = [0]
        seen = sightings.Sightings(lambda: now[0])
        self.assertIsNone(seen.age)
        names = Names('x')
        for seconds, hydrated in ((0, 100), (10, 50)):
            now[0] += seconds
            seen.replace({names: (mock.Mock(
                hydrated=hydrated, region_bytes=4096), None)})
        self.assertEqual(0, seen.clones[names].rate)
        seen.replace({})
        self.assertEqual({}, seen.clones)
