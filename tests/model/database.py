# SPDX-License-Identifier: Apache-2.0
"""Cinder's database in memory, as far as the driver reads and writes it.

The transactions are the driver's own (dmclone_driver.identity); only what is
below them is replaced, since ten thousand examples need thousands of rows a
second. Each transaction is one step, before or after which a crash can come.
"""

import contextlib
import copy
import types

from cinder import exception

from dmclone_driver import identity

_NONE = dict.fromkeys((
    '_name_id', 'cluster_name', 'availability_zone', 'service_uuid',
    'provider_id', 'provider_location', 'provider_auth', 'provider_geometry',
    'migration_status', 'replication_driver_data', 'volume_type_id',
    'encryption_key_id', 'display_name', 'group_id'))


class Stored:
    """A row of the table, as a transaction sees it."""

    #: Only named in a query's filter.
    id = None

    def __init__(self, **fields):
        vars(self).update(_NONE, deleted=False, **fields)

    @property
    def name_id(self):
        return self._name_id or self.id


def changed(row, **fields):
    """Return a changed copy of a row."""
    row = copy.copy(row)
    vars(row).update(fields)
    return row


class Volume(Stored):
    """A volume as Cinder's objects show it: a copy from when it was read."""

    volume_type = None

    def __init__(self, database, row_id):
        self._database, self.id = database, row_id
        self.refresh()

    def refresh(self):
        """Read it again."""
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
    """A snapshot of a volume, as Cinder's objects show it."""

    def __init__(self, snapshot_id, volume):
        self.id, self.volume = snapshot_id, volume
        self.name = 'snapshot-' + snapshot_id
        self.volume_name, self.volume_size = volume.name, volume.size

    def __getitem__(self, key):
        return getattr(self, key)


class Context:
    """An administrator's."""

    user_id = project_id = 'user'
    session = None

    def elevated(self):
        return self


class Session:
    """One transaction's view."""

    def __init__(self, rows):
        self._rows = rows
        self.changed = {}

    def get(self, row_id):
        if row_id in self._rows and row_id not in self.changed:
            self.changed[row_id] = copy.copy(self._rows[row_id])
        return self.changed.get(row_id)

    def add(self, row):
        self.changed[row.id] = row

    def query(self, model):
        return self

    def filter_by(self, deleted, **wanted):
        return [row for row in self._rows.values() if all(
            getattr(row, name) == value for name, value in wanted.items())]


class Database:
    """The tables, and stand-ins for the modules of Cinder that use them."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.context = Context()
        self.rows = {}
        self.attachments = {}
        self.services = []
        #: What nodes read that lag behind, {node: older tables}.
        self.lagging = {}
        #: Called with the rows from before each change.
        self.stored = lambda before: None
        context = types.SimpleNamespace(
            get_admin_context=lambda: self.context)
        self.patches = {
            'identity.objects': types.SimpleNamespace(
                Volume=types.SimpleNamespace(
                    get_by_id=lambda context, row_id: Volume(self, row_id)),
                VolumeList=types.SimpleNamespace(
                    get_all_by_host=lambda context, host: self.find(
                        lambda row: row.host.partition('#')[0] == host),
                    get_all=lambda context, filters: self.find(
                        lambda row: all(getattr(row, name) == value for
                                        name, value in filters.items())))),
            'identity.db_api': types.SimpleNamespace(
                volume_destroy=self.destroy,
                main_context_manager=types.SimpleNamespace(
                    writer=types.SimpleNamespace(using=self.transaction))),
            'identity.models': types.SimpleNamespace(Volume=Stored),
            'identity._lock': lambda session, *ids: [
                session.get(row_id) for row_id in ids],
            'peers.objects': types.SimpleNamespace(
                ServiceList=types.SimpleNamespace(
                    get_all_by_binary=lambda context, name: self.services)),
            'identity.altered': self._altered,
            'identity.is_being_made': lambda context, volume_id: False,
            'backend.objects': types.SimpleNamespace(
                Service=types.SimpleNamespace(
                    get_by_args=lambda context, host, binary:
                    types.SimpleNamespace(is_up=True))),
            'hydration.cinder_context': context,
            'driver.cinder_context': context,
            'driver.objects': types.SimpleNamespace(Volume=Volume,
                                                    Snapshot=Snapshot),
            'backend.context_of': lambda volume: self.context,
            'backend.tell_user': lambda *args, **kwargs: None}

    def seen(self):
        """Return the tables as the node reads them whose code runs."""
        return self.lagging.get(self.cloud.here, self)

    def lag(self, node):
        """Let a node read from now on what rows of volumes say now."""
        self.lagging[node] = types.SimpleNamespace(
            rows=dict(self.rows), attachments=self.attachments)

    def find(self, wanted):
        return [Volume(self, row_id)
                for row_id, row in self.seen().rows.items() if wanted(row)]

    def _altered(self, context, host):
        """Stand for the query; see identity.altered."""
        return [row.id for row in self.rows.values()
                if row.host.startswith(host) and not (
                    identity.is_copy(row)) and (
                    not (row.provider_id or host).startswith(host) or
                    identity.is_placeholder(row) and (
                        row.status != 'maintenance' or
                        not (row.migration_status or '').startswith(
                            identity.MIGRATION_STATUS)))]

    @contextlib.contextmanager
    def transaction(self, context):
        """One of the driver's; it happens as a whole, or not."""
        session = context.session = Session(self.rows)
        yield
        if session.changed:
            self._step('transaction', self._store, session.changed)

    def _store(self, changed):
        before = dict(self.rows)
        self.rows.update(changed)
        self.stored(before)

    def destroy(self, context, row_id):
        self._step('destroy', self.remove, row_id)

    def _step(self, what, function, *args):
        self.cloud.steps.run('%s: %s' % (self.cloud.here.name, what),
                             exception.VolumeDriverException('injected'),
                             function, *args)

    # What requests leave

    def change(self, row_id, **fields):
        """Change a row, as Cinder's API and commands do."""
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
