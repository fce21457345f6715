# SPDX-License-Identifier: Apache-2.0
"""The transactions on the rows of clones: copies of a snapshot."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import events
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import transactions
from dmclone_driver.releases import models
from dmclone_driver.steps import Step


@transactions.transaction(Step.BEGUN)
def begin(session: orm.Session, volume: objects.Volume,
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
        raise exception.MoveGone(
            volume=volume.id, placeholder=placeholder_id,
            reason=_('it was deleted'))
    row_fields.add(session, there, row, placeholders.Record(
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
    fields = {field: getattr(below, field) for field in row_fields.EXCHANGED}
    # It is still to be exported to this reader.
    fields.update(
        _name_id=placeholders.derived_id(placeholder_id, 'snapshot'),
        provider_location=None, provider_auth=None)
    session.add(models.Volume(**dict(
        row_fields.of_placeholder(source, found), id=reader_id,
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
    for field in (*row_fields.EXCHANGED, 'snapshot_id',
                  'replication_driver_data'):
        mine, other = getattr(source, field), getattr(reader, field)
        setattr(source, field, other)
        setattr(reader, field, mine)
    row_fields.set_state(reader, State.RELEASED)
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
    return (lookups.placeholder(context, reader_id)
            if lookups.is_there(context, reader_id) else None)


def has_source(row: models.Volume | None) -> bool:
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
    return any(has_source(row) for row in transactions.lock(
        session, *ids)) if ids else False
