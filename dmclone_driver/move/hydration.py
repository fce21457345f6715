# SPDX-License-Identifier: Apache-2.0
"""Hydration of clones: start, monitor and restart it."""

import collections.abc
import dataclasses

from cinder import context as cinder_context
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver.move.activation import Activation
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.clone_state import CloneState
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move.messages import Troubles
from dmclone_driver.move.outages import Outages
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.node.pacing import Guests
from dmclone_driver.node.pacing import Pace

LOG = logging.getLogger(__name__)

# Seconds without progress after which a clone counts as stalled.
STALLED = 60

# A guest with more requests than that between two beats of the pacemaker uses
# its volume. The journal of an idle one writes less.
BUSY = 10


@dataclasses.dataclass(frozen=True)
class _Progress:
    """The state of a clone when its number of regions last changed."""

    hydrated: int
    since: float
    #: Number of requests of its guest until then.
    requests: int
    #: Whether copies were in progress at each check since then.
    copying: bool = True


class Hydration:
    """Clones of this node that hydrate or have to."""

    def __init__(self, backend: Backend, activation: Activation,
                 outages: Outages, troubles: Troubles, pacer: Pacer) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        self._pauses = backend.jobs.pauses
        self._activation = activation
        self._outages = outages
        self._troubles = troubles
        self._pacer = pacer
        #: Clones whose hydration is due, {names: (number of sources, the
        #: nearest of them)}.
        self._due: dict[Names, tuple[int, Placeholder]] = {}
        #: Progress of hydration, {names: _Progress}.
        self._progress: dict[Names, _Progress] = {}
        #: Progress of the clones that copy single regions,
        #: {names: (hydrated regions, time)}.
        self._one_by_one: dict[Names, tuple[int, float]] = {}
        #: The clones that hydrate, by the last check: {names: status}.
        self._hydrating: dict[Names, CloneStatus] = {}
        #: All requests to each device until the last beat.
        self._requests: dict[str, int] = {}

    def start(self, context: cinder_context.RequestContext,
              names: Names) -> CloneState:
        """Have a clone hydrate when that is due and possible.

        It begins with :meth:`start_due`.
        """
        if names in self._outages.lost:
            # Copies would wait for the source, and a guest's writes to the
            # same regions would wait for the copies.
            return CloneState.WAITING
        if self._pacer.is_queued(names):
            return CloneState.QUEUED
        last = (jobs.RETRY_LAST if LocalVolume(names).is_connected() else
                jobs.RETRY_WAITING)
        if not self._pauses.due(('hydration', names), last):
            return CloneState.WAITING
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is None:
            LOG.error('The database has no source of %s, which cannot be '
                      'completed without it. Its row was deleted, or the '
                      'database was restored.', names)
            self._pacer.give_up(names)
            return CloneState.SICK
        self._due[names] = (len(lookups.chain(context, placeholder)),
                            placeholder)
        return CloneState.WAITING

    def start_due(self, context: cinder_context.RequestContext) -> None:
        """Start the hydrations that are due, the longest chains first.

        The data of a volume at the end of a chain needs the most nodes. None
        waits for another one: see the documentation, "Decisions".
        """
        due, self._due = self._due, {}
        for names, (_length, source) in sorted(
                due.items(), key=lambda item: item[1][0], reverse=True):
            self._jobs.start(names, self._start_hydration, context, names,
                             source)

    def _start_hydration(self, context: cinder_context.RequestContext,
                         names: Names, placeholder: Placeholder) -> None:
        status = dmsetup.clone(names.of(names_module.CLONE))
        if status is None or status.hydration:
            # A request has started it since the watcher's check.
            return
        try:
            if not self._may_call_node(context, names, placeholder):
                self._pacer.give_up(names)
            elif self._activation.hydrate(context, names, placeholder):
                return
        except Exception:
            with excutils.save_and_reraise_exception():
                self._pacer.give_up(names)
        # The whole source is unreachable, so copying single regions does not
        # help.
        self._copy_in_batches(names, status)

    def _may_call_node(self, context: cinder_context.RequestContext,
                       names: Names, placeholder: Placeholder) -> bool:
        """Whether the node of a source is up and may be called.

        A node that starts again triggers the hydration, see Recovery. If
        the source is lost, fail the requests that wait for it.
        """
        if placeholder.state == State.LOST:
            self._activation.end_source(context, names, placeholder)
            return False
        return self._backend.is_up(context, placeholder.backend)

    def pace(self, found: dict[Names, CloneStatus]) -> None:
        """Have clones that hydrate paced, until the next check."""
        self._hydrating = found

    def paces(self) -> list[Pace]:
        """Return how fast each clone may copy now.

        Called by the thread that paces. While a session is lost its copies
        would wait, and so would the guest's writes to the same regions.
        """
        rates = self._pacer.copying()
        known = {**self._hydrating,
                 **self._begun(rates.keys() - self._hydrating.keys())}
        found = {names: status for names, status in known.items()
                 if names in rates and names not in self._outages.lost}
        guests = self._guests(found) if found else Guests.NONE
        return [Pace(names_module.volume_of(names.name_id) or names.name_id,
                     names.of(names_module.CLONE),
                     self._backend.tuning.in_regions(status.region)[0],
                     rates[names], guests)
                for names, status in found.items()]

    @staticmethod
    def _begun(copies: collections.abc.Iterable[Names]
               ) -> dict[Names, CloneStatus]:
        """Return those of some copies that have begun since the check."""
        devices = {names.of(names_module.CLONE): names for names in copies}
        # Without a name it would be all devices.
        found = dmsetup.clones(*devices) if devices else {}
        return {devices[name]: status for name, status in found.items()
                if status.hydration}

    def _guests(self, copying: collections.abc.Iterable[Names]
                ) -> Guests:
        """Return whose guests have used their volumes since last time.

        All volumes of the node share its disks and processors with the copies,
        also those that are complete.
        """
        before, self._requests = self._requests, sysfs.all_requests()
        busy = {name for name, number in self._requests.items()
                if number - before.get(name, number) > BUSY and
                _is_handle(name)}
        if not busy:
            return Guests.NONE
        own = {names.of(names_module.HANDLE) for names in copying}
        return Guests.OWN if busy <= own else Guests.OTHERS

    def look(self, context: cinder_context.RequestContext, names: Names,
             status: CloneStatus) -> None:
        """Check a clone's progress, and handle a stall.

        While a guest's request is in progress the kernel begins no copy
        (do_hydration in drivers/md/dm-clone-target.c). A busy guest alone is
        not a stall, and neither is a copy that waits for its turn, or until it
        is known what need not be copied.
        """
        if self._activation.is_marking(names):
            self._progress.pop(names, None)
            return
        if self._pacer.is_held_back(names, status):
            self._progress.pop(names, None)
            if self._pacer.lacks_room(names):
                self._troubles.room(context, names,
                                    self._backend.group.vg_name)
            return
        self._restore_batches(names, status)
        now = self._pauses.now()
        requests = sysfs.requests(names.of(names_module.HANDLE))
        fresh = _Progress(status.hydrated, now, requests)
        last = self._progress.get(names)
        if last is None or last.hydrated != status.hydrated:
            self._progress[names] = fresh
            self._troubles.forget(names)
            self._pauses.forget(('hydration', names))
            return
        copying = last.copying and bool(status.hydrating)
        if now - last.since < STALLED:
            self._progress[names] = dataclasses.replace(last, copying=copying)
            return
        self._progress[names] = fresh
        if copying or requests == last.requests or not status.hydration:
            self._jobs.start(('stalled', names), self._stalled, context,
                             names, status)
        else:
            LOG.debug('Hydration of %s made no progress: its guest is busy.',
                      names)

    def _restore_batches(self, names: Names, status: CloneStatus) -> None:
        """Copy in batches again once copying single regions has helped."""
        if status.batch == self._batch(status):
            self._one_by_one.pop(names, None)
            return
        now = self._pauses.now()
        hydrated, since = self._one_by_one.setdefault(
            names, (status.hydrated, now))
        if now - since >= STALLED:
            self._one_by_one[names] = status.hydrated, now
            if status.hydrated != hydrated:
                self._copy_in_batches(names, status)

    def _copy_in_batches(self, names: Names, status: CloneStatus) -> None:
        if status.batch != self._batch(status):
            LocalVolume(names).copy_in_batches(self._batch(status))

    def _batch(self, status: CloneStatus) -> int:
        return self._backend.tuning.in_regions(status.region)[1]

    def _stalled(self, context: cinder_context.RequestContext, names: Names,
                 status: CloneStatus) -> None:
        """Ask the old home to serve a source again, and tell the user."""
        local = LocalVolume(names)
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is None:
            return
        self._troubles.say(
            context, names, 'stalled', 'Volume %(volume)s makes no progress: '
            'its source on %(host)s cannot be read, or the data cannot be '
            'written on this node.',
            {'volume': placeholder.volume_id, 'host': placeholder.host})
        if placeholder.state == State.LOST:
            self._activation.end_source(context, names, placeholder)
        elif status.hydration:
            # It is restarted with growing pauses. While dm-clone tries to
            # copy a region that can't be read, a guest can't overwrite the
            # region either.
            local.stop_hydration()
            self._pauses.due(('hydration', names))
            if self._backend.is_up(context, placeholder.backend):
                self._backend.client.export_source(
                    context, placeholder.backend, placeholder.id)
                # The node answers, so some blocks may be unreadable.
                local.copy_one_by_one()

    def forget(self, names: Names) -> None:
        """Forget a clone that is gone."""
        self._pauses.forget(('hydration', names))
        self._progress.pop(names, None)
        self._one_by_one.pop(names, None)


def _is_handle(name: str) -> bool:
    found = names_module.parse(name)
    return found is not None and found[1] == names_module.HANDLE
