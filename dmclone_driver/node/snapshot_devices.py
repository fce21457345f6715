# SPDX-License-Identifier: Apache-2.0
"""The devices of snapshots that are taken above a volume's clone.

::

    users       [handle]            [snapshot]
                    |  snapshot-    /   |
                    |  origin      /    |
                 [origin]---------+  saved blocks (logical volume)
                    |  linear
                 [clone], later the data LV

LVM cannot take a snapshot of a volume that hydrates: its logical volume has
not got all the data. Device-mapper can, of the device above the clone. The
first write to each chunk of the handle saves the old content for the
snapshots; hydration, below, does not.
"""

import collections.abc

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SNAPSHOT
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors

#: The amount that is saved at a time, that of a region by default.
CHUNK = Sectors(128)
_CHUNK_BYTES = Bytes(CHUNK * table.SECTOR)

# Bytes of a record of a saved chunk (struct disk_exception in
# drivers/md/dm-snap-persistent.c).
_RECORD = 16


def store_size(size: Bytes,
               chunk: Bytes = _CHUNK_BYTES) -> Bytes:
    """Return the size of a store that can save a whole volume.

    A header, then areas: one chunk of records, and the chunks they describe.

    :param chunk: what is saved at a time
    """
    chunks = -(-size // chunk)
    areas = chunks // (chunk // _RECORD) + 1
    return Bytes((1 + areas + chunks) * chunk)


def has_room(lv: LogicalVolume, size: Bytes) -> bool:
    """Return whether a snapshot of LVM can save its whole origin.

    :param size: of the origin
    """
    return lv.size >= store_size(size, logical_volumes.chunk_size(lv))


def path(taken: Taken) -> str:
    """Return the path of a snapshot's device."""
    return Names(taken.snapshot_id).path(SNAPSHOT)


def taken_of(lv: LogicalVolume) -> list[LogicalVolume]:
    """Return the snapshots that were taken above the clone on a volume.

    Those whose deletion has begun are left out.
    """
    if not lv.has_taken:
        return []
    return [each for each in logical_volumes.find_all(lv.group)
            if each.taken and each.snapshot_of == lv.name and
            not each.deleted]


def build(names: Names, segments: collections.abc.Sequence[table.Segment],
          snapshots: list[LogicalVolume]) -> None:
    """Create the origin and its snapshots; devices that exist are kept.

    :param names: of the volume's logical volume
    :param segments: the table that its handle would have without snapshots
    """
    present = dmsetup.devices(names.of(ORIGIN), *(
        Names(lv.taken.snapshot_id).of(SNAPSHOT) for lv in snapshots
        if lv.taken))
    origin = present.get(names.of(ORIGIN))
    if origin is None or not origin.live:
        dmsetup.create(names.of(ORIGIN), names.uuid(ORIGIN), *segments)
    for lv in snapshots:
        taken = lv.taken
        assert taken is not None
        device = present.get(Names(taken.snapshot_id).of(SNAPSHOT))
        if device is None or not device.live:
            logical_volumes.activate(lv)
            create(taken, lv)


def create(taken: Taken, lv: LogicalVolume, later: bool = False) -> None:
    """Create the device of a snapshot, which refuses writes.

    :param lv: for the saved blocks
    :param later: have it take effect when it is resumed
    """
    names = Names(taken.snapshot_id)
    dmsetup.create(
        names.of(SNAPSHOT), names.uuid(SNAPSHOT), table.Snapshot(
            table.sectors(taken.size), Names(taken.name_id).path(ORIGIN),
            lv.path, CHUNK), read_only=True, later=later)


def remove(taken: Taken) -> None:
    """Remove the device of a snapshot; succeed if there is none.

    :raises: ProcessExecutionError if a volume reads it
    """
    name = Names(taken.snapshot_id).of(SNAPSHOT)
    if dmsetup.device(name) is not None:
        dmsetup.remove(name)
