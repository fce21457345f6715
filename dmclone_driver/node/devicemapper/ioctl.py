# SPDX-License-Identifier: Apache-2.0
"""The ioctls of device-mapper, which look at devices and change them.

The structures are those of the kernel's include/uapi/linux/dm-ioctl.h, the
flags and texts those of dmsetup (libdm/ioctl/libdm-iface.c of LVM), so that
one can be used in place of the other. Devices are created and removed by
dmsetup alone, which makes their nodes together with udev.

The ioctls are called through ctypes. Python's own function holds the
interpreter's lock while it is given a table or a status (``fcntl_ioctl_impl``
in its Modules/fcntlmodule.c, for more than 1024 bytes), and one disk that does
not answer would stop all threads of the privileged daemon.

This module may only use the standard library, see :mod:`swap`.
"""

import ctypes
import errno
import os
import struct
from typing import Any
from typing import NamedTuple

from dmclone_driver.node.devicemapper import status as status_module

CONTROL = '/dev/mapper/control'

# struct dm_ioctl: version (3 x u32), data_size, data_start, target_count,
# open_count, flags, event_nr, padding, dev, name[128], uuid[129], data[7].
_HEADER = struct.Struct('3I2I I i I I I Q 128s 129s 7s')
# struct dm_target_spec: sector_start, length, status, next, target_type.
_SPEC = struct.Struct('Q Q i I 16s')
# struct dm_name_list: dev, next; then the name.
_NAME = struct.Struct('Q I')
# struct dm_target_versions: next, version (3 x u32); then the name.
_VERSION = struct.Struct('I 3I')
# struct dm_target_msg: sector; then the text.
_MESSAGE = struct.Struct('Q')
_ALIGNMENT = 8

# Flags of struct dm_ioctl.
_READ_ONLY = 1 << 0
_SUSPEND = 1 << 1
_ACTIVE_PRESENT = 1 << 5
_BUFFER_FULL = 1 << 8
_SKIP_LOCKFS = 1 << 10
_NO_FLUSH = 1 << 11
_UEVENT_GENERATED = 1 << 13


class _Command(NamedTuple):
    """An ioctl: its number, what dmsetup calls it, and its least version.

    The kernel refuses a version that is newer than its own.
    """

    number: int
    verb: str
    version: tuple[int, int, int] = (4, 0, 0)
    #: Bytes of the answer beside the structure, at first.
    room: int = 0


_ROOM = 16 * 1024
_LIST = _Command(2, 'names', room=_ROOM)
_SUSPEND_DEVICE = _Command(6, 'suspend')
_RESUME_DEVICE = _Command(6, 'resume')
_INFO = _Command(7, 'info')
_LOAD = _Command(9, 'reload')
_STATUS = _Command(12, 'status', room=_ROOM)
_VERSIONS = _Command(13, 'targets', (4, 1, 0), _ROOM)
_SEND = _Command(14, 'message', (4, 2, 0), _ROOM)
_ARM = _Command(16, 'armpoll', (4, 37, 0))

# No answer is that long; libdevmapper has a limit, too.
_ROOM_LIMIT = 64 * 1024 * 1024


class _Answer(NamedTuple):
    targets: int
    open_count: int
    flags: int
    uuid: str
    data: bytes


_control: int | None = None

_function = ctypes.CDLL(None, use_errno=True).ioctl
_function.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)


def open_control() -> int:
    """Return a new descriptor of the control device.

    :raises: OSError
    """
    return os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)


def _ioctl(descriptor: int, request: int, buffer: 'ctypes.Array[Any]') -> None:
    """Do an ioctl, without the interpreter's lock.

    A signal ends one that waits: Python does not repeat it.

    :raises: OSError
    """
    if _function(descriptor, request, buffer) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _call(command: _Command, name: str = '', *, flags: int = 0,
          event: int = 0, targets: int = 0, data: bytes = b'',
          descriptor: int | None = None) -> _Answer:
    """Do one ioctl, with a larger buffer if its answer has no room.

    :param event: the event's number, or the cookie for udev
    :param targets: the number of targets in the data
    :raises: OSError, whose text names the action, the device and the reason
    """
    global _control
    room = max(len(data), command.room)
    try:
        encoded = name.encode()
        if len(encoded) > 127:
            # A part of it would be the name of another device.
            raise OSError(errno.ENAMETOOLONG,
                          os.strerror(errno.ENAMETOOLONG))
        if descriptor is None:
            if _control is None:
                _control = open_control()
            descriptor = _control
        while True:
            size = _HEADER.size + room
            buffer = ctypes.create_string_buffer(_HEADER.pack(
                *command.version, size, _HEADER.size, targets, 0, flags,
                event, 0, 0, encoded, b'', b'') + data, size)
            # _IOWR(0xfd, number, struct dm_ioctl)
            _ioctl(descriptor, (3 << 30) | (_HEADER.size << 16) |
                   (0xfd << 8) | command.number, buffer)
            answer = _answer(buffer.raw)
            if not answer.flags & _BUFFER_FULL:
                return answer
            room *= 2
            if not 0 < room <= _ROOM_LIMIT:
                raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    except OSError as error:
        raise OSError(error.errno, 'device-mapper: %s ioctl on %s failed: %s' %
                      (command.verb, name or CONTROL, error.strerror)
                      ) from error


def _answer(raw: bytes) -> _Answer:
    (_major, _minor, _patch, _size, start, targets, open_count, flags, _event,
     _padding, _dev, _name, uuid, _data) = _HEADER.unpack_from(raw)
    return _Answer(targets, open_count, flags, _text(uuid), raw[start:])


def _text(raw: bytes, start: int = 0) -> str:
    """Return a text that ends with a zero byte."""
    return raw[start:raw.index(b'\0', start)].decode(
        errors='backslashreplace')


def names() -> list[str]:
    """Return the names of all devices.

    :raises: OSError
    """
    data = _call(_LIST).data
    found: list[str] = []
    offset = 0
    while True:
        device, following = _NAME.unpack_from(data, offset)
        if not device:
            # There are none.
            return found
        found.append(_text(data, offset + _NAME.size))
        if not following:
            return found
        offset += following


def versions() -> dict[str, tuple[int, int, int]]:
    """Return the versions of the targets whose modules are loaded.

    :raises: OSError
    """
    data = _call(_VERSIONS).data
    found: dict[str, tuple[int, int, int]] = {}
    offset = 0
    while True:
        following, major, minor, patch = _VERSION.unpack_from(data, offset)
        found[_text(data, offset + _VERSION.size)] = major, minor, patch
        if not following:
            return found
        offset += following


def info(name: str) -> status_module.Device:
    """Return the state of a device.

    :raises: OSError, with ENXIO if there is no such device
    """
    answer = _call(_INFO, name)
    return status_module.Device(
        name=name, uuid=answer.uuid, open_count=answer.open_count,
        suspended=bool(answer.flags & _SUSPEND),
        live=bool(answer.flags & _ACTIVE_PRESENT),
        read_only=bool(answer.flags & _READ_ONLY))


def status(name: str, commit: bool = False) -> str:
    """Return the status of a device as dmsetup prints it, a line a target.

    It is empty for a device without a table.

    :param commit: have a clone commit its metadata, to find it out
    :raises: OSError, with ENXIO if there is no such device
    """
    answer = _call(_STATUS, name, flags=0 if commit else _NO_FLUSH)
    lines = []
    offset = 0
    for _target in range(answer.targets):
        start, length, _error, following, kind = _SPEC.unpack_from(
            answer.data, offset)
        lines.append('%d %d %s %s\n' % (
            start, length, _text(kind),
            _text(answer.data, offset + _SPEC.size)))
        # From the first target on, unlike in a table that is loaded.
        offset = following
    return ''.join(lines)


def suspend(name: str, flush: bool = True) -> None:
    """Suspend a device; with ``flush`` finish pending requests first.

    Nothing is done to one that is suspended.

    :raises: OSError; with EINTR a signal has ended it, and the device is not
        suspended
    """
    _call(_SUSPEND_DEVICE, name, flags=_SUSPEND | (
        0 if flush else _NO_FLUSH | _SKIP_LOCKFS))


def resume(name: str, cookie: int = 0) -> bool:
    """Resume a device, with the table loaded last.

    :param cookie: what the event for udev carries, see :mod:`udev`
    :returns: whether there is such an event: not if it was not suspended
    :raises: OSError
    """
    return bool(_call(_RESUME_DEVICE, name, event=cookie).flags &
                _UEVENT_GENERATED)


def load(name: str, table: str, read_only: bool = False) -> None:
    """Load a table into a device, which takes effect when it is resumed.

    :param table: lines, see :func:`table.text`
    :raises: OSError
    """
    lines = table.splitlines()
    _call(_LOAD, name, flags=_READ_ONLY if read_only else 0,
          targets=len(lines), data=b''.join(map(_target, lines)))


def _target(line: str) -> bytes:
    start, length, kind, *words = line.split()
    text = ' '.join(words).encode() + b'\0'
    size = -(-(_SPEC.size + len(text)) // _ALIGNMENT) * _ALIGNMENT
    return (_SPEC.pack(int(start), int(length), 0, size, kind.encode()) +
            text).ljust(size, b'\0')


def message(name: str, text: str) -> None:
    """Send a message to the first target of a device.

    :raises: OSError
    """
    _call(_SEND, name, data=_MESSAGE.pack(0) + text.encode() + b'\0')


def arm(descriptor: int) -> None:
    """Have a descriptor of the control device ready at the next event.

    :raises: OSError
    """
    _call(_ARM, descriptor=descriptor)
