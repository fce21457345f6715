# SPDX-License-Identifier: Apache-2.0
"""What one backend reports about its moves, as values."""

import collections.abc
import dataclasses
import enum
from typing import Any


class Role(enum.StrEnum):
    """The side of a move on which the reporting node is."""

    #: The volume's data arrives here.
    DESTINATION = 'destination'
    #: The volume is still here, and its move is prepared.
    HOME = 'home'


class MoveState(enum.StrEnum):
    """The state of a move, in the words of the glossary."""

    #: The destination is built, or will be; its gate is closed.
    PREPARED = 'prepared'
    #: The destination is the home, and does not hydrate yet.
    SWITCHED = 'switched'
    HYDRATING = 'hydrating'
    #: All regions are hydrated; the clone is being removed.
    COMPLETE = 'complete'
    #: The destination has to be removed.
    ABORTED = 'aborted'
    #: The source is lost; the volume still needs it.
    LOST = 'lost'
    #: The database cannot be read, or has no row of the clone.
    UNKNOWN = 'unknown'


class Wait(enum.StrEnum):
    """What a move waits for."""

    NOTHING = ''
    #: The destination is being built.
    PREPARATION = 'preparation'
    #: Its gate is closed until its guest writes, or its home switches over.
    GATE = 'gate'
    #: The volume has switched over, and the gate is closed: the node of the
    #: source is asked to seal it.
    SEAL = 'seal'
    #: Its devices are not built again yet after a reboot.
    RECOVERY = 'recovery'
    #: No iSCSI session to the source has been made yet.
    CONNECTION = 'connection'
    #: The iSCSI session to the source is lost.
    SESSION = 'session'
    #: It is the turn of other copies.
    TURN = 'turn'
    #: Of its thin pool only the reserve for the writes of guests is left.
    ROOM = 'room'
    #: Hydration begins when the node of the source answers.
    START = 'start'
    #: It hydrates, and no region was copied for a minute.
    PROGRESS = 'progress'
    #: Its source is lost for good.
    SOURCE = 'source'
    #: Its metadata has failed; it needs an operator.
    METADATA = 'metadata'
    #: The database has no row of it; it needs an operator.
    ROW = 'row'
    #: Its destination is being removed.
    REMOVAL = 'removal'
    #: Its node has not reported: only the database is known.
    REPORT = 'report'


@dataclasses.dataclass(frozen=True)
class Move:
    """A move that the reporting node takes part in, not as the source.

    :ivar volume: id of the user's volume; empty if unknown
    :ivar placeholder: id of the placeholder, which is the name id of the
        destination
    :ivar source: backend, ``node@backend``, that has the source; empty if
        unknown
    :ivar destination: backend that has the destination
    :ivar snapshot: id of the snapshot that is the source; empty if that is a
        former home
    :ivar state: a word of :class:`MoveState`
    :ivar waits: a word of :class:`Wait`
    :ivar hydrated: number of regions; None, as the next four, if the
        reporting node has no clone
    :ivar total: number of regions
    :ivar copied: bytes
    :ivar size: bytes of the clone
    :ivar progress: seconds since a region was last copied
    :ivar rate: bytes per second; None if it is not measured yet
    """

    volume: str
    placeholder: str
    source: str
    destination: str
    role: str
    state: str
    waits: str = Wait.NOTHING
    snapshot: str = ''
    hydrated: int | None = None
    total: int | None = None
    copied: int | None = None
    size: int | None = None
    progress: float | None = None
    rate: float | None = None


#: The state of a released source that clones still read.
NEEDED = 'needed'


@dataclasses.dataclass(frozen=True)
class Source:
    """A source that the reporting node keeps.

    :ivar placeholder: id of the row that stands for it
    :ivar name_id: of its logical volume
    :ivar volume: id of the user's volume
    :ivar reader: backend that is the volume's home; empty if unknown
    :ivar state: of its placeholder: switched, released or lost; or "needed",
        if it is released, but hydrates, as clones read it
    :ivar size: bytes
    :ivar snapshot: id of the snapshot that is the source, or empty
    """

    placeholder: str
    name_id: str
    volume: str
    reader: str
    state: str
    size: int
    snapshot: str = ''


@dataclasses.dataclass(frozen=True)
class LeftBehind:
    """A logical volume that holds space for a volume on another node.

    :ivar what: a noun
    :ivar volume: id of the volume
    :ivar logical_volume: ``group/name``
    :ivar size: bytes that it takes, see left_behind
    """

    what: str
    volume: str
    logical_volume: str
    size: int


@dataclasses.dataclass(frozen=True)
class Remote:
    """A volume that a node without room for it uses over iSCSI.

    :ivar volume: id of the volume, whose home reports it
    :ivar node: where its guest is
    :ivar room: whether there is room now; None if that node does not answer
    """

    volume: str
    node: str
    room: bool | None


@dataclasses.dataclass(frozen=True)
class Report:
    """What a backend says about itself.

    :ivar backend: ``node@backend``
    :ivar version: of the driver
    :ivar database: whether the database could be read; without it, volumes
        is None, and there are only the moves whose clones are here
    :ivar looked: seconds since the clones were last looked at; None if they
        were not yet
    :ivar volumes: number of volumes whose home this is
    :ivar free: bytes of the volume group, or of the pool of thin volumes, at
        most a minute old
    :ivar total: bytes
    :ivar pool_metadata: percentage of the metadata of that pool that is used,
        as old as free; None if that is not known, as of one that is not
        active
    :ivar metadata: kind of the metadata store
    :ivar persistent: whether the metadata outlives a power failure
    :ivar listed: seconds since left_behind was listed; None if it was not yet
    :ivar jobs: {name of a kind: [text of an object]}
    :ivar remotes: as they were found some minutes ago
    """

    backend: str
    version: str
    database: bool
    looked: float | None
    volumes: int | None
    free: int
    total: int
    metadata: str
    persistent: bool
    listed: float | None = None
    moves: tuple[Move, ...] = ()
    sources: tuple[Source, ...] = ()
    left_behind: tuple[LeftBehind, ...] = ()
    jobs: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    remotes: tuple[Remote, ...] = ()
    pool_metadata: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for a message or a document."""
        return dataclasses.asdict(self)

    @classmethod
    def parse(cls, plain: dict[str, Any]) -> 'Report':
        """Return the report of what :meth:`as_dict` has returned.

        Fields that a newer version has added are left out.
        """
        return _known(cls, dict(plain, **{
            name: tuple(_known(kind, each) for each in plain.get(name, ()))
            for name, kind in _PARTS.items()}))


_PARTS: dict[str, type] = {'moves': Move, 'sources': Source,
                           'left_behind': LeftBehind, 'remotes': Remote}


def _known(kind: Any, plain: collections.abc.Mapping[str, Any]) -> Any:
    """Return a value from those fields that this version knows."""
    fields = {each.name for each in dataclasses.fields(kind)}
    return kind(**{name: plain[name] for name in fields & plain.keys()})
