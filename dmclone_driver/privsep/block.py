# SPDX-License-Identifier: Apache-2.0
"""Small privileged actions on block devices, through the kernel's ioctls."""

import fcntl
import os
import struct

from dmclone_driver import privsep

# From linux/fs.h.
BLKROSET = 0x125d
BLKFLSBUF = 0x1261
BLKSSZGET = 0x1268
BLKGETSIZE64 = 0x80081272


def _ioctl(path, request, argument):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(fd, request, argument)
    finally:
        os.close(fd)


@privsep.dmclone_context.entrypoint
def size(path):
    """Return a device's size in bytes."""
    return struct.unpack('Q', _ioctl(path, BLKGETSIZE64, b'\0' * 8))[0]


@privsep.dmclone_context.entrypoint
def logical_block_size(path):
    """Return the smallest unit that a device can address, in bytes."""
    return struct.unpack('i', _ioctl(path, BLKSSZGET, b'\0' * 4))[0]


@privsep.dmclone_context.entrypoint
def flush_buffers(path):
    """Write a device's dirty pages and forget its clean ones."""
    _ioctl(path, BLKFLSBUF, 0)


@privsep.dmclone_context.entrypoint
def set_read_only(path, read_only):
    """Refuse, or allow, writes to a device.

    The kernel looks at each write: also whoever has it open gets an error.
    """
    _ioctl(path, BLKROSET, struct.pack('i', bool(read_only)))


@privsep.dmclone_context.entrypoint
def zero_start(path, length):
    """Zero a device's first bytes, durably."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b'\0' * length)
        os.fsync(fd)
    finally:
        os.close(fd)


@privsep.dmclone_context.entrypoint
def forbid_discard(path):
    """Make a device refuse discards until its table is loaded again."""
    name = os.path.basename(os.path.realpath(path))
    limit = '/sys/class/block/%s/queue/discard_max_bytes' % name
    with open(limit, 'w') as stream:
        stream.write('0')


@privsep.dmclone_context.entrypoint
def flush_disk(path):
    """Make the disk below a device forget nothing that it has acknowledged."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
