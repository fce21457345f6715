# SPDX-License-Identifier: Apache-2.0
"""Deleting a volume, unless its data is elsewhere or others need it."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder.message import message_field
from cinder import objects
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import messages
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move.prepared_moves import PreparedMoves
from dmclone_driver.move.released_sources import ReleasedSources
from dmclone_driver.move import row_repairs
from dmclone_driver.move import snapshots
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


class Deletions:
    """Deletes volumes of one backend."""

    def __init__(self, backend: backend_module.Backend, preflight: Preflight,
                 prepared_moves: PreparedMoves,
                 released_sources: ReleasedSources, snapshots: Snapshots,
                 teardown: Teardown) -> None:
        self._backend = backend
        self._preflight = preflight
        self._prepared_moves = prepared_moves
        self._released_sources = released_sources
        self._snapshots = snapshots
        self._teardown = teardown

    def delete(self, volume: objects.Volume) -> None:
        """Delete a volume and what is here of its move, or refuse it.

        :raises: VolumeIsBusy, after which Cinder keeps the row; InvalidVolume
            for a volume in a group, whose row Cinder would not keep after
            VolumeIsBusy (VolumeManager._delete_group_generic in
            cinder/volume/manager.py)
        """
        try:
            self._delete_if_here(backend_module.context_of(volume), volume)
        except Exception as error:
            if volume.host:
                # Otherwise Cinder sends an unfinished creation elsewhere.
                messages.tell_user(volume, messages.OTHER,
                                   message_field.Detail.VOLUME_INVALID_STATE)
            if not isinstance(error, cinder_exception.VolumeIsBusy):
                raise
            # Cinder's own line has the reason only in oslo.log's summary.
            LOG.error('Volume %(volume)s is not deleted: %(reason)s',
                      {'volume': volume.id, 'reason': error.msg})
            if volume.group_id:
                raise cinder_exception.InvalidVolume(reason=error.msg)
            raise

    def _delete_if_here(self, context: cinder_context.RequestContext,
                        volume: objects.Volume) -> None:
        with self._backend.lock(volume.id):
            self._take_over(context, volume,
                            self._refuse_deletion(context, volume))
            if not self._prepared_moves.roll_back(
                    context, volume, 'the volume is deleted', deleting=True):
                raise self._not_rolled_back(volume)
            if not self._keep_for_snapshots(context, volume):
                self._teardown.remove(context, volume)

    def _refuse_deletion(self, context: cinder_context.RequestContext,
                         volume: objects.Volume) -> LogicalVolume | None:
        """Refuse all but a user's volume whose data is on this node.

        :returns: its logical volume, or None
        :raises: DeletionRefused
        """
        lv = self._logical_volume(volume)
        try:
            self._preflight.refuse_if_gone(context, volume, _('delete'))
            self._preflight.refuse_if_moved_away(
                volume, _('delete'), self._logical_volume(volume))
        except exception.NotHere as error:
            # Otherwise Cinder has sent an unfinished creation to another node.
            if volume.launched_at is not None or not lv or lv.of_move:
                raise exception.DeletionRefused(error.msg)
        except (exception.IsPlaceholder, exception.MovedAway) as error:
            raise exception.DeletionRefused(error.msg)
        return lv

    def _logical_volume(self, volume: objects.Volume) -> LogicalVolume | None:
        return self._backend.logical_volume(Names(volume.name_id))

    def _take_over(self, context: cinder_context.RequestContext,
                   volume: objects.Volume, lv: LogicalVolume | None) -> None:
        """Exclude work on a clone that Cinder has copied elsewhere.

        Cinder deletes it with a row of another id. What the watcher does with
        a clone is excluded by the lock of the volume that it was.

        :param lv: the volume's logical volume here, or None
        """
        before = lv and lv.tagged(logical_volumes.OPENED_TAG)
        if before and before != volume.id:
            # What has begun ends first.
            with self._backend.lock(before):
                row_repairs.take_over(context, volume)

    def _not_rolled_back(self, volume: objects.Volume
                         ) -> exception.DeletionRefused:
        return exception.DeletionRefused(volume=volume.id, reason=_(
            'the node to which it was to move has not answered, or has its '
            'data already; try again when cinder-volume runs there')
            if self._backend.holds(volume) else
            _('it has just moved to %s; try again') % volume.host)

    def _keep_for_snapshots(self, context: cinder_context.RequestContext,
                            volume: objects.Volume) -> bool:
        """Keep a deleted volume's data while others read its snapshots.

        Snapshots that Cinder does not know stay, if they do not need the
        volume's data, as with Cinder's LVM driver.

        :returns: False if it has no other snapshot
        :raises: DeletionRefused if it has one that is not deleted
        """
        lv = self._logical_volume(volume)
        if lv is None or not self._snapshots.of(lv, deleted=True):
            return False
        self._snapshots.delete_later_ones(context)
        found = self._snapshots.of(lv, deleted=True)
        stay = snapshots.independent(context, lv, found)
        left = [each for each in found if each not in stay]
        of_users = [each for each in left if not (
            each.readers or each.hidden or each.deleted)]
        if of_users:
            raise self._has_snapshots(context, volume, of_users)
        if stay:
            LOG.info('Volume %(volume)s is deleted without %(lvs)s: these are '
                     'snapshots that Cinder does not know, and do not need '
                     'it.', {'volume': volume.id, 'lvs': _names(stay)})
        if left and lv.in_parts:
            self._released_sources.keep_later(context, volume, lv)
        elif left:
            self._teardown.keep(context, volume, lv)
        return bool(left)

    @staticmethod
    def _has_snapshots(context: cinder_context.RequestContext,
                       volume: objects.Volume, found: list[LogicalVolume]
                       ) -> exception.DeletionRefused:
        unknown = [each for each in found
                   if snapshots.is_unknown(context, each)]
        return exception.DeletionRefused(volume=volume.id, reason=_(
            'it has snapshots; delete them first')
            if len(unknown) < len(found) else
            _('Cinder does not know its snapshots %s, which need it: the '
              'database may have been restored, or they were unmanaged; ask '
              'the operator to manage them, or to delete them with lvremove')
            % _names(unknown))


def _names(volumes: list[LogicalVolume]) -> str:
    return ', '.join(lv.full_name for lv in volumes)
