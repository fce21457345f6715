# SPDX-License-Identifier: Apache-2.0
"""Devices of the device-mapper: look at them, create and change them."""

import collections.abc

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap as swap_module
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.privsep import command
from dmclone_driver.privsep import device_mapper
from dmclone_driver.privsep import swaps

# Bytes of an argument, of which the kernel allows 128 KiB (MAX_ARG_STRLEN in
# include/uapi/linux/binfmts.h).
_ARGUMENT = 100_000


def devices(*names: str) -> dict[str, status.Device]:
    """Query all devices of the host at once, or those with some names.

    :returns: dict of :class:`status.Device` by name; without those that are
        gone
    """
    return {found['name']: status.Device(**found)
            for found in device_mapper.devices(*names)}


def device(name: str) -> status.Device | None:
    """Return the :class:`status.Device` of a name, or None."""
    return devices(name).get(name)


def clones(*names: str) -> dict[str, status.CloneStatus]:
    """Query all clones at once, or some, without a metadata commit.

    :param names: of devices; none for all that have the name of a clone
    :returns: dict of :class:`status.CloneStatus` by name; without devices
        that are gone, or something else
    """
    found = (device_mapper.statuses(*names) if names else
             device_mapper.statuses_by_ending('-' + CLONE))
    return {name: status.clone(text) for name, text in found.items()
            if swap_module.kinds(text) == 'clone'}


def pool(name: str, *volumes: str
         ) -> tuple[status.PoolStatus | None, set[str]]:
    """Query a thin pool and some volumes at once, without a commit.

    :returns: its status, None if it is not active, and the names of those
        volumes that are thin
    """
    found = device_mapper.statuses(name, *volumes)
    text = found.pop(name, None)
    return status.pool(text) if text else None, {
        each for each, line in found.items()
        if swap_module.kinds(line) == 'thin'}


def thin(name: str) -> Sectors | None:
    """Return what a device has mapped, None if it is not a thin volume.

    :raises: ValueError if it has failed
    """
    text = device_mapper.statuses(name).get(name)
    if text is None or swap_module.kinds(text) != 'thin':
        return None
    return status.thin(text)


def clone(name: str) -> status.CloneStatus | None:
    """Return the :class:`status.CloneStatus` of a device, None if it is gone.

    :raises: ValueError if it is not a clone
    """
    text = device_mapper.statuses(name).get(name)
    return None if text is None else status.clone(text)


def state(name: str) -> str:
    """Return the state of a device, see :func:`swap.state`.

    :raises: ProcessExecutionError if it is gone
    """
    try:
        return swap_module.state(device_mapper.statuses(name)[name])
    except KeyError:
        raise processutils.ProcessExecutionError(
            stderr='Device %s not found' % name)


def kinds(name: str) -> str | None:
    """Return the kinds of a device's targets, None if it is gone."""
    text = device_mapper.statuses(name).get(name)
    return None if text is None else swap_module.kinds(text)


def target_versions() -> set[str]:
    """Return the names of the targets that the kernel has loaded."""
    # Not an ioctl: the start needs to know that the program is there.
    out = command.dmsetup((['targets'], None))
    return {line.split()[0] for line in out.splitlines() if line}


def create(name: str, uuid: str, *segments: table.Segment,
           read_only: bool = False, suspended: bool = False,
           later: bool = False) -> None:
    """Create a device; with ``suspended`` its requests wait from the start.

    With ``later`` its table is loaded, and takes effect when it is resumed.
    dmsetup creates it, loads its table, and resumes it. A device without a
    table, left by a dmsetup that was killed in between, is replaced.

    A suspended device fails its requests until udev has linked its name. LVM
    recognizes by their names the devices that it has to ignore. A command of
    LVM that has found this one under the kernel's name alone, and that reads
    it when it is suspended, would not end before it is resumed. LVM never
    reads a device that fails all requests (device_is_usable in
    lib/activate/dev_manager.c of LVM).
    """
    text = table.text(*segments)
    failing = table.text(table.Error(table.length(*segments)))
    arguments = ['create', name, '--uuid', uuid]
    operations: list[device_mapper.Operation] = [
        ['dmsetup', [*arguments, *(['--readonly'] if read_only else [])],
         failing if suspended else text]]
    if later:
        operations = [['dmsetup', [*arguments, '--notable'], None],
                      ['load', name, text, read_only]]
    if suspended:
        operations.append(['suspend', name, True])
    if suspended and text != failing:
        operations += [['load', name, text, read_only], ['resume', name],
                       ['suspend', name, True]]
    try:
        device_mapper.change(*operations)
    except processutils.ProcessExecutionError:
        present = device(name)
        if present is None or present.live:
            raise
        remove(name)
        device_mapper.change(*operations)


def create_together(*devices: str) -> None:
    """Create devices with one process, each as :func:`table.concise` says.

    More than some 500 take another process. They are an argument: of a list
    that dmsetup reads itself, with 1.02.185, it loses what is beyond 64 KiB,
    or it ends (_slurp_stdin in libdm/dm-tools/dmsetup.c of LVM writes to where
    its buffer was before realloc() has moved it).

    :raises: ProcessExecutionError if one fails; others may be missing then,
        or have no table
    """
    device_mapper.change(*(['create', each] for each in _lists(devices)))


def _lists(devices: collections.abc.Iterable[str]) -> list[str]:
    """Return lists of devices, none longer than an argument can be."""
    lists: list[str] = []
    for device in devices:
        if lists and len(lists[-1]) + 1 + len(device) <= _ARGUMENT:
            lists[-1] += ';' + device
        else:
            lists.append(device)
    return lists


def load_and_resume(name: str, *segments: table.Segment) -> None:
    """Load another table into a suspended device, and resume it.

    A clone's table must never be loaded over a device that is still live:
    it would start from older metadata than the live clone's.
    """
    device_mapper.change(['load', name, table.text(*segments), False],
                         ['resume', name])


def suspend(name: str, flush: bool = True) -> None:
    """Suspend a device; with ``flush`` finish pending requests first."""
    device_mapper.change(['suspend', name, flush])


def resume(name: str) -> None:
    """Resume a device with the table loaded last."""
    device_mapper.change(['resume', name])


def swap(name: str, *segments: table.Segment,
         expected: tuple[str, ...] | None = None, clone: str | None = None,
         read_only: bool = False, flush: bool = True,
         hold: bool = False, limit: float | None = None,
         begin: tuple[str, ...] = (), lock: str | None = None) -> str | None:
    """Replace the table of a device in use: suspend, check, load, resume.

    The swap is finished even if this process is killed meanwhile.

    :param expected: states allowed once it is suspended, see :mod:`swap`
    :param clone: the clone below it, which is suspended, too, and checked in
        its place
    :param hold: leave it suspended if the table cannot be loaded
    :param limit: seconds to wait for requests under way; None for ever
    :param begin: devices that are resumed while it is suspended
    :param lock: the device whose lock excludes other swaps; None for its own
    :returns: None, or its status if it is not as expected, or
        ``swap.WAITS``: then nothing was changed
    :raises: ProcessExecutionError
    """
    return swaps.swap({
        'name': name, 'table': table.text(*segments), 'expected': expected,
        'clone': clone, 'read_only': read_only, 'flush': flush, 'hold': hold,
        'limit': limit, 'begin': begin, 'lock': lock or name})


def swap_was_killed() -> bool:
    """Return whether a process was killed that may have suspended devices.

    Each is told once.
    """
    return swaps.were_killed()


def resume_left(name: str, *suspended: str) -> bool:
    """Resume devices that the killed swap of a device has left suspended.

    :returns: False if another swap of it is running
    """
    return swaps.resume_left(name, list(suspended))


def hold(name: str) -> None:
    """Queue requests to a device while earlier ones are stuck below it.

    Returns at once and can be repeated.
    """
    command.hold(name)


def message(name: str, *texts: str) -> None:
    """Send messages in order to the first target of a device."""
    device_mapper.change(*(['message', name, text] for text in texts))


def message_alone(lock: str, name: str, *texts: str) -> None:
    """Send messages as :func:`message`, between swaps and marks.

    :param lock: the device whose lock excludes these
    """
    swaps.message(lock, name, list(texts))


def remove(name: str, suspended: bool = False) -> None:
    """Remove a device.

    :param suspended: whether it has to be resumed first
    :raises: ProcessExecutionError if it is open
    """
    operations = [['resume', name]] if suspended else []
    device_mapper.change(
        *operations, ['dmsetup', ['remove', '--retry', name], None])
