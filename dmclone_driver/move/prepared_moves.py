# SPDX-License-Identifier: Apache-2.0
"""Prepared moves at the home: switch them over, or roll them back.

A move stays prepared while its volume has attachments on both nodes. A check
finds those whose attachment is gone.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import enum
import time
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from oslo_concurrency import processutils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move import lookups
from dmclone_driver.move import peer_requests
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move.source import Source
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

ACTIVATE_TIMEOUT = DELETE_TIMEOUT = 20
# Seconds after which an attachment that is neither complete nor deleted counts
# as forgotten.
LEAKED = 1800
# The longest pause between two checks of the prepared moves, in seconds.
RETRY_ORPHANS = 60


class Answer(enum.Enum):
    """A peer's answer to the request to delete its destination."""

    DELETED = 'deleted'
    #: It was written, or is the volume's home.
    WRITTEN = 'written'
    #: It could not be deleted.
    FAILED = 'failed'
    #: There was no answer.
    NONE = 'none'


class PreparedMoves:
    """Prepared moves of volumes whose home is this node.

    Callers hold the volume's lock and have just read its row.
    """

    def __init__(self, backend: Backend, source: Source,
                 requests: peer_requests.PeerRequests) -> None:
        self._backend = backend
        self._source = source
        self._requests = requests
        #: Volumes with a prepared move, {volume id: placeholder id}, to be
        #: checked for orphans. A start reads them from the database.
        self.known = backend.jobs.kind(
            'watch prepared move', self.abort_orphans, RETRY_ORPHANS)
        #: Times of the first checks, {placeholder id: time}.
        self._since: dict[str, float] = {}
        #: Ids of volumes whose LVM tags contradict the database.
        self._contradicted: set[str] = set()

    def switch_over(self, context: cinder_context.RequestContext,
                    volume: objects.Volume,
                    deadline: Deadline | None = None) -> None:
        """Make the prepared destination the volume's home.

        A switchover can't be undone. A peer that does not answer finds it in
        the database later.
        """
        placeholder_id = lookups.prepared_move(volume)
        placeholder = lookups.placeholder(context, placeholder_id)
        names = Names(volume.name_id)
        first = records.switch_over(
            context, volume.id, placeholder_id)
        self.known.pop(volume.id, None)
        volume.refresh()
        if not first:
            # The peer has switched over at its guest's first write, and
            # activates the destination by itself.
            return
        # Otherwise MoveGone was raised.
        assert placeholder_id is not None and placeholder is not None
        sealed = False
        try:
            # Seal before the gate on the peer opens, so that there is only
            # one writer.
            self._source.close(names, placeholder_id)
            sealed = True
        except (processutils.ProcessExecutionError, OSError):
            LOG.exception('Sealing the source of %s failed; its new home '
                          'requests it again.', names)
        self._requests.ask(
            context, placeholder, peer_requests.Request.ACTIVATE, sealed,
            timeout=deadline.left(ACTIVATE_TIMEOUT) if deadline else None)

    def roll_back(self, context: cinder_context.RequestContext,
                  volume: objects.Volume, reason: str,
                  deadline: Deadline | None = None,
                  deleting: bool = False) -> bool:
        """Undo a prepared move; can be repeated.

        :param reason: for the log
        :param deadline: of the request
        :param deleting: whether the volume is deleted afterwards
        :returns: False if the move was switched over, either now because the
            destination was written, or earlier by the evidence of LVM; when
            deleting also if the peer has not deleted the destination
        """
        placeholder_id = lookups.prepared_move(volume)
        if placeholder_id is None:
            return True
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is not None and placeholder.volume_id != volume.id:
            # Cinder has copied this row from that of a moving volume.
            return True
        if (placeholder is not None and
                placeholder.state in placeholders.OF_SOURCES):
            # The answer to the switchover was lost. The placeholder stands
            # for the source by now.
            self.known.pop(volume.id, None)
            volume.refresh()
            return False
        if self._has_moved_away(volume):
            return False
        LOG.info('Aborting move %(id)s of volume %(volume)s: %(reason)s.',
                 {'id': placeholder_id, 'volume': volume.id,
                  'reason': reason})
        answer = self._delete_destination(
            context, placeholder, deadline.left(DELETE_TIMEOUT)
            if deadline else DELETE_TIMEOUT)
        if answer in (Answer.FAILED, Answer.NONE) and deleting:
            # The peer may be the volume's home and need this source, if the
            # database has lost the switchover.
            return False
        if answer is Answer.WRITTEN:
            if lookups.prepared_move(volume) == placeholder_id:
                self.switch_over(context, volume)
            return False
        if not records.abort(context, volume.id, placeholder_id):
            volume.refresh()
            return False
        self.known.pop(volume.id, None)
        self._source.unexport(Names(volume.name_id))
        if placeholder is not None:
            self._forget_destination(context, placeholder, answer)
        volume.refresh()
        return True

    def _forget_destination(self, context: cinder_context.RequestContext,
                            placeholder: Placeholder,
                            answer: Answer) -> None:
        """Have the destination of an aborted move deleted, and its row.

        :param answer: of the peer, before the move was aborted
        """
        if answer is Answer.DELETED:
            self._requests.forget_destination(context, placeholder)
        elif answer is Answer.NONE:
            # It would hold the volume's lock for another time-out.
            self._requests.remember(placeholder,
                                    peer_requests.Request.DELETE)
        else:
            self._requests.ask(context, placeholder,
                               peer_requests.Request.DELETE)

    def _has_moved_away(self, volume: objects.Volume) -> bool:
        """Whether the logical volume is sealed although a move is prepared.

        Then this move, or another one that the database does not know, was
        switched over before.
        """
        lv = self._backend.logical_volume(Names(volume.name_id))
        if lv is None or not lv.sealed:
            return False
        if volume.id not in self._contradicted:
            self._contradicted.add(volume.id)
            LOG.error('Move %(id)s of volume %(volume)s is prepared in '
                      'the database, but the volume has moved away from '
                      'logical volume %(lv)s. Nothing is changed. The '
                      'database was restored, or has lost its last '
                      'transactions; run dmclone-reconcile for details.',
                      {'id': lookups.prepared_move(volume),
                       'volume': volume.id, 'lv': lv.path})
        return True

    def _delete_destination(self, context: cinder_context.RequestContext,
                            placeholder: Placeholder | None,
                            timeout: float) -> Answer:
        """Ask the peer to delete its destination.

        If the peer does not answer, the placeholder is kept as aborted. It
        can't be switched over, so its gate stays closed, and the peer deletes
        the destination when it runs again.

        :param placeholder: None if it is deleted already
        :returns: :class:`Answer`
        """
        if placeholder is None:
            return Answer.DELETED
        try:
            deleted = self._backend.client.delete_destination(
                context, placeholder.backend, placeholder.id, timeout)
            return Answer.DELETED if deleted else Answer.WRITTEN
        except exception.PeerError as error:
            LOG.warning('Destination %(id)s of volume %(volume)s on %(host)s '
                        'is not deleted: %(error)s.',
                        {'id': placeholder.id, 'host': placeholder.host,
                         'volume': placeholder.volume_id,
                         'error': error.msg})
            return (Answer.NONE
                    if isinstance(error, exception.PeerUnreachable)
                    else Answer.FAILED)

    def watch(self, prepared: dict[str, str]) -> None:
        """Watch the prepared moves that this service does not know yet.

        A start may have read a database server without the last
        transactions.

        :param prepared: {volume id: placeholder id}
        """
        for item in prepared.items():
            self.known.setdefault(*item)

    def abort_orphans(self, context: cinder_context.RequestContext) -> None:
        """Roll back prepared moves whose attachment is gone.

        It sends no query while no move is prepared.
        """
        for volume_id, placeholder_id in list(self.known.items()):
            try:
                with self._backend.lock(volume_id):
                    self._abort_if_orphan(context, volume_id,
                                          placeholder_id)
            except Exception:
                LOG.exception('Checking move %(id)s of volume %(volume)s '
                              'failed; it is tried again.',
                              {'id': placeholder_id, 'volume': volume_id})

    def _abort_if_orphan(self, context: cinder_context.RequestContext,
                         volume_id: str, placeholder_id: str) -> None:
        volume = lookups.get(context, volume_id)
        if (volume is None or
                lookups.prepared_move(volume) != placeholder_id):
            self._forget(context, volume_id, placeholder_id, volume)
            return
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is not None and self.is_wanted(volume, placeholder):
            self._switch_if_unused(context, volume, placeholder)
        elif placeholder is None or self._is_old(placeholder_id) or (
                not attachments.live(volume,
                                     placeholder.node)):
            self.roll_back(context, volume, 'its attachment is gone')

    def _is_old(self, placeholder_id: str) -> bool:
        """Whether a move has waited too long for its attachment.

        If so, the answer to the request that made the attachment was too
        late, and no service completes or deletes the attachment.
        """
        now = time.monotonic()
        self._since = {each: self._since.get(each, now)
                       for each in self.known.values()}
        return now - self._since.get(placeholder_id, now) > LEAKED

    def _switch_if_unused(self, context: cinder_context.RequestContext,
                          volume: objects.Volume,
                          placeholder: Placeholder) -> None:
        """Switch over a move whose volume is no longer used on this node."""
        if not (attachments.used_elsewhere(
                volume, placeholder.node) or
                LocalVolume(Names(volume.name_id)).is_open() or
                self._has_moved_away(volume)):
            self.switch_over(context, volume)

    def _forget(self, context: cinder_context.RequestContext, volume_id: str,
                placeholder_id: str, volume: objects.Volume | None) -> None:
        """Forget a move that is not prepared in the database any longer."""
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is not None and placeholder.state == State.ABORTED:
            self._requests.ask(context, placeholder,
                               peer_requests.Request.DELETE)
        if self.known.get(volume_id) == placeholder_id:
            self.known.pop(volume_id, None)
        if (volume is not None and self._backend.holds(volume) and
                not lookups.prepared_move(volume)):
            self._source.unexport(Names(volume.name_id))

    @staticmethod
    def is_wanted(volume: objects.Volume, placeholder: Placeholder) -> bool:
        """Whether an instance uses a prepared destination or is about to.

        An incomplete attachment does not count. It may be a forgotten one,
        for example of an attempt whose answer was too late.
        """
        return attachments.complete(volume, placeholder.node)

    def end_attachment(self, context: cinder_context.RequestContext,
                       volume: objects.Volume,
                       connector: dict[str, Any] | None) -> bool:
        """Handle the end of one of two attachments during a prepared move.

        :param connector: of the attachment that ends; None when forced
        :returns: whether the volume has moved away
        """
        if self._has_moved_away(volume):
            return True
        placeholder = lookups.placeholder(context,
                                          lookups.prepared_move(volume))
        if not (connector and placeholder is not None and
                self.is_wanted(volume, placeholder)) or (
                attachments.attached_on(
                    connector, placeholder.node)):
            return not self.roll_back(context, volume,
                                      'an attachment was deleted')
        if LocalVolume(Names(volume.name_id)).is_open() or len(
                attachments.used_elsewhere(
                    volume, placeholder.node,
                    connector)) > 1:
            # An instance may still run here. If it has migrated to the peer,
            # its first write there switches over the move.
            LOG.info('Volume %(volume)s stays on %(node)s for now: an '
                     'attachment there was deleted, but it is still in use.',
                     {'volume': volume.id, 'node': self._backend.node})
            return True
        self.switch_over(context, volume)
        return True
