# SPDX-License-Identifier: Apache-2.0
"""Texts of tables, as in the kernel's documentation."""

from dmclone_driver.node.devicemapper import table
from tests.unit import base


class TableTestCase(base.PlainTestCase):

    def test_segments_follow_each_other(self):
        self.assertEqual(
            '0 2048 zero\n'
            '2048 100 linear /dev/a 0\n'
            '2148 7 linear /dev/b 5\n'
            '2155 1 error\n',
            table.text(table.Zero(2048), table.Linear(100, '/dev/a'),
                       table.Linear(7, '/dev/b', 5), table.Error(1)))

    def test_clone(self):
        """Metadata, destination, source, region; then counted options."""
        self.assertEqual(
            '0 4096 clone /m /d /s 8 2 no_hydration no_discard_passdown '
            '4 hydration_threshold 3 hydration_batch_size 5\n',
            table.text(table.Clone(4096, '/m', '/d', '/s', 8, 3, 5)))

    def test_delay(self):
        """For reads, and another device, offset and delay for the rest."""
        self.assertEqual('0 8 delay /z 0 500 /z 0 0\n',
                         table.text(table.Delay(8, '/z', 500)))

    def test_sectors(self):
        self.assertEqual(2 ** 37, table.sectors(2 ** 46))
        self.assertEqual(0, table.sectors(0))
        for size in (1, 511, 513, 2 ** 40 + 256):
            self.assertRaises(ValueError, table.sectors, size)
