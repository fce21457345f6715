# SPDX-License-Identifier: Apache-2.0
"""The parts of a backend, and the order in which they are built and started.

None of them exists in a command, which only opens the backend.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import Any

from cinder import context as cinder_context

from dmclone_driver.connections import Connections
from dmclone_driver.creations import Creations
from dmclone_driver.deletions import Deletions
from dmclone_driver.extensions import Extensions
from dmclone_driver.groups import Groups
from dmclone_driver.migrations import Migrations
from dmclone_driver.move.activation import Activation
from dmclone_driver.move.arrival import Arrival
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.builder import Builder
from dmclone_driver.move.bypass import Bypass
from dmclone_driver.move.catching_up import CatchingUp
from dmclone_driver.move.completion import Completion
from dmclone_driver.move.copies import Copies
from dmclone_driver.move.destination import Destination
from dmclone_driver.move.followers import Followers
from dmclone_driver.move.home import Home
from dmclone_driver.move.hydration import Hydration
from dmclone_driver.move.image_cache import ImageCache
from dmclone_driver.move import lookups
from dmclone_driver.move.maps import Maps
from dmclone_driver.move.marks import Marks
from dmclone_driver.move.messages import Troubles
from dmclone_driver.move import metrics
from dmclone_driver.move import metrics_endpoint
from dmclone_driver.move.new_content import NewContent
from dmclone_driver.move.notifications import Notifications
from dmclone_driver.move.outages import Outages
from dmclone_driver.move.outgoing import Outgoing
from dmclone_driver.move.pace_requests import PaceRequests
from dmclone_driver.move.pace_settings import PaceSettings
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move.peers import Peers
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.prepared_moves import PreparedMoves
from dmclone_driver.move.recovery import Recovery
from dmclone_driver.move.released_sources import ReleasedSources
from dmclone_driver.move.relocation import Relocation
from dmclone_driver.move.remotes import Remotes
from dmclone_driver.move.reporter import Reporter
from dmclone_driver.move import rpcapi
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.source import Source
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.move.watcher import Watcher
from dmclone_driver.new_snapshots import NewSnapshots
from dmclone_driver.node import pacing
from dmclone_driver.reverts import Reverts
from dmclone_driver.thin_clones import ThinClones
from dmclone_driver.unmanaging import Unmanaging


class Parts:
    """The parts of one backend; built once, while nothing runs yet.

    :ivar server: the RPC server that answers peers, None before it does
    """

    def __init__(self, backend: Backend, target_driver: Any,
                 version: str) -> None:
        """Build the parts.

        :param target_driver: Cinder's, for connections over iSCSI
        :param version: of the driver
        """
        self._backend = backend
        self._version = version
        self.server: Any = None
        self._build_moves()
        self._build_requests(target_driver)
        self._build_background()

    def _build_moves(self) -> None:
        """Build both sides of moves and copies."""
        backend = self._backend
        self.requests = PeerRequests(backend)
        self.teardown = Teardown(backend, self.requests)
        self.preflight = Preflight(backend, self.requests)
        self.snapshots = Snapshots(backend)
        self.source = Source(backend, self.snapshots)
        self.released_sources = ReleasedSources(backend, self.source,
                                                self.teardown, self.snapshots)
        self._sessions = Outages(backend)
        self._settings = PaceSettings(backend.host, backend.configuration)
        self._turns = Pacer(backend, self._settings, self._sessions)
        self._marks = Marks(backend, self._sessions)
        self.builder = Builder(backend)
        self.destination = Destination(backend, self.builder, self.teardown,
                                       self._marks)
        self.activation = Activation(
            backend, self.builder, self._turns,
            Bypass(backend, self.requests), self._marks)
        self.copies = Copies(backend, self.builder, self.activation,
                             self.teardown, self.requests)
        self._new_content = NewContent(backend, self.copies,
                                       self.released_sources, self.teardown)
        self.followers = Followers(
            backend, self.destination, self.copies, self.snapshots,
            self.teardown, self.requests)
        self.prepared_moves = PreparedMoves(backend, self.source,
                                            self.requests)
        self.home = Home(backend, self.source, self.requests, self.preflight,
                         self.prepared_moves)
        self.peers = Peers(backend.host)
        self.remotes = Remotes(backend, self.peers)

    def _build_requests(self, target_driver: Any) -> None:
        """Build what does the requests of Cinder, a part for each subject."""
        backend, preflight = self._backend, self.preflight
        self.connections = Connections(
            backend, self.home, self.prepared_moves, preflight, self.peers,
            self.remotes, target_driver)
        self.deletions = Deletions(
            backend, preflight, self.prepared_moves, self.released_sources,
            self.snapshots, self.teardown)
        self.extensions = Extensions(backend, preflight, self.snapshots)
        self.groups = Groups(backend, preflight, self.snapshots)
        self.migrations = Migrations(backend, preflight, self.home,
                                     self.peers)
        self.new_snapshots = NewSnapshots(backend, preflight, self.snapshots)
        self.creations = Creations(
            backend, self.copies, ThinClones(backend, preflight,
                                             self.snapshots),
            self.snapshots, self.new_snapshots)
        self.image_cache = ImageCache(
            backend, self.copies, self.destination, self.source,
            self.snapshots, self.new_snapshots.take_hidden)
        self.reverts = Reverts(backend, preflight, self.snapshots,
                               self._new_content)
        self.unmanaging = Unmanaging(backend, preflight, self.snapshots)

    def _build_background(self) -> None:
        """Build what works without a request, for clones and at a start."""
        backend = self._backend
        troubles = Troubles()
        complete = Completion(backend, self.teardown, self.requests, troubles)
        self._hydration = Hydration(backend, self.activation, self._sessions,
                                    troubles, self._turns)
        self._watcher = Watcher(
            backend, self._sessions,
            Arrival(backend, self.destination, self.activation,
                    self.requests, troubles),
            self._hydration, complete, troubles, self._turns, self._marks)
        self._maps = Maps(backend, self.source)
        self._recovery = Recovery(
            backend, self.source, self.released_sources, self.destination,
            self.builder, self.activation, self.prepared_moves,
            self.snapshots, complete, self._marks, self._maps,
            self.connections.end_export)
        self._catching_up = CatchingUp(backend, self._recovery, self.requests)
        self.reporter = Reporter(
            backend, self._watcher.sightings, self._sessions, self._turns,
            self.remotes, self._version)

    def start(self, context: cinder_context.RequestContext,
              notifications: Notifications) -> None:
        """Run the recovery and the background, then start to answer peers."""
        backend, options = self._backend, self._backend.configuration
        lent = Outgoing(self._settings, backend.jobs.pauses.now)
        self._recovery.run(context)
        self._sessions.start()
        self._watcher.start()
        pacing.Pacemaker(
            self._hydration.paces, lambda: self._settings.min_rate,
            backend.jobs.pauses.now).start()
        self.server = rpcapi.serve(backend.host, self._endpoint(lent))
        self._catching_up.start(context)
        metrics_endpoint.start(options, metrics.Collector(
            self.reporter, self._watcher.gate_waits, self._sessions,
            backend.jobs, notifications))

    def _endpoint(self, lent: Outgoing) -> rpcapi.PeerEndpoint:
        """Return what answers peers.

        :param lent: the copies that they make from this node
        """
        backend = self._backend
        return rpcapi.PeerEndpoint(
            self.destination, self.activation, self.source,
            self.released_sources, self.image_cache, backend.jobs,
            Relocation(backend, self.home, self.preflight, self.peers),
            self.followers, self.reporter,
            PaceRequests(backend, self._settings, self._turns, lent), lent,
            self._maps, self._version)

    @property
    def built(self) -> frozenset[str]:
        """Ids of the volumes whose handles the recovery had to build."""
        return self._recovery.built

    def look_around(self, context: cinder_context.RequestContext) -> None:
        """Do what is due each minute, in this thread or as jobs.

        Changes that Cinder's commands made to rows are reverted. What this
        service has not heard of is found in the database: prepared moves, and
        sources to delete. Nor do sources stay where a boot would restore them.
        """
        jobs = self._backend.jobs
        self._backend.correct_all(context)
        moves = lookups.moves_from(context, self._backend.host)
        self.prepared_moves.watch(moves.prepared)
        self.released_sources.find_released(moves.released)
        jobs.start('delete snapshots', self.snapshots.delete_later_ones,
                   context)
        jobs.start('list left behind', self.reporter.refresh)
        jobs.start('look for room', self.remotes.look, context)
        jobs.start('forget saved sources', self._backend.target.forget_saved)
