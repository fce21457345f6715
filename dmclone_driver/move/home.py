# SPDX-License-Identifier: Apache-2.0
"""The home's side of a move: begin and prepare it, for an attachment.

::

    attach on a peer      begin -> export -> prepare
                          [-> switch over -> activate]
    another attachment    ... stays prepared until one of these events:
      the home's deleted  switch over -> activate
      the peer's deleted  delete (the peer aborts) -> unexport -> destroy
      a guest writes      the peer switches over by itself

What becomes of a prepared move is in :mod:`prepared_moves`. See the
documentation, "Failures at each step".
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections
import collections.abc
import contextlib
import threading
from typing import Any
import uuid

from cinder import context as cinder_context
from cinder import objects
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move import events
from dmclone_driver.move import lookups
from dmclone_driver.move import needs
from dmclone_driver.move import peer_requests
from dmclone_driver.move.peers import Peer
from dmclone_driver.move import preflight
from dmclone_driver.move import prepared_moves
from dmclone_driver.move.prepared_moves import PreparedMoves
from dmclone_driver.move import records
from dmclone_driver.move.source import Source
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# Seconds of a request that are reserved to abort a failed move.
TIME_TO_TAKE_BACK = 5
# Number of moves to one peer at a time. With more, each takes longer, until
# none is done before its caller gives up.
MOVES_AT_ONCE = 2


class Home:
    """Moves of volumes from this node, their home, to a peer.

    Callers hold the volume's lock and have just read its row. Those that move
    it have also read its logical volume, which is not sealed.
    """

    def __init__(self, backend: Backend, source: Source,
                 requests: peer_requests.PeerRequests,
                 checks: preflight.Preflight,
                 prepared: PreparedMoves) -> None:
        self._backend = backend
        self._source = source
        self._requests = requests
        self._preflight = checks
        self._prepared_moves = prepared
        self._turns: dict[str, threading.BoundedSemaphore] = (
            collections.defaultdict(
                lambda: threading.BoundedSemaphore(MOVES_AT_ONCE)))

    def move(self, context: cinder_context.RequestContext,
             volume: objects.Volume, peer: Peer, node: str,
             deadline: Deadline) -> str:
        """Make a volume usable on a peer; return its handle's path there.

        :param node: the connector's host; empty for a migration by Cinder's
            API, or by an operator's command
        :param deadline: :class:`~dmclone_driver.move.deadline.Deadline`; past
            it the move is aborted
        :raises: MoveRefused, MoveFailed
        """
        asked_for = {record.id for record in attachments.live(volume, node)}
        with self._turn(volume, peer, deadline):
            return self._move(context, volume, peer, node, asked_for,
                              deadline)

    @contextlib.contextmanager
    def _turn(self, volume: objects.Volume, peer: Peer,
              deadline: Deadline) -> collections.abc.Iterator[None]:
        """Wait until few enough other volumes are moving to a peer.

        :raises: MoveRefused after half of the time: the other half is for
            the move
        """
        seconds, turns = deadline.left() / 2, self._turns[peer.backend_host]
        if not turns.acquire(timeout=seconds):
            raise preflight.refused(volume, peer, _(
                '%(number)d volumes at a time are attached there, and others '
                'were first for %(seconds)d seconds; try again') % {
                    'number': MOVES_AT_ONCE, 'seconds': seconds})
        try:
            yield
        finally:
            turns.release()

    def _move(self, context: cinder_context.RequestContext,
              volume: objects.Volume, peer: Peer, node: str,
              asked_for: set[str], deadline: Deadline) -> str:
        self.abort_unused_move(context, volume, node, deadline)
        try:
            description = self._preflight.check(context, volume, peer,
                                                deadline)
        except (processutils.ProcessExecutionError, OSError,
                ValueError) as error:
            raise preflight.refused(volume, peer, _(
                '%s; ask the operator to check both nodes')
                % exception.text_of(error))
        placeholder_id = str(uuid.uuid4())
        # Added first: the database's answer may be lost, and then the move
        # is an orphan.
        self._prepared_moves.known[volume.id] = placeholder_id
        records.begin(context, volume, placeholder_id, peer,
                      description['initiator'], node)
        self._source.begins(Names(volume.name_id), placeholder_id)
        LOG.info('Moving volume %(volume)s from %(old)s to %(new)s, to '
                 'logical volume %(id)s.',
                 {'volume': volume.id, 'old': volume.host, 'new': peer.host,
                  'id': placeholder_id})
        try:
            path = self._prepare(context, volume, placeholder_id, peer,
                                 description, deadline)
            self._switch_if_sole(context, volume, node, asked_for, deadline)
        except Exception as error:
            with excutils.save_and_reraise_exception() as reraise:
                LOG.warning('Moving volume %(volume)s to %(new)s failed and '
                            'is aborted: %(error)s',
                            {'volume': volume.id, 'new': peer.host,
                             'error': error})
                volume.refresh()
                stays = self._abort_failed(context, volume, placeholder_id,
                                           peer, deadline)
                if stays:
                    events.tell(events.Event(
                        events.Kind.ERROR, volume.id, placeholder_id,
                        volume.host, peer.host,
                        reason=exception.text_of(error)))
                if not isinstance(error, exception.MoveRefused):
                    reraise.reraise = False
            if not stays:
                raise self._has_moved(volume, node, peer.host)
            raise exception.MoveFailed(
                volume=volume.id, host=peer.host,
                reason=(getattr(error, 'msg', None) or
                        str(error)).rstrip('.'))
        return path

    def migrate(self, context: cinder_context.RequestContext,
                volume: objects.Volume, peer: Peer,
                deadline: Deadline) -> None:
        """Make a peer the home of a volume without attachments.

        :raises: MigrationRefused, MoveFailed
        """
        try:
            if volume.volume_attachment:
                raise preflight.refused(volume, peer, _(
                    'it is attached; live-migrate its instance'))
            self.move(context, volume, peer, '', deadline)
        except exception.MoveRefused as error:
            raise exception.MigrationRefused(
                volume=volume.id, host=peer.host,
                reason=error.kwargs['reason'])
        if self._backend.holds(volume) and self._prepared_moves.roll_back(
                context, volume, 'it was attached meanwhile'):
            raise exception.MigrationRefused(
                volume=volume.id, host=peer.host,
                reason=_('it was attached meanwhile; live-migrate its '
                         'instance'))

    def _prepare(self, context: cinder_context.RequestContext,
                 volume: objects.Volume, placeholder_id: str, peer: Peer,
                 description: dict[str, Any], deadline: Deadline) -> str:
        """Export a volume and have the peer build its destination.

        :param description: the peer's answer, see Destination.describe
        :returns: the handle's path there
        """
        # The row now has the prepared move, which the export checks.
        volume.refresh()
        if lookups.prepared_move(volume) != placeholder_id:
            raise preflight.refused(volume, peer, _(
                'the database that %s reads does not have the last '
                'transactions yet; try again') % self._backend.node)
        self._source.export(context, volume, description['initiator'])
        needed = needs.of(self._backend, Names(volume.name_id), description)
        path = self._backend.client.prepare(
            context, peer.backend_host, self._time_to_prepare(deadline),
            volume_id=volume.id, placeholder_id=placeholder_id,
            size=needed.size, location=volume.provider_location,
            auth=volume.provider_auth, **needed.request())
        LOG.info('Volume %(volume)s is prepared on %(new)s.',
                 {'volume': volume.id, 'new': peer.host})
        return path

    def _switch_if_sole(self, context: cinder_context.RequestContext,
                        volume: objects.Volume, node: str,
                        asked_for: set[str], deadline: Deadline) -> None:
        """Switch over a prepared move if no other node has an attachment.

        :param asked_for: ids of the attachments that the move is for
        :raises: MoveRefused if they are gone, or the time is over
        """
        # Of the logical volume on this node: the row may point to another one
        # once it is read again.
        local = LocalVolume(Names(volume.name_id))
        volume.refresh()
        if asked_for - {record.id for record in
                        attachments.live(volume, node)}:
            raise exception.MoveRefused(
                volume=volume.id, host=node,
                reason=_('the attachment was deleted meanwhile; attach the '
                         'volume again'))
        sole = not attachments.elsewhere(volume, node)
        if sole:
            # Flush while the move can still be aborted if that fails.
            local.make_durable()
        if deadline.passed:
            raise exception.MoveRefused(
                volume=volume.id, host=node,
                reason=_('its preparation has taken longer than Cinder '
                         'waits (rpc_response_timeout); try again'))
        if sole:
            self._prepared_moves.switch_over(context, volume, deadline)

    def _time_to_prepare(self, deadline: Deadline) -> float:
        """Return a peer's seconds, less the time reserved for an abort."""
        return max(1, min(
            self._backend.configuration.dmclone_prepare_timeout,
            deadline.left() - TIME_TO_TAKE_BACK))

    def _abort_failed(self, context: cinder_context.RequestContext,
                      volume: objects.Volume, placeholder_id: str, peer: Peer,
                      deadline: Deadline) -> bool:
        """Abort a move whose preparation has failed, before its deadline.

        If the peer has not deleted its destination by then, a job repeats
        the request. The peer never opens the gate of an aborted move.

        :returns: False if the peer has switched over instead
        """
        if not records.abort(context, volume.id, placeholder_id):
            self._prepared_moves.known.pop(volume.id, None)
            volume.refresh()
            return False
        self._prepared_moves.known.pop(volume.id, None)
        self._source.unexport(Names(volume.name_id))
        self._requests.ask_to_delete(
            context, placeholder_id, peer.backend_host, volume.id,
            deadline.left(prepared_moves.DELETE_TIMEOUT))
        volume.refresh()
        return True

    def abort_unused_move(self, context: cinder_context.RequestContext,
                          volume: objects.Volume, node: str,
                          deadline: Deadline) -> None:
        """Abort a prepared move whose attachment is not complete.

        :param node: the host of the attachment that is being made
        :raises: MoveRefused if the attachment is complete, or the volume has
            just moved
        """
        placeholder_id = lookups.prepared_move(volume)
        if placeholder_id is None:
            return
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is not None and self._prepared_moves.is_wanted(
                volume, placeholder):
            raise exception.MoveRefused(
                volume=volume.id, host=node,
                reason=_('it is already prepared on %s for a migration that '
                         'has not ended; finish or abort the migration first')
                % placeholder.host)
        if not self._prepared_moves.roll_back(
                context, volume, 'its attachment was not completed, and '
                'another one is made', deadline=deadline):
            raise self._has_moved(volume, node, placeholder.host
                                  if placeholder else _('another node'))
        volume.refresh()

    @staticmethod
    def _has_moved(volume: objects.Volume, node: str,
                   host: str) -> exception.MoveRefused:
        return exception.MoveRefused(
            volume=volume.id, host=node,
            reason=_('it has just moved to %s; try again') % host)
