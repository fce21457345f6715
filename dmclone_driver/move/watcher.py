# SPDX-License-Identifier: Apache-2.0
"""Watching the clones of this node.

One query of the kernel covers all clones, however many volumes there are.
Without clones a check costs no process and no database query.
"""

import collections.abc
import contextlib
import threading
import time

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver.move.arrival import Arrival
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.clone_state import CloneState
from dmclone_driver.move.completion import Completion
from dmclone_driver.move import counts
from dmclone_driver.move.gate_waits import GateWaits
from dmclone_driver.move.hydration import Hydration
from dmclone_driver.move import jobs
from dmclone_driver.move.marks import Marks
from dmclone_driver.move.messages import Troubles
from dmclone_driver.move.outages import Outages
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move.sightings import Sightings
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import devices
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import events

LOG = logging.getLogger(__name__)

# Seconds between two checks while a write may be waiting at a gate.
GATE_INTERVAL = 0.25

# Seconds after which it is looked whether a write has come to a gate. That is
# a file of the kernel for each closed gate.
GLANCE = 0.025

# Seconds between two looks for devices that somebody else than the driver has
# suspended. That is a file of the kernel for each device.
SUSPENDED_INTERVAL = 60


class Watcher:
    """A thread that checks this backend's clones."""

    def __init__(self, backend: Backend, outages: Outages, arrival: Arrival,
                 hydration: Hydration, completion: Completion,
                 troubles: Troubles, pacer: Pacer, marks: Marks) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        self._outages = outages
        self._arrival = arrival
        self._hydration = hydration
        self._completion = completion
        self._troubles = troubles
        self._pacer = pacer
        self._marks = marks
        #: The clones found by the last check, for those who only look.
        self.sightings = Sightings(backend.jobs.pauses.now)
        self.gate_waits = GateWaits(backend.jobs.pauses.now)
        self._interval = backend.configuration.dmclone_check_interval
        #: When to look for suspended devices, in seconds.
        self._resume_at = 0.0

    def start(self) -> None:
        """Start the thread; it has no stop, as services have no shutdown."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-watcher').start()

    def _run(self) -> None:
        while True:
            interval = self._interval
            # What comes while the check is made is seen after it.
            before = self._writes()
            try:
                interval = self.look()
            except Exception:
                LOG.exception('Checking the clones failed; the next try is '
                              'in %d seconds.', interval)
            try:
                self._wait(interval, before)
            except Exception:
                LOG.exception('Waiting for device-mapper events failed; the '
                              'clones are checked again in %d seconds.',
                              interval)
                time.sleep(interval)

    def _wait(self, interval: float,
              before: collections.abc.Mapping[Names, int]) -> None:
        """Wait until the next check is due.

        While gates are closed, that is when a write has come to one of them:
        until the check a guest waits.

        :param interval: seconds, as :meth:`look` returns them
        :param before: the writes that the last check may have seen
        """
        if interval != GATE_INTERVAL:
            # Building a clone raises several events; one check is enough for
            # all of them.
            time.sleep(min(interval, jobs.RETRY_FIRST))
            events.wait(interval)
            return
        for _ in range(round(GATE_INTERVAL / GLANCE)):
            time.sleep(GLANCE)
            if any(number > before.get(names, 0) for names, number in
                   self._writes().items()):
                return

    def _writes(self) -> dict[Names, int]:
        """Return how many writes wait at the closed gates of the last check.

        They have passed the clone, and not ended.
        """
        found = {}
        for names, sighting in list(self.sightings.clones.items()):
            if sighting.state == CloneState.PASSIVE:
                # The clone may just have been removed.
                with contextlib.suppress(OSError):
                    found[names] = sysfs.writes_in_flight(names.of(CLONE))
        return found

    def look(self) -> float:
        """Check all clones once and start the work that is due.

        :returns: seconds until the next check, unless there is an event
        """
        self._resume_left()
        context = cinder_context.get_admin_context()
        clones = {parsed[0]: self._marks.without(parsed[0], status)
                  for parsed, status in (
                      (names_module.parse(device), status)
                      for device, status in dmsetup.clones().items())
                  if parsed}
        self._pace(context, clones)
        found: dict[Names, tuple[CloneStatus, CloneState | None]] = {}
        for names, status in clones.items():
            found[names] = status, None
            if names in self._backend.busy:
                continue
            try:
                state = self._look_at(context, names, status)
            except Exception:
                LOG.exception('Checking clone %s failed; it is tried again.',
                              names)
                state = CloneState.WAITING
            found[names] = status, state
        self._hydration.start_due(context)
        for names in self.sightings.clones.keys() - found.keys():
            self._forget(names)
        self._count_copied(found)
        self._hydration.pace({names: status for names, (status, state) in
                              found.items() if state == CloneState.HYDRATING})
        self.sightings.replace(found)
        self.gate_waits.look(clones)
        self._jobs.look(context)
        states = {state for _status, state in found.values()}
        if CloneState.PASSIVE in states:
            return GATE_INTERVAL
        # The end of a request is no event, and may leave a closed gate.
        return (jobs.RETRY_FIRST if states & {CloneState.WAITING, None} else
                self._interval)

    def _resume_left(self) -> None:
        """Resume what killed swaps have left suspended."""
        now = self._backend.jobs.pauses.now()
        if dmsetup.swap_was_killed() or now >= self._resume_at:
            self._resume_at = now + (
                SUSPENDED_INTERVAL if devices.resume_left() else 0)

    def _pace(self, context: cinder_context.RequestContext,
              clones: collections.abc.Mapping[Names, CloneStatus]) -> None:
        """Have copies take turns.

        Whatever fails there, writes that wait at gates do not wait for it.
        """
        try:
            self._pacer.look(context, clones, self._backend.busy)
        except Exception:
            LOG.exception('Deciding which copies run failed; it is tried '
                          'again.')

    def _count_copied(self, found: collections.abc.Mapping[
            Names, tuple[CloneStatus, CloneState | None]]) -> None:
        """Count by how much the clones have filled since the last check."""
        before = self.sightings.clones
        for names in before.keys() & found.keys():
            status, _state = found[names]
            regions = status.hydrated - before[names].status.hydrated
            # A clone that was built again may have fewer.
            counts.COPIED.inc(max(0, regions) * status.region_bytes)

    def _look_at(self, context: cinder_context.RequestContext, names: Names,
                 status: CloneStatus) -> CloneState:
        """Start the work that is due for a clone; return its CloneState."""
        if sysfs.is_suspended(names.of(GATE)):
            return self._arrival.look(context, names, status)
        if not status.healthy:
            self._troubles.metadata(context, names, status)
            return CloneState.SICK
        if status.complete:
            if self._outages.reads_wait(names):
                # The suspend would wait, too, and all requests during it.
                return CloneState.WAITING
            self._jobs.start(names, self._completion.complete, context,
                             names)
            return CloneState.COMPLETE
        self._hydration.look(context, names, status)
        return (CloneState.HYDRATING if status.hydration else
                self._hydration.start(context, names))

    def _forget(self, names: Names) -> None:
        """Forget a clone that is gone."""
        self._arrival.forget(names)
        self._hydration.forget(names)
        self._troubles.forget(names)
        self._marks.forget(names)
