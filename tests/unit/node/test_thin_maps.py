# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has allocated, and the regions of a clone."""

import random

import ddt

from dmclone_driver.node import thin_maps
from dmclone_driver.node.thin_maps import Range
from tests.unit import base

#: In the form of thin_dump 1.0: volume 2 shares blocks with its snapshot 3.
DUMP = '''<superblock uuid="" time="1" transaction="3" version="2" \
data_block_size="128" nr_data_blocks="800">
  <def name="0">
    <range_mapping origin_begin="0" data_begin="8" length="4" time="0"/>
  </def>
  <def name="1">
    <ref name="0"/>
    <single_mapping origin_block="4" data_block="99" time="0"/>
  </def>
  <device dev_id="1" mapped_blocks="0" transaction="0" creation_time="0" \
snap_time="0">
  </device>
  <device dev_id="2" mapped_blocks="8" transaction="1" creation_time="0" \
snap_time="1">
    <ref name="1"/>
    <single_mapping origin_block="9" data_block="12" time="1"/>
    <range_mapping origin_begin="20" data_begin="30" length="2" time="1"/>
  </device>
  <device dev_id="3" mapped_blocks="5" transaction="2" creation_time="1" \
snap_time="1">
    <ref name="1"/>
  </device>
</superblock>
'''


@ddt.ddt
class ParseTestCase(base.PlainTestCase):

    @ddt.data((1, []), (2, [Range(0, 5), Range(9, 1), Range(20, 2)]),
              (3, [Range(0, 5)]))
    @ddt.unpack
    def test_parse(self, device, allocated):
        found = thin_maps.parse(DUMP, device)
        self.assertEqual((128, allocated), (found.block,
                                            list(found.allocated)))

    @ddt.data(
        # Not there, cut off, and empty.
        (DUMP.replace('dev_id="2"', 'dev_id="7"'), 'does not have'),
        (DUMP[:DUMP.index('  <device dev_id="3"')], 'cannot be read'),
        ('', 'cannot be read'),
        # A lost block, a lost definition, and a block that is there twice.
        (DUMP.replace('length="2"', 'length="1"'), '7 of the 8 blocks'),
        (DUMP.replace('def name="0"', 'def name="9"'), 'cannot be read'),
        (DUMP.replace('origin_block="9"', 'origin_block="3"'), 'in order'),
        # What a later version may add.
        (DUMP.replace('<ref name="1"/>', '<hole/>'), 'there is a hole'),
        (DUMP.replace('origin_begin="20"', 'begin="20"'), 'cannot be read'),
        (DUMP.replace('length="2"', 'length="two"'), 'cannot be read'),
        ('<superblock data_block_size="128"><ref name="0"/></superblock>',
         'outside of a device'),
        ('<other><device dev_id="2" mapped_blocks="0"/></other>',
         'outside of a device'))
    @ddt.unpack
    def test_unusable(self, text, words):
        """It is never taken for a volume with fewer blocks."""
        error = self.assertRaises(thin_maps.UnusableMap, thin_maps.parse,
                                  text, 2)
        self.assertIn(words, str(error))


@ddt.ddt
class RegionsTestCase(base.PlainTestCase):

    def regions(self, allocated, length, region, block=128):
        return list(thin_maps.unallocated(thin_maps.ThinMap(
            block, tuple(Range(*each) for each in allocated)), length, region))

    def test_regions_of_blocks(self):
        self.assertEqual([Range(0, 2), Range(5, 5)],
                         self.regions([(2, 3)], 1280, 128))

    def test_nothing_allocated(self):
        self.assertEqual([Range(0, 10)], self.regions([], 1280, 128))

    def test_all_allocated(self):
        self.assertEqual([], self.regions([(0, 10)], 1280, 128))

    def test_last_part_of_a_region_is_copied(self):
        self.assertEqual([Range(0, 9)], self.regions([], 1279, 128))

    def test_pool_is_larger_than_the_clone(self):
        """The volume was extended while it was a clone."""
        self.assertEqual([Range(0, 5)], self.regions([(7, 3)], 640, 128))

    @ddt.data(*range(200))
    def test_region_by_region(self, seed):
        """Compare with a look at each sector."""
        dice = random.Random(seed)
        block, region = (8 * 2 ** dice.randrange(4) for _each in range(2))
        length = dice.randrange(1, 40) * 8
        allocated, at = [], 0
        for _number in range(dice.randrange(5)):
            at += dice.randrange(1, 4)
            allocated.append((at, dice.randrange(1, 3)))
            at += allocated[-1][1]
        used = {sector for first, count in allocated for sector in range(
            first * block, (first + count) * block)}
        expected = [number for number in range(length // region)
                    if not used.intersection(range(
                        number * region, (number + 1) * region))]
        self.assertEqual(expected, [
            number for each in self.regions(allocated, length, region, block)
            for number in range(each.first, each.end)])


@ddt.ddt
class PagesTestCase(base.PlainTestCase):

    def test_pages(self):
        ranges = [Range(number * 3, 2) for number in range(5)]
        found = list(thin_maps.pages(ranges, 2))
        self.assertEqual(['0+2,3+2', '6+2,9+2', '12+2'], found)
        self.assertEqual(ranges, [each for page in found
                                  for each in thin_maps.parse_page(page)])
        self.assertEqual([], list(thin_maps.pages([], 2)))

    @ddt.data('', '1', '1+0', '1+-1', '-1+1', '1+1,', '1+1 ,2+2', '1+x')
    def test_not_a_page(self, text):
        self.assertRaises(ValueError, thin_maps.parse_page, text)


@ddt.ddt
class InsideTestCase(base.PlainTestCase):

    @ddt.data(([], []), ([Range(0, 5), Range(7, 9)], [(1, 4), (7, 3)]),
              ([Range(0, 1), Range(10, 2)], []), ([Range(3, 1)], [(3, 1)]))
    @ddt.unpack
    def test_inside(self, ranges, expected):
        self.assertEqual([Range(*each) for each in expected],
                         thin_maps.inside(ranges, 1, 10))

    def test_not_in_order(self):
        self.assertRaises(thin_maps.UnusableMap, thin_maps.inside,
                          [Range(4, 2), Range(5, 1)], 1, 10)


@ddt.ddt
class CommonTestCase(base.PlainTestCase):

    def common(self, some, others):
        return list(thin_maps.common(*(
            [Range(*each) for each in ranges] for ranges in (some, others))))

    def test_common(self):
        self.assertEqual([Range(2, 1), Range(5, 1), Range(8, 2)], self.common(
            [(0, 3), (5, 9)], [(2, 2), (5, 1), (8, 2)]))
        self.assertEqual([], self.common([(0, 3)], []))
        self.assertEqual([], self.common([(0, 3)], [(3, 1)]))

    @ddt.data(*range(100))
    def test_number_by_number(self, seed):
        dice = random.Random(seed)
        lists = []
        for _number in range(2):
            at, ranges = 0, []
            for _range in range(dice.randrange(5)):
                at += dice.randrange(3)
                ranges.append((at, dice.randrange(1, 6)))
                at += ranges[-1][1]
            lists.append(ranges)
        some, others = ({number for first, count in ranges
                         for number in range(first, first + count)}
                        for ranges in lists)
        found = self.common(*lists)
        self.assertEqual(sorted(some & others), [
            number for each in found
            for number in range(each.first, each.end)])
