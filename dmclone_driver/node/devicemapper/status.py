# SPDX-License-Identifier: Apache-2.0
"""Device-mapper status as values."""

import dataclasses

from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors


@dataclasses.dataclass(frozen=True)
class Device:
    """What the kernel says about a device, see :func:`ioctl.info`."""

    name: str
    uuid: str
    open_count: int
    suspended: bool
    #: It has a table. It has none if its creation was interrupted.
    live: bool = True
    #: Its table refuses writes.
    read_only: bool = False


@dataclasses.dataclass(frozen=True)
class CloneStatus:
    """The status of a clone target; counts are of regions.

    Format: the kernel's admin-guide/device-mapper/dm-clone.rst. ``mode`` is
    ``rw``, ``ro`` (a metadata commit failed: nothing newer than the last one
    is recorded) or ``Fail``.
    """

    length: Sectors
    mode: str
    region: Sectors = Sectors(0)
    hydrated: int = 0
    total: int = 0
    hydrating: int = 0
    hydration: bool = False
    #: The largest number of regions copied in the background at a time; with 0
    #: none is begun.
    threshold: int = 1
    #: The largest number of adjacent regions copied as one.
    batch: int = 0

    @property
    def healthy(self) -> bool:
        """Whether the metadata works, so that the counts are reliable."""
        return self.mode == 'rw'

    @property
    def region_bytes(self) -> Bytes:
        """The size of a region in bytes."""
        return Bytes(self.region * table.SECTOR)

    @property
    def paused(self) -> bool:
        """Whether hydration is on, and begins no copy for the moment."""
        return self.hydration and not self.threshold

    @property
    def written(self) -> bool:
        """Whether a write to the destination is done or pending.

        Only valid if hydration has never been enabled.
        """
        return bool(self.hydrated or self.hydrating)

    def copies(self, window: int) -> bool:
        """Return whether a window of some regions is being copied.

        Copies for a guest's writes, and a look of dm-clone for a moment to
        copy, count in the same number.
        """
        most = min(window, self.total - self.hydrated)
        return 2 * self.hydrating >= max(2, most)

    def without(self, marked: int) -> 'CloneStatus':
        """Return the status without regions that are not copied.

        :param marked: those that are marked as present, at most; others count
            as hydrated in the kernel, too
        """
        fewer = min(marked, self.hydrated)
        return dataclasses.replace(self, hydrated=self.hydrated - fewer,
                                   total=self.total - fewer)

    @property
    def complete(self) -> bool:
        """Whether the source is no longer needed."""
        return (self.healthy and self.total > 0 and
                self.hydrated == self.total and not self.hydrating)


@dataclasses.dataclass(frozen=True)
class PoolStatus:
    """The status of a thin-pool target; counts are of blocks.

    Format: the kernel's admin-guide/device-mapper/thin-provisioning.rst.
    ``mode`` is ``rw``, ``out_of_data_space``, ``ro`` (its metadata is full or
    has failed) or ``Fail``.

    :ivar copied: whether there is a copy of its metadata, for programs that
        read it; blocks that are freed are not reused meanwhile
    :ivar needs_check: whether it stays read-only until its metadata is checked
    """

    length: Sectors
    mode: str
    used: int = 0
    total: int = 0
    metadata_used: int = 0
    metadata_total: int = 0
    copied: bool = False
    needs_check: bool = False

    @property
    def takes_messages(self) -> bool:
        """Whether it copies its metadata (pool_message in dm-thin.c)."""
        return self.mode in ('rw', 'out_of_data_space')


def _first_target(text: str, kind: str) -> tuple[Sectors, list[str]]:
    """Return the length and the words of a device's first target.

    :param kind: what the target has to be
    :raises: ValueError if it is something else
    """
    words = text.partition('\n')[0].split()
    if len(words) < 4 or words[2] != kind:
        raise ValueError('not the status of a %s: %r' % (
            kind.replace('-', ' '), text))
    return Sectors(int(words[1])), words


def pool(text: str) -> PoolStatus:
    """Parse the status of a thin pool, without the device's name.

    :raises: ValueError if it is something else
    """
    length, words = _first_target(text, 'thin-pool')
    if words[3] in ('Fail', 'Error'):
        return PoolStatus(length=length, mode=words[3])
    metadata, data = (list(map(int, each.split('/'))) for each in words[4:6])
    return PoolStatus(
        length=length, mode=words[7], used=data[0], total=data[1],
        metadata_used=metadata[0], metadata_total=metadata[1],
        copied=words[6] != '-', needs_check='needs_check' in words)


def thin(text: str) -> Sectors:
    """Return what a thin volume has mapped, from its status.

    Format: the kernel's admin-guide/device-mapper/thin-provisioning.rst.

    :raises: ValueError if it is something else, or has failed
    """
    mapped = _first_target(text, 'thin')[1][3]
    if not mapped.isdecimal():
        raise ValueError('the thin volume has failed: %r' % text)
    return Sectors(int(mapped))


def clone(text: str) -> CloneStatus:
    """Parse the status of a clone, without the device's name.

    What is beyond the clone in the device does not matter, see anchor.

    :raises: ValueError if it is something else
    """
    length, words = _first_target(text, 'clone')
    if words[3] in ('Fail', 'Error'):
        return CloneStatus(length=length, mode=words[3])
    hydrated, total = words[6].split('/')
    arguments = 9 + int(words[8])
    features = words[9:arguments]
    core = words[arguments:]
    return CloneStatus(
        length=length, mode=words[-1], region=Sectors(int(words[5])),
        hydrated=int(hydrated), total=int(total), hydrating=int(words[7]),
        hydration='no_hydration' not in features,
        threshold=int(core[core.index('hydration_threshold') + 1]),
        batch=int(core[core.index('hydration_batch_size') + 1]))
