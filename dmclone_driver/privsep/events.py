# SPDX-License-Identifier: Apache-2.0
"""Wait for device-mapper events on any device, with one descriptor."""

import fcntl
import os
import select
import struct

from dmclone_driver import privsep

CONTROL = '/dev/mapper/control'
# struct dm_ioctl of linux/dm-ioctl.h: version (3 x u32), data_size,
# data_start, target_count, open_count, flags, event_nr, padding, dev,
# name[128], uuid[129], data[7].
_DM_IOCTL = struct.Struct('3I2I I i I I I Q 128s 129s 7s')
# _IOWR(0xfd, 16, struct dm_ioctl); since version 4.37 of the interface.
_DM_DEV_ARM_POLL = (3 << 30) | (_DM_IOCTL.size << 16) | (0xfd << 8) | 16


_control: int | None = None


@privsep.dmclone_context.entrypoint
def wait(seconds: float) -> bool:
    """Wait until some device-mapper device raises an event.

    The descriptor stays open in the privileged daemon and is armed again
    before this returns: an event that is raised while the caller checks the
    devices ends the next wait at once.

    :returns: whether there was an event
    :raises: OSError
    """
    global _control
    if _control is None:
        _control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    poll = select.poll()
    poll.register(_control, select.POLLIN)
    event = bool(poll.poll(seconds * 1000))
    fcntl.ioctl(_control, _DM_DEV_ARM_POLL, _DM_IOCTL.pack(
        4, 37, 0, _DM_IOCTL.size, _DM_IOCTL.size, 0, 0, 0, 0, 0, 0,
        b'', b'', b''))
    return event
