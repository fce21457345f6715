# SPDX-License-Identifier: Apache-2.0
"""Moves of volumes at rest that an operator's command requests.

Cinder migrates no volume that has snapshots. For other volumes the command
does what Cinder's migration does.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import Any

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move.home import Home
from dmclone_driver.move import left_behind
from dmclone_driver.move import lookups
from dmclone_driver.move.peers import Peer
from dmclone_driver.move.peers import Peers
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.node.names import Names


class Relocation:
    """Moves volumes without attachments from this node, their home."""

    def __init__(self, backend: Backend, home: Home, checks: Preflight,
                 peers: Peers) -> None:
        self._backend = backend
        self._home = home
        self._preflight = checks
        self._peers = peers

    def move(self, context: cinder_context.RequestContext, volume_id: str,
             node: str) -> dict[str, Any]:
        """Make a peer the home of a volume; do not wait for the hydration.

        :param node: the peer's name, as in its host
        :returns: e.g. ``{'host': 'node2@dmclone#dmclone', 'left_behind':
            ['snapshot ... of volume ...: 1.00 GiB in ...']}``
        :raises: MigrationRefused, MoveFailed, VolumeNotFound
        """
        deadline = Deadline.of_request()
        volume = lookups.get(context, volume_id)
        if volume is None:
            raise cinder_exception.VolumeNotFound(volume_id=volume_id)
        with self._backend.lock(volume_id, deadline.left()):
            self._preflight.refuse_if_gone(context, volume, _('move'))
            peer = self._check(context, volume, node)
            name = volume.name
            self._home.migrate(context, volume, peer, deadline)
            return {'host': volume.host, 'left_behind': [
                each.line() for each in left_behind.find(
                    self._backend.group.vg_name, name)]}

    def _check(self, context: cinder_context.RequestContext,
               volume: objects.Volume, node: str) -> Peer:
        """Return the peer; refuse what a migration by Cinder allows."""
        self._preflight.refuse_by_tags(
            volume, _('move'),
            self._backend.logical_volume(Names(volume.name_id)))
        peer = self._peers.on_node(
            context, node, volume_utils.extract_host(volume.host, 'pool'))
        if peer is None:
            raise self._refused(volume, node, _(
                'backend %s is not configured there') % self._peers.backend)
        if peer.backend_host == self._backend.host:
            raise self._refused(volume, node, _('it is there already'))
        if volume.migration_status in lookups.MIGRATES:
            raise self._refused(volume, node, _(
                'Cinder migrates it; wait for that to end (if it was '
                'interrupted, an administrator has to reset its migration '
                'status)'))
        return peer

    @staticmethod
    def _refused(volume: objects.Volume, node: str,
                 reason: str) -> exception.MigrationRefused:
        return exception.MigrationRefused(volume=volume.id, host=node,
                                          reason=reason)
