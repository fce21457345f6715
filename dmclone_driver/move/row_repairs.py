# SPDX-License-Identifier: Apache-2.0
"""Put back what others have changed in the rows, and follow Cinder's own."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import objects
from oslo_log import log as logging
import sqlalchemy
from sqlalchemy import orm

from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import row_fields
from dmclone_driver.move import transactions
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models


def altered(context: cinder_context.RequestContext, host: str) -> list[str]:
    """Return the ids of rows of a backend that Cinder's commands changed.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return [row_id for row_id, in context.session.query(
            volume.id).filter_by(deleted=False).filter(
                lookups.is_on(host),
                volume.migration_status.is_(None) |
                ~volume.migration_status.startswith(placeholders.COPY_STATUS),
                sqlalchemy.or_(
                    volume.provider_id != volume.host,
                    volume.replication_driver_data.startswith('{') & (
                        (volume.status != 'maintenance') |
                        volume.migration_status.is_(None) |
                        ~volume.migration_status.startswith(
                            row_fields.MIGRATION_STATUS))))]


def is_altered(row: objects.Volume) -> bool:
    """Whether something else has changed fields that the driver wrote."""
    found = placeholders.record_of(row)
    return not placeholders.is_copy(row) and (
        row.host != row.provider_id or found is not None and any(
            getattr(row, column) != value
            for column, value in row_fields.status_columns(found).items()))


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
        for column, value in row_fields.status_columns(found).items():
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
                [row_fields.MIGRATION_STATUS + each for each in other])).all():
        _exchange_owner(session, row, other)


def _exchange_owner(session: orm.Session, row: models.Volume,
                    other: dict[str, str]) -> None:
    found = placeholders.Record.parse(row.replication_driver_data)
    if found.state == State.PREPARED:
        records.abort_locked(
            session, *transactions.lock(session, found.volume, row.id))
    elif found.state != State.ABORTED:
        row_fields.set_owner(row, other[found.volume])


def take_over(context: cinder_context.RequestContext,
              volume: objects.Volume) -> None:
    """Assign to a volume the sources that it needs, if they are another's.

    Like :func:`exchange_owners`, of a volume that Cinder has copied to a
    backend of another driver. That driver was called at the end, not this one
    (migrate_volume_completion in cinder/volume/manager.py).

    :param volume: the row that Cinder deletes, freshly read
    """
    first = lookups.placeholder(context, volume.name_id)
    if first is None:
        return
    sources = {first.id, *(each.id for each in lookups.chain(context, first))}
    _take_over(context, volume.id, [*sources, *(
        placeholders.derived_id(each, 'reader') for each in sources)])


@transactions.transaction()
def _take_over(session: orm.Session, volume_id: str, ids: list[str]) -> None:
    for row in transactions.lock(session, *ids):
        if placeholders.state_of(row) in placeholders.OF_SOURCES:
            row_fields.set_owner(row, volume_id)


@transactions.transaction()
def set_owner(session: orm.Session, seen: objects.Volume) -> None:
    """Record that a row's host has its logical volume.

    :param seen: its row as it was read before
    """
    row, = transactions.lock(session, seen.id)
    if row is not None and row.host == seen.host:
        row.provider_id = row.host
