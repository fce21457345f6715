# SPDX-License-Identifier: Apache-2.0
"""Thin pools: how full they are, and what copies under way will take."""

import collections.abc
import dataclasses

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper.status import PoolStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.quantities import Bytes


def name_of(group: str) -> str:
    """Return the name of the pool in which Cinder makes thin volumes.

    See LVM.__init__ in cinder/brick/local_dev/lvm.py.
    """
    return group + '-pool'


def device_of(group: str, pool: str = '') -> str:
    """Return the name in device-mapper of a pool's target.

    See lv_layer in lib/metadata/lv.c of LVM.

    :param pool: name of its logical volume, otherwise that of :func:`name_of`
    """
    return lvm.device(group, pool or name_of(group), 'tpool')


def is_live(group: str, pool: str) -> bool:
    """Whether the kernel has a thin pool.

    LVM's "active" is about another device, which a pool has if nothing in it
    is active (lv_info_with_seg_status in lib/activate/activate.c of LVM).

    :param pool: name of its logical volume
    """
    return device_of(group, pool) in sysfs.devices()


@dataclasses.dataclass(frozen=True)
class ThinPool:
    """What LVM says about a thin pool, and about the volumes in it.

    :ivar used: what the pool has allocated; all of it if it is not active,
        since LVM does not know then
    :ivar provisioned: the sizes of all other logical volumes of the group,
        as Cinder adds them up (update_volume_group_info in
        cinder/brick/local_dev/lvm.py)
    :ivar awaited: what the clones in it have not allocated yet, and their
        copies will
    :ivar metadata_percent: how full the pool's metadata is
    :ivar zeroes: whether each block is zeroed before its first use
    """

    group: str
    name: str
    size: Bytes
    used: Bytes
    provisioned: Bytes
    awaited: Bytes
    metadata_percent: float
    zeroes: bool

    @property
    def full_name(self) -> str:
        """The name by which LVM's commands find exactly this one."""
        return '%s/%s' % (self.group, self.name)

    @property
    def free(self) -> Bytes:
        """What is not allocated."""
        return Bytes(self.size - self.used)


_COLUMNS = ('lv_name,lv_size,lv_layout,pool_lv,lv_tags,data_percent,'
            'metadata_percent,zero')


def find(group: str, without: str = '') -> ThinPool | None:
    """Return the pool in which Cinder makes thin volumes, or None.

    LVM asks the kernel how full they are without a flush (lv_thin_pool_status
    in lib/report/properties.c of LVM).

    :param without: a logical volume whose own copy is not awaited
    :raises: LVMError
    """
    name = name_of(group)
    # The last column is one of segments, so that logical volumes with several
    # have as many rows (lib/report/columns.h of LVM).
    rows = list({row['lv_name']: row for row in lvm.report(
        'lvs', group, '-o', _COLUMNS)}.values())
    pool = next((row for row in rows if row['lv_name'] == name and
                 'pool' in lvm.words(row['lv_layout'])), None)
    if pool is None:
        return None
    return ThinPool(
        group=group, name=name, size=Bytes(int(pool['lv_size'])),
        used=_allocated(pool),
        provisioned=Bytes(sum(int(row['lv_size']) for row in rows
                              if row is not pool)),
        awaited=Bytes(sum(map(_awaited, (
            row for row in rows if row['pool_lv'] == name and
            row['lv_name'] != without)))),
        metadata_percent=float(pool['metadata_percent'] or 0),
        zeroes=bool(pool['zero']))


def _allocated(row: dict[str, str], unknown: float = 100) -> Bytes:
    """Return what a pool or a thin volume has allocated.

    :param unknown: the percentage of one that is not active
    """
    percent = row['data_percent']
    return Bytes(round(int(row['lv_size']) *
                       (float(percent) if percent else unknown) / 100))


def _awaited(row: dict[str, str]) -> int:
    """Return what a thin volume, if it is a clone, will allocate.

    What is beyond the clone is not copied. How much of it is allocated is not
    known, so that all may be. Neither is what is marked as present, and until
    that is decided what the source had not allocated.
    """
    tags = lvm.words(row['lv_tags'])
    if not any(tag.startswith(logical_volumes.METADATA_TAG) for tag in tags):
        return 0
    size = int(row['lv_size'])
    there = _allocated(row, 0)
    left = min(_tagged(tags, logical_volumes.CLONED_TAG, size), size - there)
    marked = _tagged(tags, logical_volumes.MARKED_TAG, -1)
    if marked < 0:
        return max(0, min(left, _tagged(
            tags, logical_volumes.ALLOCATED_TAG, size) - there))
    return max(0, left - marked)


def _tagged(tags: collections.abc.Iterable[str], prefix: str,
            otherwise: int) -> int:
    """Return the number in the tag with a prefix.

    A preparation that was repeated may have left two.
    """
    return max((int(tag.removeprefix(prefix)) for tag in tags
                if tag.startswith(prefix)), default=otherwise)


def allocated(group: str, name: str) -> Bytes | None:
    """Return what a logical volume has allocated, None if all counts.

    That of one that is not thin, of one with an external origin (lvmthin(7)),
    which lies on that, too, and of one whose map cannot be read, since its
    pool is read-only. Snapshots may share what is allocated. No process is
    run, but the kernel asked.

    :raises: ValueError if it has failed, ProcessExecutionError, OSError
    """
    device = lvm.device(group, name)
    found = dmsetup.thin(device)
    pool, _thin = dmsetup.pool(device_of(group))
    if found is None or pool is None or not pool.takes_messages:
        return None
    alone = len(sysfs.disks_below(device)) == 1
    return Bytes(found * table.SECTOR) if alone else None


def refuse_unchangeable(lv: logical_volumes.LogicalVolume) -> None:
    """Refuse to delete a logical volume that its thin pool would keep.

    LVM commits that it is gone before it tells the pool (lv_remove_single in
    lib/metadata/lv_manip.c of LVM). Recent versions do not repair a pool that
    has missed that. No process is run: an activation may check a damaged pool
    for minutes.

    :param lv: it may be thick
    :raises: PoolTakesNoChanges
    """
    if not lv.thin:
        return
    pool, _thin = dmsetup.pool(device_of(lv.group, lv.pool))
    if pool is None:
        raise _takes_no_changes(lv, _('not active'))
    if pool.needs_check or not pool.takes_messages:
        raise _takes_no_changes(lv, _('mode %(mode)s%(check)s') % {
            'mode': pool.mode,
            'check': ', needs_check' if pool.needs_check else ''})


def _takes_no_changes(lv: logical_volumes.LogicalVolume,
                      reason: str) -> exception.PoolTakesNoChanges:
    return exception.PoolTakesNoChanges(
        lv=lv.full_name, pool='%s/%s' % (lv.group, lv.pool), reason=reason)


def status(group: str) -> PoolStatus | None:
    """Return what the kernel says about a pool, None if it is not active.

    A pool that has never had a volume has the device of a logical volume
    (lv_is_new_thin_pool in lib/metadata/thin_manip.c of LVM).

    :raises: ValueError, ProcessExecutionError
    """
    found, _thin = dmsetup.pool(device_of(group))
    return found or dmsetup.pool(lvm.device(group, name_of(group)))[0]


def are_chosen(group: str) -> bool:
    """Return whether volumes are thin with ``lvm_type = auto``.

    As Cinder's documentation says: if the group is empty, or has a pool for
    them (check_for_setup_error in cinder/volume/drivers/lvm.py).

    :raises: LVMError
    """
    found = {lv.name for lv in logical_volumes.find_all(group)}
    return not found or name_of(group) in found
