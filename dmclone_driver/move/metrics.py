# SPDX-License-Identifier: Apache-2.0
"""The values of metrics that are read when they are asked for.

They are made from a report, which costs no process, no lock and a few small
queries. No label has the id of a volume or the name of a peer, so the number
of series does not grow with the cloud.
"""

import collections.abc
import threading
from typing import TYPE_CHECKING

from cinder import context as cinder_context
from oslo_log import log as logging
from prometheus_client import core

from dmclone_driver.move.placeholders import OF_SOURCES
from dmclone_driver.move.report import Move
from dmclone_driver.move.report import MoveState
from dmclone_driver.move.report import NEEDED
from dmclone_driver.move.report import Report
from dmclone_driver.move.report import Role
from dmclone_driver.move.report import Source
from dmclone_driver.move.report import Wait

if TYPE_CHECKING:
    from dmclone_driver.move.gate_waits import GateWaits
    from dmclone_driver.move.jobs import Jobs
    from dmclone_driver.move.notifications import Notifications
    from dmclone_driver.move.outages import Outages
    from dmclone_driver.move.reporter import Reporter

LOG = logging.getLogger(__name__)

# Seconds that a scrape waits for the database. Prometheus gives up after ten
# by default (scrape_timeout).
DATABASE_TIMEOUT = 3

Gauge = core.GaugeMetricFamily
Families = collections.abc.Iterator[core.Metric]


class _Reading:
    """A thread that makes a report, which needs the database."""

    def __init__(self, reporter: 'Reporter') -> None:
        self._reporter = reporter
        self.report: Report | None = None
        self.thread = threading.Thread(target=self._run, daemon=True,
                                       name='dmclone-metrics-report')

    def _run(self) -> None:
        try:
            self.report = self._reporter.report(
                cinder_context.get_admin_context())
        except Exception:
            LOG.exception('A report for metrics could not be made.')


class Collector:
    """A collector of the Prometheus client library.

    It can be asked in any thread, and by several at a time.
    """

    def __init__(self, reporter: 'Reporter', gate_waits: 'GateWaits',
                 outages: 'Outages', jobs: 'Jobs',
                 notifications: 'Notifications') -> None:
        self._reporter = reporter
        self._gate_waits = gate_waits
        self._outages = outages
        self._jobs = jobs
        self._notifications = notifications
        self._turn = threading.Lock()
        self._reading: _Reading | None = None

    def collect(self) -> Families:
        """Yield the metrics; the client library calls this at a scrape."""
        report = self._report()
        yield from _service(report)
        yield from _moves([move for move in report.moves
                           if move.role == Role.DESTINATION])
        yield _of('dmclone_moves_leaving', 'Moves that are prepared from here '
                  'to another node.', sum(
                      move.role == Role.HOME for move in report.moves)
                  if report.database else None)
        yield _by('dmclone_volumes_remote', 'Volumes here that nodes without '
                  'room for them use remotely, by whether there is room now.',
                  'room', _remotes(report))
        yield from _space(report)
        yield from _sources(report.sources if report.database else None)
        yield from self._waits()

    def _report(self) -> Report:
        """Return a report, without the database if that does not answer.

        At most one thread waits for the database, however often the metrics
        are asked for.
        """
        with self._turn:
            if self._reading is None or not self._reading.thread.is_alive():
                self._reading = _Reading(self._reporter)
                self._reading.thread.start()
            reading = self._reading
        reading.thread.join(DATABASE_TIMEOUT)
        return reading.report or self._reporter.report(
            cinder_context.get_admin_context(), database=False)

    def _waits(self) -> Families:
        gates = self._gate_waits.seconds()
        yield _of('dmclone_gate_writes_waiting', 'Guests that have arrived '
                  'and whose first write waits for the gate.', len(gates))
        yield _of('dmclone_gate_longest_wait_seconds', 'How long the oldest '
                  'of these writes has waited.', max(gates, default=0))
        yield _of('dmclone_sessions_lost', 'Sources of clones here whose '
                  'iSCSI session is lost.', len(self._outages.lost))
        yield _of('dmclone_sessions_held', 'Those of them to which requests '
                  'are held back.', len(self._outages.held))
        yield _by('dmclone_jobs', 'Pending jobs, which are repeated until '
                  'they are done.', 'kind', self._jobs.numbers())
        yield _of('dmclone_notifications_waiting', 'Notifications that wait '
                  'for the message bus.', self._notifications.waiting())


def _of(name: str, text: str, value: float | None) -> core.Metric:
    """Return a metric without labels, without a value if that is None."""
    found = Gauge(name, text)
    if value is not None:
        found.add_metric([], value)
    return found


def _by(name: str, text: str, label: str,
        values: collections.abc.Mapping[str, float]) -> core.Metric:
    """Return a metric with one label.

    :param values: {value of the label: value}
    """
    found = Gauge(name, text, labels=[label])
    for key, value in values.items():
        found.add_metric([str(key)], value)
    return found


def _remotes(report: Report) -> dict[str, float]:
    rooms = [bool(each.room) for each in report.remotes]
    return {'yes': rooms.count(True), 'no': rooms.count(False)}


def _service(report: Report) -> Families:
    info = Gauge('dmclone_info', 'The version of the driver, and the place of '
                 'its metadata; the value is 1.',
                 labels=['version', 'metadata', 'persistent'])
    info.add_metric([report.version, report.metadata,
                     str(report.persistent).lower()], 1)
    yield info
    yield _of('dmclone_database_readable', 'Whether the database could be '
              'read; without it some metrics have no value.',
              report.database)
    yield _of('dmclone_last_check_age_seconds', 'Time since the watcher last '
              'checked the clones.', report.looked)
    yield _of('dmclone_volumes', 'Volumes whose home this is.',
              report.volumes)


def _moves(moves: collections.abc.Sequence[Move]) -> Families:
    """Yield the metrics of the moves and copies that arrive here."""
    states: dict[str, float] = dict.fromkeys(MoveState, 0)
    for move in moves:
        states[move.state] += 1
    yield _by('dmclone_moves', 'Moves and copies that arrive here, by state.',
              'state', states)
    waits: dict[str, float] = dict.fromkeys(Wait, 0)
    for move in moves:
        waits[move.waits] += 1
    del waits[Wait.NOTHING]
    yield _by('dmclone_moves_waiting', 'Those of them that wait, by what they '
              'wait for.', 'reason', waits)
    yield _of('dmclone_moves_bytes', 'Size of the clones here.',
              sum(move.size or 0 for move in moves))
    yield _of('dmclone_moves_left_bytes', 'What they have not got yet.',
              sum((move.size or 0) - (move.copied or 0) for move in moves))
    yield _of('dmclone_moves_longest_pause_seconds', 'The longest time for '
              'which one of those that hydrate has got nothing.',
              max((move.progress or 0 for move in moves
                   if move.state == MoveState.HYDRATING), default=0))


def _space(report: Report) -> Families:
    yield _of('dmclone_group_bytes', 'Size of the volume group, the pool.',
              report.total)
    yield _of('dmclone_group_free_bytes', 'Free space of the volume group.',
              report.free)
    yield _of('dmclone_thin_pool_metadata_used_ratio', 'How full the '
              'metadata of the pool of thin volumes is, from 0 to 1.',
              None if report.pool_metadata is None else
              report.pool_metadata / 100)
    listed = report.listed is not None
    yield _of('dmclone_left_behind', 'Logical volumes that hold space for '
              'volumes on other nodes, since snapshots were taken of them.',
              len(report.left_behind) if listed else None)
    yield _of('dmclone_left_behind_bytes', 'Size of these.',
              sum(each.size for each in report.left_behind)
              if listed else None)


def _sources(sources: collections.abc.Sequence[Source] | None) -> Families:
    """Yield the metrics of sources; without values if they are not known."""
    numbers: dict[str, float] = {}
    sizes: dict[str, float] = {}
    if sources is not None:
        for state in (*OF_SOURCES, NEEDED):
            mine = [each.size for each in sources if each.state == state]
            numbers[state], sizes[state] = len(mine), sum(mine)
    yield _by('dmclone_sources', 'Sources that are kept here, by the state of '
              'their move.', 'state', numbers)
    yield _by('dmclone_sources_bytes', 'Size of these.', 'state', sizes)
