# SPDX-License-Identifier: Apache-2.0
"""Removing a logical volume, and the devices and session of its clone."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.node import deletion
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import initiator
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import thin_pools
from dmclone_driver import steps
from dmclone_driver.steps import Step


class Teardown:
    """Each method can be repeated and resumes where it was interrupted."""

    def __init__(self, backend: Backend, requests: PeerRequests) -> None:
        self._backend = backend
        self._requests = requests

    def remove(self, context: cinder_context.RequestContext,
               row: objects.Volume) -> None:
        """Delete the data of a row that is no longer needed.

        If it was still a clone, its own source is released, too.

        :raises: VolumeIsBusy
        """
        self.cut_loose(context, row)
        self.delete_data(context, row)

    def cut_loose(self, context: cinder_context.RequestContext,
                  row: objects.Volume | Placeholder) -> None:
        """Tear down everything except the logical volume and a linear handle.

        :raises: VolumeIsBusy, or VolumeDriverException if its data is lost
            already
        """
        names = Names(row.name_id)
        local = LocalVolume(names)
        lv = self._backend.logical_volume(names)
        if local.is_open():
            if lv is not None and lv.deleted:
                # Cinder makes a busy volume available again.
                raise cinder_exception.VolumeDriverException(message=_(
                    'volume %(id)s is still being cleared (%(path)s is open): '
                    'delete it again when that has ended') % {
                        'id': row.id, 'path': names.path()})
            raise self._still_open(row)
        self._backend.target.unexport(names.target)
        local.remove(EXPORT)
        if lv is not None:
            self._refuse_unchangeable(row, lv)
        placeholder = lookups.placeholder(context, row.name_id)
        if placeholder is not None or (lv is not None and lv.clone):
            self._drop_clone(names, lv, placeholder)
        if lv is not None and not lv.deleted:
            logical_volumes.tag(lv, logical_volumes.DELETED_TAG)
        steps.reached(Step.CUT_LOOSE, names.name_id)

    @staticmethod
    def _refuse_unchangeable(row: objects.Volume | Placeholder,
                             lv: logical_volumes.LogicalVolume) -> None:
        """Refuse a deletion that the logical volume's pool would not take.

        :raises: VolumeIsBusy, after which Cinder makes a volume available;
            PoolTakesNoChanges if it must not be, since it was never filled,
            has begun to be deleted, or is left from Cinder's migration
        """
        try:
            thin_pools.refuse_unchangeable(lv)
        except exception.PoolTakesNoChanges as error:
            if (lv.deleted or isinstance(row, Placeholder) or
                    row.launched_at is None or
                    row.migration_status == 'deleting'):
                raise
            raise cinder_exception.VolumeIsBusy(error.msg)

    def keep(self, context: cinder_context.RequestContext,
             row: objects.Volume | Placeholder,
             lv: logical_volumes.LogicalVolume) -> None:
        """Keep a logical volume as the origin of its snapshots alone.

        :param lv: without parts of a clone, whose removal needs the handle
        :raises: DeletionRefused
        """
        names = Names(row.name_id)
        self.refuse_open(row)
        self._backend.target.unexport(names.target)
        if not lv.kept:
            logical_volumes.tag(lv, logical_volumes.KEPT_TAG)
        LocalVolume(names).remove(EXPORT, HANDLE)
        steps.reached(Step.KEPT, names.name_id)
        placeholder = lookups.placeholder(context, row.name_id)
        if placeholder is not None:
            self._requests.release(context, placeholder)

    def refuse_open(self, row: objects.Volume | Placeholder) -> None:
        """Refuse to delete a volume that something uses.

        :raises: DeletionRefused
        """
        if LocalVolume(Names(row.name_id)).is_open():
            raise self._still_open(row)

    @staticmethod
    def _still_open(row: objects.Volume | Placeholder
                    ) -> exception.DeletionRefused:
        return exception.DeletionRefused(volume=row.id, reason=_(
            'device %s is still open; ask the operator which process uses it')
            % Names(row.name_id).path())

    def delete_data(self, context: cinder_context.RequestContext,
                    row: objects.Volume | Placeholder) -> None:
        """Clear and delete the logical volume after :meth:`cut_loose`."""
        names = Names(row.name_id)
        placeholder = lookups.placeholder(context, row.name_id)
        deletion.delete_read_only(names, self._backend.group,
                                  self._backend.configuration)
        steps.reached(Step.DELETED, names.name_id)
        if placeholder is not None:
            self._requests.release(context, placeholder)

    def _drop_clone(self, names: Names,
                    lv: logical_volumes.LogicalVolume | None,
                    placeholder: Placeholder | None) -> None:
        local = LocalVolume(names)
        if lv is not None:
            # Tagged first: it will look complete, but has stale blocks.
            logical_volumes.retag(lv, logical_volumes.METADATA_TAG,
                                  logical_volumes.DELETED_TAG)
        if local.is_clone():
            # Its gate lies on it.
            assert lv is not None
            if not local.stop_hydration():
                # The suspend would wait for a source that does not answer.
                self._backend.initiator.cut(
                    placeholder.provider_location if placeholder else None)
                if not local.fail_without_source():
                    raise self._still_copying(names, placeholder)
            local.drop_clone(lv)
        self.remove_devices(names, placeholder, GATE, SOURCE)
        self.forget_metadata(names)

    @staticmethod
    def _still_copying(names: Names, placeholder: Placeholder | None
                       ) -> cinder_exception.VolumeDriverException:
        location = placeholder and placeholder.provider_location
        return cinder_exception.VolumeDriverException(message=_(
            'the logical volume of %(path)s cannot be deleted yet: copies '
            'wait for its source on %(host)s, and the iSCSI session to that '
            'could not be ended. End it ("iscsiadm -m node -T %(iqn)s '
            '--logout") or bring that node back, then delete the volume '
            'again.') % {
                'path': names.path(),
                'host': placeholder.backend if placeholder else '?',
                'iqn': initiator.iqn_of(location) if location and (
                    not initiator.is_local(location)) else '?'})

    def remove_devices(self, names: Names, placeholder: Placeholder | None,
                       *roles: str) -> None:
        """Remove a clone's devices and session, but not its metadata.

        :param placeholder: its row, which knows the session; None if gone
        :param roles: of the devices that are removed first: os-brick takes
            any device on an imported disk for a multipath device
        """
        LocalVolume(names).remove(*roles)
        steps.reached(Step.DISMANTLED, names.name_id)
        if placeholder is not None:
            self._backend.initiator.disconnect(placeholder.provider_location,
                                               placeholder.provider_auth)
        steps.reached(Step.DISCONNECTED, names.name_id)

    def forget_metadata(self, names: Names) -> None:
        """Remove the metadata of a former clone."""
        self._backend.metadata.remove(names)
        steps.reached(Step.FORGOTTEN, names.name_id)

    def refuse_opened(self, names: Names,
                      placeholder: Placeholder | None) -> None:
        """Refuse to delete a volume's home, whatever the database says.

        :raises: DatabaseBehind
        """
        lv = self._backend.logical_volume(names)
        if lv is not None and lv.opened:
            raise exception.DatabaseBehind(
                lv=lv.full_name,
                volume=lv.tagged(logical_volumes.OPENED_TAG),
                state=placeholder.state if placeholder else _('unknown'))

    def delete_destination(self, names: Names,
                           placeholder: Placeholder | None) -> None:
        """Delete a destination that was never written.

        The move is aborted, so that it never switches over.

        :param placeholder: its row, which knows the session; None if gone
        :raises: DatabaseBehind if it has been a volume's home,
            PoolTakesNoChanges
        """
        self.refuse_opened(names, placeholder)
        # The gate stays closed until no device is above it. An unwritten clone
        # has no metadata to commit, so its removal does not wait at the gate.
        self.remove_devices(names, placeholder, HANDLE, ORIGIN, CLONE, GATE,
                            SOURCE)
        lv = self._backend.logical_volume(names)
        if lv is not None:
            deletion.remove(lv, self._backend.group)
        steps.reached(Step.DELETED, names.name_id)
        self.forget_metadata(names)
