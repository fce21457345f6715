# SPDX-License-Identifier: Apache-2.0
"""Cinder's database in memory, with the columns that the driver uses.

The transactions are the driver's, see TRANSACTIONS. Only the layers below are
replaced, since thousands of examples need thousands of rows per second. Each
transaction is one step; a crash can occur before or after it.
"""

import contextlib
import copy
import types

from cinder import exception
from cinder.volume import volume_utils

from dmclone_driver.move import copy_records
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.move import snapshot_rows

#: The modules that make rows, or search them within a transaction.
TRANSACTIONS = ('copy_records', 'deletion_records', 'follower_records',
                'records', 'revert_records', 'row_fields', 'row_repairs')
_NONE = dict.fromkeys((
    '_name_id', 'cluster_name', 'availability_zone', 'service_uuid',
    'provider_id', 'provider_location', 'provider_auth', 'provider_geometry',
    'migration_status', 'replication_driver_data', 'volume_type_id',
    'encryption_key_id', 'display_name', 'group_id', 'previous_status',
    'snapshot_id'))


class Stored:
    """A row of a table, as a transaction sees it."""

    #: Only used as a name in a query's filter.
    id = None

    def __init__(self, **fields):
        vars(self).update(_NONE, deleted=False, **fields)

    @property
    def name_id(self):
        return self._name_id or self.id

    def update(self, fields):
        """Set some fields, in a transaction."""
        vars(self).update(fields)


def changed(row, **fields):
    """Return a changed copy of a row."""
    row = copy.copy(row)
    vars(row).update(fields)
    return row


class Volume(Stored):
    """A volume like Cinder's object: a copy of the row when it was read."""

    volume_type = None

    def __init__(self, database, row_id):
        self._database, self.id = database, row_id
        self.refresh()

    def refresh(self):
        """Read the row again."""
        seen = self._database.seen()
        if self.id not in seen.rows:
            raise exception.VolumeNotFound(volume_id=self.id)
        vars(self).update(vars(seen.rows[self.id]))
        self.volume_attachment = [
            copy.copy(record) for record in seen.attachments.values()
            if record.volume_id == self.id]

    @property
    def name(self):
        return 'volume-' + self.name_id

    def __getitem__(self, key):
        return getattr(self, key)


class Snapshot:
    """A snapshot of a volume, like Cinder's object."""

    provider_id = None
    deleted = False
    status = 'available'
    #: What it was taken of, if its creation has succeeded.
    content = None
    #: Whether a revert to it was interrupted.
    merged = False

    def __init__(self, snapshot_id, volume):
        self.id, self.volume = snapshot_id, volume
        self.volume_id = volume.id
        self.name = 'snapshot-' + snapshot_id
        self.volume_name, self.volume_size = volume.name, volume.size

    def __getitem__(self, key):
        return getattr(self, key)


class Context:
    """An administrator's context."""

    user_id = project_id = 'user'
    session = None

    def elevated(self):
        return self


class Found(list):
    """The rows that a query finds."""

    def first(self):
        return self[0] if self else None


class Session:
    """The rows that one transaction sees and changes."""

    def __init__(self, rows, snapshots):
        self._rows = rows
        self.snapshots = snapshots
        self.changed = {}
        #: The hosts that snapshots get.
        self.hosts = {}
        self.info = {}

    def get(self, row_id):
        if row_id in self._rows and row_id not in self.changed:
            self.changed[row_id] = copy.copy(self._rows[row_id])
        return self.changed.get(row_id)

    def add(self, row):
        self.changed[row.id] = row

    def query(self, model):
        return self

    def filter_by(self, deleted=False, **wanted):
        # A transaction changes copies.
        return Found(self.get(row.id) for row in self._rows.values() if all(
            getattr(row, name) == value for name, value in wanted.items()))


class Database:
    """The tables, and replacements of Cinder's modules that use them."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.context = Context()
        self.rows = {}
        self.attachments = {}
        #: The snapshots, also deleted ones: {id: Snapshot}.
        self.snapshots = {}
        #: Ids of snapshots that are deleted on their nodes, too.
        self.gone = set()
        self.services = []
        #: {node: older tables that it reads, since its database lags}
        self.lagging = {}
        #: Called with the rows from before each change.
        self.stored = lambda before: None
        context = types.SimpleNamespace(
            get_admin_context=lambda: self.context)
        self.patches = {
            'move.lookups.objects': types.SimpleNamespace(
                Volume=types.SimpleNamespace(
                    get_by_id=lambda context, row_id: Volume(self, row_id)),
                VolumeList=types.SimpleNamespace(
                    get_all=lambda context, filters: self.find(
                        lambda row: all(getattr(row, name) == value for
                                        name, value in filters.items())))),
            'move.lookups._without_attachments': lambda context, host:
                self.find(lambda row: row.host.partition('#')[0] == host),
            'move.records.db_api': types.SimpleNamespace(
                volume_destroy=self.destroy),
            'move.transactions.db_api': types.SimpleNamespace(
                main_context_manager=types.SimpleNamespace(
                    writer=types.SimpleNamespace(using=self.transaction))),
            **dict.fromkeys(
                ('move.%s.models' % each for each in TRANSACTIONS),
                types.SimpleNamespace(Volume=Stored)),
            'move.transactions.lock': lambda session, *ids: [
                session.get(row_id) for row_id in ids],
            'move.snapshot_rows.stay': self._stay,
            'move.snapshot_rows.delete_later': lambda context, snapshot, host:
                self._step('delete later', self._delete_later, snapshot, host),
            'move.snapshot_rows.to_delete': self._to_delete,
            'move.snapshot_rows.deleted': lambda context, snapshot_id:
                self._step('deleted', self.forget, snapshot_id),
            'move.snapshot_rows.get': lambda context, snapshot_id:
                self.snapshots.get(snapshot_id),
            'move.snapshot_rows.is_as_read': lambda session, snapshot:
                snapshot.status == 'available' and not snapshot.deleted,
            'move.snapshot_rows.arrive': self._arrive,
            'move.snapshot_rows.go_back': self._go_back,
            'move.snapshot_rows.is_on': self._is_on,
            'move.copy_records.is_read': self._is_read,
            'move.snapshot_rows.is_deleted': lambda context, snapshot_id:
                snapshot_id in self.gone or
                self.snapshots[snapshot_id].deleted,
            'move.snapshot_rows.read_host': lambda context, snapshot:
                snapshot_rows.host_of(snapshot),
            'move.peers.objects': types.SimpleNamespace(
                ServiceList=types.SimpleNamespace(
                    get_all_by_binary=lambda context, name, disabled=None:
                    [] if disabled else self.services)),
            'move.row_repairs.altered': self._altered,
            'move.lookups.is_being_made': lambda context, volume_id: False,
            'move.lookups.moves_from': self._moves_from,
            'move.lookups.not_deleted': self._not_deleted,
            'move.backend.objects': types.SimpleNamespace(
                Service=types.SimpleNamespace(
                    get_by_args=lambda context, host, binary:
                    self._service(host))),
            'move.watcher.cinder_context': context,
            'driver.cinder_context': context,
            'driver.objects': types.SimpleNamespace(Volume=Volume,
                                                    Snapshot=Snapshot),
            'move.backend.context_of': lambda volume: self.context,
            'move.messages.tell_user': lambda *args, **kwargs: None}

    def _service(self, host):
        """Return a backend's service, which is never known to be down."""
        return next(service for service in self.services
                    if service.host == host)

    def seen(self):
        """Return the tables that the running node reads."""
        return self.lagging.get(self.cloud.here, self)

    def lag(self, node):
        """Make a node read the present rows of volumes from now on."""
        self.lagging[node] = types.SimpleNamespace(
            rows=dict(self.rows), attachments=self.attachments)

    def find(self, wanted):
        return [Volume(self, row_id)
                for row_id, row in self.seen().rows.items() if wanted(row)]

    def _altered(self, context, host):
        """Replace the query of row_repairs.altered; see there."""
        return [row.id for row in self.rows.values()
                if row.host.startswith(host) and not (
                    placeholders.is_copy(row)) and (
                    not (row.provider_id or host).startswith(host) or
                    placeholders.is_placeholder(row) and (
                        row.status != 'maintenance' or
                        not (row.migration_status or '').startswith(
                            row_fields.MIGRATION_STATUS)))]

    # Replacements of queries in lookups

    def _moves_from(self, context, host):
        rows = [row for row in self.seen().rows.values()
                if row.host.startswith(host)]
        return lookups.Moves(
            {row.id: lookups.prepared_move(row) for row in rows
             if lookups.prepared_move(row)},
            [row.id for row in rows
             if placeholders.state_of(row) == State.RELEASED])

    def _not_deleted(self, context, volume_ids):
        rows = self.seen().rows
        return {row_id for row_id in volume_ids if row_id in rows and
                not lookups.is_being_deleted(rows[row_id])}

    # Replacements of snapshot_rows

    def _stay(self, session, volume_id, host):
        """Part of a transaction: it sees what is stored if that is done."""
        for snapshot in self.snapshots.values():
            if snapshot.volume_id == volume_id and not (
                    snapshot.deleted or snapshot.provider_id):
                session.hosts[snapshot] = host

    @staticmethod
    def _arrive(session, snapshot_id, host):
        """Part of a transaction, as :meth:`_stay` is."""
        snapshot = session.snapshots.get(snapshot_id)
        if snapshot is None or snapshot.deleted or (
                snapshot.status == 'deleting' or
                snapshot.provider_id.startswith(snapshot_rows.TO_DELETE)):
            return False
        session.hosts[snapshot] = host
        return True

    @staticmethod
    def _go_back(session, snapshot_id, there, host):
        """Part of a transaction, as :meth:`_stay` is."""
        snapshot = session.snapshots.get(snapshot_id)
        recorded = snapshot.provider_id or '' if snapshot else ''
        if snapshot is None or (
                recorded.removeprefix(snapshot_rows.TO_DELETE) != there):
            return False
        session.hosts[snapshot] = (
            snapshot_rows.TO_DELETE if snapshot.deleted or
            recorded.startswith(snapshot_rows.TO_DELETE) else '') + host
        return True

    def _is_on(self, context, snapshot_id, host):
        snapshot = self.snapshots.get(snapshot_id)
        return snapshot is not None and not snapshot.deleted and (
            snapshot_rows._recorded(snapshot.provider_id) == host)

    def _is_read(self, context, snapshot_id, host):
        return any(
            row.snapshot_id == snapshot_id and row.provider_id and (
                copy_records.has_source(row)) and
            volume_utils.extract_host(row.provider_id) == host
            for row in self.rows.values())

    def forget(self, snapshot_id):
        """Forget a deleted snapshot whose logical volume is gone."""
        self.snapshots.pop(snapshot_id, None)
        self.gone.add(snapshot_id)

    @staticmethod
    def _delete_later(snapshot, host):
        snapshot.provider_id = snapshot_rows.TO_DELETE + host

    def _to_delete(self, context, host):
        return [snapshot.id for snapshot in self.snapshots.values()
                if snapshot.deleted and snapshot.provider_id.startswith(
                    snapshot_rows.TO_DELETE + host)]

    @contextlib.contextmanager
    def transaction(self, context):
        """Run a transaction of the driver atomically."""
        session = context.session = Session(self.rows, self.snapshots)
        yield
        if session.changed:
            self._step('transaction', self._store, session.changed,
                       session.hosts)

    def _store(self, changed, hosts=()):
        for snapshot in hosts:
            snapshot.provider_id = hosts[snapshot]
        before = dict(self.rows)
        self.rows.update(changed)
        for row in changed.values():
            if row.deleted:
                del self.rows[row.id]
        self.stored(before)

    def destroy(self, context, row_id):
        self._step('destroy', self.remove, row_id)

    def _step(self, what, function, *args):
        self.cloud.steps.run('%s: %s' % (self.cloud.here.name, what),
                             exception.VolumeDriverException('injected'),
                             function, *args)

    # Changes by Cinder's API, commands and requests

    def change(self, row_id, **fields):
        """Change a row like Cinder's API and commands."""
        self._store({row_id: changed(self.rows[row_id], **fields)})

    def remove(self, row_id):
        """Delete a row."""
        before = dict(self.rows)
        self.rows.pop(row_id, None)
        self.stored(before)

    def add(self, **fields):
        """Add a volume; returns it."""
        self.rows[fields['id']] = Stored(**fields)
        return Volume(self, fields['id'])

    def attach(self, record_id, volume_id):
        """Add an attachment without a connector; returns it."""
        self.attachments[record_id] = Stored(
            id=record_id, volume_id=volume_id, connector=None,
            attach_status='attaching')
        return self.attachments[record_id]
