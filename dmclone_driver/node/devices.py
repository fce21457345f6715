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

from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.node import anchor
from dmclone_driver.node.copying import Copying
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.evidence import Evidence
from dmclone_driver.node import handles
from dmclone_driver.node.handles import Handle
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import KiB
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)

# Sectors of zeros before and after an exported volume: the importing host's
# kernel, udev and LVM probe these instead of a guest's data.
MARGIN = Sectors(2048)


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


def resume_left() -> bool:
    """Resume handles and clones left suspended by a killed swap.

    The resume also activates a table that the swap has loaded. It was
    loaded after the check of the device, so it is safe to use.

    :returns: whether none is left that cannot be resumed
    """
    resumed = True
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
            resumed = False
            LOG.exception('Device %(device)s of %(names)s is suspended, and '
                          'cannot be resumed.',
                          {'device': names.path(), 'names': names})
    return resumed


def _source_table(length: Sectors, disk: str | None) -> list[table.Segment]:
    if disk:
        return [table.Linear(length, disk, MARGIN)]
    return [table.Error(length)]


class LocalVolume(Handle, Copying, Evidence):
    """The devices of one volume on this node."""

    def refuse_closed_gate(self) -> None:
        """Refuse a clone whose source may not be sealed yet.

        :raises: RequestsWait
        """
        gate = self.names.of(GATE)
        if gate in sysfs.devices() and sysfs.is_suspended(gate):
            raise exception.RequestsWait(device=self.names.path(),
                                         names=self.names)

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
                read_only=True, flush=False, limit=handles.SUSPEND_LIMIT)
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
