# SPDX-License-Identifier: Apache-2.0
"""Mark regions of a clone as present that its source has not allocated.

A discard on a clone marks the whole regions that it covers, and touches no
disk; those that are present already stay what they are (process_discard_bio
and complete_discard_bio in drivers/md/dm-clone-target.c). A copy under way
would overwrite what a guest writes to a region that was marked meanwhile. So
nothing may be under way: the handle above is suspended, which waits for all
requests below, for a piece of some milliseconds. It refuses discards itself,
see devices.

A piece is given up if requests do not end in time: a signal interrupts the
suspend, and the requests continue. The handle must not stay suspended: this
process ignores signals that would end it, and always resumes the handle. If it
is killed, its parent, the watcher or the next start of the service does.

The process is started without site-packages, as :mod:`swap`. This module and
its imports may only use the standard library.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import struct
import sys
import time

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import udev
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE

# From linux/fs.h: _IO(0x12, 119).
BLKDISCARD = 0x1277

# Seconds that requests under way may take to end, that discards are sent
# then, and between two pieces. No guest is held for more than 50 ms.
LIMIT, PIECE, PAUSE = 0.03, 0.015, 0.05

# Seconds without a request to the handle after which its volume counts as
# idle, and between two pieces then. Pieces last as long as a guest may be held
# then.
QUIET, SHORT_PAUSE = 0.2, 0.005

# Seconds that a piece may last if the handle's open count is 0. A process that
# opens it meanwhile waits once, until the piece ends.
UNOPENED = 0.25

# Pieces after which udev is waited for, which takes longer than a piece, and
# for how many seconds: only so that its events do not pile up.
TOGETHER, PATIENCE = 8, 1

# The most regions of one discard, so that it takes much less than a piece.
MOST = 4096

# How often to look whether nothing is copied, a millisecond apart: dm-clone
# counts its own look for something to copy, too.
LOOKS, LOOK = 5, 0.001

#: How it has ended: all is marked, the time is over, or the devices are not,
#: or no longer, those of a clone that may be marked.
DONE, OVER, REFUSED, FAILED = 'done', 'over', 'refused', 'failed'

#: Runs :func:`main`. Its arguments are the folder that this package is in
#: and the device, which is only there to be seen in a process list.
PROGRAM = ('import sys; sys.path.append(sys.argv[1]); '
           'from dmclone_driver.node.devicemapper import marks; marks.main()')


@dataclasses.dataclass(frozen=True)
class Result:
    """What was marked.

    :ivar ended: one of the words of this module
    :ivar marked: the regions that were not present before
    :ivar left: what was not reached, [first region, number] each
    :ivar seconds: how long requests have waited at most
    """

    ended: str
    marked: int
    left: list[list[int]]
    seconds: float = 0


class Kernel:
    """What marking does with devices, and the clock."""

    answers = staticmethod(sysfs.answers)
    requests = staticmethod(sysfs.requests)
    info = staticmethod(ioctl.info)
    status = staticmethod(ioctl.status)
    commit = staticmethod(holds.Kernel.commit)
    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, locks: str) -> None:
        self._locks = locks
        self._resumes = udev.Resumes()

    @contextlib.contextmanager
    def events(self) -> collections.abc.Iterator[None]:
        """Wait at the end for udev to handle the resumes within."""
        with udev.Resumes(PATIENCE) as self._resumes:
            yield

    def resume(self, name: str) -> None:
        """Resume a device; used within :meth:`events`."""
        self._resumes.resume(name)

    def alone(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Exclude swaps of a device, see :func:`swap.alone`."""
        return swap.alone(name, self._locks)

    @staticmethod
    def suspend(name: str, limit: float) -> None:
        """Suspend a device, without a flush.

        :raises: swap.Waits if its requests do not end in time
        """
        swap.Kernel(udev.Resumes()).suspend(name, False, limit)

    @staticmethod
    @contextlib.contextmanager
    def opened(name: str) -> collections.abc.Iterator[
            collections.abc.Callable[[int, int], None]]:
        """Return a function that discards bytes of a device.

        Its arguments are the first one and their number.
        """
        descriptor = os.open('/dev/mapper/' + name, os.O_RDWR | os.O_CLOEXEC)

        def discard(first: int, length: int) -> None:
            fcntl.ioctl(descriptor, BLKDISCARD,
                        struct.pack('QQ', first, length))

        try:
            yield discard
        finally:
            os.close(descriptor)


class Marker:
    """Marks regions of one clone."""

    def __init__(self, kernel: Kernel, names: Names,
                 ranges: collections.abc.Iterable[
                     collections.abc.Sequence[int]]) -> None:
        """Keep what is to be marked.

        :param ranges: first region and number each, in ascending order
        """
        self._kernel = kernel
        self._names = names
        self._left = collections.deque([first, count]
                                       for first, count in ranges)
        self._marked = 0
        self._seconds: float = 0
        #: The number of requests to the handle, and when it last changed.
        self._requests, self._used = -1, kernel.now()
        #: Whether the handle was open when the last piece began.
        self._opened = True

    def run(self, seconds: float) -> Result:
        """Mark regions for some time, in pieces."""
        end = self._kernel.now() + seconds
        ended = OVER
        try:
            while ended == OVER and self._goes_on(end):
                with self._kernel.events():
                    ended = self._pieces(end)
        except (OSError, ValueError):
            # A device is gone, or takes no discards.
            ended = FAILED
        return Result(ended if self._left else DONE, self._marked,
                      list(self._left), self._seconds)

    def _goes_on(self, end: float) -> bool:
        return bool(self._left) and self._kernel.now() < end

    def _pieces(self, end: float) -> str:
        """Mark regions in some pieces; return how that has ended."""
        for _number in range(TOGETHER):
            if not self._goes_on(end):
                break
            with self._kernel.alone(self._names.of(HANDLE)):
                if not self._piece():
                    return REFUSED
            if self._left:
                self._kernel.sleep(PAUSE if self._is_used() else SHORT_PAUSE)
        return OVER

    def _is_used(self) -> bool:
        """Return whether a guest has used the handle recently, see QUIET."""
        now = self._kernel.now()
        requests = self._kernel.requests(self._names.of(HANDLE))
        if requests != self._requests:
            self._requests, self._used = requests, now
        # Without a guest it may be udev that reads it, after a resume.
        return self._opened and now - self._used < QUIET

    def _piece(self) -> bool:
        """Mark what can be marked in one moment.

        :returns: False if the clone may not be marked
        """
        kernel, handle = self._kernel, self._names.of(HANDLE)
        clone, found = self._names.of(CLONE), kernel.info(handle)
        if found.suspended or not self._may():
            return False
        self._opened = found.open_count > 0
        used = self._is_used()
        # Otherwise dm-clone's worker may do that while requests wait.
        kernel.commit(clone)
        with kernel.opened(clone) as discard:
            began = kernel.now()
            try:
                kernel.suspend(handle, LIMIT)
            except swap.Waits:
                return True
            try:
                # It may have changed while requests ended.
                if not self._may():
                    return False
                if not self._is_copying():
                    self._discard(discard, self._end(began, used))
                return True
            finally:
                kernel.resume(handle)
                self._seconds = max(self._seconds, kernel.now() - began)

    def _end(self, began: float, used: bool) -> float:
        """Return when a piece ends.

        :param began: when its suspend began
        :param used: whether there are requests
        """
        if not self._opened:
            return began + UNOPENED
        return self._kernel.now() + PIECE if used else began + LIMIT + PIECE

    def _may(self) -> bool:
        """Whether the devices are those of a clone that may be marked.

        A guest's write would wait at a closed gate, its reads for a source
        whose session is lost. Then the suspend would wait, too.
        """
        names, kernel = self._names, self._kernel
        found = self._status()
        return (swap.state(kernel.status(names.of(HANDLE))) in swap.ORIGIN and
                found.healthy and not found.hydration and
                not any(kernel.info(names.of(role)).suspended
                        for role in (CLONE, GATE, SOURCE)) and
                kernel.answers(names.of(SOURCE)))

    def _status(self) -> status.CloneStatus:
        return status.clone(self._kernel.status(self._names.of(CLONE)))

    def _is_copying(self) -> bool:
        for _look in range(LOOKS):
            if not self._status().hydrating:
                return False
            self._kernel.sleep(LOOK)
        return True

    def _discard(self, discard: collections.abc.Callable[[int, int], None],
                 end: float) -> None:
        """Discard while nothing is under way.

        :param end: of the piece
        """
        before = self._status()
        size = before.region_bytes
        try:
            while self._left:
                first, count = self._left[0]
                now = min(count, MOST)
                discard(first * size, now * size)
                self._left[0] = [first + now, count - now]
                if now == count:
                    self._left.popleft()
                if self._kernel.now() >= end:
                    break
        finally:
            self._marked += self._status().hydrated - before.hydrated


def main() -> None:
    """Mark what standard input describes; print the result."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    holds.hurry()
    request = json.load(sys.stdin)
    result = Marker(Kernel(request['locks']), Names(request['name_id']),
                    request['ranges']).run(request['seconds'])
    # The caller may have been killed.
    with contextlib.suppress(BrokenPipeError):
        json.dump(dataclasses.asdict(result), sys.stdout)
        sys.stdout.flush()
