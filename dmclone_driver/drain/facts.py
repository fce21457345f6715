# SPDX-License-Identifier: Apache-2.0
"""What a drain knows of the volumes on a node, and of other nodes, as values.

Sizes are in GiB. A node has the name that its cinder-volume has.
"""

import collections.abc
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An attachment record of a volume."""

    id: str
    #: Id of the instance; None if a host itself uses the volume.
    server: str | None
    #: As Nova names it; None while the request is in progress.
    host: str | None
    #: That host's node; None if it has no backend of the volume's name.
    node: str | None


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A snapshot on the node."""

    id: str
    volume: str
    size: int
    status: str = 'available'
    #: The node of its volume; None if that is the same one.
    home: str | None = None
    #: The node where it will be as soon as its copy there is complete.
    copied_to: str | None = None


@dataclasses.dataclass(frozen=True)
class Volume:
    """A user's volume, as the database shows it."""

    id: str
    size: int
    status: str = 'available'
    migration_status: str | None = None
    zone: str | None = None
    #: Extra specs of its type.
    extra_specs: collections.abc.Mapping[str, str] = dataclasses.field(
        default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    #: Id of its generic volume group.
    group: str | None = None
    #: The node to which a move is prepared.
    moves_to: str | None = None
    #: The host of a source that it still needs, but which is lost.
    lost: str | None = None
    #: The host that has its data, if a program has changed its row.
    really_on: str | None = None
    #: Whether one of Cinder's tasks uses it over iSCSI.
    exported: bool = False
    #: Those that are to follow it.
    snapshots: tuple[Snapshot, ...] = ()

    @property
    def needed(self) -> int:
        """The space that it takes where it goes, with its snapshots."""
        return self.size + sum(each.size for each in self.snapshots)


@dataclasses.dataclass(frozen=True)
class Server:
    """An instance, as Nova shows it to an administrator."""

    id: str
    #: The host that it is on, None if on none.
    host: str | None
    status: str = 'ACTIVE'
    task: str | None = None


@dataclasses.dataclass(frozen=True)
class Place:
    """A node to which volumes may go."""

    node: str
    zone: str | None
    #: Free space, less ``reserved_percentage``.
    free: float
    #: The driver's own capabilities there.
    capabilities: collections.abc.Mapping[str, Any] = dataclasses.field(
        default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy on the node of which a placeholder is the row.

    It is the source of a volume that hydrates, or it is to be deleted.
    """

    id: str
    #: Id of the user's volume.
    volume: str
    #: The backend of the volume, ``node@backend``, that reads it; None if
    #: nothing needs it, so that the node deletes it.
    reader: str | None
    #: Id of the snapshot of which the reader is the copy on its new node.
    snapshot: str | None = None


@dataclasses.dataclass(frozen=True)
class Picture:
    """The node at one moment."""

    node: str
    volumes: tuple[Volume, ...] = ()
    #: {id: an instance that has one of the volumes}
    servers: collections.abc.Mapping[str, Server] = dataclasses.field(
        default_factory=dict)
    #: Why Nova was not, or could not be, asked.
    nova_trouble: str | None = None
    #: Ids of volumes with a prepared move to the node.
    arriving: tuple[str, ...] = ()
    #: Ids of snapshots that are being copied to the node.
    following: tuple[str, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    copies: tuple[Copy, ...] = ()
    #: Whether snapshots follow their volumes.
    with_snapshots: bool = False
