# SPDX-License-Identifier: Apache-2.0
"""Look up the rows of volumes and placeholders.

Nothing is changed here. What a read by itself may miss, because another
node's transaction has just ended, is read with a lock.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
import sqlalchemy
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import transactions
from dmclone_driver.node import names
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models

#: The statuses of a volume whose row Cinder has yet to delete. Those of a
#: group have the last for some time (delete_group in
#: cinder/volume/manager.py).
BEING_DELETED = ('deleting', 'error_deleting', 'deleted')
#: The migration statuses of a volume that Cinder migrates.
MIGRATES = ('starting', 'migrating', 'completing')


def unknown(placeholder_id: str) -> cinder_exception.VolumeDriverException:
    """Return the error of a request for a placeholder that has no row."""
    return cinder_exception.VolumeDriverException(message=_(
        'move %s is not in the database that this node reads')
        % placeholder_id)


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
        if volume_id and is_there(context, volume_id):
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


def on_host(context: cinder_context.RequestContext, host: str,
            attachments: bool = False) -> list[objects.Volume]:
    """Return all rows, users' and placeholders, of a backend.

    :param attachments: whether to load the attachments of all rows: one query
        for each of them (``VolumeAttachment._from_db_object`` in
        ``cinder/objects/volume_attachment.py``). Otherwise they are
        lazy-loaded
    """
    read = _with_attachments if attachments else _without_attachments
    rows = read(context.elevated(), host)
    for row in rows:
        _remember(row)
    return rows


def _with_attachments(context: cinder_context.RequestContext,
                      host: str) -> list[objects.Volume]:
    return list(objects.VolumeList.get_all_by_host(context, host))


def _without_attachments(context: cinder_context.RequestContext,
                         host: str) -> list[objects.Volume]:
    """Do what VolumeList.get_all_by_host does, with one query."""
    return [objects.Volume._from_db_object(
        context, objects.Volume(), row,
        expected_attrs=['metadata', 'admin_metadata', 'volume_type'])
        for row in db_api.volume_get_all_by_host(context, host)]


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
        context.elevated(), filters={'project_id': row_fields.project()})
    return [Placeholder(row) for row in rows
            if placeholders.is_placeholder(row)]


@transactions.transaction()
def is_there(session: orm.Session, row_id: str) -> bool:
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


def is_on(host: str) -> sqlalchemy.ColumnElement[bool]:
    """Return the condition that a row's host is a backend or its pool.

    An operator's command may write a host without the pool.
    """
    column = models.Volume.host
    return sqlalchemy.or_(column == host,
                          column.startswith(host + '#', autoescape=True))


@dataclasses.dataclass(frozen=True)
class Moves:
    """The moves from a backend that it may not know of.

    :ivar prepared: {volume id: placeholder id}
    :ivar released: ids of the placeholders of its sources that are released
    """

    prepared: dict[str, str]
    released: list[str]


def moves_from(context: cinder_context.RequestContext, host: str) -> Moves:
    """Return the moves from a backend, with one query.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        rows = context.session.query(
            volume.id, volume.replication_driver_data,
            volume.migration_status).filter_by(deleted=False).filter(
                is_on(host), volume.replication_driver_data != '').all()
    return Moves(
        {row.id: row.replication_driver_data for row in rows
         if not row.replication_driver_data.startswith('{')},
        [row.id for row in rows
         if placeholders.state_of(row) == State.RELEASED])


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


def is_being_deleted(volume: objects.Volume) -> bool:
    """Whether Cinder, or a repeated request, still has to delete a row."""
    return volume.status in BEING_DELETED


def not_deleted(context: cinder_context.RequestContext,
                volume_ids: collections.abc.Collection[str]) -> set[str]:
    """Return those of some volumes that are neither gone nor being deleted.

    With one query, or none for no volume.
    """
    if not volume_ids:
        return set()
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return {row_id for row_id, in context.session.query(
            volume.id).filter_by(deleted=False).filter(
                volume.id.in_(volume_ids),
                volume.status.not_in(BEING_DELETED))}
