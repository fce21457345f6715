# SPDX-License-Identifier: Apache-2.0
"""The transactions on what outlives a deleted volume: others read it."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects
from oslo_utils import timeutils
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import transactions
from dmclone_driver.releases import models
from dmclone_driver.steps import Step


@transactions.transaction(Step.DEFERRED)
def begin(session: orm.Session, volume: objects.Volume) -> None:
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
        raise exception.MoveGone(
            volume=volume.id, placeholder=row_id,
            reason=_('the volume has just changed'))
    found = session.query(models.Volume).filter_by(id=row_id).first()
    if found is None:
        found = models.Volume(id=row_id)
        session.add(found)
    fields = {field: getattr(row, field) for field in row_fields.EXCHANGED}
    fields.update(_name_id=volume.name_id, provider_id=row.host,
                  provider_location=None, provider_auth=None)
    found.update(dict(
        row_fields.of_placeholder(row, placeholders.Record(
            State.RELEASED, row.id, '', '')),
        deleted=False, deleted_at=None, **fields))


@transactions.transaction()
def withdraw(session: orm.Session, seen: objects.Volume) -> None:
    """Withdraw :func:`begin`, if a volume's has begun.

    :param seen: the volume as it was read before
    """
    row, = transactions.lock(session, seen.id)
    if row is not None:
        withdraw_locked(session, row)


def withdraw_locked(session: orm.Session, volume: models.Volume) -> None:
    """Delete the placeholder of :func:`begin`, if there is one.

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
