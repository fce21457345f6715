# SPDX-License-Identifier: Apache-2.0
"""Starting the copies of clones in the moments in which the kernel can.

dm-clone begins copies only while no request of its guest is under way, and
looks for such a moment when a copy ends, if there is one then, and once a
second (do_hydration and hydration_kcopyd_callback in
drivers/md/dm-clone-target.c). The end of the guest's last request does not
make it look. The message hydration_threshold does, also if the threshold stays
the same, and then as many regions as that begin at once: a poke. With 0 none
begins.

A clone that gets too little from that has copies begin beside the requests of
its guest, or these are held, see :mod:`quotas` and :mod:`holds`.

This module may only use the standard library, see :mod:`swap`.
"""

import collections.abc
import dataclasses
import time
from typing import Protocol

from dmclone_driver.node.devicemapper import holds
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
    :ivar holds: windows that it is behind its minimum rate. It has all of the
        time until it has copied them, and its requests may be held, or copies
        may begin beside them, as often
    :ivar part: as the window, while guests use this node and have the rest of
        the time for themselves; None for all of the time
    :ivar share: of the time in which clones with a part copy together at
        most; the least of all counts
    """

    name: str
    window: int
    budget: int | None = None
    holds: int = 0
    part: int | None = None
    share: float = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What has become of a clone in that time.

    :ivar text: its last status
    :ivar held: how often its requests were held, and a window began then
    :ivar missed: why the last attempt to do so had another end
    :ivar seconds: how long they were held at most
    :ivar beside: how often a window began beside its requests
    """

    text: str
    held: int = 0
    missed: str | None = None
    seconds: float = 0
    beside: int = 0


class Kernel(Protocol):
    """What the pokes need of the kernel, and of its clock."""

    def status(self, name: str) -> str:
        """Return the status of a device, see :func:`ioctl.status`."""

    def message(self, name: str, text: str) -> None:
        """Send a message, see :func:`ioctl.message`."""

    def hold(self, name: str, window: int) -> holds.Result:
        """Have the copies of a window begin, with a hold if it needs one.

        See :meth:`quotas.Quotas.begin` and :meth:`holds.Holder.hold`.
        """

    def now(self) -> float:
        """Return the seconds of a clock."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class RealKernel:
    """The kernel of this node, without holds."""

    status = staticmethod(ioctl.status)
    message = staticmethod(ioctl.message)
    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)


class _Share:
    """The time in which clones copy while guests use this node."""

    def __init__(self, kernel: Kernel, share: float) -> None:
        self._kernel = kernel
        self._most = share
        self._began = kernel.now()
        # Without that each run would copy once more than its share.
        self._copied = ROUND

    def add(self, seconds: float) -> None:
        """Note that a clone has copied for so long."""
        self._copied += seconds

    def is_used_up(self) -> bool:
        """Whether it is the guests' turn now."""
        return self._copied > self._most * (self._kernel.now() - self._began)


class _Clone:
    """A clone during one run."""

    def __init__(self, kernel: Kernel, request: Request, seconds: float,
                 share: _Share) -> None:
        self._kernel = kernel
        self._request = request
        self._share = share
        #: Seconds between two holds, and the time of the next one.
        self._pause = seconds / request.holds if request.holds else None
        self._next = kernel.now() + (self._pause or 0) / 2
        #: Regions that were copied, or were being copied, at the first look.
        self._first: int | None = None
        self._looked = kernel.now()
        #: Whether a part may be copied until the next look.
        self.has_part = False
        #: None if the device is gone.
        self.outcome: Outcome | None = None
        #: Whether it copies no more.
        self.ended = False

    def look(self) -> None:
        """Look at the clone, and poke it unless it copies."""
        try:
            self._look()
        except (OSError, ValueError):
            # It is gone, or was made linear.
            self.outcome = None
            self.ended = True

    def _look(self) -> None:
        self.has_part = False
        name = self._request.name
        text = self._kernel.status(name)
        self.outcome = dataclasses.replace(self.outcome or Outcome(text),
                                           text=text)
        found = status.clone(text)
        self.ended = (found.complete or not found.healthy or
                      not found.hydration)
        if self.ended:
            return
        wanted = self._wanted(found)
        starts = bool(wanted) and not found.copies(wanted)
        if found.threshold != wanted or starts:
            self._kernel.message(name, 'hydration_threshold %d' % wanted)
        if starts and self._pause and self._kernel.now() >= self._next:
            self._hold()

    def _hold(self) -> None:
        """Have a window begin whatever the guest does.

        If that has not helped it is not tried again in this run.
        """
        assert self.outcome is not None and self._pause
        self._next += self._pause
        result = self._kernel.hold(self._request.name, self._request.window)
        full, beside = (result.ended == end
                        for end in (holds.FULL, holds.BEGUN))
        self.outcome = dataclasses.replace(
            self.outcome, held=self.outcome.held + full,
            beside=self.outcome.beside + beside,
            missed=None if full or beside else result.ended,
            seconds=max(self.outcome.seconds, result.seconds))
        if self.outcome.missed:
            self._pause = None

    def _wanted(self, found: status.CloneStatus) -> int:
        """Return how many regions may be copied at a time now."""
        begun = found.hydrated + found.hydrating
        if self._first is None:
            self._first = begun
        budget = self._request.budget
        copied = begun - self._first
        if budget is not None and copied >= budget:
            return 0
        if self._request.part is None:
            return self._request.window
        now = self._kernel.now()
        if found.hydrating:
            self._share.add(now - self._looked)
        self._looked = now
        if copied < self._request.holds * self._request.window:
            return self._request.part
        self.has_part = not self._share.is_used_up()
        return self._request.part if self.has_part else 0


def run(kernel: Kernel, requests: collections.abc.Sequence[Request],
        seconds: float) -> dict[str, Outcome]:
    """Poke clones for some time, and hold those that have to be.

    Less than the time is needed if no clone copies. A clone keeps the
    threshold that it has at the end.

    :returns: what has become of each device that is still a clone
    """
    share = _Share(kernel, min((request.share for request in requests),
                               default=1))
    clones = [_Clone(kernel, request, seconds, share) for request in requests]
    pause = min(max(ROUND / len(clones), 1 / LOOKS), seconds / len(clones))
    end = kernel.now() + seconds
    left = clones
    while left and kernel.now() < end:
        for clone in left:
            clone.look()
            if clone.has_part:
                # Count its time before another clone begins.
                kernel.sleep(ROUND)
                clone.look()
            kernel.sleep(pause)
        left = [clone for clone in left if not clone.ended]
    return {request.name: clone.outcome for request, clone in zip(
        requests, clones) if clone.outcome}
