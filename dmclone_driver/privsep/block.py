# SPDX-License-Identifier: Apache-2.0
"""Small privileged actions on block devices, through the kernel's ioctls."""

import errno
import fcntl
import os
import re
import struct

from dmclone_driver import privsep

# From linux/fs.h.
BLKROSET = 0x125d
BLKFLSBUF = 0x1261
BLKSSZGET = 0x1268
BLKGETSIZE64 = 0x80081272

SYSFS = '/sys/class'

# The most requests that the kernel lets a queue with a scheduler take
# (MAX_SCHED_RQ in its block/blk-mq-sched.h). QEMU's native I/O has 1024 under
# way at most (MAX_EVENTS in its block/linux-aio.c).
QUEUE_DEPTH = 2048


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
    limit = SYSFS + '/block/%s/queue/discard_max_bytes' % name
    with open(limit, 'w') as stream:
        stream.write('0')


@privsep.dmclone_context.entrypoint
def set_recovery_timeout(path, seconds):
    """Say how long requests to an iSCSI disk wait for a lost connection.

    As in the kernel's drivers/scsi/scsi_transport_iscsi.c: from 0 on a timer
    fails what waits, with 0 at once (__iscsi_block_session); "off" means no
    timer, while "-1" is no number to it and refused. What is written here
    holds against what iscsid sets at each login
    (recovery_tmo_sysfs_override), and is refused as busy while the
    connection is lost (iscsi_priv_session_attr_store).

    :param seconds: -1 for no limit
    :raises: OSError
    """
    name = os.path.basename(os.path.realpath(path))
    with open(session_of(name) + '/recovery_tmo', 'rb+',
              buffering=0) as stream:
        stream.write(b'off' if seconds < 0 else b'%d' % seconds)


def session_of(disk):
    """Return where sysfs shows the session of an iSCSI disk.

    :param disk: its name
    :raises: OSError if it belongs to none, or is gone
    """
    device = os.path.realpath(SYSFS + '/block/%s/device' % disk)
    session = re.search(r'/(session\d+)/', device)
    if not session:
        raise OSError(errno.ENODEV, 'it belongs to no iSCSI session')
    return SYSFS + '/iscsi_session/' + session[1]


@privsep.dmclone_context.entrypoint
def deepen_queue(path):
    """Let the queue of a disk take as many requests as the kernel allows.

    Whoever submits a request to a full queue sleeps, and that may be long
    for an imported disk. Without a scheduler no more fit than the session
    takes at a time (blk_mq_update_nr_requests in the kernel's
    block/blk-mq.c), about a hundred; with one they are 256 by default.

    :raises: OSError
    """
    queue = SYSFS + '/block/%s/queue/' % os.path.basename(
        os.path.realpath(path))
    with open(queue + 'nr_requests') as stream:
        if int(stream.read()) >= QUEUE_DEPTH:
            # A change waits for what is under way: not on a lost session.
            return
    for name, value in (('scheduler', 'mq-deadline'),
                        ('nr_requests', '%d' % QUEUE_DEPTH)):
        with open(queue + name, 'w') as stream:
            stream.write(value)


@privsep.dmclone_context.entrypoint
def flush_disk(path):
    """Make the disk below a device forget nothing that it has acknowledged."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
