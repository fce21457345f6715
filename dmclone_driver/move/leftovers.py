# SPDX-License-Identifier: Apache-2.0
"""Leftovers: devices, targets, sessions and volumes that no row knows.

The service manages everything that a row knows. Leftovers come only from a
restored database or from manual work. They are removed, except those that may
be the only copy of data.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses

from cinder import context as cinder_context
from cinder import objects

from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import snapshots
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE


@dataclasses.dataclass(frozen=True)
class Leftover:
    """A leftover, or a logical volume that contradicts the database.

    :ivar what: its kind and name
    :ivar kept: why it is not removed; None if it can be
    """

    what: str
    kept: str | None = None

    def line(self, removed: bool = False) -> str:
        """Return the line that is printed for the operator."""
        if self.kept:
            return _('%(what)s: kept, %(why)s') % {'what': self.what,
                                                   'why': self.kept}
        return '%s: %s' % (self.what, _('removed') if removed else
                           _('can be removed'))


class Leftovers:
    """Finds and removes leftovers of one backend on its own node."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def run(self, context: cinder_context.RequestContext,
            remove: bool = False) -> list[Leftover]:
        """Find all leftovers on this node.

        :param remove: remove those that can be; otherwise nothing is changed
        :raises: ProcessExecutionError if something cannot be removed
        """
        found: list[Leftover] = []
        for names in self._on_this_node():
            # The lock excludes a creation or removal in progress. A row is
            # the first thing to be created and the last to be removed.
            with self._backend.lock(self._guard(context, names)):
                owner = lookups.owner_row(context, names.name_id)
                lv = self._backend.logical_volume(names)
                if owner is not None and lv is not None and lv.kept and (
                        self._backend.is_foreign(owner)):
                    # Its name is that of a logical volume elsewhere.
                    owner = None
                tags = list(self._check_tags(context, names, lv, owner))
                found += tags
                if owner is None:
                    found += self._leftovers(names, lv, remove, bool(tags))
        return found + list(self._snapshots(context))

    def _snapshots(self, context: cinder_context.RequestContext
                   ) -> collections.abc.Iterator[Leftover]:
        """Report the snapshots that the database does not know at all.

        That of one that was deleted, or unmanaged, has a deleted row until
        ``cinder-manage db purge`` removes it. One that has followed its volume
        here is in a logical volume with a volume's name.
        """
        # Their rows, which are created before them, are read afterwards.
        found = {snapshots.id_of(lv): lv for lv in logical_volumes.find_all(
            self._backend.group.vg_name) if not (
                names_module.of_logical_volume(lv.name) and
                not lv.followed or lv.hidden or lv.deleted or lv.not_taken)}
        for snapshot_id in sorted(snapshot_rows.without_row(
                context, filter(None, found))):
            lv = found[snapshot_id]
            yield Leftover(
                _('snapshot %s') % lv.full_name,
                _('the database does not know it, but may have been restored, '
                  'or it was unmanaged; if nobody needs it, run "lvchange '
                  '--addtag %(tag)s %(lv)s" and restart cinder-volume here, '
                  'which deletes it') % {
                      'tag': logical_volumes.HIDDEN_TAG, 'lv': lv.full_name})

    def _on_this_node(self) -> list[Names]:
        """Return all names on this node that have this driver's form."""
        found: set[Names | None] = {parsed[0] for parsed in map(
            names_module.parse, dmsetup.devices()) if parsed}
        found.update(names_module.of_logical_volume(lv.name)
                     for lv in logical_volumes.find_all())
        found.update(names_module.of_target(target)
                     for target in self._backend.target.names() +
                     self._backend.initiator.targets())
        return sorted((names for names in found if names is not None),
                      key=lambda names: names.name_id)

    @staticmethod
    def _guard(context: cinder_context.RequestContext, names: Names) -> str:
        row = lookups.owner_row(context, names.name_id)
        return names.name_id if row is None else lookups.guarding_id(row)

    def _check_tags(self, context: cinder_context.RequestContext,
                    names: Names, lv: LogicalVolume | None,
                    owner: objects.Volume | None
                    ) -> collections.abc.Iterator[Leftover]:
        """Report a logical volume whose tags contradict the database."""
        if lv is None or lv.deleted or (lv.kept and owner is None):
            return
        opened = lv.tagged(logical_volumes.OPENED_TAG)
        why = self._contradiction(lv, opened, owner)
        volume = lookups.get(context, opened or names.name_id)
        if why and volume is not None and (
                not placeholders.is_placeholder(volume)):
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': lv.group, 'name': lv.name},
                why % {'volume': volume.id, 'name_id': volume.name_id,
                       'host': lookups.backend_of(volume),
                       'new': lv.tagged(logical_volumes.SEALED_TAG)})

    def _contradiction(self, lv: LogicalVolume, opened: str | None,
                       owner: objects.Volume | None) -> str | None:
        """Return how a logical volume contradicts the database, or None."""
        state = owner and placeholders.state_of(owner)
        if lv.sealed and state not in placeholders.OF_SOURCES:
            return _('volume %(volume)s has moved from it to logical volume '
                     '%(new)s, and the database says that the volume is on '
                     '%(host)s, in %(name_id)s')
        if opened and not lv.sealed and (
                owner is None or not self._backend.holds(owner) or
                state in (State.PREPARED, State.ABORTED)):
            return _('it is the home of volume %(volume)s, and the database '
                     'says that the volume is on %(host)s, in %(name_id)s '
                     '(see --restore)')
        if owner is not None and not self._backend.holds(owner):
            return _('the database says that volume %(volume)s is on '
                     '%(host)s')
        return None

    def _leftovers(self, names: Names, lv: LogicalVolume | None,
                   remove: bool, reported: bool) -> list[Leftover]:
        """Return the leftovers of a name; remove those that can be.

        :param lv: the logical volume of that name here, or None
        :param reported: whether its logical volume is already reported
        """
        sealed = self._sealed(lv) or self._read(names)
        roles = [EXPORT, HANDLE, ORIGIN, CLONE, GATE, SOURCE]
        if lv is not None and lv.kept:
            # Snapshots need it.
            roles.remove(ORIGIN)
        return [*self._targets(names, remove, sealed),
                *self._sessions(names, remove),
                *self._devices(names, roles, remove, sealed),
                *self._logical_volumes(names, lv, remove, reported)]

    @staticmethod
    def _sealed(lv: LogicalVolume | None) -> str | None:
        """Return why the devices of a source are kept, or None."""
        if lv is None or not lv.sealed:
            return None
        return _('a volume on another node may read it; if none does, run '
                 '"lvchange --deltag %(tag)s%(move)s %(lv)s" and this command '
                 'again') % {
                     'tag': logical_volumes.SEALED_TAG,
                     'move': lv.tagged(logical_volumes.SEALED_TAG),
                     'lv': lv.full_name}

    def _read(self, names: Names) -> str | None:
        """Return why the devices of a snapshot are kept, or None."""
        lv = logical_volumes.find_read_as(names.name_id,
                                          self._backend.group.vg_name)
        if lv is None:
            return None
        return _('a volume may read snapshot %(lv)s through it; if none does, '
                 'run "lvchange --deltag %(tag)s%(name)s %(lv)s" and this '
                 'command again') % {
                     'tag': logical_volumes.READER_TAG,
                     'name': names.name_id, 'lv': lv.full_name}

    def _targets(self, names: Names, remove: bool, sealed: str | None
                 ) -> collections.abc.Iterator[Leftover]:
        if names.target in self._backend.target.names():
            if remove and not sealed:
                self._backend.target.unexport(names.target)
            yield Leftover(_('target %s') % names.target, sealed)

    def _sessions(self, names: Names,
                  remove: bool) -> collections.abc.Iterator[Leftover]:
        for iqn in self._backend.initiator.targets():
            if names_module.of_target(iqn) != names:
                continue
            kept = None
            if self._backend.initiator.in_use(iqn):
                kept = _('a clone reads from its disk')
            elif remove:
                self._backend.initiator.log_out(iqn)
            yield Leftover(_('session to %s') % iqn, kept)

    def _devices(self, names: Names, roles: list[str], remove: bool,
                 sealed: str | None) -> collections.abc.Iterator[Leftover]:
        """Return leftover devices; keep clones, sources, handles in use.

        The data of all devices but a clone is in the devices below.
        """
        local = LocalVolume(names)
        kept = sealed
        if local.is_open():
            kept = _('the handle is open')
        elif local.is_clone():
            kept = _('only a clone tells which blocks were written here')
        present = dmsetup.devices()
        found = [role for role in roles if names.of(role) in present]
        if remove and not kept:
            local.remove(*found)
        for role in found:
            yield Leftover(_('device %s') % names.of(role), kept)

    def _logical_volumes(self, names: Names, data: LogicalVolume | None,
                         remove: bool, reported: bool
                         ) -> collections.abc.Iterator[Leftover]:
        """Return leftover logical volumes; remove metadata without data."""
        if data is not None and not (reported or data.kept):
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': data.group, 'name': data.name},
                _('it is snapshot %s, which has followed its volume here, and '
                  'the database does not know it; run dmclone-move '
                  '--with-snapshots to this node again') % data.followed
                if data.followed else
                _('it may hold the only copy of data; if the data is not '
                  'needed, remove it with lvremove')
                # All blocks of a thin one would be allocated.
                if data.thin else
                _('it may hold the only copy of data; if the data is not '
                  'needed, clear it and remove it with lvremove'))
        metadata = logical_volumes.find_anywhere(names.metadata)
        if metadata is not None:
            if remove and data is None:
                self._backend.metadata.remove(names)
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': metadata.group, 'name': metadata.name},
                _('it records which regions of %s are valid') % data.name
                if data else None)
