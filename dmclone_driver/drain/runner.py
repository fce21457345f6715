# SPDX-License-Identifier: Apache-2.0
"""Runs a drain: plans, acts, looks again, and waits for the last copies.

It keeps no state: the database and Nova show what is left, at each look, and
in the next run.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses
import queue
import time

from cinder import context as cinder_context

from dmclone_driver.drain.facts import Copy
from dmclone_driver.drain.facts import Picture
from dmclone_driver.drain.facts import Place
from dmclone_driver.drain.mover import Mover
from dmclone_driver.drain.mover import Outcome
from dmclone_driver.drain import plan
from dmclone_driver.drain.plan import Item
from dmclone_driver.drain import report
from dmclone_driver.drain.room import Room
from dmclone_driver.drain.stop import Stop
from dmclone_driver.drain.survey import Survey
from dmclone_driver.drain import threads
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import rpcapi

#: Seconds between two looks at a signal, at the node, and at the progress of
#: the copies that are waited for.
LOOK_AT_STOP = 1
LOOK_AT_NODE = 15
LOOK_AT_PROGRESS = 60


@dataclasses.dataclass(frozen=True)
class Result:
    """How a drain has ended.

    :ivar picture: the node at the end
    :ivar items: what is left, and what was done
    """

    picture: Picture
    items: tuple[Item, ...]
    outcomes: tuple[Outcome, ...] = ()
    under_way: tuple[Item, ...] = ()


class Runner:
    """One run of a drain, with some items at a time."""

    def __init__(self, context: cinder_context.RequestContext,
                 client: rpcapi.PeerClient, survey: Survey, mover: Mover,
                 stop: Stop,
                 say: collections.abc.Callable[[str], None],
                 to: str | None = None, parallel: int = 1) -> None:
        """Create a runner.

        :param stop: is set when nothing new is to be begun
        :param say: prints a line
        :param to: the node where all go, None for any
        :param parallel: number of items that are under way at a time
        """
        self._context = context
        self._client = client
        self._survey = survey
        self._mover = mover
        self._stop = stop
        self._to = to
        self._parallel = parallel
        self._say = say
        self._outcomes: dict[str, Outcome] = {}
        self._told = float('-inf')
        #: What other nodes have told of their room for the last plan.
        self._answers: tuple[list[Place], dict[str, str]] | None = None

    def plan(self) -> Result:
        """Look at the node, and change nothing."""
        picture = self._survey.picture()
        self._answers = None
        while True:
            room = Room(self._to)
            # A drain that only waits for copies must not ask anybody.
            if picture.volumes or self._to:
                self._answers = self._survey.places(self._to)
                room.update(*self._answers)
            items = tuple(plan.make(picture, room))
            if not (room.lacking and self._survey.widen()):
                return Result(picture, items)

    def run(self, wait: bool = False) -> Result:
        """Do what can be done; end early when asked to stop.

        :param wait: whether to wait until no copy on the node is left
        """
        copies: tuple[Copy, ...] = ()
        while True:
            # Nothing is under way, so the answers for the plan contain them.
            used = self._mover.used()
            found = self.plan()
            self._tell_released(copies, found.picture)
            copies = found.picture.copies
            work = [item for item in found.items
                    if item.kind in plan.WORK and
                    item.key not in self._outcomes]
            if self._stop.is_set() or not work and not (wait and copies):
                return dataclasses.replace(
                    found, outcomes=tuple(self._outcomes.values()))
            if work:
                if self._answers:
                    self._mover.know(*self._answers, used)
                self._act(work)
            else:
                self._tell_progress(copies)
                self._stop.wait(LOOK_AT_NODE)
            if self._stop.is_set():
                return dataclasses.replace(
                    found, outcomes=tuple(self._outcomes.values()),
                    under_way=tuple(self._mover.under_way.values()))

    def _act(self, work: list[Item]) -> None:
        """Handle items until all have ended, or nothing is to be begun."""
        results = threads.start(self._mover.handle, work, self._parallel)
        left = len(work)
        while left:
            stopped = self._stop.is_set()
            try:
                item, outcome = results.get(
                    timeout=0 if stopped else LOOK_AT_STOP)
            except queue.Empty:
                if stopped:
                    return
                continue
            left -= 1
            if outcome is not None:
                self._outcomes[item.key] = outcome
                for line in report.of_outcome(outcome):
                    self._say(line)

    def _tell_released(self, before: tuple[Copy, ...],
                       picture: Picture) -> None:
        """Say which volumes need the node no longer."""
        now = {each.id for each in picture.copies if each.reader}
        for each in before:
            if each.snapshot and each.id not in now:
                self._say(_('complete: snapshot %(snapshot)s needs nothing on '
                            '%(node)s any longer') % {
                                'snapshot': each.snapshot,
                                'node': picture.node})
            elif each.reader and each.id not in now:
                self._say(_('complete: volume %(volume)s needs nothing on '
                            '%(node)s any longer') % {
                                'volume': each.volume,
                                'node': picture.node})

    def _tell_progress(self, copies: tuple[Copy, ...]) -> None:
        """Say, once a minute, how far the volumes are that hydrate."""
        if time.monotonic() - self._told < LOOK_AT_PROGRESS:
            return
        self._told = time.monotonic()
        silent: set[str] = set()
        for each in copies:
            self._say(report.of_copy(each, self._progress(each, silent)))

    def _progress(self, copy: Copy, silent: set[str]) -> str:
        """Return how far a volume is, for its line.

        :param silent: backends that have not answered in this turn
        """
        if copy.reader is None:
            return ''
        if copy.reader not in silent:
            try:
                answer = self._client.progress(self._context, copy.reader,
                                               copy.id)
            except exception.PeerError:
                silent.add(copy.reader)
            else:
                return report.percentage(answer)
        return _('which does not answer')
