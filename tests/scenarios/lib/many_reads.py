# SPDX-License-Identifier: Apache-2.0
"""Submit many reads of a device from one thread, as QEMU's main loop does.

Run on a node: ``python3 many_reads.py DEVICE COUNT FROM TO HERE``. Submits
reads at COUNT places between FROM and TO (MiB), and then one at HERE (MiB).
Prints one line when the latter has ended, and one when the others have ended,
each with the time and the errors.
"""

import ctypes
import errno
import mmap
import os
import random
import struct
import sys
import time

# System calls of x86-64; see the kernel's uapi/linux/aio_abi.h.
_SETUP, _GETEVENTS, _SUBMIT = 206, 208, 209
_PREAD, _SIZE = 0, 4096
_CONTROL = struct.Struct('<QIIHhIQQqQII')
_EVENT = struct.Struct('<QQqq')
_libc = ctypes.CDLL(None, use_errno=True)


def _call(number, *arguments):
    result = _libc.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


class Reads:
    """Asynchronous reads of a device without the page cache."""

    def __init__(self, path, most):
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        self._context = ctypes.c_ulong()
        _call(_SETUP, most, ctypes.byref(self._context))
        self._buffer = mmap.mmap(-1, most * _SIZE)
        self._address = ctypes.addressof(
            ctypes.c_char.from_buffer(self._buffer))
        self._blocks = []

    def submit(self, offset):
        """Submit a read of 4 KiB."""
        number = len(self._blocks)
        block = ctypes.create_string_buffer(_CONTROL.pack(
            number, 0, 0, _PREAD, 0, self._fd,
            self._address + number * _SIZE, _SIZE, offset, 0, 0, 0))
        self._blocks.append(block)
        pointer = ctypes.c_void_p(ctypes.addressof(block))
        _call(_SUBMIT, self._context, 1, ctypes.byref(pointer))

    def errors(self):
        """Wait until all reads have ended; return the names of errors."""
        count = len(self._blocks)
        events = ctypes.create_string_buffer(_EVENT.size * count)
        _call(_GETEVENTS, self._context, count, count, events, None)
        return sorted({errno.errorcode[-result] for _, _, result, _ in
                       _EVENT.iter_unpack(events.raw) if result < 0})


def main(path, count, start, end, here):
    many, one = Reads(path, int(count)), Reads(path, 1)
    places = range(int(start) << 20, int(end) << 20, _SIZE)
    begin = time.monotonic()

    def say(what, errors):
        print('%s after %.2f s, errors: %s' % (
            what, time.monotonic() - begin, ' '.join(errors) or 'none'),
            flush=True)

    for place in random.sample(places, int(count)):
        many.submit(place)
    one.submit(int(here) << 20)
    say('one', one.errors())
    say('all', many.errors())


if __name__ == '__main__':
    main(*sys.argv[1:])
