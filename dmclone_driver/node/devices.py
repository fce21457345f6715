# SPDX-License-Identifier: Apache-2.0
"""The devices of a volume on its node: handle, gate, source, export.

::

                     idle                 hydrating
    users          [handle]               [handle]
                      |  linear              |  clone
                      |               +------+---------+
                      |               |      |         |
                      |            [gate] [source]  metadata LV
                      |               |      |
    LVM, iSCSI    data LV         data LV  imported disk

While a clone is passive its gate is suspended: a write waits there, in the
kernel, until the move has been switched. See the documentation, "Devices of
a move".
"""

import contextlib
import dataclasses
import time

from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)

# Sectors of zeros before and after an exported volume: what the importing
# host's kernel, udev and LVM look at is never a guest's data.
MARGIN = 2048

# How often, half a second apart, to look whether copies have ended.
STOP_ATTEMPTS = 10


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How a clone copies, in KiB; see the options of the same names."""

    threshold: int
    batch: int

    def in_regions(self, region):
        """Return threshold and batch size as dm-clone counts them.

        :param region: sectors
        """
        return tuple(max(1, kib * units.Ki // table.SECTOR // region)
                     for kib in (self.threshold, self.batch))


def exists(names):
    """Whether a volume has its handle on this node."""
    return _is_there(names, HANDLE)


def _is_there(names, role):
    device = dmsetup.device(names.of(role))
    return device is not None and device.live


def ensure_linear(names, lv, read_only=False):
    """Make the handle of a volume that is complete on this node.

    A handle that exists is left as it is: it may be in use.

    :param read_only: it is a source, which nobody may write
    """
    if not exists(names):
        dmsetup.create(names.of(HANDLE), names.uuid(HANDLE),
                       table.Linear(table.sectors(lv.size), lv.path),
                       read_only=read_only)


def grow(names, lv):
    """Let the linear handle of a volume show its logical volume's new size.

    :raises: UnexpectedTable if it is a clone, whatever the database says
    """
    _must_become_linear(names, lv, swap.LINEAR)


def _must_become_linear(names, lv, expected):
    found = _become_linear(names, lv, expected)
    if found is not None:
        raise exception.UnexpectedTable(
            device=names.path(), expected=' / '.join(expected),
            status=found.strip())


def _become_linear(names, lv, expected):
    return dmsetup.swap(
        names.of(HANDLE), table.Linear(table.sectors(lv.size), lv.path),
        expected=expected)


def resume_left():
    """Resume the handles that a killed swap has left suspended.

    A table that was loaded and is not used yet was loaded after the check
    that it may be: using it is right.
    """
    for device in sysfs.suspended():
        parsed = names_module.parse(device)
        if not parsed or parsed[1] != HANDLE:
            continue
        try:
            if dmsetup.resume_left(device):
                LOG.warning('Device %(device)s of volume %(volume)s was '
                            'suspended, and has been resumed.',
                            {'device': parsed[0].path(),
                             'volume': parsed[0].name_id})
        except Exception:
            LOG.exception('Device %(device)s of volume %(volume)s is '
                          'suspended, and cannot be resumed.',
                          {'device': parsed[0].path(),
                           'volume': parsed[0].name_id})


def build_clone(names, lv, metadata, region, tuning, disk=None,
                passive=False):
    """Make the handle of a volume whose data is partly elsewhere.

    Can be repeated; what exists is left as it is.

    :param metadata: path of the formatted metadata device
    :param region: sectors
    :param disk: path of the imported source; without it, requests that
        need the source wait until :func:`connect_source`
    :param passive: keep the gate shut
    """
    length = table.sectors(lv.size)
    present = {name: device for name, device in dmsetup.devices().items()
               if device.live}
    if names.of(GATE) not in present:
        dmsetup.create(names.of(GATE), names.uuid(GATE),
                       table.Linear(length, lv.path), suspended=passive)
    elif passive and not present[names.of(GATE)].suspended:
        dmsetup.suspend(names.of(GATE))
    if not disk and names.of(SOURCE) in present and (
            names.of(HANDLE) not in present):
        # A crash may have come before it was suspended.
        dmsetup.suspend(names.of(SOURCE), flush=False)
    if names.of(SOURCE) not in present:
        dmsetup.create(names.of(SOURCE), names.uuid(SOURCE),
                       *_source_table(length, disk), suspended=not disk,
                       read_only=True)
    if names.of(HANDLE) not in present:
        dmsetup.create(names.of(HANDLE), names.uuid(HANDLE), table.Clone(
            length, metadata, names.path(GATE), names.path(SOURCE), region,
            *tuning.in_regions(region)))
    # A discard would mark regions as copied without a write that the gate
    # could stop, and show what the logical volume held before.
    block.forbid_discard(names.path())


def _source_table(length, disk):
    if disk:
        return [table.Linear(length, disk, MARGIN)]
    return [table.Error(length)]


def is_connected(names):
    """Whether a clone's source shim points to an imported disk.

    Whether its requests wait says nothing: see :mod:`outages`.

    :raises: OSError if there is no source shim
    """
    return bool(sysfs.disks_below(names.of(SOURCE)))


def connect_source(names, disk, length):
    """Let a clone's source shim point to an imported disk.

    :param length: of the volume, in sectors
    """
    # Suspended if that fails: what waits would get errors from the old table.
    dmsetup.swap(names.of(SOURCE), *_source_table(length, disk),
                 read_only=True, flush=False, hold=True)


def open_gate(names, writable=True):
    """Let writes through; only after the switchover is in the database.

    :param writable: not if the volume has moved on: the handle is sealed
    """
    block.set_read_only(names.path(), not writable)
    dmsetup.resume(names.of(GATE))
    # What was cached before may have been written on the old home since.
    block.flush_buffers(names.path())


@contextlib.contextmanager
def waiting_fails(names, length):
    """Let writes that wait at a shut gate get errors, and those that come.

    Only for a clone that will never be switched, so that whoever waits can
    let go of the handle; see :func:`never_acknowledged`.

    :param length: of the volume, in sectors
    """
    gate = names.of(GATE)
    if dmsetup.device(gate):
        dmsetup.load(gate, table.Error(length))
        dmsetup.resume(gate)
    try:
        yield
    finally:
        if dmsetup.device(gate):
            # Passive again to whoever looks.
            dmsetup.suspend(gate)


def start_hydration(names):
    """Start the background copy; only when nobody can write the source."""
    dmsetup.message(names.of(HANDLE), 'enable_hydration')


def copy_one_by_one(names):
    """Copy each region by itself.

    Of adjacent ones that are copied as one all fail if one can't be read.
    """
    dmsetup.message(names.of(HANDLE), 'hydration_batch_size 1')


def copy_in_batches(names, size):
    """Take back :func:`copy_one_by_one`.

    :param size: regions
    """
    dmsetup.message(names.of(HANDLE), 'hydration_batch_size %d' % size)


def stop_hydration(names):
    """Start no more copies, and give those under way some time to end.

    :returns: whether none is under way
    """
    dmsetup.message(names.of(HANDLE), 'disable_hydration')
    for attempt in range(STOP_ATTEMPTS):
        if not dmsetup.clone(names.of(HANDLE)).hydrating:
            return True
        time.sleep(0.5)
    return False


def make_linear(names, lv):
    """Turn a complete clone into a linear handle.

    What it needed as a clone has to stay until the disk is flushed.

    :returns: False, and the clone goes on, if the status read while nothing
        can change it any more is not that of a complete, healthy clone
    """
    found = _become_linear(names, lv, swap.COMPLETE_CLONE)
    if found is not None:
        LOG.error('%(names)s is not complete: %(status)s. It stays a clone.',
                  {'names': names, 'status': found.strip()})
        return False
    return True


def fail_without_source(names):
    """Let copies fail that wait for a source without a session.

    It was never connected, or its session has just been ended.

    :returns: whether none is under way
    """
    for attempt in range(STOP_ATTEMPTS):
        if sysfs.is_suspended(names.of(SOURCE)):
            dmsetup.resume(names.of(SOURCE))
        if not dmsetup.clone(names.of(HANDLE)).hydrating:
            return True
        time.sleep(0.5)
    return False


def drop_clone(names, lv):
    """Turn a clone whose data nobody needs any more into a linear handle.

    Waits for copies under way: see :func:`stop_hydration`.

    :raises: UnexpectedTable if it is something else
    """
    _must_become_linear(names, lv, swap.CLONE)


def never_written(names):
    """Return whether it is proven that a passive clone was not written.

    If it is, the handle refuses writes from here on. A handle that does
    not exist was never written, since the gate of a passive clone is only
    opened after the switchover.
    """
    device = dmsetup.device(names.of(HANDLE))
    if not device or not device.live:
        return True
    if device.open_count:
        # Whoever it is must not see its writes refused: it is not proven
        # that the volume does not live here.
        return False
    block.set_read_only(names.path(), True)
    status = dmsetup.clone(names.of(HANDLE))
    device = dmsetup.device(names.of(HANDLE))
    if (status is not None and status.healthy and not status.written and
            not device.open_count):
        return True
    allow_writes(names)
    return False


def allow_writes(names):
    """Take back that a handle refuses writes."""
    if exists(names):
        block.set_read_only(names.path(), False)


def maybe_written(names):
    """Return whether a write to a passive clone is done, or waits.

    It is looked at twice: the kernel counts its own idle looks, too, for a
    moment (do_hydration in drivers/md/dm-clone-target.c).
    """
    if not exists(names):
        return False
    for attempt in range(2):
        status = dmsetup.clone(names.of(HANDLE))
        if status is None or not status.written:
            return False
    return True


def never_acknowledged(names):
    """Return whether it is proven that no write to a clone was acknowledged.

    True while its gate was never open: a write may wait there, but none has
    come back from the disk, and nothing was copied.
    """
    if not exists(names):
        return True
    status = dmsetup.clone(names.of(HANDLE))
    if status is None or status.hydrated or status.hydration:
        return False
    return status.healthy or sysfs.is_suspended(names.of(GATE))


def is_sick(names):
    """Whether a volume is a clone whose metadata has failed."""
    status = dmsetup.clones().get(names.of(HANDLE))
    return status is not None and not status.healthy


def is_open(names):
    """Whether someone other than an export of ours has the handle open."""
    present = dmsetup.devices()
    handle = present.get(names.of(HANDLE))
    exported = names.of(EXPORT) in present
    return bool(handle) and handle.open_count > exported


def seal(names, flush=True):
    """Refuse writes to a source from now on, and make durable what it has.

    What the guest flushes from now on is flushed at its new home, with all
    that this disk had acknowledged before.

    :param flush: not at a start, which waits for no disk
    :returns: whether nobody has it open, who might have a write under way
    """
    if not exists(names):
        return False
    # First: a flush may take long, or fail.
    block.set_read_only(names.path(), True)
    if flush:
        try:
            make_durable(names)
        except OSError:
            # Nothing would become better by waiting: the source is sealed.
            LOG.exception('Flushing %s failed: acknowledged writes may not '
                          'be durable.', names)
    return not is_open(names)


def make_durable(names):
    """Let a volume's disks forget nothing that they have acknowledged.

    :raises: OSError
    """
    gate = dmsetup.device(names.of(GATE))
    # Behind a shut gate a flush would wait, and nothing was written.
    if not (gate and gate.suspended):
        block.flush_disk(names.path())


def ensure_export(names, size):
    """Make the read-only device under which other nodes read a volume.

    :param size: of the volume, in bytes
    """
    block.flush_buffers(names.path())
    if not _is_there(names, EXPORT):
        dmsetup.create(names.of(EXPORT), names.uuid(EXPORT),
                       table.Zero(MARGIN),
                       table.Linear(table.sectors(size), names.path()),
                       table.Zero(MARGIN), read_only=True)


def remove(names, *roles):
    """Remove devices in the order of the roles; what is gone is fine.

    :raises: ProcessExecutionError if one is in use
    """
    present = dmsetup.devices()
    for role in roles:
        device = present.get(names.of(role))
        if device is None:
            continue
        if device.suspended:
            dmsetup.resume(device.name)
        dmsetup.remove(device.name)
