# SPDX-License-Identifier: Apache-2.0
"""Start-up: rebuild the devices that a reboot or a crash has removed.

Nothing here waits for a peer, and one broken volume stops neither the
service nor the others. Work that needs a peer is left to :mod:`catching_up`,
and to the watcher, which finds it in the kernel.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc

from cinder import context as cinder_context
from cinder import objects
from cinder.objects import fields
from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.activation import Activation
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.builder import Builder
from dmclone_driver.move.completion import Completion
from dmclone_driver.move.destination import Destination
from dmclone_driver.move.interrupted_copies import InterruptedCopies
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import lost_metadata
from dmclone_driver.move.maps import Maps
from dmclone_driver.move.marks import Marks
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move.prepared_moves import PreparedMoves
from dmclone_driver.move import records
from dmclone_driver.move.released_sources import ReleasedSources
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.source import Source
from dmclone_driver.move import stale_exports
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import handles
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.pool_activation import PoolActivation
from dmclone_driver.node import thin_pools

LOG = logging.getLogger(__name__)

STATUS = fields.VolumeStatus


class Recovery:
    """Brings the kernel in line with LVM and the database."""

    def __init__(self, backend: Backend, source: Source,
                 released_sources: ReleasedSources,
                 destination: Destination, builder: Builder,
                 activation: Activation, prepared_moves: PreparedMoves,
                 snapshots: Snapshots, completion: Completion, marks: Marks,
                 maps: Maps,
                 end_export: collections.abc.Callable[
                     [cinder_context.RequestContext, objects.Volume], None]
                 ) -> None:
        """Keep what recovers.

        :param end_export: removes the target of Cinder's target driver
        """
        self._backend = backend
        self._source = source
        self._released_sources = released_sources
        self._destination = destination
        self._builder = builder
        self._activation = activation
        self._prepared_moves = prepared_moves
        self._snapshots = snapshots
        self._completion = completion
        self._marks = marks
        self._maps = maps
        self._end_export = end_export
        self._jobs = backend.jobs
        #: Rows whose recovery or cleanup is not done yet, {row id: row}.
        self.failed = self._jobs.kind('recover', self.retry)
        #: Ids of the rows here whose handles were missing at the start, as
        #: after a boot of the node.
        self.built: frozenset[str] = frozenset()
        #: The rows here at the start.
        self.rows: list[objects.Volume] = []
        self._unfinished: list[logical_volumes.LogicalVolume] = []
        #: The names of the thin pools that have volumes.
        self._pools: set[str] = set()
        self._pool_activation = PoolActivation(backend.jobs.pauses.now)
        self._copies = InterruptedCopies(backend, snapshots)
        #: Ids of prepared destinations whose metadata was lost as the node
        #: went down.
        self._without_metadata: set[str] = set()

    def run(self, context: cinder_context.RequestContext) -> None:
        """Rebuild all handles of this backend."""
        volumes = {lv.name: lv for lv in logical_volumes.find_all(
            self._backend.group.vg_name)}
        self._pools = {
            lv.pool for lv in volumes.values()
            if lv.thin and names_module.of_logical_volume(lv.name)}
        pool = thin_pools.name_of(self._backend.group.vg_name)
        if self._backend.thin and pool in self._pools:
            # That was tried when the group was opened, and may take long.
            self._pool_activation.note_inactive(
                self._backend.group.vg_name, pool)
        self._copies.find(volumes.values())
        self._unfinished = [lv for lv in volumes.values() if lv.unfinished]
        for lv in volumes.values():
            names = names_module.of_logical_volume(lv.name)
            if names and lv.marked is not None:
                self._marks.remember(names, lv.marked)
            if lv.kept or lv.has_taken or lv.left_marks:
                self._snapshots.origin_may_go(lv.name)
        rows = self._rows_here(context, volumes)
        # One query of the kernel for all volumes.
        live = _live()
        missing = [row for row in rows
                   if Names(row.name_id).of(HANDLE) not in live]
        self.built = frozenset(row.id for row in missing)
        plain = {Names(row.name_id): volumes[row.name] for row in missing
                 if row.name in volumes and _is_plain(row, volumes[row.name])}
        if plain:
            live = self._create_handles(plain)
        for row in rows:
            try:
                if placeholders.state_of(row) in placeholders.OF_FOLLOWERS:
                    self._jobs.add(jobs.SETTLE_FOLLOWER, Names(row.name_id))
                self._recover(context, row, volumes.get(row.name), live)
            except Exception:
                self.failed[row.id] = row
                LOG.exception('Recovering volume %s failed; it is tried '
                              'again.', lookups.guarding_id(row))
        self.rows = list(rows)
        self._jobs.start('start', self._resume_local, context)

    @staticmethod
    def _create_handles(
            volumes: dict[Names, logical_volumes.LogicalVolume]) -> set[str]:
        """Create the handles of volumes that need nothing else.

        After a boot these are nearly all. One process does it for hundreds;
        what it leaves is done one by one.

        :returns: the names of all live devices
        """
        try:
            handles.create_linear(volumes)
        except processutils.ProcessExecutionError as error:
            LOG.warning('Creating the handles of %(number)d volumes at once '
                        'failed; those that are missing are created one by '
                        'one. The reason: %(error)s', {
                            'number': len(volumes),
                            'error': error.stderr.strip()})
        return _live()

    def _rows_here(self, context: cinder_context.RequestContext,
                   volumes: dict[str, logical_volumes.LogicalVolume]
                   ) -> list[objects.Volume]:
        """Return the rows of this backend's logical volumes.

        :param volumes: all logical volumes by name
        """
        rows = []
        for row in lookups.on_host(context, self._backend.host):
            try:
                self._backend.correct(context, row)
            except Exception:
                LOG.exception('Correcting the host of volume %s failed; it '
                              'is tried again.', lookups.guarding_id(row))
            rows.append(row)
        known = {row.name for row in rows}
        for name, lv in volumes.items():
            names = names_module.of_logical_volume(name)
            if names and name != names.metadata and name not in known:
                row = self._find_stray(context, names, lv)
                rows += [] if row is None else [row]
        return rows

    def _find_stray(
            self, context: cinder_context.RequestContext, names: Names,
            lv: logical_volumes.LogicalVolume) -> objects.Volume | None:
        """Return the row of a logical volume that no row here points to."""
        if lv.kept:
            # It is no home, even if the volume has one of that name on a
            # backend of another driver.
            return None
        row = lookups.owner_row(context, names.name_id)
        if row is not None:
            self._backend.correct(context, row)
        if row is not None and (self._backend.host in (
                lookups.backend_of(row), lookups.recorded_backend(row))):
            return row
        LOG.error('Logical volume %(lv)s is kept, but the database says that '
                  'it is not in use here. Its tags: %(tags)s. This node may '
                  'have been declared lost, or the database may have been '
                  'restored, or have lost its last transactions; run '
                  'dmclone-reconcile for details.',
                  {'lv': lv.path, 'tags': ', '.join(sorted(lv.tags)) or '-'})
        return None

    def _recover(self, context: cinder_context.RequestContext,
                 row: objects.Volume,
                 lv: logical_volumes.LogicalVolume | None,
                 live: collections.abc.Container[str] = ()) -> None:
        """Rebuild the devices of a volume, source or destination.

        :param live: names of devices that need not be looked for
        """
        if lv is None:
            return
        row = self._undeleted(context, row) or row
        names = Names(row.name_id)
        local = LocalVolume(names)
        self._pool_activation.activate(lv)
        self._report_contradiction(row, lv)
        if _prepared_here(row) and not lv.opened:
            if not local.exists() and not (
                    lv.clone and self._backend.metadata.find(names)):
                self._without_metadata.add(row.id)
        elif lv.deleted or _is_unfinished_follower(row, lv) or (
                placeholders.state_of(row) == State.REVERTING):
            pass
        elif lv.tagged(logical_volumes.METADATA_TAG) is not None:
            self._recover_clone(context, row, names, lv)
        elif _may_be_copy(row, lv) and lookups.placeholder(
                context, row.name_id) is not None:
            LOG.error('Volume %(volume)s has no device: its creation from a '
                      'snapshot was interrupted before its logical volume '
                      '%(lv)s became a clone. Delete it.',
                      {'volume': row.id, 'lv': lv.path})
        else:
            self._snapshots.take_again(lv)
            if names.of(HANDLE) not in live:
                local.ensure_linear(
                    lv, read_only=lv.sealed or _is_source(row) or
                    placeholders.state_of(row) in placeholders.OF_FOLLOWERS)
            if lv.tagged(logical_volumes.COMPLETE_TAG) is not None:
                self._completion.unfinished.add(names)
        if lookups.prepared_move(row):
            self._prepared_moves.known[row.id] = lookups.prepared_move(row)
        if placeholders.state_of(row) in (State.SWITCHED, State.LOST):
            self._source.close(names, row.id, flush=False)
        elif lv.sealed:
            local.seal(flush=False)

    @staticmethod
    def _undeleted(context: cinder_context.RequestContext,
                   row: objects.Volume) -> objects.Volume | None:
        """Return the volume of a placeholder whose deletion may not happen.

        Its state may be reset, and then it has to take writes.
        """
        if not (placeholders.is_placeholder(row) and
                Placeholder(row).of_deleted):
            return None
        volume = lookups.get(context, lookups.guarding_id(row))
        return (volume if volume is not None and
                volume.name_id == row.name_id else None)

    def _report_contradiction(self, row: objects.Volume,
                              lv: logical_volumes.LogicalVolume) -> None:
        """Log where the database and this node's LVM tags differ."""
        state = placeholders.state_of(row)
        if state == State.LOST:
            LOG.error('Source %(lv)s of volume %(volume)s is kept, but not '
                      'served: this node was declared lost.',
                      {'lv': lv.path, 'volume': lookups.guarding_id(row)})
        elif _prepared_here(row) and lv.opened:
            LOG.error('Move %(id)s of volume %(volume)s is %(state)s in '
                      'the database, but the volume was used here already. '
                      'Logical volume %(lv)s is kept. The database was '
                      'restored, or has lost its last transactions; run '
                      'dmclone-reconcile for details.',
                      {'id': row.id, 'volume': lookups.guarding_id(row),
                       'state': state, 'lv': lv.path})
        elif lv.sealed and state is None:
            LOG.error('Volume %(volume)s is here according to the database, '
                      'but it has moved away from logical volume %(lv)s, '
                      'which is kept and not written. The database was '
                      'restored, or has lost its last transactions; run '
                      'dmclone-reconcile for details.',
                      {'volume': row.id, 'lv': lv.path})

    def _recover_clone(self, context: cinder_context.RequestContext,
                       row: objects.Volume, names: Names,
                       lv: logical_volumes.LogicalVolume) -> None:
        try:
            self._builder.rebuild(names, passive=True)
        except exception.MetadataUnusable:
            if placeholders.state_of(row) != State.RELEASED:
                lost_metadata.set_error(context, row)
            # Otherwise the volume does not need it.
            raise
        lost_metadata.clear_error(context, row)
        clone = dmsetup.clones(names.of(CLONE)).get(names.of(CLONE))
        if clone is None:
            # Interrupted between the linear handle and the tag for it.
            LocalVolume(names).require_linear()
            logical_volumes.retag(lv, logical_volumes.METADATA_TAG,
                                  logical_volumes.COMPLETE_TAG)
            self._completion.unfinished.add(names)
        elif sysfs.is_suspended(names.of(GATE)) and (
                clone.hydrated or not clone.healthy or _is_source(row)):
            # Before the first write the gate may never have been open: then
            # the watcher asks the old home to seal first.
            self._activation.open(
                names, lookups.guarding_id(row), tagged=lv.opened,
                writable=not (lv.sealed or _is_source(row)))

    def _resume_local(self, context: cinder_context.RequestContext) -> None:
        """Do the slow work that needs neither peers nor a message bus."""
        self._backend.warm_up()
        try:
            self._maps.release_left(self._pools)
        except Exception:
            LOG.exception('Releasing the copy of the metadata of a thin '
                          'pool failed; the next start of the service tries '
                          'it again.')
        try:
            stale_exports.remove(context, self._backend, self._source)
        except Exception:
            LOG.exception('Removing the exports that no peer needs failed; '
                          'the next start of the service tries it again.')
        self.resume(context, self._not_idle(context))
        self._snapshots.delete_unfinished(context, self._unfinished)
        self._copies.start_to_remove(context)

    def _not_idle(self, context: cinder_context.RequestContext
                  ) -> list[objects.Volume]:
        """Return the rows, of those at the start, that have to be resumed.

        Volumes without a move need neither a lock nor a query of their own.
        """
        try:
            now = {row.id: row for row in lookups.on_host(
                context, self._backend.host)}
            # The attachments are read here, of the few that it depends on.
            return [row for row in self.rows
                    if row.id in self.failed or self._has_work(row) or
                    self._has_work(now.get(row.id))]
        except Exception:
            LOG.exception('Reading all volumes failed; they are read one by '
                          'one.')
            return self.rows

    def _has_work(self, row: objects.Volume | None) -> bool:
        return row is not None and bool(
            placeholders.is_placeholder(row) or lookups.prepared_move(row) or
            Names(row.name_id) in self._completion.unfinished or
            _has_old_export(row))

    def retry(self, context: cinder_context.RequestContext) -> None:
        """Retry failed rows; called by the watcher."""
        self.resume(context, list(self.failed.values()))

    def resume(self, context: cinder_context.RequestContext,
               rows: list[objects.Volume]) -> None:
        """Resume each row from its present state; recover failed ones.

        These come last: they may take long, and peers wait for sources.
        """
        for row in sorted(rows, key=lambda row: row.id in self.failed):
            try:
                with self._backend.lock(lookups.guarding_id(row)):
                    fresh = lookups.get(context, row.id)
                    here = fresh is not None and self._backend.holds(fresh)
                    if fresh is not None and here and row.id in self.failed:
                        self._recover(context, fresh, self._backend.
                                      logical_volume(Names(fresh.name_id)))
                    if here:
                        self._clean_up(context, fresh)
                if here:
                    self._remove_obsolete(context, fresh)
                self.failed.pop(row.id, None)
            except Exception:
                self.failed[row.id] = row
                if placeholders.state_of(row) == State.RELEASED:
                    # It can be deleted, if nothing reads it.
                    self._released_sources.wait(Placeholder(row))
                LOG.exception('Recovering volume %s, or its move, failed; it '
                              'is tried again.', lookups.guarding_id(row))

    def _clean_up(self, context: cinder_context.RequestContext,
                  row: objects.Volume) -> None:
        """Finish a completion, or export a source; under the lock."""
        names = Names(row.name_id)
        if names in self._completion.unfinished:
            self._completion.finish(context, names)
        if lookups.prepared_move(row):
            placeholder = lookups.placeholder(
                context, lookups.prepared_move(row))
            if placeholder is not None:
                self._source.export(context, row, placeholder.initiator)
        elif placeholders.state_of(row) == State.SWITCHED:
            self._source.export(context, row,
                                Placeholder(row).initiator)
        elif _has_old_export(row):
            lv = self._backend.logical_volume(names)
            if lv is None or not lv.sealed:
                # Otherwise the database was restored, and the row is old.
                self._end_export(context, row)

    def _remove_obsolete(self, context: cinder_context.RequestContext,
                         row: objects.Volume) -> None:
        """Remove a released source or a useless destination.

        The called functions take the lock themselves.
        """
        if placeholders.state_of(row) == State.RELEASED:
            self._released_sources.release(context, row.id)
        elif placeholders.state_of(row) == State.REVERTING:
            self._jobs.add(jobs.GIVE_UP_REVERT, row.id)
        elif (placeholders.state_of(row) == State.ABORTED or
              row.id in self._without_metadata):
            # Without its metadata it can't become the volume's home.
            if self._destination.delete(context, row.id):
                records.destroy(context, row.id)
            self._without_metadata.discard(row.id)


def _live() -> set[str]:
    """Return the names of all live devices of the kernel."""
    return {name for name, device in dmsetup.devices().items() if device.live}


def _is_plain(row: objects.Volume, lv: logical_volumes.LogicalVolume) -> bool:
    """Whether a volume needs nothing but a linear handle that is written."""
    return (lv.active and not placeholders.is_placeholder(row) and
            not lookups.prepared_move(row) and not _may_be_copy(row, lv) and
            not lv.needed)


def _is_source(row: objects.Volume) -> bool:
    """Whether a row stands for a source."""
    return placeholders.state_of(row) in placeholders.OF_SOURCES


def _may_be_copy(row: objects.Volume,
                 lv: logical_volumes.LogicalVolume) -> bool:
    """Whether a volume's creation from a snapshot may be unfinished."""
    return not (lv.opened or placeholders.is_placeholder(row) or
                row.name_id == row.id)


def _has_old_export(row: objects.Volume) -> bool:
    """Whether a row names a target that nobody is connected to.

    Cinder's LVM driver leaves the address of its last target after a
    detachment; a task of Cinder that was killed leaves it, too.
    """
    return bool(row.provider_location and row.status == STATUS.AVAILABLE and
                row.migration_status in records.MAY_MIGRATE and
                not lookups.prepared_move(row) and
                not placeholders.is_placeholder(row) and
                # These may be a query.
                not row.volume_attachment)


def _is_unfinished_follower(row: objects.Volume,
                            lv: logical_volumes.LogicalVolume) -> bool:
    """Whether a follower's creation was interrupted before it was a clone."""
    return placeholders.state_of(row) == State.FOLLOWING and not (
        lv.clone or lv.opened)


def _prepared_here(row: objects.Volume) -> bool:
    """Whether a row is a destination that is not switched over."""
    return placeholders.state_of(row) in (State.PREPARED, State.ABORTED)
