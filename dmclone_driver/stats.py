# SPDX-License-Identifier: Apache-2.0
"""What Cinder's scheduler is told of a backend: capacity and capabilities."""

from typing import Any

from oslo_utils import units

from dmclone_driver.move.backend import Backend
from dmclone_driver.node import thin_pools


def accept_inactive_pool(group: Any) -> None:
    """Have Cinder's object of a volume group see no room in an inactive pool.

    LVM prints no percentage for such a pool, and Cinder fails to parse that
    (_get_thin_pool_free_space in cinder/brick/local_dev/lvm.py). Each minute
    the statistics would fail, and what is due then would not be done.
    """
    of_cinder = type(group)._get_thin_pool_free_space

    def free(vg_name: str, thin_pool_name: str) -> float:
        try:
            return float(of_cinder(group, vg_name, thin_pool_name))
        except ValueError:
            return 0.0

    group._get_thin_pool_free_space = free


def complete(stats: dict[str, Any], backend: Backend, protocol: str,
             version: str) -> None:
    """Add what this driver knows to the figures of Cinder's LVM driver.

    :param stats: the figures, which are changed: capacities in GiB
    :param version: of the driver
    :raises: LVMError
    """
    options = backend.configuration
    stats.update(vendor_name='dmclone_driver', driver_version=version,
                 storage_protocol=protocol, shared_targets=False,
                 # Cinder would leave out zeros also where it overwrites a
                 # volume, as for a revert (VolumeManager._copy_volume_data,
                 # _revert_to_snapshot_generic), and its old data would stay.
                 sparse_copy_volume=False)
    # So that an old one does not stay if LVM fails.
    backend.pool = None
    if backend.thin:
        backend.pool = thin_pools.find(backend.group.vg_name)
    awaited = backend.pool.awaited / units.Gi if backend.pool else 0
    for pool in stats['pools']:
        # A thick copy takes its room at once.
        pool['free_capacity_gb'] = max(0, round(
            pool['free_capacity_gb'] - awaited, 2))
        pool.update(multiattach=False, online_extend_support=False,
                    thin_provisioning_support=backend.thin,
                    thick_provisioning_support=not backend.thin,
                    **backend.capabilities(),
                    # For Nova's scheduler (scheduler/answers.py).
                    dmclone_remote_attach=options.dmclone_remote_attach,
                    dmclone_remote_attach_without_room=(
                        options.dmclone_remote_attach_without_room),
                    location_info='DMCloneVolumeDriver:%s:%s' % (
                        backend.host, backend.group.vg_name))


def goodness(backend: Backend) -> str:
    """Return the node's free space in percent, less what is reserved.

    It is a number from 0 to 100 and no formula: with pyparsing 3.3.3 Cinder
    cannot evaluate names in it (cinder/scheduler/evaluator/evaluator.py).
    """
    free, total = backend.capacity()
    return str(max(0, round(
        100 * free / total - backend.configuration.reserved_percentage)))
