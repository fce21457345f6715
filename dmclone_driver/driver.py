# SPDX-License-Identifier: Apache-2.0
"""The volume driver class that Cinder loads and calls.

Cinder's LVM driver handles the logical volumes of one node. This driver adds
the handles that users of a volume open, and the moves between nodes. Its
methods are what Cinder calls. They say who does the work: Cinder's LVM driver
(``super()``) or one of the parts, each in a file of its own.
"""

from typing import Any

from cinder import context as cinder_context
from cinder import coordination
from cinder import exception as cinder_exception
from cinder import interface
from cinder.message import message_field
from cinder import objects
from cinder.volume.drivers import lvm
from cinder.volume import volume_utils
from oslo_config import cfg

import dmclone_driver
from dmclone_driver import backups
from dmclone_driver.checks import start
from dmclone_driver import creations
from dmclone_driver import groups
from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver import manageable
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import counts
from dmclone_driver.move import events
from dmclone_driver.move import messages
from dmclone_driver.move import notifications
from dmclone_driver.node import deletion
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver import opening
from dmclone_driver import opts
from dmclone_driver.parts import Parts
from dmclone_driver import releases
from dmclone_driver.releases import models
from dmclone_driver import stats

# Fields about exports and moves that are cleared in a new row. Cinder copies
# them from the volume that it migrates, or clones for images
# (cinder/volume/manager.py, _migrate_volume_generic, _clone_image_volume).
_CLEARED_EXPORT_FIELDS = ('provider_location', 'provider_auth',
                          'replication_driver_data')


def _names(volume: objects.Volume) -> Names:
    return Names(volume.name_id)


@interface.volumedriver
class DMCloneVolumeDriver(lvm.LVMVolumeDriver):
    """LVM volumes that move to the nodes of the instances that use them."""

    VERSION = dmclone_driver.__version__
    CI_WIKI_NAME = 'dmclone_driver_CI'
    # Cinder's object of the volume group.
    vg: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(opts.MOVE_OPTS)
        self.protocol = 'local'
        # As configured: a start replaces "auto".
        self._lvm_type = self.configuration.lvm_type
        # Nothing uses these before check_for_setup_error() has opened them.
        self._backend: Backend = None  # type: ignore[assignment]
        self._notifications: notifications.Notifications = (
            None)  # type: ignore[assignment]
        self._parts: Parts = None  # type: ignore[assignment]

    @classmethod
    def get_driver_options(cls) -> list[cfg.Opt]:
        """Return the options of this driver and of its base classes."""
        return opts.MOVE_OPTS + super().get_driver_options()

    # Start-up

    def check_for_setup_error(self) -> None:
        """Verify the configuration, rebuild handles, start to serve peers.

        Cinder calls this again if it fails.

        :raises: BadConfiguration
        """
        # Before any check that can fail: guests wait for these handles.
        devices.resume_left()
        start.check_kernel(self.configuration)
        backend = self.open_backend(serves=True)
        if self._parts is None or self._parts.server is None:
            start.log_faults(self.configuration)
            self._backend = backend
            self._listen()
            self._parts = Parts(backend, self.target_driver, self.VERSION)
            self._parts.start(cinder_context.get_admin_context(),
                              self._notifications)

    def open_backend(self, serves: bool = False) -> Backend:
        """Open this node's backend, without recovery and without peers.

        :param serves: whether this is cinder-volume, which may create the
            thin pool; a command only looks at the node
        :returns: :class:`dmclone_driver.move.backend.Backend`
        :raises: BadConfiguration
        """
        start.check_options(self.configuration, DMCloneVolumeDriver)
        # A repeated start has it, as other parts do.
        if self._backend is None:
            opening.open_group(self.configuration, self._lvm_type,
                               self._open_group, serves)
        return opening.open_backend(self.host, self.configuration, self.vg,
                                    self._execute)

    def _open_group(self, pool: str | None = None) -> None:
        """Open the volume group again.

        :param pool: name of the thin pool of the group that is open, if Cinder
            is not to activate it
        """
        if pool is None:
            # Cinder opens it once.
            self.vg = None
        else:
            self.vg.vg_thin_pool = pool
        super().check_for_setup_error()
        stats.accept_inactive_pool(self.vg)

    def _listen(self) -> None:
        """Listen to events and errors; once, if the start is repeated."""
        if self._notifications is None:
            self._notifications = notifications.Notifications(self.host)
            self._notifications.start()
            events.listen(self._notifications.listen)
            events.listen(counts.listen)
            counts.watch_log()

    # Statistics

    def _update_volume_stats(self) -> None:
        """Report LVM's capacities and this driver's capabilities.

        Cinder calls this each minute: it also does what is due then.
        """
        super()._update_volume_stats()
        self._parts.look_around(cinder_context.get_admin_context())
        stats.complete(self._stats, self._backend, self.protocol,
                       self.VERSION)

    def get_default_goodness_function(self) -> str:
        """Return how good the node is for volumes: its share of free space.

        Cinder uses it if the operator enables GoodnessWeigher, and has set no
        goodness_function.
        """
        return stats.goodness(self._backend)

    # Volumes

    def create_volume(self, volume: objects.Volume) -> dict[str, Any]:
        """Create an empty volume; return the update of its row.

        :raises: MigrationRefused if a volume in use would be copied to it
            in vain
        """
        self._parts.preflight.refuse_copy_in_vain(
            backend_module.context_of(volume), volume)
        super().create_volume(volume)
        return self._model_update(volume)

    def create_volume_from_snapshot(
            self, volume: objects.Volume,
            snapshot: objects.Snapshot) -> dict[str, Any]:
        """Create a volume as a clone of a snapshot, which may be elsewhere.

        It shares the blocks of a thin snapshot that is here.

        :returns: the update of its row
        :raises: SnapshotNotServed
        """
        with creations.telling(volume):
            self._parts.creations.of_snapshot(volume, snapshot,
                                              self._sizestr(volume.size))
        return self._model_update(volume)

    def create_cloned_volume(self, volume: objects.Volume,
                             src_vref: objects.Volume | models.Volume
                             ) -> dict[str, Any]:
        """Create a volume as a clone of a volume on this node.

        It shares the blocks of a thin volume that is complete.

        :returns: the update of its row
        :raises: NotHere, RequestsWait, SnapshotNotServed
        """
        with creations.telling(volume):
            self._parts.creations.of_volume(
                volume, releases.as_object(
                    backend_module.context_of(volume), src_vref),
                self._here(volume), self._sizestr(volume.size))
        return self._model_update(volume)

    def _model_update(self, volume: objects.Volume) -> dict[str, Any]:
        """Return the fields that Cinder has to change in a new row.

        Unchanged fields are left out: Cinder saves the update again after it
        has copied an image, when a move may already have begun.
        """
        update = {field: None for field in _CLEARED_EXPORT_FIELDS
                  if volume[field]}
        return dict(update, provider_id=self._here(volume))

    def _here(self, volume: objects.Volume) -> str:
        """Return this host, with the pool, ``node@backend#pool``."""
        return volume_utils.append_host(self.host, self.get_pool(volume))

    def _create_volume(self, name: str, size: str, lvm_type: str,
                       mirror_count: int, vg: Any = None) -> None:
        """Create a logical volume and its handle; all creations use this."""
        super()._create_volume(name, size, lvm_type, mirror_count, vg)
        self._ensure_handle(Names(
            volume_utils.extract_id_from_volume_name(name)))

    def _ensure_handle(self, names: Names) -> None:
        lv = self._backend.logical_volume(names)
        # It was created or renamed a moment ago.
        assert lv is not None
        # A thin snapshot that becomes a volume need not be active.
        logical_volumes.activate(lv)
        LocalVolume(names).ensure_linear(lv)

    def local_path(self, volume: objects.Volume | objects.Snapshot,
                   vg: str | None = None) -> str:
        """Return the handle of a volume, or the device of a snapshot.

        Only the handle is ever opened. To the kernel the logical volume below
        it is another device, with another cache.
        """
        if isinstance(volume, objects.Volume):
            return _names(volume).path()
        return super().local_path(volume, vg)

    def extend_volume(self, volume: objects.Volume, new_size: int) -> None:
        """Extend a volume without a prepared move; it may be hydrating.

        :param new_size: GiB
        """
        self._parts.extensions.extend(volume, self._sizestr(new_size))

    def delete_volume(self, volume: objects.Volume) -> None:
        """Delete a volume, hydrated or not; succeed if it is already gone.

        :raises: VolumeIsBusy; InvalidVolume for a volume in a group
        """
        self._parts.deletions.delete(volume)

    def _delete_volume(self, volume: objects.Volume | objects.Snapshot,
                       is_snapshot: bool = False) -> None:
        """Clear and delete a logical volume; all deletions use this."""
        if is_snapshot:
            super()._delete_volume(volume, is_snapshot)
        else:
            deletion.delete_volume(_names(volume), self.vg,
                                   self.configuration)

    # Snapshots and groups

    def create_snapshot(self,
                        snapshot: objects.Snapshot) -> dict[str, str]:
        """Create a snapshot of a volume, which may be moving.

        :returns: the update of its row
        """
        self._parts.new_snapshots.take(snapshot.volume, snapshot)
        return {'provider_id': self._here(snapshot.volume)}

    def delete_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Delete a snapshot, whichever node it is on.

        :raises: SnapshotIsBusy
        """
        self._parts.snapshots.delete(cinder_context.get_admin_context(),
                                     snapshot)

    def revert_to_snapshot(self, context: cinder_context.RequestContext,
                           volume: objects.Volume,
                           snapshot: objects.Snapshot) -> None:
        """Revert a volume that is not in use; it may be hydrating.

        :raises: NotImplementedError if the snapshot is on another node, and
            there is no room to copy it behind: Cinder copies it then
            (VolumeManager._revert_to_snapshot_generic in
            cinder/volume/manager.py)
        """
        with messages.telling(volume, messages.OTHER):
            revert_id = self._parts.reverts.revert(volume, snapshot)
        if revert_id is None:
            raise NotImplementedError
        self._parts.reverts.start(volume, revert_id)

    def create_group_snapshot(
            self, context: cinder_context.RequestContext,
            group_snapshot: objects.GroupSnapshot,
            snapshots: list[objects.Snapshot]) -> groups.Updates:
        """Create a snapshot of each member of a group, or of none.

        :raises: GroupRefused
        """
        return self._parts.groups.snapshot(group_snapshot, snapshots,
                                           self.create_snapshot)

    def create_group_from_src(
            self, context: cinder_context.RequestContext,
            group: objects.Group, volumes: list[objects.Volume],
            group_snapshot: objects.GroupSnapshot | None = None,
            snapshots: list[objects.Snapshot] | None = None,
            source_group: objects.Group | None = None,
            source_vols: list[objects.Volume] | None = None
    ) -> groups.Updates:
        """Create the volumes of a group from another one, or none of them.

        :param snapshots: of the group snapshot, in the order of the volumes
        :param source_vols: of the source group, in the order of the volumes
        :raises: GroupRefused
        """
        if snapshots:
            return self._parts.groups.from_snapshots(
                context, group, volumes, snapshots,
                self.create_volume_from_snapshot, self.delete_volume)
        return self._parts.groups.from_volumes(
            group, volumes, source_vols or [], self.create_cloned_volume,
            self.delete_volume)

    # Taking over what LVM has, and giving it up

    def manage_existing(self, volume: objects.Volume | dict[str, str],
                        existing_ref: dict[str, str]) -> dict[str, Any] | None:
        """Take over a logical volume; return the update of its row.

        :raises: ManageExistingInvalidReference if it is part of a move,
            or has a handle
        """
        if not isinstance(volume, objects.Volume):
            # Of a snapshot Cinder's LVM driver passes the name only.
            self._manage(volume, existing_ref)
            return None
        with creations.telling(volume):
            self._manage(volume, existing_ref)
        self._ensure_handle(_names(volume))
        return self._model_update(volume)

    def _manage(self, volume: objects.Volume | dict[str, str],
                existing_ref: dict[str, str]) -> None:
        manageable.refuse_used(self.vg.vg_name, volume['name'], existing_ref)
        super().manage_existing(volume, existing_ref)

    def manage_existing_snapshot_get_size(
            self, snapshot: objects.Snapshot,
            existing_ref: dict[str, str]) -> int:
        """Return the size of a snapshot's content, in GiB."""
        size = super().manage_existing_snapshot_get_size(snapshot,
                                                         existing_ref)
        return manageable.content_gb(self.vg.vg_name,
                                     existing_ref['source-name']) or size

    def manage_existing_snapshot(self, snapshot: objects.Snapshot,
                                 existing_ref: dict[str, str]
                                 ) -> dict[str, str]:
        """Rename a logical volume that is a snapshot.

        :returns: the update of its row, which Cinder itself does not finish
        """
        super().manage_existing_snapshot(snapshot, existing_ref)
        return {'progress': '100%'}

    def get_manageable_volumes(
            self, cinder_volumes: list[objects.Volume], marker: Any,
            limit: int | None, offset: int | None, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, Any]]:
        """Return the logical volumes that can be managed, and the others.

        :returns: e.g. ``[{'reference': {'source-name': 'volume-1'}, 'size':
            1, 'cinder_id': None, 'safe_to_manage': True, 'reason_not_safe':
            None, 'extra_info': None}]``
        """
        entries = manageable.read(
            super().get_manageable_volumes, cinder_volumes, marker, limit,
            offset, sort_keys, sort_dirs)
        return manageable.without_used(self.vg.vg_name, entries)

    def get_manageable_snapshots(
            self, cinder_snapshots: list[objects.Snapshot], marker: Any,
            limit: int | None, offset: int | None, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, Any]]:
        """Return the snapshots that can be managed, and the others.

        :returns: as of :meth:`get_manageable_volumes`
        """
        entries = manageable.read(
            super().get_manageable_snapshots, cinder_snapshots, marker, limit,
            offset, sort_keys, sort_dirs)
        group = self.vg.vg_name
        return manageable.without_used(
            group, manageable.with_sizes(group, entries))

    def unmanage(self, volume: objects.Volume) -> None:
        """Remove the handle, and keep the logical volume."""
        with messages.telling(volume, message_field.Action.UNMANAGE_VOLUME):
            self._parts.unmanaging.unmanage(volume)

    def unmanage_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Keep a snapshot of LVM's own.

        :raises: SnapshotIsBusy
        """
        self._parts.unmanaging.unmanage_snapshot(
            cinder_context.get_admin_context(), snapshot)

    # Migrations and transfers

    def migrate_volume(self, context: cinder_context.RequestContext,
                       volume: objects.Volume,
                       host: dict[str, Any]
                       ) -> tuple[bool, dict[str, str] | None]:
        """Move a volume to a peer; leave others to Cinder's generic copy.

        Cinder calls this for a volume without attachments only.

        :returns: ``(True, {'host': 'node2@dmclone#dmclone'})``, or
            ``(False, None)`` if Cinder has to copy the volume
        :raises: MigrationRefused, MoveFailed
        """
        with messages.telling(
                volume, message_field.Action.SCHEDULE_ALLOCATE_VOLUME):
            moved = self._parts.migrations.move(context, volume, host['host'])
        return moved, {'host': volume.host} if moved else None

    def update_migrated_volume(
            self, context: cinder_context.RequestContext,
            volume: objects.Volume, new_volume: objects.Volume,
            original_volume_status: str) -> dict[str, str | None]:
        """Keep the names of both logical volumes after a migration."""
        return self._parts.migrations.exchange(context, volume, new_volume)

    def retype(self, context: cinder_context.RequestContext,
               volume: objects.Volume, new_type: objects.VolumeType,
               diff: dict[str, Any],
               host: dict[str, Any]) -> tuple[bool, dict[str, str]]:
        """Change a volume's type, and return the host that it is on now.

        Cinder saves the scheduler's host, which may be outdated, unless the
        driver returns another one. An error would make Cinder copy the
        volume, if that is allowed (VolumeManager.retype in
        cinder/volume/manager.py).
        """
        volume.refresh()
        self._backend.correct(context, volume)
        return True, {'host': volume.host}

    def accept_transfer(self, context: cinder_context.RequestContext,
                        volume: models.Volume, new_user: str,
                        new_project: str) -> None:
        """Refuse to give a placeholder to another project.

        :param volume: the database's own row
        :raises: IsPlaceholder
        """
        self._parts.preflight.refuse_placeholder(volume, _('transfer'))

    # Images and backups

    def clone_image(self, context: cinder_context.RequestContext,
                    volume: objects.Volume,
                    image_location: tuple[str | None, Any] | None,
                    image_meta: dict[str, Any],
                    image_service: Any) -> tuple[None, bool]:
        """Have an image in this node's cache if a peer has it.

        Cinder looks there next, and clones the volume from it.

        :returns: ``(None, False)``: the volume is not created yet
        """
        if self.configuration.image_volume_cache_enabled:
            self._parts.image_cache.fetch(volume, image_meta)
        return None, False

    def copy_image_to_volume(self, context: cinder_context.RequestContext,
                             volume: objects.Volume, image_service: Any,
                             image_id: str,
                             disable_sparse: bool = False) -> None:
        """Copy an image to a volume, which must not move meanwhile."""
        with in_one_place.staying(self._backend, self._parts.preflight,
                                  context, volume):
            super().copy_image_to_volume(context, volume, image_service,
                                         image_id, disable_sparse)

    def copy_image_to_encrypted_volume(
            self, context: cinder_context.RequestContext,
            volume: objects.Volume, image_service: Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Copy an image to an encrypted volume, which must not move."""
        with in_one_place.staying(self._backend, self._parts.preflight,
                                  context, volume):
            super().copy_image_to_encrypted_volume(
                context, volume, image_service, image_id, disable_sparse)

    def copy_volume_to_image(self, context: cinder_context.RequestContext,
                             volume: objects.Volume, image_service: Any,
                             image_meta: dict[str, Any]) -> None:
        """Copy a volume to an image without moving the volume.

        :raises: NotHere, IsPlaceholder, PartlyDeleted, MovedAway
        """
        preflight = self._parts.preflight
        preflight.refuse_if_gone(context, volume, _('upload'))
        preflight.refuse_by_tags(
            volume, _('upload'), self._backend.logical_volume(_names(volume)))
        super().copy_volume_to_image(context, volume, image_service,
                                     image_meta)

    def backup_use_temp_snapshot(self) -> bool:
        """Return False: backups read a clone, which any node can attach.

        Cinder's LVM driver cannot export a snapshot itself.
        """
        return False

    def get_backup_device(self, context: cinder_context.RequestContext,
                          backup: objects.Backup
                          ) -> tuple[objects.Volume, bool]:
        """Return the volume that a backup reads, a clone of one in use."""
        try:
            return super().get_backup_device(context, backup)
        except Exception as error:
            backups.fail(context, backup, str(error))
            raise

    # Connections

    def validate_connector(self, connector: dict[str, Any]) -> bool:
        """Verify that a connector has a host and an initiator.

        Its peer is looked up in :meth:`create_export`, where the volume is
        known, too, so that the volume's user gets a message.
        """
        for key in ('host', 'initiator'):
            if not connector.get(key):
                raise cinder_exception.InvalidConnectorException(missing=key)
        return True

    def create_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume, connector: dict[str, Any],
                      vg: str | None = None) -> None:
        """Verify that a peer can serve a connector; export nothing.

        :raises: NoPeer
        """
        self._parts.connections.find_server(context, volume, connector)

    def ensure_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume) -> None:
        """Export a volume again that guests of other nodes use remotely.

        :mod:`recovery` has rebuilt all handles. If it had to, the target of
        before has no device.
        """
        if volume.provider_location:
            self._parts.connections.restore(
                context, volume, volume.id in self._parts.built)

    def remove_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume) -> None:
        """Remove an export without connections; keep the export of a move.

        Cinder also calls this when another attachment failed.
        """
        self._parts.connections.end_export(context, volume)

    def initialize_connection(self, volume: objects.Volume,
                              connector: dict[str, Any]) -> dict[str, Any]:
        """Make a volume usable on the connector's host.

        :returns: for an instance ``{'driver_volume_type': 'local', 'data':
            {'device_path': '/dev/mapper/dmclone-...', 'volume_id': ...}}``
        :raises: NoPeer, MoveRefused, MoveFailed, HandleMissing,
            EncryptionRefused
        """
        return self._parts.connections.begin(volume, connector)

    def terminate_connection(self, volume: objects.Volume,
                             connector: dict[str, Any] | None,
                             **kwargs: Any) -> bool:
        """End a connection, and continue a move that waited for its end.

        :returns: whether the volume's export, if any, is still needed
        """
        return self._parts.connections.end(volume, connector)

    @classmethod
    def clean_volume_file_locks(cls, volume_id: str) -> None:
        """Remove the files of a lock that is no longer needed."""
        coordination.synchronized_remove('dmclone-*-%s' % volume_id)
