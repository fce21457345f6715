# SPDX-License-Identifier: Apache-2.0
"""Snapshots on this node: serve them as sources, and delete them.

A snapshot stays on the node where it was taken, and so does its origin: the
logical volume that a moved volume no longer needs is kept, without devices
and row, until its last snapshot is deleted.

A volume from a snapshot begins as a clone, whose source is the snapshot. It
has a placeholder like a volume that has moved. The source's name id is its
own, since several volumes may read one snapshot. A snapshot that is deleted
meanwhile is gone for its user at once. This node deletes it when no volume
reads it any longer.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses

from cinder import context as cinder_context
from cinder import objects
from oslo_config import cfg
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.placeholders import Placeholder
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
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

CONF = cfg.CONF


class Snapshots:
    """The snapshots of one backend; each is locked by its id."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Names of kept origins that may have lost their last snapshot.
        self.origins = backend.jobs.kind('delete origin',
                                         self.delete_origins)

    def find(self, snapshot_id: str) -> LogicalVolume | None:
        """Return the logical volume of a snapshot, None if not here."""
        return logical_volumes.find(
            names_module.of_snapshot(CONF.snapshot_name_template
                                     % snapshot_id),
            self._backend.group.vg_name)

    def of(self, lv: LogicalVolume) -> list[LogicalVolume]:
        """Return the snapshots of a logical volume."""
        return [each for each in logical_volumes.find_all(lv.group)
                if each.origin == lv.name]

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
            lv = self.find(row.snapshot_id)
            if lv is None:
                raise exception.SnapshotUnavailable(
                    snapshot=row.snapshot_id, host=self._backend.host,
                    volume=records.guarding_id(row))
            if names.name_id not in lv.readers:
                logical_volumes.tag(
                    lv, logical_volumes.READER_TAG + names.name_id)
            logical_volumes.activate(lv)
            LocalVolume(names).ensure_linear(dataclasses.replace(
                lv, size=block.size(lv.path)), read_only=True)

    def release(self, context: cinder_context.RequestContext,
                placeholder: Placeholder, snapshot_id: str) -> None:
        """End serving a snapshot to a volume that is complete or deleted.

        Callers hold the volume's lock.
        """
        names = Names(placeholder.name_id)
        with self._backend.lock(snapshot_id):
            self._backend.target.unexport(names.target)
            LocalVolume(names).remove(EXPORT, HANDLE)
            lv = self.find(snapshot_id)
            if lv is not None and names.name_id in lv.readers:
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
        """
        if snapshot_rows.backend_of(snapshot) == self._backend.host and (
                self._delete(snapshot.id)):
            return
        snapshot_rows.delete_later(context, snapshot)
        LOG.info('Snapshot %(snapshot)s of volume %(volume)s is deleted; '
                 '%(host)s frees its space when it runs and no volume reads '
                 'the snapshot.',
                 {'snapshot': snapshot.id, 'volume': snapshot.volume_id,
                  'host': snapshot_rows.backend_of(snapshot)})

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
            except Exception:
                LOG.exception('Deleting snapshot %s failed; it is tried '
                              'again.', snapshot_id)

    def _delete(self, snapshot_id: str) -> bool:
        """Delete a snapshot on this node.

        :returns: False if a volume reads it
        """
        with self._backend.lock(snapshot_id):
            lv = self.find(snapshot_id)
            if lv is None:
                LOG.info('Snapshot %s is not here, or has been deleted.',
                         snapshot_id)
                return True
            if lv.readers:
                return False
            logical_volumes.activate(lv)
            try:
                deletion.delete_snapshot(lv, self._backend.group,
                                         self._backend.configuration)
            finally:
                # LVM may have deleted it in spite of an error.
                self.origin_may_go(lv.origin)
        LOG.info('Deleted snapshot %s.', snapshot_id)
        return True

    def origin_may_go(self, name: str) -> None:
        """Delete a kept origin soon, if it has no other snapshot."""
        names = names_module.of_logical_volume(name)
        if names is not None:
            self.origins.add(names)

    def delete_origins(self, context: cinder_context.RequestContext) -> None:
        """Delete kept origins without snapshots."""
        for names in list(self.origins):
            try:
                with self._backend.lock(names.name_id):
                    self._delete_origin(context, names)
                self.origins.discard(names)
            except Exception:
                LOG.exception('Deleting the former logical volume of '
                              '%s failed; it is tried again.', names)

    def _delete_origin(self, context: cinder_context.RequestContext,
                       names: Names) -> None:
        lv = self._backend.logical_volume(names)
        if lv is None or not lv.kept or self.of(lv) or (
                # The database was restored.
                records.owner_row(context, names.name_id) is not None):
            return
        logical_volumes.activate(lv)
        deletion.delete_volume(names, self._backend.group,
                               self._backend.configuration)
        LOG.info('Deleted logical volume %s: its last snapshot is deleted.',
                 lv.full_name)
