# SPDX-License-Identifier: Apache-2.0
"""Repeating the switchovers that the database has lost.

A tag of LVM on the new home says that the volume's gate was opened there. A
tag on the old home says for which placeholder the source was sealed. From
these tags a switchover is repeated that is missing in the database, because
it was restored, or lost its last transactions.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import records
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)


class Restorer:
    """Restores the rows of one volume, on the node that is its home."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def run(self, context: cinder_context.RequestContext,
            volume_id: str, do_it: bool = False
            ) -> collections.abc.Iterator[plan.Action]:
        """Point the database to the logical volume on this node.

        :param do_it: otherwise nothing is changed
        :raises: Refused
        """
        volume = lookups.get(context, volume_id)
        if volume is None or placeholders.is_placeholder(volume):
            raise plan.Refused(_(
                'volume %s is not in the database: take its logical volume '
                'over with "cinder manage"') % volume_id)
        here = self._opened(volume_id)
        self._refuse_known(volume, here)
        names, lv = self._next(context, volume, here)
        self._refuse_reverted(volume, lv)
        self._refuse_rows(context, volume, names)
        done = not do_it or self._do(context, volume, names)
        yield plan.Action(
            _('volume %s') % volume_id, self._change(volume, names, lv),
            None if done else _('the database has changed meanwhile; run '
                                'this command again'))

    def _opened(self, volume_id: str) -> dict[Names, LogicalVolume]:
        """Return the logical volumes here that were a volume's home."""
        found = {}
        for lv in logical_volumes.find_all(self._backend.group.vg_name):
            names = names_module.of_logical_volume(lv.name)
            if names and not lv.deleted and lv.tagged(
                    logical_volumes.OPENED_TAG) == volume_id:
                found[names] = lv
        if not found:
            raise plan.Refused(_(
                'no logical volume on this node has been the home of volume '
                '%s since it was moved; run dmclone-reconcile on the other '
                'nodes') % volume_id)
        return found

    def _refuse_known(self, volume: objects.Volume,
                      here: dict[Names, LogicalVolume]) -> None:
        """Refuse a volume that needs no restoring.

        :raises: Refused
        """
        names = Names(volume.name_id)
        if (self._backend.holds(volume) and names in here and
                not here[names].sealed):
            raise plan.Refused(_(
                'the database already says that volume %s is on this '
                'node') % volume.id)

    def _next(self, context: cinder_context.RequestContext,
              volume: objects.Volume, here: dict[Names, LogicalVolume]
              ) -> tuple[Names, LogicalVolume]:
        """Return the home that followed the one in the database.

        :param here: its logical volumes on this node
        :raises: Refused
        """
        sealed, error = self._seal(context, volume)
        if sealed:
            if Names(sealed) not in here:
                raise plan.Refused(_(
                    'from logical volume %(old)s, where the database has it, '
                    'volume %(volume)s was moved to logical volume %(new)s, '
                    'which is not on this node: first restore the volume on '
                    'the node that has logical volume %(new)s') % {
                        'old': volume.name_id, 'volume': volume.id,
                        'new': sealed})
            return Names(sealed), here[Names(sealed)]
        homes = [(names, lv) for names, lv in here.items() if not lv.sealed]
        if len(homes) != 1:
            raise plan.Refused(_(
                'the logical volumes of volume %(volume)s on this node are '
                'not its home: it was moved on from %(names)s') % {
                    'volume': volume.id, 'names': ', '.join(
                        names.name_id for names in here)})
        if homes[0][1].clone and sealed is None:
            raise plan.Refused(_(
                'part of volume %(volume)s is elsewhere, and whether that is '
                'in logical volume %(old)s on %(host)s is not known: '
                '%(error)s') % {
                    'volume': volume.id, 'old': volume.name_id,
                    'host': lookups.backend_of(volume), 'error': error})
        return homes[0]

    @staticmethod
    def _refuse_reverted(volume: objects.Volume, lv: LogicalVolume) -> None:
        """Refuse a clone of a snapshot: its source is no older home.

        :raises: Refused
        """
        snapshot = lv.tagged(logical_volumes.REVERTED_TAG)
        if lv.clone and snapshot is not None:
            raise plan.Refused(_(
                'volume %(volume)s was reverted to snapshot %(snapshot)s, '
                'from which %(lv)s is still being copied, and the database '
                'does not know from where: restore a newer state of the '
                'database, or create a volume from the snapshot') % {
                    'volume': volume.id, 'snapshot': snapshot,
                    'lv': lv.full_name})

    def _seal(self, context: cinder_context.RequestContext,
              volume: objects.Volume) -> tuple[str | None, str]:
        """Return the seal of the logical volume that the database names.

        :returns: the answer of Source.seal_of, and why that is not known
        """
        host = lookups.backend_of(volume)
        try:
            return self._backend.client.seal_of(
                context, host, volume.name_id), _('it is not there')
        except exception.PeerError as error:
            return None, error.msg

    def _refuse_rows(self, context: cinder_context.RequestContext,
                     volume: objects.Volume, names: Names) -> None:
        """Refuse a volume whose rows stand for another move.

        :raises: Refused
        """
        prepared = lookups.prepared_move(volume)
        if prepared not in (None, names.name_id):
            raise plan.Refused(_(
                'a move of volume %(volume)s is prepared, %(other)s: '
                'delete the attachment that it is for, and run this command '
                'again') % {'volume': volume.id, 'other': prepared})
        owner = lookups.owner_row(context, names.name_id)
        if owner is not None and placeholders.state_of(owner) not in (
                State.PREPARED, State.ABORTED):
            raise plan.Refused(_(
                'row %(row)s of volume %(volume)s already stands for logical '
                'volume %(lv)s') % {'row': owner.id, 'volume': volume.id,
                                    'lv': names.name_id})

    def _change(self, volume: objects.Volume, names: Names,
                lv: LogicalVolume) -> str:
        text = _('change the database to say that it is on %(here)s, in '
                 'logical volume %(lv)s, and that logical volume %(old)s on '
                 '%(host)s is its source; restart cinder-volume on this '
                 'node afterwards') % {
                     'here': self._backend.host, 'lv': names.name_id,
                     'old': volume.name_id,
                     'host': lookups.backend_of(volume)}
        if lv.sealed:
            text += _('. From here it was moved to logical volume %s: '
                      'restore it next on the node that has that logical '
                      'volume') % lv.tagged(logical_volumes.SEALED_TAG)
        return text

    def _do(self, context: cinder_context.RequestContext,
            volume: objects.Volume, names: Names) -> bool:
        service = self._backend.service(context, self._backend.host)
        peer = peers.Peer(
            self._backend.host, volume_utils.append_host(
                self._backend.host,
                volume_utils.extract_host(volume.host, 'pool')),
            service and service.uuid, service and service.availability_zone)
        done = records.restore(
            context, volume, names.name_id, peer,
            self._backend.initiator.name(), self._backend.node)
        if done:
            LOG.warning('The database is changed: volume %(volume)s is on '
                        '%(host)s, in logical volume %(lv)s, by its tag.',
                        {'volume': volume.id, 'host': peer.host,
                         'lv': names.name_id})
        return done
