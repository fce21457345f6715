# SPDX-License-Identifier: Apache-2.0
"""Placeholders as values: the row that stands for a source or destination.

Until the switchover a placeholder stands for the destination of a move, and
afterwards for the source. That of a follower stands for the copy of a snapshot
on another node, where the snapshot is from then on. See :mod:`records` for the
transactions.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses
import enum
import json
import uuid

from cinder import objects
from cinder.volume import volume_utils

from dmclone_driver.releases import models

#: The migration status of a volume which Cinder creates to copy another
#: volume to it.
COPY_STATUS = 'target:'


class State(enum.StrEnum):
    """The state of a placeholder's move."""

    #: The destination is built, or will be.
    PREPARED = 'prepared'
    #: The destination is the volume's home, which needs the source.
    SWITCHED = 'switched'
    #: The destination has to be deleted.
    ABORTED = 'aborted'
    #: The source is not needed and has to be deleted.
    RELEASED = 'released'
    #: The source's node is lost, but the volume still needs the source.
    LOST = 'lost'
    #: A snapshot is copied to this follower.
    FOLLOWING = 'following'
    #: The follower is the snapshot.
    FOLLOWED = 'followed'
    #: A new logical volume is built from a snapshot, for a revert to that.
    REVERTING = 'reverting'


#: The states in which a placeholder stands for a source.
OF_SOURCES = (State.SWITCHED, State.RELEASED, State.LOST)
#: The states in which a placeholder stands for a follower.
OF_FOLLOWERS = (State.FOLLOWING, State.FOLLOWED)


@dataclasses.dataclass(frozen=True)
class Record:
    """The data that a placeholder keeps about its move."""

    state: State
    #: Id of the user's volume; of a follower, and of its source, that of the
    #: follower's placeholder.
    volume: str
    #: iSCSI name of the node that imports the source; empty if it is the
    #: node of the source.
    initiator: str
    #: The importing host's name in its attachments: nova's, which need not
    #: be the one in the placeholder's host. Empty if the move is a migration
    #: by Cinder's API or a command, of a volume without attachments.
    node: str

    @property
    def migration(self) -> bool:
        """Whether the move is a migration by Cinder's API or a command."""
        return not self.node

    @classmethod
    def parse(cls, text: str) -> Record:
        """Return the record of a text that :meth:`text` has returned."""
        fields = json.loads(text)
        return cls(**dict(fields, state=State(fields['state'])))

    def text(self) -> str:
        """Return the text that the database keeps (255 characters)."""
        return json.dumps(dataclasses.asdict(self), separators=(',', ':'))

    def but(self, state: State) -> Record:
        """Return the same record in another state."""
        return dataclasses.replace(self, state=state)


def derived_id(placeholder_id: str, what: str) -> str:
    """Return an id that follows from that of a placeholder.

    :param what: 'reader', the row of a snapshot that its clone is to read
        from instead; 'snapshot', the name id of that source; 'clone', of a
        revert, the name id of the new logical volume; 'deleted', the row of
        the logical volume with this id, whose volume is deleted
    """
    return str(uuid.uuid5(uuid.NAMESPACE_OID, what + placeholder_id))


def id_of_deleted(name_id: str) -> str:
    """Return the id of the row of a logical volume whose volume is deleted."""
    return derived_id(name_id, 'deleted')


def is_copy(row: objects.Volume | models.Volume) -> bool:
    """Whether Cinder copies another volume to this one.

    Its row begins as a copy of the other one's, including the fields that
    this driver has written (VolumeManager._migrate_volume_generic in
    cinder/volume/manager.py).
    """
    return (row.migration_status or '').startswith(COPY_STATUS)


def is_placeholder(row: objects.Volume | models.Volume) -> bool:
    """Whether a volume row stands for a source or a destination."""
    return ((row.replication_driver_data or '').startswith('{') and
            not is_copy(row))


def record_of(row: objects.Volume | models.Volume) -> Record | None:
    """Return the record of a placeholder, None for other rows."""
    return (Record.parse(row.replication_driver_data) if is_placeholder(row)
            else None)


def state_of(row: objects.Volume | models.Volume | None) -> State | None:
    """Return the state of a placeholder's move, None for other rows."""
    found = row and record_of(row)
    return found.state if found else None


class Placeholder:
    """A volume object that is a placeholder, with what its fields mean.

    It has the attributes of the row that are read in both kinds of rows.
    """

    def __init__(self, row: objects.Volume) -> None:
        self.row = row

    @property
    def id(self) -> str:
        """Its id: also the name id of the destination."""
        return self.row.id

    @property
    def name_id(self) -> str:
        """The name id of the logical volume that it stands for."""
        return self.row.name_id

    @property
    def host(self) -> str:
        """The host that the row shows: ``node@backend#pool``."""
        return self.row.host

    @property
    def backend(self) -> str:
        """The backend of its logical volume: ``node@backend``.

        Cinder's commands change the host, but not this driver's own field.
        """
        host = self.row.provider_id or self.row.host
        return volume_utils.extract_host(host) if host else ''

    @property
    def provider_location(self) -> str | None:
        """Where a source is exported, as Cinder's target drivers write it."""
        return self.row.provider_location

    @property
    def provider_auth(self) -> str | None:
        """How to log in to the export of a source."""
        return self.row.provider_auth

    @property
    def record(self) -> Record:
        """The :class:`Record` of its move."""
        return Record.parse(self.row.replication_driver_data)

    @property
    def state(self) -> State:
        """The :class:`State` of its move."""
        return self.record.state

    @property
    def volume_id(self) -> str:
        """Id of the user's volume."""
        return self.record.volume

    @property
    def snapshot_id(self) -> str | None:
        """Id of the snapshot that is the source or the follower, or None."""
        return self.row.snapshot_id

    @property
    def initiator(self) -> str:
        """iSCSI name of the node that imports the source."""
        return self.record.initiator

    @property
    def node(self) -> str:
        """The importing host's name in its attachments."""
        return self.record.node

    @property
    def of_deleted(self) -> bool:
        """Whether it stands for the logical volume of a deleted volume."""
        return self.id == id_of_deleted(self.name_id)

    def refresh(self) -> None:
        """Read the row again."""
        self.row.refresh()
