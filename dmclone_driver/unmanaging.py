# SPDX-License-Identifier: Apache-2.0
"""Volumes and snapshots that Cinder gives up, and that LVM keeps."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import deletion_records
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN

LOG = logging.getLogger(__name__)


class Unmanaging:
    """Gives up volumes and snapshots of one backend."""

    def __init__(self, backend: backend_module.Backend, preflight: Preflight,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots

    @in_one_place.required(_('unmanage'))
    def unmanage(self, volume: objects.Volume) -> None:
        """Give up a volume: only its logical volume is left.

        :raises: ClonesRead
        """
        self._preflight.refuse_while_read(volume, _('unmanage'))
        # Its row goes, and the logical volume stays.
        deletion_records.withdraw(backend_module.context_of(volume), volume)
        LocalVolume(Names(volume.name_id)).remove(HANDLE, ORIGIN)

    def unmanage_snapshot(self, context: cinder_context.RequestContext,
                          snapshot: objects.Snapshot) -> None:
        """Give up a snapshot, unless LVM alone cannot show its content.

        :raises: SnapshotIsBusy, see SnapshotAboveClone, SnapshotElsewhere,
            SnapshotFollowed
        """
        lv = self._snapshots.find(snapshot.id)
        mine = Names(snapshot.volume.name_id).volume
        error: cinder_exception.SnapshotIsBusy
        if lv is not None and lv.followed:
            error = exception.SnapshotFollowed(snapshot_name=snapshot.id)
        elif lv is None or lv.not_taken or (lv.snapshot_of or mine) != mine:
            error = exception.SnapshotElsewhere(
                snapshot_name=snapshot.id,
                host=snapshot_rows.backend_of(snapshot))
        elif lv.taken:
            error = exception.SnapshotAboveClone(snapshot_name=snapshot.id)
        else:
            snapshot_rows.keep(context, snapshot)
            return
        # Cinder does not log it. Its user message needs this very class
        # (translate_detail_id in cinder/message/message_field.py).
        LOG.error('Snapshot %(snapshot)s of volume %(volume)s is not '
                  'unmanaged: %(reason)s',
                  {'snapshot': snapshot.id, 'volume': snapshot.volume_id,
                   'reason': error.msg})
        raise cinder_exception.SnapshotIsBusy(error.msg)
