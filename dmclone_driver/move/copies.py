# SPDX-License-Identifier: Apache-2.0
"""Volumes from snapshots and volumes, which are clones from the beginning.

A volume can be used at once, whatever its size. Its data is copied from the
snapshot in the background, from this node or another one. For a clone of a
volume a hidden snapshot of that is taken. It is deleted when the clone is
complete.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import uuid

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.move.activation import Activation
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.builder import Builder
from dmclone_driver.move import copy_records
from dmclone_driver.move import events
from dmclone_driver.move import lookups
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move import peers
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


class Copies:
    """Creates volumes from snapshots on this node."""

    def __init__(self, backend: Backend, builder: Builder,
                 activation: Activation, teardown: Teardown,
                 requests: PeerRequests) -> None:
        self._backend = backend
        self._builder = builder
        self._activation = activation
        self._teardown = teardown
        self._requests = requests

    def create(self, context: cinder_context.RequestContext,
               volume: objects.Volume, snapshot_id: str, host: str,
               size: str, origin_id: str | None = None) -> None:
        """Create a volume as a clone of a snapshot on any node.

        :param host: that has the snapshot, ``node@backend#pool``
        :param size: of the volume, as LVM's commands take it
        :param origin_id: of the volume there, if a peer has yet to take the
            snapshot of it
        :raises: SnapshotUnavailable, SnapshotNotServed
        """
        placeholder_id = str(uuid.uuid4())
        names = Names(placeholder_id)
        with self._backend.mark_busy(names):
            with self._backend.lock(volume.id):
                self._begin(context, volume, placeholder_id, snapshot_id,
                            host)
                try:
                    self.build(context, volume, names, size, origin_id)
                except Exception as error:
                    with excutils.save_and_reraise_exception():
                        for kind in (events.Kind.ERROR, events.Kind.ABORT):
                            events.tell(events.Event(
                                kind, volume.id, placeholder_id, host,
                                volume.host, snapshot_id,
                                exception.text_of(error)))
            self.open(context, volume, names)

    def build(self, context: cinder_context.RequestContext,
              volume: objects.Volume, names: Names, size: str | None = None,
              origin_id: str | None = None,
              not_served: type[exception.SnapshotNotServed] = (
                  exception.SnapshotNotServed)) -> None:
        """Build the clone of a volume that has begun; undo that if it fails.

        Callers hold the volume's lock.

        :param size: of the volume; None if it is the snapshot's
        :param origin_id: as in :meth:`create`
        :param not_served: what is raised if the snapshot's node does not
            serve it; it says what its reader has to do
        """
        try:
            self._build(context, volume, names, size, origin_id, not_served)
        except Exception as error:
            with excutils.save_and_reraise_exception():
                LOG.error('%(names)s is not created from a snapshot: '
                          '%(error)s', {'names': names, 'error': error})
                self._undo(context, names)

    def open(self, context: cinder_context.RequestContext,
             volume: objects.Volume, names: Names) -> None:
        """Open a volume's clone, and start its hydration."""
        try:
            self._activation.activate(context, names.name_id, sealed=True)
        except Exception:
            LOG.exception('Volume %s is not open yet; that is tried again.',
                          volume.id)

    def _begin(self, context: cinder_context.RequestContext,
               volume: objects.Volume, placeholder_id: str,
               snapshot_id: str, pool: str) -> None:
        there, initiator = self.ends(context, volume, snapshot_id, pool)
        copy_records.begin(
            context, volume, placeholder_id, str(uuid.uuid4()), snapshot_id,
            there, initiator, self._backend.node)
        volume.refresh()
        LOG.info('Volume %(volume)s is copied from snapshot %(snapshot)s on '
                 '%(host)s to logical volume %(id)s.',
                 {'volume': volume.id, 'snapshot': snapshot_id,
                  'host': there.backend_host, 'id': placeholder_id})

    def ends(self, context: cinder_context.RequestContext,
             volume: objects.Volume, snapshot_id: str, pool: str
             ) -> tuple[peers.Peer, str]:
        """Return the backend that has a snapshot, and who imports it.

        :param pool: ``node@backend#pool``
        :returns: the backend as a peer, and the iSCSI name of this node,
            which is empty if the backend is this one
        :raises: SnapshotUnavailable
        """
        host = volume_utils.extract_host(pool)
        service = self._backend.service(context, host)
        if service is None:
            raise exception.SnapshotUnavailable(
                snapshot=snapshot_id, volume=volume.id, host=host)
        return (peers.Peer(host, pool, service.uuid,
                           service.availability_zone),
                '' if host == self._backend.host else
                self._backend.initiator.name())

    def _build(self, context: cinder_context.RequestContext,
               volume: objects.Volume, names: Names, size: str | None,
               origin_id: str | None,
               not_served: type[exception.SnapshotNotServed]) -> None:
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is None:
            raise exception.ReadLagsBehind(volume=volume.id)
        try:
            if origin_id is None:
                self._backend.client.export_source(
                    context, placeholder.backend, placeholder.id)
            else:
                self._backend.client.export_clone(
                    context, placeholder.backend, placeholder.id, origin_id)
            placeholder.refresh()
            self._builder.build_copy(names, placeholder, size)
        except (exception.PeerError, exception.SourceUnreachable) as error:
            raise not_served(
                snapshot=placeholder.snapshot_id, volume=volume.id,
                host=placeholder.backend, reason=error.msg)

    def _undo(self, context: cinder_context.RequestContext,
              names: Names) -> None:
        """Remove what was built; the deletion of the volume does the rest."""
        try:
            placeholder = lookups.placeholder(context, names.name_id)
            self._teardown.delete_destination(names, placeholder)
            if placeholder is not None:
                self._requests.release(context, placeholder)
        except Exception:
            LOG.exception('Removing the incomplete %s failed; the deletion '
                          'of the volume removes it.', names)
