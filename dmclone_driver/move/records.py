# SPDX-License-Identifier: Apache-2.0
"""The rows of volumes and placeholders, and the transactions on them.

The database is the arbiter between nodes. Each function is one transaction
that locks both rows and can be repeated. It changes nothing if the rows are
not as expected.

A *placeholder* is a second volume row, hidden from users. Until the switchover
it stands for the destination. The switchover exchanges the fields of the two
rows that describe the backend. From then on the placeholder stands for the
source. Its id is the name of the destination's logical volume, so the row X
points to the source of the clone X.

While a move is prepared, the volume's ``replication_driver_data`` holds
the placeholder's id, which is the lock between hosts. A driver without
replication has no other use for this field. In a placeholder it holds the
record of its move, see :mod:`placeholders`, and nothing else makes a row a
placeholder: no command of Cinder's changes this field.

``provider_id`` is the host, with its pool, that has the logical volume. Only
this driver writes it, so it shows when something else has changed ``host``.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses
from typing import Any

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import timeutils
import sqlalchemy
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import events
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import transactions
from dmclone_driver.node import names
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from dmclone_driver import steps
from dmclone_driver.steps import Step

# Fields that belong to the logical volume, not to the user.
EXCHANGED = ('_name_id', 'host', 'cluster_name', 'availability_zone',
             'service_uuid', 'provider_id', 'provider_location',
             'provider_auth', 'provider_geometry')

#: The maximum length of a record, in characters.
RECORD_LENGTH = models.Volume.replication_driver_data.type.length

#: The migration statuses of a volume that Cinder migrates.
MIGRATES = ('starting', 'migrating', 'completing')

#: The migration statuses of a volume that may be migrated
#: (AVAILABLE_MIGRATION_STATUS in cinder/volume/api.py).
MAY_MIGRATE = (None, 'deleting', 'error', 'success')

#: The migration status of a placeholder, before the volume's id. Cinder's API
#: refuses to change a volume with a migration status that it does not know
#: (AVAILABLE_MIGRATION_STATUS in cinder/volume/api.py). One that begins with
#: "target:" would let a deletion that the driver refuses destroy the row
#: (VolumeManager._clear_db in cinder/volume/manager.py).
MIGRATION_STATUS = 'dmclone:'
#: The project of placeholders, unless Cinder's internal one is configured: no
#: tenant sees them, and none is billed for them.
PROJECT = 'dmclone_driver'

CONF = cfg.CONF


def prepared_move(volume: objects.Volume) -> str | None:
    """Return the id of the placeholder of a prepared move, or None."""
    data = volume.replication_driver_data
    return None if not data or data.startswith('{') else data


def get(context: cinder_context.RequestContext,
        volume_id: str | None) -> objects.Volume | None:
    """Return a volume or placeholder, or None if it is gone.

    :raises: ReadLagsBehind if the row exists, but this read does not see it
    """
    try:
        row = objects.Volume.get_by_id(context.elevated(), volume_id)
        _remember(row)
        return row
    except cinder_exception.VolumeNotFound:
        if volume_id and _is_there(context, volume_id):
            raise exception.ReadLagsBehind(volume=volume_id)
        return None


def placeholder(context: cinder_context.RequestContext,
                row_id: str | None) -> Placeholder | None:
    """Return the :class:`Placeholder` with an id, or None."""
    row = get(context, row_id)
    return (Placeholder(row) if row is not None and
            placeholders.is_placeholder(row) else None)


def backend_of(row: objects.Volume) -> str:
    """Return the backend, ``node@backend``, that a row is on.

    For a placeholder, the driver's own field ``provider_id`` decides.
    """
    if placeholders.is_placeholder(row):
        return Placeholder(row).backend
    return volume_utils.extract_host(row.host) if row.host else ''


def recorded_backend(row: objects.Volume) -> str | None:
    """Return the backend that has a row's logical volume, None if unknown."""
    return row.provider_id and volume_utils.extract_host(row.provider_id)


def guarding_id(row: objects.Volume) -> str:
    """Return the id of the user's volume whose lock guards a row."""
    found = placeholders.record_of(row)
    return found.volume if found else row.id


def on_host(context: cinder_context.RequestContext,
            host: str) -> objects.VolumeList:
    """Return all rows, users' and placeholders, of a backend."""
    rows = objects.VolumeList.get_all_by_host(context.elevated(), host)
    for row in rows:
        _remember(row)
    return rows


def _remember(row: objects.Volume) -> None:
    """Remember which volume a row is about, for log lines."""
    volume_id = guarding_id(row)
    names.belongs_to(row.name_id, volume_id)
    if placeholders.is_placeholder(row):
        # The destination's logical volume is named after it.
        names.belongs_to(row.id, volume_id)


def source_row(context: cinder_context.RequestContext,
               name_id: str) -> objects.Volume | None:
    """Return the row of the source of a logical volume, None if complete.

    Before the switchover that is the user's volume, afterwards the
    placeholder.
    """
    found = placeholder(context, name_id)
    if found is None:
        return None
    if found.state == State.SWITCHED:
        return found.row
    if found.state == State.PREPARED:
        return get(context, found.volume_id)
    return None


def chain(context: cinder_context.RequestContext,
          source: Placeholder | None) -> list[Placeholder]:
    """Return the sources that a volume still needs, nearest first.

    A volume that moves before it is complete needs its old home, which needs
    the one before it, and so on: all of these nodes have to run. What a
    snapshot reads from is not in the rows.

    :param source: of its logical volume, or None
    """
    found: list[Placeholder] = []
    while (source is not None and
           source.state in (State.SWITCHED, State.LOST) and
           # Rows that were recreated by hand may be wrong.
           source.id not in [each.id for each in found]):
        found.append(source)
        source = (None if source.snapshot_id else
                  placeholder(context, source.name_id))
    return found


def owner_row(context: cinder_context.RequestContext,
              name_id: str) -> objects.Volume | None:
    """Return the row that a logical volume belongs to now, or None.

    After a move that is the volume of the placeholder with its id. Only if
    neither of the two has it, all rows are searched: no index has the column.
    """
    row = get(context, name_id)
    if row is not None and row.name_id != name_id and (
            placeholders.is_placeholder(row)):
        row = get(context, guarding_id(row))
    if row is not None and row.name_id == name_id:
        return row
    filters = {'_name_id': name_id}
    rows = objects.VolumeList.get_all(context.elevated(), filters=filters)
    return rows[0] if rows else None


def placeholders_of(context: cinder_context.RequestContext,
                    volume_ids: collections.abc.Container[str]
                    ) -> list[Placeholder]:
    """Return the placeholders of some volumes, with one query.

    :param volume_ids: of the users' volumes
    """
    return [each for each in all_placeholders(context)
            if each.volume_id in volume_ids]


def all_placeholders(
        context: cinder_context.RequestContext) -> list[Placeholder]:
    """Return the placeholders of all volumes, with one query."""
    rows = objects.VolumeList.get_all(
        context.elevated(), filters={'project_id': project()})
    return [Placeholder(row) for row in rows
            if placeholders.is_placeholder(row)]


@transactions.transaction()
def _is_there(session: orm.Session, row_id: str) -> bool:
    """Whether a row exists; a locking read never sees an old copy."""
    row, = transactions.lock(session, row_id)
    return row is not None


@transactions.transaction()
def has_moved(session: orm.Session, seen: objects.Volume) -> bool:
    """Whether a volume has another home than before, or is deleted.

    A locking read never sees an old copy.

    :param seen: the volume as it was read before
    """
    row, = transactions.lock(session, seen.id)
    return row is None or (row.host, row._name_id) != (
        seen.host, seen._name_id)


def _gone(volume_id: str, placeholder_id: str | None,
          reason: str) -> exception.MoveGone:
    return exception.MoveGone(volume=volume_id, reason=reason,
                              placeholder=placeholder_id)


def _prepared(session: orm.Session, volume_id: str,
              placeholder_id: str | None
              ) -> tuple[models.Volume, models.Volume]:
    volume, placeholder = transactions.lock(session, volume_id,
                                            placeholder_id)
    if volume is None or placeholder is None:
        raise _gone(volume_id, placeholder_id, _('it was deleted'))
    state = placeholders.state_of(placeholder)
    if (volume.replication_driver_data != placeholder_id or
            state != State.PREPARED):
        raise _gone(volume_id, placeholder_id, _('it is %s') % state)
    return volume, placeholder


@transactions.transaction(Step.BEGUN)
def begin(session: orm.Session, volume: objects.Volume, placeholder_id: str,
          peer: peers.Peer, initiator: str, node: str) -> None:
    """Record that a volume is being moved to a peer; exclude other moves.

    :param volume: the user's volume, freshly read by its home
    :param placeholder_id: id of the new placeholder
    :param initiator: the peer's iSCSI name
    :param node: the peer's name in connectors; empty for a migration by
        Cinder's API, or by an operator's command
    :raises: MoveRefused if the volume is not as it was read, or Cinder
        migrates it, or it is not available for a migration by a command
    """
    row, = transactions.lock(session, volume.id)
    if (row is None or row.replication_driver_data or
            row.host != volume.host or row._name_id != volume._name_id):
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('another request has just changed it; try again'))
    if node and row.migration_status in MIGRATES:
        # The end of the migration saves the host that Cinder has chosen.
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('it is being migrated; wait for that to end (if it was '
                     'interrupted, an administrator has to reset its '
                     'migration status)'))
    if not node and volume.migration_status not in MIGRATES:
        _begin_migration(row, peer)
    earlier = map(placeholders.record_of, session.query(
        models.Volume).filter_by(deleted=False, host=peer.host))
    if any(old and (old.state, old.volume) == (State.ABORTED, row.id)
           for old in earlier):
        # The session of the old move has the same source as the new one's
        # and would be taken for it.
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('the destination of an aborted move has to be removed '
                     'there first; try again when cinder-volume runs on '
                     'that node'))
    prepared = placeholders.Record(State.PREPARED, row.id, initiator, node)
    if len(prepared.text()) > RECORD_LENGTH:
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('the names of that node (%(node)s) and of its iSCSI '
                     'initiator (%(initiator)s) are too long together; ask '
                     'the operator to shorten one') % {
                         'node': node, 'initiator': initiator})
    _withdraw_deletion(session, row)
    session.add(models.Volume(
        id=placeholder_id, host=peer.host, service_uuid=peer.service_uuid,
        availability_zone=peer.availability_zone, provider_id=peer.host,
        **_placeholder_fields(row, prepared)))
    row.provider_id = row.host
    row.replication_driver_data = placeholder_id
    transactions.after_commit(session, events.tell, events.Event(
        events.Kind.START, row.id, placeholder_id, row.host, peer.host))


def _begin_migration(row: models.Volume, peer: peers.Peer) -> None:
    """Set what Cinder's API sets at the begin of a migration, if it may.

    It ends with the move: no other process has to reset the status.

    :raises: MoveRefused
    """
    if row.status != 'available' or row.migration_status not in MAY_MIGRATE:
        raise exception.MoveRefused(
            volume=row.id, host=peer.host,
            reason=_('its status is %(status)s, its migration status '
                     '%(migration)s; only available volumes are moved') % {
                         'status': row.status,
                         'migration': row.migration_status})
    row.previous_status, row.migration_status = row.status, 'migrating'


@transactions.transaction(Step.BEGUN)
def begin_copy(session: orm.Session, volume: objects.Volume,
               placeholder_id: str, source_id: str, snapshot_id: str,
               there: peers.Peer, initiator: str, node: str) -> None:
    """Record that a new volume is a clone whose source is a snapshot.

    :param volume: the new volume, freshly read
    :param placeholder_id: id of the source's new placeholder
    :param source_id: name id of the source
    :param there: the backend that has the snapshot
    :param initiator: iSCSI name of the volume's node; empty if the snapshot
        is on the same node
    :param node: the volume's node
    :raises: MoveGone if the volume is deleted meanwhile
    """
    row, = transactions.lock(session, volume.id)
    if row is None:
        raise _gone(volume.id, placeholder_id, _('it was deleted'))
    _add(session, there, row, placeholders.Record(
        State.SWITCHED, row.id, initiator, node), id=placeholder_id,
        _name_id=source_id, snapshot_id=snapshot_id)
    row._name_id = placeholder_id
    row.provider_id = row.host
    # Cinder copies the row of a volume that it clones for an image, with the
    # prepared move that this may have (_clone_image_volume in
    # cinder/volume/manager.py).
    row.replication_driver_data = None
    row.provider_location = row.provider_auth = None
    transactions.after_commit(session, events.tell, events.Event(
        events.Kind.START, row.id, placeholder_id, there.host, row.host,
        snapshot_id))


def _add(session: orm.Session, there: peers.Peer, volume: models.Volume,
         found: placeholders.Record, **fields: str | None) -> None:
    """Add a placeholder on a backend, for a volume."""
    session.add(models.Volume(
        host=there.host, provider_id=there.host,
        service_uuid=there.service_uuid,
        availability_zone=there.availability_zone,
        **_placeholder_fields(volume, found), **fields))


@transactions.transaction(Step.BEGUN)
def begin_follower(session: orm.Session, snapshot: objects.Snapshot,
                   follower_id: str, placeholder_id: str, source_id: str,
                   here: peers.Peer, there: peers.Peer,
                   initiator: str) -> bool:
    """Record that a snapshot is copied to another node, where it will stay.

    The follower has a row like a volume from the snapshot, but it is a
    placeholder, which no command of Cinder's changes.

    :param snapshot: freshly read
    :param follower_id: id of the follower's row
    :param placeholder_id: id of the source's placeholder
    :param source_id: name id of the source
    :param here: the backend of the follower
    :param there: the backend that has the snapshot
    :param initiator: iSCSI name of the follower's node
    :returns: False if it is copied to that node already
    :raises: SnapshotStays if it is copied to another one, or has changed
    """
    volume, = transactions.lock(session, snapshot.volume_id)
    for row in session.query(models.Volume).filter_by(
            deleted=False, snapshot_id=snapshot.id):
        if placeholders.state_of(row) == State.FOLLOWING:
            if row.provider_id == here.host:
                return False
            raise exception.SnapshotStays(
                snapshot=snapshot.id, host=here.host,
                reason=_('it is being copied to %s; wait for that to end')
                % row.provider_id)
    if volume is None or not snapshot_rows.is_as_read(session, snapshot):
        raise exception.SnapshotStays(
            snapshot=snapshot.id, host=here.host,
            reason=_('another request has just changed it; try again'))
    node = here.node
    _add(session, here, volume, placeholders.Record(
        State.FOLLOWING, follower_id, '', node), id=follower_id,
        _name_id=placeholder_id, snapshot_id=snapshot.id)
    _add(session, there, volume, placeholders.Record(
        State.SWITCHED, follower_id, initiator, node), id=placeholder_id,
        _name_id=source_id, snapshot_id=snapshot.id)
    return True


@transactions.transaction(Step.FOLLOWED)
def follow(session: orm.Session, follower_id: str) -> bool:
    """Make a complete follower the snapshot.

    :returns: False if the snapshot's deletion has begun
    """
    row, = transactions.lock(session, follower_id)
    if row is None or placeholders.state_of(row) != State.FOLLOWING:
        return placeholders.state_of(row) == State.FOLLOWED
    if not snapshot_rows.arrive(session, row.snapshot_id, row.provider_id):
        return False
    _set_state(row, State.FOLLOWED)
    return True


@transactions.transaction(Step.BEGUN)
def begin_revert(session: orm.Session, volume: objects.Volume,
                 revert_id: str, source_id: str, snapshot_id: str,
                 there: peers.Peer, initiator: str) -> None:
    """Record that a volume gets a new logical volume, copied from a snapshot.

    The new one has a placeholder until it takes the place of the old one, and
    the old one afterwards; see :func:`revert`.

    :param volume: freshly read
    :param revert_id: id of that placeholder, from which the name id follows
    :param source_id: name id of the source
    :param there: the backend that has the snapshot
    :param initiator: as in :func:`begin_copy`
    :raises: MoveGone if the volume is not as it was read
    """
    row, = transactions.lock(session, volume.id)
    if row is None or row.replication_driver_data or (
            row.host, row._name_id) != (volume.host, volume._name_id):
        raise _gone(volume.id, revert_id, _('the volume has just changed'))
    _withdraw_deletion(session, row)
    new = placeholders.derived_id(revert_id, 'clone')
    fields = {field: getattr(row, field) for field in EXCHANGED}
    fields.update(_name_id=new, provider_id=row.host, provider_location=None,
                  provider_auth=None)
    session.add(models.Volume(id=revert_id, **fields, **_placeholder_fields(
        row, placeholders.Record(State.REVERTING, row.id, '', ''))))
    _add(session, there, row, placeholders.Record(
        State.SWITCHED, row.id, initiator, ''), id=new, _name_id=source_id,
        snapshot_id=snapshot_id)
    transactions.after_commit(session, events.tell, events.Event(
        events.Kind.START, row.id, new, there.host, row.host, snapshot_id))


@transactions.transaction(Step.REVERTED)
def revert(session: orm.Session, seen: objects.Volume,
           revert_id: str) -> bool:
    """Exchange a volume's logical volume for the new one; release the old.

    :param seen: the volume as it was read before
    :returns: False if a row is not as expected
    """
    volume, other = transactions.lock(session, seen.id, revert_id)
    if (volume is None or other is None or volume.replication_driver_data or
            (volume.host, volume._name_id) != (seen.host, seen._name_id) or
            placeholders.state_of(other) != State.REVERTING):
        return False
    _exchange(volume, other)
    _set_state(other, State.RELEASED)
    transactions.log_after_commit(
        session, logging.INFO, 'Volume %(volume)s is reverted: it is in '
        'logical volume %(new)s now, and the old one, %(old)s, is deleted '
        'when no snapshot needs it.',
        {'volume': volume.id, 'new': volume._name_id, 'old': other._name_id})
    return True


@transactions.transaction()
def give_up_revert(session: orm.Session, revert_id: str) -> bool:
    """Make sure that a new logical volume never takes the old one's place.

    It is released, so that it will be deleted like any source.

    :returns: False if it has done so, or was given up before
    """
    row, = transactions.lock(session, revert_id)
    if row is None or placeholders.state_of(row) != State.REVERTING:
        return False
    _set_state(row, State.RELEASED)
    return True


def _exchange(volume: models.Volume, placeholder: models.Volume) -> None:
    """Exchange the fields that belong to the logical volumes of two rows."""
    for field in EXCHANGED:
        mine, other = getattr(volume, field), getattr(placeholder, field)
        if field == '_name_id':
            mine, other = mine or volume.id, other or placeholder.id
        setattr(volume, field, other)
        setattr(placeholder, field, mine)


@transactions.transaction()
def begin_bypass(session: orm.Session, placeholder_id: str, below_id: str,
                 local: bool) -> bool:
    """Record that a clone will read from a snapshot instead of its source.

    :param placeholder_id: of the source, which reads from that snapshot and
        was never written
    :param below_id: of the source's own source
    :param local: whether the snapshot is on the node of the clone
    :returns: False if a row is not as expected
    """
    source, below = transactions.lock(session, placeholder_id, below_id)
    reader_id = placeholders.derived_id(placeholder_id, 'reader')
    if (source is None or below is None or
            placeholders.state_of(source) != State.SWITCHED or
            placeholders.state_of(below) != State.SWITCHED or
            source.snapshot_id or not below.snapshot_id or
            source._name_id != below.id or
            # Deleted or not: a row was recreated by hand.
            session.query(models.Volume).filter_by(id=reader_id).first()):
        return False
    found = placeholders.Record.parse(source.replication_driver_data)
    if local:
        found = dataclasses.replace(found, initiator='')
    fields = {field: getattr(below, field) for field in EXCHANGED}
    # It is still to be exported to this reader.
    fields.update(
        _name_id=placeholders.derived_id(placeholder_id, 'snapshot'),
        provider_location=None, provider_auth=None)
    session.add(models.Volume(**dict(
        _placeholder_fields(source, found), id=reader_id,
        snapshot_id=below.snapshot_id, display_name=source.display_name,
        **fields)))
    return True


@transactions.transaction()
def bypass(session: orm.Session, placeholder_id: str) -> bool:
    """Make a snapshot the source of a clone that reads from it by now.

    The row of the reader stands for the former source from then on, which is
    released.

    :param placeholder_id: of the source
    :returns: False if a row is not as expected
    """
    source, reader = transactions.lock(
        session, placeholder_id,
        placeholders.derived_id(placeholder_id, 'reader'))
    if (source is None or reader is None or source.snapshot_id or
            placeholders.state_of(source) != State.SWITCHED or
            placeholders.state_of(reader) != State.SWITCHED):
        return False
    for field in (*EXCHANGED, 'snapshot_id', 'replication_driver_data'):
        mine, other = getattr(source, field), getattr(reader, field)
        setattr(source, field, other)
        setattr(reader, field, mine)
    _set_state(reader, State.RELEASED)
    transactions.log_after_commit(
        session, logging.INFO, '%(volume)s reads from snapshot %(snapshot)s '
        'on %(host)s: its source on %(old)s was never written.',
        {'volume': source.display_name, 'snapshot': source.snapshot_id,
         'host': source.host, 'old': reader.host})
    return True


def reader(context: cinder_context.RequestContext,
           source_id: str) -> Placeholder | None:
    """Return the row of :func:`begin_bypass`, None if there is none.

    After :func:`bypass` it stands for the former source.

    :param source_id: id of the placeholder of the source
    """
    reader_id = placeholders.derived_id(source_id, 'reader')
    # Nearly always it is not there.
    return (placeholder(context, reader_id)
            if _is_there(context, reader_id) else None)


@transactions.transaction()
def go_back(session: orm.Session, follower_id: str, source_id: str) -> bool:
    """Have a snapshot be its old copy again, as its newer node is lost.

    :param source_id: placeholder of a source that is the old copy: that is
        not deleted before its row is
    :returns: False if the row is gone, or the snapshot is on another node
    """
    row, source = transactions.lock(session, follower_id, source_id)
    if row is None or source is None or (
            placeholders.state_of(row) != State.FOLLOWED or
            not _has_old_copy(source)):
        return False
    if not snapshot_rows.go_back(session, row.snapshot_id, row.provider_id,
                                 source.provider_id):
        return False
    _set_state(row, State.FOLLOWING)
    return True


def _has_old_copy(row: models.Volume | None) -> bool:
    """Whether a placeholder's node has its source."""
    return placeholders.state_of(row) in (State.SWITCHED, State.RELEASED)


@transactions.transaction()
def is_read(session: orm.Session, snapshot_id: str, host: str) -> bool:
    """Whether a snapshot is a source on a backend, by the database.

    :param host: ``node@backend``
    """
    # Rows are locked by their ids alone: others would be locked, too.
    ids = [row_id for row_id, there in session.query(
        models.Volume.id, models.Volume.provider_id).filter_by(
            deleted=False, snapshot_id=snapshot_id)
        if there and volume_utils.extract_host(there) == host]
    return any(_has_old_copy(row) for row in transactions.lock(
        session, *ids)) if ids else False


def follower(context: cinder_context.RequestContext,
             name_id: str) -> objects.Volume | None:
    """Return the row of a follower, None for other logical volumes.

    :raises: ReadLagsBehind
    """
    found = placeholder(context, name_id)
    # A query for its name would not say whether the read lags behind.
    row = (owner_row(context, name_id) if found is None else
           get(context, found.volume_id))
    return (row if row is not None and
            placeholders.state_of(row) in placeholders.OF_FOLLOWERS else None)


@transactions.transaction()
def follower_state(session: orm.Session, follower_id: str) -> State | None:
    """Return the state of a follower; None if it is gone, or is none.

    A locking read never sees an old copy.
    """
    row, = transactions.lock(session, follower_id)
    state = placeholders.state_of(row)
    return state if state in placeholders.OF_FOLLOWERS else None


def _placeholder_fields(volume: models.Volume,
                        found: placeholders.Record) -> dict[str, Any]:
    """Return a placeholder's fields, except those about its backend."""
    return dict(
        _owner(), **_columns(found), size=volume.size,
        attach_status='detached', use_quota=False, multiattach=False,
        volume_type_id=volume.volume_type_id,
        display_name='dmclone move of %s' % volume.id,
        replication_driver_data=found.text())


@transactions.transaction(Step.SWITCHED)
def restore(session: orm.Session, seen: objects.Volume, name_id: str,
            peer: peers.Peer, initiator: str, node: str) -> bool:
    """Repeat a switchover that the database has lost.

    :param seen: the volume as it was read before
    :param name_id: of the logical volume that is its home
    :param peer: that has it
    :param initiator: the peer's iSCSI name
    :param node: the peer's name in connectors
    :returns: False if a row has changed, or stands for another move
    """
    volume, = transactions.lock(session, seen.id)
    # Its placeholder may have been deleted.
    row = session.query(models.Volume).filter_by(
        id=name_id).with_for_update().first()
    if volume is None or (
            volume.host, volume._name_id, volume.replication_driver_data) != (
            seen.host, seen._name_id, seen.replication_driver_data) or (
            volume.replication_driver_data not in (None, name_id)):
        return False
    if row is None:
        row = models.Volume(id=name_id)
        session.add(row)
    elif not row.deleted and placeholders.state_of(row) not in (
            State.PREPARED, State.ABORTED):
        return False
    _withdraw_deletion(session, volume)
    row.update(dict(
        _placeholder_fields(volume, placeholders.Record(
            State.SWITCHED, volume.id, initiator, node)),
        deleted=False, deleted_at=None))
    for field in EXCHANGED:
        setattr(row, field, getattr(volume, field))
        setattr(volume, field, getattr(peer, field, None))
    row._name_id = row._name_id or volume.id
    row.provider_id = row.host
    volume._name_id, volume.provider_id = name_id, peer.host
    volume.replication_driver_data = None
    return True


def project() -> str:
    """Return the project of placeholders."""
    return CONF.cinder_internal_tenant_project_id or PROJECT


def _owner() -> dict[str, str]:
    """Return the user and project of placeholders."""
    return {'user_id': CONF.cinder_internal_tenant_user_id or PROJECT,
            'project_id': project()}


def _columns(found: placeholders.Record) -> dict[str, str]:
    """Return the status fields of a placeholder with a record."""
    return {'status': 'maintenance',
            'migration_status': MIGRATION_STATUS + found.volume}


def is_on(host: str) -> sqlalchemy.ColumnElement[bool]:
    """Return the condition that a row's host is a backend or its pool.

    An operator's command may write a host without the pool.
    """
    column = models.Volume.host
    return sqlalchemy.or_(column == host,
                          column.startswith(host + '#', autoescape=True))


def altered(context: cinder_context.RequestContext, host: str) -> list[str]:
    """Return the ids of rows of a backend that Cinder's commands changed.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return [row_id for row_id, in context.session.query(
            volume.id).filter_by(deleted=False).filter(
                is_on(host),
                volume.migration_status.is_(None) |
                ~volume.migration_status.startswith(placeholders.COPY_STATUS),
                sqlalchemy.or_(
                    volume.provider_id != volume.host,
                    volume.replication_driver_data.startswith('{') & (
                        (volume.status != 'maintenance') |
                        volume.migration_status.is_(None) |
                        ~volume.migration_status.startswith(
                            MIGRATION_STATUS))))]


def prepared_on(context: cinder_context.RequestContext,
                host: str) -> dict[str, str]:
    """Return the moves that are prepared from a backend.

    :param host: ``node@backend``
    :returns: {volume id: placeholder id}
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return dict(context.session.query(
            volume.id, volume.replication_driver_data).filter_by(
                deleted=False).filter(
                is_on(host), volume.replication_driver_data != '',
                ~volume.replication_driver_data.startswith('{')).all())


def exported_on(context: cinder_context.RequestContext,
                host: str) -> list[str]:
    """Return the ids of a backend's volumes that are exported for a use.

    Not of those that move.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return [row_id for row_id, in context.session.query(
            volume.id).filter_by(deleted=False).filter(
            is_on(host), volume.provider_location.is_not(None),
            volume.provider_location != '',
            volume.replication_driver_data.is_(None) |
            (volume.replication_driver_data == ''))]


def is_being_made(context: cinder_context.RequestContext,
                  volume_id: str) -> bool:
    """Whether a volume is being created or filled with an image.

    During that time Cinder saves its row repeatedly
    (cinder/volume/flows/manager/create_volume.py).
    """
    return any(worker.status in ('creating', 'downloading')
               for worker in db_api.worker_get_all(
                   context.elevated(), resource_type='Volume',
                   resource_id=volume_id))


def is_altered(row: objects.Volume) -> bool:
    """Whether something else has changed fields that the driver wrote."""
    found = placeholders.record_of(row)
    return not placeholders.is_copy(row) and (
        row.host != row.provider_id or found is not None and any(
            getattr(row, column) != value
            for column, value in _columns(found).items()))


@transactions.transaction()
def put_back(session: orm.Session, seen: objects.Volume) -> None:
    """Revert changes to a row by something other than this driver.

    For a placeholder these are its status, migration status and host; for a
    volume, its host. A volume with a prepared move is on the node where the
    move has begun.

    :param seen: the row as it was read before; if it has changed since,
        nothing is changed
    """
    row, = transactions.lock(session, seen.id)
    if row is None or not row.provider_id or (
            row.host, row.provider_id) != (seen.host, seen.provider_id):
        return
    if row.host != row.provider_id:
        transactions.log_after_commit(
            session, logging.WARNING, 'Volume %(volume)s is put back to '
            '%(old)s: its host was changed to %(new)s, and its data is not '
            'there.',
            {'volume': row.id, 'old': row.provider_id, 'new': row.host})
        row.host, row.cluster_name = row.provider_id, None
    found = placeholders.record_of(row)
    if found is not None:
        for column, value in _columns(found).items():
            setattr(row, column, value)


@transactions.transaction()
def exchange_owners(session: orm.Session, volume: objects.Volume,
                    new: objects.Volume) -> None:
    """Assign placeholders to the other volume in Cinder's migration.

    The migration ends with an exchange of all fields of two volumes' rows. A
    prepared move of either volume is aborted.

    :param volume: the user's volume, freshly read
    :param new: the volume that Cinder has created, and Cinder or Nova filled
    """
    other = {volume.id: new.id, new.id: volume.id}
    for row in session.query(models.Volume).filter_by(deleted=False).filter(
            models.Volume.migration_status.in_(
                [MIGRATION_STATUS + each for each in other])).all():
        _exchange_owner(session, row, other)


def _exchange_owner(session: orm.Session, row: models.Volume,
                    other: dict[str, str]) -> None:
    found = placeholders.Record.parse(row.replication_driver_data)
    if found.state == State.PREPARED:
        _abort(session, *transactions.lock(session, found.volume, row.id))
    elif found.state != State.ABORTED:
        _set_owner(row, other[found.volume])


def _set_owner(placeholder: models.Volume, volume_id: str) -> None:
    found = placeholders.record_of(placeholder)
    # Callers know by now that the row is a placeholder.
    assert found is not None
    found = dataclasses.replace(found, volume=volume_id)
    placeholder.replication_driver_data = found.text()
    placeholder.migration_status = MIGRATION_STATUS + volume_id


def take_over(context: cinder_context.RequestContext,
              volume: objects.Volume) -> None:
    """Assign to a volume the sources that it needs, if they are another's.

    Like :func:`exchange_owners`, of a volume that Cinder has copied to a
    backend of another driver. That driver was called at the end, not this one
    (migrate_volume_completion in cinder/volume/manager.py).

    :param volume: the row that Cinder deletes, freshly read
    """
    first = placeholder(context, volume.name_id)
    if first is None:
        return
    sources = {first.id, *(each.id for each in chain(context, first))}
    _take_over(context, volume.id, [*sources, *(
        placeholders.derived_id(each, 'reader') for each in sources)])


@transactions.transaction()
def _take_over(session: orm.Session, volume_id: str, ids: list[str]) -> None:
    for row in transactions.lock(session, *ids):
        if placeholders.state_of(row) in placeholders.OF_SOURCES:
            _set_owner(row, volume_id)


@transactions.transaction()
def set_owner(session: orm.Session, seen: objects.Volume) -> None:
    """Record that a row's host has its logical volume.

    :param seen: its row as it was read before
    """
    row, = transactions.lock(session, seen.id)
    if row is not None and row.host == seen.host:
        row.provider_id = row.host


@transactions.transaction()
def check_prepared(session: orm.Session, volume_id: str,
                   placeholder_id: str) -> None:
    """Verify that a move is still prepared.

    :raises: MoveGone
    """
    _prepared(session, volume_id, placeholder_id)


@transactions.transaction()
def set_export(session: orm.Session, seen: objects.Volume,
               location: str | None, auth: str | None) -> None:
    """Record how a volume is exported on its node.

    :param seen: its row as it was read before; if the row points to another
        logical volume or move by now, nothing is changed
    """
    row, = transactions.lock(session, seen.id)
    if row is not None and (
            row._name_id, row.replication_driver_data) == (
            seen._name_id, seen.replication_driver_data):
        row.provider_location, row.provider_auth = location, auth


@transactions.transaction(Step.SWITCHED)
def switch_over(session: orm.Session, volume_id: str,
                placeholder_id: str | None) -> bool:
    """Make the destination the volume's home: exchange the rows' fields.

    :returns: False if it has been switched over before
    :raises: MoveGone if it was aborted
    """
    volume, placeholder = transactions.lock(session, volume_id,
                                            placeholder_id)
    if volume is not None and placeholder_id and (
            volume._name_id == placeholder_id):
        return False
    volume, placeholder = _prepared(session, volume_id, placeholder_id)
    _exchange(volume, placeholder)
    volume.replication_driver_data = None
    snapshot_rows.stay(session, volume_id, placeholder.host)
    _end_migration(volume, placeholder, 'success')
    _set_state(placeholder, State.SWITCHED)
    transactions.log_after_commit(
        session, logging.INFO, 'Volume %(volume)s is switched over to '
        '%(new)s; its source, logical volume %(name_id)s, is on %(old)s.',
        {'volume': volume_id, 'new': volume.host, 'old': placeholder.host,
         'name_id': placeholder._name_id})
    transactions.after_commit(session, events.tell, events.Event(
        events.Kind.SWITCHOVER, volume_id, placeholder.id, placeholder.host,
        volume.host))
    return True


@transactions.transaction(Step.ABORTED)
def abort(session: orm.Session, volume_id: str,
          placeholder_id: str) -> bool:
    """Make sure that a move will never switch over.

    :returns: False if it has been switched over before
    """
    volume, placeholder = transactions.lock(session, volume_id,
                                            placeholder_id)
    if placeholder is not None and (
            placeholders.state_of(placeholder) in placeholders.OF_SOURCES):
        return False
    _abort(session, volume, placeholder, placeholder_id)
    return True


def _end_migration(volume: models.Volume, placeholder: models.Volume,
                   status: str) -> None:
    """Set what Cinder sets after a migration by the driver.

    The process that Cinder runs it in may end before (migrate_volume in
    cinder/volume/manager.py).
    """
    found = placeholders.record_of(placeholder)
    # Callers know by now that the row is a placeholder.
    assert found is not None
    if not found.migration or volume.migration_status not in MIGRATES:
        return
    volume.migration_status = status
    if volume.status in ('retyping', 'maintenance'):
        volume.status = volume.previous_status


def _set_state(placeholder: models.Volume, state: State) -> None:
    found = placeholders.record_of(placeholder)
    # Callers know by now that the row is a placeholder.
    assert found is not None
    placeholder.replication_driver_data = found.but(state).text()


def _abort(session: orm.Session, volume: models.Volume | None,
           placeholder: models.Volume | None,
           placeholder_id: str | None = None) -> None:
    if placeholder is not None:
        placeholder_id = placeholder.id
        _set_state(placeholder, State.ABORTED)
    if (volume is None or placeholder_id is None or
            volume.replication_driver_data != placeholder_id):
        return
    if placeholder is not None:
        # The peer still has to end its session, when it runs again.
        placeholder.provider_location = volume.provider_location
        placeholder.provider_auth = volume.provider_auth
    volume.replication_driver_data = None
    volume.provider_location = volume.provider_auth = None
    if placeholder is not None:
        _end_migration(volume, placeholder, 'error')
    transactions.log_after_commit(
        session, logging.INFO, 'Move %(id)s of volume %(volume)s is aborted.',
        {'id': placeholder_id, 'volume': volume.id})
    transactions.after_commit(session, events.tell, events.Event(
        events.Kind.ABORT, volume.id, placeholder_id, volume.host,
        placeholder and placeholder.host))


@transactions.transaction(Step.RELEASED)
def release(session: orm.Session, placeholder_id: str) -> bool:
    """Record that a source is no longer needed.

    :returns: False if the placeholder is gone
    """
    placeholder, = transactions.lock(session, placeholder_id)
    if placeholder is None or placeholders.state_of(placeholder) not in (
            State.SWITCHED, State.RELEASED):
        return False
    _set_state(placeholder, State.RELEASED)
    return True


@transactions.transaction(Step.DEFERRED)
def begin_deletion(session: orm.Session, volume: objects.Volume) -> None:
    """Record that a logical volume outlives its volume, which is deleted.

    A placeholder stands for it, which is released: the logical volume is
    deleted when neither the volume's row nor a snapshot needs it. Can be
    repeated, also after it was withdrawn.

    :param volume: freshly read; a clone that other volumes are cloned from
    :raises: MoveGone if the volume is not as it was read
    """
    row, = transactions.lock(session, volume.id)
    row_id = placeholders.id_of_deleted(volume.name_id)
    if row is None or row.replication_driver_data or (
            row.host, row._name_id) != (volume.host, volume._name_id):
        raise _gone(volume.id, row_id, _('the volume has just changed'))
    found = session.query(models.Volume).filter_by(id=row_id).first()
    if found is None:
        found = models.Volume(id=row_id)
        session.add(found)
    fields = {field: getattr(row, field) for field in EXCHANGED}
    fields.update(_name_id=volume.name_id, provider_id=row.host,
                  provider_location=None, provider_auth=None)
    found.update(dict(
        _placeholder_fields(row, placeholders.Record(
            State.RELEASED, row.id, '', '')),
        deleted=False, deleted_at=None, **fields))


def is_being_deleted(volume: objects.Volume) -> bool:
    """Whether Cinder, or a repeated request, still has to delete a row.

    Those of a group have the status "deleted" for some time (delete_group in
    cinder/volume/manager.py).
    """
    return volume.status in ('deleting', 'error_deleting', 'deleted')


@transactions.transaction()
def withdraw_deletion(session: orm.Session, seen: objects.Volume) -> None:
    """Withdraw :func:`begin_deletion`, if a volume's has begun.

    :param seen: the volume as it was read before
    """
    row, = transactions.lock(session, seen.id)
    if row is not None:
        _withdraw_deletion(session, row)


def _withdraw_deletion(session: orm.Session, volume: models.Volume) -> None:
    """Delete the placeholder of :func:`begin_deletion`, if there is one.

    It may be there for some minutes after an operator has reset the state of
    the volume. What gives the volume another logical volume withdraws it in
    the same transaction: the former one may be needed, for instance as a
    source, when the volume is deleted later.
    """
    if volume._name_id in (None, volume.id):
        # A logical volume with its first name was never a clone.
        return
    # Not locked: an absent row would lock the gap for other new ones.
    found = session.query(models.Volume).filter_by(
        deleted=False, id=placeholders.id_of_deleted(
            volume._name_id)).first()
    if found is not None:
        # As volume_destroy in cinder/db/sqlalchemy/api.py.
        found.update(dict(status='deleted', deleted=True,
                          deleted_at=timeutils.utcnow(),
                          migration_status=None))


@transactions.transaction()
def lose(session: orm.Session, placeholder_id: str) -> bool:
    """Record that the node of a source is lost.

    :returns: False if the source is not needed, or gone
    """
    placeholder, = transactions.lock(session, placeholder_id)
    if placeholder is None or placeholders.state_of(placeholder) not in (
            State.SWITCHED, State.LOST):
        return False
    _set_state(placeholder, State.LOST)
    return True


@transactions.transaction()
def fail(session: orm.Session, volume_id: str) -> bool:
    """Set a volume that has lost data to error: it can't be attached then.

    A volume in use keeps its status: Cinder detaches no volume with another
    status (begin_detaching in cinder/volume/api.py).

    :returns: False if it has another status
    """
    volume, = transactions.lock(session, volume_id)
    if volume is None or volume.status != 'available':
        return False
    volume.status = 'error'
    return True


@transactions.transaction()
def give_up_home(session: orm.Session, seen: objects.Volume,
                 peer: peers.Peer) -> bool:
    """Assign a volume whose home is lost to a backend that can delete it.

    The row keeps the name of its logical volume, so that the backend has no
    data to delete.

    :param seen: the volume as it was read before
    :param peer: that backend, as a peer
    :returns: False if the volume has changed since
    """
    row, = transactions.lock(session, seen.id)
    if row is None or row.replication_driver_data or (
            row.host, row._name_id) != (seen.host, seen._name_id):
        return False
    snapshot_rows.fail_of(session, row.id, row.host)
    row.host = row.provider_id = peer.host
    row.cluster_name = None
    row.service_uuid = peer.service_uuid
    row.availability_zone = peer.availability_zone
    row.provider_location = row.provider_auth = row.provider_geometry = None
    row.status = 'error'
    # Cinder deletes no volume whose status says that it migrates.
    row.migration_status = row.migration_status and 'error'
    return True


def destroy(context: cinder_context.RequestContext,
            placeholder_id: str) -> None:
    """Delete a placeholder whose logical volume is gone."""
    db_api.volume_destroy(context.elevated(), placeholder_id)
    steps.reached(Step.GONE, placeholder_id)
