# SPDX-License-Identifier: Apache-2.0
"""Extending a volume, and what its devices show."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import objects
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver import steps
from dmclone_driver.steps import Step


class Extensions:
    """Extends volumes of one backend."""

    def __init__(self, backend: Backend, preflight: Preflight,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots

    @in_one_place.required(_('extend'), hydrating=True)
    def extend(self, volume: objects.Volume, size: str) -> None:
        """Extend a volume's logical volume, and then its handle.

        :param size: as LVM takes it, e.g. ``2g``
        :raises: HandleMissing, RequestsWait, ClonesRead,
            ProcessExecutionError, also if the snapshot of a revert that
            was interrupted cannot be taken again
        """
        group = self._backend.group
        names = Names(volume.name_id)
        local = LocalVolume(names)
        before = self._backend.logical_volume(names)
        if before is not None:
            self._refuse_without_devices(volume, local, before)
            self._refuse_while_requests_wait(local, before)
            self._remember_size_of_clone(before)
            # Before the volume gets a handle, and can be written.
            self._snapshots.take_again(before)
        if group.lv_has_snapshot(volume.name):
            # LVM has to deactivate the origin of a snapshot to extend it.
            self._preflight.refuse_while_read(volume, _('extend'))
            local.remove(HANDLE, ORIGIN)
        try:
            group.extend_volume(volume.name, size)
        except processutils.ProcessExecutionError as error:
            # An interrupted extension has already set this size.
            if 'matches existing size' not in error.stderr:
                raise
        finally:
            # Cinder leaves the origin inactive if the extension fails.
            lv = self._backend.logical_volume(names)
            # Otherwise the operation was refused (NotOnNode).
            assert lv is not None
            logical_volumes.activate(lv)
            if not lv.clone:
                local.ensure_linear(lv)
        steps.reached(Step.EXTENDED, names.name_id)
        local.grow(lv)
        steps.reached(Step.SHOWN, names.name_id)

    def _refuse_without_devices(self, volume: objects.Volume,
                                local: LocalVolume, lv: LogicalVolume) -> None:
        """Refuse to extend a clone whose devices could not be built.

        A handle without them would show a part of its data as all of it.

        :raises: HandleMissing
        """
        if lv.clone and not local.exists():
            raise exception.HandleMissing(
                volume=volume.id, host=self._backend.host,
                path=local.names.path())

    @staticmethod
    def _refuse_while_requests_wait(local: LocalVolume,
                                    lv: LogicalVolume) -> None:
        """Refuse to extend a clone before LVM does, if it can't be shown.

        Its handle gets the table that it has.

        :raises: RequestsWait
        """
        if local.is_clone() and local.exists():
            local.grow(lv)

    @staticmethod
    def _remember_size_of_clone(lv: LogicalVolume) -> None:
        if lv.clone and lv.tagged(logical_volumes.CLONED_TAG) is None:
            logical_volumes.tag(
                lv, logical_volumes.CLONED_TAG + str(lv.size))
