# SPDX-License-Identifier: Apache-2.0
"""Volume groups, and those that the driver creates for metadata."""

import dataclasses

from oslo_utils import units

from dmclone_driver.node import lvm
from dmclone_driver.node.quantities import Bytes

#: On groups that the driver has created.
OWN_TAG = 'dmclone.metadata'

#: The part of a disk that LVM reserves for itself.
HEADER = Bytes(units.Mi)


@dataclasses.dataclass(frozen=True)
class VolumeGroup:
    """What LVM says about a volume group."""

    name: str
    size: Bytes
    free: Bytes
    volumes: int
    tags: frozenset[str] = frozenset()

    @property
    def own(self) -> bool:
        """Whether the driver has created it."""
        return OWN_TAG in self.tags


_COLUMNS = 'vg_name,vg_size,vg_free,lv_count,vg_tags'


def parse(row: dict[str, str]) -> VolumeGroup:
    """Return the volume group of a row of ``vgs``.

    :param row: e.g. ``{"vg_name": "cinder-volumes", "vg_size": "66060288",
        "vg_free": "62914560", "lv_count": "1", "vg_tags": ""}``
    """
    return VolumeGroup(name=row['vg_name'], size=Bytes(int(row['vg_size'])),
                       free=Bytes(int(row['vg_free'])),
                       volumes=int(row['lv_count']),
                       tags=lvm.words(row['vg_tags']))


def find(name: str) -> VolumeGroup | None:
    """Return a volume group, or None.

    :raises: LVMError
    """
    try:
        row, = lvm.report('vgs', name, '-o', _COLUMNS)
    except lvm.GroupNotFound:
        return None
    return parse(row)


def of_device(path: str) -> VolumeGroup | None:
    """Return the group that a device belongs to, or None.

    :raises: LVMError
    """
    try:
        row, = lvm.report('pvs', path, '-o', 'vg_name')
    except lvm.NotFound:
        return None
    # A physical volume without a group has an empty name there.
    return find(row['vg_name']) if row['vg_name'] else None


def create(name: str, path: str) -> None:
    """Create a group on a device; existing data is not overwritten.

    :raises: LVMError, also if LVM finds data on the device
    """
    lvm.run('vgcreate', '--addtag', OWN_TAG, '--physicalextentsize', '1m',
            '--dataalignment', '%db' % HEADER, name, path)


def remove(name: str) -> None:
    """Remove an empty group.

    :raises: LVMError
    """
    lvm.run('vgremove', name)
