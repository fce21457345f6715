# SPDX-License-Identifier: Apache-2.0
"""Snapshots of groups, and groups from others: of all members, or of none.

Cinder itself continues after the failure of a member and does not log its
reason. It then declares a volume without data available
(_create_group_from_src_generic and create_group_from_src in
cinder/volume/manager.py). Here all members are checked first, and what was
made is removed again if one fails.

The members follow one another: no common moment of theirs is promised.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver import in_one_place
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.preflight import Preflight
from dmclone_driver.move import room
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

# A snapshot or a volume that is to be made.
_Row = Any
#: An answer to Cinder: updates of the row of the group, or of its snapshot,
#: and of the rows of its members.
Updates = tuple[dict[str, Any], list[dict[str, Any]]]


def refuse_common_moment(
        group: objects.Group | objects.GroupSnapshot) -> None:
    """Refuse a group whose type promises snapshots of one moment.

    Cinder's scheduler places no such group here, but a type can be changed.

    :raises: GroupRefused
    """
    if volume_utils.is_group_a_cg_snapshot_type(group):
        raise exception.GroupRefused(group=group.id, reason=_(
            'its type promises that all snapshots are of one moment '
            '(consistent_group_snapshot_enabled), and this backend takes them '
            'one after the other'))


def make_all(group: objects.Group | objects.GroupSnapshot,
             rows: collections.abc.Sequence[_Row],
             check: collections.abc.Callable[[], None],
             make: collections.abc.Callable[[_Row], dict[str, Any]],
             remove: collections.abc.Callable[[_Row], None]) -> Updates:
    """Check all members of a group, then make each; return the updates.

    :param group: for the message
    :param rows: the snapshots or volumes to make
    :param check: raises an exception if any of them cannot be made
    :param make: returns the update of a member's row
    :param remove: removes a member, or what is there of it
    :raises: GroupRefused, since Cinder leaves the rows as they are after an
        error that is not its own
    """
    begun, updates = [], []
    try:
        check()
        for row in rows:
            begun.append(row)
            updates.append(dict(make(row), id=row.id, status='available'))
    except Exception as error:
        LOG.exception('Nothing is created for group or group snapshot %s.',
                      group.id)
        for row in begun:
            _remove(row, remove)
        raise exception.GroupRefused(
            group=group.id, reason=(getattr(error, 'msg', None) or
                                    str(error)).rstrip('.'))
    return {'status': 'available'}, updates


def _remove(row: _Row,
            remove: collections.abc.Callable[[_Row], None]) -> None:
    try:
        remove(row)
    except Exception:
        LOG.exception('Removing %s, a member of an incomplete group, failed; '
                      'its deletion removes it.', row.id)


class Groups:
    """Groups of one backend; each member is made as it is without a group."""

    def __init__(self, backend: Backend, preflight: Preflight,
                 snapshots: Snapshots) -> None:
        self._backend = backend
        self._preflight = preflight
        self._snapshots = snapshots

    def snapshot(self, group_snapshot: objects.GroupSnapshot,
                 snapshots: list[objects.Snapshot],
                 make: collections.abc.Callable[[_Row], dict[str, Any]]
                 ) -> Updates:
        """Create the snapshots of a group's members; remove all if one fails.

        :param make: creates a snapshot; returns the update of its row
        :raises: GroupRefused
        """
        refuse_common_moment(group_snapshot)
        return make_all(
            group_snapshot, snapshots,
            lambda: self.check_snapshots(snapshots), make,
            lambda snapshot: self._snapshots.delete_unread(snapshot.id))

    def from_snapshots(
            self, context: cinder_context.RequestContext,
            group: objects.Group, volumes: list[objects.Volume],
            snapshots: list[objects.Snapshot],
            make: collections.abc.Callable[[_Row, _Row], dict[str, Any]],
            remove: collections.abc.Callable[[_Row], None]) -> Updates:
        """Create a group's volumes from snapshots; remove all if one fails.

        :param snapshots: in the order of the volumes
        :param make: creates a volume from a snapshot; returns the update of
            its row
        :param remove: deletes a volume
        :raises: GroupRefused
        """
        sources = _sources(volumes, snapshots)
        return make_all(
            group, volumes,
            lambda: self._snapshots.refuse_missing(context, sources),
            lambda volume: make(volume, sources[volume.id]), remove)

    def from_volumes(
            self, group: objects.Group, volumes: list[objects.Volume],
            originals: list[objects.Volume],
            make: collections.abc.Callable[[_Row, _Row], dict[str, Any]],
            remove: collections.abc.Callable[[_Row], None]) -> Updates:
        """Create a group's volumes as clones; remove all if one fails.

        :param originals: in the order of the volumes
        :param make: creates a clone of a volume; returns the update of its
            row
        :param remove: deletes a volume
        :raises: GroupRefused
        """
        sources = _sources(volumes, originals)
        refuse_common_moment(group)
        return make_all(
            group, volumes, lambda: self._check_members(sources.values()),
            lambda volume: make(volume, sources[volume.id]), remove)

    def check_snapshots(self, snapshots: list[objects.Snapshot]) -> None:
        """Refuse snapshots of which any could not be created.

        Cinder's scheduler checks the space for single snapshots only.

        :raises: NoRoomForSnapshots, and others of single snapshots
        """
        self._check_members(each.volume for each in snapshots)
        # A thin snapshot shares all blocks; others are not in the pool.
        needed = sum(each.volume_size for each in snapshots
                     if not self._is_thin(each.volume))
        free = room.of_group(self._backend)
        if free < needed:
            raise exception.NoRoomForSnapshots(needed=needed, free=free)

    def _is_thin(self, volume: objects.Volume) -> bool:
        lv = self._backend.logical_volume(Names(volume.name_id))
        return lv is not None and lv.thin

    def _check_members(
            self, volumes: collections.abc.Iterable[objects.Volume]) -> None:
        for volume in volumes:
            try:
                self._check_member(volume)
            except exception.NotHere:
                raise exception.MemberElsewhere(volume=volume.id,
                                                host=volume.host)

    @in_one_place.required(_('snapshot'), prepared=True)
    def _check_member(self, volume: objects.Volume) -> None:
        """Refuse a volume of a group that cannot be snapshotted now."""
        LocalVolume(Names(volume.name_id)).refuse_closed_gate()


def _sources(volumes: list[objects.Volume],
             sources: list[_Row]) -> dict[str, _Row]:
    """Return {id of the volume to create: what it is created from}."""
    return {volume.id: source for volume, source in zip(
        volumes, sources, strict=True)}
