# SPDX-License-Identifier: Apache-2.0
"""Checks of the volume group, its space, and the place of metadata."""

import collections.abc

from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import processutils
from oslo_utils import importutils
from oslo_utils import units

from dmclone_driver.checks import result
from dmclone_driver.checks.result import Result
from dmclone_driver.checks.result import Setting
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import stores
from dmclone_driver.node import volume_groups


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
    """Check that another volume fits, as Cinder's scheduler counts."""
    reserved = configuration.reserved_percentage
    left = group.free - group.size * reserved // 100
    text = _('%(free).2f of %(size).2f GiB are free, of which '
             '%(reserved).2f GiB are reserved') % {
                 'free': group.free / units.Gi, 'size': group.size / units.Gi,
                 'reserved': group.size * reserved / 100 / units.Gi}
    if left < units.Gi:
        return result.failed(
            'free space', text,
            _('extend volume group %s, delete or migrate volumes, or lower '
              'reserved_percentage') % group.name, configuration.config_group)
    return result.ok('free space', text, configuration.config_group)


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
