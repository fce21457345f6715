# SPDX-License-Identifier: Apache-2.0
"""Privileged actions on block devices, through ioctls and sysfs."""

import errno
import fcntl
import os
import re
import struct
from typing import Any

from dmclone_driver.node.quantities import Bytes
from dmclone_driver import privsep

# From linux/fs.h.
BLKROSET = 0x125d
BLKFLSBUF = 0x1261
BLKSSZGET = 0x1268
BLKZEROOUT = 0x127f
BLKGETSIZE64 = 0x80081272

SYSFS = '/sys/class'

# The maximum depth of a queue with a scheduler (MAX_SCHED_RQ in the kernel's
# block/blk-mq-sched.h). QEMU's native I/O has at most 1024 requests under way
# (MAX_EVENTS in its block/linux-aio.c).
QUEUE_DEPTH = 2048

# Seconds until the kernel gives up a command of an imported disk: a week. Its
# default is 30.
COMMAND_TIMEOUT = 7 * 24 * 3600


def _ioctl(path: str, request: int, argument: bytes | int) -> Any:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(fd, request, argument)
    finally:
        os.close(fd)


@privsep.dmclone_context.entrypoint
def size(path: str) -> Bytes:
    """Return a device's size."""
    return Bytes(struct.unpack('Q', _ioctl(path, BLKGETSIZE64, b'\0' * 8))[0])


@privsep.dmclone_context.entrypoint
def logical_block_size(path: str) -> Bytes:
    """Return the smallest unit that a device can address."""
    return Bytes(struct.unpack('i', _ioctl(path, BLKSSZGET, b'\0' * 4))[0])


@privsep.dmclone_context.entrypoint
def flush_buffers(path: str) -> None:
    """Write a device's dirty pages and drop its clean ones."""
    _ioctl(path, BLKFLSBUF, 0)


@privsep.dmclone_context.entrypoint
def set_read_only(path: str, read_only: bool) -> None:
    """Refuse, or allow, writes to a device.

    The kernel checks each write: users that have it open get errors, too.
    """
    _ioctl(path, BLKROSET, struct.pack('i', bool(read_only)))


@privsep.dmclone_context.entrypoint
def zero_start(path: str, length: Bytes) -> None:
    """Zero a device's first bytes, and flush them to stable storage."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b'\0' * length)
        os.fsync(fd)
    finally:
        os.close(fd)


@privsep.dmclone_context.entrypoint
def zero_out(path: str) -> None:
    """Zero a device that nothing uses, and flush it to stable storage.

    The kernel refuses to open it like this while a device-mapper table has it
    (bdev_prepare_to_claim in block/bdev.c).

    :raises: OSError
    """
    fd = os.open(path, os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        end = os.lseek(fd, 0, os.SEEK_END)
        fcntl.ioctl(fd, BLKZEROOUT, struct.pack('QQ', 0, end))
        os.fsync(fd)
    finally:
        os.close(fd)


@privsep.dmclone_context.entrypoint
def forbid_discard(path: str) -> None:
    """Make a device refuse discards until its table is loaded again."""
    name = os.path.basename(os.path.realpath(path))
    limit = SYSFS + '/block/%s/queue/discard_max_bytes' % name
    with open(limit, 'w') as stream:
        stream.write('0')


@privsep.dmclone_context.entrypoint
def set_recovery_timeout(path: str, seconds: int) -> None:
    """Set how long requests to an iSCSI disk wait for a lost connection.

    See the kernel's drivers/scsi/scsi_transport_iscsi.c. From 0 on a timer
    fails waiting requests, with 0 at once (__iscsi_block_session). "off"
    means no timer; "-1" is refused, since it is not parsed as a number. The
    value overrides the one that iscsid sets at each login
    (recovery_tmo_sysfs_override). While the connection is lost, the kernel
    refuses the change as busy (iscsi_priv_session_attr_store).

    :param seconds: -1 for no limit
    :raises: OSError
    """
    name = os.path.basename(os.path.realpath(path))
    with open(session_of(name) + '/recovery_tmo', 'rb+',
              buffering=0) as stream:
        stream.write(b'off' if seconds < 0 else b'%d' % seconds)


@privsep.dmclone_context.entrypoint
def wait_for_commands(path: str) -> None:
    """Have the kernel wait for an iSCSI disk that answers late.

    A source that hydrates itself, and waits for its own source, answers when
    that one's node is back. With the default the kernel would abort such a
    command, reset the session, and fail the command, or take the disk
    offline, after some attempts (scsi_eh_ready_devs and scsi_eh_flush_done_q
    in drivers/scsi/scsi_error.c). That a target does not answer at all is
    found by open-iscsi's own requests (node.conn[0].timeo.noop_out_timeout).

    :raises: OSError
    """
    limit = SYSFS + '/block/%s/device/timeout' % os.path.basename(
        os.path.realpath(path))
    with open(limit, 'w') as stream:
        stream.write('%d' % COMMAND_TIMEOUT)


def session_of(disk: str) -> str:
    """Return the path in sysfs of the session of an iSCSI disk.

    :param disk: its name
    :raises: OSError if the disk belongs to no session, or is gone
    """
    device = os.path.realpath(SYSFS + '/block/%s/device' % disk)
    session = re.search(r'/(session\d+)/', device)
    if not session:
        raise OSError(errno.ENODEV, 'the disk belongs to no iSCSI session')
    return SYSFS + '/iscsi_session/' + session[1]


@privsep.dmclone_context.entrypoint
def deepen_queue(path: str) -> None:
    """Set the depth of a disk's queue to the kernel's maximum.

    A process that submits a request to a full queue sleeps, possibly for
    long with an imported disk. Without a scheduler the depth is limited to
    the number of requests that the session takes at a time, about a hundred
    (blk_mq_update_nr_requests in the kernel's block/blk-mq.c). With a
    scheduler the default is 256.

    :raises: OSError
    """
    queue = SYSFS + '/block/%s/queue/' % os.path.basename(
        os.path.realpath(path))
    with open(queue + 'nr_requests') as stream:
        if int(stream.read()) >= QUEUE_DEPTH:
            # A change waits for requests under way, and must not do so while
            # the session's connection is lost.
            return
    for name, value in (('scheduler', 'mq-deadline'),
                        ('nr_requests', '%d' % QUEUE_DEPTH)):
        with open(queue + name, 'w') as stream:
            stream.write(value)


@privsep.dmclone_context.entrypoint
def flush_disk(path: str) -> None:
    """Flush the disk below a device to stable storage."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
