# SPDX-License-Identifier: Apache-2.0
"""Switchover by the peer, triggered by the first write of a guest.

The gate of a passive clone holds back writes. A pending write shows that the
guest runs on this node. Then this node makes itself the volume's home, in
whatever state the old home is.
"""

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.activation import Activation
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.clone_state import CloneState
from dmclone_driver.move.destination import Destination
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move.messages import Troubles
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# The longest pause, in seconds, between two checks of a passive clone with a
# pending write.
RETRY_WRITE = 2


class Arrival:
    """Activate or delete the passive clones of this node."""

    def __init__(self, backend: Backend, destination: Destination,
                 activation: Activation, requests: PeerRequests,
                 troubles: Troubles) -> None:
        self._jobs = backend.jobs
        self._pauses = backend.jobs.pauses
        self._destination = destination
        self._activation = activation
        self._requests = requests
        self._troubles = troubles

    def look(self, context: cinder_context.RequestContext, names: Names,
             status: CloneStatus) -> CloneState:
        """Activate or delete a passive clone according to its move."""
        due = (self._pauses.due(('write', names), RETRY_WRITE)
               if status.written else
               self._pauses.due(names, jobs.RETRY_WAITING))
        if not due:
            return CloneState.PASSIVE
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is None:
            return CloneState.PASSIVE
        state = placeholder.state
        if state == State.ABORTED:
            self._jobs.start(names, self._delete_destination, context,
                             placeholder)
            return CloneState.PASSIVE
        if not status.healthy:
            self._troubles.metadata(context, names, status)
            return CloneState.SICK
        if state == State.PREPARED and status.written:
            state = self._take_write(context, names, placeholder)
        if state in (State.SWITCHED, State.LOST):
            self._jobs.start(names, self._activate, context, names)
        return CloneState.PASSIVE

    def _delete_destination(self, context: cinder_context.RequestContext,
                            placeholder: Placeholder) -> None:
        if self._destination.delete(context, placeholder.id):
            self._requests.forget_destination(context, placeholder)
            self.forget(names_module.Names(placeholder.id))

    def _activate(self, context: cinder_context.RequestContext,
                  names: Names) -> None:
        self._activation.activate(context, names.name_id)
        self.forget(names)

    def forget(self, names: Names) -> None:
        """Forget a clone that is not passive any longer."""
        self._pauses.forget(names)
        self._pauses.forget(('write', names))

    def _take_write(self, context: cinder_context.RequestContext, names: Names,
                    placeholder: Placeholder) -> State:
        """Switch over for a pending write, or abort if it is too early.

        :returns: the state of the move afterwards
        """
        status = dmsetup.clone(names.of(names_module.CLONE))
        if status is None or not status.written:
            # There was no write: do_hydration in the kernel
            # (drivers/md/dm-clone-target.c) briefly raises the number of
            # hydrating regions even if it copies none.
            return State.PREPARED
        volume_id = placeholder.volume_id
        volume = lookups.get(context, volume_id)
        if volume is not None and attachments.attaching(
                volume, placeholder.node):
            return self._refuse_write(context, names, placeholder)
        try:
            records.switch_over(context, volume_id, placeholder.id)
        except exception.MoveGone as error:
            LOG.error('A write to %(names)s is pending, but %(error)s',
                      {'names': names, 'error': error.msg})
            return State.PREPARED
        return State.SWITCHED

    def _refuse_write(self, context: cinder_context.RequestContext,
                      names: Names, placeholder: Placeholder) -> State:
        """Abort a move whose destination was written too early.

        The move can't be kept for the guest. dm-clone may have read blocks
        from the source for this write, and the guest may have changed them
        on the old home since.

        :returns: the state of the move afterwards
        """
        volume_id = placeholder.volume_id
        LOG.error('Unexpected write to %(device)s before the attachment of '
                  'volume %(volume)s to this node was completed: it is not '
                  'from the instance. The write fails, the move is aborted, '
                  'and the volume stays on its home.',
                  {'device': names.path(), 'volume': volume_id})
        if not records.abort(context, volume_id, placeholder.id):
            return State.SWITCHED
        self._jobs.start(names, self._delete_destination, context,
                         placeholder)
        return State.ABORTED
