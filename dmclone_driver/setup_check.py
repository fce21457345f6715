# SPDX-License-Identifier: Apache-2.0
"""What must be there before a backend can start, each with its option."""

from cinder import exception as cinder_exception
from oslo_concurrency import processutils

from dmclone_driver.devicemapper import dmsetup
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.metadata import sizing
from dmclone_driver.privsep import command

TARGETS = {'clone': 'dm-clone', 'zero': 'dm-zero'}
SOURCE_TARGETS = {'tgtadm': 'dmclone_driver.targets.tgt.TgtSource',
                  'lioadm': 'dmclone_driver.targets.lio.LioSource'}


def check_options(configuration):
    """Verify the options that need no look at the machine.

    :raises: BadConfiguration
    """
    def refuse(option, reason):
        raise exception.BadConfiguration(
            option=option, value=configuration.safe_get(option),
            section=configuration.config_group, reason=reason)

    if configuration.target_helper not in SOURCE_TARGETS:
        refuse('target_helper', _('sources are served by tgtadm or lioadm'))
    if configuration.lvm_type == 'thin':
        refuse('lvm_type', _('volumes are thick; set it to default'))
    size = configuration.dmclone_region_size
    if size and not sizing.valid_region(size):
        refuse('dmclone_region_size',
               _('regions are a power of two from 4 to 1048576 KiB'))


def check_kernel(configuration):
    """Verify that the kernel has the device-mapper targets.

    :raises: BadConfiguration
    """
    for target, module in TARGETS.items():
        try:
            if target in dmsetup.target_versions():
                continue
            command.modprobe(module)
        except (processutils.ProcessExecutionError, OSError) as error:
            raise exception.BadConfiguration(
                option='volume_driver', value=configuration.volume_driver,
                section=configuration.config_group,
                reason=_('this kernel has no %(module)s (%(error)s); it '
                         'needs Linux 5.11 or later with DM_CLONE and '
                         'DM_ZERO') % {
                             'module': module,
                             'error': getattr(error, 'stderr', error)})


def check_group(configuration, check):
    """Verify the volume group with Cinder's own check.

    :param check: function that raises if the group is not there
    :raises: BadConfiguration
    """
    try:
        check()
    except (cinder_exception.VolumeBackendAPIException, StopIteration,
            processutils.ProcessExecutionError) as error:
        raise exception.BadConfiguration(
            option='volume_group', value=configuration.volume_group,
            section=configuration.config_group,
            reason=_('there is no such volume group on this host, or LVM '
                     'does not answer (%s)') % (
                         getattr(error, 'stderr', None) or error))
