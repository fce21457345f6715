# SPDX-License-Identifier: Apache-2.0
"""Volumes from snapshots and from volumes: they share blocks, or are copies.

A volume shares the blocks of a thin volume or snapshot that is on this node.
Otherwise it is a clone that is copied: of the snapshot, or of a hidden one.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import contextlib
import uuid

from cinder.message import message_field
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver import exception
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move.copies import Copies
from dmclone_driver.move import messages
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.new_snapshots import NewSnapshots
from dmclone_driver.thin_clones import ThinClones

LOG = logging.getLogger(__name__)


def telling(volume: objects.Volume
            ) -> contextlib.AbstractContextManager[None]:
    """Create a user message if a creation fails.

    Of the temporary volume of a backup its user knows nothing.
    """
    return messages.telling(
        volume, message_field.Action.CREATE_VOLUME_FROM_BACKEND,
        message_field.Detail.DRIVER_FAILED_CREATE
    ) if volume.use_quota else contextlib.nullcontext()


class Creations:
    """Creates volumes on one backend from what there is."""

    def __init__(self, backend: backend_module.Backend, copies: Copies,
                 thin_clones: ThinClones, snapshots: Snapshots,
                 new_snapshots: NewSnapshots) -> None:
        self._backend = backend
        self._copies = copies
        self._thin_clones = thin_clones
        self._snapshots = snapshots
        self._new_snapshots = new_snapshots

    def of_snapshot(self, volume: objects.Volume, snapshot: objects.Snapshot,
                    size: str) -> None:
        """Create a volume from a snapshot, which may be on another node.

        :param size: as LVM takes it, e.g. ``1g``
        :raises: SnapshotNotServed
        """
        host = snapshot_rows.host_of(snapshot)
        try:
            self._of_snapshot_on(host, volume, snapshot, size)
        except exception.SnapshotNotServed:
            # It may have followed its volume since it was read.
            now = snapshot_rows.read_host(
                backend_module.context_of(volume), snapshot)
            if now == host:
                raise
            self._of_snapshot_on(now, volume, snapshot, size)

    def _of_snapshot_on(self, host: str, volume: objects.Volume,
                        snapshot: objects.Snapshot, size: str) -> None:
        if volume_utils.extract_host(host) == self._backend.host and (
                self._thin_clones.of_snapshot(volume, snapshot.id)):
            return
        self._copies.create(backend_module.context_of(volume), volume,
                            snapshot.id, host, size)

    def of_volume(self, volume: objects.Volume, source: objects.Volume,
                  host: str, size: str) -> None:
        """Create a volume as a clone of a volume on this node.

        :param host: this one, with the pool, ``node@backend#pool``
        :param size: as LVM takes it, e.g. ``1g``
        :raises: NotHere, RequestsWait, SnapshotNotServed
        """
        if self._thin_clones.of_volume(source, volume):
            LOG.info('Volume %(clone)s shares the blocks of volume '
                     '%(volume)s.',
                     {'clone': volume.id, 'volume': source.id})
            return
        snapshot_id = str(uuid.uuid4())
        LOG.info('Volume %(clone)s becomes a clone of volume %(volume)s, from '
                 'hidden snapshot %(snapshot)s.',
                 {'clone': volume.id, 'volume': source.id,
                  'snapshot': snapshot_id})
        self._new_snapshots.take_hidden(source, snapshot_id)
        try:
            self._copies.create(backend_module.context_of(volume), volume,
                                snapshot_id, host, size)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._snapshots.delete_unread(snapshot_id)
