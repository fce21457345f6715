# SPDX-License-Identifier: Apache-2.0
"""Why a volume can't leave its node, and what an operator can do about it.

Only what the database and Nova show is judged here. The volume's home checks
all of it again, and its devices, when it is asked to move the volume.
"""

import collections.abc
import dataclasses

from dmclone_driver.drain.facts import Picture
from dmclone_driver.drain.facts import Server
from dmclone_driver.drain.facts import Snapshot
from dmclone_driver.drain.facts import Volume
from dmclone_driver.i18n import _
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders

#: The statuses of instances that Nova live-migrates.
LIVE = ('ACTIVE', 'PAUSED')

_WAIT = _('wait for that to end')


@dataclasses.dataclass(frozen=True)
class Obstacle:
    """Why something stays.

    :ivar remedy: what to do, or an empty text
    """

    reason: str
    remedy: str = ''

    def text(self) -> str:
        """Return both, for a line."""
        return '; '.join(filter(None, (self.reason, self.remedy)))


def of_volume_at_rest(volume: Volume) -> Obstacle | None:
    """Return why a volume without attachments stays, or None."""
    found = _of_volume(volume)
    if found is None and volume.status != 'available':
        found = Obstacle(
            _('its status is %s, and only available volumes are moved')
            % volume.status, _of_status(volume.status))
    return found or _of_export(volume)


def _of_status(status: str) -> str:
    """Return what to do about a volume that is not available."""
    if status.startswith('error'):
        return _('delete it, or find out why, and reset its status')
    return _('wait for that to end (if it was interrupted, reset the status)')


def _of_volume(volume: Volume) -> Obstacle | None:
    """Return why a volume stays, attached or not, or None."""
    status = volume.migration_status or ''
    if volume.really_on is not None:
        return Obstacle(
            _('its row was changed: its data is on %s') % volume.really_on,
            _('the driver corrects the row within about a minute; run this '
              'command again'))
    if volume.lost is not None:
        return Obstacle(
            _('part of its data was on %s, which is lost') % volume.lost,
            _('copy what can be read of it, and delete it'))
    if volume.group is not None:
        return Obstacle(
            _('it is in group %s, whose volumes stay together')
            % volume.group, _('remove it from the group'))
    if status.startswith(placeholders.COPY_STATUS):
        return Obstacle(_('Cinder copies another volume to it'), _WAIT)
    if status in lookups.MIGRATES:
        return Obstacle(
            _('Cinder migrates it'), _(
                'wait for that to end (if it was interrupted, reset its '
                'migration status)'))
    return None


def _of_export(volume: Volume) -> Obstacle | None:
    if not volume.exported or volume.moves_to:
        return None
    return Obstacle(_('it is in use over iSCSI, by an image, backup or '
                      'migration task'), _WAIT)


def of_snapshot(snapshot: Snapshot) -> Obstacle | None:
    """Return why a snapshot can't follow its volume, or None."""
    if snapshot.status == 'available':
        return None
    return Obstacle(
        _('its status is %s, and only available snapshots follow')
        % snapshot.status, _of_status(snapshot.status))


def only_server(volume: Volume) -> str | None:
    """Return the only instance that has a volume, None if there is no such."""
    servers = {each.server for each in volume.attachments}
    return servers.pop() if len(servers) == 1 else None


def of_users(volume: Volume) -> Obstacle:
    """Return why an attached volume stays that no single instance has."""
    servers = {each.server for each in volume.attachments}
    if servers == {None}:
        return Obstacle(_('it is attached, but not to an instance'),
                        _('detach it'))
    return Obstacle(
        _('it has attachments of several instances: %s') % ', '.join(
            sorted(each or _('none') for each in servers)),
        _('delete those that are not in use'))


def of_server(picture: Picture, server_id: str,
              volumes: collections.abc.Iterable[Volume]) -> Obstacle | None:
    """Return why an instance, and its volumes, stay; or None."""
    if picture.nova_trouble is not None:
        return Obstacle(picture.nova_trouble, _(
            'live-migrate instance %s') % server_id)
    server = picture.servers.get(server_id)
    if server is None:
        return Obstacle(
            _('its instance %s does not exist') % server_id,
            _('delete its attachment'))
    if server.task is not None:
        return Obstacle(_('the task of its instance is %s') % server.task,
                        _WAIT)
    if server.status not in LIVE:
        return Obstacle(
            _('its instance is %s, and Nova live-migrates only active and '
              'paused ones') % server.status, _to_revive(server))
    for volume in volumes:
        found = _of_attached(picture.node, server, volume)
        if found is not None:
            return Obstacle(_('volume %(id)s: %(reason)s') % {
                'id': volume.id, 'reason': found.reason}, found.remedy)
    return None


def _to_revive(server: Server) -> str:
    """Return what to do about an instance that is not active."""
    if server.status == 'SHUTOFF':
        return _('start it, or migrate it without "--live-migration"')
    if server.status.startswith('SHELVED'):
        return _('unshelve it: its volumes go where it goes')
    return _('wait until it is active, or make it so')


def _of_attached(node: str, server: Server,
                 volume: Volume) -> Obstacle | None:
    """Return why a volume prevents the migration of its instance."""
    found = _of_volume(volume)
    if found is not None:
        return found
    if volume.status != 'in-use':
        return Obstacle(_('its status is %s') % volume.status,
                        _of_status(volume.status))
    if any(each.host is None for each in volume.attachments):
        return Obstacle(
            _('it is being attached'), _(
                'wait for that to end (if it was interrupted, delete the '
                'attachment that has no host)'))
    here = [each for each in volume.attachments if each.node == node]
    if not here:
        return Obstacle(
            _('it is attached on %s, and used over iSCSI')
            % volume.attachments[0].host, _('detach it'))
    if server.host not in (each.host for each in here):
        return Obstacle(
            _('it is attached on %(host)s, and its instance is on '
              '%(other)s') % {'host': here[0].host, 'other': server.host},
            _('delete its attachment, if the instance does not use it'))
    if len(volume.attachments) > 1:
        return Obstacle(
            _('it has an attachment that an earlier migration has left'),
            _('delete that attachment: %s') % ', '.join(
                each.id for each in volume.attachments
                if each.host != server.host))
    return _of_export(volume)
