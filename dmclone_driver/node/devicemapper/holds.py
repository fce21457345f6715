# SPDX-License-Identifier: Apache-2.0
"""Hold the requests of a guest for a moment, so that its clone can copy.

dm-clone begins copies only while no request of its guest is under way, and
then a whole window at once, see :mod:`pokes`. A suspend keeps new requests
back and waits until those under way have ended. If its caller gets a signal
while it waits, the kernel takes it back by itself: requests go on, and nothing
has been suspended (__dm_suspend in drivers/md/dm.c). So the wait is the hold,
and it is never completed:

* a read of the clone's tail, which takes half a second, is under way
  meanwhile; the clone target does not count it, but device-mapper waits for
  it;
* when the copies have begun, the process sends itself a signal;
* a timer of the kernel sends one in any case;
* whatever ends or stops this process ends the wait, too.

Only if the read ends first, the clone is suspended, and is resumed at once.
The lock of the swaps excludes that this is somebody else's suspend; if this
process is killed just then, the watcher resumes the clone.

The process has one main thread, which waits in the kernel, and is started
without site-packages. This module and its imports may only use the standard
library.
"""

import collections.abc
import contextlib
import dataclasses
import json
import mmap
import os
import select
import signal
import sys
import threading
import time
from typing import Protocol

from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import udev
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE

# Seconds after which a hold ends in any case, and between the signals then:
# the first one is lost if it comes before the kernel has begun to wait. The
# guest's requests go on some milliseconds after the signal.
LIMIT, AGAIN = 0.04, 0.005

# Seconds between two looks whether the copies have begun.
LOOK = 0.001

# Seconds that a read of the tail has to last when a hold begins. It lasts half
# a second, see anchor.
LEFT, LASTS = 0.25, 0.5

# Seconds until the read has to be seen there.
PATIENCE = 0.25

# Bytes of a sector, and of a tail.
SECTOR, BLOCK = 512, 4096

# Seconds without a request after which the process ends.
IDLE = 60

# Seconds that nobody may be held. If it was longer, as on a node without free
# processors, the next hold has to wait.
MOST = 0.05

#: Why there was no hold, or how it has ended. With BEGUN there was no need for
#: one, see :mod:`quotas`.
BEGUN, FULL, SLOW, LATE, NO_TAIL, REFUSED, BUSY, SUSPENDED, FAILED = (
    'begun', 'full', 'slow', 'late', 'no tail', 'refused', 'busy', 'suspended',
    'failed')

#: Runs :func:`main`. Its argument is the folder that this package is in.
PROGRAM = ('import sys; sys.path.append(sys.argv[1]); '
           'from dmclone_driver.node.devicemapper import holds; '
           'holds.main()')


@dataclasses.dataclass(frozen=True)
class Result:
    """How a hold has ended.

    :ivar ended: one of the words of this module
    :ivar seconds: how long requests have waited at most
    """

    ended: str
    seconds: float = 0


class Kernel:
    """What a hold does with devices."""

    answers = staticmethod(sysfs.answers)
    info = staticmethod(ioctl.info)
    status = staticmethod(ioctl.status)
    message = staticmethod(ioctl.message)

    @staticmethod
    def commit(name: str) -> None:
        """Commit the metadata of a clone."""
        ioctl.status(name, commit=True)

    @staticmethod
    def suspend(name: str) -> None:
        """Suspend a device; a signal ends the wait for its requests."""
        ioctl.suspend(name, flush=False)

    @staticmethod
    def resume(name: str) -> None:
        """Resume a device."""
        with udev.Resumes() as resumes:
            resumes.resume(name)

    @staticmethod
    def read(name: str, offset: int) -> None:
        """Read a block of a device, without the page cache."""
        descriptor = os.open('/dev/mapper/' + name,
                             os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            os.preadv(descriptor, [mmap.mmap(-1, BLOCK)], offset)
        finally:
            os.close(descriptor)


class Looks(Protocol):
    """How the devices below a clone are looked at."""

    def info(self, name: str) -> status.Device:
        """Return the state of a device, see :func:`ioctl.info`."""

    def answers(self, name: str) -> bool:
        """Return whether the disks below answer, see :func:`sysfs.answers`."""


def would_wait(kernel: Looks, names: Names) -> bool:
    """Return whether requests below a clone cannot end soon.

    A guest's write waits at a closed gate, its reads for a source whose
    session is lost.

    :raises: OSError if a device is gone
    """
    return any(kernel.info(names.of(role)).suspended for role in (
        CLONE, GATE, SOURCE)) or not kernel.answers(names.of(SOURCE))


class Holder:
    """Holds requests, of one clone at a time."""

    def __init__(self, kernel: Kernel, locks: str) -> None:
        self._kernel = kernel
        self._locks = locks
        #: Times at which reads of tails have begun, {clone: time}.
        self._reads: dict[str, float] = {}

    def hold(self, clone: str, window: int) -> Result:
        """Hold the requests of a clone until copies have begun.

        :param clone: the device
        :param window: regions whose copies are to begin
        """
        parsed = names_module.parse(clone)
        if not parsed:
            return Result(REFUSED)
        try:
            with swap.alone(parsed[0].of(HANDLE), self._locks, wait=False):
                return self._hold(parsed[0], window)
        except BlockingIOError:
            return Result(BUSY)
        except (OSError, ValueError):
            # A device is gone, or was made linear.
            return Result(FAILED)

    def _hold(self, names: Names, window: int) -> Result:
        clone = names.of(CLONE)
        text = self._kernel.status(clone)
        found = status.clone(text)
        if not found.hydration or not found.healthy or found.complete or (
                would_wait(self._kernel, names)):
            return Result(REFUSED)
        if len(text.splitlines()) < 2:
            return Result(NO_TAIL)
        # Otherwise dm-clone's worker may do that while the guest is held.
        self._kernel.commit(clone)
        if not self._read_tail(clone, found):
            return Result(FAILED)
        found = status.clone(self._kernel.status(clone))
        if found.copies(window):
            # The guest has paused meanwhile.
            return Result(FULL)
        return self._suspend(clone, window, found)

    def _read_tail(self, clone: str, found: status.CloneStatus) -> bool:
        """Have a read of the tail under way; return whether it is."""
        now = time.monotonic()
        reads = {name: at for name, at in self._reads.items()
                 if now - at < LASTS}
        if clone not in reads or now - reads[clone] > LASTS - LEFT:
            before = self._delayed()
            threading.Thread(target=self._read, daemon=True, args=(
                clone, found.length * SECTOR)).start()
            while self._delayed() <= before:
                if time.monotonic() - now > PATIENCE:
                    return False
                time.sleep(LOOK)
            reads[clone] = now
        self._reads = reads
        return True

    def _delayed(self) -> int:
        """Return the number of reads that wait in the delay target."""
        return int(self._kernel.status(names_module.ANCHOR).split()[3])

    def _read(self, clone: str, offset: int) -> None:
        _leave_signals()
        # It is seen in the anchor whether there is one.
        with contextlib.suppress(OSError):
            self._kernel.read(clone, offset)

    def _suspend(self, clone: str, window: int,
                 found: status.CloneStatus) -> Result:
        """Begin a suspend, and have it taken back."""
        over = threading.Event()
        poker = _Poker(self._kernel, clone, window, found, over)
        suspended = False
        began = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, LIMIT, AGAIN)
        try:
            poker.start()
            with contextlib.suppress(InterruptedError):
                self._kernel.suspend(clone)
                suspended = True
        finally:
            try:
                if suspended:
                    self._kernel.resume(clone)
            finally:
                seconds = time.monotonic() - began
                over.set()
                signal.setitimer(signal.ITIMER_REAL, 0)
        poker.join()
        return Result(SUSPENDED if suspended else LATE if not poker.full else
                      FULL if seconds <= MOST else SLOW, seconds)


class _Poker(threading.Thread):
    """Begins the copies during a hold, and then ends it."""

    def __init__(self, kernel: Kernel, clone: str, window: int,
                 found: status.CloneStatus, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._kernel = kernel
        self._clone = clone
        self._window = window
        self._first = found.hydrated + found.hydrating
        self._wanted = min(window, found.total - self._first)
        self._over = over
        self._main = threading.get_ident()
        #: Whether all copies of the window have begun.
        self.full = False

    def run(self) -> None:
        """Poke until the copies have begun, or the hold is over."""
        _leave_signals()
        with contextlib.suppress(OSError, ValueError):
            while not (self.full or self._over.is_set()):
                self._kernel.message(
                    self._clone, 'hydration_threshold %d' % self._window)
                time.sleep(LOOK)
                found = status.clone(self._kernel.status(self._clone))
                # What a guest's write has begun before counts, too: one less.
                self.full = (found.hydrated + found.hydrating - self._first >=
                             self._wanted - 1)
        while not self._over.is_set():
            # The first one may come before the kernel waits.
            signal.pthread_kill(self._main, signal.SIGALRM)
            self._over.wait(LOOK)


def _leave_signals() -> None:
    """Leave the signals to the main thread, which has to be interrupted."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})


def hurry() -> None:
    """Have this process run before others, and whatever its cgroup's quota.

    The kernel lets a guest go in the context of the process that has got the
    signal. It sleeps nearly all of the time.
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _lines(descriptor: int) -> collections.abc.Iterator[bytes]:
    """Yield the lines of a pipe, until it ends or nothing comes."""
    rest = b''
    while select.select([descriptor], [], [], IDLE)[0]:
        read = os.read(descriptor, 65536)
        if not read:
            return
        *lines, rest = (rest + read).split(b'\n')
        yield from lines


def main() -> None:
    """Do the holds that standard input requests, a line each."""
    signal.signal(signal.SIGALRM, lambda *_arguments: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    hurry()
    holder = Holder(Kernel(), sys.argv[2])
    with contextlib.suppress(BrokenPipeError):
        for line in _lines(sys.stdin.fileno()):
            result = holder.hold(*json.loads(line))
            os.write(sys.stdout.fileno(), json.dumps(
                dataclasses.asdict(result)).encode() + b'\n')
    # A read of a tail may be under way, and its thread can't be ended.
    os._exit(0)
