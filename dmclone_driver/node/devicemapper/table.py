# SPDX-License-Identifier: Apache-2.0
"""Device-mapper tables as values.

All lengths and offsets are in sectors of 512 bytes, as in the kernel's
tables. The formats are those of the kernel's documentation,
admin-guide/device-mapper/{linear,zero,delay,dm-clone}.rst.
"""

import dataclasses

from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors

SECTOR = 512


@dataclasses.dataclass(frozen=True)
class Linear:
    """A range of another device."""

    length: Sectors
    device: str
    offset: Sectors = Sectors(0)

    def __str__(self) -> str:
        return 'linear %s %d' % (self.device, self.offset)


@dataclasses.dataclass(frozen=True)
class Zero:
    """Reads return zeros; writes are dropped."""

    length: Sectors

    def __str__(self) -> str:
        return 'zero'


@dataclasses.dataclass(frozen=True)
class Delay:
    """The begin of another device, whose reads take some time.

    Writes and flushes do not.
    """

    length: Sectors
    device: str
    milliseconds: int

    def __str__(self) -> str:
        return 'delay %s 0 %d %s 0 0' % (self.device, self.milliseconds,
                                         self.device)


@dataclasses.dataclass(frozen=True)
class Error:
    """Fails every request."""

    length: Sectors

    def __str__(self) -> str:
        return 'error'


@dataclasses.dataclass(frozen=True)
class Clone:
    """A destination that reads its source where it is not hydrated yet.

    Always created with hydration disabled; a message enables it. Discards
    are not passed down: on a thick volume that would only hide the
    difference between regions that were copied and regions that were not.
    """

    length: Sectors
    metadata: str
    destination: str
    source: str
    region: Sectors
    threshold: int = 1
    batch: int = 1

    def __str__(self) -> str:
        return ('clone %s %s %s %d 2 no_hydration no_discard_passdown '
                '4 hydration_threshold %d hydration_batch_size %d' % (
                    self.metadata, self.destination, self.source,
                    self.region, self.threshold, self.batch))


@dataclasses.dataclass(frozen=True)
class SnapshotOrigin:
    """A device of which snapshots have been taken: writes save old blocks.

    Format of this and the next one: the kernel's
    admin-guide/device-mapper/snapshot.rst.
    """

    length: Sectors
    device: str

    def __str__(self) -> str:
        return 'snapshot-origin %s' % self.device


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The former content of a device: saved blocks, others from the origin.

    The saved blocks survive a reboot. Their number in the store is not
    limited, unless by its size.
    """

    length: Sectors
    origin: str
    store: str
    chunk: Sectors

    def __str__(self) -> str:
        return 'snapshot %s %s P %d' % (self.origin, self.store, self.chunk)


Segment = Linear | Zero | Delay | Error | Clone | SnapshotOrigin | Snapshot


def text(*segments: Segment) -> str:
    """Return segments as the table that dmsetup loads."""
    start, lines = 0, []
    for segment in segments:
        lines.append('%d %d %s\n' % (start, segment.length, segment))
        start += segment.length
    return ''.join(lines)


def concise(name: str, uuid: str, *segments: Segment) -> str:
    """Return a device as ``dmsetup create --concise`` reads it.

    Devices are separated by semicolons (dmsetup(8)); there is neither a comma
    nor a semicolon in our names and paths.
    """
    return ','.join([name, uuid, '', 'rw', *text(*segments).splitlines()])


def length(*segments: Segment) -> Sectors:
    """Return the length of a table."""
    return Sectors(sum(segment.length for segment in segments))


def sectors(size: Bytes) -> Sectors:
    """Convert bytes to sectors.

    :raises: ValueError if it is not a whole number of sectors
    """
    count, rest = divmod(size, SECTOR)
    if rest:
        raise ValueError('%d is not a whole number of sectors' % size)
    return Sectors(count)
