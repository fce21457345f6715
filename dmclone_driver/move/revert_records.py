# SPDX-License-Identifier: Apache-2.0
"""The transactions on the rows of a volume that is reverted."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects
from oslo_log import log as logging
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import deletion_records
from dmclone_driver.move import events
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import transactions
from dmclone_driver.releases import models
from dmclone_driver.steps import Step


@transactions.transaction(Step.BEGUN)
def begin(session: orm.Session, volume: objects.Volume,
          revert_id: str, source_id: str, snapshot_id: str,
          there: peers.Peer, initiator: str) -> None:
    """Record that a volume gets a new logical volume, copied from a snapshot.

    The new one has a placeholder until it takes the place of the old one, and
    the old one afterwards; see :func:`revert`.

    :param volume: freshly read
    :param revert_id: id of that placeholder, from which the name id follows
    :param source_id: name id of the source
    :param there: the backend that has the snapshot
    :param initiator: as in :func:`copy_records.begin`
    :raises: MoveGone if the volume is not as it was read
    """
    row, = transactions.lock(session, volume.id)
    if row is None or row.replication_driver_data or (
            row.host, row._name_id) != (volume.host, volume._name_id):
        raise exception.MoveGone(
            volume=volume.id, placeholder=revert_id,
            reason=_('the volume has just changed'))
    deletion_records.withdraw_locked(session, row)
    new = placeholders.derived_id(revert_id, 'clone')
    fields = {field: getattr(row, field) for field in row_fields.EXCHANGED}
    fields.update(_name_id=new, provider_id=row.host, provider_location=None,
                  provider_auth=None)
    session.add(models.Volume(
        id=revert_id, **fields, **row_fields.of_placeholder(
            row, placeholders.Record(State.REVERTING, row.id, '', ''))))
    row_fields.add(session, there, row, placeholders.Record(
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
    row_fields.exchange(volume, other)
    row_fields.set_state(other, State.RELEASED)
    transactions.log_after_commit(
        session, logging.INFO, 'Volume %(volume)s is reverted: it is in '
        'logical volume %(new)s now, and the old one, %(old)s, is deleted '
        'when no snapshot needs it.',
        {'volume': volume.id, 'new': volume._name_id, 'old': other._name_id})
    return True


@transactions.transaction()
def give_up(session: orm.Session, revert_id: str) -> bool:
    """Make sure that a new logical volume never takes the old one's place.

    It is released, so that it will be deleted like any source.

    :returns: False if it has done so, or was given up before
    """
    row, = transactions.lock(session, revert_id)
    if row is None or placeholders.state_of(row) != State.REVERTING:
        return False
    row_fields.set_state(row, State.RELEASED)
    return True
