# SPDX-License-Identifier: Apache-2.0
"""What is on a node and belongs to nobody: no row in the database knows it.

The service looks after everything that a row knows. This finds the rest,
which only a restored database or work by hand can leave, and removes what
cannot be the only copy of anybody's data.
"""

import dataclasses

from dmclone_driver.i18n import _
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import devices
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE


@dataclasses.dataclass(frozen=True)
class Leftover:
    """Something that belongs to nobody.

    :ivar what: its kind and name
    :ivar kept: why it is not removed; None if it can be
    """

    what: str
    kept: str = None

    def line(self, removed=False):
        """Print it as an operator reads it."""
        if self.kept:
            return _('%(what)s: kept, %(why)s') % {'what': self.what,
                                                   'why': self.kept}
        return '%s: %s' % (self.what, _('removed') if removed else
                           _('can be removed'))


class Leftovers:
    """Finds and removes leftovers of one backend on its own node."""

    def __init__(self, backend):
        self._backend = backend

    def run(self, context, remove=False):
        """Look at the whole node.

        :param remove: remove what can be; otherwise nothing is changed
        :returns: list of all :class:`Leftover`
        :raises: ProcessExecutionError if something cannot be removed
        """
        found = []
        for names in self._on_this_node():
            # Nobody may be in the middle of making or removing it: a row is
            # there before anything else is, and goes last.
            with self._backend.lock(self._guard(context, names)):
                owner = records.owner_row(context, names.name_id)
                tags = list(self._see_tags(context, names, owner))
                found += tags
                if owner is None:
                    found += self._see_to(names, remove, bool(tags))
        return found

    def _on_this_node(self):
        """Return the names of all that looks like this driver's."""
        found = {parsed[0] for parsed in map(
            names_module.parse, dmsetup.devices()) if parsed}
        found.update(names_module.of_logical_volume(lv.name)
                     for lv in logical_volumes.find_all())
        found.update(names_module.of_target(target)
                     for target in self._backend.target.names() +
                     self._backend.initiator.targets())
        return sorted(found - {None}, key=lambda names: names.name_id)

    @staticmethod
    def _guard(context, names):
        row = records.owner_row(context, names.name_id)
        return names.name_id if row is None else records.guarding_id(row)

    def _see_tags(self, context, names, owner):
        """See where LVM and the database differ about a volume."""
        lv = self._backend.logical_volume(names)
        if lv is None or lv.deleted:
            return
        opened = lv.tagged(logical_volumes.OPENED_TAG)
        why = self._contradiction(lv, opened, owner)
        volume = records.get(context, opened or names.name_id)
        if why and volume is not None and not records.is_placeholder(volume):
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': lv.group, 'name': lv.name},
                why % {'volume': volume.id, 'name_id': volume.name_id,
                       'host': records.backend_of(volume),
                       'new': lv.tagged(logical_volumes.SEALED_TAG)})

    def _contradiction(self, lv, opened, owner):
        """Return what an operator has to know about a logical volume."""
        state = owner and records.state(owner)
        if lv.sealed and state not in (records.SWITCHED, records.RELEASED,
                                       records.LOST):
            return _('volume %(volume)s has moved from it to logical volume '
                     '%(new)s, and the database says that the volume is on '
                     '%(host)s, in %(name_id)s')
        if opened and not lv.sealed and (
                owner is None or not self._backend.holds(owner) or
                state in (records.PREPARED, records.ABORTED)):
            return _('it is the home of volume %(volume)s, and the database '
                     'says that the volume is on %(host)s, in %(name_id)s '
                     '(see --restore)')
        if owner is not None and not self._backend.holds(owner):
            return _('by the database volume %(volume)s is on %(host)s')
        return None

    def _see_to(self, names, remove, told):
        """Return the leftovers of a name; remove what can be.

        :param told: whether its logical volume has been named already
        """
        return [*self._see_target(names, remove),
                *self._see_session(names, remove),
                *self._see_devices(names, remove),
                *self._see_logical_volumes(names, remove, told)]

    def _see_target(self, names, remove):
        if names.target in self._backend.target.names():
            if remove:
                self._backend.target.unexport(names.target)
            yield Leftover(_('target %s') % names.target)

    def _see_session(self, names, remove):
        for iqn in self._backend.initiator.targets():
            if names_module.of_target(iqn) != names:
                continue
            kept = None
            if self._backend.initiator.in_use(iqn):
                kept = _('a clone reads from its disk')
            elif remove:
                self._backend.initiator.log_out(iqn)
            yield Leftover(_('session to %s') % iqn, kept)

    def _see_devices(self, names, remove):
        """See to devices: the data is below them, but for a clone's."""
        kept = None
        if devices.is_open(names):
            kept = _('the handle is open')
        elif names.of(HANDLE) in dmsetup.clones():
            kept = _('only a clone tells which blocks were written here')
        present = dmsetup.devices()
        found = [role for role in (EXPORT, HANDLE, GATE, SOURCE)
                 if names.of(role) in present]
        if remove and not kept:
            devices.remove(names, *found)
        for role in found:
            yield Leftover(_('device %s') % names.of(role), kept)

    def _see_logical_volumes(self, names, remove, told):
        """See to data, which always stays, and to a bitmap without data."""
        data = self._backend.logical_volume(names)
        if data is not None and not told:
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': data.group, 'name': data.name},
                _('it may hold the only copy of data; if nobody misses it, '
                  'clear it and remove it with lvremove'))
        bitmap = logical_volumes.find(names.metadata)
        if bitmap is not None:
            if remove and data is None:
                self._backend.metadata.remove(names)
            yield Leftover(
                _('logical volume %(group)s/%(name)s') % {
                    'group': bitmap.group, 'name': bitmap.name},
                data and _('it tells what of %s is valid') % data.name)
