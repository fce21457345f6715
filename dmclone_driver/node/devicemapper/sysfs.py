# SPDX-License-Identifier: Apache-2.0
"""What can be seen of devices without a process, and without being root."""

import contextlib
import glob
import os

BLOCK = '/sys/class/block'
MAPPER = '/dev/mapper'
# The columns of a block device's stat file that count its requests: reads,
# writes, those under way, discards, flushes (Documentation/block/stat.rst).
STAT_REQUESTS = (0, 4, 8, 11, 15)


def _of(name, attribute):
    node = os.path.basename(os.path.realpath(os.path.join(MAPPER, name)))
    return os.path.join(BLOCK, node, attribute)


def _read(path):
    with open(path) as stream:
        return stream.read().strip()


def devices():
    """Return the names of all devices of the device-mapper."""
    return os.listdir(MAPPER)


def suspended():
    """Return the names of all suspended devices."""
    found = []
    for path in glob.glob(BLOCK + '/dm-*/dm'):
        # It may go while it is looked at.
        with contextlib.suppress(OSError):
            if _read(path + '/suspended') == '1':
                found.append(_read(path + '/name'))
    return found


def is_suspended(name):
    """Return whether requests to a device wait.

    :raises: OSError if there is no such device
    """
    return _read(_of(name, 'dm/suspended')) == '1'


def requests(name):
    """Return how many requests were ever made to a device.

    :raises: OSError if there is no such device
    """
    numbers = _read(_of(name, 'stat')).split()
    return sum(int(numbers[column]) for column in STAT_REQUESTS)


def disks_below(name):
    """Return the disks that a device lies on, as the kernel names them.

    With those of a table that was loaded, but is not used yet.

    :raises: OSError if there is no such device
    """
    return os.listdir(_of(name, 'slaves'))


def in_flight(name):
    """Return how many requests have passed a device and have not ended.

    :raises: OSError if there is no such device
    """
    return sum(map(int, _read(_of(name, 'inflight')).split()))
