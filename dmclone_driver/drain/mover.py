# SPDX-License-Identifier: Apache-2.0
"""Does what the plan of a drain says with one volume, or one instance.

The requests can be repeated, and go on without this program: a move that has
begun ends in the service of its home, a live migration in Nova.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses
import threading
import time

from cinder import context as cinder_context
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver.drain.compute import Compute
from dmclone_driver.drain.compute import ComputeError
from dmclone_driver.drain.facts import Place
from dmclone_driver.drain.facts import Server
from dmclone_driver.drain.facts import Volume
from dmclone_driver.drain.obstacles import Obstacle
from dmclone_driver.drain import plan
from dmclone_driver.drain.plan import Item
from dmclone_driver.drain.plan import Kind
from dmclone_driver.drain import report
from dmclone_driver.drain.room import NoRoom
from dmclone_driver.drain.room import Reservation
from dmclone_driver.drain.room import Room
from dmclone_driver.drain.stop import Stop
from dmclone_driver.drain import survey as survey_module
from dmclone_driver.drain.survey import Survey
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import lookups
from dmclone_driver.move import rpcapi

LOG = logging.getLogger(__name__)

#: Seconds between two looks at something that is under way.
POLL = 2
#: Seconds that a move by another request, or after the answer to ours was
#: late, has to end. The driver's own limit is half an hour.
FOLLOW = 120
#: Seconds in which volumes follow their instance, by the end of its old
#: attachment or by its first write.
SETTLE = 60
#: Seconds for which the other nodes' answers about free space are used.
FRESH = 10
#: Number of times that Nova does not answer before it is given up.
NOVA_ATTEMPTS = 10

_AGAIN = _('run this command again')


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What has become of an item.

    :ivar node: where the volumes are now
    :ivar obstacle: why they are where they were; None if they are not
    :ivar left_behind: lines about what they left
    """

    item: Item
    node: str | None = None
    obstacle: Obstacle | None = None
    left_behind: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Whether the volumes have left the node."""
        return self.obstacle is None


class Mover:
    """Moves volumes, and has instances moved; threads may share it."""

    def __init__(self, context: cinder_context.RequestContext,
                 client: rpcapi.PeerClient, survey: Survey,
                 compute: Compute | ComputeError, room: Room,
                 stop: Stop,
                 say: collections.abc.Callable[[str], None]) -> None:
        """Create a mover.

        :param compute: Nova, or why it can't be asked
        :param room: where volumes may go
        :param stop: is set when nothing new is to be begun
        :param say: prints a line
        """
        self._context = context
        self._client = client
        self._survey = survey
        self._compute = compute
        self._room = room
        self._stop = stop
        self._say = say
        #: What has been begun and has not ended, {key: item}.
        self.under_way: dict[str, Item] = {}
        self._home_lost: Obstacle | None = None
        self._refreshed = float('-inf')
        self._refreshing = threading.Lock()
        self._silent: set[str] = set()

    def handle(self, item: Item) -> Outcome | None:
        """Do what an item says; raise nothing.

        :returns: None if it was not begun, or has not ended, when all was
            to stop
        """
        if self._stop.is_set():
            return None
        if self._home_lost:
            return Outcome(item, obstacle=self._home_lost)
        act = {Kind.MOVE: self._move, Kind.MOVING: self._follow,
               Kind.MIGRATE: self._migrate,
               Kind.MIGRATING: self._follow_server,
               Kind.FOLLOW: self._take_along}[item.kind]
        try:
            outcome = act(item)
        except Exception as error:
            LOG.warning('Handling %(kind)s of %(key)s failed.',
                        {'kind': item.kind, 'key': item.key}, exc_info=True)
            outcome = Outcome(item, obstacle=Obstacle(str(error), _AGAIN))
        if outcome is not None:
            self.under_way.pop(item.key, None)
        return outcome

    # Room

    def _reserve(self, item: Item, anywhere: bool = False) -> Reservation:
        """Reserve space; wait for that of moves that end without success.

        :raises: NoRoom
        """
        while True:
            self._refresh()
            try:
                return self._room.reserve(item.volumes, anywhere)
            except NoRoom as error:
                if self._widen():
                    continue
                if not error.later or self._stop.wait(POLL):
                    raise

    def _refresh(self) -> None:
        """Ask other nodes for their free space if that is due."""
        with self._refreshing:
            if time.monotonic() - self._refreshed >= FRESH:
                used = self._room.used()
                self._learn(*self._survey.places(self._room.to), used)

    def _widen(self) -> bool:
        """Have more nodes asked, as there is no room on those that were.

        :returns: False if all were
        """
        with self._refreshing:
            if not self._survey.widen():
                return False
            self._refreshed = float('-inf')
            return True

    def used(self) -> list[Reservation]:
        """Return what :meth:`know` needs, before other nodes are asked."""
        return self._room.used()

    def know(self, places: list[Place], silent: dict[str, str],
             used: list[Reservation]) -> None:
        """Use what other nodes have just told of their free space.

        :param silent: {node: why it has not}
        :param used: what :meth:`used` returned before they were asked
        """
        with self._refreshing:
            self._learn(places, silent, used)

    def _learn(self, places: list[Place], silent: dict[str, str],
               used: list[Reservation]) -> None:
        self._room.update(places, silent, used)
        self._refreshed = time.monotonic()
        for node, trouble in silent.items():
            self._tell_silent(node, trouble)

    def _tell_silent(self, node: str, trouble: str) -> None:
        if node not in self._silent:
            self._silent.add(node)
            self._say(_('no volume goes to %(node)s: %(trouble)s') % {
                'node': node, 'trouble': trouble})

    # Volumes that are not attached

    def _move(self, item: Item) -> Outcome | None:
        volume, = item.volumes
        while True:
            try:
                reservation = self._reserve(item)
            except NoRoom as error:
                return self._no_room(item, error)
            # Without "anywhere" a node is chosen.
            assert reservation.node is not None
            outcome = None
            try:
                outcome = self._try(item, volume, reservation.node)
                self._bring_snapshots(outcome)
            finally:
                self._room.end(reservation, bool(outcome and outcome.done))
            if outcome is not None or self._stop.is_set():
                return outcome

    def _no_room(self, item: Item, error: NoRoom) -> Outcome | None:
        # The wait for room may have been stopped.
        return None if self._stop.is_set() else Outcome(
            item, obstacle=plan.no_room(item.volumes, error))

    def _try(self, item: Item, volume: Volume, node: str) -> Outcome | None:
        """Move a volume to a node.

        :returns: None if that does not answer, or all was to stop
        """
        self.under_way[item.key] = item
        try:
            answer = self._client.move(self._context, self._survey.host,
                                       volume.id, node)
        except exception.PeerUnreachable as error:
            return self._after_silence(item, error)
        except exception.PeerError as error:
            if self._answers('%s@%s' % (node, self._survey.backend)):
                return Outcome(item, obstacle=Obstacle(error.msg, _AGAIN))
            trouble = _('it does not answer')
            self._room.exclude(node, trouble)
            self._tell_silent(node, trouble)
            del self.under_way[item.key]
            return None
        return Outcome(item, node, left_behind=tuple(answer['left_behind']))

    def _answers(self, host: str) -> bool:
        return survey_module.answers(self._context, self._client, host)

    def _after_silence(self, item: Item,
                       error: exception.PeerUnreachable) -> Outcome | None:
        """Find out what has become of a move without an answer in time."""
        if not self._answers(self._survey.host):
            self._home_lost = Obstacle(
                error.msg, _('run this command again when it runs; if the '
                             'node is lost for good, use '
                             'dmclone-forget-node'))
            return Outcome(item, obstacle=self._home_lost)
        return self._follow(item)

    def _follow(self, item: Item) -> Outcome | None:
        """Wait for the end of a move that is under way.

        :returns: None if all was to stop
        """
        self.under_way[item.key] = item
        volume, = item.volumes
        for _number in range(FOLLOW // POLL):
            row = lookups.get(self._context, volume.id)
            if row is None:
                return Outcome(item)
            if lookups.backend_of(row) != self._survey.host:
                return Outcome(item, lookups.backend_of(row))
            if not lookups.prepared_move(row) and (
                    row.migration_status not in lookups.MIGRATES):
                return Outcome(item, obstacle=Obstacle(
                    _('its move was aborted'), _(
                        'see the log of cinder-volume on %s, and run this '
                        'command again') % self._survey.node))
            if self._stop.wait(POLL):
                return None
        return Outcome(item, obstacle=Obstacle(
            _('its move has not ended yet'), _AGAIN))

    # Snapshots

    def _bring_snapshots(self, outcome: Outcome | None) -> None:
        """Have the snapshots of volumes follow that have just moved.

        The space for them is still reserved. What fails is tried again, and
        told, when the node is looked at the next time.
        """
        if outcome is None or not outcome.done:
            return
        try:
            for volume in outcome.item.volumes:
                row = lookups.get(self._context, volume.id)
                if row is not None:
                    self._bring(volume, volume_utils.extract_host(
                        lookups.backend_of(row), 'host'))
        except Exception:
            LOG.debug('Snapshots do not follow yet.', exc_info=True)

    def _bring(self, volume: Volume, node: str) -> None:
        for each in volume.snapshots:
            if self._stop.is_set():
                return
            outcome = self._ask_to_follow(Item(Kind.FOLLOW, (), node=node,
                                               snapshot=each))
            if outcome.done:
                for line in report.of_outcome(outcome):
                    self._say(line)

    def _take_along(self, item: Item) -> Outcome:
        """Have a snapshot follow its volume, which is on another node."""
        # That is what these items are made of.
        assert item.snapshot and item.node
        reservation = self._room.hold(item.node, item.snapshot.size)
        outcome = None
        try:
            outcome = self._ask_to_follow(item)
        finally:
            self._room.end(reservation, bool(outcome and outcome.done))
        return outcome

    def _ask_to_follow(self, item: Item) -> Outcome:
        """Have a snapshot copied to a node; do not wait for the copy."""
        # That is what these items are made of.
        assert item.snapshot and item.node
        try:
            self._client.take_along(
                self._context, '%s@%s' % (item.node, self._survey.backend),
                item.snapshot.id)
        except exception.PeerError as error:
            return Outcome(item, obstacle=Obstacle(error.msg, _AGAIN))
        return Outcome(item, item.node)

    # Instances

    def _migrate(self, item: Item) -> Outcome | None:
        # Without Nova no such item is planned.
        assert isinstance(self._compute, Compute) and item.server
        try:
            reservation = self._reserve(item, anywhere=True)
        except NoRoom as error:
            return self._no_room(item, error)
        self.under_way[item.key] = item
        outcome = None
        try:
            self._compute.live_migrate(item.server, self._room.to)
            outcome = self._follow_server(item)
            self._bring_snapshots(outcome)
        except ComputeError as error:
            outcome = Outcome(item, obstacle=Obstacle(
                str(error), _('correct that, and run this command again')))
        finally:
            self._room.end(reservation, bool(outcome and outcome.done))
        return outcome

    def _follow_server(self, item: Item) -> Outcome | None:
        """Wait for the end of a live migration, and for the volumes.

        :returns: None if all was to stop
        """
        self.under_way[item.key] = item
        server = self._migrated(item)
        if self._stop.is_set():
            return None
        if server is None:
            return Outcome(item, obstacle=Obstacle(
                _('its instance was deleted meanwhile'), _AGAIN))
        if server.host in {each.host for volume in item.volumes
                           for each in volume.attachments
                           if each.node == self._survey.node}:
            return Outcome(item, obstacle=self._failure(server))
        for _number in range(SETTLE // POLL):
            left = [row for row in (lookups.get(self._context, volume.id)
                                    for volume in item.volumes)
                    if row and lookups.backend_of(row) == self._survey.host]
            if not left:
                return Outcome(item, server.host)
            if self._stop.wait(POLL):
                return None
        return Outcome(item, obstacle=Obstacle(
            _('its instance is on %(host)s, and volume %(volume)s has not '
              'followed it') % {'host': server.host, 'volume': left[0].id},
            _('see "Live migration" in the documentation')))

    def _migrated(self, item: Item) -> Server | None:
        """Return the instance of an item when it has no task any longer.

        :raises: ComputeError
        """
        # Without Nova no such item is planned.
        assert isinstance(self._compute, Compute) and item.server
        troubles = 0
        while True:
            try:
                server = self._compute.server(item.server)
                if server is None or server.task is None:
                    return server
                troubles = 0
            except ComputeError:
                troubles += 1
                if troubles == NOVA_ATTEMPTS:
                    raise
            if self._stop.wait(POLL):
                return None

    def _failure(self, server: Server) -> Obstacle:
        # Without Nova it would not be known.
        assert isinstance(self._compute, Compute)
        return Obstacle(
            _('its live migration has failed: %s') % (
                self._compute.failure(server.id) or _('Nova does not say why')
            ), _('see "openstack server event list %s", and run this command '
                 'again') % server.id)
