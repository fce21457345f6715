# SPDX-License-Identifier: Apache-2.0
"""The reports of many backends at once, and what the database adds.

Each backend is asked once. Those that do not answer cost no more than the
limit, however many they are: what is known of them is in the database.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import queue
import threading
import time
from typing import TypeVar

from cinder import context as cinder_context
from cinder import objects

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import peers
from dmclone_driver.move.placeholders import State
from dmclone_driver.move.report import Move
from dmclone_driver.move.report import MoveState
from dmclone_driver.move.report import Report
from dmclone_driver.move.report import Role
from dmclone_driver.move.report import Wait
from dmclone_driver.move import report_rows
from dmclone_driver.move.report_rows import Row
from dmclone_driver.move.rpcapi import PeerClient

Answer = TypeVar('Answer')

#: Calls at a time.
AT_ONCE = 64
# Seconds after the limit in which calls say why they have failed.
_GRACE = 0.5
# Calls that a thread has time for, one after the other, if none is answered
# and there are more than AT_ONCE.
_ROUNDS = 2

_STATES = {State.PREPARED: MoveState.PREPARED,
           State.ABORTED: MoveState.ABORTED,
           State.SWITCHED: MoveState.SWITCHED,
           State.LOST: MoveState.LOST}


@dataclasses.dataclass(frozen=True)
class Node:
    """A backend, and what it has answered.

    :ivar backend: ``node@backend``
    :ivar up: whether its service has sent a heartbeat recently
    :ivar volumes: number of its volumes in the database
    :ivar report: None if there is none
    :ivar reason: why there is no report; empty if there is
    """

    backend: str
    up: bool
    volumes: int
    report: Report | None
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class Cloud:
    """All backends of some names, and all of their moves."""

    nodes: tuple[Node, ...]
    moves: tuple[Move, ...]


def services(context: cinder_context.RequestContext,
             names: collections.abc.Container[str]
             ) -> list[objects.Service]:
    """Return the services of the backends with some names, by host.

    :param names: the parts after the ``@``
    """
    found = objects.ServiceList.get_all_by_binary(context.elevated(),
                                                  'cinder-volume')
    return sorted((each for each in found
                   if peers.backend_name(each.host) in names),
                  key=lambda service: service.host)


def gather(context: cinder_context.RequestContext, client: PeerClient,
           names: collections.abc.Container[str], limit: float) -> Cloud:
    """Ask all backends with some names for their reports, all at once.

    :param names: the parts after the ``@``
    :param limit: seconds that all answers together may take
    """
    asked = services(context, names)
    answers = ask(context, client, [
        # First those that are likely to answer.
        each.host for each in sorted(asked, key=lambda each: not each.is_up)],
        limit)
    numbers = report_rows.volumes(context)
    nodes = tuple(_node(each, answers[each.host], numbers.get(each.host, 0))
                  for each in asked)
    reports = [node.report for node in nodes if node.report]
    return Cloud(nodes, merge(
        reports, _unreported(context, names, reports)))


def ask(context: cinder_context.RequestContext, client: PeerClient,
        hosts: collections.abc.Sequence[str], limit: float
        ) -> dict[str, Report | str]:
    """Ask some backends; return the report of each, or why there is none.

    The parameters are those of :func:`ask_all`.
    """
    return ask_all(hosts, limit, lambda host, left: client.report(
        context, host, timeout=left))


def ask_all(hosts: collections.abc.Sequence[str], limit: float,
            call: collections.abc.Callable[[str, float], Answer]
            ) -> dict[str, Answer | str]:
    """Ask some backends; return the answer of each, or why there is none.

    While the message bus is away a call may not end in its time, or never:
    the library connects again and again. Nothing waits for such a call, nor
    does the end of the process.

    :param hosts: of the form ``node@backend``, the most important first
    :param limit: seconds that all answers together may take
    :param call: asks a backend, in so many seconds
    """
    end = time.monotonic() + limit
    longest = limit if len(hosts) <= AT_ONCE else limit / _ROUNDS

    def ask_one(host: str) -> Answer | str:
        left = min(longest, end - time.monotonic())
        if left <= 0:
            return _('it was not asked, as others did not answer in time')
        try:
            return call(host, left)
        except exception.PeerTooOld:
            return _('its driver is too old to report; update it')
        except exception.PeerUnreachable:
            return _('no answer within %.1f seconds') % left
        except exception.PeerError as error:
            return error.msg

    waiting: queue.Queue[str] = queue.Queue()
    done: queue.Queue[tuple[str, Answer | str | Exception]] = queue.Queue()
    for host in hosts:
        waiting.put(host)

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                host = waiting.get_nowait()
                try:
                    done.put((host, ask_one(host)))
                except Exception as error:
                    done.put((host, error))

    for _number in range(min(AT_ONCE, len(hosts))):
        threading.Thread(target=work, daemon=True).start()
    return _collect(hosts, done, end, _(
        'no answer within %.1f seconds') % longest)


def _collect(hosts: collections.abc.Sequence[str],
             done: queue.Queue[tuple[str, Answer | str | Exception]],
             end: float, reason: str) -> dict[str, Answer | str]:
    """Return the answers that arrive in time, and a reason for the others.

    :param end: when the time is over
    """
    answers: dict[str, Answer | str] = dict.fromkeys(hosts, reason)
    for _number in hosts:
        try:
            host, answer = done.get(timeout=max(
                0, end + _GRACE - time.monotonic()))
        except queue.Empty:
            break
        if isinstance(answer, Exception):
            raise answer
        answers[host] = answer
    return answers


def _node(service: objects.Service, answer: Report | str,
          volumes: int) -> Node:
    if isinstance(answer, Report):
        return Node(service.host, bool(service.is_up), volumes, answer)
    return Node(service.host, bool(service.is_up), volumes, None, answer)


def _unreported(context: cinder_context.RequestContext,
                names: collections.abc.Container[str],
                reports: collections.abc.Iterable[Report]) -> list[Move]:
    """Return the moves of which only the database knows."""
    known = {move.placeholder for each in reports for move in each.moves
             if move.role == Role.DESTINATION}
    missing = [row for row in report_rows.moves(context).values()
               if row.id not in known and
               peers.backend_name(row.backend) in names]
    rows = report_rows.with_ids(context, {
        row.record.volume for row in missing if row.record})
    return list(from_rows(missing, rows))


def from_rows(rows: collections.abc.Iterable[Row],
              volumes: collections.abc.Mapping[str, Row]
              ) -> collections.abc.Iterator[Move]:
    """Yield the moves of placeholders, as the database knows them.

    :param volumes: {id: row}, those of the moves among them
    """
    for row in rows:
        if row.record is None or row.record.state not in _STATES:
            # A released source is no move any longer.
            continue
        volume = volumes.get(row.record.volume)
        ends = [volume.backend if volume else '', row.backend]
        if row.record.state not in (State.PREPARED, State.ABORTED):
            ends.reverse()
        yield Move(
            volume=row.record.volume, placeholder=row.id, source=ends[0],
            destination=ends[1], role=Role.DESTINATION,
            state=_STATES[row.record.state], waits=Wait.REPORT,
            snapshot=row.snapshot or '')


def merge(reports: collections.abc.Iterable[Report],
          unreported: collections.abc.Iterable[Move]) -> tuple[Move, ...]:
    """Return each move once; its destination knows most about it.

    What a destination has not reported has ended or begun meanwhile.
    """
    reports = list(reports)
    told = {each.backend for each in reports if each.database}
    found = {move.placeholder: move for move in unreported
             if move.destination not in told}
    moves = [move for each in reports for move in each.moves]
    for role in (Role.HOME, Role.DESTINATION):
        found.update({move.placeholder: move for move in moves
                      if move.role == role})
    return tuple(sorted(found.values(), key=lambda move: (
        move.destination, move.source, move.volume)))
