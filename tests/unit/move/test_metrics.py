# SPDX-License-Identifier: Apache-2.0
"""The values of metrics, their counters, and the endpoint."""

import logging
import socket
import threading
import time
from unittest import mock
import urllib.request

from oslo_config import cfg
from prometheus_client import parser
from sqlalchemy import event as sqlalchemy_event

from dmclone_driver import exception
from dmclone_driver.move import counts
from dmclone_driver.move import events
from dmclone_driver.move import gate_waits
from dmclone_driver.move import hydration
from dmclone_driver.move import metrics_endpoint
from dmclone_driver.move import notifications
from dmclone_driver.move import watcher
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import storage

GIB = storage.GIB

# The simulated nodes have another one.
START = metrics_endpoint.start


def free_port():
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]


def value(metric, **labels):
    """Return the value of a counter, which begins before the test."""
    return counts.REGISTRY.get_sample_value(metric, labels) or 0


class MetricsTestCase(base.CloudTestCase):

    def assertMetrics(self, node, **expected):
        """Check values of metrics without labels, less the prefix."""
        found = node.metrics()
        self.assertEqual(expected, {
            name: found.get(('dmclone_' + name, ())) for name in expected})

    def by(self, node, metric):
        """Return the values of a metric with one label that are not zero."""
        return {labels[0][1]: number
                for (name, labels), number in node.metrics().items()
                if name == 'dmclone_' + metric and number}


class CollectorTestCase(MetricsTestCase):
    """The values that are read at a scrape."""

    def test_idle(self):
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        self.cloud.watch()
        self.assertMetrics(
            self.a, database_readable=1, last_check_age_seconds=0, volumes=1,
            moves_leaving=0, moves_bytes=0, moves_left_bytes=0,
            moves_longest_pause_seconds=0, group_bytes=100 * GIB,
            group_free_bytes=99 * GIB, left_behind=0, left_behind_bytes=0,
            gate_writes_waiting=0, gate_longest_wait_seconds=0,
            sessions_lost=0, sessions_held=0, notifications_waiting=0)
        for metric in ('moves', 'moves_waiting', 'sources', 'jobs'):
            self.assertEqual({}, self.by(self.a, metric), metric)
        self.assertMetrics(self.b, volumes=0, group_free_bytes=100 * GIB)

    def test_same_series_at_any_time(self):
        """No series begins or ends with a move, so that none is missed."""
        self.cloud.watch()
        before = set(self.a.metrics()) | set(self.b.metrics())
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(hydrate=False)
        during = set(self.a.metrics()) | set(self.b.metrics())
        self.assertEqual(before, during)
        for name, labels in during:
            self.assertNotIn(self.volume.id, str(labels), name)

    def test_hydrating(self):
        path = self.cloud.attach(self.volume, self.b)
        clone = self.b.kernel.get(path).clone
        clone.bitmap['hydrated'] = clone.total // 4
        self.cloud.watch(hydrate=False)
        self.assertMetrics(self.a, volumes=0, moves_leaving=0)
        self.assertMetrics(self.b, volumes=1, moves_bytes=GIB,
                           moves_left_bytes=GIB * 3 // 4)
        self.assertEqual({'hydrating': 1}, self.by(self.b, 'moves'))
        self.assertEqual({}, self.by(self.b, 'moves_waiting'))
        self.assertEqual({'switched': 1}, self.by(self.a, 'sources'))
        self.assertEqual({'switched': GIB}, self.by(self.a, 'sources_bytes'))
        self.cloud.pass_time(hydration.STALLED)
        self.assertEqual({'progress': 1}, self.by(self.b, 'moves_waiting'))
        self.assertMetrics(self.b, last_check_age_seconds=hydration.STALLED,
                           moves_longest_pause_seconds=hydration.STALLED)

    def test_live_migration(self):
        """The first write of the guest waits at the gate."""
        self.cloud.attach(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        self.assertMetrics(self.a, moves_leaving=1)
        self.assertMetrics(self.b, gate_writes_waiting=0)
        before = value('dmclone_gate_wait_seconds_sum')
        self.b.kernel.write(path)
        with mock.patch('dmclone_driver.move.records.switch_over',
                        side_effect=OSError('the database is away')):
            for _ in range(2):
                self.b.look()
                self.cloud.pass_time(5)
        self.assertMetrics(self.b, gate_writes_waiting=1,
                           gate_longest_wait_seconds=10)
        self.assertEqual({'gate': 1}, self.by(self.b, 'moves_waiting'))
        self.b.look()
        self.b.look()
        self.assertMetrics(self.b, gate_writes_waiting=0,
                           gate_longest_wait_seconds=0)
        self.assertEqual(10, value('dmclone_gate_wait_seconds_sum') - before)

    def test_source_is_away(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(hydrate=False)
        self.a.reboot()
        self.b.kernel.lost.update(self.b.kernel.disks)
        before = value('dmclone_holds_total')
        self.b.look_at_sessions()
        self.assertMetrics(self.b, sessions_lost=1)
        self.assertEqual({'session': 1}, self.by(self.b, 'moves_waiting'))
        self.assertEqual(before, value('dmclone_holds_total'))


class HarmlessTestCase(MetricsTestCase):
    """A scrape costs little, and does not hang."""

    def test_queries(self):
        """Two queries, however many volumes and moves there are."""
        queries = []
        numbers = []
        engine = db_api.get_engine()
        sqlalchemy_event.listen(
            engine, 'before_cursor_execute',
            lambda *args: queries.append(args[2]))
        for _ in range(3):
            self.cloud.attach(self.a.create(), self.b)
            self.cloud.watch(hydrate=False)
            del queries[:]
            steps = len(self.cloud.steps.log)
            self.b.metrics()
            numbers.append(len([query for query in queries
                                if query.startswith('SELECT')]))
            # No process was run, and no lock was taken.
            self.assertEqual([], [
                step for step in self.cloud.steps.log[steps:]
                if not step.startswith('node2: sysfs')])
        self.assertEqual([2] * 3, numbers)

    def test_database_hangs(self):
        """What is known without it is there in time; one thread waits."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(hydrate=False)
        end, calls = threading.Event(), []

        def hang(*args):
            calls.append(args)
            end.wait()
            raise OSError('the database is away')

        self.addCleanup(end.set)
        self.patch('dmclone_driver.move.metrics.threading', new=threading)
        self.patch('dmclone_driver.move.report_rows.of_backend', new=hang)
        self.patch('dmclone_driver.move.metrics.DATABASE_TIMEOUT', 0.1)
        for _ in range(3):
            start = time.monotonic()
            self.assertMetrics(self.b, database_readable=0, volumes=None,
                               moves_leaving=None, moves_bytes=GIB,
                               group_bytes=100 * GIB)
            self.assertLess(time.monotonic() - start, 5)
            self.assertEqual({'hydrating': 1}, self.by(self.b, 'moves'))
        self.assertEqual(1, len(calls))

    def test_database_is_back(self):
        self.patch('dmclone_driver.move.report_rows.of_backend',
                   side_effect=[OSError('away'), mock.DEFAULT],
                   return_value={})
        self.assertMetrics(self.a, database_readable=0)
        self.assertMetrics(self.a, database_readable=1)


class EndpointTestCase(base.CloudTestCase):
    """The port, with eventlet or without, as the tests are run."""

    def setUp(self):
        super().setUp()
        self.port = free_port()
        cfg.CONF.set_override('dmclone_metrics_port', self.port,
                              group=cloud.BACKEND)
        self.patch('dmclone_driver.move.counts.REGISTRY',
                   new=counts.prometheus_client.CollectorRegistry())

    def serve(self):
        START(self.a.driver.configuration, self.a.collector)

    def scrape(self):
        with urllib.request.urlopen('http://127.0.0.1:%d/metrics'
                                    % self.port, timeout=10) as answer:
            text = answer.read().decode()
        return {family.name for family in
                parser.text_string_to_metric_families(text)}

    def wait_for_port(self):
        for _ in range(100):
            try:
                return self.scrape()
            except OSError:
                time.sleep(0.05)
        return self.scrape()

    def test_scrape(self):
        with self.cloud.on(self.a):
            self.serve()
            self.assertIn('dmclone_volumes', self.wait_for_port())

    def test_off_by_default(self):
        cfg.CONF.clear_override('dmclone_metrics_port', group=cloud.BACKEND)
        thread = self.patch(
            'dmclone_driver.move.metrics_endpoint.threading.Thread')
        self.serve()
        thread.assert_not_called()

    def test_port_is_in_use(self):
        """The backend starts, and the port is tried again."""
        self.patch('dmclone_driver.move.metrics_endpoint.RETRY', 0.05)
        log = self.patch('dmclone_driver.move.metrics_endpoint.LOG.error')
        with socket.create_server(('127.0.0.1', self.port)):
            self.serve()
            for _ in range(100):
                if log.called:
                    break
                time.sleep(0.05)
        self.assertIn(str(self.port), str(log.call_args))
        with self.cloud.on(self.a):
            self.assertIn('dmclone_volumes', self.wait_for_port())


class CountsTestCase(base.CloudTestCase):

    def increases(self, act, metric, **labels):
        """Return by how much a counter increases during an action."""
        before = value(metric, **labels)
        act()
        return value(metric, **labels) - before

    def test_events(self):
        for kind in ('start', 'switchover', 'end'):
            volume = self.a.create()

            def move(volume=volume):
                self.cloud.attach(volume, self.b)
                self.cloud.watch(3)
            self.assertEqual(1, self.increases(
                move, 'dmclone_move_events_total', flow='move', event=kind))

    def test_all_events_are_there_from_the_start(self):
        for flow, kinds in events.OF_FLOW.items():
            for kind in kinds:
                self.assertIsNotNone(counts.REGISTRY.get_sample_value(
                    'dmclone_move_events_total',
                    {'flow': flow.value, 'event': kind.value}))

    def test_copied(self):
        path = self.cloud.attach(self.volume, self.b)
        self.b.look()

        def copy():
            self.b.kernel.hydrate(path)
            self.cloud.watch(2)
        self.assertEqual(GIB, self.increases(copy,
                                             'dmclone_copied_bytes_total'))

    def test_calls(self):
        def call():
            with self.cloud.on(self.a):
                self.a.backend.client.describe(self.context, self.b.host)
        self.assertEqual(1, self.increases(
            call, 'dmclone_rpc_calls_total', result='answered'))
        self.assertEqual(1, self.increases(call, 'dmclone_rpc_seconds_count'))
        self.b.stop()
        self.assertEqual(1, self.increases(
            lambda: self.assertRaises(exception.PeerUnreachable, call),
            'dmclone_rpc_calls_total', result='unreachable'))

    def test_failed_calls(self):
        for error, result in (
                (exception.PeerFailed(host='h', reason='r'), 'failed'),
                (exception.PeerTooOld(host='h', call='c'), 'too_old')):
            def fail(error=error):
                with counts.call():
                    raise error
            self.assertEqual(1, self.increases(
                lambda fail=fail: self.assertRaises(
                    exception.PeerError, fail),
                'dmclone_rpc_calls_total', result=result))

    def test_locks(self):
        def lock():
            with self.cloud.on(self.a), self.a.backend.lock('x'):
                self.assertEqual(0, value('dmclone_locks_waiting'))
        for metric in ('wait', 'held'):
            self.assertEqual(1, self.increases(
                lock, 'dmclone_lock_%s_seconds_count' % metric))

    def test_lock_failures(self):
        def lock(limit):
            with self.cloud.on(self.a), self.a.backend.lock('x', limit):
                pass

        for error, limit, reason in ((OSError('etcd'), None, 'unreachable'),
                                     (None, 0, 'timeout')):
            with mock.patch('tests.unit.fakes.coordination.Lock.acquire',
                            side_effect=error, return_value=False):
                self.assertEqual(1, self.increases(
                    lambda limit=limit: self.assertRaises(
                        exception.LockNotAcquired, lock, limit),
                    'dmclone_lock_failures_total', reason=reason), reason)
        self.assertEqual(0, value('dmclone_locks_waiting'))

    def test_errors(self):
        for module, kind in ((watcher, 'check'), (notifications,
                                                  'notification'),
                             (hydration, 'other')):
            self.assertEqual(1, self.increases(
                lambda module=module: module.LOG.error('injected'),
                'dmclone_errors_total', kind=kind), kind)
            self.assertEqual(0, self.increases(
                lambda module=module: module.LOG.warning('injected'),
                'dmclone_errors_total', kind=kind), kind)

    def test_log_is_watched_once(self):
        counts.watch_log()
        counts.watch_log()
        self.assertEqual(1, len([
            handler for handler in logging.getLogger('dmclone_driver').handlers
            if isinstance(handler, counts.ErrorHandler)]))

    def test_gate(self):
        now = 5
        waits = gate_waits.GateWaits(lambda: now)
        self.patch('dmclone_driver.node.devicemapper.sysfs.is_suspended',
                   side_effect=lambda name: True)
        written = {Names('x'): mock.Mock(written=True),
                   Names('y'): mock.Mock(written=False)}
        waits.look(written)
        now = 12
        waits.look(written)
        self.assertEqual([7], waits.seconds())
        self.assertEqual(7, self.increases(
            lambda: waits.look({}), 'dmclone_gate_wait_seconds_sum'))
        self.assertEqual([], waits.seconds())
