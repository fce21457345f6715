# SPDX-License-Identifier: Apache-2.0
"""Connections of instances, and of Cinder itself, to volumes."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cinder.objects import fields
from cinder.volume import volume_types
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import attachments
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import deadline as deadline_module
from dmclone_driver.move.home import Home
from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move.peers import Peer
from dmclone_driver.move.peers import Peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.prepared_moves import PreparedMoves
from dmclone_driver.move import records
from dmclone_driver.move.remotes import Remotes
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names
from dmclone_driver.releases import models

LOG = logging.getLogger(__name__)

#: The statuses of a volume for which an attachment is being made. Cinder has
#: no task of its own with it meanwhile (cinder/volume/api.py, attach,
#: _attachment_reserve).
_ATTACHING = (fields.VolumeStatus.RESERVED, fields.VolumeStatus.ATTACHING)


class Connections:
    """Connects instances locally, and Cinder's own tasks over iSCSI."""

    def __init__(self, backend: backend_module.Backend, home: Home,
                 prepared_moves: PreparedMoves, preflight: Preflight,
                 peers: Peers, remotes: Remotes, target_driver: Any) -> None:
        self._backend = backend
        self._home = home
        self._prepared_moves = prepared_moves
        self._preflight = preflight
        self._peers = peers
        self._remotes = remotes
        #: Cinder's target driver, for connections over iSCSI.
        self._target_driver = target_driver

    def begin(self, volume: objects.Volume,
              connector: dict[str, Any]) -> dict[str, Any]:
        """Make a volume usable on the connector's host.

        If the operator allows it, a node without room gets a remote
        connection.

        :returns: ``{'driver_volume_type': 'local', 'data': {'device_path':
            '/dev/mapper/dmclone-...', 'volume_id': ...}}``, or the same of
            Cinder's target driver: ``{'driver_volume_type': 'iscsi', ...}``
        :raises: NoPeer, MoveRefused, MoveFailed, HandleMissing,
            EncryptionRefused
        """
        deadline = deadline_module.Deadline.of_request()
        context = backend_module.context_of(volume)
        asked_by_cinder = attachments.is_internal(volume)
        with self._backend.lock(volume.id, deadline.left()):
            self._preflight.refuse_if_gone(context, volume, _('attach'))
            self._refuse_unusable(volume, _('attach'))
            if attachments.is_internal(volume):
                if not asked_by_cinder:
                    raise exception.MoveRefused(
                        volume=volume.id, host=connector.get('host'),
                        reason=_('the attachment was deleted meanwhile; '
                                 'attach the volume again'))
                return self._connect_internal(context, volume, connector)
            self._refuse_encryption(context, volume)
            peer = self._find_peer(context, volume, connector)
            if peer is None:
                # Both would use the volume's provider_location.
                self._home.abort_unused_move(context, volume,
                                             connector['host'], deadline)
                return self._connect_remote(context, volume, connector)
            if peer.backend_host == self._backend.host:
                return self._connect_at_home(volume)
            return self._connect_on_peer(context, volume, peer, connector,
                                         deadline)

    def end(self, volume: objects.Volume,
            connector: dict[str, Any] | None) -> bool:
        """End a connection, and continue a move that waited for its end.

        :returns: whether the volume's export, if any, is still needed
        """
        context = backend_module.context_of(volume)
        with self._backend.lock(volume.id):
            volume.refresh()
            self._backend.correct(context, volume)
            if placeholders.is_placeholder(volume):
                return True
            if not self._backend.holds(volume):
                LOG.info('Volume %(volume)s has moved to %(host)s.',
                         {'volume': volume.id, 'host': volume.host})
                return True
            if lookups.prepared_move(volume):
                return self._prepared_moves.end_attachment(context, volume,
                                                           connector)
            if self._remote(volume) and connector:
                self._end_remote(context, volume, connector)
            return len(volume.volume_attachment) > 1

    def find_server(self, context: cinder_context.RequestContext,
                    volume: objects.Volume, connector: dict[str, Any]) -> None:
        """Verify that a peer can serve a connector; export nothing.

        :raises: NoPeer
        """
        # A copy: initialize_connection checks whether its caller's row, read
        # when the request was made, had an attachment.
        row = lookups.get(context, volume.id)
        if row is not None and not attachments.is_internal(row):
            try:
                self._find_peer(context, row, connector)
            except exception.NoPeer:
                messages.tell_user(row)
                raise

    def end_export(self, context: cinder_context.RequestContext,
                   volume: objects.Volume | models.Volume) -> None:
        """Remove an export without connections; keep the export of a move.

        Cinder also calls this when another attachment failed.
        """
        # Some callers in Cinder pass the database's own row.
        volume = lookups.get(context, volume.id)
        if volume is not None and not placeholders.is_placeholder(volume) and (
                self._backend.holds(volume) and self._remote(volume) and
                not attachments.elsewhere(volume, self._backend.node)):
            self._end_export(context, volume)

    def restore(self, context: cinder_context.RequestContext,
                volume: objects.Volume, built: bool) -> None:
        """Export a volume again for its remote guests, as before a boot.

        Their nodes log in again by themselves, with the same password. If
        that fails Cinder would set the volume to error, in which it cannot be
        detached. So it is logged.

        :param built: whether this start of the service has made its handle
        """
        try:
            if not self._is_exported(volume):
                # A start waits for no lock of a volume that moves: who holds
                # that may be asking a peer.
                return
            with self._backend.lock(volume.id):
                row = lookups.get(context, volume.id)
                if row is not None and self._backend.holds(row) and (
                        self._is_exported(row)):
                    self._restore(context, row, built)
        except Exception:
            LOG.exception('Volume %(volume)s is not exported again for its '
                          'remote connections. Detach it and attach it '
                          'again.', {'volume': volume.id})

    def _restore(self, context: cinder_context.RequestContext,
                 volume: objects.Volume, built: bool) -> None:
        names = Names(volume.name_id)
        users = attachments.elsewhere(volume, self._backend.node)
        if not users:
            return
        # The database may have been restored.
        self._preflight.refuse_by_tags(
            volume, _('attach'), self._backend.logical_volume(names))
        # A target holds its device open. The start before this one may have
        # made the handle, and have been killed.
        missing = built or not LocalVolume(names).is_open()
        if missing:
            # What is left of it has no device.
            self._target_driver.remove_export(context, volume)
            self._export(context, volume)
        for each in users:
            self._target_driver.initialize_connection(volume, each.connector)
        if missing:
            self._tell_restored(volume, users)

    @staticmethod
    def _tell_restored(
            volume: objects.Volume,
            users: collections.abc.Iterable[objects.VolumeAttachment]
    ) -> None:
        LOG.info('Volume %(volume)s is exported again for %(users)s.', {
            'volume': volume.id, 'users': ', '.join(
                each.connector['host'] for each in users)})

    def _find_peer(self, context: cinder_context.RequestContext,
                   volume: objects.Volume,
                   connector: dict[str, Any]) -> Peer | None:
        """Return a connector's peer, or None for a remote attachment."""
        pool = volume_utils.extract_host(volume.host, 'pool')
        try:
            return self._peers.find(context, connector, pool, volume.id)
        except exception.NoPeer:
            if self._backend.configuration.dmclone_remote_attach:
                return None
            raise

    @staticmethod
    def _refuse_encryption(context: cinder_context.RequestContext,
                           volume: objects.Volume) -> None:
        """Refuse encryption that is not done by QEMU.

        os-brick's LuksEncryptor and CryptsetupEncryptor replace the path that
        they are given with a symbolic link to the decrypted device. With the
        provider luks, Nova leaves decryption to QEMU
        (os_brick/encryptors/luks.py; nova/virt/libvirt/driver.py,
        _allow_native_luksv1).
        """
        if not volume.encryption_key_id:
            return
        encryption = volume_types.get_volume_type_encryption(
            context, volume.volume_type_id) or {}
        if encryption.get('provider') != 'luks':
            messages.tell_user(volume)
            raise exception.EncryptionRefused(
                volume=volume.id, provider=encryption.get('provider'))

    def _refuse_unusable(self, volume: objects.Volume, action: str) -> None:
        """Refuse a volume whose logical volume here has other data.

        :raises: PartlyDeleted, MovedAway
        """
        try:
            self._preflight.refuse_by_tags(
                volume, action,
                self._backend.logical_volume(Names(volume.name_id)))
        except (exception.PartlyDeleted, exception.MovedAway):
            messages.tell_user(volume)
            raise

    def _connect_on_peer(self, context: cinder_context.RequestContext,
                         volume: objects.Volume, peer: Peer,
                         connector: dict[str, Any],
                         deadline: deadline_module.Deadline
                         ) -> dict[str, Any]:
        if self._is_remote_on(volume, connector):
            # A repeated request: the guest there is using it.
            return self._connect_remote(context, volume, connector)
        self._end_forgotten(context, volume)
        try:
            path = self._home.move(context, volume, peer, connector['host'],
                                   deadline)
        except Exception as error:
            if isinstance(error, exception.NoRoomOnPeer) and (
                    self._may_stay(volume, connector)):
                return self._connect_without_room(context, volume, connector,
                                                  error)
            messages.tell_user(volume)
            raise
        return self._connect_local(volume, path)

    def _is_remote_on(self, volume: objects.Volume,
                      connector: dict[str, Any]) -> bool:
        """Whether a guest uses a volume on the connector's host remotely."""
        return self._is_exported(volume) and attachments.complete(
            volume, connector['host'])

    def _end_forgotten(self, context: cinder_context.RequestContext,
                       volume: objects.Volume) -> None:
        """End the export of an attachment that was never completed.

        The service may have ended while it made one. No guest uses it.
        """
        if (self._is_exported(volume) and volume.status in _ATTACHING and
                not attachments.used_elsewhere(volume, self._backend.node)):
            LOG.info('The remote connection of volume %(volume)s, whose '
                     'attachment was not completed, is ended.',
                     {'volume': volume.id})
            self._end_export(context, volume)
            volume.refresh()

    def _may_stay(self, volume: objects.Volume,
                  connector: dict[str, Any]) -> bool:
        """Whether a node without room gets a remote connection.

        Only if no other node uses the volume: a second one would write it
        beside the guest. A live migration's second attachment is refused.
        """
        return (self._backend.configuration.dmclone_remote_attach_without_room
                and not lookups.prepared_move(volume) and
                not attachments.used_elsewhere(volume, connector['host']) and
                # Nova completes an attachment after its guest has begun.
                not LocalVolume(Names(volume.name_id)).is_open())

    def _connect_without_room(self, context: cinder_context.RequestContext,
                              volume: objects.Volume,
                              connector: dict[str, Any],
                              error: exception.NoRoomOnPeer
                              ) -> dict[str, Any]:
        LOG.info('Volume %(volume)s is connected remotely on %(node)s and '
                 'stays on %(home)s: %(reason)s.', {
                     'volume': volume.id, 'node': connector['host'],
                     'home': self._backend.node,
                     'reason': error.kwargs['reason']})
        self._remotes.look_soon()
        return self._connect_remote(context, volume, connector)

    def _connect_at_home(self, volume: objects.Volume) -> dict[str, Any]:
        names = Names(volume.name_id)
        if not LocalVolume(names).exists():
            messages.tell_user(volume)
            raise exception.HandleMissing(
                volume=volume.id, host=volume.host, path=names.path())
        return self._connect_local(volume, names.path())

    @staticmethod
    def _connect_local(volume: objects.Volume, path: str) -> dict[str, Any]:
        return {'driver_volume_type': 'local',
                'data': {'device_path': path, 'volume_id': volume.id}}

    def _connect_internal(self, context: cinder_context.RequestContext,
                          volume: objects.Volume,
                          connector: dict[str, Any]) -> dict[str, Any]:
        """Connect one of Cinder's own tasks without moving the volume."""
        if attachments.attached_on(connector, self._backend.node) or (
                connector.get('initiator') ==
                self._backend.initiator.name()):
            return self._connect_at_home(volume)
        self._preflight.refuse_while_prepared(context, volume, _('copy'))
        return self._connect_remote(context, volume, connector)

    def _connect_remote(self, context: cinder_context.RequestContext,
                        volume: objects.Volume,
                        connector: dict[str, Any]) -> dict[str, Any]:
        # Cinder copies provider_location from the volume that it migrates.
        if not (self._is_exported(volume) and volume.provider_auth):
            # First: who finds it ends an export that was not recorded.
            records.set_export(context, volume, self._location(volume), None)
            self._export(context, volume)
        return self._target_driver.initialize_connection(volume, connector)

    def _export(self, context: cinder_context.RequestContext,
                volume: objects.Volume) -> None:
        """Create an export, with the password in the row if there is one."""
        export = self._target_driver.create_export(
            context, volume, Names(volume.name_id).path())
        records.set_export(context, volume, export['location'],
                           export['auth'])
        volume.refresh()

    def _location(self, volume: objects.Volume) -> str:
        """Return by what Cinder's target driver finds an export to end it.

        It reads the second word (remove_export in
        cinder/volume/targets/iscsi.py).
        """
        options = self._backend.configuration
        return '%s:%s,1 %s%s 1' % (
            options.target_ip_address, options.target_port,
            options.target_prefix, volume.name)

    def _is_exported(self, volume: objects.Volume) -> bool:
        """Whether a volume has an export of its own, or was to get one."""
        return self._remote(volume) and (
            self._backend.configuration.target_prefix + volume.name
            in volume.provider_location)

    def _end_remote(self, context: cinder_context.RequestContext,
                    volume: objects.Volume, connector: dict[str, Any]) -> None:
        """End a remote connection; remove the export after the last one."""
        self._target_driver.terminate_connection(volume, connector)
        if all(attachments.attached_on(record.connector,
                                       connector.get('host'))
               for record in attachments.elsewhere(volume,
                                                   self._backend.node)):
            self._end_export(context, volume)

    def _end_export(self, context: cinder_context.RequestContext,
                    volume: objects.Volume) -> None:
        self._target_driver.remove_export(context, volume)
        records.set_export(context, volume, None, None)

    def _remote(self, volume: objects.Volume) -> bool:
        """Whether a volume is exported for a connection, not for a move."""
        return bool(volume.provider_location and
                    not lookups.prepared_move(volume))
