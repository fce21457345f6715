# SPDX-License-Identifier: Apache-2.0
"""A revert at once: a clone of the snapshot takes the place of the data.

The clone is built like a volume from the snapshot, which may be on any node.
Then one transaction exchanges it for the volume's old logical volume, and the
volume can be used, while the clone hydrates. The old one is released like a
source that is not needed: snapshots that were taken of it keep it.

::

    nothing ---> reverting ---> released ---> the old one is deleted, or kept
                     |          (exchanged)   for its snapshots
                     +--------> released ---> the clone is deleted
                                (given up)

A revert that fails, or is interrupted before the exchange, is given up: the
volume has its old content.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import uuid

from cinder import context as cinder_context
from cinder import objects
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.copies import Copies
from dmclone_driver.move import events
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.released_sources import ReleasedSources
from dmclone_driver.move import revert_records
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


def _names(revert_id: str) -> Names:
    """Return the names of the clone of a revert."""
    return Names(placeholders.derived_id(revert_id, 'clone'))


class NewContent:
    """Replaces the data of this node's volumes by clones of snapshots."""

    def __init__(self, backend: Backend, copies: Copies,
                 released_sources: ReleasedSources, teardown: Teardown
                 ) -> None:
        self._backend = backend
        self._copies = copies
        self._released_sources = released_sources
        self._teardown = teardown
        #: Ids of reverts whose clone has not taken the volume's place.
        self.interrupted = backend.jobs.kind(jobs.GIVE_UP_REVERT,
                                             self.give_up_all)

    def take(self, context: cinder_context.RequestContext,
             volume: objects.Volume, snapshot: objects.Snapshot,
             mine: LogicalVolume) -> str:
        """Replace a volume's data by a clone of a snapshot on any node.

        Callers hold the volume's lock, and call :meth:`start` without it.

        :param mine: the volume's logical volume, which is not open
        :returns: the id of the revert
        :raises: SnapshotUnavailable, RevertNotServed, MoveGone: then the
            volume is as it was
        """
        revert_id = str(uuid.uuid4())
        names = _names(revert_id)
        host = snapshot_rows.read_host(context, snapshot)
        there, initiator = self._copies.ends(context, volume, snapshot.id,
                                             host)
        with self._backend.mark_busy(names):
            try:
                revert_records.begin(
                    context, volume, revert_id, str(uuid.uuid4()),
                    snapshot.id, there, initiator)
                LOG.info('Volume %(volume)s is reverted to snapshot '
                         '%(snapshot)s on %(host)s, which is copied to '
                         'logical volume %(id)s.',
                         {'volume': volume.id, 'snapshot': snapshot.id,
                          'host': host, 'id': names.name_id})
                self._build(context, volume, snapshot.id, names, mine)
                if not revert_records.revert(context, volume, revert_id):
                    raise exception.MoveGone(
                        volume=volume.id, placeholder=revert_id,
                        reason=_('the volume has just changed'))
            except Exception as error:
                with excutils.save_and_reraise_exception():
                    # The database's answer may be lost.
                    self.interrupted.add(revert_id)
                    for kind in (events.Kind.ERROR, events.Kind.ABORT):
                        events.tell(events.Event(
                            kind, volume.id, names.name_id, host,
                            volume.host, snapshot.id,
                            exception.text_of(error)))
        volume.refresh()
        return revert_id

    def _build(self, context: cinder_context.RequestContext,
               volume: objects.Volume, snapshot_id: str, names: Names,
               mine: LogicalVolume) -> None:
        """Build the clone, as large as what it replaces."""
        self._copies.build(context, volume, names, '%db' % mine.size,
                           not_served=exception.RevertNotServed)
        logical_volumes.tag_by_name(
            mine.group, names.volume,
            logical_volumes.REVERTED_TAG + snapshot_id)

    def start(self, context: cinder_context.RequestContext,
              volume: objects.Volume, revert_id: str) -> None:
        """Open the clone and start its hydration; have the old data deleted.

        What fails is tried again, also by a start of the service.
        """
        self._copies.open(context, volume, _names(revert_id))
        self._released_sources.release_soon(context, revert_id)

    # Reverts that have failed, or were interrupted

    def give_up_all(self, context: cinder_context.RequestContext) -> None:
        """Delete the clones that have not taken their volumes' places."""
        for revert_id in list(self.interrupted):
            try:
                self._give_up(context, revert_id)
                self.interrupted.discard(revert_id)
            except Exception:
                LOG.exception('Giving up revert %s failed; it is tried '
                              'again.', revert_id)

    def _give_up(self, context: cinder_context.RequestContext,
                 revert_id: str) -> None:
        placeholder = lookups.placeholder(context, revert_id)
        if placeholder is None:
            return
        names = _names(revert_id)
        try:
            # A revert may be under way: then this waits for it.
            with self._backend.lock(placeholder.volume_id):
                if revert_records.give_up(context, revert_id):
                    LOG.warning('The revert of volume %s was interrupted, '
                                'and is given up: the volume has the content '
                                'that it had.', placeholder.volume_id)
                    # Its gate was never open.
                    self._teardown.delete_destination(
                        names, lookups.placeholder(context, names.name_id))
        finally:
            # Of the clone, or of the old data if it was exchanged.
            self._released_sources.release_soon(context, revert_id)
