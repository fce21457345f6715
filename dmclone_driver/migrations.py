# SPDX-License-Identifier: Apache-2.0
"""Migrations that Cinder requests: moves to peers, and its own copies."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import objects

from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move.home import Home
from dmclone_driver.move.peers import Peers
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move import row_repairs
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names


class Migrations:
    """Migrates volumes of one backend that are not attached."""

    def __init__(self, backend: Backend, preflight: Preflight, home: Home,
                 peers: Peers) -> None:
        self._backend = backend
        self._preflight = preflight
        self._home = home
        self._peers = peers

    def move(self, context: cinder_context.RequestContext,
             volume: objects.Volume, host: str) -> bool:
        """Move a volume to a peer, whose host the row has afterwards.

        :param host: ``node2@dmclone#dmclone``
        :returns: False if that is no peer: Cinder has to copy the volume
        :raises: MigrationRefused, MoveFailed
        """
        deadline = Deadline.of_request()
        peer = self._peers.on_host(context, host)
        with self._backend.lock(volume.id, deadline.left()):
            self._preflight.refuse_if_gone(context, volume, _('migrate'))
            if peer is None:
                self._preflight.refuse_while_prepared(context, volume,
                                                      _('migrate'))
                return False
            self._preflight.refuse_by_tags(
                volume, _('migrate'),
                self._backend.logical_volume(Names(volume.name_id)))
            # The row's host may have been altered: it is here already.
            if peer.backend_host != self._backend.host:
                self._home.migrate(context, volume, peer, deadline)
        return True

    def exchange(self, context: cinder_context.RequestContext,
                 volume: objects.Volume,
                 new_volume: objects.Volume) -> dict[str, str | None]:
        """Exchange the owners of two logical volumes after Cinder's copy.

        :returns: the update of the volume's row, without provider_id, which
            Cinder itself exchanges, once
        """
        # Cinder's objects may be hours old, and Cinder uses them afterwards.
        volume.refresh()
        new_volume.refresh()
        row_repairs.exchange_owners(context, volume, new_volume)
        # A prepared move is aborted now, and its export is not in the row.
        new_volume.refresh()
        lv = self._backend.logical_volume(Names(new_volume.name_id))
        if lv is not None and lv.tagged(logical_volumes.OPENED_TAG) == (
                new_volume.id):
            # The tag has to name the volume that stays.
            logical_volumes.retag(lv, logical_volumes.OPENED_TAG,
                                  logical_volumes.OPENED_TAG + volume.id)
        return {'_name_id': new_volume.name_id,
                'provider_location': new_volume.provider_location}
