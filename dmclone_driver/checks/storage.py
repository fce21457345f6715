# SPDX-License-Identifier: Apache-2.0
"""Checks of the volume group, its space, and the place of metadata."""

import collections.abc

from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import configuration as cinder_configuration
from cinder.volume import volume_utils
from oslo_concurrency import processutils
from oslo_utils import importutils
from oslo_utils import units

from dmclone_driver.checks.host import Host
from dmclone_driver.checks import kernel
from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import reserve
from dmclone_driver.node.metadata import stores
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import thin_pools
from dmclone_driver.node import volume_groups

POOL, DUMP = 'thin pool', 'thin_dump'

# Room for the metadata of some clones, which is not in the pool.
_FOR_METADATA = 64 * units.Mi

# The part of a pool's metadata, in percent, from which an operator has to
# extend it. LVM extends it by itself if that is configured.
_FULL = 80


def check_group(configuration: cinder_configuration.Configuration,
                look: collections.abc.Callable[[], object]
                ) -> tuple[Result, volume_groups.VolumeGroup | None]:
    """Check that Cinder and the driver see the volume group.

    :param look: function that raises if Cinder does not see it
    :returns: the result, and the group if there is one
    """
    name, section = configuration.volume_group, configuration.config_group

    def failed(text: str, remedy: str) -> tuple[Result, None]:
        return result.failed(
            'volume group', text, remedy, section,
            Setting('volume_group', name, section)), None

    try:
        look()
        found = volume_groups.find(name)
    except (cinder_exception.VolumeBackendAPIException,
            cinder_exception.VolumeGroupNotFound, StopIteration,
            processutils.ProcessExecutionError) as error:
        return failed(
            _('this host has no such volume group, or LVM does not answer '
              '(%s)') % exception.text_of(error),
            _('create it with vgcreate, or correct the option'))
    if found is None:
        return failed(
            _('Cinder sees this volume group, but the helper of '
              '[dmclone_privileged] does not'),
            _('its helper_command has to run where the disks are, with the '
              'same LVM configuration'))
    return result.ok('volume group', name, section), found


def check_space(configuration: cinder_configuration.Configuration,
                group: volume_groups.VolumeGroup) -> Result:
    """Check that another volume fits, as Cinder's scheduler counts.

    In a thin pool one that is written as a whole has to fit.
    """
    reserved = configuration.reserved_percentage
    pool = _pool_of(configuration, group)
    size, free, what = (group.size, group.free, _('volume group %s')
                        % group.name)
    if pool is not None:
        size, free, what = (
            pool.size, Bytes(max(0, pool.free - pool.awaited)),
            _('thin pool %s') % pool.full_name)
        reserved = reserve.percentage(reserved)
    left = free - size * reserved // 100
    text = _('%(free).2f of %(size).2f GiB are free, of which '
             '%(reserved).2f GiB are reserved') % {
                 'free': free / units.Gi, 'size': size / units.Gi,
                 'reserved': size * reserved / 100 / units.Gi}
    if left < units.Gi:
        return result.failed(
            'free space', text,
            _('extend %s, delete or migrate volumes, or lower '
              'reserved_percentage') % what, configuration.config_group)
    return result.ok('free space', text, configuration.config_group)


def _are_thin(configuration: cinder_configuration.Configuration,
              group: volume_groups.VolumeGroup) -> bool:
    """Return whether new volumes are thin, without a change of the node."""
    if configuration.lvm_type == 'auto':
        return bool(volume_utils.supports_thin_provisioning() and
                    thin_pools.are_chosen(group.name))
    return bool(configuration.lvm_type == 'thin')


def _pool_of(configuration: cinder_configuration.Configuration,
             group: volume_groups.VolumeGroup) -> thin_pools.ThinPool | None:
    return (thin_pools.find(group.name) if _are_thin(configuration, group)
            else None)


def check_pool(configuration: cinder_configuration.Configuration,
               group: volume_groups.VolumeGroup, host: Host) -> Result:
    """Check the pool of thin volumes, apart from its free space."""
    section = configuration.config_group
    # Volumes in a pool stay thin, whatever new ones are.
    pool = thin_pools.find(group.name)
    if pool is None and not _are_thin(configuration, group):
        return result.not_applicable(POOL, _('volumes are thick'), section)
    if not kernel.has(host, kernel.THIN):
        return result.failed(
            POOL, _('this kernel has no %s') % kernel.THIN,
            kernel.remedy(_('set lvm_type = default where there are no thin '
                            'volumes')), section)
    if pool is None:
        return result.ok(POOL, _('%(group)s/%(pool)s, which cinder-volume '
                                 'creates at its start') % {
                                     'group': group.name, 'pool':
                                     thin_pools.name_of(group.name)}, section)
    fault = _fault_in_kernel(pool) or _fault_of(configuration, group, pool)
    if fault:
        return result.failed(POOL, *fault, section)
    return result.ok(POOL, _('%(pool)s, whose metadata is %(used).0f %% full')
                     % {'pool': pool.full_name,
                        'used': pool.metadata_percent}, section)


def _fault_in_kernel(pool: thin_pools.ThinPool) -> tuple[str, str] | None:
    """Return why a pool cannot be written, and the way out, or None."""
    found = thin_pools.status(pool.group)
    if found is None:
        return (_('%s is not active: no volume in it can be used')
                % pool.full_name,
                _('run "lvchange -ay %s"; if that fails, see "A pool that '
                  'cannot be activated" in the documentation of thin volumes')
                % pool.full_name)
    if found.mode == 'out_of_data_space':
        return (_('%s is full: writes that need a block of it fail')
                % pool.full_name,
                _('extend it with "lvextend -L +10G %s", or delete volumes')
                % pool.full_name)
    if found.mode != 'rw' or found.needs_check:
        return (_('no volume in %(pool)s can be written: it is in mode '
                  '%(mode)s, since its metadata is full or has failed') % {
                      'pool': pool.full_name, 'mode': found.mode},
                _('see "Repair" in the documentation of thin volumes'))
    return None


def _fault_of(configuration: cinder_configuration.Configuration,
              group: volume_groups.VolumeGroup, pool: thin_pools.ThinPool
              ) -> tuple[str, str] | None:
    """Return what is wrong with a pool, and what to do about it, or None."""
    if not pool.zeroes:
        return (_('%s does not zero blocks before their first use, so that '
                  'a volume shows what others have had there')
                % pool.full_name,
                _('run "lvchange --zero y %s"') % pool.full_name)
    if pool.metadata_percent >= _FULL:
        return (_('the metadata of %(pool)s is %(used).0f %% full; without '
                  'room there no volume in the pool can be written') % {
                      'pool': pool.full_name, 'used': pool.metadata_percent},
                _('extend it with "lvextend --poolmetadatasize +1G %s"')
                % pool.full_name)
    if group.free < _FOR_METADATA and (
            configuration.dmclone_metadata_backend == 'lvm' and
            configuration.dmclone_metadata_volume_group in
            (None, group.name)):
        return (_('volume group %(group)s has %(free)d MiB outside of its '
                  'pool, where the metadata of clones is') % {
                      'group': group.name, 'free': group.free // units.Mi},
                _('extend the group, or set dmclone_metadata_volume_group'))
    return None


def check_dump(configuration: cinder_configuration.Configuration,
               group: volume_groups.VolumeGroup, host: Host) -> Result:
    """Check the program that reads what thin volumes have allocated."""
    section = configuration.config_group
    # Volumes in a pool stay thin, whatever new ones are.
    if not _are_thin(configuration, group) and (
            thin_pools.find(group.name) is None):
        return result.not_applicable(DUMP, _('volumes are thick'), section)
    try:
        return result.ok(DUMP, host.thin_dump(), section)
    except processutils.ProcessExecutionError as error:
        return result.failed(
            DUMP, _('it does not run (%s); moves and copies from and to this '
                    'node copy and allocate whole thin volumes')
            % exception.text_of(error),
            _('install thin-provisioning-tools, on RHEL and Fedora '
              'device-mapper-persistent-data'), section)


def check_metadata(configuration: cinder_configuration.Configuration
                   ) -> Result:
    """Check the place of metadata; memory for it is not allocated."""
    kind = configuration.dmclone_metadata_backend
    store = importutils.import_class(stores.STORES[kind])(
        configuration, utils.execute)
    try:
        store.verify()
    except exception.BadConfiguration as error:
        return result.refused('metadata', error, configuration.config_group)
    return result.ok('metadata', '%s%s' % (
        kind, '' if store.persistent else _(
            ', lost with its hydrating volumes when the node goes down')),
        configuration.config_group)
