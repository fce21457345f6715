# SPDX-License-Identifier: Apache-2.0
"""Start-up: what peers have changed while this node was down.

They are told of a completion or an abort, and asked again for what was open.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import objects

from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import peer_requests
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import preflight
from dmclone_driver.move.recovery import Recovery
from dmclone_driver.node.names import Names

# Seconds until a failed synchronisation with the database is tried again.
PAUSE = 10


class CatchingUp:
    """Reads once, after the recovery, what peers have written before."""

    def __init__(self, backend: Backend, recovery: Recovery,
                 requests: peer_requests.PeerRequests) -> None:
        self._backend = backend
        self._recovery = recovery
        self._requests = requests
        #: Not empty until this node has read what its peers have changed
        #: while it was down.
        self._pending = backend.jobs.kind('catch up', self.catch_up, PAUSE)

    def start(self, context: cinder_context.RequestContext) -> None:
        """Start to read what peers have changed, once peers are answered.

        Peers themselves tell this node about changes made after this read.
        """
        self._pending.add('start')
        self._backend.jobs.start('catch up', self.catch_up, context)

    def catch_up(self, context: cinder_context.RequestContext) -> None:
        """Handle what peers have changed while this node was down."""
        self._recovery.resume(context, self._switched_since_start(context))
        for row in self._recovery.rows:
            if placeholders.state_of(row) == State.SWITCHED:
                self._requests.remember_to_activate(context,
                                                    Placeholder(row))
        self._end_moves(context)
        self._pending.discard('start')
        # All in one call: a node that does not answer gets one request.
        self._requests.ask_again(context)

    def _switched_since_start(
            self,
            context: cinder_context.RequestContext) -> list[objects.Volume]:
        """Return the rows that other nodes have switched since the start."""
        def key_of(row: objects.Volume) -> tuple[str, str, State | None]:
            return row.id, row.name_id, placeholders.state_of(row)

        known = set(map(key_of, self._recovery.rows))
        switched = [
            row for row in lookups.on_host(context, self._backend.host)
            if key_of(row) not in known and
            (placeholders.is_placeholder(row) or row.name_id != row.id)]
        self._recovery.failed.update({row.id: row for row in switched})
        return switched

    def _end_moves(self, context: cinder_context.RequestContext) -> None:
        """Queue requests to remove old sources and aborted destinations."""
        volumes = {row.id: row for row in self._recovery.rows}
        for other in lookups.placeholders_of(context, volumes):
            volume = volumes[other.volume_id]
            if other.state == State.RELEASED:
                self._requests.remember(other, peer_requests.Request.RELEASE)
            elif other.state == State.ABORTED:
                self._requests.remember(other, peer_requests.Request.DELETE)
            elif other.id == volume.name_id and not (
                    # A follower does that itself.
                    placeholders.is_placeholder(volume)) and (
                    preflight.is_complete(
                        volume, other, self._backend.logical_volume(
                            Names(other.id)))):
                # The row is back since the database was restored.
                self._requests.release(context, other)
