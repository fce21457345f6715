# SPDX-License-Identifier: Apache-2.0
"""The old home's side of a move: serve the source, then delete it."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import contextlib
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
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.initiator import LOCAL
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

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


class Source:
    """Sources on this node; a ``row`` is the one that points to a source."""

    def __init__(self, backend: Backend, teardown: Teardown,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._teardown = teardown
        self._snapshots = snapshots
        #: Logical volumes that had no seal when a move of theirs began, each
        #: with the placeholder's id. It only saves a look.
        self._unsealed: dict[Names, str] = {}
        #: Exports that are still to be removed.
        self.to_unexport = backend.jobs.kind('end export',
                                             self.unexport_again)
        #: Placeholders of sources that could not be deleted yet.
        self.to_release = backend.jobs.kind('delete source',
                                            self.release_again)
        #: Released logical volumes that clones still read, or whose volume's
        #: row Cinder has yet to delete. That may take hours.
        self.waiting: jobs.Kind[Names, Waiting] = backend.jobs.kind(
            jobs.WATCH_DELETED, self.look_again, WAIT)
        #: Ids of the placeholders of the sources that are being deleted.
        self._releasing: set[str] = set()

    def export(self, context: cinder_context.RequestContext,
               row: objects.Volume, initiator: str) -> None:
        """Serve a row's data, read-only, to one initiator.

        The location is recorded in the row. Can be repeated.

        :param initiator: its iSCSI name; empty for a clone on this node
        """
        names = Names(row.name_id)
        if placeholders.is_placeholder(row):
            self._refuse_other_seal(names, row)
            if row.snapshot_id:
                self._snapshots.serve(row)
        self.to_unexport.discard(names)
        LocalVolume(names).ensure_export(block.size(names.path()))
        if initiator:
            row.provider_location, row.provider_auth = (
                self._backend.target.export(names.target, names.path(EXPORT),
                                            initiator, row.provider_auth))
        else:
            row.provider_location, row.provider_auth = (names.path(EXPORT),
                                                        LOCAL)
        records.set_export(context, row, row.provider_location,
                           row.provider_auth)
        steps.reached(Step.EXPORTED, names.name_id)

    def _refuse_other_seal(self, names: Names, row: objects.Volume) -> None:
        """Refuse to export a source that is sealed for another placeholder.

        Rows that were recreated by hand may be wrong.

        :raises: VolumeDriverException
        """
        sealed = self.seal_of(names.name_id)
        if sealed and sealed != row.id:
            raise cinder_exception.VolumeDriverException(message=_(
                '%(names)s is sealed for move %(sealed)s, not for %(row)s: '
                'the database is not up to date') % {
                    'names': names, 'sealed': sealed, 'row': row.id})

    def unexport(self, names: Names) -> None:
        """Remove a volume's export; succeed if there is none.

        A failure is tried again later. Callers hold the volume's lock.
        """
        self.to_unexport.add(names)
        try:
            self._backend.target.unexport(names.target)
            LocalVolume(names).remove(EXPORT)
        except Exception:
            LOG.exception('Removing the export of %s failed; it is tried '
                          'again.', names)
        else:
            self.to_unexport.discard(names)
            steps.reached(Step.UNEXPORTED, names.name_id)

    def unexport_again(self, context: cinder_context.RequestContext) -> None:
        """Retry the removal of exports."""
        for names in list(self.to_unexport):
            row = lookups.owner_row(context, names.name_id)
            with (contextlib.nullcontext() if row is None else
                  self._backend.lock(lookups.guarding_id(row))):
                # A move that has begun meanwhile needs the export.
                if names in self.to_unexport:
                    self.unexport(names)

    def export_again(self, context: cinder_context.RequestContext,
                     placeholder_id: str) -> None:
        """Export a source whose initiator has lost its session.

        :raises: VolumeDriverException if the source is not here by the
            database; this node may read an older state of it
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        row = placeholder and lookups.source_row(context, placeholder_id)
        if placeholder is None or row is None or (
                not self._backend.holds(row)):
            raise cinder_exception.VolumeDriverException(message=_(
                'by the database as that node reads it, the source of %s is '
                'not there') % names_module.text(placeholder_id))
        self.export(context, row, placeholder.initiator)

    def seal(self, context: cinder_context.RequestContext,
             placeholder_id: str) -> bool:
        """Refuse writes to a source whose volume has moved.

        Takes no lock: the initiator's node calls this while it holds its own.
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        # A snapshot refuses all writes.
        return (placeholder is not None and
                placeholder.state == State.SWITCHED and
                placeholder.backend == self._backend.host and
                (bool(placeholder.snapshot_id) or
                 self.close(Names(placeholder.name_id), placeholder.id)))

    def is_unwritten(self, context: cinder_context.RequestContext,
                     placeholder_id: str) -> bool:
        """Whether it is proven that a source shows only its own source.

        It refuses writes, so that this stays true. It is none that snapshots
        need. Takes no lock, as :meth:`seal`.
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        if (placeholder is None or placeholder.snapshot_id or
                placeholder.state != State.SWITCHED or
                placeholder.backend != self._backend.host):
            return False
        names = Names(placeholder.name_id)
        lv = self._backend.logical_volume(names)
        # What was extended is not all in the clone.
        return (lv is not None and lv.sealed and lv.cloned == lv.size and
                not lv.has_taken and not self._snapshots.of(lv) and
                LocalVolume(names).has_nothing_own())

    def begins(self, names: Names, placeholder_id: str) -> None:
        """Note that a move has begun, of a logical volume that is not sealed.

        The caller has just read that from LVM. As long as this move exists no
        other one can seal it: the database refuses that.
        """
        self._unsealed[names] = placeholder_id

    def close(self, names: Names, placeholder_id: str,
              flush: bool = True) -> bool:
        """Refuse writes to a source, now and after a reboot.

        :param placeholder_id: id of the source's placeholder
        :param flush: False at a start, which waits for no disk
        :returns: whether it is not open, so that no write can be in flight
        """
        closed = LocalVolume(names).seal(flush)
        # A guest may wait for it. Once: then LVM is asked again.
        if self._unsealed.pop(names, None) == placeholder_id or (
                self._is_unsealed(names)):
            logical_volumes.tag_by_name(
                self._backend.group.vg_name, names.volume,
                logical_volumes.SEALED_TAG + placeholder_id)
        steps.reached(Step.SEALED, names.name_id)
        return closed

    def _is_unsealed(self, names: Names) -> bool:
        """Ask LVM whether there is a logical volume, and it is not sealed."""
        lv = self._backend.logical_volume(names)
        return lv is not None and not lv.sealed

    def seal_of(self, name_id: str) -> str | None:
        """Return for which placeholder a logical volume is sealed.

        :returns: its id, '' if it is not sealed, None if it is not here
        """
        lv = self._backend.logical_volume(Names(name_id))
        return (None if lv is None else
                lv.tagged(logical_volumes.SEALED_TAG) or '')

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

    def wait(self, placeholder: Placeholder) -> None:
        """Note that the deletion of a released source has to wait."""
        self.waiting.add(Names(placeholder.name_id), Waiting(
            placeholder.id,
            placeholder.volume_id if placeholder.of_deleted else ''))

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
            self.close(Names(placeholder.name_id), new.name_id, flush=False)

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
