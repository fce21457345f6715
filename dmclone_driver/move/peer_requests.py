# SPDX-License-Identifier: Apache-2.0
"""Requests to peers that are repeated until they have been done."""

import dataclasses

from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move import records

LOG = logging.getLogger(__name__)

RELEASE, DELETE, ACTIVATE = 'release', 'delete_destination', 'activate'

# Seconds that a peer has to do what it is asked.
TIMEOUT = 20


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a peer was asked to do about a move of a volume."""

    host: str
    what: str
    volume_id: str


class PeerRequests:
    """What other nodes have yet to do for moves."""

    def __init__(self, backend):
        self._backend = backend
        #: What peers have not done yet: {placeholder id: Wanted}.
        self.pending = backend.jobs.kind('ask peer', self.ask_again)

    def release(self, context, source):
        """Write down that a source is not needed, and tell its node.

        If that is lost, only its row is left to delete.
        """
        if records.release(context, source.id):
            self.ask(context, source, RELEASE)
            return
        source = records.placeholder(context, source.id)
        if records.state(source) == records.LOST:
            self.forget_source(context, source)

    def forget_source(self, context, source):
        """Delete the row of a source whose node never comes back.

        Where it was a clone, nothing else would release its own source.
        """
        further = records.placeholder(context, source.name_id)
        if further is not None:
            self.release(context, further)
        records.destroy(context, source.id)
        self.pending.pop(source.id, None)

    def ask(self, context, placeholder, what, sealed=False, timeout=None):
        """Ask a placeholder's node for something; remember it if that fails.

        :param placeholder: as it was before the switchover for ACTIVATE: then
            it stands for the destination
        :param what: RELEASE a source, DELETE an aborted destination, or
            ACTIVATE a switched one
        :param sealed: for ACTIVATE, whether the source is sealed already
        :param timeout: seconds until it has to be answered, if less than
            usual
        """
        self.remember(placeholder, what)
        self._ask(context, placeholder.id, sealed, timeout)

    def remember(self, placeholder, what):
        """Let a placeholder's node be asked by the next :meth:`ask_again`."""
        self.pending[placeholder.id] = Wanted(
            records.backend_of(placeholder), what,
            records.volume_of(placeholder))

    def ask_to_delete(self, context, placeholder_id, host, volume_id,
                      timeout):
        """Ask for the removal of what was aborted, as :meth:`ask` does.

        The row that was written a moment ago is not read for that.
        """
        self.pending[placeholder_id] = Wanted(host, DELETE, volume_id)
        self._ask(context, placeholder_id, timeout=timeout)

    def forget_destination(self, context, placeholder):
        """Delete the row of a destination that its node has deleted.

        If the database does not answer the node is asked again, and has
        nothing left to do.
        """
        self.remember(placeholder, DELETE)
        records.destroy(context, placeholder.id)
        self.pending.pop(placeholder.id, None)

    def remember_to_activate(self, context, source):
        """Let the home of what was switched be told; it may not know yet.

        :param source: its row, after the switchover
        """
        owner = records.owner_row(context, source.id)
        if owner is not None and records.state(owner) != records.LOST:
            self.pending[source.id] = Wanted(
                records.backend_of(owner), ACTIVATE,
                records.volume_of(source))

    def ask_again(self, context, volume_id=None, deadline=None, host=None):
        """Ask the nodes that have not done what they were asked.

        One that does not answer is asked for nothing else this time, and one
        whose service is known to be down for nothing at all.

        :param volume_id: ask only for what concerns this volume
        :param deadline: of the request that needs it
        :param host: ask only this backend
        """
        silent = set()
        for placeholder_id, wanted in list(self.pending.items()):
            if (volume_id not in (None, wanted.volume_id) or
                    host not in (None, wanted.host) or
                    self._is_settled(context, placeholder_id, wanted)):
                continue
            if wanted.host not in silent and (
                    deadline or self._backend.is_up(context, wanted.host)):
                timeout = deadline and deadline.left(TIMEOUT)
                if self._ask(context, placeholder_id, timeout=timeout):
                    continue
            silent.add(wanted.host)

    def _is_settled(self, context, placeholder_id, wanted):
        """Forget what the database says that nobody has to do any more."""
        row = records.get(context, placeholder_id)
        if row is not None and (wanted.what != ACTIVATE or
                                records.state(row) == records.SWITCHED):
            return False
        self.pending.pop(placeholder_id, None)
        return True

    def _ask(self, context, placeholder_id, sealed=False, timeout=None):
        """Ask for one thing; returns whether there was an answer."""
        wanted = self.pending.get(placeholder_id)
        if wanted is None:
            # Another thread has just had it done.
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

    def _do_ask(self, context, placeholder_id, wanted, sealed, timeout):
        """Return whether the placeholder is not needed any more."""
        client = self._backend.client
        if wanted.what == RELEASE:
            client.release_source(context, wanted.host, placeholder_id)
        elif wanted.what == ACTIVATE:
            client.activate(context, wanted.host, placeholder_id, sealed,
                            timeout)
        else:
            return client.delete_destination(context, wanted.host,
                                             placeholder_id, timeout)
        return False
