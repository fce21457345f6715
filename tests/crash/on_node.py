# SPDX-License-Identifier: Apache-2.0
"""Fill volumes, or print checksums of their parts, in one process.

usage: on_node.py fill|fill-ends|parts SIZE AT < lines of "NAME PATH"

On a node starting a process takes longer than reading a volume.
"""

import hashlib
import mmap
import os
import random
import sys

_BLOCK = 4096


def fill(name, path, size, *offsets):
    """Write random data that depends on the name.

    :param size: bytes that are written at each offset
    """
    buffer = mmap.mmap(-1, size)
    numbers = random.Random(name)
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        for offset in offsets:
            buffer[:] = numbers.randbytes(size)
            assert os.pwrite(fd, buffer, offset) == size
        os.fsync(fd)
    finally:
        os.close(fd)


def parts(path, size, at):
    """Return the checksums of the parts before, in, and after a block.

    The list is empty if there is no such device: the volume is being deleted.
    """
    buffer = mmap.mmap(-1, size)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except FileNotFoundError:
        return []
    try:
        assert os.readv(fd, [buffer]) == size
    finally:
        os.close(fd)
    return [hashlib.sha256(part).hexdigest() for part in (
        buffer[:at], buffer[at:at + _BLOCK], buffer[at + _BLOCK:])]


def main():
    action, size, at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for line in sys.stdin:
        name, path = line.split()
        if action == 'fill':
            fill(name, path, size, 0)
        elif action == 'fill-ends':
            part = size * 7 // 16
            fill(name, path, part, 0, size - part)
        else:
            print(name, *parts(path, size, at))


if __name__ == '__main__':
    main()
