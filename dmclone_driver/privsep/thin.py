# SPDX-License-Identifier: Apache-2.0
"""Read the metadata of thin pools as root, while they are in use.

A program reads a copy of it, which the pool makes (the kernel's
admin-guide/device-mapper/thin-provisioning.rst). A pool has one. As long as it
exists, blocks that are freed are not reused.
"""

import collections.abc
import contextlib
import errno
import subprocess
import tempfile
import threading

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver import privsep
from dmclone_driver.privsep import device_mapper

# The most bytes of an answer: of some hundred thousand ranges.
MOST = 64 * 1024 * 1024

# One program reads at a time.
_turn = threading.Lock()
#: Pools that have our copy of their metadata, or may still have it.
_left: set[str] = set()


@contextlib.contextmanager
def _copied(pool: str) -> collections.abc.Iterator[None]:
    """Have a pool make a copy of its metadata, and release it.

    :raises: ProcessExecutionError, also if something else has released it:
        its blocks may have been reused while it was read
    """
    with device_mapper.failing():
        if pool in _left:
            _release(pool)
        ioctl.message(pool, 'reserve_metadata_snap')
    _left.add(pool)
    try:
        yield
    finally:
        with device_mapper.failing():
            ioctl.message(pool, 'release_metadata_snap')
        _left.discard(pool)


def _release(pool: str) -> bool:
    """Release the copy of a pool's metadata.

    :returns: False if there is none: see __release_metadata_snap in
        drivers/md/dm-thin-metadata.c
    :raises: OSError
    """
    try:
        ioctl.message(pool, 'release_metadata_snap')
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _left.discard(pool)
        return False
    _left.discard(pool)
    return True


@privsep.dmclone_context.entrypoint
def dump(pool: str, metadata: str, device: int, seconds: float) -> str:
    """Return what thin_dump prints of one volume of a pool.

    :param pool: the pool's name in device-mapper
    :param metadata: path of its metadata
    :param device: the volume's number in the pool
    :param seconds: that it may take; as many may be waited for its turn
    :raises: ProcessExecutionError, also if it takes too long, if what it
        prints is too long, or if another program reads the pool
    """
    if not _turn.acquire(timeout=seconds):
        raise processutils.ProcessExecutionError(
            stderr='another volume is being read')
    try:
        with _copied(pool):
            return _run(['thin_dump', '--dev-id', str(device),
                         '--metadata-snap', metadata], seconds)
    finally:
        _turn.release()


@privsep.dmclone_context.entrypoint
def version() -> str:
    """Return what thin_dump calls its version.

    :raises: ProcessExecutionError, also if there is no such program
    """
    return _run(['thin_dump', '--version'], 10).strip()


def _run(words: list[str], seconds: float) -> str:
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=errors)
        except OSError as error:
            raise processutils.ProcessExecutionError(
                stderr='%s: %s' % (words[0], error.strerror)) from error
        assert process.stdout
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        with process:
            text = process.stdout.read(MOST + 1)
            # It has ended by itself, or was killed, unless there is more.
            if len(text) > MOST:
                process.kill()
            code = process.wait()
        timer.cancel()
        errors.seek(0)
        if code or len(text) > MOST:
            raise processutils.ProcessExecutionError(
                stdout='', stderr=errors.read(1000).decode(errors='replace'),
                exit_code=code, cmd=' '.join(words))
    return text.decode()


@privsep.dmclone_context.entrypoint
def release(pool: str) -> bool:
    """Release the copy of a pool's metadata, unless it is being read here.

    :returns: False if it is being read, or is not there any more
    :raises: ProcessExecutionError
    """
    if not _turn.acquire(blocking=False):
        return False
    try:
        with device_mapper.failing():
            return _release(pool)
    finally:
        _turn.release()
