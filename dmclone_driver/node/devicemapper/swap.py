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
import functools
import json
import os
import signal
import subprocess
import sys

from dmclone_driver.node.devicemapper import status

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

#: Runs :func:`main`. Its arguments are the folder that this package is in
#: and the device, which is only there to be seen in a process list.
PROGRAM = ('import sys; sys.path.append(sys.argv[1]); '
           'from dmclone_driver.node.devicemapper import swap; swap.main()')


def kinds(text: str) -> str:
    """Return the kinds of a device's targets, parsed from its status."""
    return ' '.join(line.split()[2] for line in text.splitlines())


def state(text: str) -> str:
    """Return the state of a device, parsed from its status."""
    found = kinds(text)
    if found == 'clone' and status.clone(text).complete:
        return 'complete clone'
    return found


def perform(run: collections.abc.Callable[..., str], name: str, table: str,
            expected: collections.abc.Sequence[str] | None,
            load: collections.abc.Sequence[str] = (),
            suspend: collections.abc.Sequence[str] = (),
            hold: bool = False, clone: str | None = None,
            limit: float | None = None,
            begin: collections.abc.Sequence[str] = ()) -> str | None:
    """Suspend a device, check it, load a table, and resume it.

    The device is checked before the suspend, too, so that requests to an
    unexpected device do not have to wait.

    :param run: function that runs dmsetup with arguments, a table and a limit
        in seconds; raises TimeoutExpired
    :param expected: states, see :func:`state`; None for any
    :param load: options of ``dmsetup load``
    :param suspend: options of ``dmsetup suspend``
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
        found = run(['status', '--noflush', clone or name])
        return None if state(found) in expected else found

    found = unexpected()
    if found is not None:
        return found
    loaded = False
    try:
        run(['suspend', *suspend, name], None, limit)
        if clone:
            run(['suspend', clone], None, limit)
        # The status cannot change while it is suspended. A metadata commit
        # that failed during the suspend is visible only here.
        found = unexpected()
        if found is None:
            run(['load', name, *load], table)
            loaded = True
            for other in begin:
                run(['resume', other], None)
    except subprocess.TimeoutExpired:
        # The kernel ends a suspend whose caller is killed. If it was too
        # late for that, the device is resumed.
        found = WAITS
    finally:
        try:
            if loaded or not hold:
                run(['resume', name])
        finally:
            if clone:
                run(['resume', clone])
    return found


@contextlib.contextmanager
def alone(name: str, folder: str | None = None,
          wait: bool = True) -> collections.abc.Iterator[int]:
    """Hold the lock for swapping or resuming a device.

    :param wait: wait until the lock is free
    :returns: descriptor: copies of it hold the lock until they are closed
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
                yield fd
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


def _dmsetup(lock: int, arguments: list[str], table: str | None = None,
             limit: float | None = None) -> str:
    # If this process is killed, dmsetup holds the lock until it ends.
    return subprocess.run(
        ['dmsetup', *arguments], input=table, check=True, pass_fds=[lock],
        timeout=limit, capture_output=True, text=True).stdout


def main() -> None:
    """Perform the swap described on standard input; print its result."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # dmsetup inherits the ignored signals.
        signal.signal(number, signal.SIG_IGN)
    request = json.load(sys.stdin)
    try:
        with alone(request.pop('lock'), request.pop('locks')) as lock:
            found = perform(functools.partial(_dmsetup, lock), **request)
    except subprocess.CalledProcessError as error:
        sys.exit('%s: %s' % (' '.join(error.cmd), error.stderr))
    # The caller may have been killed.
    with contextlib.suppress(BrokenPipeError):
        json.dump(found, sys.stdout)
        sys.stdout.flush()
