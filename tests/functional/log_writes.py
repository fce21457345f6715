# SPDX-License-Identifier: Apache-2.0
"""The durable content of a disk over time, from the kernel's dm-log-writes.

The target logs a request only when a flush follows it, or if it needs no
flush. So the log up to a moment is the content after a power cut at that
moment, if the disk loses everything that it may lose. Format:
drivers/md/dm-log-writes.c.
"""

import dataclasses
import struct
import subprocess

_SUPER = struct.Struct('<QQQI')
_ENTRY = struct.Struct('<QQQQ')
_MAGIC = 0x6a736677736872
_DISCARD, _MARK = 4, 8
SECTOR = 512


@dataclasses.dataclass(frozen=True)
class Entry:
    """A write of ``data`` at an offset in bytes, or a mark."""

    offset: int
    data: bytes
    mark: str = None


def table(sectors, disk, log):
    """Return the table of a device that logs its writes."""
    return '0 %d log-writes %s %s' % (sectors, disk, log)


def mark(device, text):
    """Log a mark with a name."""
    subprocess.run(['dmsetup', 'message', device, '0', 'mark', text],
                   check=True, capture_output=True)


def entries(log):
    """Yield the entries of a log, in order.

    :param log: path of the log's device, which is not written any more
    """
    with open(log, 'rb') as stream:
        magic, version, count, sector = _SUPER.unpack(
            stream.read(_SUPER.size))
        if magic != _MAGIC or version != 1:
            raise ValueError('not a log of writes')
        stream.seek(sector)
        for _ in range(count):
            head = stream.read(sector)
            start, length, flags, extra = _ENTRY.unpack(head[:_ENTRY.size])
            if flags & _MARK:
                yield Entry(0, b'', head[_ENTRY.size:_ENTRY.size +
                                         extra].rstrip(b'\0').decode())
            elif not flags & _DISCARD:
                yield Entry(start * sector, stream.read(length * sector))


def states(log, content, marks):
    """Return {mark: durable content of the disk}.

    :param content: of the disk before the first write
    :param marks: the wanted ones; each takes as much memory as the size of
            the disk
    """
    found, now = {}, bytearray(content)
    for entry in entries(log):
        if entry.mark is None:
            now[entry.offset:entry.offset + len(entry.data)] = entry.data
        elif entry.mark in marks:
            found[entry.mark] = bytes(now)
    return found
