# SPDX-License-Identifier: Apache-2.0
"""Who is who in the database: the volume, its placeholder, their exchange.

The database is the arbiter between nodes. Each function is one transaction
that locks both rows, finds them as it expects or changes nothing, and can be
repeated.

A *placeholder* is a second volume row, hidden from users. Until the commit
it stands for the destination; the commit exchanges what the two rows say
about the backend, and from then on it stands for the source. Its id is the
name of the destination's logical volume, so the source of a clone X is what
the row X points to.

While a transfer is prepared, the volume's ``replication_driver_data`` holds
the placeholder's id: the lock that holds across hosts. It is of no other use
to a driver without replication.
"""

import dataclasses
import functools
import json

from cinder.db import api as db_api
from cinder.db import models
from cinder import exception as cinder_exception
from cinder import objects
from oslo_db import api as oslo_db_api
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

PREPARED, COMMITTED = 'prepared', 'committed'
ABANDONED, RELEASED = 'abandoned', 'released'

# What belongs to the logical volume, not to the user.
EXCHANGED = ('_name_id', 'host', 'cluster_name', 'availability_zone',
             'service_uuid', 'provider_id', 'provider_location',
             'provider_auth', 'provider_geometry')
_TARGET = 'target:'


@dataclasses.dataclass(frozen=True)
class Record:
    """What a placeholder knows of its transfer."""

    state: str
    #: iSCSI name of the node that imports the source.
    initiator: str
    #: The importing host's name in its attachments: nova's, which need not
    #: be the one in the placeholder's host.
    node: str

    def text(self):
        """Print it as it is kept in the database (255 characters)."""
        return json.dumps(dataclasses.asdict(self))

    def but(self, state):
        """Return the same record in another state."""
        return dataclasses.replace(self, state=state)


def record(row):
    """Parse what a placeholder knows of its transfer, None for others.

    :param row: a volume object or database row
    """
    if not is_placeholder(row):
        return None
    return Record(**json.loads(row.replication_driver_data))


def is_placeholder(row):
    """Whether a volume row stands for a source or destination of ours."""
    return bool(row.status == 'maintenance' and
                (row.migration_status or '').startswith(_TARGET) and
                (row.replication_driver_data or '').startswith('{'))


def state(row):
    """Return the state of a placeholder's transfer, None for others."""
    found = record(row)
    return found and found.state


def volume_of(placeholder):
    """Return the id of the user's volume that a placeholder belongs to."""
    return placeholder.migration_status[len(_TARGET):]


def prepared_transfer(volume):
    """Return the id of the placeholder of a prepared transfer, or None."""
    data = volume.replication_driver_data
    return None if not data or data.startswith('{') else data


def get(context, volume_id):
    """Return a volume or placeholder, or None if it is gone."""
    try:
        return objects.Volume.get_by_id(context.elevated(), volume_id)
    except cinder_exception.VolumeNotFound:
        return None


def placeholder(context, row_id):
    """Return the placeholder with an id, or None if it is none, or gone."""
    row = get(context, row_id)
    return row if row is not None and is_placeholder(row) else None


def backend_of(row):
    """Return the backend, ``node@backend``, that a row is on."""
    return (row.host or '').partition('#')[0]


def guarding_id(row):
    """Return the id of the user's volume whose lock guards a row."""
    return volume_of(row) if is_placeholder(row) else row.id


def on_host(context, host):
    """Return all rows, users' and placeholders, of a backend."""
    return objects.VolumeList.get_all_by_host(context.elevated(), host)


def source_row(context, name_id):
    """Return the row of the source of a logical volume, None if complete.

    Before the commit that is the user's volume, afterwards the placeholder.
    """
    row = placeholder(context, name_id)
    if row is None:
        return None
    if record(row).state == COMMITTED:
        return row
    if record(row).state == PREPARED:
        return get(context, volume_of(row))
    return None


def owner_row(context, name_id):
    """Return the row that a logical volume belongs to now, or None."""
    row = get(context, name_id)
    if row is not None and row.name_id == name_id:
        return row
    filters = {'_name_id': name_id}
    rows = objects.VolumeList.get_all(context.elevated(), filters=filters)
    return rows[0] if rows else None


def unfinished(context):
    """Return all placeholders whose node has yet to remove something."""
    rows = objects.VolumeList.get_all(context.elevated(),
                                      filters={'status': 'maintenance'})
    return [row for row in rows if is_placeholder(row) and
            record(row).state in (RELEASED, ABANDONED)]


def _transaction(step=None):
    """Run a function in one transaction, again after a deadlock.

    The retry is around the whole: Cinder's own functions retry only
    themselves after the database has rolled back everything.

    :param step: that it is; its first argument is a volume, or a row's id
    """
    def decorate(function):
        @oslo_db_api.wrap_db_retry(max_retries=5, retry_on_deadlock=True)
        def in_transaction(context, *args, **kwargs):
            with db_api.main_context_manager.writer.using(context):
                return function(context.session, *args, **kwargs)

        @functools.wraps(function)
        def run(context, row, *args, **kwargs):
            result = in_transaction(context.elevated(), row, *args, **kwargs)
            if step and result is not False:
                steps.reached(step, getattr(row, 'id', row))
            return result
        return run
    return decorate


def _lock(session, *ids):
    """Lock rows in the order of their ids; absent ones come as None."""
    rows = session.query(models.Volume).filter(
        models.Volume.id.in_(ids), models.Volume.deleted.is_(False)
    ).order_by(models.Volume.id).with_for_update().all()
    by_id = {row.id: row for row in rows}
    return [by_id.get(row_id) for row_id in ids]


def _gone(volume_id, placeholder_id, reason):
    return exception.TransferGone(volume=volume_id, reason=reason,
                                  placeholder=placeholder_id)


def _prepared(session, volume_id, placeholder_id):
    volume, placeholder = _lock(session, volume_id, placeholder_id)
    if volume is None or placeholder is None:
        raise _gone(volume_id, placeholder_id, _('it was deleted'))
    if (volume.replication_driver_data != placeholder_id or
            record(placeholder).state != PREPARED):
        raise _gone(volume_id, placeholder_id,
                    _('it is %s') % record(placeholder).state)
    return volume, placeholder


@_transaction(Step.BEGUN)
def begin(session, volume, placeholder_id, peer, initiator, node):
    """Write down that a volume is being moved to a peer; nobody else may.

    :param volume: the user's volume, freshly read by its home
    :param placeholder_id: that the placeholder is to have
    :param peer: :class:`dmclone_driver.peers.Peer`
    :param initiator: the peer's iSCSI name
    :param node: the peer's name in connectors
    :raises: TransferRefused if the volume is not as it was read
    """
    row, = _lock(session, volume.id)
    if (row is None or row.replication_driver_data or
            row.host != volume.host or row._name_id != volume._name_id):
        raise exception.TransferRefused(
            volume=volume.id, host=peer.host,
            reason=_('another request has just changed it; try again'))
    if any(state(old) == ABANDONED and old.host == peer.host
           for old in session.query(models.Volume).filter_by(
               deleted=False, migration_status=_TARGET + row.id)):
        # Its session to the same source would be taken for the new one's.
        raise exception.TransferRefused(
            volume=volume.id, host=peer.host,
            reason=_('what is left there of an earlier attempt has to be '
                     'removed first; try again when that node is well'))
    session.add(models.Volume(
        id=placeholder_id, host=peer.host, service_uuid=peer.service_uuid,
        availability_zone=peer.availability_zone, size=row.size,
        status='maintenance', attach_status='detached',
        migration_status=_TARGET + row.id, use_quota=False,
        user_id=row.user_id, project_id=row.project_id,
        volume_type_id=row.volume_type_id, multiattach=False,
        display_name='dmclone transfer of %s' % row.id,
        replication_driver_data=Record(
            PREPARED, initiator, node).text()))
    row.replication_driver_data = placeholder_id


@_transaction()
def check_prepared(session, volume_id, placeholder_id):
    """Verify that a transfer is still wanted.

    :raises: TransferGone
    """
    _prepared(session, volume_id, placeholder_id)


@_transaction()
def set_export(session, seen, location, auth):
    """Write down how a volume is exported where it is.

    :param seen: its row as it was read before; if that points to another
        logical volume, or transfer, by now nothing is changed
    """
    row, = _lock(session, seen.id)
    if row is not None and (
            row._name_id, row.replication_driver_data) == (
            seen._name_id, seen.replication_driver_data):
        row.provider_location, row.provider_auth = location, auth


@_transaction(Step.COMMITTED)
def commit(session, volume_id, placeholder_id):
    """Make the destination the volume's home: exchange identities.

    :returns: False if that had been done before
    :raises: TransferGone if it was abandoned
    """
    volume, placeholder = _lock(session, volume_id, placeholder_id)
    if volume is not None and volume._name_id == placeholder_id:
        return False
    volume, placeholder = _prepared(session, volume_id, placeholder_id)
    for field in EXCHANGED:
        mine, other = getattr(volume, field), getattr(placeholder, field)
        if field == '_name_id':
            mine, other = mine or volume.id, other or placeholder.id
        setattr(volume, field, other)
        setattr(placeholder, field, mine)
    volume.replication_driver_data = None
    placeholder.replication_driver_data = (
        record(placeholder).but(COMMITTED).text())
    LOG.info('Volume %(volume)s now lives on %(new)s; its source, logical '
             'volume %(name_id)s, is on %(old)s.',
             {'volume': volume_id, 'new': volume.host,
              'old': placeholder.host, 'name_id': placeholder._name_id})
    return True


@_transaction(Step.ABANDONED)
def abandon(session, volume_id, placeholder_id):
    """Make sure that a transfer will never be committed.

    :returns: False if it has been committed before
    """
    volume, placeholder = _lock(session, volume_id, placeholder_id)
    if placeholder is not None:
        if record(placeholder).state in (COMMITTED, RELEASED):
            return False
        placeholder.replication_driver_data = (
            record(placeholder).but(ABANDONED).text())
    if volume is None or volume.replication_driver_data != placeholder_id:
        return True
    if placeholder is not None:
        # The peer, when it is back, still has a session to end.
        placeholder.provider_location = volume.provider_location
        placeholder.provider_auth = volume.provider_auth
    volume.replication_driver_data = None
    volume.provider_location = volume.provider_auth = None
    return True


@_transaction(Step.RELEASED)
def release(session, placeholder_id):
    """Write down that a source is not needed any more.

    :returns: False if the placeholder is gone
    """
    placeholder, = _lock(session, placeholder_id)
    if placeholder is None or state(placeholder) not in (COMMITTED,
                                                         RELEASED):
        return False
    placeholder.replication_driver_data = (
        record(placeholder).but(RELEASED).text())
    return True


def destroy(context, placeholder_id):
    """Delete a placeholder whose logical volume is gone."""
    db_api.volume_destroy(context.elevated(), placeholder_id)
    steps.reached(Step.GONE, placeholder_id)
