# SPDX-License-Identifier: Apache-2.0
"""Waiting for udev after devices were resumed, as dmsetup does.

A resume raises an event, with a number that the one who resumes has chosen:
the cookie. When udev has handled the event, its rule 95-dm-notify.rules
decrements the System V semaphore of that number. Until then a device that has
got its first table has no link in /dev/mapper. The protocol is that of
libdm/libdm-common.c of LVM.

This module may only use the standard library, see :mod:`swap`.
"""

import contextlib
import ctypes
import errno
import os
import random
import struct
from types import TracebackType
from typing import Any

from dmclone_driver.node.devicemapper import ioctl

#: Exists while udev runs (udev_queue_get_udev_is_active of libudev).
RUNS = '/run/udev/control'

# Seconds that udev gives to an event (event_timeout of udev.conf). dmsetup
# waits for ever.
TIMEOUT = 180

# DM_COOKIE_MAGIC of libdevmapper.h, above the number of a semaphore.
_MAGIC = 0x0d4d << 16
# The same bits in an event: DM_UDEV_DISABLE_LIBRARY_FALLBACK, and
# DM_UDEV_PRIMARY_SOURCE_FLAG, without which 10-dm.rules takes the event for
# one that somebody has triggered.
_FLAGS = (0x20 | 0x40) << 16

# From linux/ipc.h and linux/sem.h.
_CREATE_NEW = 0o1000 | 0o2000
_NO_WAIT = 0o4000
_REMOVE = 0
_SET_VALUE = 16

# struct sembuf: sem_num, sem_op, sem_flg.
_OPERATION = struct.Struct('H h h')


class _Time(ctypes.Structure):
    """The C library's struct timespec."""

    _fields_ = [('seconds', ctypes.c_long), ('nanoseconds', ctypes.c_long)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.semtimedop.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t,
                             ctypes.c_void_p)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Resumes:
    """Resumes devices; at the end of the context udev has handled all.

    Without udev, or without a semaphore, nothing is waited for. A failure
    here never prevents a resume: the requests of a guest may wait for it.

    :ivar late: the devices, if udev has not handled the events in time; the
        caller logs them
    """

    def __init__(self, limit: int | None = None) -> None:
        """Keep the limit.

        :param limit: seconds for which udev is waited for; None for TIMEOUT
        """
        self._limit = limit
        self.late: list[str] = []
        self._resumed: list[str] = []
        self._number = 0
        self._semaphore: int | None = None

    def __enter__(self) -> 'Resumes':
        return self

    def _create(self) -> None:
        """Create a semaphore with the value 1, which is for the wait."""
        while self._semaphore is None:
            number = random.randrange(1, 1 << 16)
            with contextlib.suppress(FileExistsError):
                self._semaphore = _checked(_libc.semget(
                    _MAGIC | number, 1, 0o600 | _CREATE_NEW))
                self._number = number
        _checked(_libc.semctl(self._semaphore, 0, _SET_VALUE, 1))

    def _prepare(self) -> None:
        if self._semaphore is None and os.path.exists(RUNS):
            # Without it, udev gets the flags alone.
            with contextlib.suppress(OSError):
                self._create()

    def cookie(self, *names: str) -> int | None:
        """Return the cookie for devices that another program resumes.

        It counts them itself (dm_task_set_cookie in libdm/libdm-common.c).

        :returns: None if udev does not run, or if there is no semaphore
        """
        self._prepare()
        if self._semaphore is None:
            return None
        self._resumed += names
        return _MAGIC | self._number

    def killed(self) -> None:
        """Wait for one event less: the other program was killed.

        It counts a device before it creates and resumes it.
        """
        self._add(-1)

    def resume(self, name: str) -> None:
        """Resume a device, with the table loaded last.

        :raises: OSError
        """
        self._prepare()
        self._add(1)
        event = False
        try:
            event = ioctl.resume(name, _FLAGS | self._number)
        finally:
            if event:
                self._resumed.append(name)
            else:
                # udev will not do it.
                self._add(-1)

    def _add(self, change: int) -> None:
        # Somebody may have removed the semaphore.
        with contextlib.suppress(OSError):
            self._operate(change, _NO_WAIT)

    def _operate(self, change: int, flags: int = 0,
                 limit: Any = None) -> None:
        if self._semaphore is not None:
            _checked(_libc.semtimedop(
                self._semaphore, _OPERATION.pack(0, change, flags), 1, limit))

    def __exit__(self, kind: type[BaseException] | None,
                 error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._add(-1)
        with contextlib.suppress(OSError):
            self._wait()
        if self._semaphore is not None:
            _libc.semctl(self._semaphore, 0, _REMOVE)

    def _wait(self) -> None:
        while True:
            limit = TIMEOUT if self._limit is None else self._limit
            try:
                self._operate(0, limit=ctypes.byref(_Time(limit, 0)))
                return
            except OSError as error:
                if error.errno == errno.EAGAIN:
                    self.late = self._resumed
                if error.errno != errno.EINTR:
                    raise
