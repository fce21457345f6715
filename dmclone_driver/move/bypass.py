# SPDX-License-Identifier: Apache-2.0
"""Reading from a source's own source if nothing was written in between.

A volume from a snapshot that moves before it is complete reads from its old
home, which reads from the snapshot. If the old home was never written, and
refuses writes now, both show the same. Then the new home reads from the
snapshot, as one more of its readers, and the old home is released::

    snapshot <- old home <- new home       two sources, on two nodes
    snapshot <------------- new home       one

The evidence is the kernel's: the old home has no region. It can't be written
any more, so that it shows the same for ever, even if it copies regions later.

First the new reader gets a row, so that the snapshot's node exports it, which
counts it by a tag. Then the clone is connected to the snapshot. Only then one
transaction makes that its source, and releases the old home, which was the
snapshot's other reader. Before that the database says that the clone reads
from the old home, and it may; if the work is interrupted, the next start of
the hydration continues. The release of the source ends the new reader, too.
"""

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import copy_records
from dmclone_driver.move import lookups
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State

LOG = logging.getLogger(__name__)


class Bypass:
    """Sources of clones on this node that need not be read."""

    def __init__(self, backend: Backend, requests: PeerRequests) -> None:
        self._backend = backend
        self._requests = requests

    def begin(self, context: cinder_context.RequestContext,
              source: Placeholder) -> Placeholder | None:
        """Return the row of the snapshot that a clone may read from instead.

        Nothing but the database is changed.

        :param source: which refuses writes
        """
        if source.snapshot_id:
            return None
        below = lookups.placeholder(context, source.name_id)
        if (below is None or below.state != State.SWITCHED or
                not below.snapshot_id):
            return None
        found = copy_records.reader(context, source.id)
        if found is None and self._may(context, source, below) and (
                copy_records.begin_bypass(
                    context, source.id, below.id,
                    below.backend == self._backend.host)):
            found = copy_records.reader(context, source.id)
        return found

    def _may(self, context: cinder_context.RequestContext,
             source: Placeholder, below: Placeholder) -> bool:
        """Whether the nodes answer, and the source was never written."""
        client = self._backend.client
        try:
            client.describe(context, below.backend)
            return client.is_unwritten(context, source.backend, source.id)
        except exception.PeerError as error:
            LOG.debug('The source of volume %(volume)s stays: %(error)s',
                      {'volume': source.volume_id, 'error': error.msg})
            return False

    def end(self, context: cinder_context.RequestContext,
            source: Placeholder) -> None:
        """Make a snapshot the source of a clone that is connected to it.

        :param source: the former one, which is released
        """
        self._backend.initiator.disconnect(source.provider_location,
                                           source.provider_auth)
        if copy_records.bypass(context, source.id):
            former = copy_records.reader(context, source.id)
            if former is not None:
                self._requests.release(context, former)
