# SPDX-License-Identifier: Apache-2.0
"""What benchmarks read, compare and print."""

import io
import json
import sqlite3
from unittest import mock

from lab.bench import hydration
from lab.bench import measurements
from lab.bench import numbered
from lab.bench import ratios
from lab.bench import scale
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
            ['clone', '0.30 (0.20 to 0.50)', '1.00']], ratios.table(rows))


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

    def test_last_line_of_a_place_may_be_cut(self):
        self.compare(_1='17 1', _2='18 ')

    def test_lost_and_damaged_writes_are_found(self):
        for line in ('1 1', '', '????', '17 ??7', '17 18', '17 17 17'):
            self.assertRaises(AssertionError, self.compare, _1=line)


class HydrationTestCase(base.PlainTestCase):

    def test_report_of_fio(self):
        idle = {'iops': 0, 'clat_ns': {'percentile': {}}}
        reads, writes = ({'iops': rate, 'clat_ns': {'percentile': {
            '99.000000': latency}}} for rate, latency in (
                (700, 2000000), (300, 5000000)))
        for read, write, expected in ((reads, writes, (1000, 5)),
                                      (reads, idle, (700, 2)),
                                      (idle, writes, (300, 5))):
            self.assertEqual(expected, hydration.parse_load(json.dumps(
                {'jobs': [{'read': read, 'write': write}]})))

    def test_regions(self):
        self.assertEqual(0.25, hydration.parse_regions(
            '0 4194304 clone 8 20/1024 128 8192/32768 0 1 no_hydration'))
        self.assertEqual(1, hydration.parse_regions('0 4194304 linear'))


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
