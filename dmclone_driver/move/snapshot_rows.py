# SPDX-License-Identifier: Apache-2.0
"""The rows of snapshots: which backend has each, and what it has to delete.

A snapshot stays on its node when its volume moves, unless an operator has it
follow (see :mod:`followers`). ``provider_id`` is the
host, with its pool, that has the snapshot's logical volume; without it that is
the host of the volume. It begins with :data:`TO_DELETE` once the user has
deleted the snapshot, until its logical volume is deleted, too. Only a row that
Cinder has marked as deleted proves that the user has: a row that is missing
does not, since the database may have been restored. A follower's row is
younger than its snapshot's, so there it does (:func:`is_deleted`).
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
import sqlalchemy
from sqlalchemy import orm

from dmclone_driver.move import transactions
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models

#: Before the host of a snapshot whose logical volume has to be deleted.
TO_DELETE = 'delete:'


def host_of(snapshot: objects.Snapshot) -> str:
    """Return the host, ``node@backend#pool``, that has a snapshot."""
    host = snapshot.provider_id or snapshot.volume.host
    return host.removeprefix(TO_DELETE)


def backend_of(snapshot: objects.Snapshot) -> str:
    """Return the backend, ``node@backend``, that has a snapshot."""
    return volume_utils.extract_host(host_of(snapshot))


def stay(session: orm.Session, volume_id: str, host: str) -> None:
    """Record where a volume's snapshots stay while the volume moves.

    Part of the transaction that moves the volume. Snapshots of the first
    versions of this driver have no host of their own.
    """
    for row in session.query(models.Snapshot).filter_by(
            deleted=False, volume_id=volume_id, provider_id=None):
        row.provider_id = host


def get(context: cinder_context.RequestContext,
        snapshot_id: str) -> objects.Snapshot | None:
    """Return a snapshot, or None if it is deleted or unknown."""
    try:
        return objects.Snapshot.get_by_id(context.elevated(), snapshot_id)
    except cinder_exception.SnapshotNotFound:
        return None


def of_volume(context: cinder_context.RequestContext,
              volume_id: str) -> list[objects.Snapshot]:
    """Return the snapshots of a volume."""
    return list(objects.SnapshotList.get_all_for_volume(context.elevated(),
                                                        volume_id))


def _lock(session: orm.Session, snapshot_id: str) -> models.Snapshot | None:
    """Return the row of a snapshot, deleted or not, locked, or None."""
    return session.query(models.Snapshot).filter_by(
        id=snapshot_id).with_for_update().first()


def is_as_read(session: orm.Session, snapshot: objects.Snapshot) -> bool:
    """Lock a snapshot; whether it is available where it was when read."""
    row = _lock(session, snapshot.id)
    return row is not None and not row.deleted and (
        row.status, row.provider_id) == ('available', snapshot.provider_id)


def arrive(session: orm.Session, snapshot_id: str, host: str) -> bool:
    """Make a backend the home of a snapshot that was copied there.

    :param host: ``node@backend#pool``
    :returns: False if it is being deleted, so that its old home may have been
        told, or a volume there reverted to it
    """
    row = _lock(session, snapshot_id)
    if row is None or row.deleted or (
            row.status in ('deleting', 'restoring') or
            (row.provider_id or '').startswith(TO_DELETE)):
        return False
    row.provider_id = host
    return True


def go_back(session: orm.Session, snapshot_id: str, there: str,
            host: str) -> bool:
    """Make a backend the home of a snapshot whose newer home is lost.

    If the snapshot is deleted, that backend has to delete its copy.

    :param there: the lost home, ``node@backend#pool``
    :param host: the same of the backend
    :returns: False if it is on another one meanwhile
    """
    row = _lock(session, snapshot_id)
    recorded = (row.provider_id or '') if row is not None else ''
    if row is None or recorded.removeprefix(TO_DELETE) != there:
        return False
    row.provider_id = (TO_DELETE if row.deleted or recorded.startswith(
        TO_DELETE) else '') + host
    return True


@transactions.transaction()
def restore(session: orm.Session, snapshot_id: str, host: str) -> bool:
    """Record the home of a snapshot that the database has forgotten.

    :returns: as :func:`arrive`
    """
    return arrive(session, snapshot_id, host)


@transactions.transaction()
def is_deleted(session: orm.Session, snapshot_id: str) -> bool:
    """Whether a snapshot that a younger row is about has been deleted.

    If its row is missing it was purged (``cinder-manage db purge``): in a
    database from before the snapshot the younger row is missing, too.
    """
    row = _lock(session, snapshot_id)
    return row is None or bool(row.deleted)


@transactions.transaction()
def is_on(session: orm.Session, snapshot_id: str, host: str) -> bool:
    """Whether a backend has a snapshot of a user, by the database.

    :param host: ``node@backend``
    """
    row = _lock(session, snapshot_id)
    return row is not None and not row.deleted and (
        _recorded(row.provider_id or row.volume.host) == host)


def recorded_backend(context: cinder_context.RequestContext,
                     snapshot_id: str) -> str:
    """Return the backend of a snapshot, deleted or not; '' if unknown."""
    with db_api.main_context_manager.reader.using(context):
        found = context.session.query(models.Snapshot.provider_id).filter_by(
            id=snapshot_id).first()
    return _recorded(found.provider_id if found else None)


def _recorded(host: str | None) -> str:
    """Return the backend of a value of ``provider_id``, '' without one."""
    return volume_utils.extract_host(
        host.removeprefix(TO_DELETE)) if host else ''


@transactions.transaction()
def read_host(session: orm.Session, snapshot: objects.Snapshot) -> str:
    """Read again which host has a snapshot; see :func:`host_of`.

    Cinder may have read it before it has followed its volume. Its object is
    not changed: Cinder would save that later, over a newer host.
    """
    row = _lock(session, snapshot.id)
    if row is None or row.provider_id is None:
        return host_of(snapshot)
    return row.provider_id.removeprefix(TO_DELETE)


@transactions.transaction()
def delete_later(session: orm.Session, snapshot: objects.Snapshot,
                 host: str) -> None:
    """Have the snapshot's node delete it once the user has deleted it.

    :param host: that has it, by :func:`read_host`
    """
    session.query(models.Snapshot).filter_by(id=snapshot.id).update(
        {'provider_id': TO_DELETE + host})


@transactions.transaction()
def keep(session: orm.Session, snapshot: objects.Snapshot) -> None:
    """Withdraw an interrupted deletion before the row of a snapshot goes.

    Cinder deletes the row of a snapshot that it unmanages, too.
    """
    session.query(models.Snapshot).filter_by(id=snapshot.id).update(
        {'provider_id': host_of(snapshot)})


@transactions.transaction()
def deleted(session: orm.Session, snapshot_id: str) -> None:
    """Record that the logical volume of a deleted snapshot is gone."""
    session.query(models.Snapshot).filter_by(
        id=snapshot_id, deleted=True).update({'provider_id': None})


def to_delete(context: cinder_context.RequestContext,
              host: str) -> list[str]:
    """Return the ids of the deleted snapshots that a backend still has.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        return [row_id for row_id, in context.session.query(
            models.Snapshot.id).filter_by(deleted=True).filter(
                _is_on(TO_DELETE + host))]


def there(context: cinder_context.RequestContext, host: str
          ) -> list[objects.Snapshot]:
    """Return the snapshots that a backend has of volumes that have moved.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        ids = [row_id for row_id, in context.session.query(
            models.Snapshot.id).filter_by(deleted=False).filter(
                _is_on(host))]
    found = [objects.Snapshot.get_by_id(context.elevated(), row_id)
             for row_id in ids]
    return [each for each in found
            if volume_utils.extract_host(each.volume.host) != host]


def backends_of_volume(context: cinder_context.RequestContext,
                       volume_id: str, host: str
                       ) -> list[tuple[str, str, str]]:
    """Return where the snapshots of a volume are, with one query.

    :param host: of the volume, which has those without a host of their own
    :returns: list of (id, status, ``node@backend`` that has it)
    """
    row = models.Snapshot
    with db_api.main_context_manager.reader.using(context):
        found = context.session.query(
            row.id, row.status, row.provider_id).filter_by(
                deleted=False, volume_id=volume_id).all()
    return [(snapshot_id, status, volume_utils.extract_host(
        (there or host).removeprefix(TO_DELETE)))
        for snapshot_id, status, there in found]


def existing(context: cinder_context.RequestContext,
             ids: collections.abc.Iterable[str]) -> set[str]:
    """Return those of the ids that are snapshots in the database."""
    with db_api.main_context_manager.reader.using(context):
        return {row_id for row_id, in context.session.query(
            models.Snapshot.id).filter_by(deleted=False).filter(
                models.Snapshot.id.in_(list(ids)))}


def without_row(context: cinder_context.RequestContext,
                ids: collections.abc.Iterable[str]) -> set[str]:
    """Return those of the ids of which not even a deleted row is left."""
    wanted = set(ids)
    with db_api.main_context_manager.reader.using(context):
        return wanted - {row_id for row_id, in context.session.query(
            models.Snapshot.id).filter(models.Snapshot.id.in_(wanted))}


@transactions.transaction()
def fail(session: orm.Session, snapshot_id: str) -> bool:
    """Set a snapshot whose node is lost to error.

    :returns: False if it is gone
    """
    return bool(session.query(models.Snapshot).filter_by(
        id=snapshot_id, deleted=False).update({'status': 'error'}))


def fail_of(session: orm.Session, volume_id: str, host: str) -> None:
    """Set the snapshots of a volume that are on its lost home to error.

    :param host: of the volume, ``node@backend#pool``
    """
    session.query(models.Snapshot).filter_by(
        volume_id=volume_id, deleted=False).filter(
            models.Snapshot.provider_id.is_(None) |
            _is_on(volume_utils.extract_host(host))).update(
                {'status': 'error'}, synchronize_session=False)


def _is_on(host: str) -> sqlalchemy.ColumnElement[bool]:
    column = models.Snapshot.provider_id
    return sqlalchemy.or_(column == host,
                          column.startswith(host + '#', autoescape=True))
