# SPDX-License-Identifier: Apache-2.0
"""Swap tables of devices as root, and resume devices left suspended."""

import contextlib
import json
import os
import sys
import time
from typing import Any

from oslo_concurrency import processutils

import dmclone_driver
from dmclone_driver.node.devicemapper import swap as process
from dmclone_driver import privsep
from dmclone_driver.privsep import device_mapper

# Seconds to wait for a device's lock before a message is sent, and between two
# attempts. A process that marks regions holds the lock for up to 250 ms.
PATIENCE, _AGAIN = 5, 0.02

_PACKAGES = os.path.dirname(os.path.dirname(dmclone_driver.__file__))


@privsep.dmclone_context.entrypoint
def swap(request: dict[str, Any]) -> str | None:
    """Swap the table of a device, see :mod:`devicemapper.swap`.

    :param request: arguments of its function ``perform``, as a dict
    :returns: the result of ``perform``
    :raises: ProcessExecutionError
    """
    try:
        answer, errors = processutils.execute(
            sys.executable, '-ISc', process.PROGRAM, _PACKAGES,
            request['name'],
            process_input=json.dumps(dict(request, locks=process.LOCKS)),
            preexec_fn=os.setsid)
    except processutils.ProcessExecutionError:
        if not request['hold']:
            # The swap may have been killed. If this resume fails, the
            # watcher resumes the device.
            with contextlib.suppress(processutils.ProcessExecutionError):
                resume(request['lock'], *_devices(request))
        raise
    device_mapper.log_late(sorted(
        {*_devices(request), *request.get('begin', ())}.intersection(
            errors.split())))
    return json.loads(answer)


def _devices(request: dict[str, Any]) -> list[str]:
    return [request['name'], *filter(None, [request['clone']])]


@privsep.dmclone_context.entrypoint
def message(lock: str, name: str, texts: list[str]) -> None:
    """Send messages to a device while no process swaps or marks it.

    Such a process may have outlived the daemon that started it.

    :param lock: the device whose lock excludes that
    :raises: ProcessExecutionError, also if the lock is not free in time
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with process.alone(lock, wait=False):
                device_mapper.change(*(
                    ['message', name, text] for text in texts))
            return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise processutils.ProcessExecutionError(
                    stdout='', exit_code=1, cmd='flock',
                    stderr='another process has the lock of %s' % lock
                ) from error
        time.sleep(_AGAIN)


def resume(name: str, *suspended: str, wait: bool = True) -> None:
    """Resume devices, in the privileged daemon.

    :param name: the device whose lock excludes swaps
    :raises: ProcessExecutionError; BlockingIOError if a swap is running, and
        is not to be waited for
    """
    with process.alone(name, wait=wait), (
            device_mapper.resuming()) as resumes, device_mapper.failing():
        for device in suspended:
            resumes.resume(device)


@privsep.dmclone_context.entrypoint
def were_killed() -> bool:
    """Return whether a process was killed that held a device's lock.

    It may have left the device suspended. Each is told once.
    """
    return process.forget_killed()


@privsep.dmclone_context.entrypoint
def resume_left(name: str, suspended: list[str]) -> bool:
    """Resume what a swap has suspended, unless a running one will do so.

    :param name: the device whose table is swapped
    :returns: whether it was resumed
    :raises: ProcessExecutionError
    """
    try:
        resume(name, *suspended, wait=False)
    except BlockingIOError:
        return False
    return True
