# SPDX-License-Identifier: Apache-2.0
"""What the nodes of sources allow the copies that are made from them.

They are asked in the background. Who does not answer, or cannot, allows
everything: no copy waits for ever for a node that is gone.
"""

import collections.abc
import dataclasses
import math
import threading

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move.pace import Plan
from dmclone_driver.move import peers
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# Seconds after which a node is asked again: while a copy from it runs, while
# it lets one wait, and if its driver is too old for the question. The first is
# less than half of its LEASE.
RENEW, RETRY, OLD = 60, 10, 1800
# Seconds for which a refusal is believed that could not be asked for again.
BELIEVED = 150

_JOB = 'pace'


@dataclasses.dataclass(frozen=True)
class _Grant:
    """What the node of a source has answered.

    :ivar rate: bytes per second; 0 for not yet, infinity for no limit
    :ivar at: when, in seconds
    :ivar due: when it is to be asked again
    """

    rate: float
    at: float
    due: float


class Lenders:
    """Asks the nodes of the sources of this node's clones."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._jobs = backend.jobs
        self._pauses = backend.jobs.pauses
        #: Requests, the watcher and the job change what follows.
        self._lock = threading.Lock()
        #: Backends of the sources as far as they were needed; empty for one
        #: that the database does not know.
        self._sources: dict[Names, str] = {}
        self._grants: dict[Names, _Grant] = {}
        #: Backends whose services are disabled.
        self.draining: frozenset[str] = frozenset()
        #: When they were looked up.
        self._looked_up = -math.inf

    def add(self, names: Names, source: str) -> None:
        """Remember the backend of a source."""
        with self._lock:
            self._sources[names] = source

    def keep(self, present: collections.abc.Container[Names]) -> None:
        """Forget all clones that are not present."""
        with self._lock:
            for memory in (self._sources, self._grants):
                for names in [each for each in memory if each not in present]:
                    del memory[names]

    def source(self, names: Names) -> str:
        """Return the backend of a source, empty if it is not known."""
        return self._sources.get(names, '')

    def allowed(self, names: Names) -> float:
        """Return how fast a copy may be for the node of its source.

        :returns: bytes per second; 0 for not yet, infinity for no limit
        """
        grant = self._grants.get(names)
        if grant is None or not grant.rate and (
                self._pauses.now() - grant.at >= BELIEVED):
            return math.inf
        return grant.rate

    def refuses(self, names: Names) -> bool:
        """Whether the node of a source lets a copy wait."""
        return not self.allowed(names)

    def ask_if_due(self, context: cinder_context.RequestContext,
                   plan: Plan) -> None:
        """Ask who is due, and who is drained, in the background."""
        if self._jobs.at_work(_JOB):
            return
        wanted = self._wanted(plan)
        now = self._pauses.now()
        due = any(self._is_due(names) for names in wanted)
        # The order matters only while copies wait.
        drains = bool(plan.queue) and now - self._looked_up >= RENEW
        if (due or drains) and self._pauses.due(_JOB, RENEW):
            self._jobs.start(_JOB, self._ask, context, wanted, drains)

    def _wanted(self, plan: Plan) -> list[Names]:
        """Return the copies whose sources' nodes have to be asked.

        Those that wait here only, or that get nothing, would take the turns of
        others there.
        """
        return [*plan.turns, *filter(self.refuses, plan.queue)]

    def _is_due(self, names: Names) -> bool:
        grant = self._grants.get(names)
        return self._sources.get(names) not in ('', self._backend.host) and (
            grant is None or self._pauses.now() >= grant.due)

    def _ask(self, context: cinder_context.RequestContext,
             wanted: list[Names], drains: bool) -> None:
        due = [names for names in wanted if self._is_due(names)]
        for names in due:
            if names not in self._sources:
                # The service was started while it ran.
                placeholder = lookups.placeholder(context, names.name_id)
                self.add(names, placeholder.backend if placeholder else '')
        for host in sorted({self.source(names) for names in due} -
                           {'', self._backend.host}):
            self._ask_one(context, host, [names for names in wanted
                                          if self.source(names) == host])
        if drains:
            self.draining = peers.disabled(context)
            self._looked_up = self._pauses.now()
        self._pauses.forget(_JOB)

    def _ask_one(self, context: cinder_context.RequestContext, host: str,
                 mine: list[Names]) -> None:
        """Ask one node; without an answer it sets no limit."""
        answer: dict[str, float | None] = {}
        pause = RENEW
        try:
            answer = self._backend.client.lend(
                context, host, self._backend.host,
                [names.name_id for names in mine])
        except exception.PeerError as error:
            if isinstance(error, exception.PeerTooOld):
                pause = OLD
            LOG.debug('%(host)s sets no limits for its sources: %(error)s',
                      {'host': host, 'error': error.msg})
        now = self._pauses.now()
        with self._lock:
            for names in mine:
                rate = answer.get(names.name_id)
                self._grants[names] = _Grant(
                    math.inf if rate is None else rate, now,
                    now + (RETRY if rate == 0 else pause))
