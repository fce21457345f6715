# SPDX-License-Identifier: Apache-2.0
"""The copies of this node: whose turn it is, and how fast each may be.

A copy that waits for its turn is not stuck: its guest reads and writes, its
source is sealed and connected, and only hydration is off. What is remembered
here is a hint. After a start of the service the kernel says which copies run,
and the others are found when they are about to.
"""

import collections.abc
import dataclasses
import threading

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver.move.backend import Backend
from dmclone_driver.move.lenders import Lenders
from dmclone_driver.move.outages import Outages
from dmclone_driver.move import pace
from dmclone_driver.move.pace import Copy
from dmclone_driver.move.pace_settings import PaceSettings
from dmclone_driver.move import reserve
from dmclone_driver.move.reserve import Room
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# Seconds in which a copy has to get one window, or half of what its rate
# allows it. If it gets less it gives its turn to another one.
IDLE = 30

_Found = collections.abc.Mapping[Names, CloneStatus]


@dataclasses.dataclass(frozen=True)
class _Run:
    """What a copy that runs has got.

    :ivar hydrated: its regions when the present measurement began
    :ivar since: when that was, in seconds
    :ivar idle: whether it got too little in the one before
    """

    hydrated: int
    since: float
    idle: bool = False


class Pacer:
    """Decides which copies run, and at which rates."""

    def __init__(self, backend: Backend, settings: PaceSettings,
                 outages: Outages) -> None:
        self._backend = backend
        self._pauses = backend.jobs.pauses
        self._settings = settings
        self._outages = outages
        self._lenders = Lenders(backend)
        #: Requests and the watcher change what follows.
        self._lock = threading.Lock()
        self._plan = pace.Plan()
        #: Copies that only wait for their turn: {names: since when}.
        self._ready: dict[Names, float] = {}
        #: Copies that have begun since the last look.
        self._begun: set[Names] = set()
        #: Copies that had their turn in vain: {names: regions then}.
        self._vain: dict[Names, int] = {}
        self._runs: dict[Names, _Run] = {}
        #: Copies that have their turn and do not run: {names: since when}.
        self._offered: dict[Names, float] = {}
        #: Copies for which their pool has no room.
        self._without_room: frozenset[Names] = frozenset()

    # For requests

    def take_turn(self, names: Names, source: str) -> bool:
        """Take a turn for a copy that is about to begin, if there is one.

        :param source: backend of its source, which is sealed and connected
        :returns: False if it has to wait; the watcher begins it later
        """
        self._lenders.add(names, source)
        room = self._room([names])
        with self._lock:
            if room.thin and room.used_up:
                # A look of the watcher finds out when that has changed.
                self._without_room |= room.thin
                self._wait(names)
                LOG.info('Hydration of %s waits for room in its thin pool.',
                         names)
                return False
            turns = len(self._plan.turns | self._begun)
            if names in self._plan.rates or (
                    # Copies that wait already are first.
                    not self._plan.queue and
                    turns < self._settings.limits.copies):
                self._ready.pop(names, None)
                self._begun.add(names)
                return True
            self._wait(names)
        LOG.info('Hydration of %s waits for its turn.', names)
        return False

    def _wait(self, names: Names) -> None:
        """Have a copy wait, and begin as soon as it is its turn."""
        self._ready.setdefault(names, self._pauses.now())
        self._pauses.forget(('hydration', names))

    def give_up(self, names: Names) -> None:
        """Forget a copy that could not begin, and waits for more."""
        with self._lock:
            self._ready.pop(names, None)
            self._begun.discard(names)

    def is_queued(self, names: Names) -> bool:
        """Whether a copy waits for nothing but its turn."""
        return names in self._ready and names not in self._plan.rates

    def lacks_room(self, names: Names) -> bool:
        """Whether a copy waits for room in its thin pool."""
        return names in self._without_room

    def is_held_back(self, names: Names, status: CloneStatus) -> bool:
        """Whether a copy gets nothing since others, or a limit, go before.

        One whose copies have begun waits for these.
        """
        if names in self._outages.lost:
            return False
        return (status.paused and not status.hydrating if status.hydration
                else self.is_queued(names))

    # For the watcher

    def look(self, context: cinder_context.RequestContext, found: _Found,
             busy: collections.abc.Container[Names]) -> None:
        """Decide who may copy, and stop the others.

        Those that may begin are begun by :class:`Hydration`.

        :param found: the state of all clones of this node
        :param busy: those that are left alone
        """
        # Before the lock is taken, for which requests wait.
        room = self._room([
            names for names, status in found.items()
            if _is_copying(status) or names in self._ready or
            names in self._begun])
        with self._lock:
            begun, self._begun = self._begun, set()
            self._forget_others(found)
            copies = reserve.limit(
                self._copies(found, begun), room,
                self._backend.configuration.dmclone_check_interval,
                self._settings.limits.copies)
            self._without_room = frozenset(
                copy.names for copy in copies if not copy.room)
            self._plan = pace.plan(
                copies, self._settings.limits,
                # Nothing is looked up for a node without copies.
                self._settings.bandwidth_in if copies else None)
            now = self._pauses.now()
            self._offered = {names: self._offered.get(names, now)
                             for names in self._plan.rates
                             if names in self._ready}
        for names in self._plan.queue:
            if names in busy or not _is_copying(found[names]):
                continue
            try:
                self._stop(names)
            except Exception:
                LOG.exception('Stopping the copy of %s failed; it is tried '
                              'again.', names)
        self._lenders.ask_if_due(context, self._plan)

    def _room(self, copies: collections.abc.Collection[Names]) -> Room:
        configuration = self._backend.configuration
        return reserve.look(self._backend.group.vg_name,
                            int(configuration.reserved_percentage), copies)

    def _forget_others(self, found: _Found) -> None:
        """Forget clones that are gone, or are no copies any longer."""
        self._lenders.keep(found)
        for memory in (self._ready, self._runs, self._vain):
            for names in memory.keys() - found.keys():
                del memory[names]
        for names in list(self._ready):
            status = found[names]
            # Without its source it waits for more than its turn.
            if not status.healthy or status.complete or status.hydration or (
                    names in self._outages.lost):
                del self._ready[names]
        for names, status in found.items():
            if not _is_copying(status):
                self._runs.pop(names, None)
            if self._vain.get(names, status.hydrated) != status.hydrated:
                del self._vain[names]

    def _copies(self, found: _Found,
                begun: collections.abc.Container[Names]) -> list[Copy]:
        """Return what is known of all that run, or that could at once."""
        running = {names for names, status in found.items()
                   if _is_copying(status) or names in begun}
        waiting = self._ready.keys() - running
        # Without a queue there is nothing to choose.
        exported = set(sysfs.devices()) if waiting else set()
        return [self._copy(names, found[names], names in running, exported)
                for names in (*running, *waiting)]

    def _copy(self, names: Names, status: CloneStatus, running: bool,
              devices: collections.abc.Container[str]) -> Copy:
        source = self._lenders.source(names)
        first = self._settings.first
        idle = (self._is_idle(names, status) if running else
                self._waited_with_turn(names) >= IDLE)
        if idle:
            self._vain[names] = status.hydrated
        return Copy(
            names, (status.total - status.hydrated) * status.region_bytes,
            running, idle, self._waited(names), first.index(names.name_id)
            if names.name_id in first else None, names.of(EXPORT) in devices,
            source in self._lenders.draining, names in self._vain,
            self._is_local(names), self._lenders.allowed(names),
            status.length * table.SECTOR, status.region_bytes)

    def _waited(self, names: Names) -> float:
        now = self._pauses.now()
        return now - self._ready.get(names, now)

    def _waited_with_turn(self, names: Names) -> float:
        now = self._pauses.now()
        return now - self._offered.get(names, now)

    def _is_idle(self, names: Names, status: CloneStatus) -> bool:
        """Whether a copy has got next to nothing for some time."""
        now = self._pauses.now()
        last = self._runs.get(names)
        got = status.hydrated - last.hydrated if last else 0
        if last is None or status.paused or not (
                0 <= got < self._needed(names, status)):
            last = _Run(status.hydrated, now)
        elif now - last.since >= IDLE:
            last = _Run(status.hydrated, now, idle=True)
        self._runs[names] = last
        return last.idle or names in self._outages.lost

    def _needed(self, names: Names, status: CloneStatus) -> float:
        """Return the regions that a copy has to get in time."""
        window = self._backend.tuning.in_regions(status.region)[0]
        allowed = self._plan.rates.get(names)
        return max(1, window if allowed is None else min(
            window, allowed * IDLE / 2 / status.region_bytes))

    def _stop(self, names: Names) -> None:
        """Have a copy that runs wait for its turn."""
        LocalVolume(names).pause_hydration()
        with self._lock:
            self._wait(names)
        LOG.info('Hydration of %(names)s waits: %(why)s.', {
            'names': names, 'why': 'only the reserve of its thin pool is left'
            if self.lacks_room(names) else 'it is the turn of others'})

    # For operators

    def copying(self) -> dict[Names, float | None]:
        """Return who may copy: {copy: bytes per second, None for no limit}.

        A copy that has begun since the last look has the rate of one of as
        many as may run.
        """
        with self._lock:
            rates = self._plan.rates
            begun = [Copy(names, 0, local=self._is_local(names),
                          granted=self._lenders.allowed(names))
                     for names in self._begun - rates.keys()]
            if not begun:
                return rates
            return {**rates, **pace.shares(
                begun, self._settings.bandwidth_in,
                max(1, self._settings.limits.copies))}

    def _is_local(self, names: Names) -> bool:
        return self._lenders.source(names) == self._backend.host

    def waiting(self) -> dict[Names, tuple[float, bool]]:
        """Return who waits, the next one first.

        :returns: {copy: (seconds, whether the node of its source refuses)}
        """
        return {names: (self._waited(names), self._lenders.refuses(names))
                for names in self._plan.queue}


def _is_copying(status: CloneStatus) -> bool:
    """Whether a clone is a copy that runs."""
    return status.healthy and status.hydration and not status.complete
