# SPDX-License-Identifier: Apache-2.0
"""Checks that refuse a request before anything is done, with the reason."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import Any

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from cinder.scheduler.filters import extra_specs_ops
from cinder.volume import volume_utils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move import needs
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move import peers
from dmclone_driver.move.peers import Peer
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import Names
from dmclone_driver.node import snapshot_devices

# Seconds that a peer has to describe itself.
DESCRIBE_TIMEOUT = 10


def refused(volume: objects.Volume, peer: Peer,
            reason: str) -> exception.MoveRefused:
    return exception.MoveRefused(volume=volume.id, host=peer.node,
                                 reason=reason)


def is_complete(volume: objects.Volume, placeholder: Placeholder | None,
                lv: LogicalVolume | None) -> bool:
    """Whether LVM says that a volume no longer needs its source.

    :param placeholder: of a volume's source, or None
    :param lv: the volume's logical volume here, or None
    """
    return (placeholder is not None and lv is not None and
            placeholder.state == State.SWITCHED and
            not lookups.prepared_move(volume) and lv.complete)


def extra_specs(volume: objects.Volume) -> dict[str, str]:
    """Return the extra specs of a volume's type, ``{}`` without a type."""
    return volume.volume_type and volume.volume_type.extra_specs or {}


def unwanted(specs: dict[str, str], zone: str | None,
             capabilities: dict[str, Any]) -> str | None:
    """Return why a volume's type forbids its creation on a node, or None.

    :param specs: the extra specs of the type
    :param zone: the availability zone of the node
    :param capabilities: the driver's own ones there, by their names
    """
    zones = volume_utils.extract_availability_zones_from_volume_type(
        {'extra_specs': specs})
    if zones is not None and zone not in zones:
        return _('its type is for the availability zones %(zones)s, and that '
                 'node is in %(zone)s; choose another host, or retype it') % {
                     'zones': ', '.join(zones), 'zone': zone}
    for key, wanted in specs.items():
        name = key.removeprefix('capabilities:')
        if name in capabilities and not extra_specs_ops.match(
                str(capabilities[name]), wanted):
            return _('its type wants %(key)s %(wanted)s, and there it is '
                     '%(there)s; choose another host, or retype it') % {
                         'key': name, 'wanted': wanted,
                         'there': capabilities[name]}
    return None


class Preflight:
    """Checks what requests need; callers hold the volume's lock."""

    def __init__(self, backend: Backend, requests: PeerRequests) -> None:
        self._backend = backend
        self._requests = requests
        #: Ids of volumes that this node writes to for Cinder.
        self.staying: set[str] = set()

    def check(self, context: cinder_context.RequestContext,
              volume: objects.Volume, peer: Peer,
              deadline: Deadline) -> dict[str, Any]:
        """Refuse a move that would fail later; return the peer's answer."""
        self._refuse_by_rows(context, volume, peer)
        self._refuse_by_devices(volume, peer)
        return self._ask_peer(context, volume, peer, deadline)

    def _refuse_by_rows(self, context: cinder_context.RequestContext,
                        volume: objects.Volume, peer: Peer) -> None:
        if volume.group_id:
            raise refused(volume, peer, _(
                'it is in group %(group)s, whose volumes stay together on '
                '%(node)s; remove it from the group, or attach it there') % {
                    'group': volume.group_id, 'node': self._backend.node})
        if volume.id in self.staying or lookups.is_being_made(
                context, volume.id):
            raise refused(volume, peer, _(
                'it is still being filled, with an image for example; wait '
                'for that to end'))
        sources = lookups.chain(context, lookups.placeholder(
            context, volume.name_id))
        if sources and sources[0].state == State.LOST:
            raise refused(volume, peer, _(
                'part of its data was on %(lost)s, which is lost; copy what '
                'can be read of it on %(node)s') % {
                    'lost': sources[0].host, 'node': self._backend.node})
        self._refuse_long_chain(volume, peer, sources)
        if volume.provider_location:
            raise refused(volume, peer, self._use_over_iscsi(volume))

    def _use_over_iscsi(self, volume: objects.Volume) -> str:
        """Return why a volume that is exported for a connection stays.

        Its row has one export, so that it cannot be prepared for a move.
        """
        users = attachments.used_elsewhere(volume, self._backend.node)
        if not users:
            return _('it is in use over iSCSI, by an image, backup or '
                     'migration task; wait for that to end')
        return _('it is in use over iSCSI on %(there)s; live-migrate its '
                 'instance to %(home)s first, where its data is, or detach '
                 'it') % {'there': users[0].connector.get('host'),
                          'home': self._backend.node}

    def _refuse_long_chain(self, volume: objects.Volume, peer: Peer,
                           sources: list[Placeholder]) -> None:
        """Refuse a move that would make the volume need too many nodes.

        :param sources: which it needs now, nearest first
        """
        if len(sources) < self._backend.configuration.dmclone_chain_limit:
            return
        raise refused(volume, peer, _(
            'it still reads from %(number)d nodes before its own, as many as '
            'dmclone_chain_limit allows (%(chain)s); wait until a copy is '
            'complete, which "dmclone watch" shows, then try again') % {
                'number': len(sources), 'chain': ' <- '.join(
                    [self._backend.node, *(volume_utils.extract_host(
                        each.backend, 'host') for each in sources)])})

    def _refuse_by_devices(self, volume: objects.Volume, peer: Peer) -> None:
        local = LocalVolume(Names(volume.name_id))
        if local.is_sick():
            raise refused(volume, peer, _(
                'the metadata of its clone has failed on %s; repair the '
                'metadata device and restart that node')
                % self._backend.node)
        if local.is_open() and not attachments.elsewhere(
                volume, peer.node):
            raise refused(volume, peer, _(
                'device %s is still open on its home; ask the operator which '
                'process uses it') % local.names.path())

    def _ask_peer(self, context: cinder_context.RequestContext,
                  volume: objects.Volume, peer: Peer, deadline: Deadline
                  ) -> dict[str, Any]:
        """Return the peer's answer; refuse a peer that does not fit."""
        try:
            description = self._backend.client.describe(
                context, peer.backend_host, deadline.left(DESCRIBE_TIMEOUT))
        except exception.PeerError as error:
            raise refused(volume, peer, _(
                '%s; try again, or ask the operator whether cinder-volume '
                'runs there') % error.msg)
        self._refuse_unwanted(volume, peer,
                              description.get('capabilities', {}))
        # The remains of an earlier move there have the same names.
        self._requests.ask_again(context, volume.id, deadline,
                                 peer.backend_host)
        lacking = needs.of(self._backend, Names(volume.name_id),
                           description).lacking(description)
        if lacking is not None:
            raise exception.NoRoomOnPeer(volume=volume.id, host=peer.node,
                                         reason=lacking)
        return description

    def _refuse_unwanted(self, volume: objects.Volume, peer: Peer,
                         capabilities: dict[str, Any]) -> None:
        """Refuse a peer where the volume's type forbids its creation.

        Cinder's scheduler checks that before a creation, but not before an
        attachment.
        """
        reason = unwanted(extra_specs(volume), peer.availability_zone,
                          capabilities)
        if reason is not None:
            raise refused(volume, peer, reason)

    def refuse_while_moving(self, context: cinder_context.RequestContext,
                            volume: objects.Volume, action: str) -> None:
        """Refuse an operation on a volume whose move is not complete.

        :param action: a translated verb
        :raises: NotWhileMoving, PartlyDeleted, MovedAway, StillClone,
            NotOnNode, DataLost
        """
        other = self._other_end(context, volume, action)
        if other is not None:
            raise self._not_while_moving(volume, action, other)

    def refuse_while_prepared(self, context: cinder_context.RequestContext,
                              volume: objects.Volume, action: str) -> None:
        """Refuse an operation on a volume with a prepared move.

        The volume may be hydrating: all its data can be read and written
        through its handle.

        :param action: a translated verb
        :raises: NotWhileMoving, PartlyDeleted, MovedAway, StillClone,
            NotOnNode, DataLost
        """
        other = self._other_end(context, volume, action)
        if other is not None and lookups.prepared_move(volume):
            raise self._not_while_moving(volume, action, other)

    def refuse_unless_here(self, context: cinder_context.RequestContext,
                           volume: objects.Volume, action: str) -> None:
        """Refuse an operation that any volume allows whose data is here.

        :param action: a translated verb
        :raises: PartlyDeleted, MovedAway, StillClone, NotOnNode, DataLost
        """
        self._other_end(context, volume, action)

    def refuse_while_read(self, volume: objects.Volume, action: str) -> None:
        """Refuse what needs a volume without snapshots above its clone.

        :param action: a translated verb
        :raises: ClonesRead
        """
        lv = self._backend.logical_volume(Names(volume.name_id))
        if lv is not None and snapshot_devices.taken_of(lv):
            raise exception.ClonesRead(action=action, volume=volume.id)

    def _other_end(self, context: cinder_context.RequestContext,
                   volume: objects.Volume, action: str) -> Placeholder | None:
        """Return the placeholder of a move that is not complete, or None.

        LVM's tags outrank the database, which may have been restored.
        """
        other = lookups.placeholder(
            context, lookups.prepared_move(volume) or volume.name_id)
        lv = self._backend.logical_volume(Names(volume.name_id))
        if lv is None:
            raise exception.NotOnNode(
                action=action, volume=volume.id, lv=volume.name,
                host=self._backend.node)
        self.refuse_by_tags(volume, action, lv)
        if other is not None and is_complete(volume, other, lv):
            # The database was restored to a state before the completion.
            self._requests.release(context, other)
            return None
        if other is None or other.state == State.RELEASED:
            if lv.clone:
                raise exception.StillClone(
                    action=action, volume=volume.id,
                    lv=lv.full_name)
            # The volume no longer needs its source.
            return None
        if other.state == State.LOST:
            raise exception.DataLost(action=action, volume=volume.id,
                                     host=other.host)
        return other

    @staticmethod
    def _not_while_moving(volume: objects.Volume, action: str,
                          other: Placeholder) -> exception.NotWhileMoving:
        ends = [volume_utils.extract_host(row.host, 'host')
                for row in (other, volume)]
        if lookups.prepared_move(volume):
            ends.reverse()
        elif other.snapshot_id:
            ends[0] = _('snapshot %(snapshot)s on %(node)s') % {
                'snapshot': other.snapshot_id, 'node': ends[0]}
        return exception.NotWhileMoving(action=action, volume=volume.id,
                                        source=ends[0], destination=ends[1])

    def refuse_by_tags(self, volume: objects.Volume, action: str,
                       lv: LogicalVolume | None) -> None:
        """Refuse a logical volume that is partly deleted, or a source.

        :param lv: the volume's logical volume here, or None
        :raises: PartlyDeleted, MovedAway
        """
        if lv is not None and lv.deleted:
            raise exception.PartlyDeleted(volume=volume.id)
        self.refuse_if_moved_away(volume, action, lv)

    def refuse_if_moved_away(self, volume: objects.Volume, action: str,
                             lv: LogicalVolume | None) -> None:
        """Refuse an operation on a sealed source.

        :param lv: the volume's logical volume here, or None
        :raises: MovedAway
        """
        if lv is not None and lv.sealed:
            raise exception.MovedAway(
                action=action, volume=volume.id, host=self._backend.node,
                lv=lv.full_name)

    @staticmethod
    def refuse_placeholder(volume: objects.Volume, action: str) -> None:
        found = placeholders.record_of(volume)
        if found is not None:
            raise exception.IsPlaceholder(
                action=action, placeholder=volume.id, host=volume.host,
                volume=found.volume)

    def refuse_copy_in_vain(self, context: cinder_context.RequestContext,
                            volume: objects.Volume) -> None:
        """Refuse a migration in use between peers before data is copied.

        The instance's node would copy all data, but it attaches the new
        volume first, which moves that to the same node (swap_volume in
        nova/virt/libvirt/driver.py).

        :param volume: a new one, to which Cinder may copy another
        :raises: MigrationRefused
        """
        if not placeholders.is_copy(volume):
            return
        original = lookups.get(context, volume.migration_status.removeprefix(
            placeholders.COPY_STATUS))
        if (original is not None and original.volume_attachment and
                original.volume_type_id == volume.volume_type_id and
                peers.backend_name(lookups.backend_of(original)) ==
                peers.backend_name(self._backend.host)):
            messages.tell_user(
                original, message_field.Action.SCHEDULE_ALLOCATE_VOLUME,
                message_field.Detail.VOLUME_INVALID_STATE)
            raise exception.MigrationRefused(
                volume=original.id, host=volume.host,
                reason=_('an instance uses it, and its volumes are on its '
                         'own node; live-migrate the instance'))

    def refuse_if_gone(self, context: cinder_context.RequestContext,
                       volume: objects.Volume, action: str) -> None:
        """Read a volume's row again; refuse it if its data is not here.

        :param action: a translated verb
        :raises: NotHere, IsPlaceholder
        """
        # Cinder's copy of a placeholder's row stays as Cinder has written it.
        self.refuse_placeholder(volume, action)
        volume.refresh()
        self._backend.correct(context, volume)
        self.refuse_placeholder(volume, action)
        if not self._backend.holds(volume):
            raise exception.NotHere(action=action, volume=volume.id,
                                    host=volume.host)
