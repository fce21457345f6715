# SPDX-License-Identifier: Apache-2.0
"""What moved and reverted volumes leave: snapshots and their origins."""

import collections.abc
import dataclasses

from cinder.volume import volume_utils
from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.quantities import Bytes


@dataclasses.dataclass(frozen=True)
class LeftBehind:
    """A logical volume that holds space for a volume that has another one.

    :ivar what: a translated noun
    :ivar volume: id of the volume
    :ivar space: what an active thin one has allocated, of which others may
        share a part; the size of another one
    """

    what: str
    volume: str
    lv: LogicalVolume
    space: Bytes

    def line(self) -> str:
        """Return the line that is printed for the operator."""
        return _('%(what)s of volume %(volume)s: %(size).2f GiB in %(lv)s') % {
            'what': self.what, 'volume': self.volume,
            'size': self.space / units.Gi, 'lv': self.lv.full_name}


def find(group: str, moved: str | None = None
         ) -> collections.abc.Iterator[LeftBehind]:
    """Find what is left behind on this node, by LVM alone.

    :param group: the volume group of the volumes
    :param moved: the name of the only logical volume to look at, from which
        its volume has just moved; by default all that are sealed or kept
    :raises: LVMError, ProcessExecutionError, OSError
    """
    found = logical_volumes.find_all(group)
    for origin in found:
        names = names_module.of_logical_volume(origin.name)
        snapshots = [lv for lv in found if lv.snapshot_of == origin.name]
        if names is None or not snapshots or not (
                origin.name == moved if moved else
                origin.sealed or origin.kept):
            continue
        volume = origin.tagged(logical_volumes.OPENED_TAG) or names.name_id
        yield LeftBehind(_('the origin of snapshots'), volume, origin,
                         _space(origin))
        for lv in snapshots:
            yield LeftBehind(_what(lv), volume, lv, _space(lv))


def _space(lv: LogicalVolume) -> Bytes:
    try:
        mapped = dmsetup.thin(lvm.device(lv.group, lv.name))
    except ValueError:
        # Its pool has failed.
        mapped = None
    return lv.size if mapped is None else Bytes(mapped * table.SECTOR)


def _what(lv: LogicalVolume) -> str:
    """Describe a snapshot."""
    if lv.hidden:
        return _('a snapshot that a clone reads')
    return _('snapshot %s') % volume_utils.extract_id_from_snapshot_name(
        lv.name.removeprefix('_'))
