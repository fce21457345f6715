# SPDX-License-Identifier: Apache-2.0
"""Zero devices as root, in small pieces, behind all other requests."""

from concurrent import futures
import ctypes
import errno
import os
import threading
import time

from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.quantities import Bytes
from dmclone_driver import privsep

# From linux/falloc.h.
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 0x1, 0x2, 0x10

# Seconds that a piece should take: so long the requests of others may wait.
_AIM = 0.02
_FIRST, _SMALLEST, _LARGEST = 4 * units.Mi, units.Mi, units.Gi
# Seconds of a piece with its rest, if the bytes a second are limited.
_LONGEST = 1
# How long the disk rests after a piece, in times that the piece has taken:
# always, and if others have used the disk meanwhile.
_REST, _REST_FOR_OTHERS = 0.5, 4

_function = ctypes.CDLL(None, use_errno=True).fallocate
_function.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64,
                      ctypes.c_int64)


@privsep.dmclone_context.entrypoint
def zero(path: str, start: Bytes, end: Bytes, seconds: float, ionice: str,
         limit: int) -> Bytes:
    """Zero a part of a device, as much as the time allows.

    Its disk and the kernel guarantee that zeros are read from then on. At the
    end they are on stable storage.

    :param seconds: after which no more is begun
    :param ionice: argument of ionice(1), such as "-c3"
    :param limit: bytes a second that may be written, 0 for any number
    :returns: where to continue; the end if all is done
    :raises: OSError, or ProcessExecutionError of ionice
    """
    # The priority is that of a thread. It ends with the thread.
    with futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(_zero, path, start, end, seconds, ionice,
                             limit).result()


def _zero(path: str, start: Bytes, end: Bytes, seconds: float, ionice: str,
          limit: int) -> Bytes:
    processutils.execute('ionice', ionice, '-p',
                         '%d' % threading.get_native_id())
    until = time.monotonic() + seconds
    pace = _Pace(path)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if os.lseek(fd, 0, os.SEEK_END) < end:
            # The kernel would do what there is, and report success.
            raise OSError(errno.ENOSPC, '%s is smaller than %d bytes' % (
                path, end))
        offload = True
        while start < end and time.monotonic() < until:
            length = Bytes(min(pace.length, end - start))
            began = time.monotonic()
            offload = offload and _have_disk_zero(fd, start, length)
            if not offload:
                _fallocate(fd, _ZERO_RANGE, start, length)
            pace.rest(time.monotonic() - began, 0 if offload or not limit
                      else length / limit)
            start = Bytes(start + length)
        if start >= end:
            os.fsync(fd)
    finally:
        os.close(fd)
    return start


def _have_disk_zero(fd: int, start: Bytes, length: Bytes) -> bool:
    """Have a disk zero blocks, or deallocate them if they read as zeros then.

    Of a block device, a punched hole is zeroed without any data being sent
    (BLKDEV_ZERO_NOFALLBACK of blkdev_fallocate in the kernel's block/fops.c).
    The kernel deallocates only where the disk promises zeros.

    :returns: False if the disk, or a device above it, cannot do that
    """
    try:
        _fallocate(fd, _PUNCH_HOLE, start, length)
    except OSError:
        # If the disk has failed, writing zeros fails, too.
        return False
    return True


def _fallocate(fd: int, mode: int, start: Bytes, length: Bytes) -> None:
    if _function(fd, mode | _KEEP_SIZE, start, length) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class _Pace:
    """How much of a device is zeroed at a time, and how long it rests then.

    :ivar length: of the next piece, in bytes
    """

    def __init__(self, path: str) -> None:
        self.length = _FIRST
        self._disks = sysfs.lowest_disks(path)

    def rest(self, took: float, least: float) -> None:
        """Leave the disks to others after a piece.

        :param took: seconds that the piece has taken
        :param least: seconds that piece and rest have to take
        """
        if took > 2 * _AIM or least > _LONGEST:
            self.length = max(self.length // 2, _SMALLEST)
        elif took < _AIM / 2 and least < _LONGEST / 2:
            self.length = min(2 * self.length, _LARGEST)
        before = self._requests()
        pause = max(_REST * took, least - took)
        time.sleep(pause)
        # None of these requests is from here.
        if self._requests() != before:
            time.sleep(max(0, _REST_FOR_OTHERS * took - pause))

    def _requests(self) -> int:
        return sum(map(sysfs.requests, self._disks))
