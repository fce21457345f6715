# SPDX-License-Identifier: Apache-2.0
"""Run programs as root, for the modules that know their arguments."""

import os
import subprocess
import threading

from oslo_concurrency import processutils

from dmclone_driver import privsep

#: The exit code of a command that took too long, as of timeout(1).
TIMED_OUT = 124

#: The arguments of a program, and a text for its standard input or None.
Call = tuple[list[str], str | None]


@privsep.dmclone_context.entrypoint
def user() -> int:
    """Return the id of the user that privileged code runs as."""
    return os.geteuid()


@privsep.dmclone_context.entrypoint
def dmsetup(*commands: Call) -> str:
    """Run dmsetup one or more times; return what the last one prints.

    :raises: ProcessExecutionError of the first that fails; those after it
        are not run
    """
    for arguments, table in commands:
        out = processutils.execute(
            'dmsetup', *arguments, process_input=table,
            env_variables=dict(os.environ, LC_ALL='C'))[0]
    return out


# A suspend waits for the requests that have passed the device. Until these
# have ended, the device-mapper queues new requests, and their submitters do
# not sleep (dm_submit_bio, __dm_suspend in drivers/md/dm.c). Only that effect
# is needed. The resume then releases the queued requests at once, even if the
# service has ended. They are also released if the suspend is killed.
_HOLD = 'dmsetup suspend --noflush --nolockfs "$0"; exec dmsetup resume "$0"'

_holding: dict[str, subprocess.Popen[bytes]] = {}


@privsep.dmclone_context.entrypoint
def hold(name: str) -> None:
    """Queue requests to a device while earlier ones are stuck below it.

    Returns at once. One process per device does it; if the device has one
    already, this does nothing.
    """
    for ended in [key for key, process in _holding.items()
                  if process.poll() is not None]:
        del _holding[ended]
    if name not in _holding:
        process = subprocess.Popen(
            ['sh', '-c', _HOLD, name], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _holding[name] = process
        # Without this it would be a zombie until the next outage.
        threading.Thread(target=process.wait, daemon=True).start()


@privsep.dmclone_context.entrypoint
def lvm(arguments: list[str], environment: list[str], timeout: int) -> str:
    """Run a command of LVM and return what it prints.

    :param environment: texts such as ``LVM_SYSTEM_DIR=/etc/cinder/lvm``
    :param timeout: seconds after which it is told to end; it is not waited
        for, since a process that reads a dead device does not end
    :raises: ProcessExecutionError, with the exit code :data:`TIMED_OUT` if
        the time is over
    """
    words = ['env', 'LC_ALL=C', *environment, 'lvm', *arguments]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    try:
        out, errors = process.communicate(timeout=timeout)
        code = process.returncode
    except Exception:
        # Not TimeoutExpired: with eventlet there are two of that name.
        if process.poll() is not None:
            raise
        process.terminate()
        out, code = '', TIMED_OUT
        errors = ('it has not ended after %d seconds; LVM may be reading a '
                  'device that does not answer' % timeout)
    if code:
        raise processutils.ProcessExecutionError(out, errors, code,
                                                 ' '.join(words))
    return out


@privsep.dmclone_context.entrypoint
def iscsiadm(arguments: list[str]) -> None:
    """Run iscsiadm.

    :raises: ProcessExecutionError
    """
    processutils.execute('iscsiadm', *arguments)


@privsep.dmclone_context.entrypoint
def tgtadm(arguments: list[str]) -> None:
    """Run tgtadm.

    :raises: ProcessExecutionError
    """
    processutils.execute('tgtadm', *arguments)


@privsep.dmclone_context.entrypoint
def settle(seconds: int) -> None:
    """Wait until udev has handled what the kernel has reported.

    As root: only then udevadm asks udev whether it has read all reports.

    :param seconds: how long to wait at most
    :raises: ProcessExecutionError if the time is over, or without udev
    """
    processutils.execute('udevadm', 'settle', '--timeout=%d' % seconds)


@privsep.dmclone_context.entrypoint
def modprobe(*arguments: str) -> None:
    """Load a kernel module, or unload it.

    :raises: ProcessExecutionError
    """
    processutils.execute('modprobe', *arguments)
