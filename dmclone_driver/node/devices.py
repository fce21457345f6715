# SPDX-License-Identifier: Apache-2.0
"""The devices of a volume on its node: handle, clone, gate, source, export.

::

                     idle                 hydrating
    users          [handle]               [handle]
                      |  linear              |  linear
                      |                   [clone]
                      |               +------+---------+
                      |               |      |         |
                      |            [gate] [source]  metadata LV
                      |               |      |
    LVM, iSCSI    data LV         data LV  imported disk

The gate of a passive clone is suspended: writes wait there, in the kernel,
until the switchover. See the documentation, "Devices of a move".
"""

import collections.abc
import contextlib
import dataclasses
import time

from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.node import anchor
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import Device
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SNAPSHOT
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import KiB
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import snapshot_devices
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)

# Sectors of zeros before and after an exported volume: the importing host's
# kernel, udev and LVM probe these instead of a guest's data.
MARGIN = Sectors(2048)

# How often to check whether copies have ended, half a second apart.
STOP_ATTEMPTS = 10

# Seconds that all requests to a handle may have to wait for those that are
# under way.
SUSPEND_LIMIT = 5


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How much of a clone is copied at a time, see opts.

    The window is dm-clone's threshold. It is its batch size, too, so that one
    window is one job of kcopyd: of the parts of a job at most eight are under
    way (SPLIT_COUNT in drivers/md/dm-kcopyd.c), of several jobs all are.
    """

    window: KiB
    #: A smaller batch, as a deprecated option has it.
    batch: KiB | None = None
    #: Whether clones get a tail, with which their guests can be held.
    held: bool = False

    def in_regions(self, region: Sectors) -> tuple[int, int]:
        """Return threshold and batch size as dm-clone counts them."""
        def regions(kib: KiB) -> int:
            return max(1, kib * units.Ki // table.SECTOR // region)

        return (regions(self.window),
                regions(self.window if self.batch is None else self.batch))


def resume_left() -> None:
    """Resume handles and clones left suspended by a killed swap.

    The resume also activates a table that the swap has loaded. It was
    loaded after the check of the device, so it is safe to use.
    """
    left: dict[Names, list[str]] = {}
    for device in sysfs.suspended():
        parsed = names_module.parse(device)
        if parsed and parsed[1] in (HANDLE, CLONE, ORIGIN):
            left.setdefault(parsed[0], []).append(device)
    for names, suspended in left.items():
        try:
            if dmsetup.resume_left(names.of(HANDLE), *suspended):
                LOG.warning('Device %(device)s of %(names)s was suspended, '
                            'and has been resumed.',
                            {'device': names.path(), 'names': names})
        except Exception:
            LOG.exception('Device %(device)s of %(names)s is suspended, and '
                          'cannot be resumed.',
                          {'device': names.path(), 'names': names})


def _linear(lv: LogicalVolume) -> list[table.Segment]:
    return [table.Linear(table.sectors(lv.size), lv.path)]


def _source_table(length: Sectors, disk: str | None) -> list[table.Segment]:
    if disk:
        return [table.Linear(length, disk, MARGIN)]
    return [table.Error(length)]


class LocalVolume:
    """The devices of one volume on this node.

    :ivar names: :class:`dmclone_driver.node.names.Names` of its logical volume
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    def exists(self) -> bool:
        """Return whether a volume has its handle on this node."""
        return self._is_live(HANDLE)

    def _present(self, *roles: str) -> dict[str, Device]:
        """Return the volume's devices of some roles by name, at once."""
        return dmsetup.devices(*map(self.names.of, roles))

    def _is_live(self, role: str) -> bool:
        device = dmsetup.device(self.names.of(role))
        return device is not None and device.live

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

    def refuse_closed_gate(self) -> None:
        """Refuse a clone whose source may not be sealed yet.

        :raises: RequestsWait
        """
        gate = self.names.of(GATE)
        if gate in sysfs.devices() and sysfs.is_suspended(gate):
            raise exception.RequestsWait(device=self.names.path(),
                                         names=self.names)

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

    def _over_clone(self, lv: LogicalVolume) -> list[table.Segment]:
        """Return a handle's table over a clone, and what is beyond it."""
        cloned = table.sectors(lv.cloned)
        rest = Sectors(table.sectors(lv.size) - cloned)
        return [table.Linear(cloned, self.names.path(CLONE)),
                *([table.Linear(rest, lv.path, cloned)] if rest else [])]

    def require_linear(self) -> None:
        """Check that a handle is no clone itself, as in earlier versions.

        :raises: UnexpectedTable
        """
        handle = self.names.of(HANDLE)
        status = dmsetup.clones(handle).get(handle)
        self._require(None if status is None else str(status), swap.LINEAR)

    def _require(self, found: str | None, expected: tuple[str, ...]) -> None:
        if found is not None:
            raise exception.UnexpectedTable(
                device=self.names.path(), names=self.names,
                expected=' / '.join(expected), status=found.strip())

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

    def is_clone(self) -> bool:
        """Return whether part of a volume's data may be elsewhere."""
        return self._is_live(CLONE)

    def build_clone(self, lv: LogicalVolume, metadata: str, region: Sectors,
                    tuning: Tuning, disk: str | None = None,
                    passive: bool = False) -> None:
        """Create the handle of a volume whose data is partly elsewhere.

        Can be repeated: existing devices are kept.

        :param metadata: path of the formatted metadata device
        :param disk: path of the imported source; without it, requests that
            need the source wait until :func:`connect_source`
        :param passive: keep the gate closed
        """
        length = table.sectors(lv.cloned)
        present = {name: device for name, device in self._present(
            HANDLE, CLONE, SOURCE, GATE).items() if device.live}
        if self.names.of(GATE) in present and (
                self.names.of(CLONE) not in present and
                self._remove_unfinished_gate()):
            del present[self.names.of(GATE)]
        if self.names.of(GATE) not in present:
            dmsetup.create(self.names.of(GATE), self.names.uuid(GATE),
                           table.Linear(length, lv.path), suspended=passive)
        elif passive and not present[self.names.of(GATE)].suspended:
            dmsetup.suspend(self.names.of(GATE))
        if not disk and self.names.of(SOURCE) in present and (
                self.names.of(CLONE) not in present):
            # A crash has interrupted its creation. It may have a disk that it
            # had then, or not be suspended. Nothing is above it.
            dmsetup.remove(self.names.of(SOURCE), suspended=True)
            del present[self.names.of(SOURCE)]
        if self.names.of(SOURCE) not in present:
            dmsetup.create(self.names.of(SOURCE), self.names.uuid(SOURCE),
                           *_source_table(length, disk), suspended=not disk,
                           read_only=True)
        if self.names.of(CLONE) not in present:
            dmsetup.create(
                self.names.of(CLONE), self.names.uuid(CLONE), table.Clone(
                    length, metadata, self.names.path(GATE),
                    self.names.path(SOURCE), region,
                    *tuning.in_regions(region)), *(
                        anchor.tail() if tuning.held else ()))
        if self.names.of(HANDLE) in present:
            self.forbid_discards()
            return
        if not lv.markable:
            self._forbid_discards()
        self._create_handle(lv, self._over_clone(lv))

    def _remove_unfinished_gate(self) -> bool:
        """Remove a gate whose creation was killed: it fails all requests.

        :returns: whether there was one
        """
        gate = self.names.of(GATE)
        if dmsetup.kinds(gate) != 'error':
            return False
        dmsetup.remove(gate, suspended=True)
        return True

    def forbid_discards(self) -> None:
        """Have a clone refuse discards unless its handle does.

        A guest's discard would mark regions as hydrated without a write that
        the gate could hold back, and expose old data of the logical volume.
        The clone cannot be told to take them again.
        """
        if not self._has_origin():
            self._forbid_discards()

    def refuses_discards(self) -> bool:
        """Return whether there is a clone, below a handle that refuses them.

        Whether the clone takes any is another question.
        """
        return self.is_clone() and self._has_origin()

    def _forbid_discards(self) -> None:
        block.forbid_discard(self.names.path(CLONE))

    def is_connected(self) -> bool:
        """Return whether a clone's source shim points to an imported disk.

        Whether the shim is suspended is no evidence: see :mod:`outages`.

        :raises: OSError if there is no source shim
        """
        return bool(sysfs.disks_below(self.names.of(SOURCE)))

    def connect_source(self, disk: str, length: Sectors,
                       anew: bool = False) -> None:
        """Point a clone's source shim to an imported disk.

        :param length: of the clone
        :param anew: whether it may have another one, which shows the same
        :raises: RequestsWait if that does not answer: then nothing is changed
        """
        if anew and not sysfs.is_suspended(self.names.of(SOURCE)):
            found = dmsetup.swap(
                self.names.of(SOURCE), *_source_table(length, disk),
                read_only=True, flush=False, limit=SUSPEND_LIMIT)
            if found is not None:
                raise exception.RequestsWait(device=self.names.path(),
                                             names=self.names)
            return
        # If this fails, the shim stays suspended: the old table would fail the
        # waiting requests.
        dmsetup.swap(self.names.of(SOURCE), *_source_table(length, disk),
                     read_only=True, flush=False, hold=True)

    def open_gate(self, writable: bool = True) -> None:
        """Open the gate; only after the switchover is in the database.

        :param writable: False if the volume has moved on: the handle is sealed
        """
        block.set_read_only(self.names.path(), not writable)
        dmsetup.resume(self.names.of(GATE))
        # The old home may have written since these pages were cached.
        block.flush_buffers(self.names.path())

    @contextlib.contextmanager
    def fail_writes(self, length: Sectors) -> collections.abc.Iterator[None]:
        """Fail pending and new writes at a closed gate.

        Only for a clone that will never be switched over. Users with a pending
        write can then close the handle; see :func:`never_acknowledged`.

        :param length: of the clone
        """
        gate = self.names.of(GATE)
        if dmsetup.device(gate):
            dmsetup.load_and_resume(gate, table.Error(length))
        try:
            yield
        finally:
            if dmsetup.device(gate):
                # Later checks have to see a passive clone again.
                dmsetup.suspend(gate)

    def start_hydration(self) -> None:
        """Start hydration; only when writes to the source are impossible."""
        dmsetup.message(self.names.of(CLONE), 'enable_hydration')

    def pause_hydration(self) -> None:
        """Begin no more copies; those under way end by themselves."""
        dmsetup.message(self.names.of(CLONE), 'disable_hydration')

    def copy_one_by_one(self) -> None:
        """Copy each region separately.

        A batch of adjacent regions fails as a whole if one cannot be read.
        """
        dmsetup.message(self.names.of(CLONE), 'hydration_batch_size 1')

    def copy_in_batches(self, size: int) -> None:
        """Undo :func:`copy_one_by_one`.

        :param size: of a batch, in regions
        """
        dmsetup.message(self.names.of(CLONE),
                        'hydration_batch_size %d' % size)

    def stop_hydration(self) -> bool:
        """Stop hydration, and wait some time for copies under way.

        :returns: whether all copies have ended
        """
        self.pause_hydration()
        for _attempt in range(STOP_ATTEMPTS):
            if not self._copying():
                return True
            time.sleep(0.5)
        return False

    def _copying(self) -> bool:
        """Return whether copies of a clone are under way."""
        status = dmsetup.clone(self.names.of(CLONE))
        # Without the volume's lock it may just have become linear.
        return status is not None and bool(status.hydrating)

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

    def fail_without_source(self) -> bool:
        """Fail copies that wait for a source without a session.

        The source was never connected, or its session has just been ended.

        :returns: whether all copies have ended
        """
        for _attempt in range(STOP_ATTEMPTS):
            if sysfs.is_suspended(self.names.of(SOURCE)):
                dmsetup.resume(self.names.of(SOURCE))
            if not self._copying():
                return True
            time.sleep(0.5)
        return False

    def drop_clone(self, lv: LogicalVolume) -> None:
        """Turn a clone whose data is not needed into a linear handle.

        Waits for copies under way: see :func:`stop_hydration`.

        :raises: UnexpectedTable if the handle is neither a clone nor linear
        """
        self._require(self._swap_to_linear(lv, swap.CLONE), swap.CLONE)

    def never_written(self) -> bool:
        """Return whether it is proven that a passive clone was not written.

        If so, the handle refuses writes from then on. A missing handle was
        never written, since the gate of a passive clone is only opened after
        the switchover.
        """
        device = dmsetup.device(self.names.of(HANDLE))
        if not device or not device.live:
            return True
        if device.open_count:
            # Its user's writes must not be refused: it is not proven that the
            # volume's home is another node.
            return False
        block.set_read_only(self.names.path(), True)
        status = dmsetup.clone(self.names.of(CLONE))
        device = dmsetup.device(self.names.of(HANDLE))
        # It was there, and the caller holds the volume's lock.
        assert device is not None
        if (status is not None and status.healthy and not status.written and
                not device.open_count):
            return True
        self.allow_writes()
        return False

    def has_nothing_own(self) -> bool:
        """Return whether it is proven that a clone shows only its source.

        No region is written, copied, or about to be. Valid of a sealed clone:
        it can't be written from then on.
        """
        if self.is_open():
            return False
        clone = self.names.of(CLONE)
        status = dmsetup.clones(clone).get(clone)
        return (status is not None and status.healthy and
                not status.hydrated and not status.hydrating)

    def allow_writes(self) -> None:
        """Make a handle writable again."""
        if self.exists():
            block.set_read_only(self.names.path(), False)

    def maybe_written(self) -> bool:
        """Return whether a write to a passive clone is done or pending.

        The status is read twice: the kernel briefly counts its own idle
        checks, too (do_hydration in drivers/md/dm-clone-target.c).
        """
        if not self.exists():
            return False
        for _attempt in range(2):
            status = dmsetup.clone(self.names.of(CLONE))
            if status is None or not status.written:
                return False
        return True

    def never_acknowledged(self) -> bool:
        """Return whether it is proven that no write was acknowledged.

        True if its gate was never open: a write may wait there, but the disk
        has completed none, and no region was copied.
        """
        if not self.exists():
            return True
        status = dmsetup.clone(self.names.of(CLONE))
        if status is None or status.hydrated or status.hydration:
            return False
        return status.healthy or sysfs.is_suspended(self.names.of(GATE))

    def is_sick(self) -> bool:
        """Return whether a volume is a clone whose metadata has failed."""
        clone = self.names.of(CLONE)
        status = dmsetup.clones(clone).get(clone)
        return status is not None and not status.healthy

    def is_open(self) -> bool:
        """Return whether the handle is open, other than by its own export."""
        present = self._present(HANDLE, EXPORT)
        handle = present.get(self.names.of(HANDLE))
        exported = self.names.of(EXPORT) in present
        return handle is not None and handle.open_count > exported

    def seal(self, flush: bool = True) -> bool:
        """Refuse writes to a source, and flush it to stable storage.

        Later flushes of the guest are done at its new home. They have to cover
        the writes that this disk has acknowledged.

        :param flush: False at start-up, which waits for no disk
        :returns: whether no user has it open, with a write possibly under way
        """
        if not self.exists():
            return False
        # Before the flush, which may take long or fail.
        block.set_read_only(self.names.path(), True)
        if flush:
            try:
                self.make_durable()
            except OSError:
                # Waiting would not help: the source is sealed.
                LOG.exception('Flushing %s failed: acknowledged writes may '
                              'not be durable.', self.names)
        return not self.is_open()

    def make_durable(self) -> None:
        """Flush the volume to stable storage.

        :raises: OSError
        """
        gate = dmsetup.device(self.names.of(GATE))
        # At a closed gate a flush would wait, and nothing was written.
        if not (gate and gate.suspended):
            block.flush_disk(self.names.path())

    def ensure_export(self, size: Bytes) -> None:
        """Create the read-only device through which other nodes read a volume.

        :param size: of the volume
        """
        block.flush_buffers(self.names.path())
        if not self._is_live(EXPORT):
            dmsetup.create(
                self.names.of(EXPORT), self.names.uuid(EXPORT),
                table.Zero(MARGIN),
                table.Linear(table.sectors(size), self.names.path()),
                table.Zero(MARGIN), read_only=True)

    def remove(self, *roles: str) -> None:
        """Remove devices in the order of the roles; skip those that are gone.

        :raises: ProcessExecutionError if one is in use
        """
        present = self._present(*roles)
        for role in roles:
            device = present.get(self.names.of(role))
            if device is not None:
                dmsetup.remove(device.name, device.suspended)
