# SPDX-License-Identifier: Apache-2.0
"""A history with snapshots, and with volumes made from them.

A snapshot always has the content of its moment, wherever its volume is. A
volume that is made from it, or from a volume, has that content and its own
writes.
"""

import contextlib
from unittest import mock

from cinder import exception as cinder_exception

from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node import logical_volumes
from tests.model import history
from tests.model import life
from tests.model.life import Violation
from tests.model import machine


class Copy(life.Life):
    """A volume that is a clone from its first second."""

    def __init__(self, whole, node, size):
        """Create the row of the volume.

        :param whole: the :class:`History` that it is part of
        """
        self.usable = False
        super().__init__(whole, whole.cloud.new_id())
        self.row = self.cloud.database.add(
            id=self.volume_id, host=node.pool, size=size, status='creating',
            attach_status='detached', launched_at=None, use_quota=True,
            user_id='user', project_id='user', multiattach=False)

    def accept(self):
        if self.usable:
            super().accept()

    def compare(self):
        if self.usable:
            super().compare()

    def check_after_loss(self):
        if self.usable:
            super().check_after_loss()

    def created(self, update, possible):
        """Begin to check the content.

        :param update: of the row, by the driver
        :param possible: the possible contents of each block
        :raises: Violation
        """
        self.cloud.database.change(
            self.volume_id, status='available', launched_at='then', **update)
        self.usable = True
        self.accept()
        for value, expected in zip(self.last, possible, strict=True):
            if value not in expected:
                raise Violation('a new volume has %s instead of %s' % (
                    value, ' or '.join(sorted(expected))))


class History(history.History):
    """A history in which there are also snapshots and copies."""

    @property
    def snapshots(self):
        """The snapshots that the user has."""
        return [each for each in self.cloud.database.snapshots.values()
                if not each.deleted]

    @property
    def copies(self):
        """The other volumes, also those whose creation has failed."""
        return self.lives[1:]

    @property
    def usable(self):
        """The volumes that can be used."""
        return [self, *(each for each in self.copies if each.usable)]

    def snapshots_of(self, each):
        """Return the snapshots that the user has of a volume."""
        return [snapshot for snapshot in self.snapshots
                if snapshot.volume_id == each.volume_id]

    def _possible(self, each):
        return [each.expected(block) for block in range(machine.LENGTH)]

    # Snapshots

    def snapshot(self, each, fault=None):
        """Create a snapshot of a volume, and check its content."""
        home, row = each.home(), self.cloud.row(each.volume_id)
        if home.down:
            return
        snapshot = self.cloud.snapshot(row)
        self.cloud.database.snapshots[snapshot.id] = snapshot
        with self.fault(fault):
            with self.cloud.on(home):
                update = home.driver.create_snapshot(snapshot)
            snapshot.provider_id = update['provider_id']
            snapshot.content = self._content_of(snapshot)
            for value, expected in zip(snapshot.content,
                                       self._possible(each), strict=True):
                if value not in expected:
                    self.found.append('a snapshot has %s instead of %s' % (
                        value, ' or '.join(sorted(expected))))
            self.check()

    def _content_of(self, snapshot):
        """Return the content of a snapshot on its node, None if gone."""
        return self.cloud.snapshot_content(
            self.cloud.by_host[snapshot_rows.backend_of(snapshot)],
            snapshot.id)

    def delete_snapshot(self, snapshot, fault=None):
        """Delete a snapshot, wherever it is."""
        row = self.cloud.row(snapshot.volume_id)
        home = self.cloud.by_host[lookups.backend_of(row)]
        if home.down:
            return
        # From now on its user does not need it.
        snapshot.content, snapshot.status = None, 'deleting'
        with self.fault(fault):
            snapshot.volume = row
            with self.cloud.on(home):
                home.driver.delete_snapshot(snapshot)
            snapshot.deleted = True
            if not (snapshot.provider_id or '').startswith(
                    snapshot_rows.TO_DELETE):
                self.cloud.database.forget(snapshot.id)

    def _look_at_rows(self):
        return super()._look_at_rows() + [
            'snapshot %s has lost its content' % snapshot.id
            for snapshot in self.snapshots if snapshot.content and
            self._content_of(snapshot) not in (
                # While LVM merges it, it is gone.
                snapshot.content, None if snapshot.merged else
                snapshot.content)]

    def look_at_stats(self, node, fault=None):
        """Report a node's capacity, as the node does each minute."""
        with self.fault(fault), self.cloud.on(node):
            node.backend.correct_all(self.cloud.context)
            moves = lookups.moves_from(self.cloud.context, node.host)
            node.prepared_moves.watch(moves.prepared)
            node.released_sources.find_released(moves.released)
            node.parts.snapshots.delete_later_ones(self.cloud.context)

    # Volumes from snapshots and volumes

    @contextlib.contextmanager
    def _new(self, node, size, fault):
        """Create the row of a volume, and run its creation on a node."""
        copy = Copy(self, node, size)
        self.lives.append(copy)
        with self.fault(fault), self.cloud.on(node):
            yield copy

    def copy(self, snapshot, node, more, fault=None):
        """Create a volume from a snapshot.

        :param more: the GiB by which it is larger
        """
        if node.down:
            return
        with self._new(node, snapshot.volume_size + more, fault) as copy:
            copy.created(
                node.driver.create_volume_from_snapshot(copy.row, snapshot),
                [{value} for value in snapshot.content])

    def clone(self, each, more, fault=None):
        """Create a clone of a volume, on its node."""
        home, row = each.home(), self.cloud.row(each.volume_id)
        if home.down:
            return
        with self._new(home, row.size + more, fault) as copy:
            copy.created(home.driver.create_cloned_volume(copy.row, row),
                         self._possible(each))

    def clone_of_peer(self, each, node, fault=None):
        """Clone a volume of a peer, as for the image cache."""
        home = each.home()
        if home is node or node.down:
            return
        row = self.cloud.row(each.volume_id)
        with self._new(node, row.size, fault) as copy:
            node.parts.copies.create(
                self.cloud.context, copy.row, self.cloud.new_id(), row.host,
                '%dg' % row.size, origin_id=row.id)
            copy.created({}, self._possible(each))

    def delete_copy(self, copy, fault=None, stays=False):
        """Delete a volume that is not attached and has no snapshot.

        :param stays: whether Cinder fails to delete the row
        """
        home = copy.home()
        if home.down:
            return
        self.cloud.database.change(copy.volume_id, status='deleting')
        row = self.cloud.row(copy.volume_id)
        used, copy.usable = copy.usable, False
        with self.fault(fault):
            try:
                with self.cloud.on(home):
                    home.driver.remove_export(self.cloud.context, row)
                    home.driver.delete_volume(row)
            except cinder_exception.VolumeIsBusy as busy:
                # Cinder makes it available again.
                self.refused, copy.usable = busy, used
                self.cloud.database.change(copy.volume_id,
                                           status='available')
            else:
                if not stays:
                    self.lives.remove(copy)
                    self.cloud.database.remove(copy.volume_id)

    def is_deferred(self, copy):
        """Return whether a volume's deletion has begun, and must wait.

        When it need not wait any longer, its data may be partly removed.
        """
        row = self.cloud.row(copy.volume_id)
        if copy.usable or row.status != 'deleting' or (
                placeholders.derived_id(row.name_id, 'deleted') not in
                self.cloud.database.rows):
            return False
        volume = copy.home().lvm.volumes.get('/dev/volumes/' + row.name)
        return volume is not None and (
            logical_volumes.DELETED_TAG not in volume['tags'])

    def reset(self, copy):
        """Make a volume available again, as operators do."""
        self.cloud.database.change(copy.volume_id, status='available')
        copy.usable = True
        # The power may have been cut since.
        copy.check_after_loss()
        self.check()

    # Other requests for volumes that are not in use

    def revert(self, each, fault=None, room=True):
        """Revert a volume to its latest snapshot.

        :param room: whether there is room for a clone of it
        """
        home, row = each.home(), self.cloud.row(each.volume_id)
        snapshot = self.snapshots_of(each)[-1]
        if home.down or row.size != snapshot.volume_size:
            return
        if room and not self._may_merge(home, row, snapshot):
            self._revert_at_once(each, home, row, snapshot, fault)
            return
        with mock.patch('dmclone_driver.reverts.Reverts._has_room',
                        return_value=False):
            self._revert_slowly(each, home, row, snapshot, fault)

    @staticmethod
    def _may_merge(home, row, snapshot):
        """Whether the snapshot is LVM's, of the volume as it is now."""
        found = home.lvm.volumes.get('/dev/volumes/_' + snapshot.name)
        return found is not None and (found['origin'] or '').endswith(
            row.name)

    def _revert_at_once(self, each, home, row, snapshot, fault):
        """Revert a volume: it has all of the old content, or of the new."""
        each.reverted = row.name_id, snapshot.content
        with self.fault(fault), self.cloud.on(home):
            home.driver.revert_to_snapshot(self.cloud.context, row, snapshot)
            if each.reverted:
                raise Violation('a volume is not reverted')
        each.reverted = None

    def _revert_slowly(self, each, home, row, snapshot, fault):
        """Revert a volume by a copy, or by LVM: it may have parts of both."""
        each.copied = dict(enumerate(snapshot.content))
        snapshot.merged, done = True, False
        with self.fault(fault), self.cloud.on(home):
            try:
                home.driver.revert_to_snapshot(self.cloud.context, row,
                                               snapshot)
            except NotImplementedError:
                self._revert_by_copy(each, home, row, snapshot)
                # Cinder does not flush.
                for block, value in each.copied.items():
                    each.possible[block].add(value)
                each.last = list(snapshot.content)
                snapshot.merged, done = False, True
            else:
                done = True
                each.last = list(snapshot.content)
                each.possible = [{value} for value in each.last]
                snapshot.merged = False
        if not done:
            self._accept_any_copied(each)
        each.copied = {}
        self.check()

    @staticmethod
    def _accept_any_copied(each):
        """Accept what an interrupted revert has written."""
        each.last = each.content('now')
        for block, value in each.copied.items():
            each.possible[block].add(value)

    def _revert_by_copy(self, each, home, row, snapshot):
        """Revert like VolumeManager._revert_to_snapshot_generic."""
        temporary = Copy(self, home, row.size)
        self.lives.append(temporary)
        temporary.created(home.driver.create_volume_from_snapshot(
            temporary.row, snapshot), [{value} for value in snapshot.content])
        self.cloud.copy_volume(
            home.driver.local_path(temporary.row),
            home.driver.local_path(self.cloud.row(each.volume_id)))
        temporary.usable = False
        home.driver.delete_volume(self.cloud.row(temporary.volume_id))
        self.lives.remove(temporary)
        self.cloud.database.remove(temporary.volume_id)

    def relocate(self, each, node, fault=None):
        """Move a volume with dmclone-move."""
        home = each.home()
        if not home.down and home.server:
            with self.fault(fault), self.cloud.on(home):
                home.server.endpoint.move(self.cloud.context, each.volume_id,
                                          node.name)

    def take_along(self, snapshot, node, fault=None):
        """Have a snapshot follow to a node, as dmclone-move does."""
        if not node.down and node.server:
            with self.fault(fault), self.cloud.on(node):
                node.server.endpoint.take_along(self.cloud.context,
                                                snapshot.id)

    # The end

    def end_others(self):
        """Check that all copies are complete; delete everything."""
        self._check_convergence()
        for each in self.copies:
            if each.usable:
                each.use()
        for snapshot in self.snapshots:
            self.delete_snapshot(snapshot)
            if not snapshot.deleted:
                raise Violation('a snapshot cannot be deleted: %s'
                                % self.refused)
        # One whose creation has failed may still read another one.
        for copy in sorted(self.copies, key=lambda each: each.usable):
            self.delete_copy(copy)
            if copy in self.lives:
                raise Violation('a volume cannot be deleted: %s'
                                % self.refused)
        for _ in range(3):
            for node in self.nodes:
                self.look_at_stats(node)
                self.look(node)

    def _is_deleting(self, snapshot_id):
        snapshot = self.cloud.database.snapshots.get(snapshot_id)
        return snapshot is not None and snapshot.status == 'deleting'

    def _check_convergence(self):
        unusable = {each.volume_id for each in self.copies
                    if not each.usable}
        # Those of followed snapshots, or of snapshots that are being deleted.
        unusable |= {row.id for row in self.cloud.placeholders() if
                     placeholders.state_of(row) == State.FOLLOWED or
                     placeholders.state_of(row) == State.FOLLOWING and
                     self._is_deleting(row.snapshot_id)}
        for row in self.cloud.placeholders():
            if lookups.guarding_id(row) not in unusable:
                raise Violation('volume %s is not complete' %
                                lookups.guarding_id(row))
        for snapshot in self.snapshots:
            # The start of its node has taken it again.
            snapshot.merged = False
        self.check()
        for row in self.cloud.rows():
            if row.migration_status in lookups.MIGRATES:
                raise Violation('volume %s migrates for ever' % row.id)


class ThinHistory(History):
    """The same with thin volumes, but on one node."""

    KINDS = ('thin', 'default', 'thin')

    def fill_pool(self, node, full):
        """Have a pool, if it is there, leave copies no room, or leave it."""
        pool = node.lvm.volumes.get('/dev/volumes/volumes-pool')
        if pool:
            pool['metadata'] = '95.00' if full else '0.00'

    def end_faults(self):
        """End all faults: there is room."""
        super().end_faults()
        for node in self.nodes:
            self.fill_pool(node, False)


class SparseHistory(ThinHistory):
    """The same with thin volumes on two nodes, which have gaps."""

    KINDS = ('thin', 'thin', 'default')
