# SPDX-License-Identifier: Apache-2.0
"""Ratios and tables of measurements."""

import json

from lab.bench import ratios
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
