# SPDX-License-Identifier: Apache-2.0
"""Reports of many nodes: the number of calls and queries, and the time."""

import datetime
import re
import threading
import time
import types
from unittest import mock

from cinder import context as cinder_context
from oslo_utils import timeutils
import sqlalchemy
from sqlalchemy import event

from dmclone_driver import exception
from dmclone_driver.move import gathering
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import report
from dmclone_driver.move import report_rows
from dmclone_driver.move import row_fields
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit import base

NODES, VOLUMES, MOVES = 1000, 200, 5

# The rows are made by the database, since 200,000 take a minute otherwise.
# Volume 7 of node 3 has the id 00000003-0000-4000-8000-000000000007.
SERVICES = '''
INSERT INTO services (host, "binary", topic, report_count, disabled, deleted,
                      frozen, created_at, updated_at)
WITH RECURSIVE node(n) AS (
    SELECT 0 UNION ALL SELECT n + 1 FROM node WHERE n < :nodes - 1)
SELECT 'node' || n || '@dmclone', 'cinder-volume', 'cinder-volume', 1, 0, 0,
       0, :now, :now FROM node
'''
ROWS = '''
INSERT INTO volumes (id, host, provider_id, size, status, project_id,
                     volume_type_id, deleted, use_quota, shared_targets,
                     replication_driver_data)
WITH RECURSIVE
    node(n) AS (
        SELECT 0 UNION ALL SELECT n + 1 FROM node WHERE n < :nodes - 1),
    volume(v) AS (
        SELECT 0 UNION ALL SELECT v + 1 FROM volume WHERE v < :volumes - 1)
SELECT printf(:id, n, v), 'node' || n || '@dmclone#pool',
       'node' || n || '@dmclone#pool', 1, 'available', :project, :type, 0, 1,
       0, replace(:record, '<volume>', printf(:volume, n, v))
FROM node, volume
'''
VOLUME = '%08x-0000-4000-8000-%012x'
PLACEHOLDER = '%08x-0000-4000-9000-%012x'


class Client:
    """Replaces PeerClient; counts calls, also those at a time."""

    def __init__(self, answer, seconds=0.002):
        self._answer, self._seconds = answer, seconds
        self._lock = threading.Lock()
        self.asked, self.now, self.most = [], 0, 0

    def report(self, context, host, timeout):
        with self._lock:
            self.asked.append(host)
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            time.sleep(min(self._seconds, timeout))
            return self._answer(host)
        finally:
            with self._lock:
                self.now -= 1


def reported(host):
    """Return the report of a node with moves."""
    number = int(host.partition('@')[0].removeprefix('node'))
    return report.Report(
        backend=host, version='1', database=True, looked=1, volumes=VOLUMES,
        free=0, total=0, metadata='lvm', persistent=True, moves=tuple(
            report.Move(volume=VOLUME % (number, each),
                        placeholder=PLACEHOLDER % (number, each),
                        source=host, destination=host, role='destination',
                        state='hydrating') for each in range(MOVES)))


def silent(host):
    raise exception.PeerUnreachable(host=host, call='report', seconds=1)


class GatheringTestCase(base.PlainTestCase):
    """Without a database."""

    def ask(self, client, number, limit):
        begin = time.monotonic()
        answers = gathering.ask(None, client, [
            'node%d@dmclone' % each for each in range(number)], limit)
        self.seconds = time.monotonic() - begin
        self.assertEqual(number, len(answers))
        return answers

    def test_calls_at_a_time(self):
        client = Client(reported)
        answers = self.ask(client, NODES, 60)
        self.assertTrue(all(isinstance(each, report.Report)
                            for each in answers.values()))
        self.assertEqual(NODES, len(set(client.asked)))
        self.assertEqual(NODES, len(client.asked))
        self.assertLessEqual(client.most, gathering.AT_ONCE)

    def test_nobody_answers(self):
        """The limit ends it, however many there are."""
        client = Client(silent, seconds=1000)
        answers = self.ask(client, NODES, 1)
        # As long as the limit, and as the machine needs to notice that.
        self.assertLess(self.seconds, 30)
        self.assertLessEqual(len(client.asked), 2 * gathering.AT_ONCE)
        self.assertIn('not asked', ' '.join(answers.values()))
        self.assertIn('no answer', ' '.join(answers.values()))

    def test_calls_do_not_end(self):
        """The message bus is away: a call outlasts its time."""
        over = threading.Event()
        self.addCleanup(over.set)
        client = types.SimpleNamespace(
            report=lambda context, host, timeout: over.wait(60))
        answers = self.ask(client, 3, 0.1)
        self.assertLess(self.seconds, 30)
        self.assertEqual({'no answer within 0.1 seconds'},
                         set(answers.values()))

    def test_unexpected_failure(self):
        client = mock.Mock(report=mock.Mock(side_effect=OSError('a fault')))
        self.assertRaises(OSError, self.ask, client, 3, 60)

    def test_nobody_is_asked(self):
        self.assertEqual({}, gathering.ask(None, None, [], 1))


class ManyNodesTestCase(base.DatabaseTestCase):
    """A cloud of 1,000 nodes with 200 volumes each, and 5,000 moves."""

    def setUp(self):
        super().setUp()
        self.context = cinder_context.get_admin_context()
        now = timeutils.utcnow() + datetime.timedelta(1)
        record = placeholders.Record(State.SWITCHED, '<volume>', 'iqn', '')
        with db_api.main_context_manager.writer.using(self.context):
            run = self.context.session.execute
            run(sqlalchemy.text(SERVICES), {'nodes': NODES, 'now': now})
            for count, form, project, data in (
                    (VOLUMES, VOLUME, 'users', None),
                    (MOVES, PLACEHOLDER, row_fields.PROJECT, record.text())):
                run(sqlalchemy.text(ROWS), {
                    'nodes': NODES, 'volumes': count, 'id': form,
                    'project': project, 'type': self.vt['id'],
                    'record': data, 'volume': VOLUME})
        self.queries = []
        engine = db_api.main_context_manager.writer.get_engine()
        event.listen(engine, 'before_cursor_execute', self._query)
        self.addCleanup(event.remove, engine, 'before_cursor_execute',
                        self._query)

    def _query(self, connection, cursor, statement, *args):
        if statement != 'BEGIN':
            self.queries.append(statement)

    def gather(self, client):
        return gathering.gather(self.context, client, ['dmclone'], 60)

    def test_all_answer(self):
        client = Client(reported)
        found = self.gather(client)
        self.assertEqual(NODES, len(client.asked))
        self.assertEqual(4, len(self.queries), self.queries)
        self.assertEqual((NODES, {VOLUMES}, NODES * MOVES), (
            len(found.nodes), {each.volumes for each in found.nodes},
            len(found.moves)))
        self.assertTrue(all(each.up for each in found.nodes))

    def test_rows_that_are_counted(self):
        """Those of 200,000 volumes are not read: an index has what counts.

        It is (deleted, host).
        """
        report_rows.volumes(self.context)
        columns = {each.name for each in models.Volume.__table__.columns}
        read = [columns & set(re.findall(r'volumes\.(\w+)', each))
                for each in self.queries]
        self.assertEqual([{'deleted', 'host'}, {
            'deleted', 'host', 'project_id', 'replication_driver_data'}], read)

    def test_nobody_answers(self):
        """What the database knows costs a query for each 500 moves."""
        found = self.gather(Client(silent))
        self.assertEqual(4 + NODES * MOVES / report_rows.CHUNK,
                         len(self.queries))
        self.assertEqual(({'report'}, {'switched'}, NODES * MOVES), (
            {each.waits for each in found.moves},
            {each.state for each in found.moves}, len(found.moves)))
        self.assertEqual({VOLUMES}, {each.volumes for each in found.nodes})

    def test_report_of_one(self):
        """What a node reads does not grow with the number of nodes."""
        found = report_rows.of_backend(self.context, 'node7@dmclone', ())
        self.assertEqual(VOLUMES + MOVES, len(found))
        self.assertLessEqual(len(self.queries), 2)
