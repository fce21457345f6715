# SPDX-License-Identifier: Apache-2.0
"""The alert rules and the dashboard: what they name, and when alerts fire."""

import ast
import contextlib
import json
import pathlib
import re
import socket
from unittest import mock

import prometheus_client
import promql_parser

from dmclone_driver import exception
from dmclone_driver.move import counts
from dmclone_driver.move import hydration
from dmclone_driver.move import notifications
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi
from dmclone_driver.move import watcher
from tests.alerts import promql
from tests.alerts.rules import rules
from tests.alerts import scrapes
from tests.day import test_alerts as of_laboratory
from tests.unit import base
from tests.unit.fakes import storage

TOP = pathlib.Path(__file__).parents[2]
DASHBOARD = TOP / 'etc/grafana/dmclone.json'
PAGES = TOP / 'doc/source'
#: What Prometheus itself knows of each target.
OWN = {'up': {'job', 'instance'}}
#: The labels that Prometheus adds to each series.
ADDED = {'job', 'instance'}


def panels():
    """Return the panels of the dashboard, those of rows included."""
    return json.loads(DASHBOARD.read_text())['panels']


def expressions():
    """Yield (where, expression) of the alert rules and the dashboard."""
    for name, rule in rules().items():
        yield name, rule['expr']
    for panel in panels():
        for target in panel.get('targets', ()):
            yield panel['title'], target['expr'].replace(
                '$__rate_interval', '5m')


def counted():
    """Return the metrics of the process: {(name, labels): value}."""
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in counts.REGISTRY.collect()
            for sample in family.samples}


class NamesTestCase(base.CloudTestCase):
    """Only metrics that the driver exports, with their labels, are named."""

    #: The metrics of pools have no values otherwise.
    KINDS = ('thin', 'thin')

    def setUp(self):
        super().setUp()
        self.cloud.watch()
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        self.exported = dict(OWN)
        for name, labels in [*self.a.metrics(), *counted()]:
            self.exported.setdefault(name, set()).update(dict(labels))
        self.families = {
            family.name + ('_total' if family.type == 'counter' else '')
            for families in (self.a.collector.collect(),
                             counts.REGISTRY.collect())
            for family in self.with_node(families)}

    def with_node(self, families):
        with self.cloud.on(self.a):
            return list(families)

    def test_expressions(self):
        for where, text in expressions():
            found = list(promql.selectors(text))
            self.assertNotEqual([], found, where)
            for selector in found:
                self.assertIn(selector.name, self.exported, where)
                for matcher in selector.matchers.matchers:
                    self.assertIn(
                        matcher.name,
                        self.exported[selector.name] | ADDED, where)

    def test_values_of_labels(self):
        """Each selector selects a series that is there."""
        series = [*self.a.metrics(), *counted()]
        for where, text in expressions():
            for selector in promql.selectors(text):
                self.assertTrue(selector.name in OWN or any(
                    name == selector.name and promql.matches(
                        selector, dict(labels), ADDED)
                    for name, labels in series), (where, selector.name))

    def test_documentation(self):
        """The table has all metrics and their labels, and no others."""
        page = (PAGES / 'admin/metrics.rst').read_text()
        table = page.partition('All metrics\n')[2].partition('The reasons')[0]
        listed = {name: set(re.findall(r'``(\w+)``', labels))
                  for name, labels in re.findall(
                      r'^   \* - ``(\w+)``\n     -(.*)$', table, re.MULTILINE)}
        self.assertEqual(self.families, set(listed))
        for name, labels in listed.items():
            found = self.exported.get(name, set()) - {'le'}
            self.assertEqual(found, labels, name)


class FormTestCase(base.PlainTestCase):

    def test_rules(self):
        """Each alert says what is the matter, why, and where to read on."""
        for name, rule in rules().items():
            self.assertTrue(name.startswith('Dmclone'), name)
            self.assertIn(rule['labels']['severity'], ('warning', 'critical'))
            self.assertEqual({'summary', 'cause', 'page'},
                             set(rule['annotations']), name)
            promql_parser.parse_duration(rule.get('for', '1m'))
            page, _comma, heading = rule['annotations']['page'].partition(
                ', ')
            text = (PAGES / (page + '.rst')).read_text()
            if heading:
                self.assertIn('\n``%s``\n' % heading, text, name)

    def test_each_alert_is_documented(self):
        text = (PAGES / 'admin/metrics.rst').read_text()
        self.assertEqual(
            sorted(rules()),
            sorted(re.findall(r'^``(Dmclone\w+)``$', text, re.MULTILINE)))

    def test_dashboard(self):
        titles = [panel['title'] for panel in panels()]
        self.assertEqual(len(titles), len(set(titles)))
        ids = [panel['id'] for panel in panels()]
        self.assertEqual(len(ids), len(set(ids)))
        for panel in panels():
            self.assertIn('gridPos', panel)
            if panel['type'] != 'row':
                self.assertEqual('${datasource}', panel['datasource']['uid'])
                self.assertTrue(panel['targets'], panel['title'])


class FireTestCase(base.CloudTestCase):
    """Each alert fires by its cause, and goes away with it.

    ``for`` in a rule only delays it. A cause lasts until the end of its
    generator.
    """

    def setUp(self):
        super().setUp()
        self.history = promql.History()
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.driver.get_volume_stats(refresh=True)
        self.scrape()

    def scrape(self, pause=30):
        """Scrape the nodes, as Prometheus would, after a pause in seconds."""
        self.cloud.pass_time(pause)
        samples = {}
        for node in self.cloud.nodes.values():
            target = (('instance', node.name), ('job', 'dmclone'))
            samples['up', target] = 0 if node.down else 1
            if not node.down:
                samples.update({
                    (name, tuple(sorted(labels + target))): value
                    for (name, labels), value in node.metrics().items()})
        # Both nodes are in one process.
        samples.update({
            (name, tuple(sorted(labels + (('instance', 'both'),)))): value
            for (name, labels), value in counted().items()})
        self.history.add(self.cloud.seconds, samples)

    def look(self, seconds=0):
        self.cloud.pass_time(seconds)
        for node in self.cloud.nodes.values():
            if not node.down:
                node.look_at_sessions()
                node.look()

    def firing(self):
        return {name for name, rule in rules().items()
                if self.history.evaluate(rule['expr'])}

    def assertFires(self, *names, cause):
        """Check that alerts fire with a cause, and not before and after."""
        self.assertEqual(set(), self.firing())
        with contextlib.contextmanager(cause)():
            self.scrape()
            self.assertLessEqual(set(names), self.firing())
        # Longer than all ranges in the rules.
        for _ in range(2):
            self.look(2000)
            self.scrape()
        self.assertEqual(set(), self.firing() & set(names))

    def test_each_alert_has_a_test(self):
        text = pathlib.Path(__file__).read_text()
        called = re.findall(r"assertFires\(((?:\s*'\w+',)+)", text)
        self.assertEqual(set(rules()),
                         set(re.findall(r"'(\w+)'", ' '.join(called))))

    def attach(self):
        """Attach the volume on the peer, where it hydrates."""
        path = self.cloud.attach(self.volume, self.b)
        self.look()
        return self.b.kernel.get(path)

    def end(self):
        """Let all moves end."""
        self.cloud.watch(4)

    def test_service(self):
        def cause():
            self.b.stop()
            yield
            self.b.start()
        self.assertFires('DmcloneServiceDown', cause=cause)

    def test_check(self):
        def cause():
            self.look()
            with mock.patch('dmclone_driver.node.devicemapper.dmsetup.clones',
                            side_effect=OSError('hangs')):
                self.cloud.pass_time(200)
                self.assertRaises(OSError, self.a.look)
                yield
        self.assertFires('DmcloneCheckStuck', cause=cause)

    def test_database(self):
        def cause():
            with mock.patch('dmclone_driver.move.report_rows.of_backend',
                            side_effect=OSError('away')):
                yield
        self.assertFires('DmcloneDatabaseUnreadable', cause=cause)

    def test_gate(self):
        def cause():
            self.cloud.attach(self.volume, self.a)
            path = self.cloud.attach(self.volume, self.b)
            self.b.kernel.write(path)
            with mock.patch('dmclone_driver.move.records.switch_over',
                            side_effect=OSError('away')):
                self.look()
                yield
            self.look()
            self.end()
        self.assertFires('DmcloneGuestWaitsAtGate', 'DmcloneErrors',
                         cause=cause)

    def test_source(self):
        def cause():
            handle = self.attach()
            self.b.kernel.lost.update(self.b.kernel.disks)
            self.patch('dmclone_driver.node.devicemapper.sysfs.in_flight',
                       side_effect=lambda name: 1)
            self.look()
            yield
            self.b.kernel.lost.clear()
            self.patch('dmclone_driver.node.devicemapper.sysfs.in_flight',
                       side_effect=lambda name: 0)
            self.look()
            self.assertIsNotNone(handle.clone)
            self.end()
        self.assertFires('DmcloneRequestsHeld', 'DmcloneSourceAway',
                         cause=cause)

    def test_metadata(self):
        def cause():
            clone = self.attach().clone
            clone.mode = 'ro'
            self.look()
            yield
            clone.mode = 'rw'
            self.end()
        self.assertFires('DmcloneMetadataFailed', 'DmcloneMoveFailed',
                         cause=cause)

    def test_lost_source(self):
        def cause():
            self.attach()
            self.a.stop()
            records.lose(self.context, self.row().name_id)
            self.look()
            yield
            # Its owner deletes it.
            self.cloud.detach(self.volume, self.b)
            self.delete(self.volume)
        self.assertFires('DmcloneSourceLost', cause=cause)

    def test_row(self):
        def cause():
            self.attach()
            row, = self.cloud.placeholders()
            with mock.patch('dmclone_driver.move.report_rows.of_backend',
                            return_value={self.volume.id: mock.Mock(
                                record=None, prepared=None, backend='',
                                id=self.volume.id, name_id=row.id)}):
                yield
            self.end()
        self.assertFires('DmcloneMoveUnknown', cause=cause)

    def test_no_progress(self):
        def cause():
            self.attach()
            self.look(hydration.STALLED - 10)
            yield
            self.end()
        self.assertFires('DmcloneNoProgress', cause=cause)

    def test_no_room(self):
        def cause():
            self.b.lvm.add_pool('volumes', 50 * storage.GIB)
            self.attach()
            path, = (path for path in self.b.lvm.volumes
                     if '/volume-' in path)
            # As if it had been made with lvm_type = thin.
            volume = self.b.lvm.volumes[path]
            volume.update(pool='/dev/volumes/volumes-pool',
                          allocated=50 * storage.GIB)
            for _ in range(2):
                self.look()
            yield
            volume['allocated'] = 0
            for _ in range(2):
                self.look()
            self.end()
        self.assertFires('DmcloneNoRoom', cause=cause)

    def test_released_source(self):
        def cause():
            with mock.patch('dmclone_driver.move.released_sources.'
                            'ReleasedSources._release',
                            side_effect=OSError('busy')):
                self.attach()
                self.end()
                yield
            self.end()
        self.assertFires('DmcloneSourcesNotDeleted', 'DmcloneJobsPending',
                         cause=cause)

    def test_follower_that_hydrates(self):
        """That is no job which does not succeed."""
        taken = self.snapshot_row()
        with self.cloud.on(self.a):
            taken.update(self.a.driver.create_snapshot(taken))
        taken.save()
        with self.cloud.on(self.b):
            rpcapi.PeerClient().take_along(self.context, self.b.host,
                                           taken.id)
        for _ in range(3):
            self.look(15)
        self.scrape()
        self.assertNotIn('DmcloneJobsPending', self.firing())
        self.assertEqual(['watch follower'], list(self.b.jobs.left()))
        self.end()
        self.assertEqual({}, self.b.jobs.left())

    def test_peer(self):
        def cause():
            self.b.stop()
            for _ in range(3):
                with self.cloud.on(self.a), contextlib.suppress(Exception):
                    self.a.backend.client.describe(self.context, self.b.host)
            yield
            self.b.start()
        self.assertFires('DmclonePeerSilent', cause=cause)

    def test_locks(self):
        def cause():
            with mock.patch('tests.unit.fakes.coordination.Lock.acquire',
                            side_effect=OSError('etcd')):
                with self.cloud.on(self.a):
                    self.assertRaises(
                        exception.LockNotAcquired,
                        self.a.backend.lock(self.volume.id).__enter__)
                yield
        self.assertFires('DmcloneLocksUnreachable', cause=cause)

    def test_lock_waits(self):
        def cause():
            with counts.LOCKS_WAITING.track_inprogress():
                yield
        self.assertFires('DmcloneLockWaits', cause=cause)

    def test_errors(self):
        def cause():
            watcher.LOG.error('injected')
            yield
        self.assertFires('DmcloneErrors', cause=cause)

    def test_notifications(self):
        def cause():
            notifications.LOG.error('injected')
            yield
        self.assertFires('DmcloneNotificationsLost', cause=cause)

    def fill(self, node, size):
        """Let a logical volume of this size exist on a node for some time."""
        node.lvm.add('volumes', 'other', size)
        self.update(node)

    def update(self, node):
        with self.cloud.on(node):
            node.driver.get_volume_stats(refresh=True)

    def test_full_group(self):
        def cause():
            self.fill(self.b, 95 * storage.GIB)
            yield
            del self.b.lvm.volumes['/dev/volumes/other']
            self.update(self.b)
        self.assertFires('DmcloneGroupFull', cause=cause)

    def test_full_metadata_of_thin_pool(self):
        def cause():
            node = self.cloud.add('node3', lvm_type='thin')
            pool = node.lvm.volumes['/dev/volumes/volumes-pool']
            pool['metadata'] = '80.00'
            self.update(node)
            yield
            pool['metadata'] = '79.99'
            self.update(node)
        self.assertFires('DmcloneThinPoolMetadataFull', cause=cause)

    def test_left_behind(self):
        def cause():
            lv = mock.Mock(full_name='volumes/x')
            with mock.patch('dmclone_driver.move.left_behind.find',
                            return_value=[mock.Mock(
                                what='origin', volume='v', lv=lv,
                                space=30 * storage.GIB)]):
                self.refresh()
                yield
            self.refresh()
        self.assertFires('DmcloneLeftBehind', cause=cause)

    def refresh(self):
        with self.cloud.on(self.a):
            self.a.parts.reporter.refresh()


class LaboratoryTestCase(base.PlainTestCase):
    """The tests in the laboratory fire all alerts that can be caused there."""

    @staticmethod
    def fired():
        """Return the names of the alerts that those tests fire."""
        return [word.arg for name in ('day', 'etcd')
                for call in ast.walk(ast.parse((
                    TOP / 'tests' / name / 'test_alerts.py').read_text()))
                if isinstance(call, ast.Call) and isinstance(
                    call.func, ast.Attribute) and
                call.func.attr == 'assertFires'
                for word in call.keywords if word.arg.startswith('Dmclone')]

    def test_all_are_fired(self):
        self.assertEqual(set(rules()), {
            *self.fired(), *of_laboratory.NOT_CAUSED})

    def test_metrics_of_a_service(self):
        """A scrape reads what the client library offers."""
        counts.watch_log()
        server, _thread = prometheus_client.start_http_server(
            0, '127.0.0.1', counts.REGISTRY)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        found = scrapes.Scrapes({'a': '127.0.0.1'}, server.server_port)
        self.assertEqual({'a'}, found.answering())
        self.assertEqual(set(), found.look())
        watcher.LOG.error('injected')
        self.assertEqual({('DmcloneErrors', 'a')}, found.look())
        self.assertEqual(set(), found.look_later(0))

    def test_no_service(self):
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
        found = scrapes.Scrapes({'a': '127.0.0.1'}, port)
        self.assertEqual(set(), found.answering())
        self.assertEqual({('DmcloneServiceDown', 'a')}, found.look())


class EvaluationTestCase(base.PlainTestCase):
    """The evaluation does what Prometheus does with these expressions."""

    def setUp(self):
        super().setUp()
        self.history = promql.History()
        for seconds, number in ((0, 1), (600, 1), (1200, 4)):
            self.history.add(seconds, {
                ('x_total', (('kind', kind),)): number * factor
                for kind, factor in (('a', 1), ('b', 2))})

    def test_results(self):
        a, b = (('kind', 'a'),), (('kind', 'b'),)
        for text, expected in (
                ('x_total', {a: 4, b: 8}),
                ('x_total{kind="a"}', {a: 4}),
                ('x_total{kind!="a"}', {b: 8}),
                ('x_total{kind=~"a|c"}', {a: 4}),
                ('x_total{kind!~"a|c"}', {b: 8}),
                ('x_total > 4', {b: 8}),
                ('x_total == 4', {a: 4}),
                ('x_total / x_total < 0.5', {}),
                ('increase(x_total[15m])', {a: 3, b: 6}),
                ('increase(x_total[5m])', {}),
                ('sum without (kind) (increase(x_total[15m])) > 8', {(): 9}),
                ('absent > 0', {})):
            self.assertEqual(expected, self.history.evaluate(text), text)

    def test_unknown(self):
        for text in ('rate(x_total[5m])', 'x_total * x_total',
                     'max without (kind) (x_total)', 'x_total and x_total'):
            self.assertRaises(NotImplementedError, self.history.evaluate,
                              text)
