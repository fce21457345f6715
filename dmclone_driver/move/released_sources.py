# SPDX-License-Identifier: Apache-2.0
"""Released sources: deleted, or kept for their snapshots or their volume.

The deletion of one that clones still read waits for them.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from oslo_log import log as logging

from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import deletion_records
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.source import Source
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# Seconds until it is looked again whether a deletion still has to wait.
WAIT = 60


@dataclasses.dataclass(frozen=True)
class Waiting:
    """What the deletion of a released logical volume waits for.

    :ivar row_id: of its placeholder
    :ivar deleted: id of its volume if that is deleted, otherwise empty
    """

    row_id: str
    deleted: str


class ReleasedSources:
    """Sources on this node that their volumes do not need any longer."""

    def __init__(self, backend: Backend, source: Source, teardown: Teardown,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._source = source
        self._teardown = teardown
        self._snapshots = snapshots
        #: Placeholders of sources that could not be deleted yet.
        self.to_release = backend.jobs.kind('delete source',
                                            self.release_again)
        #: Released logical volumes that clones still read, or whose volume's
        #: row Cinder has yet to delete. That may take hours.
        self.waiting: jobs.Kind[Names, Waiting] = backend.jobs.kind(
            jobs.WATCH_DELETED, self.look_again, WAIT)
        #: Ids of the placeholders of the sources that are being deleted.
        self._releasing: set[str] = set()

    def release_soon(self, context: cinder_context.RequestContext,
                     placeholder_id: str) -> None:
        """Start the deletion of a released source; do not wait for it."""
        self._backend.jobs.start(('release source', Names(placeholder_id)),
                                 self.release, context, placeholder_id)

    def release(self, context: cinder_context.RequestContext,
                placeholder_id: str) -> None:
        """Delete a released source and its row."""
        self._releasing.add(placeholder_id)
        try:
            self._release(context, placeholder_id)
        except Exception:
            self.to_release.add(placeholder_id)
            LOG.exception('Deleting the source of %s failed; it is tried '
                          'again.', names_module.text(placeholder_id))
        else:
            self.to_release.discard(placeholder_id)
        finally:
            self._releasing.discard(placeholder_id)

    def _release(self, context: cinder_context.RequestContext,
                 placeholder_id: str) -> None:
        """Delete a released source and its row, unless that has to wait."""
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is None:
            return
        # Checked first: an old state of the row has the destination's host.
        if placeholder.state != State.RELEASED:
            raise cinder_exception.VolumeDriverException(message=_(
                'by the database as this node reads it, source %(name_id)s '
                'of volume %(volume)s is %(state)s, not released') % {
                    'name_id': placeholder.name_id, 'state': placeholder.state,
                    'volume': placeholder.volume_id})
        if placeholder.backend != self._backend.host:
            return
        if placeholder.snapshot_id:
            with self._backend.lock(placeholder.volume_id):
                self._snapshots.release(context, placeholder,
                                        placeholder.snapshot_id)
            self._snapshots.end_hidden(context, placeholder.snapshot_id)
            # Another may have been deleted by its user meanwhile.
            self._snapshots.delete_later_ones(context)
            return
        with self._backend.lock(placeholder.volume_id):
            if not self._is_useless(context, placeholder):
                return
            self._teardown.cut_loose(context, placeholder)
        # The volume may move back to this node while the source is cleared.
        with self._backend.lock(placeholder.id):
            if lookups.get(context, placeholder.id) is None:
                # Another request has just deleted it.
                return
            self._teardown.delete_data(context, placeholder)
            records.destroy(context, placeholder.id)
        LOG.info('Deleted source %(name_id)s of volume %(volume)s.',
                 {'name_id': placeholder.name_id,
                  'volume': placeholder.volume_id})

    def _is_useless(self, context: cinder_context.RequestContext,
                    placeholder: Placeholder) -> bool:
        """Whether a released source has neither to wait nor to be kept.

        Callers hold the volume's lock. So does a repeated deletion of it, so
        that what that notes is not discarded here.
        """
        # Noted before it is looked at: its wait may end meanwhile.
        self.wait(placeholder)
        waits = False
        try:
            done = self._keep_or_withdraw(context, placeholder)
            waits = done is False
        finally:
            if not waits:
                self.waiting.discard(Names(placeholder.name_id))
        return done is None

    def _keep_or_withdraw(self, context: cinder_context.RequestContext,
                          placeholder: Placeholder) -> bool | None:
        """Keep a released source for its snapshots, or for its volume.

        :returns: True if that is done, False if it has to wait; None if
            nothing needs the source
        """
        done = (self._withdraw(context, placeholder)
                if placeholder.of_deleted else None)
        if done is not None:
            return done
        lv = self._backend.logical_volume(Names(placeholder.name_id))
        if lv is not None:
            self._seal_if_reverted(placeholder, lv)
        if lv is None or not self._snapshots.of(lv):
            return None
        if not lv.in_parts:
            self._keep(context, placeholder, lv)
        # The removal of a clone's parts needs its handle.
        return not lv.in_parts

    @staticmethod
    def _withdraw(context: cinder_context.RequestContext,
                  seen: Placeholder) -> bool | None:
        """Withdraw a deletion if the volume has been kept in spite of it.

        Cinder deletes the row after the driver. If that fails an operator
        may have reset the volume's state, so that it is used again.

        :param seen: the placeholder as it was read without the lock
        :returns: whether that is done, or False if the row is still to be
            deleted; None if the volume is gone
        """
        placeholder = lookups.placeholder(context, seen.id)
        if placeholder is None:
            # The volume has another logical volume since.
            return True
        volume = lookups.get(context, placeholder.volume_id)
        if volume is None:
            return None
        if lookups.is_being_deleted(volume):
            return False
        records.destroy(context, placeholder.id)
        LOG.warning('Volume %(volume)s is %(status)s, though its deletion has '
                    'begun: logical volume %(name_id)s is not deleted.',
                    {'volume': volume.id, 'status': volume.status,
                     'name_id': placeholder.name_id})
        return True

    def _seal_if_reverted(self, placeholder: Placeholder,
                          lv: LogicalVolume) -> None:
        """Seal what a volume had before a revert, unless that was done.

        Otherwise it would be taken for the volume after a restore of the
        database. What has been given up is not the old one.
        """
        new = Names(placeholders.derived_id(placeholder.id, 'clone'))
        if not (lv.sealed or lv.name == new.volume) and (
                self._backend.logical_volume(new) is not None):
            self._source.close(Names(placeholder.name_id), new.name_id,
                               flush=False)

    def _keep(self, context: cinder_context.RequestContext,
              placeholder: Placeholder, lv: LogicalVolume) -> None:
        """Keep a released source as the origin of its snapshots."""
        self._teardown.keep(context, placeholder, lv)
        records.destroy(context, placeholder.id)
        LOG.info('Source %(name_id)s of volume %(volume)s is kept until its '
                 'last snapshot is deleted.',
                 {'name_id': placeholder.name_id,
                  'volume': placeholder.volume_id})
        # That may just have happened.
        self._snapshots.origin_may_go(lv.name)

    def keep_later(self, context: cinder_context.RequestContext,
                   volume: objects.Volume, lv: LogicalVolume) -> None:
        """Have a clone kept when it is complete, though its volume is deleted.

        :raises: DeletionRefused
        """
        self._teardown.refuse_open(volume)
        try:
            deletion_records.begin(context, volume)
        finally:
            # The database's answer may be lost.
            self.waiting.add(Names(volume.name_id), Waiting(
                placeholders.id_of_deleted(volume.name_id), volume.id))
        LOG.info('Volume %(volume)s is deleted; its logical volume %(lv)s is '
                 'kept until the clones that read it are complete.',
                 {'volume': volume.id, 'lv': lv.full_name})

    def wait(self, placeholder: Placeholder) -> None:
        """Note that the deletion of a released source has to wait."""
        self.waiting.add(Names(placeholder.name_id), Waiting(
            placeholder.id,
            placeholder.volume_id if placeholder.of_deleted else ''))

    def release_again(self, context: cinder_context.RequestContext) -> None:
        """Retry the deletion of sources."""
        for placeholder_id in list(self.to_release):
            self.release(context, placeholder_id)

    def find_released(self, placeholder_ids: list[str]) -> None:
        """Have released sources deleted of which no node has told this one.

        The other node may have been killed while this one did not answer.

        :param placeholder_ids: of all released sources on this node, as the
            database has them
        """
        known = self._releasing | {
            each.row_id for each in list(self.waiting.values())}
        for placeholder_id in placeholder_ids:
            if placeholder_id not in known:
                self.to_release.add(placeholder_id)

    def look_again(self, context: cinder_context.RequestContext,
                   hurried: collections.abc.Collection[Names] | None = None
                   ) -> None:
        """Delete what had to wait, if it has not to wait any longer.

        What a look would find to have to wait is not looked at one by one.

        :param hurried: look only at these, for which something has changed
        """
        for names in (self._changed(context) if hurried is None else hurried):
            # Discarded first: a repeated deletion may add it again.
            waiting = self.waiting.pop(names, None)
            if waiting is not None:
                self.release(context, waiting.row_id)

    def _changed(self, context: cinder_context.RequestContext) -> list[Names]:
        """Return what may not have to wait, with a process and a query."""
        waiting = dict(self.waiting)
        needed = self._snapshots.needed()
        withdrawn = lookups.not_deleted(context, {
            each.deleted for names, each in waiting.items()
            if names in needed and each.deleted})
        return [names for names, each in waiting.items()
                if names not in needed or each.deleted in withdrawn]
