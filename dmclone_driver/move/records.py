# SPDX-License-Identifier: Apache-2.0
"""The transactions on the rows of a volume that moves.

The database is the arbiter between nodes. Each function is one transaction
that locks both rows and can be repeated. It changes nothing if the rows are
not as expected.

A *placeholder* is a second volume row, hidden from users. Until the switchover
it stands for the destination. The switchover exchanges the fields of the two
rows that describe the backend. From then on the placeholder stands for the
source. Its id is the name of the destination's logical volume, so the row X
points to the source of the clone X. :mod:`lookups` finds rows, and
:mod:`row_fields` has the fields that are written.

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

from cinder import context as cinder_context
from cinder import objects
from oslo_log import log as logging
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import deletion_records
from dmclone_driver.move import events
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import transactions
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from dmclone_driver import steps
from dmclone_driver.steps import Step

#: The migration statuses of a volume that may be migrated
#: (AVAILABLE_MIGRATION_STATUS in cinder/volume/api.py).
MAY_MIGRATE = (None, 'deleting', 'error', 'success')


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
    if node and row.migration_status in lookups.MIGRATES:
        # The end of the migration saves the host that Cinder has chosen.
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('it is being migrated; wait for that to end (if it was '
                     'interrupted, an administrator has to reset its '
                     'migration status)'))
    if not node and volume.migration_status not in lookups.MIGRATES:
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
    if len(prepared.text()) > row_fields.RECORD_LENGTH:
        raise exception.MoveRefused(
            volume=volume.id, host=peer.host,
            reason=_('the names of that node (%(node)s) and of its iSCSI '
                     'initiator (%(initiator)s) are too long together; ask '
                     'the operator to shorten one') % {
                         'node': node, 'initiator': initiator})
    deletion_records.withdraw_locked(session, row)
    session.add(models.Volume(
        id=placeholder_id, host=peer.host, service_uuid=peer.service_uuid,
        availability_zone=peer.availability_zone, provider_id=peer.host,
        **row_fields.of_placeholder(row, prepared)))
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
    deletion_records.withdraw_locked(session, volume)
    row.update(dict(
        row_fields.of_placeholder(volume, placeholders.Record(
            State.SWITCHED, volume.id, initiator, node)),
        deleted=False, deleted_at=None))
    for field in row_fields.EXCHANGED:
        setattr(row, field, getattr(volume, field))
        setattr(volume, field, getattr(peer, field, None))
    row._name_id = row._name_id or volume.id
    row.provider_id = row.host
    volume._name_id, volume.provider_id = name_id, peer.host
    volume.replication_driver_data = None
    return True


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
    row_fields.exchange(volume, placeholder)
    volume.replication_driver_data = None
    snapshot_rows.stay(session, volume_id, placeholder.host)
    _end_migration(volume, placeholder, 'success')
    row_fields.set_state(placeholder, State.SWITCHED)
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
    abort_locked(session, volume, placeholder, placeholder_id)
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
    if not found.migration or volume.migration_status not in lookups.MIGRATES:
        return
    volume.migration_status = status
    if volume.status in ('retyping', 'maintenance'):
        volume.status = volume.previous_status


def abort_locked(session: orm.Session, volume: models.Volume | None,
                 placeholder: models.Volume | None,
                 placeholder_id: str | None = None) -> None:
    if placeholder is not None:
        placeholder_id = placeholder.id
        row_fields.set_state(placeholder, State.ABORTED)
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
    row_fields.set_state(placeholder, State.RELEASED)
    return True


@transactions.transaction()
def lose(session: orm.Session, placeholder_id: str) -> bool:
    """Record that the node of a source is lost.

    :returns: False if the source is not needed, or gone
    """
    placeholder, = transactions.lock(session, placeholder_id)
    if placeholder is None or placeholders.state_of(placeholder) not in (
            State.SWITCHED, State.LOST):
        return False
    row_fields.set_state(placeholder, State.LOST)
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
