# SPDX-License-Identifier: Apache-2.0
"""Snapshots on this node: serve them as sources, and delete them.

A snapshot stays on the node where it was taken, and so does its origin: the
logical volume that a moved volume no longer needs is kept, without devices
and row, until its last snapshot is deleted. One that has followed its volume
is a whole copy: see :mod:`followers`.

LVM takes a snapshot of a complete volume. While a volume hydrates, and for a
clone of a volume that is not thin, device-mapper does: see
:mod:`node.snapshot_devices`. Only its saved blocks are in a logical volume
then. It stays so until it is deleted.

A thin snapshot shares blocks with its origin, and does not need it. The
origin of a moved volume is kept for it nevertheless, as long as LVM knows it
as its origin.

A volume from a snapshot begins as a clone, whose source is the snapshot. It
has a placeholder like a volume that has moved. The source's name id is its
own, since several volumes may read one snapshot. A snapshot that is deleted
meanwhile is gone for its user at once. This node deletes it when no volume
reads it any longer.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import copy_records
from dmclone_driver.move import follower_records
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node import deletion
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node import snapshot_devices
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

CONF = cfg.CONF


def id_of(lv: LogicalVolume) -> str | None:
    """Return the id of the snapshot that a logical volume is, or None."""
    taken = lv.not_taken or lv.taken
    return taken.snapshot_id if taken else (
        lv.followed or volume_utils.extract_id_from_snapshot_name(
            lv.name.removeprefix('_')))


def name_of(snapshot_id: str) -> str:
    """Return the name of a snapshot's logical volume."""
    return names_module.of_snapshot(CONF.snapshot_name_template % snapshot_id)


def is_unknown(context: cinder_context.RequestContext,
               lv: LogicalVolume) -> bool:
    """Whether a snapshot was unmanaged, or taken by an operator.

    What the driver needs has a tag.
    """
    snapshot_id = id_of(lv)
    return not (lv.of_move or (
        snapshot_id and snapshot_rows.get(context, snapshot_id)))


def independent(context: cinder_context.RequestContext, lv: LogicalVolume,
                found: list[LogicalVolume]) -> list[LogicalVolume]:
    """Return the snapshots of a logical volume that Cinder does not know.

    Only those that do not need it: a thin one has its blocks without its
    origin, if both are in one pool. One of another pool has an external
    origin, with which LVM would delete it (lvmthin(7)).

    :param found: all snapshots of it
    """
    return [each for each in found
            if lv.pool and each.pool == lv.pool and is_unknown(context, each)]


def _needs_origin(lv: LogicalVolume) -> bool:
    """Whether a logical volume, if it is a snapshot, needs its origin."""
    return bool(lv.origin) or not lv.deleted


class Snapshots:
    """The snapshots of one backend; each is locked by its id."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Names of origins that may have lost their last snapshot.
        self.origins = backend.jobs.kind('tidy origin', self.tidy_origins)
        #: Ids of hidden snapshots whose deletion has failed.
        self.hidden = backend.jobs.kind('delete hidden snapshot',
                                        self.delete_hidden)

    def find(self, snapshot_id: str) -> LogicalVolume | None:
        """Return the logical volume of a snapshot, None if not here."""
        group = self._backend.group.vg_name
        return logical_volumes.find(
            name_of(snapshot_id), group
        ) or logical_volumes.find_followed(snapshot_id, group)

    def of(self, lv: LogicalVolume,
           deleted: bool = False) -> list[LogicalVolume]:
        """Return the snapshots of a logical volume.

        :param deleted: whether to include those above a clone whose deletion
            has begun; LVM needs the origin of its own until they are gone
        """
        return [each for each in logical_volumes.find_all(lv.group)
                if each.snapshot_of == lv.name and
                (deleted or _needs_origin(each))]

    def needed(self) -> set[Names]:
        """Return the logical volumes in parts that have snapshots.

        As long as they are such, they can be neither kept nor deleted. All
        are found with one process.
        """
        volumes = logical_volumes.find_all(self._backend.group.vg_name)
        origins = {each.snapshot_of for each in volumes
                   if _needs_origin(each)}
        return {names for names in (
            names_module.of_logical_volume(lv.name) for lv in volumes
            if lv.in_parts and lv.name in origins) if names}

    def path(self, lv: LogicalVolume) -> str:
        """Return the path of the device that shows a snapshot's content."""
        names = lv.followed and names_module.of_logical_volume(lv.name)
        if names:
            return names.path()
        return snapshot_devices.path(lv.taken) if lv.taken else lv.path

    # What creations leave

    def delete_unread(self, snapshot_id: str) -> None:
        """Delete a snapshot that is not needed, unless a volume reads it.

        A failure is only logged.
        """
        try:
            lv = self.find(snapshot_id)
            if lv is not None and not lv.readers:
                self._delete(snapshot_id)
        except Exception:
            LOG.exception('Deleting the useless snapshot %s failed; its '
                          'user can delete it.', snapshot_id)

    def end_hidden(self, context: cinder_context.RequestContext,
                   snapshot_id: str) -> None:
        """Delete a hidden snapshot that no volume reads, or take it back.

        A failure is only logged: a job, or a start of the service, does it.
        """
        try:
            lv = self.find(snapshot_id)
            if lv is not None and lv.hidden:
                self._end_unfinished(context, lv, snapshot_id)
            self.hidden.discard(snapshot_id)
        except Exception:
            LOG.exception('Deleting the hidden snapshot %s failed; it is '
                          'tried again.', snapshot_id)
            self.hidden.add(snapshot_id)

    def _end_unfinished(self, context: cinder_context.RequestContext,
                        seen: LogicalVolume, snapshot_id: str) -> None:
        """Delete a snapshot if no user and no copy needs it any longer.

        It is taken back if the node to which it has followed was declared
        lost, or if the database was restored to a time before its deletion.
        The former needs the row of a source that reads it here, so nothing is
        deleted before all of these rows are.

        :param seen: its logical volume as it was read before
        """
        with self._backend.lock(snapshot_id):
            lv = logical_volumes.find(seen.name, seen.group)
            if lv is None:
                return
            here = self._backend.host
            if lv.hidden and snapshot_rows.is_on(context, snapshot_id, here):
                logical_volumes.untag(lv, logical_volumes.HIDDEN_TAG)
                LOG.info('Snapshot %(snapshot)s is here again, in %(lv)s.',
                         {'snapshot': snapshot_id, 'lv': lv.full_name})
            elif lv.unfinished and (lv.not_taken or not copy_records.is_read(
                    context, snapshot_id, here)):
                self._remove(lv, snapshot_id)

    def delete_hidden(self, context: cinder_context.RequestContext) -> None:
        """Delete the hidden snapshots whose deletion has failed before."""
        for snapshot_id in list(self.hidden):
            self.end_hidden(context, snapshot_id)

    def delete_unfinished(self, context: cinder_context.RequestContext,
                          volumes: list[LogicalVolume]) -> None:
        """Delete the snapshots that a killed service has not finished.

        A snapshot with the same id may have followed to this node since, or
        a volume may read the old one.

        :param volumes: those that the service has found as it started, which
            may be minutes ago
        """
        for lv in volumes:
            snapshot_id = id_of(lv)
            if snapshot_id:
                try:
                    self._end_unfinished(context, lv, snapshot_id)
                except Exception:
                    LOG.exception('Removing the unfinished snapshot %s '
                                  'failed; the next start of the service '
                                  'removes it.', lv.full_name)

    def take_again(self, lv: LogicalVolume) -> None:
        """Take the snapshot that LVM has merged for a killed revert.

        Its volume has no handle since, and still has that content.
        """
        name = lv.tagged(logical_volumes.MERGED_TAG)
        if name is None:
            return
        if logical_volumes.find(name, lv.group) is None:
            LOG.warning('Taking snapshot %(snapshot)s of %(lv)s again: a '
                        'revert to it was interrupted.',
                        {'snapshot': name, 'lv': lv.full_name})
            logical_volumes.take_snapshot(lv, name)
        logical_volumes.untag(lv, logical_volumes.MERGED_TAG + name)

    # Sources of volumes

    def serve(self, row: objects.Volume) -> None:
        """Create the read-only device of a source that is a snapshot.

        A tag keeps the snapshot from being deleted, whatever the database
        says.

        :param row: placeholder of the source
        :raises: SnapshotUnavailable
        """
        names = Names(row.name_id)
        with self._backend.lock(row.snapshot_id):
            lv = self._find_readable(row.snapshot_id,
                                     lookups.guarding_id(row))
            if names.name_id not in lv.readers:
                logical_volumes.tag(
                    lv, logical_volumes.READER_TAG + names.name_id)
            path = self.ensure_device(lv)
            LocalVolume(names).ensure_read_only(path, block.size(path))

    def refuse_missing(self, context: cinder_context.RequestContext,
                       wanted: dict[str, objects.Snapshot]) -> None:
        """Refuse snapshots of which any cannot be read, wherever it is.

        :param wanted: {id of the volume to create: its snapshot}
        :raises: SnapshotUnavailable, PeerError
        """
        for volume_id, snapshot in wanted.items():
            host = snapshot_rows.backend_of(snapshot)
            if host == self._backend.host:
                self._find_readable(snapshot.id, volume_id)
            else:
                self._backend.client.describe(context, host)

    def _find_readable(self, snapshot_id: str,
                       volume_id: str) -> LogicalVolume:
        """Return a snapshot on this node that a volume can be read from.

        :raises: SnapshotUnavailable
        """
        lv = self.find(snapshot_id)
        # LVM may have forgotten the origin of a thin one.
        if lv is None or lv.deleted or lv.not_taken or not (
                lv.snapshot_of or lv.followed or lv.thin):
            raise exception.SnapshotUnavailable(
                snapshot=snapshot_id, host=self._backend.host,
                volume=volume_id)
        return lv

    def ensure_device(self, lv: LogicalVolume) -> str:
        """Make the content of a snapshot readable; return its device's path.

        After a reboot the devices of a kept origin are missing.

        :raises: OriginNotRebuilt
        """
        logical_volumes.activate(lv)
        followed = lv.followed and names_module.of_logical_volume(lv.name)
        if followed:
            LocalVolume(followed).ensure_linear(lv, read_only=True)
        elif lv.taken:
            names = Names(lv.taken.name_id)
            origin = self._backend.logical_volume(names)
            assert origin is not None
            local = LocalVolume(names)
            if (origin.clone or origin.deleted) and not local.exists():
                # The logical volume alone has not got all the data.
                raise exception.OriginNotRebuilt(
                    snapshot=lv.taken.snapshot_id, lv=origin.full_name,
                    host=self._backend.host)
            logical_volumes.activate(origin)
            local.ensure_snapshots(origin)
        return self.path(lv)

    def release(self, context: cinder_context.RequestContext,
                placeholder: Placeholder, snapshot_id: str) -> None:
        """End serving a snapshot to a volume that is complete or deleted.

        If the snapshot has followed its volume, no user has the one here any
        longer. The row of the follower proves that, not the host of the
        snapshot: the database may have been restored. If the follower's node
        was declared lost meanwhile, :meth:`end_hidden` takes that back.
        Callers hold the volume's lock, and call that afterwards.
        """
        names = Names(placeholder.name_id)
        followed = follower_records.state(
            context, placeholder.volume_id) == State.FOLLOWED
        with self._backend.lock(snapshot_id):
            self._backend.target.unexport(names.target)
            LocalVolume(names).remove(EXPORT, HANDLE)
            lv = self.find(snapshot_id)
            if lv is not None and names.name_id in lv.readers:
                if followed:
                    logical_volumes.tag(lv, logical_volumes.HIDDEN_TAG)
                logical_volumes.untag(
                    lv, logical_volumes.READER_TAG + names.name_id)
        steps.reached(Step.UNEXPORTED, names.name_id)
        records.destroy(context, placeholder.id)
        LOG.info('Snapshot %(snapshot)s is no longer a source of volume '
                 '%(volume)s.', {'snapshot': snapshot_id,
                                 'volume': placeholder.volume_id})

    # Deletion

    def delete(self, context: cinder_context.RequestContext,
               snapshot: objects.Snapshot) -> None:
        """Delete a snapshot wherever it is.

        On another node, or while a volume reads it, the deletion follows: see
        :meth:`delete_later_ones`.

        :raises: SnapshotIsBusy, after which Cinder makes it available again;
            PoolTakesNoChanges if it must not be
        """
        host = snapshot_rows.read_host(context, snapshot)
        try:
            if volume_utils.extract_host(host) == self._backend.host and (
                    self._delete(snapshot.id)):
                return
        except exception.PoolTakesNoChanges as error:
            # Cinder's own line does not say why.
            LOG.error('Snapshot %(snapshot)s is not deleted: %(reason)s',
                      {'snapshot': snapshot.id, 'reason': error.msg})
            if self._may_be_available(snapshot):
                raise cinder_exception.SnapshotIsBusy(error.msg)
            raise
        snapshot_rows.delete_later(context, snapshot, host)
        steps.reached(Step.DEFERRED, snapshot.volume_id)
        LOG.info('Snapshot %(snapshot)s of volume %(volume)s is deleted; '
                 '%(host)s frees its space when it runs and no volume reads '
                 'the snapshot.',
                 {'snapshot': snapshot.id, 'volume': snapshot.volume_id,
                  'host': host})

    def _may_be_available(self, snapshot: objects.Snapshot) -> bool:
        """Whether Cinder may make a snapshot available that is not deleted.

        It may not if the snapshot was never taken, or its deletion has begun.
        Nor may it where it takes SnapshotIsBusy for success: it deletes the
        rows of a group snapshot, and the volume of a cascading deletion
        (delete_group_snapshot, delete_volume in cinder/volume/manager.py).
        """
        lv = self.find(snapshot.id)
        return not (lv is None or lv.deleted or snapshot.progress != '100%' or
                    snapshot.group_snapshot_id or
                    snapshot.volume.status == 'deleting')

    def delete_later_ones(self,
                          context: cinder_context.RequestContext) -> None:
        """Delete the snapshots here that users have deleted before.

        Sends one query if there is none.
        """
        for snapshot_id in snapshot_rows.to_delete(context,
                                                   self._backend.host):
            try:
                if self._delete(snapshot_id):
                    snapshot_rows.deleted(context, snapshot_id)
                else:
                    self._hide(snapshot_id)
            except Exception:
                LOG.exception('Deleting snapshot %s failed; it is tried '
                              'again.', snapshot_id)

    def _delete(self, snapshot_id: str) -> bool:
        """Delete a snapshot on this node.

        :returns: False if a volume reads it
        :raises: PoolTakesNoChanges
        """
        with self._backend.lock(snapshot_id):
            lv = self.find(snapshot_id)
            if lv is None:
                LOG.info('Snapshot %s is not here, or has been deleted.',
                         snapshot_id)
                return True
            if lv.readers:
                return False
            self._remove(lv, snapshot_id)
        origin = lv.snapshot_of and names_module.of_logical_volume(
            lv.snapshot_of)
        if origin:
            steps.reached(Step.PURGED, origin.name_id)
        return True

    def _hide(self, snapshot_id: str) -> None:
        """Tag a deleted snapshot that is read: no user has it any longer.

        Its row may be gone before its last reader is complete
        (``cinder-manage db purge``). Then :meth:`end_hidden` deletes it.
        """
        with self._backend.lock(snapshot_id):
            lv = self.find(snapshot_id)
            if lv is not None and not lv.hidden:
                logical_volumes.tag(lv, logical_volumes.HIDDEN_TAG)

    def _remove(self, lv: LogicalVolume, snapshot_id: str) -> None:
        """Delete a snapshot's logical volume; callers hold its lock."""
        try:
            deletion.delete_snapshot(lv, self._backend.group,
                                     self._backend.configuration)
        finally:
            # LVM may have deleted it in spite of an error.
            self.origin_may_go(lv.snapshot_of)
            if lv.followed:
                self._backend.jobs.add(
                    jobs.SETTLE_FOLLOWER, names_module.of_logical_volume(
                        lv.name))
        LOG.info('Deleted snapshot %s.', snapshot_id)

    def origin_may_go(self, name: str | None) -> None:
        """Tidy up an origin soon: see :meth:`tidy_origins`."""
        names = name and names_module.of_logical_volume(name)
        if names:
            self.origins.add(names)
            # Its volume may be deleted.
            self._backend.jobs.hurry(jobs.WATCH_DELETED, names)

    def tidy_origins(self, context: cinder_context.RequestContext) -> None:
        """Delete kept origins without snapshots; simplify other handles."""
        for names in list(self.origins):
            try:
                row = lookups.owner_row(context, names.name_id)
                with self._backend.lock(names.name_id if row is None else
                                        lookups.guarding_id(row)):
                    if self._tidy_origin(context, names):
                        self.origins.discard(names)
            except Exception:
                LOG.exception('Removing what snapshots of %s needed failed; '
                              'it is tried again.', names)

    def _tidy_origin(self, context: cinder_context.RequestContext,
                     names: Names) -> bool:
        """Do what :meth:`tidy_origins` does with one origin.

        :returns: False if Cinder has yet to delete the row of its volume
        """
        lv = self._backend.logical_volume(names)
        if lv is None:
            return True
        left = self.of(lv, deleted=True)
        obsolete = lv.left_marks
        if (lv.has_taken or obsolete) and not any(
                each.taken for each in left):
            LocalVolume(names).forget_snapshots(lv)
            obsolete += [logical_volumes.ORIGIN_TAG]
        if obsolete:
            logical_volumes.untag(lv, *obsolete)
        if not lv.kept or len(left) > len(independent(context, lv, left)):
            return True
        owner = lookups.owner_row(context, names.name_id)
        if owner is None or self._backend.is_foreign(owner):
            self._delete_origin(names, lv)
            return True
        # Otherwise the database was restored.
        return not lookups.is_being_deleted(owner)

    def _delete_origin(self, names: Names, lv: LogicalVolume) -> None:
        logical_volumes.activate(lv)
        if not lv.deleted:
            logical_volumes.tag(lv, logical_volumes.DELETED_TAG)
        deletion.delete_volume(names, self._backend.group,
                               self._backend.configuration)
        LOG.info('Deleted logical volume %s: its last snapshot is deleted.',
                 lv.full_name)
