# SPDX-License-Identifier: Apache-2.0
"""Starting the copies of clones in the moments in which the kernel can.

dm-clone begins copies only while no request of its guest is under way, and
looks for such a moment when a copy ends, if there is one then, and once a
second (do_hydration and hydration_kcopyd_callback in
drivers/md/dm-clone-target.c). The end of the guest's last request does not
make it look. The message hydration_threshold does, also if the threshold stays
the same, and then as many regions as that begin at once: a poke. With 0 none
begins.

This module may only use the standard library, see :mod:`swap`.
"""

import collections.abc
import dataclasses
import time
from typing import Protocol

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status

# Seconds between two looks at a clone, and the most looks at all clones
# together in a second.
ROUND = 0.01
LOOKS = 400


@dataclasses.dataclass(frozen=True)
class Request:
    """How a clone copies for some time.

    :ivar name: the device
    :ivar window: regions that are copied at a time
    :ivar budget: regions whose copies may begin, and those of the window that
        exceeds it; None for any number
    """

    name: str
    window: int
    budget: int | None = None


class Kernel(Protocol):
    """What the pokes need of the kernel, and of its clock."""

    def status(self, name: str) -> str:
        """Return the status of a device, see :func:`ioctl.status`."""

    def message(self, name: str, text: str) -> None:
        """Send a message, see :func:`ioctl.message`."""

    def now(self) -> float:
        """Return the seconds of a clock."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class RealKernel:
    """The kernel of this node."""

    status = staticmethod(ioctl.status)
    message = staticmethod(ioctl.message)
    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class _Clone:
    """A clone during one run."""

    def __init__(self, kernel: Kernel, request: Request) -> None:
        self._kernel = kernel
        self._request = request
        #: Regions that were copied, or were being copied, at the first look.
        self._first: int | None = None
        #: The status at the last look; None if the device is gone.
        self.text: str | None = None
        #: Whether it copies no more.
        self.ended = False

    def look(self) -> None:
        """Look at the clone, and poke it unless it copies."""
        name = self._request.name
        try:
            self.text = self._kernel.status(name)
            found = status.clone(self.text)
            self.ended = (found.complete or not found.healthy or
                          not found.hydration)
            if self.ended:
                return
            wanted = self._wanted(found)
            if found.threshold != wanted or (wanted and not found.hydrating):
                self._kernel.message(name, 'hydration_threshold %d' % wanted)
        except (OSError, ValueError):
            # It is gone, or was made linear.
            self.text = None
            self.ended = True

    def _wanted(self, found: status.CloneStatus) -> int:
        """Return how many regions may be copied at a time now."""
        begun = found.hydrated + found.hydrating
        if self._first is None:
            self._first = begun
        budget = self._request.budget
        if budget is None or begun - self._first < budget:
            return self._request.window
        return 0


def run(kernel: Kernel, requests: collections.abc.Sequence[Request],
        seconds: float) -> dict[str, str]:
    """Poke clones for some time.

    Less than the time is needed if no clone copies. A clone keeps the
    threshold that it has at the end.

    :returns: the last status of each device that is still a clone
    """
    clones = [_Clone(kernel, request) for request in requests]
    pause = min(max(ROUND / len(clones), 1 / LOOKS), seconds / len(clones))
    end = kernel.now() + seconds
    left = clones
    while left and kernel.now() < end:
        for clone in left:
            clone.look()
            kernel.sleep(pause)
        left = [clone for clone in left if not clone.ended]
    return {request.name: clone.text for request, clone in zip(
        requests, clones) if clone.text is not None}
