# SPDX-License-Identifier: Apache-2.0
"""The checks at the start of a backend, and which of them refuse it.

A backend is refused if it would lose data or could never work. Its volumes
then have no handles after a reboot. So what only other programs do to volumes
is logged: their files may be outside of the service's container.
"""

import collections.abc

from cinder.volume import configuration as cinder_configuration
from oslo_log import log as logging

from dmclone_driver.checks import backends
from dmclone_driver.checks.host import Host
from dmclone_driver.checks import kernel
from dmclone_driver.checks import lvm_filter
from dmclone_driver.checks import options
from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks.result import Result
from dmclone_driver.checks import storage
from dmclone_driver.checks import timeouts
from dmclone_driver.checks import udev
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import command

LOG = logging.getLogger(__name__)


def _refuse(found: collections.abc.Iterable[Result]) -> None:
    """Refuse the start for the first failure that is a reason for that.

    :raises: BadConfiguration
    """
    for each in found:
        if each.refused:
            raise each.error()


def check_kernel(configuration: cinder_configuration.Configuration) -> None:
    """Verify that the kernel is recent and has the device-mapper targets.

    :raises: BadConfiguration
    """
    host = Host()
    _refuse([kernel.check_version(configuration, host)])
    _refuse([kernel.check_targets(configuration, host, command.modprobe)])


def check_options(configuration: cinder_configuration.Configuration,
                  driver: type) -> None:
    """Verify the options that do not depend on the node.

    :param driver: the driver's class
    :raises: BadConfiguration
    """
    _refuse(options.check(configuration))
    _refuse([options.check_template(), timeouts.check(configuration),
             backends.check_alone(configuration, driver)])


def check_group(configuration: cinder_configuration.Configuration,
                look: collections.abc.Callable[[], object]) -> None:
    """Verify the volume group with Cinder's own check.

    :param look: function that raises if the group does not exist
    :raises: BadConfiguration
    """
    _refuse([storage.check_group(configuration, look)[0]])


def log_faults(configuration: cinder_configuration.Configuration) -> None:
    """Log what might show or change the volumes of guests."""
    host = Host()
    try:
        group = volume_groups.find(configuration.volume_group)
        found = [udev.check(host), *lvm_filter.check(configuration, host),
                 *([storage.check_pool(configuration, group, host)]
                   if group else [])]
    except Exception as error:
        LOG.warning('Checking udev, the filter of LVM and the thin pool '
                    'failed, see dmclone-check: %s', error)
        return
    for each in found:
        if each.outcome == Outcome.FAILED:
            LOG.error('Check of %(check)s: %(reason)s.', {
                'check': each.check, 'reason': each.reason})
