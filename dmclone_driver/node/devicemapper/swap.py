# SPDX-License-Identifier: Apache-2.0
"""Giving a device another table, in a process that finishes on its own.

While a device is suspended its requests wait. The service that asks for a
swap may be killed at any time, and its privileged daemon with it. So a swap
is a process of its own, in a session of its own, which ends with a resume
whatever happens to them.

It is started without site-packages, and is ready before it suspends
anything: this module and what it imports need the standard library only.
"""

import contextlib
import fcntl
import functools
import json
import os
import signal
import subprocess
import sys

from dmclone_driver.node.devicemapper import status

# What a device may be for a swap: its states, see state().
LINEAR = ('linear',)
COMPLETE_CLONE = ('complete clone', *LINEAR)
CLONE = ('clone', *COMPLETE_CLONE)

#: A file for each device that is being given another table.
LOCKS = '/run/dmclone-swap'

#: Runs :func:`main`. Its arguments are the folder that this package is in
#: and, for whoever reads a list of processes, the device.
PROGRAM = ('import sys; sys.path.append(sys.argv[1]); '
           'from dmclone_driver.node.devicemapper import swap; swap.main()')


def state(text):
    """Return in a word or two what a device is, by its status."""
    kinds = ' '.join(line.split()[2] for line in text.splitlines())
    if kinds == 'clone' and status.clone(text).complete:
        return 'complete clone'
    return kinds


def perform(run, name, table, expected, load=(), suspend=(), hold=False):
    """Suspend a device, look at it, load a table, and resume it.

    It is looked at before that, too, so that the requests to a device that
    is not as expected do not have to wait.

    :param run: function that runs dmsetup with arguments and a table
    :param expected: states, see :func:`state`; None for any
    :param load: options of that verb
    :param suspend: options of that verb
    :param hold: leave it suspended unless it has the new table
    :returns: None, or its status if it is not as expected: nothing is
        changed then
    """
    def unexpected():
        if expected is None:
            return None
        found = run(['status', '--noflush', name])
        return None if state(found) in expected else found

    found = unexpected()
    if found is not None:
        return found
    loaded = False
    try:
        run(['suspend', *suspend, name])
        # Nothing can change it any more, and a metadata commit that fails
        # during the suspend is silent but for this.
        found = unexpected()
        if found is None:
            run(['load', name, *load], table)
            loaded = True
    finally:
        if loaded or not hold:
            run(['resume', name])
    return found


@contextlib.contextmanager
def alone(name, folder=None, wait=True):
    """Be the only one who gives a device another table, or resumes it.

    :param wait: until others have ended
    :returns: descriptor: whoever has a copy of it prolongs that
    :raises: BlockingIOError
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
                # Removed by the one before.
                continue
            try:
                yield fd
            finally:
                os.unlink(path)
            return
        finally:
            os.close(fd)


def _dmsetup(lock, arguments, table=None):
    # If this process is killed the lock is held until dmsetup has ended.
    return subprocess.run(
        ['dmsetup', *arguments], input=table, check=True, pass_fds=[lock],
        capture_output=True, text=True).stdout


def main():
    """Perform the swap on standard input; print what it returns."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # dmsetup inherits that.
        signal.signal(number, signal.SIG_IGN)
    request = json.load(sys.stdin)
    try:
        with alone(request['name'], request.pop('locks')) as lock:
            found = perform(functools.partial(_dmsetup, lock), **request)
    except subprocess.CalledProcessError as error:
        sys.exit('%s: %s' % (' '.join(error.cmd), error.stderr))
    # Perhaps to nobody any more.
    with contextlib.suppress(BrokenPipeError):
        json.dump(found, sys.stdout)
        sys.stdout.flush()
