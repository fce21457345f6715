# SPDX-License-Identifier: Apache-2.0
"""What benchmarks read, compare and print."""

import datetime
import inspect
import io
import json
import logging
import os
import signal
import sqlite3
import subprocess
import tempfile
import threading
import types
from unittest import mock

import ddt
import fixtures
import testtools

from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node import pacing
from dmclone_driver import opts
from lab.bench import __main__ as program
from lab.bench import changed_chunks
from lab.bench import copies
from lab.bench import counters
from lab.bench import during_copy
from lab.bench import going_back
from lab.bench import golden
from lab.bench import guest_load
from lab.bench import host_copies
from lab.bench import hydration
from lab.bench import live_migration
from lab.bench import load
from lab.bench import lvm_beside
from lab.bench import measurements
from lab.bench import neighbours
from lab.bench import numbered
from lab.bench import ratios
from lab.bench import remote_disk
from lab.bench import scale
from lab.bench import services
from lab.bench import snapshot_ways
from lab.bench import snapshot_ways_on_node
from lab.bench import thin
from lab.bench import thin_snapshots
from lab.bench import transfer
from lab.common import pools
from lab import config
from lab import errors
from lab import settings
from tests.unit import base


class RatiosTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.patch('builtins.print')
        self.ratios = ratios.Ratios()
        for one, other, flushes in ((100, 50, 1), (200, 40, 1), (300, 90, 3)):
            self.ratios.note('write, plain', one)
            self.ratios.note('write, clone', other)
            self.ratios.note('write, clone: flushes', flushes)

    @staticmethod
    def base_of(name):
        return None if 'flushes' in name else 'write, plain'

    def test_ratio_is_to_the_base_of_the_same_round(self):
        self.assertEqual((0.3, 0.2, 0.5), self.ratios.of(
            'write, clone', 'write, plain'))

    def test_table(self):
        folder = self.patch('builtins.open')
        kept = self.patch('lab.bench.ratios.json.dump')
        self.ratios.save('somewhere', self.base_of)
        rows = json.loads(json.dumps(kept.call_args.args[0]))
        folder.assert_called_once_with('somewhere', 'w')
        self.assertEqual([
            ['', 'write', 'write, flushes'],
            ['plain', '1.00 (1.00 to 1.00)', ''],
            ['clone', '0.30 (0.20 to 0.50)', '1']], ratios.table(rows))

    def test_wide_table(self):
        rows = [{'name': 'way %d, what' % number, 'values': [number],
                 'ratio': None} for number in range(ratios.WIDE + 1)]
        self.assertEqual(
            [['', 'what'], ['way 0', '0'], ['way 1', '1']],
            ratios.table(rows)[:3])
        self.assertEqual(ratios.WIDE + 1, len(ratios.table(rows[1:])[0]))

    def test_apart(self):
        """What shares neither a row nor a column has a table of its own."""
        rows = [{'name': name, 'values': [1], 'ratio': None} for name in (
            'time, one', 'load, none', 'room, two', 'load, some', 'time, two')]
        self.assertEqual(
            [['time, one', 'room, two', 'time, two'],
             ['load, none', 'load, some']],
            [[row['name'] for row in part] for part in ratios.apart(rows)])

    def test_wide_and_long_table(self):
        """Turned, it would have even more columns."""
        ways = ratios.WIDE + 1
        rows = [{'name': 'way %d, what %d' % (way, what), 'values': [what],
                 'ratio': None} for way in range(ways) for what in range(ways)]
        self.assertEqual(['what 0', *['0'] * ways], ratios.table(rows)[1])


class MeasurementsTestCase(base.PlainTestCase):

    def test_report(self):
        printed = self.patch('sys.stdout', new=io.StringIO())
        found = measurements.Measurements()
        for seconds in (1, 2, 6):
            found.note('one', seconds)
            found.note('other', 4, 'MiB/s')
        self.assertIn('4.00 MiB/s\n', printed.getvalue())
        found.report([('one', 'other'), ('one', 'not measured')])
        self.assertIn('one : other = 0.50\n', printed.getvalue())
        self.assertNotIn('not measured', printed.getvalue())


class BothDriversTestCase(base.PlainTestCase):

    def test_live_migration(self):
        self.assertEqual(['lvm, preparation', None], [
            live_migration.base_of(kind + ', preparation')
            for kind in live_migration.KINDS])

    def test_attach_away(self):
        base = 'lvm, attach away, 1 GiB'
        self.assertEqual([base, None, base], [
            transfer.base_of('%s, attach away, %d GiB' % kind)
            for kind in transfer.KINDS])

    def test_move_while_it_hydrates(self):
        base = 'dmclone, a first move'
        self.assertIsNone(transfer.base_of(base))
        self.assertEqual(base, transfer.base_of(
            'dmclone, a move while it hydrates'))


class NumberedTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.writes = numbered.Numbered()
        self.node = mock.Mock()
        for _number in range(numbered.PLACES + 2):
            self.writes.write(self.node, '/dev/handle')

    def compare(self, **wrong):
        lines = ['%d %d ' % (number, number) for at, number in sorted(
            self.writes.expected().items())]
        for at, line in wrong.items():
            lines[int(at[1:])] = line
        self.node.run.return_value = '\n'.join(lines)
        self.writes.compare(self.node, '/dev/handle')

    def test_newest_of_each_place_is_expected(self):
        expected = self.writes.expected()
        self.assertEqual(set(range(numbered.PLACES)), set(expected))
        self.assertEqual((17, 18, 3), tuple(map(expected.get, (1, 2, 3))))
        self.compare()

    def test_content(self):
        """It is that of a volume with as many writes, such as an image's."""
        for newest in (3, numbered.PLACES + 4):
            content = numbered.Numbered.content(newest)
            self.assertEqual(numbered.PLACES * numbered.MIB, len(content))
            self.assertTrue(content.startswith(
                b'16\n16\n' if newest > 16 else bytes(10)))
            self.node.run.return_value = '\n'.join(
                ' '.join(dict.fromkeys(content[at:at + 99].decode().split()))
                for at in range(0, len(content), numbered.MIB))
            copy = numbered.Numbered(newest).copy()
            copy.compare(self.node, '/dev/handle')
            copy.write(self.node, '/dev/handle')
            self.assertRaises(AssertionError, copy.compare, self.node, '')

    def test_copy_is_written_by_itself(self):
        copy = self.writes.copy()
        copy.write(self.node, '/dev/copy')
        self.assertNotEqual(copy.expected(), self.writes.expected())

    def test_writes_meanwhile(self):
        """They end with what they accompany, and fail with it."""
        written = threading.Event()
        self.node.run.side_effect = lambda text: written.set()
        before = self.writes._newest
        with self.writes.meanwhile(self.node, '/dev/handle'):
            written.wait(60)
        self.assertGreater(self.writes._newest, before)
        self.node.run.side_effect = KeyError

        def fail():
            with self.writes.meanwhile(self.node, '/dev/handle'):
                pass
        self.assertRaises(KeyError, fail)

    def test_last_line_of_a_place_may_be_cut(self):
        self.compare(_1='17 1', _2='18 ')

    def test_lost_and_damaged_writes_are_found(self):
        for line in ('1 1', '', '????', '17 ??7', '17 18', '17 17 17'):
            self.assertRaises(AssertionError, self.compare, _1=line)


class LoadTestCase(base.PlainTestCase):

    def report(self, read, write, error=0):
        return load.parse('fio: terminating on signal 15\n' + json.dumps(
            {'jobs': [{'read': read, 'write': write, 'error': error}]}))

    def test_report_of_fio(self):
        idle = {'iops': 0, 'clat_ns': {'percentile': {}}}
        reads, writes = ({'iops': rate, 'lat_ns': {'max': 9 * latency},
                          'clat_ns': {'percentile': {'99.000000': latency}}}
                         for rate, latency in ((700, 2000000),
                                               (300, 5000000)))
        for read, write, expected in ((reads, writes, (1000, 5, 45)),
                                      (reads, idle, (700, 2, 18)),
                                      (idle, writes, (300, 5, 45))):
            self.assertEqual(load.Report(*expected), self.report(read, write))
        self.assertRaises(load.errors.LabError, self.report, idle, idle)
        self.assertRaises(load.errors.LabError, self.report, reads, idle, 5)

    def test_numbered_writes_are_left_alone(self):
        self.assertIn(' --offset=16m ', load.command('/dev/a', 30, ''))


class DuringCopyTestCase(base.PlainTestCase):
    """A copy, each of whose looks takes half a second."""

    def setUp(self):
        super().setUp()
        self.now = 0
        self.events = []

    def measure(self, *looks, seconds=9):
        """Measure a copy with these hydrated regions of 8.

        :param looks: None for a clone that is gone, -1 for one that waits
        """
        left = list(looks)

        def look(name):
            self.assertEqual('clone', name)
            regions = left.pop(0) if len(left) > 1 else left[0]
            return None if regions is None else status.CloneStatus(
                9, 'rw', 8, max(regions, 0), 8, hydration=regions >= 0)

        def sleep(seconds):
            self.assertEqual(during_copy.LOOK, seconds)
            self.now += 0.5

        def start():
            self.events.append(('start', self.now))
            return lambda: self.events.append(('end', self.now))
        return during_copy.measure('clone', seconds, start, look,
                                   lambda: self.now, sleep)

    def test_complete_copy(self):
        """The load lasts until the clone is replaced."""
        self.assertEqual({'seconds': 1.5, 'share': 1, 'after': 1},
                         self.measure(-1, -1, 0, 2, 7, 8, 8, None))
        self.assertEqual([('start', 1), ('end', 3.5)], self.events)

    def test_replaced_between_two_looks(self):
        self.assertEqual({'seconds': 1, 'share': 1, 'after': 0},
                         self.measure(0, 2, None))

    def test_given_up(self):
        self.assertEqual({'seconds': 9, 'share': 0.25, 'after': 0},
                         self.measure(-1, 0, 1, 2))

    def test_never_replaced(self):
        found = self.measure(0, 8)
        self.assertEqual((0.5, during_copy.TO_REPLACE),
                         (found['seconds'], found['after']))

    def test_copy_that_does_not_begin(self):
        self.assertRaises(TimeoutError, self.measure, -1)
        self.assertEqual([], self.events)

    def test_command(self):
        """It is run, and gets the signal that fio expects."""
        with tempfile.NamedTemporaryFile() as out:
            end = during_copy.starter(
                "sh -c 'trap \"echo ended; exit\" TERM; echo begun; "
                "while :; do sleep 0.01; done'", out.name)()
            while out.read() != b'begun\n':
                out.seek(0)
            end()
            out.seek(0)
            self.assertEqual(b'begun\nended\n', out.read())


class HydrationTestCase(base.PlainTestCase):

    def test_regions(self):
        self.assertEqual(0.25, hydration.parse_regions(
            '0 4194304 clone 8 20/1024 128 8192/32768 0 1 no_hydration'))
        self.assertEqual(1, hydration.parse_regions('0 4194304 linear'))

    def test_longest_hold(self):
        """What the driver logs of holds is found."""
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        text = ('0 64 clone 8 20/1024 8 1/8 0 0 4 hydration_threshold 1 '
                'hydration_batch_size 1 rw')
        pacemaker = pacing.Pacemaker(list, lambda: 1)
        pacemaker._accounts['dev'] = pacing.opened(0, status.clone(text))
        for volume_id, outcome in (
                ('a', pokes.Outcome(text, held=1, seconds=0.031)),
                ('a', pokes.Outcome(text, missed='late', seconds=0.042)),
                ('b', pokes.Outcome(text, held=1, seconds=0.07))):
            pacemaker._account(pacing.Pace(volume_id, 'dev', 1), outcome, 1)
        self.assertEqual([42, 70, 0], [
            hydration.longest_hold(self.log.output, each) for each in 'abc'])

    def test_load_during_the_copy_has_its_own_part(self):
        """And that ends before the end of the smallest volume."""
        first, *_others, last = hydration.LOADS.values()
        self.assertEqual([272, 16], list(map(hydration.offset,
                                             (first, last))))
        self.assertIn('--size=256m', first)
        self.assertLess(272 + hydration.PART, 1024)

    def test_default(self):
        option, = [each for each in opts.MOVE_OPTS if
                   each.name == 'dmclone_hydration_min_rate']
        self.assertEqual(option.default, hydration.MINIMUM_RATE)

    def test_promise(self):
        for minimum, expected in ((0, 81), (16, 128), (100, 81)):
            self.assertEqual(expected, hydration.promised(27, 2048, minimum))

    def bench(self, *loads, minimum_rate=0, window=None):
        self.patch('builtins.print')
        self.patch('lab.bench.hydration.user_module.User')
        self.patch('lab.bench.hydration.lab.Lab.load').return_value.nodes = (
            dict.fromkeys(('node1', 'node2')))
        return hydration.Bench(2, 30, loads, minimum_rate, window)

    def note(self, bench, **changes):
        """Note a round of a load that keeps all that is promised."""
        name, = bench._loads
        values = {
            'MiB/s, raw copy': 70, 'MiB/s, no load': 63,
            'seconds, no load': 20, 'rate, %s: not copied': 1000,
            'p99, %s: not copied': 10, 'longest, %s: not copied': 30,
            'rate, %s': 800, 'p99, %s': 16, 'longest, %s': 300,
            'seconds, %s': 60, 'copied, %s: %%': 100,
            'longest hold, %s: ms': 50}
        for what, value in values.items():
            bench.results.note(
                what % name if '%' in what else what,
                changes.get(what.split(', ')[0], value)
                if what.endswith(('%s', '%%', 'ms', 'load')) else value)

    def test_what_is_kept(self):
        for changes, kept in (
                ({}, True), ({'rate': 790}, False), ({'p99': 17}, False),
                ({'seconds': 61}, True), ({'longest hold': 51}, False),
                ({'copied': 99}, False), ({'MiB/s': 62}, False)):
            bench = self.bench(2)
            self.note(bench, **changes)
            self.assertIs(kept, bench.judge(), changes)

    def test_options_of_the_nodes(self):
        configured = self.patch('lab.bench.hydration.services.configured')
        for options, expected in (
                ({'minimum_rate': None}, []), ({'minimum_rate': 16}, [
                    {'dmclone_hydration_min_rate': '16'}]),
                ({'minimum_rate': None, 'window': 1024},
                 [{'dmclone_hydration_window': '1024'}])):
            configured.reset_mock()
            with self.bench(2, **options).prepared():
                self.assertEqual(expected, [
                    call.args[1] for call in configured.call_args_list])

    def test_copy_that_lasts_too_long(self):
        """Unless no more is promised."""
        for minimum, kept in ((0, False), (32, True)):
            bench = self.bench(2, minimum_rate=minimum)
            self.note(bench)
            name, = bench._loads
            bench.results.values['seconds, ' + name] = [61]
            self.assertIs(kept, bench.judge())

    def test_saved_results_have_bases(self):
        bench = self.bench(1)
        self.note(bench)
        opened = self.patch('builtins.open')
        saved = self.patch('lab.bench.ratios.json.dump')
        bench.report()
        opened.assert_called_once_with('bench-hydration.json', 'w')
        name, = bench._loads
        self.assertEqual(
            {'MiB/s, no load': 0.9, 'rate, ' + name: 0.8,
             'p99, ' + name: 1.6, 'longest, ' + name: 10,
             'seconds, ' + name: 3},
            {row['name']: row['ratio'][0]
             for row in saved.call_args.args[0] if row['ratio']})


class NeighboursTestCase(base.PlainTestCase):

    def test_clones_that_run(self):
        node = mock.Mock()
        core = ' 4 hydration_threshold 1 hydration_batch_size 1 rw'
        for text, expected, mib in (
                ('No devices found\n', (0, 0), 0),
                ('\n'.join(each + core for each in (
                    'a: 0 65536 clone 8 1/9 128 3/512 0 1 no_hydration',
                    'b: 0 65536 clone 8 1/9 2048 5/32 0 0')),
                 (1, 2), 3 / 16 + 5)):
            node.run.return_value = text
            self.assertEqual(expected, neighbours.running(node))
            self.assertEqual(mib, neighbours.copied(node))

    def test_wrong_data(self):
        node = mock.Mock()
        node.run.side_effect = ['v\nv\n', 'v\n', '']
        self.assertRaises(AssertionError, neighbours.compare, node, '', 'v')
        neighbours.compare(node, '', 'v')
        self.assertRaises(AssertionError, neighbours.compare, node, '', 'v')

    def test_bases(self):
        self.assertEqual('p99, 20 copies: alone',
                         neighbours.base_of('p99, 20 copies'))
        self.assertEqual('p99, 20 copies with 4MiB: alone',
                         neighbours.base_of('p99, 20 copies with 4MiB'))
        for name in ('p99, 20 copies: alone', 'copies that run at the end',
                     'copied, 20 copies: MiB/s'):
            self.assertIsNone(neighbours.base_of(name))

    def test_bandwidths(self):
        for bandwidth, done, seconds, expected in (
                ('4MiB', 50, 10, True), ('4MiB', 51, 10, False),
                ('1MiB', 40, 32, True), ('1MiB', 40, 31, False),
                ('50%', 99, 1, True)):
            self.assertIs(expected, neighbours.keeps_to(
                bandwidth, done, seconds), (bandwidth, done, seconds))

    def bench(self, *bandwidths, at_once=None):
        """Return a benchmark of 20 copies, with a clock of its own."""
        where = 'lab.bench.neighbours.'
        self.patch('builtins.print')
        self.patch(where + 'lab.Lab')
        self.patch(where + 'user_module.User')
        self.allow = self.patch(where + 'services.allow')
        self.patch(where + 'load.run').side_effect = self.load
        self.patch(where + 'time.monotonic').side_effect = lambda: self.now
        self.patch(where + 'time.sleep').side_effect = self.pass_time
        self.patch(where + 'wait.until').side_effect = self.wait
        self.patch(where + 'running').side_effect = lambda node: (
            4 * bool(self.rate), 20)
        self.patch(where + 'copied').side_effect = lambda node: self.done
        self.now = self.done = self.rate = self.debt = 0
        self.loads = []
        nodes = {'node1': mock.Mock(), 'node2': mock.Mock()}
        neighbours.lab.Lab.load.return_value = mock.Mock(nodes=nodes)
        bench = neighbours.Bench(20, at_once, 30, bandwidths)
        self.allow.side_effect = self.change
        return bench

    def change(self, node, copies=None, bandwidth=None):
        """Copies begin with 32 MiB, whatever is allowed."""
        self.rate = 0 if copies == 0 else (
            int(bandwidth[0]) if bandwidth else 50)
        self.done += 32 * bool(self.rate)
        self.debt = 32 if bandwidth and copies != 0 else 0

    def pass_time(self, seconds):
        for _ in range(seconds):
            self.now += 1
            paid = min(self.debt, self.rate)
            self.debt -= paid
            self.done += self.rate - paid

    def wait(self, function, what, timeout):
        end = self.now + timeout
        while not function():
            self.assertLess(self.now, end, what)
            self.pass_time(1)

    def load(self, node, path, seconds, options):
        self.loads.append(self.done)
        self.pass_time(seconds)
        return load.Report(100, 1 + self.rate, 2)

    def test_copies_with_less_bandwidth(self):
        """What is measured is the bandwidth, not the pause after a window."""
        bench = self.bench('4MiB', '1MiB')
        writes = mock.MagicMock()
        bench._measure('/dev/x', writes)
        self.assertEqual(
            neighbours.TURNS * [mock.call(bench.node, None, None),
                                mock.call(bench.node, 0),
                                mock.call(bench.node, None, '4MiB'),
                                mock.call(bench.node, 0),
                                mock.call(bench.node, None, '1MiB'),
                                mock.call(bench.node, 0)],
            self.allow.call_args_list)
        for what, expected in (('', 50), (' with 4MiB', 4), (' with 1MiB', 1)):
            found = bench.results.values['copied, 20 copies%s: MiB/s' % what]
            self.assertEqual(neighbours.TURNS, len(found))
            for rate in found:
                self.assertAlmostEqual(expected, rate, delta=expected / 10)
        opened = self.patch('builtins.open')
        bench.report()
        opened.assert_called_once_with(neighbours.PATH, 'w')
        self.assertEqual(2, bench.results.of(
            'p99, 20 copies with 1MiB', 'p99, 20 copies with 1MiB: alone')[0])

    def test_number_of_copies_with_less_bandwidth(self):
        bench = self.bench('4MiB', at_once=2)
        bench._measure('/dev/x', mock.MagicMock())
        self.assertIn(mock.call(bench.node, 2, '4MiB'),
                      self.allow.call_args_list)

    def test_nothing_is_copied(self):
        bench = self.bench()
        self.allow.side_effect = lambda *args: setattr(self, 'rate', 1)
        self.patch('lab.bench.neighbours.copied', return_value=5)
        self.assertRaises(AssertionError, bench._measure, '/dev/x',
                          mock.MagicMock())


class HostCopiesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.bench = host_copies.Bench.__new__(host_copies.Bench)
        self.bench.node = mock.Mock()
        self.ran = self.bench.node.run
        self.ran.return_value = '77\n'

    def test_bases(self):
        self.assertEqual('p99, alone', host_copies.base_of('p99, direct'))
        self.assertEqual('p99, alone',
                         host_copies.base_of('p99, page cache, io.max'))
        for name in ('p99, alone', 'copied, direct: MiB/s'):
            self.assertIsNone(host_copies.base_of(name))

    def test_each_way_is_taken_back(self):
        """The node is as before, and the copy ends, if a load fails, too."""
        for way in host_copies.WAYS:
            self.ran.reset_mock()
            with (testtools.ExpectedException(KeyError),
                  self.bench.copying(way)):
                begun = self.ran.call_args.args[0]
                raise KeyError
            self.assertIn(way.flags, begun)
            self.assertIn(way.inside, begun)
            ran = [call.args[0] for call in self.ran.call_args_list]
            self.assertEqual(way.before, ran[0] if way.before else '')
            self.assertEqual(way.after, ran[-1] if way.before else '')
            self.assertIn('kill -- -77', ran[-2 if way.before else -1])

    def test_way_that_the_kernel_lacks(self):
        self.patch('builtins.print')
        for code in (0, 1):
            self.bench.node.try_run.return_value = code, '', ''
            self.assertEqual(not code,
                             self.bench.possible(host_copies.WAYS[0]))

    def test_way_that_cannot_be_prepared_is_taken_back(self):
        way, = [each for each in host_copies.WAYS
                if 'io.max' in each.before]
        self.ran.side_effect = [errors.LabError('no io'), '']
        with (testtools.ExpectedException(errors.LabError),
              self.bench.copying(way)):
            self.fail('It does not copy.')
        self.assertEqual(way.after, self.ran.call_args.args[0])

    def test_shell(self):
        """All commands are valid, also in the process that copies."""
        scripts = [host_copies._MAKE, host_copies._REMOVE,
                   *(way.needs for way in host_copies.WAYS),
                   host_copies._WRITTEN, host_copies._END.format(7, 'name')]
        for way in host_copies.WAYS:
            inside = host_copies._BEGIN.format(
                way.inside, host_copies.NAME, host_copies.FILE, way.flags)
            scripts += [way.before, way.after, inside,
                        inside.split("'")[1]]
        for script in scripts:
            self.assertEqual('', subprocess.run(
                ['bash', '-n'], input=script, text=True,
                capture_output=True).stderr, script)


class ServicesTestCase(base.PlainTestCase):

    def test_copies_at_a_time(self):
        node = mock.Mock()
        node.name = 'node2'
        node.try_run.return_value = 0, '', ''
        for words, expected in (
                ([], '--configured'), ([0], '--configured --copies 0'),
                ([None, '4MiB'], '--configured --bandwidth-in 4MiB'),
                ([2, '1MiB'],
                 '--configured --copies 2 --bandwidth-in 1MiB')):
            services.allow(node, *words)
            command = node.try_run.call_args.args[0]
            self.assertTrue(command.endswith(' pace node2 ' + expected),
                            command)
        node.try_run.return_value = 1, '', 'no'
        self.assertRaises(services.errors.LabError, services.allow, node)

    def test_options_are_restored(self):
        node = mock.Mock()

        def fail():
            with services.configured([node], {'x': '1'}):
                raise KeyError
        self.assertRaises(KeyError, fail)
        self.assertEqual(
            [mock.call({'dmclone': {'x': '1'}}), mock.call({})],
            node.configure.call_args_list)


class PoolsTestCase(base.PlainTestCase):

    def test_volumes(self):
        self.assertEqual(
            {'volume-a': 64 << 20, 'volume-b': None, 'volume-c': 0},
            pools.parse('  volume-a,cinder-volumes-pool,1073741824,6.25\n'
                        '  volume-b,,1073741824,\n'
                        '  volume-c,cinder-volumes-pool,1073741824,0.00\n'))

    def nodes(self, kib=64, failure=None):
        """Return two nodes, and what is done there.

        :param kib: of a block of their pools
        :param failure: when they wait for their services
        """
        done, nodes = [], []
        for name in ('a', 'b'):
            node = mock.Mock()
            node.name = name
            node.run.side_effect = lambda text, name=name: done.append(
                (name, text)) or (str(kib * 1024) if 'chunk_size' in text and
                                  'lvs' in text else '')
            node.start_service.side_effect = (
                lambda service, name=name: done.append((name, 'start')))
            node.wait_ready.side_effect = failure
            nodes.append(node)
        return nodes, done

    def on(self, nodes, kib):
        with pools.on(nodes, mock.Mock(), kib):
            pass

    @staticmethod
    def chunk(kib):
        """Return the command that sets the size of a block."""
        return pools._WITH % pools._CHUNK % kib

    def settings(self, done, name='a'):
        """Return what is done with LVM's settings of a node, and starts."""
        short = {'start': 'start', self.chunk(64): 'set', pools._OWN: 'own'}
        return [short[what] for where, what in done
                if where == name and what in short]

    def test_chunk(self):
        """It is set before the pool is made, and put back afterwards."""
        nodes, done = self.nodes()
        self.on(nodes, 64)
        for node in nodes:
            self.assertEqual(['set', 'start', 'own', 'start'],
                             self.settings(done, node.name))
        # The pool of LVM's choice is removed, and the one of this size.
        self.assertEqual(2, len([
            text for name, text in done
            if name == 'a' and 'lvremove' in text]))

    def test_chunk_of_lvms_choice(self):
        """Pools that are there are kept until the end."""
        nodes, done = self.nodes(kib=512)
        self.on(nodes, None)
        self.assertEqual(['start', 'start'], self.settings(done))
        self.assertEqual(1, len([
            text for name, text in done
            if name == 'a' and 'lvremove' in text]))

    def test_chunk_is_put_back_after_a_failure(self):
        nodes, done = self.nodes(failure=[KeyError, None])
        self.assertRaises(KeyError, self.on, nodes, 64)
        self.assertEqual(['set', 'start', 'own', 'start'],
                         self.settings(done))

    def test_other_chunk(self):
        nodes, done = self.nodes(kib=512)
        self.assertRaises(errors.LabError, self.on, nodes, 64)
        self.assertEqual(['set', 'start', 'own', 'start'],
                         self.settings(done))

    def test_files_of_chunk(self):
        """The commands are run, in a folder."""
        with tempfile.TemporaryDirectory() as folder:
            for each in ('lab/files/etc/lvm', 'etc/lvm'):
                os.makedirs(os.path.join(folder, each))
            own = os.path.join(folder, 'lab/files/etc/lvm/lvmlocal.conf')
            used = os.path.join(folder, 'etc/lvm/lvmlocal.conf')
            with open(own, 'w') as stream:
                stream.write('devices { scan_lvs = 0 }\n')
            for command, expected in (
                    (self.chunk(128), '128'), (self.chunk(64), '64'),
                    (pools._OWN, None)):
                subprocess.run(
                    command.replace('/etc/', folder + '/etc/').replace(
                        '/lab/files' + folder, folder + '/lab/files'),
                    shell=True, check=True)
                with open(used) as stream:
                    own, *rest = stream.read().splitlines()
                self.assertEqual('devices { scan_lvs = 0 }', own)
                self.assertEqual(
                    ['allocation/thin_pool_chunk_size = ' + expected]
                    if expected else [], rest)


@ddt.ddt
class ThinTestCase(base.PlainTestCase):

    def cases(self):
        return thin.cases(10, [1, 10, 100], 1000, 65536)

    def test_cases(self):
        """Each is measured after the same data alone."""
        self.assertEqual(
            [('1 % of 10 GiB alone', 1, 102), ('1 % of 10 GiB', 10, 102),
             ('10 % of 10 GiB alone', 1, 1024), ('10 % of 10 GiB', 10, 1024),
             ('100 % of 10 GiB', 10, 10240),
             ('1000 extents in 10 GiB alone', 1, 62),
             ('1000 extents in 10 GiB', 10, 62)],
            [(case.what, case.size, case.used >> 20)
             for case in self.cases()])
        self.assertEqual([0, 1000], [case.extents
                                     for case in self.cases()[-2:]])
        self.assertEqual(3, thin.Case('', 9, (2 << 30) + 1).alone().size)

    def test_some_cases(self):
        """1 TiB is compared with 11 GiB that have the same data."""
        self.assertEqual(
            [('1 % of 1024 GiB alone', 11, 10485),
             ('1 % of 1024 GiB', 1024, 10485)],
            [(case.what, case.size, case.used >> 20)
             for case in thin.cases(1024, [1], 0, 65536)])
        self.assertEqual(
            [('100000 extents in 16 GiB alone', 7, 0, 6250),
             ('100000 extents in 16 GiB', 16, 100000, 6250)],
            [(case.what, case.size, case.extents, case.used >> 20)
             for case in thin.cases(16, [], 100000, 65536)])

    def test_extents_that_do_not_fit(self):
        """It is known before anything is measured."""
        self.assertRaises(ValueError, thin.cases, 16, [1], 100000, 524288)

    def test_bases(self):
        """What is compared is measured, and what it is compared with."""
        self.patch('builtins.print')
        found = ratios.Ratios()
        for case in self.cases():
            found.note('time, ' + case.what, 11 if case.size > 1 else 10)
            if not case.what.endswith(thin.ALONE):
                found.note('allocated, ' + case.what, 30)
                found.note('allocated, %s%s' % (case.what, thin.AT_SOURCE),
                           20)
        compared = {name: found.of(name, thin.base_of(name))[0]
                    for name in found.values if thin.base_of(name)}
        self.assertEqual(
            {'time, 1 % of 10 GiB': 1.1, 'time, 10 % of 10 GiB': 1.1,
             'time, 1000 extents in 10 GiB': 1.1,
             **{'allocated, ' + what: 1.5 for what in (
                 '1 % of 10 GiB', '10 % of 10 GiB', '100 % of 10 GiB',
                 '1000 extents in 10 GiB')}}, compared)

    def test_order(self):
        """What is compared is first as often as what it is compared with."""
        found = self.cases()
        turns = [thin.in_turn(found, number) for number in range(3)]
        self.assertEqual([found, found[::-1], found], turns)

    @ddt.data((11, 22, True), (11.5, 22, False), (11, 22.5, False))
    @ddt.unpack
    def test_limits(self, seconds, allocated, kept):
        self.patch('builtins.print')
        found = ratios.Ratios()
        for name, value in (('time, x alone', 10), ('time, x', seconds),
                            ('allocated, x: source', 20),
                            ('allocated, x', allocated)):
            found.note(name, value)
        self.assertIs(kept, thin.judge(found))

    def test_extents(self):
        """They are apart, and end within the volume."""
        step = thin.stride(10, 1000, 65536)
        self.assertEqual((0, True), (step % 65536,
                                     999 * step + 65536 <= 10 << 30))
        self.assertEqual(131072, thin.stride(1, 8192, 65536))
        self.assertRaises(ValueError, thin.stride, 1, 8193, 65536)
        self.assertEqual(131072, thin.stride(16, 100000, 65536))

    def test_written_extents(self):
        """The command is run, though not past the cache of a disk."""
        with tempfile.NamedTemporaryFile() as disk:
            command = thin.writing(disk.name, 3, 4096, 12288)
            self.assertIn('| os.O_DIRECT', command)
            subprocess.run(command.replace(' | os.O_DIRECT', ''), shell=True,
                           check=True)
            found = disk.read()
        self.assertEqual(2 * 12288 + 4096, len(found))
        self.assertEqual([True, False, False] * 2 + [True], [
            any(found[at:at + 4096])
            for at in range(0, len(found), 4096)])
        extents = {found[at:at + 4096] for at in (0, 12288, 24576)}
        self.assertEqual((3, 1), (len(extents), len(
            {extent[8:] for extent in extents})))

    def test_compared(self):
        """All that is written, what is behind it, and the end."""
        start, places = thin.compared(thin.Case('', 1024, 10485 << 20))
        self.assertEqual((10485, 10485, 2 ** 20 - 1),
                         (start, places[0], places[-1]))
        self.assertTrue(64 <= len(places) <= 66)
        steps = [one - other for one, other in zip(places[1:], places)]
        self.assertTrue(max(steps) <= 2 ** 20 // 64, steps)
        for used, extents in ((2 << 30, 0), (62 << 20, 1000)):
            self.assertEqual((2048, []), thin.compared(
                thin.Case('', 2, used, extents)))

    def test_checksum(self):
        """The command is run, though not past the cache of a disk."""
        def checksum(path):
            command = thin.reading(path, 2, [2, 4, 7])
            self.assertEqual(2, command.count(' iflag=direct'))
            return subprocess.run(
                ['bash', '-c', command.replace(' iflag=direct', '')],
                check=True, capture_output=True).stdout

        with tempfile.NamedTemporaryFile() as disk:
            disk.truncate(8 << 20)
            seen = {checksum(disk.name)}
            self.assertEqual({checksum(disk.name)}, seen)
            for number, at in enumerate((0, (2 << 20) - 1, 2 << 20, 4 << 20,
                                         (8 << 20) - 1)):
                disk.seek(at)
                disk.write(b'x')
                disk.flush()
                seen.add(checksum(disk.name))
                self.assertEqual(number + 2, len(seen), at)
            self.assertRaises(subprocess.CalledProcessError, checksum,
                              disk.name + '-gone')

    def test_room(self):
        """Both nodes have all that is written, and some is left."""
        found = thin.cases(1024, [1], 0, 65536)
        needed = 4 * (10485 << 20) + (10 << 30)
        thin.refuse_without_room(found, needed)
        self.assertRaises(errors.LabError, thin.refuse_without_room, found,
                          needed - 1)


class ChangedChunksTestCase(base.PlainTestCase):

    # Printed by version 0.9.0 of thin-provisioning-tools.
    DELTA = """\
<superblock uuid="" time="1" transaction="3" data_block_size="128" \
nr_data_blocks="800">
  <diff left="1" right="2">
    <same begin="0" length="2"/>
    <different begin="2" length="1"/>
    <same begin="3" length="2"/>
    <left_only begin="9" length="1"/>
    <right_only begin="20" length="2"/>
  </diff>
</superblock>
"""
    WRITTEN = """\
<blocks>
  <block block="3"/>
  <range begin="7" end = "9"/>
  <block block="20"/>
</blocks>
"""

    def test_delta(self):
        self.assertEqual(({2, 9, 20, 21}, 7),
                         changed_chunks.parse_delta(self.DELTA))

    def test_written(self):
        """Version 1.0 writes no spaces."""
        for text in self.WRITTEN, self.WRITTEN.replace(' = ', '='):
            self.assertEqual({3, 7, 8, 20},
                             changed_chunks.parse_written(text))

    def test_output_that_was_cut_off(self):
        for parse, text in ((changed_chunks.parse_delta, self.DELTA),
                            (changed_chunks.parse_written, self.WRITTEN)):
            self.assertRaises(errors.LabError, parse, text[:-14])

    def test_digests(self):
        """The command is run, though not past the cache of a disk."""
        with tempfile.NamedTemporaryFile() as disk:
            disk.write(3 * 65536 * b'a' + 65536 * b'b' + 2 ** 20 * b'a')
            disk.flush()
            command = changed_chunks.digests(disk.name, 65536, 2)
            self.assertIn('| os.O_DIRECT', command)
            found = subprocess.run(
                ['bash', '-c', command.replace(' | os.O_DIRECT', '')],
                check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual(2 * 20, len(found))
        self.assertEqual(2 * ([True] * 3 + [False] + [True] * 16),
                         [each == found[0] for each in found])

    def test_digests_behind(self):
        """The last line is the process."""
        with tempfile.NamedTemporaryFile() as disk:
            command = changed_chunks.digests(disk.name, 65536, 10 ** 9,
                                             'nice ', ' &') + 'echo $!'
            process = subprocess.run(
                ['bash', '-c', command.replace(' | os.O_DIRECT', '')],
                check=True, capture_output=True, text=True, timeout=60).stdout
        os.kill(int(process), signal.SIGKILL)

    def test_changes(self):
        found = changed_chunks.changes(1024, [1, 10])
        self.assertEqual(
            ['random 1 %', 'sequential 1 %', 'random 10 %', 'sequential 10 %',
             'discard 10 %'], [each.what for each in found])
        self.assertEqual([False] * 4 + [True],
                         [each.discards for each in found])
        for part in '/dev/x ', '--rw=randwrite', '--bs=4k', '--io_size=102m':
            self.assertIn(part, found[2].command % '/dev/x')
        self.assertEqual(
            'blkdiscard --offset 536870912 --length 106954752 /dev/x',
            found[-1].command % '/dev/x')


class GoingBackNode:
    """Answers what a node does, for a volume of 16 chunks of 64 MiB."""

    def __init__(self, delta='2', written='2', differs='2'):
        self.name = 'node1'
        self.ran = []
        self._delta, self._written, self._differs = delta, written, differs

    def stop(self, name):
        self.ran.append('stop ' + name)

    def start_service(self, name):
        self.ran.append('start ' + name)

    def wait_ready(self):
        self.ran.append('wait')

    def run(self, text, timeout=60):
        self.ran.append(text)
        if text.startswith('fio --name=load'):
            write = {'iops': 100, 'lat_ns': {'max': 9e6},
                     'clat_ns': {'percentile': {'99.000000': 2e6}}}
            return json.dumps({'jobs': [{'read': {'iops': 0},
                                         'write': write}]})
        if 'era_invalidate --written' in text:
            return '<blocks>\n<block block="%s"/>\n</blocks>' % self._written
        if 'thin_delta --metadata' in text:
            return ('<same begin="0" length="15"/><different begin="%s" '
                    'length="1"/></superblock>' % self._delta)
        if 'echo $!' in text:
            return '77\n'
        if 'hashlib' in text:
            return '\n'.join(
                'new' if going_back.VOLUME in text and
                str(at) == self._differs else 'old' for at in range(16))
        return ''


class GoingBackTestCase(base.PlainTestCase):

    def bench(self, **answers):
        self.patch('builtins.print')
        node = GoingBackNode(**answers)
        self.patch('lab.bench.going_back.lab.Lab.load').return_value.nodes = {
            'node1': node}
        return going_back.Bench(1, 20, 65536, [10]), node

    def test_round(self):
        bench, node = self.bench()
        with bench.prepared():
            bench.round()
        self.assertEqual(
            ['start cinder-volume', 'wait'], node.ran[-2:])
        values = bench.results.values
        for what in 'random 10 %', 'sequential 10 %', 'discard 10 %':
            self.assertEqual(
                [[1024], [64], [64], [64], [0]],
                [values['%s, %s' % (way, what)] for way in going_back.AMOUNTS])
        for way in ('alone', 'thin snapshot', 'dm-era', 'dm-snapshot',
                    'beside digests'):
            for again in '', ' again':
                self.assertEqual([100], values['rate, ' + way + again])
        self.assertEqual(1, node.ran.count('kill 77'))
        for name in going_back.ERA, going_back.ORIGIN, going_back.SAVED:
            created = [text for text in node.ran
                       if 'dmsetup create ' + name in text]
            self.assertEqual(len(created), len([
                text for text in node.ran
                if text.endswith('dmsetup remove --retry ' + name) or
                'dmsetup remove --retry %s;' % name in text]), name)

    def test_guest_of_a_snapshot_writes_to_its_origin(self):
        bench, node = self.bench()
        bench.round()
        below = [text.split()[2] for text in node.ran
                 if text.startswith('fio --name=load')]
        volume = '--filename=/dev/cinder-volumes/benchvolume'
        self.assertEqual(
            [volume, volume, '--filename=/dev/mapper/bench-era',
             '--filename=/dev/mapper/bench-origin', volume], below[::2])
        self.assertEqual(below[::2], below[1::2])

    def test_bases(self):
        bench, node = self.bench()
        bench.round()
        bases = {name: going_back.base_of(name)
                 for name in bench.results.values}
        self.assertEqual(set(bases), set(bases) | set(
            filter(None, bases.values())))
        self.assertEqual('rate, alone again', bases['rate, dm-era again'])
        self.assertEqual('p99, alone', bases['p99, dm-era'])
        self.assertIsNone(bases['rate, alone'])
        self.assertEqual('copied today, random 10 %',
                         bases['thin_delta, random 10 %'])
        saved = self.patch('lab.bench.ratios.json.dump')
        self.patch('builtins.open')
        bench.report()
        self.assertEqual(len(bases), len(saved.call_args.args[0]))

    def test_what_is_not_reported_fails(self):
        for answers in ({'delta': '3'}, {'written': '3'}, {'differs': '-'}):
            bench, node = self.bench(**answers)
            self.assertRaises(errors.LabError, bench.round)

    def test_dm_era_may_miss_what_is_discarded(self):
        differ, changed, written = {1, 2}, {1, 2, 3}, {1}
        judge = going_back.Bench._judge
        random, *_others, discard = changed_chunks.changes(1024, [10])
        judge(discard, differ, changed, written)
        self.assertRaises(errors.LabError, judge, random, differ, changed,
                          written)
        self.assertRaises(errors.LabError, judge, discard, differ, written,
                          written)

    def test_service_is_started_after_a_failure(self):
        bench, node = self.bench()
        node.run = mock.Mock(side_effect=['', '', KeyError, ''])
        with testtools.ExpectedException(KeyError), bench.prepared():
            pass
        self.assertEqual(['stop cinder-volume', 'start cinder-volume',
                          'wait'], node.ran)


class SnapshotWaysTestCase(base.PlainTestCase):

    FOUND = {'pause': 9, 'seconds': 2, 'written': 3, 'read': 4, 'complete': 5}

    def bench(self, *answers):
        """Return a bench whose node gives these answers, and the node."""
        self.patch('builtins.print')
        node = mock.Mock()
        node.run.side_effect = answers
        self.patch('lab.bench.snapshot_ways.lab.Lab.load'
                   ).return_value.nodes = {'node1': node}
        return snapshot_ways.Bench(), node

    def test_round(self):
        line = 'a line\n%s\n' % json.dumps(self.FOUND)
        bench, node = self.bench('', line, line, line)
        with bench.prepared():
            bench.round()
        self.assertEqual(
            ['warm', 'none', 'above', 'below'],
            [call.args[0].split()[-1] for call in node.run.mock_calls])
        self.assertEqual(
            ['stop', 'run', 'run', 'run', 'run', 'start_service',
             'wait_ready'], [call[0] for call in node.mock_calls])
        values = bench.results.values
        self.assertEqual([2], values['seconds to take it, above the clone'])
        self.assertNotIn('seconds to take it, no snapshot', values)
        bases = {name: snapshot_ways.base_of(name) for name in values}
        self.assertEqual(set(bases), set(bases) | set(
            filter(None, bases.values())))
        self.assertEqual('longest pause in ms, no snapshot',
                         bases['longest pause in ms, below, by LVM'])
        self.assertEqual('seconds to take it, above the clone',
                         bases['seconds to take it, below, by LVM'])
        saved = self.patch('lab.bench.ratios.json.dump')
        self.patch('builtins.open')
        bench.report()
        self.assertEqual(14, len(saved.call_args.args[0]))

    def test_service_is_started_after_a_failure(self):
        bench, node = self.bench(KeyError)
        with testtools.ExpectedException(KeyError), bench.prepared():
            pass
        node.start_service.assert_called_once_with('cinder-volume')

    def test_newest_record_of_a_snapshot(self):
        on_node = snapshot_ways_on_node
        places, size = [3, 0, 2, 1], on_node.RECORD
        blocks = [b'x' * size, b'1' * size, b'%016d' % 5 + bytes(size - 16),
                  bytes(size)]
        self.assertEqual([0, 1111111111111111, 0, 0], on_node.records(
            b''.join(blocks)))
        for number in range(3):
            self.assertEqual(number, on_node.newest(on_node.records(
                b''.join(blocks)), places))
            blocks[places[number]] = on_node.record(number + 1)
        for broken in ([2, 4, 3, 0], [2, 4, 0, 1], [0, 0, 3, 1]):
            self.assertRaises(AssertionError, on_node.newest, broken, places)

    def test_pause(self):
        writes = [(0, 5), (5, 6), (6, 8), (8, 9), (20, 30)]
        for begin, end, expected in ((5.5, 5.6, 1), (5.5, 6.5, 2),
                                     (4.5, 8, 5), (10, 15, 0)):
            self.assertEqual(expected, snapshot_ways_on_node.pause(
                writes, begin, end))

    def test_guest_goes_on_after_a_failure_of_lvm(self):
        bench = snapshot_ways_on_node.Bench.__new__(
            snapshot_ways_on_node.Bench)
        bench.metadata = mock.Mock()
        bench.metadata.find.return_value = '/dev/m', 128
        bench.names = mock.Mock(name_id='x', of=lambda role: role)
        bench.addCleanup = mock.Mock()
        where = 'lab.bench.snapshot_ways_on_node.'
        self.patch(where + 'block')
        self.patch(where + 'logical_volumes').take_snapshot.side_effect = (
            KeyError)
        dmsetup = self.patch(where + 'dmsetup')
        self.assertRaises(KeyError, bench._below, mock.Mock())
        self.assertEqual(
            [mock.call.suspend('handle'), mock.call.suspend('clone'),
             mock.call.resume('clone'), mock.call.resume('handle')],
            dmsetup.mock_calls)


class CountersTestCase(base.PlainTestCase):

    def test_read(self):
        """Statements of nodes are those that came from their addresses."""
        here = mock.Mock()
        here.sql.side_effect = lambda statement: (
            [('Questions', '50')] if 'STATUS' in statement else
            [] if statement.startswith('SET') else
            [('10.77.0.11', 7), ('10.77.0.12', '8'), ('10.77.0.1', 20)])
        nodes = [mock.Mock(ip='10.77.0.%d' % number) for number in (11, 12)]
        for node in nodes:
            node.run.return_value = '100\n'
        for some, mine in ((1, 7), (2, 15)):
            self.assertEqual(
                {'statements': 50, 'statements of the nodes': mine,
                 'processes and threads': 100 * some},
                counters.read(here, *nodes[:some]))


class ScaleTestCase(base.PlainTestCase):

    def test_copied_rows(self):
        database = sqlite3.connect(':memory:')
        self.addCleanup(database.close)
        database.execute('CREATE TABLE volumes (id, host, `size`)')
        database.execute("INSERT INTO volumes VALUES ('old', 'node1', 1), "
                         "('other', 'node2', 2)")
        ids = ['a', 'b', 'c']
        database.execute(scale.insertion(('id', 'host', 'size'), 'old', ids))
        rows = 'SELECT * FROM volumes ORDER BY id'
        self.assertEqual([(each, 'node1', 1) for each in (*ids, 'old')],
                         database.execute(rows).fetchall()[:4])
        database.execute(scale.deletion(ids))
        self.assertEqual([('old', 'node1', 1), ('other', 'node2', 2)],
                         database.execute(rows).fetchall())

    def test_one_command_takes_some(self):
        parts = scale.in_parts(list(range(2 * scale.AT_ONCE + 1)))
        self.assertEqual([scale.AT_ONCE, scale.AT_ONCE, 1],
                         list(map(len, parts)))
        self.assertEqual([], scale.in_parts([]))
        self.assertIn('for id in a b;', scale.creation(['a', 'b']))

    def test_room(self):
        scale.require_room(0, 0)
        scale.require_room(200, 55)
        scale.require_room(10, 40)
        for hydrating, free in ((200, 54), (10, 39), (300, 999)):
            self.assertRaises(errors.LabError, scale.require_room, hydrating,
                              free)

    def test_results_of_rest_and_of_clones(self):
        self.patch('builtins.print')
        self.patch('builtins.open')
        saved = self.patch('lab.bench.ratios.json.dump')
        bench = scale.Bench.__new__(scale.Bench)
        bench.results = ratios.Ratios()
        names = ('start, 1 volume', 'start, 1 volume: statements',
                 '60 s at rest, 1 volume', 'CPU seconds in 60 s, no clone',
                 'clones, 9 clones, limits as configured')
        for name in names:
            bench.results.note(name, 1)
        for hydrating, expected in ((0, [names[:3]]),
                                    (9, [names[:3], names[3:]])):
            bench._hydrating = hydrating
            saved.reset_mock()
            bench.report()
            self.assertEqual(list(map(list, expected)), [
                [row['name'] for row in call.args[0]]
                for call in saved.call_args_list])

    def test_wait_for_copies(self):
        """Those that are complete cannot run any longer."""
        found = iter([(4, 200), (150, 180), (170, 170)])
        running = self.patch('lab.bench.scale.neighbours.running')
        running.side_effect = lambda node: next(found)
        self.patch('lab.wait.time.sleep')
        bench = scale.Bench.__new__(scale.Bench)
        bench.peer = None
        bench._wait_running(200)
        self.assertEqual(3, running.call_count)

    def test_many_volumes(self):
        """What LVM does is measured, and a start without it."""
        bench = scale.Bench.__new__(scale.Bench)
        bench.lab, bench.results = mock.Mock(), ratios.Ratios()
        bench.user, bench.node, bench.peer = (
            mock.MagicMock() for _ in range(3))
        self.patch('builtins.print')
        self.patch('lab.bench.scale.time.sleep')
        self.patch('lab.bench.scale.numbered.Numbered')
        self.patch('lab.bench.scale.counters.read').return_value = {
            'statements': 1}
        bench.hydrated = mock.Mock()
        for ids, of_some in ([], '1 volume'), (['a'], '2 volumes'):
            bench._measure('v', ids, of_some)
        names = set(bench.results.values)
        self.assertIn('start again, 1 volume: statements', names)
        self.assertIn('LVM activates all, 2 volumes', names)
        self.assertNotIn('LVM activates all, 1 volume', names)
        for name in names:
            base = scale.base_of(name)
            self.assertIn(base, {None, *names})
            self.assertEqual(base is not None, name.partition(',')[0] in (
                scale.WAYS) and ': ' not in name, name)

    def test_bases(self):
        self.assertEqual('start, 1 volume',
                         scale.base_of('start, 100 volumes'))
        for name in ('start, 100 volumes: statements',
                     '60 s at rest, 100 volumes', 'clones, no clone'):
            self.assertIsNone(scale.base_of(name))

    def node(self, numbers):
        """Return a node whose commands print numbers."""
        node = mock.Mock()
        node.run.side_effect = lambda text, **_more: str(numbers[text])
        return node

    def test_look_at_clones(self):
        self.patch('builtins.print')
        self.patch('lab.bench.scale.time.sleep')
        self.patch('lab.bench.scale.counters.read').side_effect = [
            {'statements': 5}, {'statements': 12}]
        self.patch('lab.bench.scale.neighbours.running').return_value = 4, 9
        bench = scale.Bench.__new__(scale.Bench)
        bench.results = ratios.Ratios()
        bench.lab = None
        bench.peer = self.node({
            scale.CPU: 3.5, **{command: number for number, command in
                               enumerate(scale.COMMANDS.values(), 7)}})
        bench._look('x')
        found = {name: value for name, (value,) in
                 bench.results.values.items()}
        found.pop('kernel lists all clones, x')
        self.assertEqual(
            {'threads of cinder-volume, x': 7, 'threads of the node, x': 8,
             'CPU seconds in 60 s, x': 0, 'statements in 60 s, x': 7,
             'copies that run, x': 4, 'clones, x': 9}, found)

    def test_commands_that_count(self):
        """They count this process, its time and its threads."""
        with tempfile.NamedTemporaryFile('w') as group:
            group.write('self\n')
            group.flush()

            def number(command):
                return float(subprocess.run(command.replace(
                    '/sys/fs/cgroup/cinder-volume/cgroup.procs', group.name),
                    shell=True, check=True, capture_output=True).stdout)
            self.assertEqual(1, number(
                scale.COMMANDS['threads of cinder-volume']))
            self.assertLess(1, number(scale.COMMANDS['threads of the node']))
            self.assertLessEqual(0, number(scale.CPU))


class ProgramTestCase(base.PlainTestCase):

    def parse(self, *words):
        return vars(program.parser().parse_args(words))

    def test_options(self):
        self.assertEqual(
            {'what': 'copies', 'rounds': 3, 'sizes': [1, 20],
             'lvm_sizes': [1]},
            self.parse('copies', '--rounds', '3', '--sizes', '1', '20'))
        self.assertEqual({'what': 'golden', 'rounds': None, 'volumes': 9},
                         self.parse('golden', '--volumes', '9'))
        self.assertEqual(
            {'what': 'hydration', 'rounds': None, 'size': 2, 'seconds': 30,
             'loads': [2, 5], 'minimum_rate': 16, 'window': None},
            self.parse('hydration', '--loads', '2', '5', '--minimum-rate',
                       '16'))
        for words, expected in (
                ((), (10, [1, 10, 100], 10000, None)),
                (('--size', '1024', '--percentages', '1', '--extents', '0',
                  '--chunk', '64'), (1024, [1], 0, 64))):
            self.assertEqual(
                dict(zip(('size', 'percentages', 'extents', 'chunk'),
                         expected), what='thin', rounds=None),
                self.parse('thin', *words))
        self.assertEqual({'what': 'metadata-fast', 'rounds': None},
                         self.parse('metadata-fast'))

    def test_chunks(self):
        """Those that LVM takes."""
        for text in ('64', '192', '1048576'):
            self.assertEqual(int(text), program.chunk_size(text))
        for text in ('0', '-64', '32', '65', '1048640', '64K'):
            self.assertRaises(ValueError, program.chunk_size, text)

    def test_options_are_those_of_the_benches(self):
        """A bench that is called with others would only fail when it runs."""
        for module in (copies, going_back, golden, host_copies, hydration,
                       neighbours, scale, snapshot_ways, thin,
                       thin_snapshots):
            words = vars(program.parser().parse_args(
                [module.__name__.rpartition('.')[2].replace('_', '-')]))
            del words['what'], words['rounds']
            inspect.signature(module.Bench).bind(**words)

    def rounds(self, minutes, wanted=None, **bench):
        """Return the rounds, each of which takes some minutes."""
        times = (60 * minutes * max(0, number) for number in range(-1, 99))
        return list(program.rounds(types.SimpleNamespace(**bench), wanted,
                                   lambda: next(times)))

    def test_rounds(self):
        self.patch('builtins.print')
        self.assertEqual([1, 2, 3, 4], self.rounds(9))
        self.assertEqual([1], self.rounds(9, ROUNDS=1))
        for minutes, expected in ((2, 4), (3, 4), (4, 3), (5, 2), (9, 2)):
            self.assertEqual(expected, len(self.rounds(minutes, MINUTES=12)))
        self.assertEqual(5, len(self.rounds(9, 5, MINUTES=12)))

    def test_report_is_made_before_the_services_are_restored(self):
        """Results are not lost by a failure to do so."""
        bench = mock.MagicMock(ROUNDS=2, MINUTES=None)
        bench.prepared.return_value.__exit__.side_effect = KeyError
        self.patch('builtins.print')
        with mock.patch('lab.bench.copies.Bench', return_value=bench) as made:
            self.assertRaises(KeyError, program.main, ['copies'])
        made.assert_called_once_with(sizes=[1, 100], lvm_sizes=[1])
        self.assertEqual(2, bench.round.call_count)
        bench.report.assert_called_once_with()

    def test_report_of_complete_rounds_is_made_after_a_failure(self):
        self.patch('builtins.print')
        for failures, reports in (([None, KeyError], 1), ([KeyError], 0)):
            bench = mock.MagicMock(ROUNDS=2, MINUTES=None)
            bench.round.side_effect = failures
            with mock.patch('lab.bench.copies.Bench', return_value=bench):
                self.assertRaises(KeyError, program.main, ['copies'])
            self.assertEqual(reports, bench.report.call_count)


class ImportedTestCase(base.PlainTestCase):

    INFO = {'driver_volume_type': 'iscsi', 'target_portal': '10.77.0.11:3260',
            'target_iqn': 'iqn.x:volume-1', 'target_lun': 1}

    def commands(self, **info):
        node = mock.Mock()
        node.name = 'node1'
        node.try_run.return_value = 0, '', ''
        with remote_disk.volume(node, dict(self.INFO, **info)) as path:
            self.assertEqual('/dev/disk/by-path/ip-10.77.0.11:3260-iscsi-'
                             'iqn.x:volume-1-lun-1', path)
        return [call.args[0] for call in node.run.call_args_list]

    def test_without_chap(self):
        node = 'iscsiadm -m node -T iqn.x:volume-1 -p 10.77.0.11:3260 '
        self.assertEqual(
            ['{0}-o new && {0}--login'.format(node),
             '{0}--logout; {0}-o delete'.format(node)], self.commands())

    def test_with_chap(self):
        login, _logout = self.commands(auth_username='u', auth_password='p')
        for setting in ('authmethod -v CHAP', 'username -v u',
                        'password -v p'):
            self.assertIn('-o update -n node.session.auth.' + setting, login)


class BesideTestCase(base.PlainTestCase):

    def test_sizes_that_fit(self):
        self.assertEqual([1, 100], lvm_beside.fitting([100, 1], 400))
        self.assertEqual([1, 71], lvm_beside.fitting([1, 100], 220))
        self.assertEqual([2], lvm_beside.fitting([3, 100], 8.5))

    def test_changes(self):
        node, here = mock.Mock(ip='10.77.0.11'), settings.Settings()
        found = config.merged(
            config.cinder_node('node1', node.ip, here),
            lvm_beside.changes(node, here, 'project', 'user'))
        self.assertEqual('dmclone,lvm', found['DEFAULT']['enabled_backends'])
        self.assertEqual('project', found['DEFAULT'][
            'cinder_internal_tenant_project_id'])
        for kind in lvm_beside.KINDS:
            self.assertEqual(
                (config.DRIVERS[kind], 'default', 'True'), tuple(map(
                    found[kind].get, ('volume_driver', 'lvm_type',
                                      'image_volume_cache_enabled'))))

    def has_room(self, free, needed, reported='2026-01-01T10:00:00.5'):
        return lvm_beside.has_room(
            [{'name': 'node2@lvm#lvm', 'capabilities': {}},
             {'name': 'node1@lvm#lvm', 'capabilities': {
                 'free_capacity_gb': free, 'timestamp': reported}}],
            'node1@lvm#lvm', needed, 3, datetime.datetime(
                2026, 1, 1, 10, 1, tzinfo=datetime.UTC))

    def test_room(self):
        self.assertTrue(self.has_room(6.99, 3))
        # What was taken since the report may be in it.
        self.assertFalse(self.has_room(6.99, 6))
        for zone in ('', 'Z', '+00:00'):
            self.assertTrue(self.has_room(
                6.99, 6, '2026-01-01T10:01:01' + zone))
        self.assertFalse(self.has_room(5.9, 6, '2026-01-01T10:01:01'))
        self.assertFalse(lvm_beside.has_room([], 'x', 0, 0, None))


class CopiesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.patch('builtins.print')
        self.bench = copies.Bench.__new__(copies.Bench)
        self.bench.results = ratios.Ratios()

    def note(self, way, kind, what, *values):
        for value in values:
            self.bench.results.note(copies.name_of(way, kind, what), value)

    def test_ratios(self):
        self.note('clone of a volume', 'lvm', '1 GiB', 20, 30)
        self.note('clone of a volume', 'lvm', '2 GiB', 40, 60)
        self.note('clone of a volume', 'dmclone', '1 GiB', 10, 12)
        self.note('clone of a volume', 'dmclone', '100 GiB', 10, 15)
        for kind, rates in (('lvm', (900, 450, 90)),
                            ('dmclone', (800, 600, 200))):
            for count, rate in zip(copies.SNAPSHOTS, rates):
                self.note('requests a second', kind,
                          copies.snapshots_name(count), rate)
        self.bench.results.save = mock.Mock()
        self.bench.report()
        path, base_of = self.bench.results.save.call_args.args
        rows = [{'name': name, 'values': values,
                 'ratio': self.bench.results.of(name, base_of(name))}
                for name, values in self.bench.results.values.items()]
        self.assertEqual([
            ['', 'clone of a volume', 'requests a second'],
            ['LVM, 1 GiB', '1.00 (1.00 to 1.00)', ''],
            ['LVM, 2 GiB', '2.00 (2.00 to 2.00)', ''],
            ['dmclone, 1 GiB', '0.45 (0.40 to 0.50)', ''],
            ['dmclone, 100 GiB', '0.50 (0.50 to 0.50)', ''],
            ['LVM, 0 snapshots', '', '1.00 (1.00 to 1.00)'],
            ['LVM, 1 snapshot', '', '0.50 (0.50 to 0.50)'],
            ['LVM, 5 snapshots', '', '0.10 (0.10 to 0.10)'],
            ['dmclone, 0 snapshots', '', '1.00 (1.00 to 1.00)'],
            ['dmclone, 1 snapshot', '', '0.75 (0.75 to 0.75)'],
            ['dmclone, 5 snapshots', '', '0.25 (0.25 to 0.25)']],
            ratios.table(rows))

    def test_loads_write_to_parts_of_their_own(self):
        """None overwrites the numbered writes, or the end of the volume."""
        commands = [guest_load.command('/dev/a:b', number)
                    for number in range(len(copies.SNAPSHOTS))]
        self.assertIn(r"--filename='/dev/a\:b' ", commands[0])
        starts = [int(word[9:-1]) for command in commands
                  for word in command.split() if word.startswith('--offset=')]
        self.assertEqual([16, 272, 528], starts)
        self.assertLessEqual(starts[-1] + guest_load.PART,
                             guest_load.SIZE * 1024)

    def test_measured_load(self):
        node = mock.Mock()
        node.run.return_value = json.dumps({'jobs': [{
            'read': {'iops': 0}, 'write': {
                'iops': 5, 'lat_ns': {'max': 3000000}, 'clat_ns': {
                    'percentile': {'99.000000': 2000000}}}}]})
        self.assertEqual({'requests a second': 5, 'p99 in ms': 2},
                         guest_load.run(node, '/dev/handle', 1))


class GoldenTestCase(base.PlainTestCase):

    def test_volumes_that_fit(self):
        self.assertEqual(100, golden.fitting(100, 219.99, 200))
        self.assertEqual(41, golden.fitting(100, 219.99, 71.5))
        self.assertEqual(47, golden.fitting(100, 50, 200))

    def bench(self, *listed, rows=()):
        found = golden.Bench.__new__(golden.Bench)
        found.lab, found.user = mock.Mock(), mock.Mock()
        found.lab.sql.side_effect = lambda text: (
            [(0,)] if 'COUNT' in text else rows)
        found.node, found.peer = mock.Mock(), mock.Mock()
        found.node.run.return_value = '\n'.join(listed)
        found.peer.run.return_value = ''
        found.results = mock.Mock()
        return found

    def test_what_is_no_volume_in_use(self):
        rows = [('a', None), ('b', 'c')]
        self.assertEqual(['_snapshot-s', 'volume-b'], self.bench(
            '_snapshot-s', 'volume-a', 'volume-b', 'volume-c',
            rows=rows)._unexpected())

    def test_deleted_too_late_or_too_early(self):
        bench = self.bench()
        self.assertRaisesRegex(golden.errors.LabError, 'more volumes',
                               bench._delete_golden, 'v', 's')
        bench.lab.sql.side_effect = [[(4,)], [(3,)]]
        self.assertRaisesRegex(AssertionError, '3 volumes are copied',
                               bench._delete_golden, 'v', 's')

    def test_wrong_data(self):
        bench = self.bench('x  -')
        node = mock.Mock()
        node.run.side_effect = ['sum  -', 'v v\n', 'sum  -', 'w\n', 'no  -']
        used = {'v': (node, '/dev/v')}
        bench._compare_all(used, 'sum')
        for _what in ('mark', 'checksum'):
            self.assertRaises(AssertionError, bench._compare_all, used, 'sum')
