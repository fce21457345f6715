# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are taken of a volume: for its user, or for a clone."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects
from oslo_utils import excutils

from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move import snapshots as snapshots_module
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import snapshot_devices
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

# Bytes at the start of a store that have to be zero before its first use.
_HEADER = Bytes(4096)


class NewSnapshots:
    """Takes snapshots of the volumes of one backend, which may be moving."""

    def __init__(self, backend: Backend, preflight: Preflight,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots

    @in_one_place.required(_('snapshot'), prepared=True)
    def take(self, volume: objects.Volume,
             snapshot: objects.Snapshot) -> None:
        """Take a snapshot for the volume's user.

        :raises: NotHere, ReadLagsBehind, RequestsWait
        """
        names = Names(volume.name_id)
        lv = self._backend.logical_volume(names)
        # Otherwise the operation was refused (NotOnNode).
        assert lv is not None
        block.flush_buffers(names.path())
        if lv.clone or lv.has_taken or lv.thin:
            self._take(names, lv, snapshot.id)
        else:
            logical_volumes.take_snapshot(
                lv, names_module.of_snapshot(snapshot.name))
        in_one_place.refuse_if_moved_meanwhile(
            self._preflight, volume, _('snapshot'),
            lambda: self._snapshots.delete_unread(snapshot.id))

    @in_one_place.required(_('clone'), prepared=True)
    def take_hidden(self, volume: objects.Volume, snapshot_id: str) -> None:
        """Take a snapshot for a clone alone: no row of Cinder's has its id.

        :raises: NotHere, ReadLagsBehind, RequestsWait
        """
        names = Names(volume.name_id)
        lv = self._backend.logical_volume(names)
        assert lv is not None
        block.flush_buffers(names.path())
        self._take(names, lv, snapshot_id, hidden=True)
        in_one_place.refuse_if_moved_meanwhile(
            self._preflight, volume, _('clone'),
            lambda: self._snapshots.delete_unread(snapshot_id))

    def _take(self, names: Names, lv: LogicalVolume, snapshot_id: str,
              hidden: bool = False) -> None:
        """Take a snapshot that does not need LVM's own of a thick volume.

        It is taken above the volume's clone, and requests wait for moments.
        If the volume is thin, and complete, LVM takes it.

        :param lv: the volume's logical volume
        :param hidden: for a clone alone; it is deleted when that is complete
        :raises: RequestsWait
        """
        tags = [logical_volumes.HIDDEN_TAG] if hidden else []
        try:
            if lv.thin and not lv.clone:
                self._take_thin(names, lv, snapshot_id, tags)
            else:
                self._take_above(names, lv, snapshot_id, tags)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._snapshots.delete_unread(snapshot_id)
                self._snapshots.origin_may_go(lv.name)
        steps.reached(Step.FROZEN, names.name_id)

    @staticmethod
    def _take_thin(names: Names, lv: LogicalVolume, snapshot_id: str,
                   tags: list[str]) -> None:
        logical_volumes.take_snapshot(
            lv, snapshots_module.name_of(snapshot_id), *tags)
        # It shares blocks that the disk may not have written yet.
        LocalVolume(names).make_durable()

    def _take_above(self, names: Names, lv: LogicalVolume, snapshot_id: str,
                    tags: list[str]) -> None:
        local = LocalVolume(names)
        local.refuse_closed_gate()
        taken = Taken(snapshot_id, names.name_id, block.size(names.path()))
        if not lv.has_taken:
            logical_volumes.tag(lv, logical_volumes.ORIGIN_TAG)
        store = self._create_store(lv, taken, tags)
        local.take_snapshot(lv, taken, store)
        # What a power cut would take from the volume, it would take from
        # the snapshot, too.
        local.make_durable()
        logical_volumes.retag(store, logical_volumes.NOT_TAKEN_TAG,
                              logical_volumes.TAKEN_TAG + str(taken))

    def _create_store(self, lv: LogicalVolume, taken: Taken,
                      tags: list[str]) -> LogicalVolume:
        """Create the logical volume for the blocks that a snapshot saves.

        It is in the pool of a thin volume: it allocates what it saves.
        """
        logical_volumes.create(
            lv.group, snapshots_module.name_of(taken.snapshot_id),
            snapshot_devices.store_size(taken.size),
            logical_volumes.NOT_TAKEN_TAG + str(taken), *tags, pool=lv.pool)
        store = self._snapshots.find(taken.snapshot_id)
        assert store is not None
        block.zero_start(store.path, _HEADER)
        return store
