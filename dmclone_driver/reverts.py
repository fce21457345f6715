# SPDX-License-Identifier: Apache-2.0
"""Reverting a volume to a snapshot.

LVM merges a snapshot of its own into the volume. In all other cases the volume
gets a clone of the snapshot, and can be used at once: it has another logical
volume by now, hydrates, is on another node than the snapshot, or has snapshots
that LVM could not deactivate with it, or LVM has forgotten that it is the
origin of a thin snapshot. If there is no room for the clone, the snapshot is
copied to the volume as it is.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import contextlib

from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.new_content import NewContent
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move import room
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import snapshots as snapshots_module
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import snapshot_devices
from dmclone_driver.node import thin_pools
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)

# Bytes for the metadata of a clone, with the default size of regions, which
# may be in the same volume group, and for whole extents.
_FOR_METADATA = 16 * units.Mi


class Reverts:
    """Reverts volumes of one backend."""

    def __init__(self, backend: Backend, preflight: Preflight,
                 snapshots: Snapshots, new_content: NewContent) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots
        self._new_content = new_content

    @in_one_place.required(_('revert'), hydrating=True)
    def revert(self, volume: objects.Volume,
               snapshot: objects.Snapshot) -> str | None:
        """Revert a volume of this node; it may be hydrating.

        :returns: what :meth:`start` has to be called with, empty if nothing
            is left to do; None if Cinder has to copy a snapshot of another
            node
        :raises: SnapshotUnavailable, RevertNotServed, SnapshotWouldOverflow,
            NoRoomInPool
        """
        lv = self._snapshots.find(snapshot.id)
        if lv is not None and lv.hidden:
            # The snapshot has followed its volume to another node. This is
            # the old copy, which is deleted after its last reader is complete.
            lv = None
        names = Names(volume.name_id)
        mine = self._backend.logical_volume(names)
        # Otherwise the operation was refused (NotOnNode).
        assert mine is not None
        if lv is not None and lv.deleted:
            raise exception.SnapshotUnavailable(
                snapshot=snapshot.id, volume=volume.id,
                host=self._backend.host)
        if lv is not None and self._merge_if_possible(volume, mine, lv):
            return ''
        if self._has_room(mine) and not LocalVolume(names).is_open():
            return self._new_content.take(
                backend_module.context_of(volume), volume, snapshot, mine)
        # Cinder creates a temporary volume from a snapshot of another node.
        self._refuse_overflow(volume, mine, copies=1 if lv is None else 0)
        if lv is not None:
            self._copy(names, lv)
            return ''
        LOG.info('Volume %(volume)s is reverted by Cinder, which copies a '
                 'temporary volume: snapshot %(snapshot)s is on %(host)s.',
                 {'volume': volume.id, 'snapshot': snapshot.id,
                  'host': snapshot_rows.backend_of(snapshot)})
        return None

    def start(self, volume: objects.Volume, revert_id: str) -> None:
        """Let a reverted volume be used; callers do not hold its lock.

        :param revert_id: what :meth:`revert` has returned
        """
        if revert_id:
            self._new_content.start(backend_module.context_of(volume), volume,
                                    revert_id)

    def _has_room(self, mine: LogicalVolume) -> bool:
        """Whether there is room for as much data again, and its metadata.

        The data of a thin volume is in the pool, which is most of the group.
        """
        group = volume_groups.find(mine.group)
        if group is None:
            raise cinder_exception.VolumeGroupNotFound(vg_name=mine.group)
        if not self._backend.thin:
            return group.free >= mine.size + _FOR_METADATA
        return group.free >= _FOR_METADATA and (
            room.free(self._backend).gb * units.Gi >= mine.size)

    def _merge_if_possible(self, volume: objects.Volume, mine: LogicalVolume,
                           lv: LogicalVolume) -> bool:
        """Have LVM merge a snapshot, unless that cannot be done at once.

        Volumes that are to read one of the snapshots from now on wait. LVM
        would merge what is open at a later activation, over what was written
        until then.

        :returns: False if nothing was done
        """
        if not self._can_merge(mine, lv):
            return False
        with contextlib.ExitStack() as locks:
            for snapshot_id in sorted(filter(None, map(
                    snapshots_module.id_of, self._deactivated(mine, lv)))):
                locks.enter_context(self._backend.lock(snapshot_id))
            now = logical_volumes.find(lv.name, lv.group)
            if now is None or not self._can_merge(mine, now):
                return False
            self._merge(volume, mine, now)
        return True

    def _can_merge(self, mine: LogicalVolume, lv: LogicalVolume) -> bool:
        return lv.origin == mine.name and lv.thin == mine.thin and not (
            mine.clone or mine.has_taken or
            any(each.readers for each in self._deactivated(mine, lv)))

    def _deactivated(self, mine: LogicalVolume,
                     lv: LogicalVolume) -> list[LogicalVolume]:
        """Return the snapshots that LVM deactivates with a volume.

        These are all, if they are not thin.
        """
        return [lv] if lv.thin else self._snapshots.of(mine)

    def _merge(self, volume: objects.Volume, mine: LogicalVolume,
               lv: LogicalVolume) -> None:
        """Have LVM merge a snapshot, which removes it, and take it again.

        A tag has the next start do that, if this process is killed.

        :raises: PoolTakesNoChanges
        """
        names, group = Names(volume.name_id), self._backend.group
        thin_pools.refuse_unchangeable(lv)
        try:
            # With a tag that stays, a later start would take the snapshot
            # again after its user has deleted it.
            logical_volumes.tag(mine, logical_volumes.MERGED_TAG + lv.name)
            LocalVolume(names).remove(HANDLE)
            if lv.thin:
                # Otherwise LVM merges it at a later activation if anything
                # has one of them open, after it was taken again
                # (_lvconvert_merge_thin_snapshot in tools/lvconvert.c).
                group.deactivate_lv(lv.name)
                group.deactivate_lv(mine.name)
            group.revert(lv.name)
            group.deactivate_lv(mine.name)
            group.activate_lv(mine.name)
            logical_volumes.take_snapshot(mine, lv.name)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._end_merge(volume, names)
        self._end_merge(volume, names)

    def _end_merge(self, volume: objects.Volume, names: Names) -> None:
        """Give a volume its handle back, and its snapshot, if that is gone.

        A job repeats that if it fails.
        """
        try:
            lv = self._backend.logical_volume(names)
            assert lv is not None
            logical_volumes.activate(lv)
            # Before the volume can be written again.
            self._snapshots.take_again(lv)
            LocalVolume(names).ensure_linear(lv)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._backend.jobs.add('recover', volume.id, volume)

    def _copy(self, names: Names, lv: LogicalVolume) -> None:
        """Copy a snapshot to its volume, which keeps other snapshots."""
        path = self._snapshots.ensure_device(lv)
        volume_utils.copy_volume(
            path, names.path(), block.size(path) // units.Mi,
            self._backend.configuration.volume_dd_blocksize)
        # Cinder's copy is not flushed.
        LocalVolume(names).make_durable()

    def _refuse_overflow(self, volume: objects.Volume, mine: LogicalVolume,
                         copies: int) -> None:
        """Refuse to overwrite a volume if that loses one of its snapshots.

        Of a thin one all blocks are written, which may be shared now, and each
        snapshot above its clone saves them. That must not take what the pool
        keeps for others.

        :param copies: volumes of the same size that are created besides
        :raises: SnapshotWouldOverflow, NoRoomInPool
        """
        found = self._snapshots.of(mine)
        if mine.pool == thin_pools.name_of(mine.group):
            above = sum(each.taken is not None and each.thin for each in found)
            room.refuse_filling(self._backend, Names(volume.name_id),
                                Bytes((1 + above + copies) * mine.size))
        for each in found:
            if each.origin and not each.thin and (
                    not snapshot_devices.has_room(each, mine.size)):
                raise exception.SnapshotWouldOverflow(volume=volume.id,
                                                      lv=each.full_name)
