# SPDX-License-Identifier: Apache-2.0
"""State of devices in sysfs, read without a process and without root."""

import collections.abc
import contextlib
import functools
import glob
import os
import time

BLOCK = '/sys/class/block'
MAPPER = '/dev/mapper'
DISKSTATS = '/proc/diskstats'
# The columns of a block device's stat file that count its requests: reads,
# writes, those under way, discards, flushes (Documentation/block/stat.rst).
STAT_REQUESTS = (0, 4, 8, 11, 15)
# The columns before those of the stat file in the list of all devices, of
# which the last one is the name (Documentation/admin-guide/iostats.rst).
NAME = 3
# Nanoseconds in which a folder may change again without a new time.
_TICK = 1_000_000_000


def _attribute_path(name: str, attribute: str) -> str:
    node = os.path.basename(os.path.realpath(os.path.join(MAPPER, name)))
    return os.path.join(BLOCK, node, attribute)


def _read(path: str) -> str:
    with open(path) as stream:
        return stream.read().strip()


def devices() -> list[str]:
    """Return the names of all devices of the device-mapper."""
    return os.listdir(MAPPER)


def suspended() -> list[str]:
    """Return the names of all suspended devices."""
    found = []
    for path in glob.glob(BLOCK + '/dm-*/dm'):
        # The device may disappear meanwhile.
        with contextlib.suppress(OSError):
            if _read(path + '/suspended') == '1':
                found.append(_read(path + '/name'))
    return found


def is_suspended(name: str) -> bool:
    """Return whether a device is suspended, so that its requests wait.

    :raises: OSError if there is no such device
    """
    return _read(_attribute_path(name, 'dm/suspended')) == '1'


def takes_discards(name: str) -> bool:
    """Return whether a device takes discards.

    :raises: OSError if there is no such device
    """
    return _read(_attribute_path(name, 'queue/discard_max_bytes')) != '0'


def requests(name: str) -> int:
    """Return the number of all requests made to a device so far.

    :raises: OSError if there is no such device
    """
    return _sum(_read(_attribute_path(name, 'stat')).split())


def all_requests() -> dict[str, int]:
    """Return the number of all requests so far, for each device-mapper name.

    One file has those of all devices of the node.
    """
    names = _names()
    return {names[words[NAME - 1]]: _sum(words[NAME:]) for words in map(
        str.split, _read(DISKSTATS).splitlines()) if words[NAME - 1] in names}


def _names() -> dict[str, str]:
    """Return {name of a disk: name of the device-mapper}."""
    changed = os.stat(MAPPER).st_mtime_ns
    if time.time_ns() - changed < _TICK:
        return _read_names()
    return _names_since(changed)


@functools.lru_cache(maxsize=1)
def _names_since(_changed: int) -> dict[str, str]:
    """Read the names once after each change of the folder."""
    return _read_names()


def _read_names() -> dict[str, str]:
    found = {}
    for name in devices():
        # The device may disappear meanwhile, and "control" is no link.
        with contextlib.suppress(OSError):
            found[os.path.basename(os.readlink(
                os.path.join(MAPPER, name)))] = name
    return found


def _sum(numbers: collections.abc.Sequence[str]) -> int:
    return sum(int(numbers[column]) for column in STAT_REQUESTS)


def disks_below(name: str) -> list[str]:
    """Return the kernel's names of the disks that a device lies on.

    The disks of a table that is loaded but not active yet are included.

    :raises: OSError if there is no such device
    """
    return os.listdir(_attribute_path(name, 'slaves'))


def lowest_disks(name: str) -> set[str]:
    """Return the kernel's names of the whole disks below all devices.

    :raises: OSError if there is no such device
    """
    if os.path.exists(_attribute_path(name, 'partition')):
        # A partition's folder lies in that of its disk, and has no "slaves".
        return {os.path.basename(os.path.dirname(
            os.path.realpath(_attribute_path(name, ''))))}
    below = disks_below(name)
    return set().union(*map(lowest_disks, below)) if below else {
        os.path.basename(os.path.realpath(os.path.join(MAPPER, name)))}


def answers(name: str) -> bool:
    """Return whether the disks below a device answer, as far as is known.

    The disk of a session that is lost is "blocked", or "transport-offline"
    (scsi_sysfs.c in drivers/scsi).

    :raises: OSError if there is no such device
    """
    for disk in disks_below(name):
        # Only a SCSI disk has a state.
        with contextlib.suppress(OSError):
            if _read(os.path.join(BLOCK, disk, 'device/state')) != 'running':
                return False
    return True


def in_flight(name: str) -> int:
    """Return the number of requests that have passed a device, not ended.

    :raises: OSError if there is no such device
    """
    return sum(_in_flight(name))


def writes_in_flight(name: str) -> int:
    """Return the number of writes that have passed a device, not ended.

    :raises: OSError if there is no such device
    """
    _reads, writes = _in_flight(name)
    return writes


def _in_flight(name: str) -> list[int]:
    # Reads, and writes, which flushes and discards are, too
    # (Documentation/ABI/stable/sysfs-block).
    return [int(text) for text in _read(
        _attribute_path(name, 'inflight')).split()]
