# SPDX-License-Identifier: Apache-2.0
"""Create and remove RAM disks, as root."""

import os

from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.node.quantities import Bytes
from dmclone_driver import privsep

#: The only disk of brd if it was loaded with rd_nr=1.
BRD = '/dev/ram0'

MOUNT = '/run/dmclone-metadata'
FILE = MOUNT + '/disk'

#: Below the anchor, see node/anchor.py; the folder is in memory.
SMALL_FILE = '/run/dmclone-anchor'


def available_memory() -> Bytes:
    """Return the kernel's estimate of bytes usable without swapping."""
    with open('/proc/meminfo') as stream:
        for line in stream:
            name, value = line.split(':')
            if name == 'MemAvailable':
                return Bytes(int(value.split()[0]) * units.Ki)
    raise OSError('/proc/meminfo has no MemAvailable')


def is_loaded(module: str) -> bool:
    """Return whether a kernel module is loaded or built in."""
    return os.path.isdir('/sys/module/' + module)


@privsep.dmclone_context.entrypoint
def brd_holds_nothing() -> bool:
    """Return whether brd has one disk, which is empty or has LVM's label.

    A crash leaves it in that state before its volume group is created or
    after the group is removed.
    """
    if os.path.exists('/sys/block/ram1'):
        return False
    with open(BRD, 'rb') as stream:
        start = stream.read(units.Mi)
    # The label is in one of the first four sectors (lib/label/label.h).
    return b'LABELONE' in start[:4 * 512] or not any(start)


def _write(path: str, value: int | str) -> None:
    with open(path, 'w') as stream:
        stream.write(str(value))


@privsep.dmclone_context.entrypoint
def make_zram(size: Bytes) -> str:
    """Add a zram disk and return its path.

    As in the kernel's admin-guide/blockdev/zram.rst.

    :param size: before compression
    """
    with open('/sys/class/zram-control/hot_add') as stream:
        name = 'zram' + stream.read().strip()
    try:
        _write('/sys/block/%s/disksize' % name, size)
    except OSError:
        _write('/sys/class/zram-control/hot_remove',
               name.removeprefix('zram'))
        raise
    return '/dev/' + name


@privsep.dmclone_context.entrypoint
def remove_zram(path: str) -> None:
    """Remove a zram disk and its data."""
    name = os.path.basename(path)
    _write('/sys/block/%s/reset' % name, 1)
    _write('/sys/class/zram-control/hot_remove', name.removeprefix('zram'))


@privsep.dmclone_context.entrypoint
def make_tmpfs(size: Bytes) -> str:
    """Attach a file on a dedicated tmpfs and return the loop device.

    :raises: ProcessExecutionError
    """
    os.makedirs(MOUNT, mode=0o700, exist_ok=True)
    processutils.execute('mount', '-t', 'tmpfs', '-o', 'mode=0700,size=%d' %
                         size, 'dmclone-metadata', MOUNT)
    return _loop(FILE, size)


def _loop(path: str, size: Bytes) -> str:
    with open(path, 'wb') as stream:
        stream.truncate(size)
    return processutils.execute('losetup', '--find', '--show',
                                path)[0].strip()


@privsep.dmclone_context.entrypoint
def loop(size: Bytes) -> str:
    """Return a loop device over a file of zeros, which exists once.

    :raises: ProcessExecutionError, OSError
    """
    found = processutils.execute(
        'losetup', '--associated', SMALL_FILE, '--noheadings', '--output',
        'NAME')[0].split()
    return found[0] if found else _loop(SMALL_FILE, size)


@privsep.dmclone_context.entrypoint
def remove_tmpfs() -> None:
    """Detach the file and unmount its tmpfs; succeed if both are gone.

    :raises: ProcessExecutionError
    """
    if os.path.ismount(MOUNT):
        if os.path.exists(FILE):
            loops = processutils.execute(
                'losetup', '--associated', FILE, '--noheadings', '--output',
                'NAME')[0]
            for loop in loops.split():
                processutils.execute('losetup', '--detach', loop)
        processutils.execute('umount', MOUNT)
