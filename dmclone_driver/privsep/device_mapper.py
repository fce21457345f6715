# SPDX-License-Identifier: Apache-2.0
"""Look at devices of the device-mapper as root, and change them.

A look needs no process. A change is a list of operations in one call, so
that the daemon does all of them although its client is killed in between.
"""

import collections.abc
import contextlib
import dataclasses
import errno
from typing import Any
from typing import TypeVar

from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import udev
from dmclone_driver import privsep
from dmclone_driver.privsep import command

LOG = logging.getLogger(__name__)

Found = TypeVar('Found')

#: A verb and its arguments, see :func:`change`.
Operation = list[Any]


@contextlib.contextmanager
def failing() -> collections.abc.Iterator[None]:
    """Have an ioctl fail as dmsetup would.

    :raises: ProcessExecutionError, whose text names the device
    """
    try:
        yield
    except OSError as error:
        raise processutils.ProcessExecutionError(
            stdout='', stderr=error.strerror, exit_code=1, cmd='ioctl'
        ) from error


def log_late(devices: collections.abc.Iterable[str]) -> None:
    """Log the devices whose resume udev has not handled in time."""
    for device in devices:
        LOG.warning('udev has not handled the resume of device %(device)s '
                    'within %(seconds)d seconds, so its link in /dev/mapper '
                    'may be missing. See why udev is slow or hangs, and run '
                    '"udevadm trigger --subsystem-match=block".',
                    {'device': device, 'seconds': udev.TIMEOUT})


@contextlib.contextmanager
def resuming() -> collections.abc.Iterator[udev.Resumes]:
    """Resume devices, and log those that udev does not handle in time."""
    resumes = udev.Resumes()
    try:
        with resumes:
            yield resumes
    finally:
        log_late(resumes.late)


def _each(look: collections.abc.Callable[[str], Found],
          names: collections.abc.Iterable[str]) -> collections.abc.Iterator[
              tuple[str, Found]]:
    """Look at some devices; leave out those that are gone."""
    with failing():
        for name in names:
            try:
                yield name, look(name)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise


@privsep.dmclone_context.entrypoint
def devices(*names: str) -> list[dict[str, Any]]:
    """Return the fields of a :class:`status.Device` for each device.

    :param names: those to look at; none for all
    :raises: ProcessExecutionError
    """
    return [dataclasses.asdict(found)
            for _name, found in _each(ioctl.info, names or _all())]


@privsep.dmclone_context.entrypoint
def statuses(*names: str) -> dict[str, str]:
    """Return the status of some devices by name, without a commit.

    :raises: ProcessExecutionError
    """
    return dict(_each(ioctl.status, names))


@privsep.dmclone_context.entrypoint
def statuses_by_ending(ending: str) -> dict[str, str]:
    """Return the status of each device whose name has an ending.

    That is without a commit. All others cost only their place in a list.

    :raises: ProcessExecutionError
    """
    return dict(_each(ioctl.status, (
        name for name in _all() if name.endswith(ending))))


def _all() -> list[str]:
    with failing():
        return ioctl.names()


@privsep.dmclone_context.entrypoint
def change(*operations: Operation) -> None:
    """Do operations in order; return when udev has handled the events.

    Each is a verb and its arguments: ``['suspend', name, flush]``,
    ``['resume', name]``, ``['load', name, table, read_only]``,
    ``['message', name, text]``, ``['create', devices]`` with the list that
    ``dmsetup create --concise`` takes, or ``['dmsetup', arguments, table]``
    for what else only that program does.

    :raises: ProcessExecutionError of the first that fails; those after it
        are not done
    """
    with resuming() as resumes:
        verbs: dict[str, collections.abc.Callable[..., Any]] = {
            'suspend': ioctl.suspend, 'resume': resumes.resume,
            'load': ioctl.load, 'message': ioctl.message}
        for verb, *arguments in operations:
            if verb == 'dmsetup':
                command.dmsetup((arguments[0], arguments[1]))
            elif verb == 'create':
                _create(resumes, arguments[0])
            else:
                with failing():
                    verbs[verb](*arguments)


def _create(resumes: udev.Resumes, devices: str) -> None:
    """Create devices; udev handles their events at the same time.

    Without a cookie dmsetup waits for each device before it creates the next
    one (_create_one_device in libdm/dm-tools/dmsetup.c of LVM).
    """
    cookie = resumes.cookie(*(
        each.partition(',')[0] for each in devices.split(';')))
    try:
        command.dmsetup((['create', *(
            [] if cookie is None else ['--udevcookie', str(cookie)]),
            '--concise', devices], None))
    except processutils.ProcessExecutionError as error:
        # One that ends by itself counts no event that does not come.
        if isinstance(error.exit_code, int) and error.exit_code < 0:
            resumes.killed()
        raise
