# SPDX-License-Identifier: Apache-2.0
"""The room on this node for copies of volumes, as Cinder's scheduler counts.

A pool has room for a volume if its volumes may get larger in sum, by the
options for over-subscription, and if it has the blocks that are copied: all of
the volume, or those that a thin source has allocated. The blocks that clones
here have not allocated yet are theirs.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses

from cinder import exception as cinder_exception
from oslo_config import cfg
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import reserve
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import thin_pools
from dmclone_driver.node import volume_groups
from dmclone_driver.releases import sched_utils

CONF = cfg.CONF


@dataclasses.dataclass(frozen=True)
class Free:
    """The room for copies of volumes, in GiB.

    :ivar gb: if all of a volume is copied
    :ivar virtual_gb: what the sizes of thin volumes may take; None if all of
        a volume has to be copied
    :ivar blocks_gb: what their data may take; None likewise
    """

    gb: float
    virtual_gb: float | None = None
    blocks_gb: float | None = None


def free(backend: Backend) -> Free:
    """Return the room for copies of volumes.

    :raises: VolumeGroupNotFound, LVMError
    """
    return _of_pool(backend) if backend.thin else Free(of_group(backend))


def of_group(backend: Backend) -> float:
    """Return the room for what is not in a thin pool, in GiB.

    :raises: VolumeGroupNotFound, LVMError
    """
    name = backend.group.vg_name
    # Not Cinder's function, which starts a process for rootwrap, too.
    group = volume_groups.find(name)
    if group is None:
        raise cinder_exception.VolumeGroupNotFound(vg_name=name)
    total, free = (size / units.Gi for size in (group.size, group.free))
    return max(0, sched_utils.calculate_virtual_free_capacity(
        total, free, provisioned_capacity=total - free,
        thin_provisioning_support=False, max_over_subscription_ratio=1,
        reserved_percentage=_reserved(backend), thin=False))


def refuse_overfull(backend: Backend, names: Names) -> None:
    """Refuse a clone in a thin pool that cannot take all copies under way.

    A thick clone has its blocks as soon as it has its logical volume. A thin
    one counts from its tag on: so of two that begin at once, each counts both.

    :param names: of the clone, which has its tag
    :raises: NoRoomInPool
    """
    refuse_filling(backend, names, Bytes(0))


def refuse_filling(backend: Backend, names: Names, size: Bytes,
                   all_of_it: bool = False) -> None:
    """Refuse to write more to a thin volume than its pool has for copies.

    :param names: of the volume
    :param size: what is written; that may share blocks with a snapshot now
    :param all_of_it: whether that is all that the volume's own copy takes
    :raises: NoRoomInPool, LVMError
    """
    pool, reserved = _pool(
        backend, names.volume if all_of_it else ''), _reserved(backend)
    left = _blocks(pool, reserved) - size / units.Gi
    if left < 0:
        raise exception.NoRoomInPool(names=names, pool=pool.full_name,
                                     needed=-left,
                                     reserved=reserve.percentage(reserved))


def _reserved(backend: Backend) -> int:
    return int(backend.configuration.reserved_percentage)


def _pool(backend: Backend, without: str = '') -> thin_pools.ThinPool:
    name = backend.group.vg_name
    pool = thin_pools.find(name, without)
    if pool is None:
        raise cinder_exception.VolumeGroupNotFound(
            vg_name='%s/%s' % (name, thin_pools.name_of(name)))
    return pool


def _blocks(pool: thin_pools.ThinPool, reserved: int) -> float:
    """Return what is left for copies, in GiB.

    What would have to stop before the reserve has no room, be it that of the
    pool's metadata.
    """
    kept = pool.size * reserve.percentage(reserved) / 100
    left = (pool.free - pool.awaited - kept) / units.Gi
    short = (100 - pool.metadata_percent <=
             reserve.percentage_of_metadata(reserved))
    return min(left, 0) if short else left


def _of_pool(backend: Backend) -> Free:
    pool, reserved = _pool(backend), _reserved(backend)
    total, free, provisioned = (size / units.Gi for size in (
        pool.size, pool.free, pool.provisioned))
    ratio = sched_utils.calculate_max_over_subscription_ratio(
        {'thin_provisioning_support': True, 'total_capacity_gb': total,
         'free_capacity_gb': free, 'provisioned_capacity_gb': provisioned,
         'max_over_subscription_ratio':
             backend.configuration.max_over_subscription_ratio},
        CONF.max_over_subscription_ratio)
    virtual = sched_utils.calculate_virtual_free_capacity(
        total, free, provisioned, thin_provisioning_support=True,
        max_over_subscription_ratio=ratio, reserved_percentage=reserved,
        thin=True)
    blocks = _blocks(pool, reserved)
    gb = max(0, min(virtual, blocks))
    # Otherwise nothing is marked, see marks.
    return Free(gb, max(0, virtual), max(0, blocks)) if pool.zeroes else (
        Free(gb))
