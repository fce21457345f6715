# SPDX-License-Identifier: Apache-2.0
"""Reports of this backend, made without a process, a lock or a wait.

A report is made of what the service has looked at in any case, of sysfs, and
of two queries of the database. So it can be asked for at any time, also when
LVM, a peer or the holder of a volume's lock does not answer.
"""

import collections.abc
import dataclasses

from cinder import context as cinder_context
from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver.move.backend import Backend
from dmclone_driver.move.clone_state import CloneState
from dmclone_driver.move import hydration
from dmclone_driver.move import left_behind
from dmclone_driver.move.outages import Outages
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move.remotes import Remotes
from dmclone_driver.move.report import LeftBehind
from dmclone_driver.move.report import Move
from dmclone_driver.move.report import MoveState
from dmclone_driver.move.report import NEEDED
from dmclone_driver.move.report import Report
from dmclone_driver.move.report import Role
from dmclone_driver.move.report import Source
from dmclone_driver.move.report import Wait
from dmclone_driver.move import report_rows
from dmclone_driver.move.report_rows import Row
from dmclone_driver.move.sightings import Sighting
from dmclone_driver.move.sightings import Sightings
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

_Rows = collections.abc.Mapping[str, Row]

#: The state of a move whose clone does not hydrate, by that in the database.
_STATES = {State.PREPARED: MoveState.PREPARED,
           State.SWITCHED: MoveState.SWITCHED,
           State.ABORTED: MoveState.ABORTED,
           State.LOST: MoveState.LOST,
           State.RELEASED: MoveState.COMPLETE}

#: What a move waits for whose gate is closed.
_AT_GATE = {State.PREPARED: Wait.GATE, State.SWITCHED: Wait.SEAL,
            State.LOST: Wait.SEAL, State.ABORTED: Wait.REMOVAL}

#: The same if there is no clone.
_WITHOUT_CLONE = {State.PREPARED: Wait.PREPARATION,
                  State.SWITCHED: Wait.RECOVERY, State.LOST: Wait.RECOVERY,
                  State.ABORTED: Wait.REMOVAL}


class Reporter:
    """Makes the reports of a backend."""

    def __init__(self, backend: Backend, sightings: Sightings,
                 outages: Outages, pacer: Pacer, remotes: Remotes,
                 version: str) -> None:
        self._backend = backend
        self._sightings = sightings
        self._outages = outages
        self._pacer = pacer
        self._remotes = remotes
        self._version = version
        self._left_behind: tuple[LeftBehind, ...] = ()
        #: When it was listed, None before the first time.
        self._listed: float | None = None

    def refresh(self) -> None:
        """List what moved volumes have left behind, for later reports.

        This is the only part that runs a process. It is called as often as
        Cinder lists the logical volumes, and not for a report.

        :raises: LVMError
        """
        self._left_behind = tuple(
            LeftBehind(each.what, each.volume, each.lv.full_name,
                       each.space)
            for each in left_behind.find(self._backend.group.vg_name))
        self._listed = self._backend.jobs.pauses.now()

    def report(self, context: cinder_context.RequestContext,
               database: bool = True) -> Report:
        """Return what this backend is doing.

        :param database: False if the database is not to be waited for
        """
        clones = self._sightings.clones
        rows = self._rows(context, clones) if database else None
        metadata, pool = self._backend.metadata, self._backend.pool
        # Cinder updates them each minute, and after each change.
        free, total = (int(size * units.Gi)
                       for size in self._backend.capacity())
        return Report(
            backend=self._backend.host, version=self._version,
            database=rows is not None, looked=self._sightings.age,
            volumes=None if rows is None else len(self._homes(rows)),
            free=free, total=total,
            # LVM does not know that of an inactive pool, which is 0 here.
            pool_metadata=(pool.metadata_percent if pool else 0) or None,
            metadata=metadata.kind, persistent=metadata.persistent,
            listed=None if self._listed is None else
            self._sightings.since(self._listed),
            moves=tuple(self._moves(rows or {}, clones)),
            sources=tuple(self._sources(rows or {}, clones)),
            left_behind=self._left_behind, jobs=self._backend.jobs.left(),
            remotes=self._remotes.found)

    def _rows(self, context: cinder_context.RequestContext,
              clones: collections.abc.Iterable[Names]) -> _Rows | None:
        """Return the rows of this backend, None without a database."""
        try:
            return report_rows.of_backend(
                context, self._backend.host,
                {names.name_id for names in clones})
        except Exception as error:
            LOG.warning('A report is made without the database: %s', error)
            return None

    def _homes(self, rows: _Rows) -> list[Row]:
        """Return the rows of the volumes whose home this is."""
        return [row for row in rows.values() if row.record is None and
                row.backend == self._backend.host]

    def _moves(self, rows: _Rows,
               clones: collections.abc.Mapping[Names, Sighting]
               ) -> collections.abc.Iterator[Move]:
        arriving = {names.name_id for names in clones}
        for home in self._homes(rows):
            if home.prepared:
                yield _leaving(rows, home, home.prepared)
            # Its source is needed, and its clone is not built again yet.
            if _state(rows, home.name_id) in (State.SWITCHED, State.LOST):
                arriving.add(home.name_id)
        arriving.update(
            row.id for row in rows.values()
            if row.backend == self._backend.host and
            _state(rows, row.id) in (State.PREPARED, State.ABORTED))
        for name_id in sorted(arriving):
            move = _arriving(rows, name_id, self._backend.host)
            seen = clones.get(Names(name_id))
            yield move if seen is None else self._with_clone(
                move, _state(rows, name_id), bool(rows), seen)

    def _with_clone(self, move: Move, state: State | None, known: bool,
                    seen: Sighting) -> Move:
        """Return a move with what is known of its clone.

        :param state: in the database
        :param known: whether the database could be read
        """
        names, status = Names(move.placeholder), seen.status
        shut = _is_shut(names, seen)
        if status.healthy:
            region = status.region_bytes
            copied = status.hydrated * region
            # Without what is not copied, see marks.
            size = min(status.length * table.SECTOR, status.total * region)
            move = dataclasses.replace(
                move, hydrated=status.hydrated, total=status.total,
                copied=min(copied, size), size=size,
                progress=self._sightings.since(seen.progress),
                rate=seen.rate)
        if status.healthy and not shut and state != State.LOST:
            if status.complete:
                move = dataclasses.replace(move, state=MoveState.COMPLETE)
            elif status.hydration:
                move = dataclasses.replace(move, state=MoveState.HYDRATING)
        if known and state is None:
            waits = Wait.ROW
        elif shut:
            waits = _AT_GATE.get(state, Wait.GATE) if state else Wait.GATE
        else:
            waits = self._behind_gate(names, state, seen)
        return dataclasses.replace(move, waits=waits)

    def _behind_gate(self, names: Names, state: State | None,
                     seen: Sighting) -> Wait:
        """Return what a clone waits for whose gate is open."""
        status = seen.status
        if not status.healthy:
            return Wait.METADATA
        if state == State.LOST and not status.complete:
            return Wait.SOURCE
        if names in self._outages.lost:
            return Wait.SESSION
        if status.complete:
            return Wait.NOTHING
        if not _is_connected(names):
            return Wait.CONNECTION
        if self._pacer.is_held_back(names, status):
            return (Wait.ROOM if self._pacer.lacks_room(names) else
                    Wait.TURN)
        if not status.hydration:
            return Wait.START
        if self._sightings.since(seen.progress) >= hydration.STALLED:
            return Wait.PROGRESS
        return Wait.NOTHING

    def _sources(self, rows: _Rows,
                 clones: collections.abc.Container[Names]
                 ) -> collections.abc.Iterator[Source]:
        for row in rows.values():
            if row.record is None or row.backend != self._backend.host or (
                    row.record.state not in placeholders.OF_SOURCES):
                continue
            reader = rows.get(row.record.volume)
            # What is released is deleted soon, but not while it hydrates.
            state = (NEEDED if row.record.state == State.RELEASED and
                     Names(row.name_id) in clones else str(row.record.state))
            yield Source(
                placeholder=row.id, name_id=row.name_id,
                volume=row.record.volume,
                reader=reader.backend if reader else '',
                state=state, size=row.size,
                snapshot=row.snapshot or '')


def _state(rows: _Rows, row_id: str) -> State | None:
    """Return the state of a placeholder, None for what is none."""
    row = rows.get(row_id)
    return row.record.state if row and row.record else None


def _leaving(rows: _Rows, home: Row, placeholder: str) -> Move:
    """Return a prepared move of a volume that is still at its home."""
    there = rows.get(placeholder)
    return Move(volume=home.id, placeholder=placeholder, source=home.backend,
                destination=there.backend if there else '', role=Role.HOME,
                state=MoveState.PREPARED,
                waits=Wait.GATE if there else Wait.ROW)


def _arriving(rows: _Rows, name_id: str, host: str) -> Move:
    """Return a move to this node, as the database knows it."""
    row, state = rows.get(name_id), _state(rows, name_id)
    found = Move(volume=names_module.volume_of(name_id) or '',
                 placeholder=name_id, source='', destination=host,
                 role=Role.DESTINATION, state=MoveState.UNKNOWN)
    if row is None or row.record is None or state is None:
        return found
    # Until the switchover the source is the volume's own home.
    source = (rows.get(row.record.volume)
              if state in (State.PREPARED, State.ABORTED) else row)
    return dataclasses.replace(
        found, volume=row.record.volume, snapshot=row.snapshot or '',
        source=source.backend if source else '',
        state=_STATES.get(state, MoveState.UNKNOWN),
        waits=_WITHOUT_CLONE.get(state, Wait.NOTHING))


def _is_shut(names: Names, seen: Sighting) -> bool:
    """Whether the gate of a clone is closed."""
    try:
        return sysfs.is_suspended(names.of(GATE))
    except OSError:
        # The clone has just been removed.
        return seen.state == CloneState.PASSIVE


def _is_connected(names: Names) -> bool:
    """Whether there is, or was, a session to the source of a clone."""
    try:
        return LocalVolume(names).is_connected()
    except OSError:
        return False
