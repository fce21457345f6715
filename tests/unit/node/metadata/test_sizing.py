# SPDX-License-Identifier: Apache-2.0
"""Sizes of regions and of metadata, for volumes from 1 GiB to 64 TiB."""

import pathlib
import re

import ddt
from oslo_utils import units

from dmclone_driver.node.metadata import lvm
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node.metadata import volatile
from tests.unit import base

GIB, KIB = units.Gi, 2
SIZES = [2 ** power * GIB for power in range(17)]


@ddt.ddt
class RegionTestCase(base.PlainTestCase):

    def test_range(self):
        self.assertEqual((GIB, 64 * units.Ti), (SIZES[0], SIZES[-1]))

    @ddt.data((1 * GIB, 64), (256 * GIB, 64), (256 * GIB + 512, 128),
              (512 * GIB, 128), (64 * units.Ti, 16384))
    @ddt.unpack
    def test_region(self, size, kib):
        self.assertEqual(kib * KIB, sizing.region(size))

    def test_all_sizes(self):
        last = 0
        for size in SIZES:
            sectors = sizing.region(size)
            self.assertEqual(0, sectors & (sectors - 1), size)
            self.assertGreaterEqual(sectors, max(last, sizing.SMALLEST_REGION,
                                                 64 * KIB))
            self.assertLessEqual(sectors, sizing.LARGEST_REGION)
            self.assertLessEqual(sizing.regions(size, sectors),
                                 sizing.MOST_REGIONS)
            last = sectors

    def test_configured(self):
        for size in SIZES:
            self.assertEqual(4 * KIB, sizing.region(size, 4))
            self.assertEqual(2097152, sizing.region(size, 1048576))

    def test_beyond_all_sizes(self):
        self.assertEqual(sizing.LARGEST_REGION,
                         sizing.region(2 ** 70))

    @ddt.data((1 * GIB, 4), (16 * GIB, 4), (16 * GIB + 512, 8),
              (64 * units.Ti, 16384))
    @ddt.unpack
    def test_small_regions(self, size, kib):
        self.assertEqual(kib * KIB, sizing.region(size, smallest=4))

    @ddt.data(4, 8, 64, 1024, 1048576)
    def test_valid(self, kib):
        self.assertTrue(sizing.valid_region(kib))

    @ddt.data(0, 1, 2, 3, 5, 6, 100, 1048575, 2097152, -4)
    def test_invalid(self, kib):
        self.assertFalse(sizing.valid_region(kib))

    @ddt.data((GIB, 2 * KIB, 2 ** 19), (GIB + 512, 2 * KIB, 2 ** 19 + 1),
              (1024, 2 * KIB, 1), (1, 2 * KIB, 1))
    @ddt.unpack
    def test_regions_are_rounded_up(self, size, sectors, count):
        self.assertEqual(count, sizing.regions(size, sectors))


@ddt.ddt
class MetadataSizeTestCase(base.PlainTestCase):

    # Measured worst cases with regions of 4 KiB: see sizing.metadata_size.
    @ddt.data((100 * GIB, 6528 * units.Ki), (units.Ti, 66.5 * units.Mi))
    @ddt.unpack
    def test_measured(self, size, used):
        count = sizing.regions(size, 4 * KIB)
        self.assertGreaterEqual(sizing.metadata_size(count), used)

    def test_smallest(self):
        self.assertGreaterEqual(sizing.metadata_size(1), 2 * units.Mi)

    def test_monotonic_and_bounded(self):
        last = 0
        for size in SIZES:
            count = sizing.regions(size, 4 * KIB)
            needed = sizing.metadata_size(count)
            self.assertGreater(needed, last)
            # The minimum is two bitmaps with one bit per region.
            self.assertGreater(needed, 2 * count / 8)
            last = needed
            chosen = sizing.regions(size, sizing.region(size))
            self.assertLess(sizing.metadata_size(chosen), 5 * units.Mi)


class DocumentationTestCase(base.PlainTestCase):
    """The table in the documentation has the computed values."""

    PAGE = (pathlib.Path(__file__).parents[4] /
            'doc/source/admin/metadata.rst')
    ROW = re.compile(r'\* - (\d+) (GiB|TiB)\n' + 2 * (
        r' +- (\d+) KiB\n +- (\d+) MiB\n') + r' +- (\d+) MiB\n')

    def test_table(self):
        rows = self.ROW.findall(self.PAGE.read_text())
        self.assertEqual(('1', '64'), (rows[0][0], rows[-1][0]))
        for number, unit, *row in rows:
            size = int(number) * {'GiB': GIB, 'TiB': units.Ti}[unit]
            expected = []
            for store in (lvm.LogicalVolumeMetadata,
                          volatile.VolatileMetadata):
                sectors = sizing.region(size, 0, store.smallest_region)
                expected += [sectors // KIB, self._needed(size, sectors)]
            expected.append(self._needed(size, 4 * KIB))
            self.assertEqual(expected, [int(each) for each in row],
                             number + unit)

    @staticmethod
    def _needed(size, sectors):
        """Return the MiB of metadata."""
        count = sizing.regions(size, sectors)
        return -(-sizing.metadata_size(count) // units.Mi)
