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
to a driver without replication. Of a placeholder it holds a :class:`Record`,
and nothing else makes a row a placeholder: no command of Cinder's changes
this field.

``provider_id`` is the host, with its pool, that has the logical volume. This
driver alone writes it, so it tells when something else has changed ``host``.
"""

import dataclasses
import functools
import json

from cinder.db import api as db_api
from cinder.db import models
from cinder import exception as cinder_exception
from cinder import objects
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_log import log as logging
import sqlalchemy

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

PREPARED, COMMITTED = 'prepared', 'committed'
ABANDONED, RELEASED = 'abandoned', 'released'
#: The node of the source never comes back; its volume needs it all the same.
LOST = 'lost'

# What belongs to the logical volume, not to the user.
EXCHANGED = ('_name_id', 'host', 'cluster_name', 'availability_zone',
             'service_uuid', 'provider_id', 'provider_location',
             'provider_auth', 'provider_geometry')

#: The migration status of a placeholder, before the volume's id. Cinder's API
#: refuses to change a volume with a migration status that it does not know
#: (AVAILABLE_MIGRATION_STATUS in cinder/volume/api.py). One that begins with
#: "target:" would let a deletion that the driver refuses destroy the row
#: (VolumeManager._clear_db in cinder/volume/manager.py).
MIGRATION_STATUS = 'dmclone:'
#: That of the volume which Cinder makes to copy another one to.
COPY_STATUS = 'target:'
#: The project of placeholders, unless Cinder's internal one is configured: no
#: tenant sees them, and none is billed for them.
PROJECT = 'dmclone_driver'

CONF = cfg.CONF


@dataclasses.dataclass(frozen=True)
class Record:
    """What a placeholder knows of its transfer."""

    state: str
    #: Id of the user's volume.
    volume: str
    #: iSCSI name of the node that imports the source.
    initiator: str
    #: The importing host's name in its attachments: nova's, which need not
    #: be the one in the placeholder's host.
    node: str

    def text(self):
        """Print it as it is kept in the database (255 characters)."""
        return json.dumps(dataclasses.asdict(self), separators=(',', ':'))

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
    return ((row.replication_driver_data or '').startswith('{') and
            not is_copy(row))


def is_copy(row):
    """Whether Cinder copies another volume to this one.

    Its row begins as a copy of the other one's, with what this driver has
    written there (VolumeManager._migrate_volume_generic in
    cinder/volume/manager.py).
    """
    return (row.migration_status or '').startswith(COPY_STATUS)


def state(row):
    """Return the state of a placeholder's transfer, None for others.

    :param row: a volume object or database row, or None
    """
    found = row and record(row)
    return found and found.state


def volume_of(placeholder):
    """Return the id of the user's volume that a placeholder belongs to."""
    return record(placeholder).volume


def prepared_transfer(volume):
    """Return the id of the placeholder of a prepared transfer, or None."""
    data = volume.replication_driver_data
    return None if not data or data.startswith('{') else data


def get(context, volume_id):
    """Return a volume or placeholder, or None if it is gone.

    :raises: ReadLagsBehind if it is there, but not where it is read
    """
    try:
        return objects.Volume.get_by_id(context.elevated(), volume_id)
    except cinder_exception.VolumeNotFound:
        if volume_id and _is_there(context, volume_id):
            raise exception.ReadLagsBehind(volume=volume_id)
        return None


def placeholder(context, row_id):
    """Return the placeholder with an id, or None if it is none, or gone."""
    row = get(context, row_id)
    return row if row is not None and is_placeholder(row) else None


def backend_of(row):
    """Return the backend, ``node@backend``, that a row is on.

    Of a placeholder, by what the driver has written down.
    """
    host = row.provider_id if is_placeholder(row) else None
    return (host or row.host or '').partition('#')[0]


def recorded_backend(row):
    """Return the backend that has a row's logical volume, None if unknown."""
    return row.provider_id and row.provider_id.partition('#')[0]


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


def placeholders_of(context, volume_ids):
    """Return the placeholders of some volumes, with one query.

    :param volume_ids: of the users' volumes
    """
    return [row for row in all_placeholders(context)
            if volume_of(row) in volume_ids]


def all_placeholders(context):
    """Return the placeholders of all volumes, with one query."""
    rows = objects.VolumeList.get_all(
        context.elevated(), filters={'project_id': _owner()['project_id']})
    return [row for row in rows if is_placeholder(row)]


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


@_transaction()
def _is_there(session, row_id):
    """Whether a row exists: what is locked is never read from a copy."""
    row, = _lock(session, row_id)
    return row is not None


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
    if any(state(old) == ABANDONED and volume_of(old) == row.id
           for old in session.query(models.Volume).filter_by(
               deleted=False, host=peer.host)):
        # Its session to the same source would be taken for the new one's.
        raise exception.TransferRefused(
            volume=volume.id, host=peer.host,
            reason=_('what is left there of an earlier attempt has to be '
                     'removed first; try again when that node is well'))
    prepared = Record(PREPARED, row.id, initiator, node)
    session.add(models.Volume(
        id=placeholder_id, host=peer.host, service_uuid=peer.service_uuid,
        availability_zone=peer.availability_zone, provider_id=peer.host,
        **_about(row, prepared)))
    row.provider_id = row.host
    row.replication_driver_data = placeholder_id


def _about(volume, found):
    """Return what a placeholder says, but for where it is."""
    return dict(
        _owner(), **_columns(found), size=volume.size,
        attach_status='detached', use_quota=False, multiattach=False,
        volume_type_id=volume.volume_type_id,
        display_name='dmclone transfer of %s' % volume.id,
        replication_driver_data=found.text())


@_transaction(Step.COMMITTED)
def restore(session, seen, name_id, peer, initiator, node):
    """Commit again what the database has forgotten, from a peer's disks.

    :param seen: the volume as it was read before
    :param name_id: of the logical volume that is its home
    :param peer: :class:`dmclone_driver.peers.Peer` that has it
    :param initiator: the peer's iSCSI name
    :param node: the peer's name in connectors
    :returns: False if the rows are not as they were read, or others
    """
    volume, = _lock(session, seen.id)
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
    elif not row.deleted and state(row) not in (PREPARED, ABANDONED):
        return False
    row.update(dict(
        _about(volume, Record(COMMITTED, volume.id, initiator, node)),
        deleted=False, deleted_at=None))
    for field in EXCHANGED:
        setattr(row, field, getattr(volume, field))
        setattr(volume, field, getattr(peer, field, None))
    row._name_id = row._name_id or volume.id
    row.provider_id = row.host
    volume._name_id, volume.provider_id = name_id, peer.host
    volume.replication_driver_data = None
    return True


def _owner():
    """Return the user and project of placeholders."""
    return {'user_id': CONF.cinder_internal_tenant_user_id or PROJECT,
            'project_id': CONF.cinder_internal_tenant_project_id or PROJECT}


def _columns(found):
    """Return what Cinder is to see of a placeholder with a record."""
    return {'status': 'maintenance',
            'migration_status': MIGRATION_STATUS + found.volume}


def altered(context, host):
    """Return the ids of rows of a backend that Cinder's commands changed.

    :param host: ``node@backend``
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return [row_id for row_id, in context.session.query(volume.id).filter(
            volume.deleted.is_(False), volume.host.startswith(host),
            volume.migration_status.is_(None) |
            ~volume.migration_status.startswith(COPY_STATUS),
            sqlalchemy.or_(
                volume.provider_id != volume.host,
                volume.replication_driver_data.startswith('{') & (
                    (volume.status != 'maintenance') |
                    volume.migration_status.is_(None) |
                    ~volume.migration_status.startswith(MIGRATION_STATUS))))]


def prepared_on(context, host):
    """Return the transfers that are prepared from a backend.

    :param host: ``node@backend``
    :returns: {volume id: placeholder id}
    """
    with db_api.main_context_manager.reader.using(context):
        volume = models.Volume
        return dict(context.session.query(
            volume.id, volume.replication_driver_data).filter(
                volume.deleted.is_(False), volume.host.startswith(host),
                volume.replication_driver_data != '',
                ~volume.replication_driver_data.startswith('{')).all())


def is_being_made(context, volume_id):
    """Whether a volume is being created or filled with an image.

    Until that is over Cinder saves its row again and again
    (cinder/volume/flows/manager/create_volume.py).
    """
    return any(worker.status in ('creating', 'downloading')
               for worker in db_api.worker_get_all(
                   context.elevated(), resource_type='Volume',
                   resource_id=volume_id))


def is_altered(row):
    """Whether a row is not as the driver has written it."""
    return not is_copy(row) and (
        row.host != row.provider_id or is_placeholder(row) and any(
            getattr(row, column) != value
            for column, value in _columns(record(row)).items()))


@_transaction()
def put_back(session, seen):
    """Take back what something other than this driver has written.

    Of a placeholder these are its status, migration status and host; of a
    volume, its host. A volume with a transfer that is prepared is where the
    transfer has begun.

    :param seen: the row as it was read before; if it has changed since,
        nothing is changed
    """
    row, = _lock(session, seen.id)
    if row is None or not row.provider_id or (
            row.host, row.provider_id) != (seen.host, seen.provider_id):
        return
    if row.host != row.provider_id:
        LOG.warning('Volume %(volume)s is put back to %(old)s: its host was '
                    'changed to %(new)s, and its data is not there.',
                    {'volume': row.id, 'old': row.provider_id,
                     'new': row.host})
        row.host, row.cluster_name = row.provider_id, None
    if is_placeholder(row):
        for column, value in _columns(record(row)).items():
            setattr(row, column, value)


@_transaction()
def exchange_owners(session, volume, new):
    """Let placeholders follow their logical volumes in Cinder's migration.

    It ends with an exchange of all that two volumes' rows say. A transfer
    that is prepared of either is abandoned.

    :param volume: the user's volume, freshly read
    :param new: the one that Cinder has made and filled, or Nova
    """
    other = {volume.id: new.id, new.id: volume.id}
    for row in session.query(models.Volume).filter(
            models.Volume.deleted.is_(False),
            models.Volume.migration_status.in_(
                [MIGRATION_STATUS + each for each in other])).all():
        _let_follow(session, row, other)


def _let_follow(session, row, other):
    found = record(row)
    if found.state == PREPARED:
        _abandon(*_lock(session, found.volume, row.id))
    elif found.state != ABANDONED:
        found = dataclasses.replace(found, volume=other[found.volume])
        row.replication_driver_data = found.text()
        row.migration_status = MIGRATION_STATUS + found.volume


@_transaction()
def set_owner(session, seen):
    """Write down that a row's host has its logical volume.

    :param seen: its row as it was read before
    """
    row, = _lock(session, seen.id)
    if row is not None and row.host == seen.host:
        row.provider_id = row.host


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
    if volume is not None and placeholder_id and (
            volume._name_id == placeholder_id):
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
    if placeholder is not None and (
            record(placeholder).state in (COMMITTED, RELEASED)):
        return False
    _abandon(volume, placeholder, placeholder_id)
    return True


def _abandon(volume, placeholder, placeholder_id=None):
    if placeholder is not None:
        placeholder_id = placeholder.id
        placeholder.replication_driver_data = (
            record(placeholder).but(ABANDONED).text())
    if volume is None or volume.replication_driver_data != placeholder_id:
        return
    if placeholder is not None:
        # The peer, when it is back, still has a session to end.
        placeholder.provider_location = volume.provider_location
        placeholder.provider_auth = volume.provider_auth
    volume.replication_driver_data = None
    volume.provider_location = volume.provider_auth = None


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


@_transaction()
def lose(session, placeholder_id):
    """Write down that the node of a source never comes back.

    :returns: False if the source is not needed, or gone
    """
    placeholder, = _lock(session, placeholder_id)
    if placeholder is None or state(placeholder) not in (COMMITTED, LOST):
        return False
    placeholder.replication_driver_data = (
        record(placeholder).but(LOST).text())
    return True


@_transaction()
def fail(session, volume_id):
    """Let a volume of which data is lost not be attached any more.

    One that is in use stays so: Cinder detaches no other (begin_detaching in
    cinder/volume/api.py).

    :returns: False if it has another status
    """
    volume, = _lock(session, volume_id)
    if volume is None or volume.status != 'available':
        return False
    volume.status = 'error'
    return True


@_transaction()
def give_up_home(session, seen, peer):
    """Let a volume whose home is lost be deleted by another backend.

    It keeps the name of its logical volume, so that the backend has nothing
    to delete.

    :param seen: the volume as it was read before
    :param peer: :class:`dmclone_driver.peers.Peer` of that backend
    :returns: False if the volume has changed since
    """
    row, = _lock(session, seen.id)
    if row is None or row.replication_driver_data or (
            row.host, row._name_id) != (seen.host, seen._name_id):
        return False
    row.host = row.provider_id = peer.host
    row.cluster_name = None
    row.service_uuid = peer.service_uuid
    row.availability_zone = peer.availability_zone
    row.provider_location = row.provider_auth = row.provider_geometry = None
    row.status = 'error'
    # Cinder deletes no volume that it takes for one in a migration.
    row.migration_status = row.migration_status and 'error'
    session.query(models.Snapshot).filter_by(
        volume_id=row.id, deleted=False).update({'status': 'error'})
    return True


def destroy(context, placeholder_id):
    """Delete a placeholder whose logical volume is gone."""
    db_api.volume_destroy(context.elevated(), placeholder_id)
    steps.reached(Step.GONE, placeholder_id)
