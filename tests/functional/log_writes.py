# SPDX-License-Identifier: Apache-2.0
"""What a disk holds for sure at any moment, by the kernel's dm-log-writes.

It writes down a request only when it is followed by a flush, or was one that
does not need it: what it has written down up to a moment is what a power cut
in that moment leaves, if the disk forgets all that it may. Format:
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
    """A write of ``data`` at an offset in bytes, or a mark if there is one."""

    offset: int
    data: bytes
    mark: str = None


def table(sectors, disk, log):
    """Print the table of a device that logs its writes."""
    return '0 %d log-writes %s %s' % (sectors, disk, log)


def mark(device, text):
    """Remember this moment under a name."""
    subprocess.run(['dmsetup', 'message', device, '0', 'mark', text],
                   check=True, capture_output=True)


def entries(log):
    """Yield what is in a log, in its order.

    :param log: path of the log's device, with nobody writing it any more
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
    """Return {mark: what the disk held}.

    :param content: of the disk before the first write
    :param marks: those that are asked for: each takes as much memory as
        the disk is large
    """
    found, now = {}, bytearray(content)
    for entry in entries(log):
        if entry.mark is None:
            now[entry.offset:entry.offset + len(entry.data)] = entry.data
        elif entry.mark in marks:
            found[entry.mark] = bytes(now)
    return found
