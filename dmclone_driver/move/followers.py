# SPDX-License-Identifier: Apache-2.0
"""Snapshots that follow their volume to another node, as whole copies.

A snapshot saves what its origin overwrites, so it is of no use without the
origin. It follows its volume as a copy of all data, the *follower*: a clone of
the snapshot on the new node, which is built and hydrated like a volume from
it. Until it is complete the snapshot stays where it is. Then one transaction
makes the follower the snapshot, and the old one is deleted, as a hidden
snapshot is, when no volume reads it any longer.

::

    nothing ---> following ---> followed ---> deleted, with its snapshot
        ^            |
        +------------+ given up: the snapshot is deleted, the metadata lost,
                       or the process killed before the clone was built

The row of a follower is a placeholder, with the id of the snapshot. It has the
logical volume that the placeholder of the source is named after.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import uuid

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.copies import Copies
from dmclone_driver.move.destination import Destination
from dmclone_driver.move import follower_records
from dmclone_driver.move import jobs
from dmclone_driver.move.jobs import Kind
from dmclone_driver.move import lookups
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# The longest pause between two checks of the followers that are not complete,
# in seconds: their snapshots may have been deleted.
_PAUSE = 60


class Followers:
    """The followers on this node; each is locked by the id of its row."""

    def __init__(self, backend: Backend, destination: Destination,
                 copies: Copies, snapshots: Snapshots, teardown: Teardown,
                 requests: PeerRequests) -> None:
        self._backend = backend
        self._destination = destination
        self._copies = copies
        self._snapshots = snapshots
        self._teardown = teardown
        self._requests = requests
        #: Names of followers that are not the snapshot yet, or not any more.
        self.unsettled: Kind[Names, None] = backend.jobs.kind(
            jobs.SETTLE_FOLLOWER, self.settle_all, _PAUSE)
        #: Those that hydrate: that they are not complete is no failure.
        self.hydrating: Kind[Names, None] = backend.jobs.kind(
            jobs.WATCH_FOLLOWER, self.watch_all, _PAUSE)

    def take_along(self, context: cinder_context.RequestContext,
                   snapshot_id: str) -> None:
        """Have a snapshot of a peer follow to this node; do not wait for it.

        Does nothing if it is here, or follows already.

        :raises: SnapshotNotFound, SnapshotStays, FollowerNotServed
        """
        snapshot = snapshot_rows.get(context, snapshot_id)
        if snapshot is None:
            raise cinder_exception.SnapshotNotFound(snapshot_id=snapshot_id)
        if (snapshot_rows.backend_of(snapshot) == self._backend.host or
                self._is_back(context, snapshot)):
            return
        here, there = self._check(context, snapshot)
        follower_id, names = str(uuid.uuid4()), Names(str(uuid.uuid4()))
        with self._backend.mark_busy(names):
            with self._backend.lock(follower_id):
                if not follower_records.begin(
                        context, snapshot, follower_id, names.name_id,
                        str(uuid.uuid4()), here, there,
                        self._backend.initiator.name()):
                    self._settle_soon(context, snapshot_id)
                    return
                # If it fails, and until it is known to hydrate.
                self.unsettled.add(names)
                row = self._build(context, follower_id, names)
            self._copies.open(context, row, names)
        LOG.info('Snapshot %(snapshot)s of volume %(volume)s follows from '
                 '%(there)s to %(here)s, as logical volume %(id)s.',
                 {'snapshot': snapshot_id, 'volume': snapshot.volume_id,
                  'there': there.host, 'here': here.host,
                  'id': names.name_id})

    def _is_back(self, context: cinder_context.RequestContext,
                 snapshot: objects.Snapshot) -> bool:
        """Whether a snapshot is here that the database has forgotten.

        Then the database is corrected. A copy from which the snapshot has
        followed to a third node is read from there until it is hidden.
        """
        lv = self._snapshots.find(snapshot.id)
        if lv is None or not lv.followed or (
                lv.hidden or lv.readers or lv.deleted or
                self._state(context, lv) is not None):
            return False
        LOG.warning('Snapshot %(snapshot)s has followed to %(lv)s before, and '
                    'the database did not know it.',
                    {'snapshot': snapshot.id, 'lv': lv.full_name})
        return snapshot_rows.restore(
            context, snapshot.id, volume_utils.append_host(
                self._backend.host, volume_utils.extract_host(
                    snapshot_rows.host_of(snapshot), 'pool')))

    @staticmethod
    def _state(context: cinder_context.RequestContext,
               lv: LogicalVolume) -> State | None:
        """Return the state of a follower, None for other snapshots."""
        names = names_module.of_logical_volume(lv.name)
        return placeholders.state_of(names and follower_records.get(
            context, names.name_id))

    def _check(self, context: cinder_context.RequestContext,
               snapshot: objects.Snapshot) -> tuple[peers.Peer, peers.Peer]:
        """Return this backend and that of a snapshot, which can follow.

        :raises: SnapshotStays
        """
        host = snapshot_rows.host_of(snapshot)
        pool = volume_utils.extract_host(host, 'pool')
        here, there = (self._peer(context, each) for each in (
            volume_utils.append_host(self._backend.host, pool), host))
        free = self._destination.describe()['free_gb']
        found = self._snapshots.find(snapshot.id)
        reason = None
        if there is None or here is None:
            reason = _('there is no backend %s') % host
        elif snapshot.status != 'available':
            reason = _('its status is %s, and only available snapshots '
                       'follow') % snapshot.status
        elif found is not None and (
                self._state(context, found) != State.FOLLOWING):
            reason = _('volumes there still read it as it was there before; '
                       'wait until they are complete')
        elif free < snapshot.volume_size:
            reason = _('it needs %(needed)d GiB, and the volume group there '
                       'has only %(free).2f GiB left; delete volumes there, '
                       'or choose another node') % {
                           'needed': snapshot.volume_size, 'free': free}
        if reason or here is None or there is None:
            raise exception.SnapshotStays(
                snapshot=snapshot.id, host=self._backend.host, reason=reason)
        return here, there

    def _peer(self, context: cinder_context.RequestContext,
              pool: str) -> peers.Peer | None:
        """Return a backend as a peer, None if it has no service."""
        host = volume_utils.extract_host(pool)
        service = self._backend.service(context, host)
        return service and peers.Peer(host, pool, service.uuid,
                                      service.availability_zone)

    def _build(self, context: cinder_context.RequestContext,
               follower_id: str, names: Names) -> objects.Volume:
        """Build the clone of a follower that has begun; return its row."""
        row = lookups.get(context, follower_id)
        if row is None:
            raise exception.ReadLagsBehind(volume=follower_id)
        try:
            self._copies.build(context, row, names,
                               not_served=exception.FollowerNotServed)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._give_up_at_once(context, row, names)
        return row

    def _give_up_at_once(self, context: cinder_context.RequestContext,
                         row: objects.Volume, names: Names) -> None:
        """Give up a follower that was not built; callers hold its lock.

        While its row is there, a repeated request would do nothing.
        """
        try:
            self._give_up(context, row)
        except Exception:
            LOG.exception('Finishing or removing the follower %s failed; it '
                          'is tried again.', names)
        else:
            self.unsettled.discard(names)

    def _settle_soon(self, context: cinder_context.RequestContext,
                     snapshot_id: str) -> None:
        """Have a snapshot's follower here checked without a pause.

        It may be one that was not built.
        """
        for row in lookups.all_placeholders(context):
            if (row.snapshot_id == snapshot_id and
                    row.backend == self._backend.host and
                    row.state == State.FOLLOWING):
                self.unsettled.add(Names(row.name_id))
        self._backend.jobs.pauses.forget(self.unsettled.name)

    # Afterwards

    def settle_all(self, context: cinder_context.RequestContext) -> None:
        """Finish or give up the followers for which that is due."""
        self._settle_each(context, self.unsettled)

    def watch_all(self, context: cinder_context.RequestContext) -> None:
        """Give up the followers that hydrate in vain."""
        self._settle_each(context, self.hydrating)

    def _settle_each(self, context: cinder_context.RequestContext,
                     kind: Kind[Names, None]) -> None:
        for names in list(kind):
            try:
                if self._settle(context, names):
                    self.unsettled.discard(names)
                    self.hydrating.discard(names)
            except Exception:
                LOG.exception('Finishing or removing the follower %s failed; '
                              'it is tried again.', names)
                self.unsettled.add(names)
                self.hydrating.discard(names)

    def _settle(self, context: cinder_context.RequestContext,
                names: Names) -> bool:
        """Finish or give up a follower; return whether nothing is left."""
        row = follower_records.get(context, names.name_id)
        if row is None:
            return True
        with self._backend.lock(row.id):
            state = follower_records.state(context, row.id)
            if state is None:
                return True
            lv = self._backend.logical_volume(names)
            if state == State.FOLLOWED:
                return self._end(context, row, names, lv)
            if self._is_useless(context, row, names, lv):
                self._give_up(context, row)
                return True
            # Otherwise this very check has found it useless.
            assert lv is not None
            if lv.complete:
                return self._follow(context, row, names, lv)
            # Its completion may just have added it again: it is in one queue
            # at any moment.
            self.hydrating.add(names)
            self.unsettled.discard(names)
            return False

    def _is_useless(self, context: cinder_context.RequestContext,
                    row: objects.Volume, names: Names,
                    lv: LogicalVolume | None) -> bool:
        """Whether a follower will never be the snapshot.

        Its source is not deleted with it, unless that was known before.
        """
        return lv is None or lv.deleted or not (lv.clone or lv.opened) or (
            lv.clone and not LocalVolume(names).exists() and
            self._backend.metadata.find(names) is None) or (
            not lv.readers and
            snapshot_rows.is_deleted(context, row.snapshot_id))

    def _give_up(self, context: cinder_context.RequestContext,
                 row: objects.Volume) -> None:
        """Delete a follower that is not the snapshot, and its row."""
        self._teardown.remove(context, row)
        records.destroy(context, row.id)
        LOG.info('The copy of snapshot %(snapshot)s on %(host)s is given up.',
                 {'snapshot': row.snapshot_id, 'host': row.host})

    def _follow(self, context: cinder_context.RequestContext,
                row: objects.Volume, names: Names,
                lv: LogicalVolume) -> bool:
        """Make a complete follower the snapshot.

        :returns: False if the snapshot is being deleted: see what comes of it
        """
        if not lv.followed:
            logical_volumes.tag(lv, logical_volumes.FOLLOWED_TAG +
                                row.snapshot_id)
        if not follower_records.follow(context, row.id):
            return False
        LOG.info('Snapshot %(snapshot)s is on %(host)s now, in %(lv)s.',
                 {'snapshot': row.snapshot_id, 'host': row.host,
                  'lv': lv.full_name})
        return self._end(context, row, names, lv)

    def _end(self, context: cinder_context.RequestContext,
             row: objects.Volume, names: Names,
             lv: LogicalVolume | None) -> bool:
        """Have the old snapshot deleted; delete the row after its own.

        The node of the old one looks at the row: see Snapshots.release.
        """
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is not None:
            self._requests.release(context, placeholder)
        if lv is not None:
            return True
        if lookups.placeholder(context, names.name_id) is not None:
            return False
        records.destroy(context, row.id)
        return True
