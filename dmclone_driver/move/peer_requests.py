# SPDX-License-Identifier: Apache-2.0
"""Requests to peers that are repeated until they have been done."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses
import enum

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import copy_records
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records

LOG = logging.getLogger(__name__)

# Seconds that a peer has to carry out a request.
TIMEOUT = 20


class Request(enum.StrEnum):
    """What a peer is asked to do."""

    #: Delete a source that is not needed.
    RELEASE = 'release'
    #: Delete the destination of an aborted move.
    DELETE = 'delete_destination'
    #: Open the gate of a destination that is the volume's home now.
    ACTIVATE = 'activate'


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A request to a peer about a move of a volume."""

    host: str
    what: Request
    volume_id: str


class PeerRequests:
    """The requests about moves that peers have yet to carry out."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: The pending requests: {placeholder id: Wanted}.
        self.pending: jobs.Kind[str, Wanted] = backend.jobs.kind(
            'ask peer', self.ask_again)

    def release(self, context: cinder_context.RequestContext,
                placeholder: Placeholder) -> None:
        """Record that a source is not needed, and tell its node.

        If its node is lost, only delete its row.
        """
        # A logical volume with its first name was never a clone.
        if not placeholder.snapshot_id and (
                placeholder.name_id != placeholder.volume_id):
            self._release_reader(context, placeholder)
        if records.release(context, placeholder.id):
            self.ask(context, placeholder, Request.RELEASE)
            return
        now = lookups.placeholder(context, placeholder.id)
        if now is not None and now.state == State.LOST:
            self.forget_source(context, now)

    def _release_reader(self, context: cinder_context.RequestContext,
                        source: Placeholder) -> None:
        """Release the snapshot that a clone was to read from instead.

        See :mod:`bypass`.
        """
        reader = copy_records.reader(context, source.id)
        if reader is not None:
            self._backend.initiator.disconnect(reader.provider_location,
                                               reader.provider_auth)
            self.release(context, reader)

    def forget_source(self, context: cinder_context.RequestContext,
                      placeholder: Placeholder) -> None:
        """Delete the row of a lost source.

        If it was a clone, release its own source: nothing else would.
        """
        further = lookups.placeholder(context, placeholder.name_id)
        if further is not None:
            self.release(context, further)
        records.destroy(context, placeholder.id)
        self.pending.pop(placeholder.id, None)

    def ask(self, context: cinder_context.RequestContext,
            placeholder: Placeholder, what: Request, sealed: bool = False,
            timeout: float | None = None) -> None:
        """Send a request to a placeholder's node; repeat it if it fails.

        :param placeholder: for ACTIVATE as it was before the switchover, when
            it stood for the destination
        :param what: RELEASE a source, DELETE an aborted destination, or
            ACTIVATE a switched one
        :param sealed: for ACTIVATE, whether the source is sealed already
        :param timeout: seconds until it has to be answered, if less than
            :data:`TIMEOUT`
        """
        self.remember(placeholder, what)
        self._ask(context, placeholder.id, sealed, timeout)

    def remember(self, placeholder: Placeholder, what: Request) -> None:
        """Queue a request to a placeholder's node for :meth:`ask_again`."""
        self.pending[placeholder.id] = Wanted(
            placeholder.backend, what, placeholder.volume_id)

    def ask_to_delete(self, context: cinder_context.RequestContext,
                      placeholder_id: str, host: str, volume_id: str,
                      timeout: float | None) -> None:
        """Ask a node to delete an aborted destination, as :meth:`ask` does.

        The row, which was written a moment ago, is not read for that.
        """
        self.pending[placeholder_id] = Wanted(host, Request.DELETE, volume_id)
        self._ask(context, placeholder_id, timeout=timeout)

    def forget_destination(self, context: cinder_context.RequestContext,
                           placeholder: Placeholder) -> None:
        """Delete the row of a destination that its node has deleted.

        If the database does not answer, the node is asked again, where
        nothing is left to delete.
        """
        self.remember(placeholder, Request.DELETE)
        records.destroy(context, placeholder.id)
        self.pending.pop(placeholder.id, None)

    def remember_to_activate(self, context: cinder_context.RequestContext,
                             placeholder: Placeholder) -> None:
        """Queue ACTIVATE for a volume's new home, which may not know yet.

        :param placeholder: of its source
        """
        owner = lookups.owner_row(context, placeholder.id)
        if owner is not None and placeholders.state_of(owner) != State.LOST:
            self.pending[placeholder.id] = Wanted(
                lookups.backend_of(owner), Request.ACTIVATE,
                placeholder.volume_id)

    def ask_again(self, context: cinder_context.RequestContext,
                  volume_id: str | None = None,
                  deadline: Deadline | None = None,
                  host: str | None = None) -> None:
        """Repeat the pending requests.

        A node that does not answer gets no other request this time. A node
        whose service is known to be down gets none at all.

        :param volume_id: repeat only the requests about this volume
        :param deadline: of the request that needs it
        :param host: ask only this backend
        """
        silent: set[str] = set()
        for placeholder_id, wanted in list(self.pending.items()):
            if (volume_id not in (None, wanted.volume_id) or
                    host not in (None, wanted.host) or
                    self._is_settled(context, placeholder_id, wanted)):
                continue
            if wanted.host not in silent and (
                    deadline or self._backend.is_up(context, wanted.host)):
                timeout = deadline.left(TIMEOUT) if deadline else None
                if self._ask(context, placeholder_id, timeout=timeout):
                    continue
            silent.add(wanted.host)

    def _is_settled(self, context: cinder_context.RequestContext,
                    placeholder_id: str, wanted: Wanted) -> bool:
        """Whether the database makes a request obsolete; forget it then."""
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is not None and (
                wanted.what != Request.ACTIVATE or
                placeholder.state == State.SWITCHED):
            return False
        self.pending.pop(placeholder_id, None)
        return True

    def _ask(self, context: cinder_context.RequestContext,
             placeholder_id: str, sealed: bool = False,
             timeout: float | None = None) -> bool:
        """Send one request; return whether there was an answer."""
        wanted = self.pending.get(placeholder_id)
        if wanted is None:
            # The request of another thread has just succeeded.
            return True
        try:
            if self._do_ask(context, placeholder_id, wanted, sealed,
                            TIMEOUT if timeout is None else timeout):
                records.destroy(context, placeholder_id)
        except exception.PeerError as error:
            LOG.warning('Request to %(host)s to %(what)s %(id)s of volume '
                        '%(volume)s failed: %(error)s. It is repeated.',
                        {'host': wanted.host, 'what': wanted.what,
                         'id': placeholder_id, 'volume': wanted.volume_id,
                         'error': error.msg})
            return not isinstance(error, exception.PeerUnreachable)
        self.pending.pop(placeholder_id, None)
        return True

    def _do_ask(self, context: cinder_context.RequestContext,
                placeholder_id: str, wanted: Wanted, sealed: bool,
                timeout: float) -> bool:
        """Send a request; return whether its placeholder can be deleted."""
        client = self._backend.client
        if wanted.what == Request.RELEASE:
            client.release_source(context, wanted.host, placeholder_id)
        elif wanted.what == Request.ACTIVATE:
            client.activate(context, wanted.host, placeholder_id, sealed,
                            timeout)
        else:
            return client.delete_destination(context, wanted.host,
                                             placeholder_id, timeout)
        return False
