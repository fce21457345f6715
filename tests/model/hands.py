# SPDX-License-Identifier: Apache-2.0
"""A history with operators, lost answers, and lagging databases."""

from cinder import exception as cinder_exception

from tests.model import life
from tests.model import snapshots

#: In GiB; more than an extent, and less than the disks of a node.
LARGEST = 4


class History(snapshots.History):
    """A history in which others than the driver change rows, too."""

    def __init__(self, patch):
        super().__init__(patch)
        #: Attachments that no service completes or deletes.
        self.leaked = []
        self.ending = False
        #: The hosts that the volume's row has had.
        self.hosts = [self.cloud.row(self.volume_id).host]
        self.cloud.database.stored = self._remember

    def _remember(self, before):
        row = self.cloud.database.rows.get(self.volume_id)
        if row and row.host == row.provider_id and (
                row.host not in self.hosts):
            self.hosts.append(row.host)

    def start(self, node, fault=None):
        """Start a service, which then reads the newest rows."""
        self.cloud.database.lagging.pop(node, None)
        super().start(node, fault)

    # Commands of Cinder

    def rows(self):
        """Return the ids of all rows, the volume's first."""
        return list(self.cloud.database.rows)

    def update_host(self, old, new):
        """Change rows like cinder-manage volume update_host."""
        for row in list(self.cloud.database.rows.values()):
            if row.host == old.pool:
                self.cloud.database.change(row.id, host=new.pool)

    def save_retype(self, host):
        """Save the host of a scheduler's late answer to a retype."""
        self.cloud.database.change(self.volume_id, host=host)

    def delete_placeholder(self, row_id, fault=None):
        """Delete a placeholder like VolumeManager.delete_volume."""
        node = self._node_of(row_id)
        if not node.down:
            with self.fault(fault), self.cloud.on(node):
                self._delete_row(node, row_id)

    def _node_of(self, row_id):
        row = self.cloud.database.rows[row_id]
        return self.cloud.by_host[row.host.partition('#')[0]]

    def _delete_row(self, node, row_id):
        row = self.cloud.row(row_id)
        try:
            node.driver.remove_export(self.cloud.context, row)
            node.driver.delete_volume(row)
        except cinder_exception.VolumeIsBusy:
            self._deletion_failed(row_id, 'available')
        except life.REFUSALS:
            self._deletion_failed(row_id, 'error_deleting')
        else:
            self.cloud.database.remove(row_id)

    def _deletion_failed(self, row_id, status):
        """Change or remove the row like VolumeManager._clear_db."""
        row = self.cloud.database.rows.get(row_id)
        if row and (row.migration_status or '').startswith('target:'):
            self.cloud.database.remove(row_id)
        elif row:
            self.cloud.database.change(row_id, status=status)

    # Requests of users at any time

    def extend(self, fault=None):
        home, row = self.home(), self.cloud.row(self.volume_id)
        if home.down or row.size >= LARGEST:
            return
        with self.fault(fault):
            with self.cloud.on(home):
                home.driver.extend_volume(row, row.size + 1)
            self.cloud.database.change(row.id, size=row.size + 1)

    # Attachments with a lost answer

    def leak(self, node, named, fault=None):
        """Attach, and lose the answer.

        :param named: whether the record has the connector
        """
        record = self.cloud.database.attach(self.cloud.new_id(),
                                            self.volume_id)
        record.attach_status = 'reserved'
        self.leaked.append(record)
        if self.connect(node, fault) and named:
            record.connector = node.connector
            record.attach_status = 'attaching'

    def delete_leaked(self, fault=None):
        """Delete an attachment with a lost answer, like an operator."""
        record, home = self.leaked.pop(0), self.home()
        if record.connector and not home.down:
            with self.fault(fault), self.cloud.on(home):
                home.driver.terminate_connection(
                    self.cloud.row(self.volume_id), record.connector)
        del self.cloud.database.attachments[record.id]

    def attach(self, node, fault=None):
        """Attach; the first attempt has to succeed if nothing prevents it."""
        wanted = not fault and self._can_attach()
        super().attach(node, fault)
        if wanted and node not in self.attached:
            raise life.Violation(
                'the volume cannot be attached on %s: %s' % (
                    node.name, self.refused))

    def _can_attach(self):
        """Return whether nothing prevents an attachment."""
        row = self.cloud.row(self.volume_id)
        return not (
            self.attached or self.guest or self.old_guest or
            self.late_writes or
            self.cloud.database.lagging or
            row.host != row.provider_id or any(
                node.down or node.kernel.metadata_fails or node.kernel.sick()
                for node in self.nodes))

    # The end

    def end_faults(self):
        self.cloud.database.lagging.clear()
        super().end_faults()

    def settle(self):
        for node in self.nodes:
            self.look_at_stats(node)
        row = self.cloud.row(self.volume_id)
        if row.host != row.provider_id:
            raise life.Violation(
                'the volume cannot be used: it is on %s, and in the database '
                'on %s' % (row.provider_id, row.host))
        super().settle()
        if self.leaked and not self.attached:
            # These are not deleted: after some time they count as leaked.
            self.cloud.pass_time(2000)
            super().settle()

    def begin_write(self, block):
        super().begin_write(block)
        if self.leaked and self.ending and self.write:
            # The first write switches the volume over.
            self.settle()

    def use(self):
        self.ending = True
        super().use()
