# SPDX-License-Identifier: Apache-2.0
"""The handle of a volume: created, and put on other data while it is in use.

It is on the logical volume, or on the clone. Above a clone that takes
discards, and while snapshots are taken above a clone, there is the device of
an origin in between: see :mod:`snapshot_devices`.
"""

import collections.abc

from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SNAPSHOT
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node.roles import Roles
from dmclone_driver.node import snapshot_devices

LOG = logging.getLogger(__name__)

# Seconds that all requests to a handle may have to wait for those that are
# under way.
SUSPEND_LIMIT = 5


def _linear(lv: LogicalVolume) -> list[table.Segment]:
    return [table.Linear(table.sectors(lv.size), lv.path)]


def create_linear(volumes: collections.abc.Mapping[Names, LogicalVolume]
                  ) -> None:
    """Create the linear handles of many volumes, which have none, at once.

    :raises: ProcessExecutionError; some may be missing then
    """
    dmsetup.create_together(*(
        table.concise(names.of(HANDLE), names.uuid(HANDLE), *_linear(lv))
        for names, lv in volumes.items()))


class Handle(Roles):
    """The handle of one volume on this node."""

    def ensure_linear(self, lv: LogicalVolume,
                      read_only: bool = False) -> None:
        """Create the linear handle of a volume that is complete on this node.

        An existing handle is not changed: it may be in use.

        :param read_only: for a source, which refuses writes
        """
        if not self.exists():
            self._create_handle(lv, _linear(lv), read_only)

    def ensure_read_only(self, path: str, size: Bytes) -> None:
        """Create the handle of a source that is a snapshot.

        :param path: of the snapshot's device
        """
        if not self.exists():
            dmsetup.create(self.names.of(HANDLE), self.names.uuid(HANDLE),
                           table.Linear(table.sectors(size), path),
                           read_only=True)

    def _create_handle(self, lv: LogicalVolume, segments: list[table.Segment],
                       read_only: bool = False) -> None:
        """Create a handle, with the snapshots above the clone before it."""
        snapshots = snapshot_devices.taken_of(lv)
        refuses = lv.markable and self.is_clone()
        if refuses and not snapshots:
            # One that is left by an interrupted attempt may be outdated.
            self.remove(ORIGIN)
        if refuses or snapshots:
            snapshot_devices.build(self.names, segments, snapshots)
            segments = self._over_origin(segments)
        dmsetup.create(self.names.of(HANDLE), self.names.uuid(HANDLE),
                       *segments, read_only=read_only)

    def _over_origin(self, segments: list[table.Segment]
                     ) -> list[table.Segment]:
        return [table.SnapshotOrigin(table.length(*segments),
                                     self.names.path(ORIGIN))]

    def _segments(self, lv: LogicalVolume) -> list[table.Segment]:
        """Return the table that tells where a volume's data is."""
        return self._over_clone(lv) if self.is_clone() else _linear(lv)

    def _over_clone(self, lv: LogicalVolume) -> list[table.Segment]:
        """Return a handle's table over a clone, and what is beyond it."""
        cloned = table.sectors(lv.cloned)
        rest = Sectors(table.sectors(lv.size) - cloned)
        return [table.Linear(cloned, self.names.path(CLONE)),
                *([table.Linear(rest, lv.path, cloned)] if rest else [])]

    def _has_origin(self) -> bool:
        """Return whether the handle is that of an origin of snapshots.

        It may have none: such a handle takes no discards, in any kernel and
        with each table that is loaded (origin_ctr in drivers/md/dm-snap.c sets
        no num_discard_bios).
        """
        return ({self.names.of(ORIGIN), self.names.of(HANDLE)} <=
                set(sysfs.devices()) and
                dmsetup.state(self.names.of(HANDLE)) in swap.ORIGIN)

    def _swap(self, role: str, segments: list[table.Segment],
              expected: tuple[str, ...], clone: str | None = None,
              limit: float | None = None, begin: tuple[str, ...] = (),
              read_only: bool = False) -> str | None:
        return dmsetup.swap(
            self.names.of(role), *segments, expected=expected, clone=clone,
            limit=limit, begin=begin, read_only=read_only,
            lock=self.names.of(HANDLE))

    def _swap_soon(self, role: str, segments: list[table.Segment],
                   expected: tuple[str, ...], begin: tuple[str, ...] = (),
                   read_only: bool = False) -> None:
        """Swap a device's table, unless its requests do not end.

        :raises: RequestsWait, UnexpectedTable: nothing is changed
        """
        found = self._swap(role, segments, expected, limit=SUSPEND_LIMIT,
                           begin=begin, read_only=read_only)
        if found == swap.WAITS:
            raise exception.RequestsWait(device=self.names.path(),
                                         names=self.names)
        self._require(found, expected)

    def _require(self, found: str | None, expected: tuple[str, ...]) -> None:
        if found is not None:
            raise exception.UnexpectedTable(
                device=self.names.path(), names=self.names,
                expected=' / '.join(expected), status=found.strip())

    def require_linear(self) -> None:
        """Check that a handle is no clone itself, as in earlier versions.

        :raises: UnexpectedTable
        """
        handle = self.names.of(HANDLE)
        status = dmsetup.clones(handle).get(handle)
        self._require(None if status is None else str(status), swap.LINEAR)

    def take_snapshot(self, lv: LogicalVolume, taken: Taken,
                      store: LogicalVolume) -> None:
        """Take a snapshot of the volume; its requests wait for moments.

        :param lv: the volume's logical volume
        :param store: an empty logical volume for the saved blocks
        :raises: RequestsWait, UnexpectedTable: then nothing is changed
        """
        segments = self._segments(lv)
        if not self._has_origin():
            # One that is left by an interrupted attempt may be outdated.
            self.remove(ORIGIN)
            snapshot_devices.build(self.names, segments, [])
        snapshot_devices.create(taken, store, later=True)
        self._swap_soon(HANDLE, self._over_origin(segments),
                        swap.LINEAR + swap.ORIGIN,
                        begin=(Names(taken.snapshot_id).of(SNAPSHOT),))

    def ensure_snapshots(self, lv: LogicalVolume) -> None:
        """Create the devices of snapshots that were taken above the clone."""
        snapshot_devices.build(self.names, self._segments(lv),
                               snapshot_devices.taken_of(lv))

    def forget_snapshots(self, lv: LogicalVolume) -> None:
        """Put the handle back on its data when its snapshots are deleted.

        Above a clone that takes discards it stays what it is.

        :raises: RequestsWait, UnexpectedTable: then nothing is changed
        """
        if lv.markable and self.is_clone():
            return
        if self._has_origin():
            handle = dmsetup.device(self.names.of(HANDLE))
            # That of a source refuses writes after a reboot.
            self._swap_soon(HANDLE, self._segments(lv),
                            swap.LINEAR + swap.ORIGIN,
                            read_only=handle is not None and handle.read_only)
        self.remove(ORIGIN)

    def grow(self, lv: LogicalVolume) -> None:
        """Extend a volume's handle to its logical volume's size.

        :raises: RequestsWait if requests do not end, because a clone's source
            does not answer or its gate is closed; UnexpectedTable
        """
        segments = self._segments(lv)
        if self._has_origin():
            self._swap_soon(ORIGIN, segments, swap.LINEAR)
            self._swap_soon(HANDLE, self._over_origin(segments), swap.ORIGIN)
        else:
            self._swap_soon(HANDLE, segments, swap.LINEAR)

    def make_linear(self, lv: LogicalVolume) -> bool:
        """Turn a complete clone into a linear handle.

        The clone's other devices and its metadata have to stay until the disk
        is flushed.

        :returns: False, and it stays a clone, if its status while suspended is
            not that of a complete, healthy clone
        """
        found = self._swap_to_linear(lv, swap.COMPLETE_CLONE)
        if found is not None:
            LOG.error('%(names)s is not complete: %(status)s. It stays a '
                      'clone.',
                      {'names': self.names, 'status': found.strip()})
            return False
        return True

    def drop_clone(self, lv: LogicalVolume) -> None:
        """Turn a clone whose data is not needed into a linear handle.

        Waits for copies under way: see :func:`stop_hydration`.

        :raises: UnexpectedTable if the handle is neither a clone nor linear
        """
        self._require(self._swap_to_linear(lv, swap.CLONE), swap.CLONE)

    def _swap_to_linear(self, lv: LogicalVolume,
                        expected: tuple[str, ...]) -> str | None:
        """Put the data's table on the logical volume, and remove the clone.

        After a crash in between the handle is linear, and there is a clone
        that nothing uses. Then this is repeated.
        """
        clone = self.names.of(CLONE) if self.is_clone() else None
        # Without snapshots it has only refused discards.
        origin = self._has_origin() and (
            lv.has_taken or not (clone and lv.markable))
        found = self._swap(ORIGIN if origin else HANDLE, _linear(lv),
                           expected, clone=clone)
        if clone and found is None:
            if not origin:
                self.remove(ORIGIN)
            dmsetup.remove(clone)
        return found
