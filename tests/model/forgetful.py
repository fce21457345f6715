# SPDX-License-Identifier: Apache-2.0
"""A history in which the rows of the database are restored to older ones.

Then only the model knows the state of the nodes. The driver cannot find the
volume, and must not lose it: each node has on its own disk what it was told
and what it has done.
"""

from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_fields
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from tests.model import cloud as cloud_module
from tests.model import database
from tests.model import history
from tests.model import life


# The fields of a volume without a move.
NOT_MOVING = dict.fromkeys(('replication_driver_data', 'provider_location',
                            'provider_auth'))


class Truth:
    """The state of the volume on the nodes, independent of the database."""

    def __init__(self, cloud, volume_id):
        self._cloud = cloud
        self._volume_id = volume_id
        #: The newest home's logical volume.
        self.home = volume_id
        #: {name_id of a destination: name_id of its source}
        self._sources = {}
        self._nodes = {volume_id: cloud.place(cloud.row(volume_id))}
        #: The name_ids that LVM's tags mark as opened, and as sealed.
        self._opened, self.told = set(), set()

    def stored(self, before, rows):
        """Update the state after a transaction.

        :param before: the rows before the transaction
        """
        for row in rows.values():
            if placeholders.state_of(row) == State.PREPARED and (
                    row.id not in self._sources):
                self._sources[row.id] = rows[self._volume_id].name_id
                self._nodes[row.id] = self._cloud.place(row)
        old, new = (table.get(self._volume_id) for table in (before, rows))
        if old and new and old.name_id == self.home and self.lv(new.name_id):
            self.home = new.name_id

    def lv(self, name_id):
        """Return a logical volume, or None."""
        return self._nodes[name_id].lvm.volumes.get(
            cloud_module.lv_path(name_id))

    def look(self):
        """Read the disks; returns the violations."""
        for name_id in self._nodes:
            tags = (self.lv(name_id) or {'tags': ()})['tags']
            for prefix, known in (
                    (logical_volumes.OPENED_TAG, self._opened),
                    (logical_volumes.SEALED_TAG, self.told)):
                if any(tag.startswith(prefix) for tag in tags):
                    known.add(name_id)
        while not self.lv(self.home) and self.home not in self._opened and (
                self.home in self._sources and
                self._sources[self.home] not in self.told):
            # No node was told of that switchover: nothing was written there.
            self.home = self._sources[self.home]
        return self._writers() + self._early_copies()

    def _below(self, name_id, when):
        source = self._sources[name_id]
        return self._cloud.content_of(source, self._nodes[source], when,
                                      self._below)

    def content(self, when):
        return self._cloud.content_of(self.home, self._nodes[self.home],
                                      when, self._below)

    def _is_writable(self, name_id):
        lv = self.lv(name_id)
        return (lv and logical_volumes.DELETED_TAG not in lv['tags'] and
                self._nodes[name_id].kernel.writable(
                    names_module.Names(name_id).path()))

    def _writers(self):
        """Return writable logical volumes that are not the home.

        Nodes that were not told of a switchover before the database lost it do
        not know it.
        """
        needed, name_id = {self.home}, self.home
        while name_id in self._sources:
            name_id = self._sources[name_id]
            needed.add(name_id)
        return ['%s on %s is a second writer' % (name_id, node.name)
                for name_id, node in self._nodes.items()
                if self._is_writable(name_id) and
                (name_id in self.told or name_id not in needed)]

    def _early_copies(self):
        return ['%s copies from %s, which is not sealed' % (name_id, source)
                for name_id, source in self._sources.items()
                if self._hydrates(name_id) and self._is_writable(source)]

    def _hydrates(self, name_id):
        device = self._nodes[name_id].kernel.get(
            names_module.Names(name_id).path())
        return device and device.clone and device.clone.hydration

    def is_at(self, row):
        """Return whether a row names the volume's home."""
        return row.name_id == self.home

    def rows_at_home(self, rows):
        """Return rows without the switchovers that no node knows."""
        rows = dict(rows)
        volume = rows[self._volume_id]
        while volume.name_id != self.home:
            placeholder = rows.pop(volume.name_id)
            volume = rows[self._volume_id] = database.changed(
                volume, **{
                    **{field: getattr(placeholder, field)
                       for field in row_fields.EXCHANGED}, **NOT_MOVING})
        return rows


class History(history.History):
    """A history in which the rows are restored to older ones once."""

    def __init__(self, patch):
        #: The newest rows while the database has older ones, or None.
        self.newest = None
        super().__init__(patch)
        self.truth = Truth(self.cloud, self.volume_id)
        #: The rows after each transaction.
        self.versions = [dict(self.cloud.database.rows)]
        self.cloud.database.stored = self._stored

    def _stored(self, before):
        rows = self.cloud.database.rows
        self.truth.stored(before, rows)
        if self.newest is None:
            self.versions.append(dict(rows))

    # Checks after each step

    def _look_at_all(self):
        found = self.truth.look()
        if self.newest is not None and found:
            raise life.Violation('; '.join(found))
        super()._look_at_all()

    def _look_at_rows(self):
        # Older rows do not describe the nodes.
        return [] if self.newest is not None else super()._look_at_rows()

    def content(self, when):
        if self.newest is not None:
            return self.truth.content(when)
        return super().content(when)

    # The database

    def forget(self, back):
        """Restore the rows to those of some transactions ago."""
        tables = self.cloud.database
        self.newest = tables.rows
        tables.rows = dict(self.versions[-1 - min(
            back, len(self.versions) - 1)])
        self.check()

    def is_there(self):
        """Return whether the volume's row exists."""
        return self.volume_id in self.cloud.database.rows

    def is_elsewhere(self):
        """Return whether the asked node can know that it is not the home."""
        row = self.is_there() and self.cloud.row(self.volume_id)
        return row and not self.truth.is_at(row) and (
            row.name_id in self.truth.told or not self.truth.lv(row.name_id))

    def delete_in_vain(self, fault=None):
        """Delete the volume on a node that is not its home."""
        home, row = self.home(), self.cloud.row(self.volume_id)
        if home.down:
            return
        with self.fault(fault):
            with self.cloud.on(home):
                home.driver.delete_volume(row)
            # There was no logical volume.
            self.cloud.database.remove(self.volume_id)

    def attach(self, node, fault=None):
        if self.newest is None:
            super().attach(node, fault)
        elif self.is_elsewhere():
            self.attach_in_vain(node, fault)

    def migrate(self, node, fault=None):
        if self.newest is None:
            super().migrate(node, fault)
        elif self.is_elsewhere():
            before = self.cloud.row(self.volume_id).name_id
            super().migrate(node, fault)
            if self.cloud.row(self.volume_id).name_id != before:
                raise life.Violation('%s is migrated, but is not the home'
                                     % before)

    def attach_in_vain(self, node, fault):
        record = self.cloud.database.attach(self.cloud.new_id(),
                                            self.volume_id)
        path = self.connect(node, fault)
        del self.cloud.database.attachments[record.id]
        if path:
            raise life.Violation('%s is attached, but is not the home'
                                 % path)

    def detach(self, node, fault=None):
        if self.is_there():
            super().detach(node, fault)

    def repair(self):
        """Restore the newest rows, and restart all services.

        The targets are restarted, too: an export may admit the initiator of an
        older row.
        """
        for node in self.nodes:
            node.stop()
            node.target.forget()
        tables, newest = self.cloud.database, self.newest
        row = tables.rows.get(self.volume_id)
        if row and self.truth.is_at(row) and (
                newest[self.volume_id].name_id != row.name_id):
            # The volume has moved since, from its home in both versions.
            newest = {**newest, **tables.rows}
        tables.rows = self.truth.rows_at_home(newest)
        self.newest = None
        for node in self.nodes:
            self.start(node)

    def converge(self):
        if self.newest is not None:
            self.repair()
        super().converge()
