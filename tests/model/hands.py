# SPDX-License-Identifier: Apache-2.0
"""A history with operators, lost answers, and lagging databases."""

from cinder import exception as cinder_exception

from dmclone_driver.move import snapshot_rows
from tests.model import history

#: In GiB; more than an extent, and less than the disks of a node.
LARGEST = 4


class History(history.History):
    """A history in which others than the driver change rows, too."""

    def __init__(self, patch):
        super().__init__(patch)
        #: Attachments that no service completes or deletes.
        self.leaked = []
        self.ending = self.faults_ended = False
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

    def look_at_stats(self, node, fault=None):
        """Report a node's capacity, as the node does each minute."""
        with self.fault(fault), self.cloud.on(node):
            node.backend.correct_all(self.cloud.context)
            node.driver._snapshots.delete_later_ones(self.cloud.context)

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
        except history.REFUSALS:
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

    @property
    def snapshots(self):
        """The snapshots that the user has."""
        return [each for each in self.cloud.database.snapshots.values()
                if not each.deleted]

    def snapshot(self, fault=None):
        """Create a snapshot, and check its content."""
        home, row = self.home(), self.cloud.row(self.volume_id)
        if home.down:
            return
        snapshot = self.cloud.snapshot(row)
        self.cloud.database.snapshots[snapshot.id] = snapshot
        with self.fault(fault):
            with self.cloud.on(home):
                update = home.driver.create_snapshot(snapshot)
            snapshot.provider_id = update['provider_id']
            snapshot.content = self._content_of(snapshot)
            for block, value in enumerate(snapshot.content):
                if value not in self._expected(block):
                    self.found.append('a snapshot has %s instead of %s' % (
                        value, self.last[block]))
            self.check()

    def _content_of(self, snapshot):
        """Return the content of a snapshot on its node, None if gone."""
        node = self.cloud.by_host[snapshot_rows.backend_of(snapshot)]
        # LVM reserves names like that of a snapshot; Cinder adds a "_".
        name = '_' + snapshot.name
        if node.lvm.volumes.get('/dev/volumes/' + name, {}).get('invalid'):
            # The source has failed while old content had to be saved.
            return snapshot.content
        return self.cloud.snapshot_content(node, name)

    def delete_snapshot(self, fault=None):
        """Delete the oldest snapshot, wherever it is."""
        home, snapshot = self.home(), self.snapshots[0]
        if home.down:
            return
        # From now on its user does not need it.
        snapshot.content = None
        with self.fault(fault):
            snapshot.volume = self.cloud.row(self.volume_id)
            with self.cloud.on(home):
                home.driver.delete_snapshot(snapshot)
            snapshot.deleted = True
            if not (snapshot.provider_id or '').startswith(
                    snapshot_rows.TO_DELETE):
                del self.cloud.database.snapshots[snapshot.id]

    def _look_at_rows(self):
        return super()._look_at_rows() + [
            'snapshot %s has lost its content' % snapshot.id
            for snapshot in self.snapshots if snapshot.content and
            self._content_of(snapshot) != snapshot.content]

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
            raise history.Violation(
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
        self.faults_ended = True

    def _settle(self):
        for node in self.nodes:
            self.look_at_stats(node)
        row = self.cloud.row(self.volume_id)
        if row.host != row.provider_id:
            raise history.Violation(
                'the volume cannot be used: it is on %s, and in the database '
                'on %s' % (row.provider_id, row.host))
        super()._settle()
        if self.faults_ended:
            self._end_snapshots()
        if self.leaked and not self.attached:
            # These are not deleted: after some time they count as leaked.
            self.cloud.pass_time(2000)
            super()._settle()

    def _end_snapshots(self):
        """Delete the snapshots after the volume has moved away from them."""
        while self.snapshots:
            left = len(self.snapshots)
            self.delete_snapshot()
            if len(self.snapshots) == left:
                raise history.Violation('a snapshot cannot be deleted: %s'
                                        % self.refused)
        for _ in range(2):
            for node in self.nodes:
                self.look_at_stats(node)
                self.look(node)

    def begin_write(self, block):
        super().begin_write(block)
        if self.leaked and self.ending and self.write:
            # The first write switches the volume over.
            self._settle()

    def _use(self):
        self.ending = True
        super()._use()
