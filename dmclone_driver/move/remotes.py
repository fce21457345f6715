# SPDX-License-Identifier: Apache-2.0
"""Volumes connected remotely to nodes without room, until there is some.

No call of Cinder or Nova exchanges the disk of a guest that runs. So such a
volume stays where it is until its next attachment, and its operator and its
user are told once when that would be local.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import Any

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move import needs
from dmclone_driver.move.peers import Peer
from dmclone_driver.move.peers import Peers
from dmclone_driver.move.report import Remote
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

#: Seconds between two looks. Each asks each node that has such a guest once.
PAUSE = 300
# Seconds that a node has to answer.
DESCRIBE_TIMEOUT = 5


class Remotes:
    """The volumes of this node that such guests use.

    The database says which they are: an instance on another node with this
    backend uses a volume that is exported. What is kept in memory says only
    what was told.
    """

    def __init__(self, backend: Backend, peers: Peers) -> None:
        self._backend = backend
        self._peers = peers
        #: As the last look has found them.
        self.found: tuple[Remote, ...] = ()
        #: When to look again.
        self._next = backend.jobs.pauses.now()
        #: (volume's id, node) that are known to have room.
        self._told: set[tuple[str, str]] = set()

    def look_soon(self) -> None:
        """Have the next look find a new connection."""
        self._next = self._backend.jobs.pauses.now()

    def look(self, context: cinder_context.RequestContext) -> None:
        """Find the volumes, and tell once of each that there is room for it.

        Without such volumes that is one small query in each pause.
        """
        now = self._backend.jobs.pauses.now()
        if now < self._next:
            return
        self._next = now + PAUSE
        answers: dict[str, dict[str, Any] | None] = {}
        found = []
        for volume_id in lookups.exported_on(context, self._backend.host):
            try:
                remote = self._look_at(context, volume_id, answers)
            except Exception:
                LOG.exception('Looking for room for volume %s, which is '
                              'connected remotely, failed; it is tried '
                              'again.', volume_id)
                continue
            found += [] if remote is None else [remote]
        self.found = tuple(found)
        self._told &= {(each.volume, each.node) for each in found}

    def _look_at(self, context: cinder_context.RequestContext,
                 volume_id: str, answers: dict[str, dict[str, Any] | None]
                 ) -> Remote | None:
        volume = lookups.get(context, volume_id)
        peer = None if volume is None else self._user(context, volume)
        if volume is None or peer is None:
            return None
        if peer.backend_host not in answers:
            answers[peer.backend_host] = self._ask(context, peer)
        there = answers[peer.backend_host]
        room = None if there is None else not volume.group_id and (
            needs.of(self._backend, Names(volume.name_id),
                     there).lacking(there) is None)
        if room and (volume.id, peer.node) not in self._told:
            self._tell(volume, peer)
        return Remote(volume.id, peer.node, room)

    def _user(self, context: cinder_context.RequestContext,
              volume: objects.Volume) -> Peer | None:
        """Return the peer on which a guest uses a volume remotely.

        Hosts without the backend have none, and Cinder's own tasks have no
        attachment.
        """
        if not self._backend.holds(volume) or lookups.prepared_move(volume):
            return None
        for record in attachments.elsewhere(volume, self._backend.node):
            try:
                peer = self._peers.find(context, record.connector, None,
                                        volume.id)
            except exception.NoPeer:
                continue
            if peer.backend_host != self._backend.host:
                return peer
        return None

    def _ask(self, context: cinder_context.RequestContext,
             peer: Peer) -> dict[str, Any] | None:
        """Return the answer of Destination.describe, None if there is none."""
        try:
            return self._backend.client.describe(
                context, peer.backend_host, DESCRIBE_TIMEOUT)
        except exception.PeerError:
            return None

    def _tell(self, volume: objects.Volume, peer: Peer) -> None:
        self._told.add((volume.id, peer.node))
        LOG.info('Volume %(volume)s is connected remotely on %(node)s, which '
                 'had no room for it. There is room now: live-migrate its '
                 'instance to %(home)s and from there to %(node)s, or detach '
                 'the volume and attach it again.', {
                     'volume': volume.id, 'node': peer.node,
                     'home': self._backend.node})
        messages.tell_user(volume, message_field.Action.UPDATE_ATTACHMENT,
                           message_field.Detail.VOLUME_INVALID_STATE)
