# SPDX-License-Identifier: Apache-2.0
"""What a thin pool has allocated of a volume, as regions of a clone.

``thin_dump`` of thin-provisioning-tools prints a pool's metadata as XML
(thin_dump(8); src/thin/xml.rs there)::

    <superblock uuid="" time="1" transaction="3" version="2"
                data_block_size="128" nr_data_blocks="800">
      <def name="1">
        <range_mapping origin_begin="0" data_begin="8" length="4" time="0"/>
      </def>
      <device dev_id="1" mapped_blocks="5" transaction="0"
              creation_time="0" snap_time="1">
        <ref name="1"/>
        <single_mapping origin_block="9" data_block="12" time="0"/>
      </device>
    </superblock>

Whatever of this is not understood, or does not add up, makes the whole map
unusable: a block that was overlooked would be taken for zeros. A volume
without a map is copied as a whole.
"""

import collections.abc
import dataclasses
import itertools
import re
import shutil
from xml.parsers import expat

from dmclone_driver.node.quantities import Sectors


# Where it is, beside the folders of PATH: daemons may have a short one.
_FOLDERS = '/usr/sbin:/sbin:/usr/bin:/bin'


def is_installed() -> bool:
    """Return whether thin_dump is installed; it is not run."""
    return any(shutil.which('thin_dump', path=path)
               for path in (None, _FOLDERS))


class UnusableMap(Exception):
    """There is no map by which regions may be left out of a copy."""


@dataclasses.dataclass(frozen=True, order=True)
class Range:
    """Adjacent blocks of a volume, or regions of a clone."""

    first: int
    count: int

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + self.count

    def __str__(self) -> str:
        return '%d+%d' % (self.first, self.count)

    @classmethod
    def parse(cls, text: str) -> 'Range':
        """Return the range of a text.

        :raises: ValueError
        """
        match = re.fullmatch(r'([0-9]+)\+([1-9][0-9]*)', text)
        if match is None:
            raise ValueError('%r is no range' % text)
        return cls(int(match[1]), int(match[2]))


@dataclasses.dataclass(frozen=True)
class ThinMap:
    """The blocks that a pool has allocated for a thin volume.

    :ivar block: size of a block of the pool
    :ivar allocated: in ascending order, without overlaps
    """

    block: Sectors
    allocated: tuple[Range, ...]


class _Reader:
    """Follows the elements of the output."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._shared: dict[str, list[Range]] = {}
        # Where the next mappings belong to, None outside of all devices.
        self._here: list[Range] | None = None
        self.block: Sectors | None = None
        self.found: list[Range] | None = None
        self.mapped = 0

    def start(self, name: str, given: dict[str, str]) -> None:
        if name == 'superblock':
            self.block = Sectors(int(given['data_block_size']))
        elif name == 'def':
            self._here = self._shared[given['name']] = []
        elif name == 'device':
            self._here = []
            if int(given['dev_id']) == self._device:
                self.found = self._here
                self.mapped = int(given['mapped_blocks'])
        elif self._here is None:
            raise UnusableMap('there is a %s outside of a device' % name)
        elif name == 'ref':
            self._here += self._shared[given['name']]
        elif name == 'single_mapping':
            self._here.append(Range(int(given['origin_block']), 1))
        elif name == 'range_mapping':
            self._here.append(Range(int(given['origin_begin']),
                                    int(given['length'])))
        else:
            raise UnusableMap('there is a %s in it' % name)

    def end(self, name: str) -> None:
        if name in ('def', 'device'):
            self._here = None


def parse(text: str, device: int) -> ThinMap:
    """Return the map of a thin volume.

    :param text: what thin_dump has printed
    :param device: the number of the volume in its pool (``lvs -o thin_id``)
    :raises: UnusableMap
    """
    reader, parser = _Reader(device), expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, KeyError, ValueError) as error:
        raise UnusableMap('it cannot be read: %s' % error)
    if not reader.block or reader.found is None:
        raise UnusableMap('it does not have device %d' % device)
    allocated = tuple(_joined(reader.found))
    count = sum(each.count for each in allocated)
    if count != reader.mapped:
        raise UnusableMap('it has %d of the %d blocks of device %d' % (
            count, reader.mapped, device))
    return ThinMap(reader.block, allocated)


def _joined(found: list[Range]) -> collections.abc.Iterator[Range]:
    """Yield ranges with those joined that are adjacent in the volume.

    :raises: UnusableMap
    """
    last = None
    for each in found:
        if each.first < 0 or each.count < 1 or last and each.first < last.end:
            raise UnusableMap('its blocks are not in order')
        if last and each.first == last.end:
            last = Range(last.first, last.count + each.count)
            continue
        if last:
            yield last
        last = each
    if last:
        yield last


def unallocated(found: ThinMap, length: Sectors,
                region: Sectors) -> collections.abc.Iterator[Range]:
    """Yield the regions of a clone of which nothing is allocated.

    A region is left out if any of it is allocated, or if it is the last one
    and no whole region: a discard does not cover that (bio_region_range in
    drivers/md/dm-clone-target.c).

    :param length: of the clone
    """
    begin = 0
    for each in (*found.allocated, None):
        end = min(length, each.first * found.block) if each else length
        first, after = -(-begin // region), end // region
        if after > first:
            yield Range(first, after - first)
        if each:
            begin = each.end * found.block


def common(some: collections.abc.Iterable[Range],
           others: collections.abc.Iterable[Range]
           ) -> collections.abc.Iterator[Range]:
    """Yield what is in two lists of ranges, each in ascending order."""
    left, right = iter(some), iter(others)
    one, other = next(left, None), next(right, None)
    while one and other:
        begin, after = max(one.first, other.first), min(one.end, other.end)
        if begin < after:
            yield Range(begin, after - begin)
        if one.end == after:
            one = next(left, None)
        else:
            other = next(right, None)


def inside(ranges: collections.abc.Iterable[Range], first: int,
           end: int) -> list[Range]:
    """Return ranges without what is before the first or from the end on.

    :raises: UnusableMap if they are not in order
    """
    found, last = [], 0
    for each in ranges:
        if each.first < last:
            raise UnusableMap('its regions are not in order')
        last = each.end
        begin, after = max(first, each.first), min(end, each.end)
        if begin < after:
            found.append(Range(begin, after - begin))
    return found


def pages(ranges: collections.abc.Iterable[Range],
          most: int) -> collections.abc.Iterator[str]:
    """Yield texts of bounded size for ranges, such as ``0+16,40+2``.

    :param most: number of ranges in one
    """
    left = iter(ranges)
    while page := list(itertools.islice(left, most)):
        yield ','.join(map(str, page))


def parse_page(text: str) -> list[Range]:
    """Return the ranges of one text of :func:`pages`.

    :raises: ValueError
    """
    return list(map(Range.parse, text.split(',')))
