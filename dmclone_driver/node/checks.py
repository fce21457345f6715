# SPDX-License-Identifier: Apache-2.0
"""Checks before a backend starts; each failure names the option."""

import collections.abc
import platform
import re
from typing import NoReturn

from cinder import exception as cinder_exception
from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import importutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import command

LOG = logging.getLogger(__name__)
CONF = cfg.CONF
CONF.import_opt('enabled_backends', 'cinder.common.config')
CONF.import_opt('volume_name_template', 'cinder.db.api')

#: The first Linux that tells a device that was set read-only from one with a
#: read-only table ("block: add a hard-readonly flag to struct gendisk"). In
#: older ones a sealed handle becomes writable when its table changes.
OLDEST_KERNEL = (5, 12)
NAME_TEMPLATE = 'volume-%s'
DM_TARGETS = {'clone': 'dm-clone', 'zero': 'dm-zero'}
ISCSI_TARGETS = {'tgtadm': 'dmclone_driver.node.targets.tgt.TgtSource',
                 'lioadm': 'dmclone_driver.node.targets.lio.LioSource'}


def check_options(configuration: cinder_configuration.Configuration) -> None:
    """Verify the options that do not depend on the node.

    :raises: BadConfiguration
    """
    def refuse(option: str, reason: str) -> NoReturn:
        raise exception.BadConfiguration(
            option=option, value=configuration.safe_get(option),
            section=configuration.config_group, reason=reason)

    if configuration.target_helper not in ISCSI_TARGETS:
        refuse('target_helper', _('this driver supports tgtadm and lioadm; '
                                  'set it to one of them'))
    if configuration.lvm_type == 'thin':
        refuse('lvm_type', _('this driver supports thick volumes only; set '
                             'it to default'))
    if configuration.lvm_mirrors:
        refuse('lvm_mirrors', _('this driver does not support mirrors of '
                                'LVM; set it to 0, and mirror the disks '
                                'below the volume group'))
    size = configuration.dmclone_region_size
    if size and not sizing.valid_region(size):
        refuse('dmclone_region_size',
               _('the size has to be a power of two from 4 to 1048576 KiB'))
    if CONF.volume_name_template != NAME_TEMPLATE:
        raise exception.BadConfiguration(
            option='volume_name_template', value=CONF.volume_name_template,
            section='DEFAULT', reason=_(
                'the driver finds logical volumes by their default names; '
                'set it to %s, the default') % NAME_TEMPLATE)


def check_alone(configuration: cinder_configuration.Configuration,
                driver: type) -> None:
    """Verify that no other backend of this cinder-volume uses this driver.

    :param driver: the driver's class
    :raises: BadConfiguration
    """
    enabled = CONF.enabled_backends or []
    for section in enabled:
        if section != configuration.config_group and _uses(section, driver):
            raise exception.BadConfiguration(
                option='enabled_backends', value=', '.join(enabled),
                section='DEFAULT', reason=_(
                    '[%(own)s] and [%(other)s] both use this driver, and '
                    'each would treat the copies that the other makes as '
                    'its own; enable only one of them') % {
                        'own': configuration.config_group, 'other': section})


def _uses(section: str, driver: type) -> bool:
    """Return whether a backend's driver is a class, or derived from it."""
    name = cinder_configuration.Configuration(
        [cfg.StrOpt('volume_driver')], config_group=section).volume_driver
    try:
        return issubclass(importutils.import_class(name), driver)
    except Exception as error:
        LOG.warning('Importing the driver of backend %(section)s failed; it '
                    'is treated as another driver: %(error)s',
                    {'section': section, 'error': error})
        return False


def check_kernel(configuration: cinder_configuration.Configuration) -> None:
    """Verify that the kernel is recent and has the device-mapper targets.

    :raises: BadConfiguration
    """
    release = platform.release()
    found = re.match(r'(\d+)\.(\d+)', release)
    if found and tuple(map(int, found.groups())) < OLDEST_KERNEL:
        raise exception.BadConfiguration(
            option='volume_driver', value=configuration.volume_driver,
            section=configuration.config_group,
            reason=_('this node runs Linux %(release)s, where a source '
                     'becomes writable when its table changes; boot Linux '
                     '%(oldest)s or later') % {
                         'release': release,
                         'oldest': '%d.%d' % OLDEST_KERNEL})
    for target, module in DM_TARGETS.items():
        try:
            if target in dmsetup.target_versions():
                continue
            command.modprobe(module)
        except (processutils.ProcessExecutionError, OSError) as error:
            raise exception.BadConfiguration(
                option='volume_driver', value=configuration.volume_driver,
                section=configuration.config_group,
                reason=_('this kernel has no %(module)s (%(error)s); boot '
                         'Linux 5.12 or later with DM_CLONE and '
                         'DM_ZERO') % {
                             'module': module,
                             'error': exception.text_of(error)})


def check_group(configuration: cinder_configuration.Configuration,
                check: collections.abc.Callable[[], object]) -> None:
    """Verify the volume group with Cinder's own check.

    :param check: function that raises if the group does not exist
    :raises: BadConfiguration
    """
    try:
        check()
        found = volume_groups.find(configuration.volume_group)
    except (cinder_exception.VolumeBackendAPIException, StopIteration,
            processutils.ProcessExecutionError) as error:
        raise exception.BadConfiguration(
            option='volume_group', value=configuration.volume_group,
            section=configuration.config_group,
            reason=_('this host has no such volume group, or LVM does not '
                     'answer (%s)') % exception.text_of(error))
    if found is None:
        raise exception.BadConfiguration(
            option='volume_group', value=configuration.volume_group,
            section=configuration.config_group,
            reason=_('Cinder sees this volume group, but the helper of '
                     '[dmclone_privileged] does not; its helper_command has '
                     'to run where the disks are, with the same LVM '
                     'configuration'))
