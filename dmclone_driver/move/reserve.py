# SPDX-License-Identifier: Apache-2.0
"""The reserve of a thin pool: what copies leave for the writes of guests.

A copy has room when it begins. Later guests, snapshots and other volumes may
have taken it: more can be provisioned than the pool has. So copies stop before
the reserve. All that counts is asked of the kernel at each look.
"""

import collections.abc
import dataclasses
import math

from dmclone_driver.move import pace
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import lvm
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import thin_pools

#: The reserve in per cent, if reserved_percentage is less: 0 by default. That
#: of metadata is larger: without any, nothing in the pool can be written.
LEAST, LEAST_OF_METADATA = 2, 10

# What has to be free besides the reserve, in per cent of the pool, before a
# copy goes on that does not fit as a whole.
_AGAIN = 1

# Of the pool: copies that near the reserve share half of this part at least
# between two looks, so that they get there.
_PART = 1000


def percentage(configured: int) -> int:
    """Return the reserve for data, in per cent.

    :param configured: reserved_percentage
    """
    return max(configured, LEAST)


def percentage_of_metadata(configured: int) -> int:
    """Return the reserve for the pool's metadata, in per cent.

    :param configured: reserved_percentage
    """
    return max(configured, LEAST_OF_METADATA)


@dataclasses.dataclass(frozen=True)
class Room:
    """What the copies of a node may take of its thin pool.

    :ivar thin: those that need it
    :ivar left: what is free besides the reserve; negative if guests use that
        already
    :ivar block: what it allocates at a time
    :ivar metadata_short: whether of its metadata only the reserve is left, or
        it cannot be written
    """

    thin: frozenset[Names] = frozenset()
    size: Bytes = Bytes(0)
    left: Bytes = Bytes(0)
    block: Bytes = Bytes(0)
    metadata_short: bool = False

    @property
    def used_up(self) -> bool:
        """Whether copies may take nothing."""
        return self.metadata_short or self.left <= 0

    def begins(self, size: float) -> bool:
        """Whether a copy of some bytes may begin, or go on."""
        return not self.used_up and (
            self.left >= min(size, self.size * _AGAIN / 100))

    def allocated_per_byte(self, copy: pace.Copy) -> float:
        """Return what may be allocated for each byte that is copied.

        A region takes a whole block if its neighbours are not copied.
        """
        return max(1, self.block / copy.region) if copy.region else 1

    def rate(self, seconds: float, copies: int) -> float:
        """Return what each of the copies that run may take.

        Together they take half of what is left before the next look, even if
        as many begin at this one, but for the last 0.05 % of the pool: so they
        get to the reserve.

        :param seconds: from one look to the next
        :returns: bytes per second; 0 for nothing
        """
        if self.used_up:
            return 0
        return max(self.left, self.size / _PART) / (2 * seconds * copies)


def room(found: status.PoolStatus, reserved: int,
         thin: collections.abc.Iterable[Names]) -> Room:
    """Return the room in a pool.

    :param reserved: reserved_percentage
    """
    if not found.total:
        # It has failed.
        return Room(frozenset(thin), metadata_short=True)
    size = Bytes(found.length * table.SECTOR)
    free = found.total - found.used - found.total * percentage(reserved) / 100
    least = percentage_of_metadata(reserved)
    free_metadata = found.metadata_total - found.metadata_used
    return Room(
        frozenset(thin), size, Bytes(math.floor(free * size / found.total)),
        Bytes(size // found.total), metadata_short=found.mode == 'ro' or
        free_metadata * 100 <= found.metadata_total * least)


def lacks_metadata(group: str, pool: str, reserved: int) -> bool:
    """Whether only the reserve of a pool's metadata is left.

    :param pool: name of its logical volume
    :param reserved: reserved_percentage
    :raises: ProcessExecutionError
    """
    found, _thin = dmsetup.pool(thin_pools.device_of(group, pool))
    return found is None or room(found, reserved, ()).metadata_short


def look(group: str, reserved: int,
         copies: collections.abc.Collection[Names]) -> Room:
    """Return the room for some copies, in one look at the kernel.

    Without a pool, or without a copy, nothing is asked.

    :param group: the volume group of their logical volumes
    :raises: ProcessExecutionError
    """
    pool = thin_pools.device_of(group)
    if not copies or pool not in sysfs.devices():
        return Room()
    names = {lvm.device(group, each.volume): each for each in copies}
    found, thin = dmsetup.pool(pool, *names)
    if found is None or not thin:
        return Room()
    return room(found, reserved, (names[each] for each in thin))


def limit(copies: list[pace.Copy], found: Room, seconds: float,
          turns: int) -> list[pace.Copy]:
    """Return copies with what the pool allows them.

    :param seconds: from one look at the pool to the next
    :param turns: how many may begin until then, at most
    """
    mine = [each for each in copies if each.names in found.thin]
    most = sum(min(each.left * found.allocated_per_byte(each), each.size)
               for each in mine)
    if most <= found.left and not found.metadata_short:
        return copies
    running = sum(each.running for each in mine)
    rate = found.rate(seconds, max(1, running, min(turns, len(mine))))
    return [dataclasses.replace(
        each, room=rate / found.allocated_per_byte(each)
        if each.running or found.begins(each.left) else 0)
        if each.names in found.thin else each for each in copies]
