# SPDX-License-Identifier: Apache-2.0
"""Snapshots that are taken of a volume: for its user, or for a clone."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects

from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block


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
            self._snapshots.take(names, lv, snapshot.id)
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
        self._snapshots.take(names, lv, snapshot_id, hidden=True)
        in_one_place.refuse_if_moved_meanwhile(
            self._preflight, volume, _('clone'),
            lambda: self._snapshots.delete_unread(snapshot_id))
