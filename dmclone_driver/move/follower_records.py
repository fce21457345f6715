# SPDX-License-Identifier: Apache-2.0
"""The transactions on the rows of snapshots that are copied to a node."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import objects
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import copy_records
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import transactions
from dmclone_driver.releases import models
from dmclone_driver.steps import Step


@transactions.transaction(Step.BEGUN)
def begin(session: orm.Session, snapshot: objects.Snapshot,
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
    row_fields.add(session, here, volume, placeholders.Record(
        State.FOLLOWING, follower_id, '', node), id=follower_id,
        _name_id=placeholder_id, snapshot_id=snapshot.id)
    row_fields.add(session, there, volume, placeholders.Record(
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
    row_fields.set_state(row, State.FOLLOWED)
    return True


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
            not copy_records.has_source(source)):
        return False
    if not snapshot_rows.go_back(session, row.snapshot_id, row.provider_id,
                                 source.provider_id):
        return False
    row_fields.set_state(row, State.FOLLOWING)
    return True


def get(context: cinder_context.RequestContext,
        name_id: str) -> objects.Volume | None:
    """Return the row of a follower, None for other logical volumes.

    :raises: ReadLagsBehind
    """
    found = lookups.placeholder(context, name_id)
    # A query for its name would not say whether the read lags behind.
    row = (lookups.owner_row(context, name_id) if found is None else
           lookups.get(context, found.volume_id))
    return (row if row is not None and
            placeholders.state_of(row) in placeholders.OF_FOLLOWERS else None)


@transactions.transaction()
def state(session: orm.Session, follower_id: str) -> State | None:
    """Return the state of a follower; None if it is gone, or is none.

    A locking read never sees an old copy.
    """
    row, = transactions.lock(session, follower_id)
    state = placeholders.state_of(row)
    return state if state in placeholders.OF_FOLLOWERS else None
