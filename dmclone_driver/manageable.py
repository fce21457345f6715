# SPDX-License-Identifier: Apache-2.0
"""Which logical volumes of a node an administrator may manage.

Cinder's LVM driver recognises a volume by its id, and a snapshot by its
volume's host. The logical volume of a volume that has moved has another id,
and the snapshots of one that has moved away are still here.
"""

import collections.abc
import math
from typing import Any

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder.volume import volume_utils
from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import block

#: An entry of the lists, as of Cinder's LVM driver.
Entry = dict[str, Any]

#: How often the lists are read while logical volumes are being deleted.
TRIES = 5


def read(listing: collections.abc.Callable[..., list[Entry]],
         *args: Any) -> list[Entry]:
    """Read a list of Cinder's LVM driver, again if a logical volume goes.

    It asks LVM for each one in turn (lv_is_a_snapshot in
    cinder/brick/local_dev/lvm.py), and fails if one is deleted meanwhile.

    :raises: ProcessExecutionError if it fails again and again
    """
    for _again in range(TRIES - 1):
        try:
            return listing(*args)
        except processutils.ProcessExecutionError:
            continue
    return listing(*args)


def used(group: str) -> set[str]:
    """Return the names of the logical volumes that this driver uses.

    These have a handle, are part of a move, or are snapshots in the database,
    or the pool of thin volumes.
    """
    handles = {parsed[0].volume for parsed in map(
        names_module.parse, dmsetup.devices())
        if parsed and parsed[1] == HANDLE}
    found = logical_volumes.find_all(group)
    snapshots = {volume_utils.extract_id_from_snapshot_name(
        lv.name.removeprefix('_')): lv.name for lv in found
        if lv.origin or lv.thin}
    known = snapshot_rows.existing(cinder_context.get_admin_context(),
                                   filter(None, snapshots))
    return {lv.name for lv in found if lv.needed or lv.name in handles} | {
        snapshots[each] for each in known} | {thin_pools.name_of(group)}


def refuse_used(group: str, name: str,
                existing_ref: dict[str, str]) -> None:
    """Refuse to manage a logical volume that this driver uses.

    :param name: of the new volume or snapshot
    :param existing_ref: ``{'source-name': ...}``, an operator's text, which
        need not be a name that LVM can look for
    :raises: ManageExistingInvalidReference
    """
    found = existing_ref.get('source-name', '')
    if found in used(group):
        raise cinder_exception.ManageExistingInvalidReference(
            existing_ref=existing_ref,
            reason=_('%(new)s is not created, since this driver uses logical '
                     'volume %(name)s; dmclone-reconcile says for what') % {
                         'new': name, 'name': found})


def without_used(group: str, entries: list[Entry]) -> list[Entry]:
    """Mark the entries of logical volumes that this driver uses."""
    names = used(group)
    for entry in entries:
        if not entry['cinder_id'] and (
                entry['reference']['source-name'] in names):
            entry.update(safe_to_manage=False,
                         reason_not_safe=_('this driver uses it'))
    return entries


def with_sizes(group: str, entries: list[Entry]) -> list[Entry]:
    """Set the sizes of snapshots in a list to those of their content."""
    found = {lv.name: lv for lv in logical_volumes.find_all(group)}
    for entry in entries:
        size = _content_gb(found.get(entry['reference']['source-name']))
        entry['size'] = size or entry['size']
    return entries


def content_gb(group: str, name: str) -> int | None:
    """Return the size of a logical volume's content, in GiB.

    Cinder's LVM driver takes the size of what a snapshot can save.

    :returns: None if it is not active: its content cannot be seen
    """
    return _content_gb(logical_volumes.find(name, group))


def _content_gb(lv: logical_volumes.LogicalVolume | None) -> int | None:
    if lv is None or not lv.active:
        return None
    return math.ceil(block.size(lv.path) / units.Gi)
