# SPDX-License-Identifier: Apache-2.0
"""Swap a device's table, in a process that outlives the service.

While a device is suspended its requests wait. The service that requests a
swap may be killed at any time, and its privileged daemon with it. So a swap
runs in its own process and its own process session. It resumes the device
even if the service and the daemon are killed.

The process is started without site-packages, and has imported everything
before it suspends the device. This module and its imports may only use the
standard library.
"""

import collections.abc
import contextlib
import fcntl
import json
import os
import signal
import sys

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import udev

# The states that a swap may expect of a device, see state().
#: The handle of a clone that was extended has two segments.
LINEAR = ('linear', 'linear linear')
COMPLETE_CLONE = ('complete clone', *LINEAR)
CLONE = ('clone', *COMPLETE_CLONE)
#: The handle of a volume with snapshots above its clone.
ORIGIN = ('snapshot-origin',)

#: The answer instead of a status if requests do not end in time.
WAITS = 'requests wait'

#: The folder with a lock file for each device that is being swapped.
LOCKS = '/run/dmclone-swap'

# Seconds between the signals that end a suspend. The first one is lost if it
# comes before the kernel has begun to wait.
_AGAIN = 0.1

#: Runs :func:`main`. Its arguments are the folder that this package is in
#: and the device, which is only there to be seen in a process list.
PROGRAM = ('import sys; sys.path.append(sys.argv[1]); '
           'from dmclone_driver.node.devicemapper import swap; swap.main()')


def kinds(text: str) -> str:
    """Return the kinds of a device's targets, parsed from its status.

    Lines that do not describe a target are ignored: the status of a device
    that is not the driver's may span several lines. Of a clone's device only
    the clone counts, and not the tail, see anchor.
    """
    found = [words[2] for words in map(str.split, text.splitlines())
             if len(words) > 2]
    return 'clone' if found[:1] == ['clone'] else ' '.join(found)


def state(text: str) -> str:
    """Return the state of a device, parsed from its status."""
    found = kinds(text)
    if found == 'clone' and status.clone(text).complete:
        return 'complete clone'
    return found


class Waits(Exception):
    """Requests under way have not ended in time; nothing is suspended."""


class Kernel:
    """What a swap does with devices."""

    def __init__(self, resumes: udev.Resumes) -> None:
        self._resumes = resumes

    def status(self, name: str) -> str:
        """Return the status of a device, see :func:`ioctl.status`."""
        return ioctl.status(name)

    def suspend(self, name: str, flush: bool, limit: float | None) -> None:
        """Suspend a device.

        The kernel ends a suspend whose caller gets a signal while it waits.

        :param limit: seconds to wait for requests under way; None for ever
        :raises: Waits
        """
        if limit is None:
            ioctl.suspend(name, flush)
            return
        signal.signal(signal.SIGALRM, lambda *_arguments: None)
        signal.setitimer(signal.ITIMER_REAL, limit, _AGAIN)
        try:
            ioctl.suspend(name, flush)
        except InterruptedError as error:
            raise Waits from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def load(self, name: str, table: str, read_only: bool) -> None:
        """Load a table, see :func:`ioctl.load`."""
        ioctl.load(name, table, read_only)

    def resume(self, name: str) -> None:
        """Resume a device, with the table loaded last."""
        self._resumes.resume(name)


def perform(kernel: Kernel, name: str, table: str,
            expected: collections.abc.Sequence[str] | None,
            read_only: bool = False, flush: bool = True,
            hold: bool = False, clone: str | None = None,
            limit: float | None = None,
            begin: collections.abc.Sequence[str] = ()) -> str | None:
    """Suspend a device, check it, load a table, and resume it.

    The device is checked before the suspend, too, so that requests to an
    unexpected device do not have to wait.

    :param expected: states, see :func:`state`; None for any
    :param read_only: whether the table refuses writes
    :param flush: finish pending requests before it is suspended
    :param hold: leave it suspended unless it has the new table
    :param clone: the clone below it, which is suspended after it, so that its
        metadata is committed, and checked in its place
    :param limit: seconds to wait for requests under way; None for ever
    :param begin: devices that are resumed before it, with the table that was
        loaded into them
    :returns: None, or its status if it is not as expected, or
        :data:`WAITS`: nothing is changed then
    """
    def unexpected() -> str | None:
        if expected is None:
            return None
        found = kernel.status(clone or name)
        return None if state(found) in expected else found

    found = unexpected()
    if found is not None:
        return found
    loaded = False
    try:
        kernel.suspend(name, flush, limit)
        if clone:
            kernel.suspend(clone, True, limit)
        # The status cannot change while it is suspended. A metadata commit
        # that failed during the suspend is visible only here.
        found = unexpected()
        if found is None:
            kernel.load(name, table, read_only)
            loaded = True
            for other in begin:
                kernel.resume(other)
    except Waits:
        found = WAITS
    finally:
        try:
            if loaded or not hold:
                kernel.resume(name)
        finally:
            if clone:
                kernel.resume(clone)
    return found


@contextlib.contextmanager
def alone(name: str, folder: str | None = None,
          wait: bool = True) -> collections.abc.Iterator[None]:
    """Hold the lock for swapping or resuming a device.

    A killed process holds it until the kernel has ended its last ioctl.

    :param wait: wait until the lock is free
    :raises: BlockingIOError if the lock is not free
    """
    folder = folder or LOCKS
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, name)
    how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            if not os.fstat(fd).st_nlink:
                # The previous holder has removed the file.
                continue
            try:
                yield
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


def forget_killed(folder: str | None = None) -> bool:
    """Remove the lock files of those that were killed.

    :returns: whether there were any
    """
    folder = folder or LOCKS
    found = False
    # There is no folder before the first swap.
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            # It is held, or no lock.
            with contextlib.suppress(OSError), (
                    alone(name, folder, wait=False)):
                found = True
    return found


def main() -> None:
    """Perform the swap described on standard input; print its result."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    request = json.load(sys.stdin)
    try:
        with alone(request.pop('lock'), request.pop('locks')), (
                udev.Resumes()) as resumes:
            found = perform(Kernel(resumes), **request)
    except OSError as error:
        sys.exit(error.strerror or str(error))
    # For the log of the caller, who ignores other words.
    sys.stderr.write(' '.join(resumes.late))
    # The caller may have been killed.
    with contextlib.suppress(BrokenPipeError):
        json.dump(found, sys.stdout)
        sys.stdout.flush()
