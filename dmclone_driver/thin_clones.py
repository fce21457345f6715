# SPDX-License-Identifier: Apache-2.0
"""Volumes that share the blocks of a thin volume or snapshot of their node.

Such a volume is complete from the beginning, and nothing is copied: it is a
snapshot of LVM, which is written like any other thin volume, and does not need
what it was taken of (lvmthin(7), "Thin Snapshot Creation").
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node import deletion
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)


class ThinClones:
    """Creates volumes on this node from what is there.

    An interrupted creation leaves a logical volume with the volume's name, as
    that of an empty volume does, and the deletion removes it.
    """

    def __init__(self, backend: Backend, preflight: Preflight,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots

    def can_share(self, lv: LogicalVolume | None) -> bool:
        """Return whether a new volume can share the blocks of another one.

        It has to be here as a whole, and new volumes have to be thin.

        :param lv: of a volume or a snapshot here, or None
        """
        return lv is not None and lv.thin and self._backend.thin and not (
            lv.clone or lv.deleted or lv.taken or lv.not_taken)

    def of_snapshot(self, volume: objects.Volume, snapshot_id: str) -> bool:
        """Create a volume from a snapshot on this node, if that is possible.

        :returns: False if nothing was done
        :raises: LVMError, OSError
        """
        with self._backend.lock(snapshot_id):
            lv = self._snapshots.find(snapshot_id)
            if lv is None or not self.can_share(lv):
                return False
            self.create(volume, lv)
        LOG.info('Volume %(volume)s shares the blocks of snapshot '
                 '%(snapshot)s.',
                 {'volume': volume.id, 'snapshot': snapshot_id})
        return True

    @in_one_place.required(_('clone'), prepared=True)
    def of_volume(self, source: objects.Volume,
                  volume: objects.Volume) -> bool:
        """Create a clone of a volume on this node, if that is possible.

        :returns: False if nothing was done
        :raises: NotHere, ReadLagsBehind, LVMError, OSError
        """
        names = Names(source.name_id)
        lv = self._backend.logical_volume(names)
        if lv is None or not self.can_share(lv):
            return False
        block.flush_buffers(names.path())
        self.create(volume, lv)
        in_one_place.refuse_if_moved_meanwhile(
            self._preflight, source, _('clone'), lambda: self.remove(volume))
        return True

    def create(self, volume: objects.Volume, lv: LogicalVolume) -> None:
        """Create a volume that shares blocks; callers hold the other's lock.

        :param lv: what it shares the blocks of
        :raises: LVMError, OSError
        """
        names = Names(volume.name_id)
        known = self._backend.logical_volume(names) is not None
        try:
            logical_volumes.take_snapshot(lv, names.volume)
            if lv.size < volume.size * units.Gi:
                self._backend.group.extend_volume(names.volume,
                                                  '%dg' % volume.size)
            mine = self._backend.logical_volume(names)
            assert mine is not None
            local = LocalVolume(names)
            local.ensure_linear(mine)
            # It shares blocks that the disk may not have written yet.
            local.make_durable()
        except Exception:
            with excutils.save_and_reraise_exception():
                # One that was there before may have a user's data.
                if not known:
                    self.remove(volume)

    def remove(self, volume: objects.Volume) -> None:
        """Remove a volume that was just created, or what is there of it.

        A failure is only logged: its user deletes it.
        """
        try:
            deletion.delete_volume(Names(volume.name_id), self._backend.group,
                                   self._backend.configuration)
        except Exception:
            LOG.exception('Removing the incomplete volume %s failed; its '
                          'deletion removes it.', volume.id)
