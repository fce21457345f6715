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

from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _

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
