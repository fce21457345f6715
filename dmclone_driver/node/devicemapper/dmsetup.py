# SPDX-License-Identifier: Apache-2.0
"""The only module that runs dmsetup, apart from :mod:`swap`."""

import re

from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap as swap_module
from dmclone_driver.node.devicemapper import table
from dmclone_driver.privsep import command
from dmclone_driver.privsep import swaps

LOG = logging.getLogger(__name__)

# How often to query all devices if one disappears during the query.
ATTEMPTS = 10


def _run(*arguments: str, segments: tuple[table.Segment, ...] = ()) -> str:
    return command.dmsetup(_command(*arguments, segments=segments))


def _command(*arguments: str,
             segments: tuple[table.Segment, ...] = ()) -> command.Call:
    return list(arguments), table.text(*segments) if segments else None


def _run_for_all(*arguments: str) -> str:
    """Run a command of dmsetup that lists all devices and queries each.

    If a device disappears in between, dmsetup prints the others and fails
    (its _process_all). The command is then repeated.
    """
    for _attempt in range(ATTEMPTS - 1):
        try:
            return _run(*arguments)
        except processutils.ProcessExecutionError as error:
            if not _is_gone(error):
                raise
    return _run(*arguments)


def _is_gone(error: processutils.ProcessExecutionError) -> bool:
    return 'does not exist' in error.stderr or 'not found' in error.stderr


def devices() -> dict[str, status.Device]:
    """Query all devices of the host at once.

    :returns: dict of :class:`status.Device` by name
    """
    out = _run_for_all('info', '-c', '--noheadings', '--separator', '|',
                       '-o', status.Device.COLUMNS)
    found = [status.device(line.strip()) for line in out.splitlines()
             if '|' in line]
    return {device.name: device for device in found}


def device(name: str) -> status.Device | None:
    """Return the :class:`status.Device` of a name, or None."""
    try:
        out = _run('info', '-c', '--noheadings', '--separator', '|',
                   '-o', status.Device.COLUMNS, name)
    except processutils.ProcessExecutionError as error:
        if _is_gone(error):
            return None
        raise
    return status.device(out.strip())


def devices_below(name: str) -> list[str]:
    """Return the paths of the disks that a device lies on."""
    out = _run('deps', '-o', 'blkdevname', name)
    return ['/dev/' + disk for disk in re.findall(r'\((.+?)\)', out)]


def clones() -> dict[str, status.CloneStatus]:
    """Query all clones of the host at once, without a metadata commit.

    :returns: dict of :class:`status.CloneStatus` by name
    """
    out = _run_for_all('status', '--noflush', '--target', 'clone')
    found = {}
    for line in out.splitlines():
        name, separator, text = line.partition(': ')
        if separator:
            found[name] = status.clone(text)
    return found


def clone(name: str) -> status.CloneStatus | None:
    """Return the :class:`status.CloneStatus` of a device, None if it is gone.

    :raises: ValueError if it is not a clone
    """
    try:
        return status.clone(_run('status', '--noflush', name).strip())
    except processutils.ProcessExecutionError as error:
        if _is_gone(error):
            return None
        raise


def state(name: str) -> str:
    """Return the state of a device, see :func:`swap.state`."""
    return swap_module.state(_run('status', '--noflush', name))


def target_versions() -> set[str]:
    """Return the names of the targets that the kernel has loaded."""
    return {line.split()[0] for line in _run('targets').splitlines() if line}


def create(name: str, uuid: str, *segments: table.Segment,
           read_only: bool = False, suspended: bool = False,
           later: bool = False) -> None:
    """Create a device; with ``suspended`` its requests wait from the start.

    With ``later`` its table is loaded, and takes effect when it is resumed.
    dmsetup creates it, loads its table, and resumes it. A device without a
    table, left by a dmsetup that was killed in between, is replaced.
    """
    commands = [_command('create', name, '--uuid', uuid, *_mode(read_only),
                         segments=segments)]
    if later:
        commands = [_command('create', name, '--uuid', uuid, '--notable'),
                    _command('load', name, *_mode(read_only),
                             segments=segments)]
    if suspended:
        commands.append(_command('suspend', name))
    try:
        command.dmsetup(*commands)
    except processutils.ProcessExecutionError:
        present = device(name)
        if present is None or present.live:
            raise
        remove(name)
        command.dmsetup(*commands)


def _mode(read_only: bool) -> list[str]:
    return ['--readonly'] if read_only else []


def load_and_resume(name: str, *segments: table.Segment) -> None:
    """Load another table into a suspended device, and resume it.

    A clone's table must never be loaded over a device that is still live:
    it would start from older metadata than the live clone's.
    """
    command.dmsetup(_command('load', name, segments=segments),
                    _command('resume', name))


def suspend(name: str, flush: bool = True) -> None:
    """Suspend a device; with ``flush`` finish pending requests first."""
    _run('suspend', *_suspend_options(flush), name)


def _suspend_options(flush: bool) -> list[str]:
    return [] if flush else ['--noflush', '--nolockfs']


def resume(name: str) -> None:
    """Resume a device with the table loaded last."""
    _run('resume', name)


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
        'clone': clone,
        'load': _mode(read_only), 'suspend': _suspend_options(flush),
        'hold': hold, 'limit': limit, 'begin': begin, 'lock': lock or name})


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


def message(name: str, text: str) -> None:
    """Send a message to the first target of a device."""
    _run('message', name, '0', *text.split())


def remove(name: str, suspended: bool = False) -> None:
    """Remove a device.

    :param suspended: whether it has to be resumed first
    :raises: ProcessExecutionError if it is open
    """
    commands = [_command('resume', name)] if suspended else []
    command.dmsetup(*commands, _command('remove', '--retry', name))
