# SPDX-License-Identifier: Apache-2.0
"""Clearing and deletion of logical volumes that hold users' data."""

from cinder.brick.local_dev import lvm
from cinder import exception
from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import timeutils
from oslo_utils import units

from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import snapshot_devices
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import clearing

LOG = logging.getLogger(__name__)

#: Seconds that a logical volume is cleared before it is another one's turn.
TURN = 2

#: Of ionice(1): only when nobody else uses the disk.
IDLE = '-c3'


def delete_volume(names: Names, group: lvm.LVM,
                  configuration: cinder_configuration.Configuration) -> None:
    """Clear a logical volume through its handle, then delete both.

    Can be repeated; succeeds if the logical volume is already gone. Clearing
    may take longer than writing the whole volume.

    :param group: Cinder's LVM object of the volume group
    :raises: VolumeIsBusy if it has snapshots, PoolTakesNoChanges
    """
    local = LocalVolume(names)
    lv = logical_volumes.find(names.volume, group.vg_name)
    if lv is None:
        return
    if _has_snapshots(lv, group):
        raise exception.VolumeIsBusy(volume_name=lv.name)
    thin_pools.refuse_unchangeable(lv)
    local.ensure_linear(lv)
    _clear(lv, names.path(), configuration)
    local.remove(HANDLE, ORIGIN)
    remove(lv, group)


def delete_read_only(names: Names, group: lvm.LVM,
                     configuration: cinder_configuration.Configuration
                     ) -> None:
    """Delete a logical volume whose handle refuses writes.

    The data is cleared through a new handle; see :func:`delete_volume`.
    """
    LocalVolume(names).remove(HANDLE)
    delete_volume(names, group, configuration)


def _has_snapshots(lv: logical_volumes.LogicalVolume,
                   group: lvm.LVM) -> bool:
    """Whether a logical volume has snapshots, of LVM or above its clone.

    LVM would delete its own with the logical volume, as Cinder calls it.
    """
    return (group.lv_has_snapshot(lv.name) or
            bool(snapshot_devices.taken_of(lv)))


def delete_snapshot(lv: logical_volumes.LogicalVolume, group: lvm.LVM,
                    configuration: cinder_configuration.Configuration) -> None:
    """Clear the blocks that a snapshot has saved, then delete it.

    It may be unfinished, or a whole copy. Can be repeated.

    :param lv: the snapshot's logical volume
    :param group: Cinder's LVM object of its volume group
    :raises: PoolTakesNoChanges
    """
    thin_pools.refuse_unchangeable(lv)
    logical_volumes.activate(lv)
    taken = lv.taken or lv.not_taken
    if not lv.deleted:
        # It loses content, or misses what is written from now on.
        logical_volumes.tag(lv, logical_volumes.DELETED_TAG)
    if lv.followed:
        names = names_module.of_logical_volume(lv.name)
        # It was created as the destination of a move is.
        assert names is not None
        delete_read_only(names, group, configuration)
        return
    if taken:
        snapshot_devices.remove(taken)
    _clear(lv, lv.path if taken else lv.saved_blocks, configuration)
    remove(lv, group)


def remove(lv: logical_volumes.LogicalVolume, group: lvm.LVM) -> None:
    """Delete a logical volume that has no device above it.

    :param group: Cinder's LVM object of its volume group
    :raises: PoolTakesNoChanges
    """
    thin_pools.refuse_unchangeable(lv)
    group.delete(lv.name)


def _clear(lv: logical_volumes.LogicalVolume, path: str,
           configuration: cinder_configuration.Configuration) -> None:
    """Zero a logical volume as the options of Cinder say, or its start.

    Nothing records how far that is: after an interruption all is repeated.

    A thin one is not cleared: that would allocate all of its blocks. The pool
    zeroes a block before it gives it to another volume (schedule_zero in
    drivers/md/dm-thin.c); Cinder does not clear thin volumes, too.
    """
    if configuration.volume_clear == 'none' or lv.thin:
        return
    limit = (configuration.volume_copy_bps_limit or
             cfg.CONF.volume_copy_bps_limit)
    end = Bytes(min(lv.size, configuration.volume_clear_size * units.Mi or
                    lv.size))
    LOG.info('Clearing logical volume %s.', lv.full_name)
    watch = timeutils.StopWatch().start()
    turns = lockutils.internal_fair_lock('dmclone-clear')
    reached = Bytes(0)
    while reached < end:
        # Others that are cleared take turns: a small one does not wait for
        # the end of a large one.
        with turns.write_lock():
            reached = clearing.zero(
                path, reached, end, TURN,
                configuration.volume_clear_ionice or IDLE, limit)
    LOG.info('Cleared logical volume %(lv)s: %(size)d MiB in %(seconds).1f '
             'seconds.', {'lv': lv.full_name, 'size': end // units.Mi,
                          'seconds': watch.elapsed()})
