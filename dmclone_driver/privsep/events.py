# SPDX-License-Identifier: Apache-2.0
"""Wait for device-mapper events on any device, with one descriptor."""

import select

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver import privsep

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
        _control = ioctl.open_control()
    poll = select.poll()
    poll.register(_control, select.POLLIN)
    event = bool(poll.poll(seconds * 1000))
    ioctl.arm(_control)
    return event
