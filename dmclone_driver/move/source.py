# SPDX-License-Identifier: Apache-2.0
"""The old home's side of a move: serve the source, and refuse writes to it.

What becomes of it when it is not needed any longer is in
:mod:`released_sources`.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import contextlib

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from oslo_log import log as logging

from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.initiator import LOCAL
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)


class Source:
    """Sources on this node; a ``row`` is the one that points to a source."""

    def __init__(self, backend: Backend, snapshots: Snapshots) -> None:
        self._backend = backend
        self._snapshots = snapshots
        #: Logical volumes that had no seal when a move of theirs began, each
        #: with the placeholder's id. It only saves a look.
        self._unsealed: dict[Names, str] = {}
        #: Exports that are still to be removed.
        self.to_unexport = backend.jobs.kind('end export',
                                             self.unexport_again)

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
