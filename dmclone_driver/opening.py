# SPDX-License-Identifier: Apache-2.0
"""Opening a node's volume group and backend, as the options say."""

import collections.abc
from typing import Any

from cinder.volume import configuration as cinder_configuration
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import importutils

from dmclone_driver.checks import options
from dmclone_driver.checks import start
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import rpcapi
from dmclone_driver.node import initiator
from dmclone_driver.node.metadata import stores
from dmclone_driver.node import thin_pools

LOG = logging.getLogger(__name__)


def open_group(configuration: cinder_configuration.Configuration,
               lvm_type: str, look: collections.abc.Callable[[], None],
               serves: bool) -> None:
    """Open the volume group as Cinder does, with thick or thin volumes.

    Cinder creates a thin pool in any group that has none, if volumes are thin,
    and with "auto" (cinder/brick/local_dev/lvm.py, LVM.__init__).

    :param configuration: its ``lvm_type`` becomes what the volumes are
    :param lvm_type: as configured
    :param look: function that opens the group again, as Cinder does
    :param serves: whether this is cinder-volume, which may create the pool
    :raises: BadConfiguration
    """
    group = configuration.volume_group
    configuration.lvm_type = lvm_type
    if lvm_type == 'auto' or not serves:
        configuration.lvm_type = 'default'
        start.check_group(configuration, look)
        if not _are_thin(group, lvm_type, serves):
            return
        configuration.lvm_type = 'thin'
    start.check_group(configuration, look)
    if lvm_type == 'auto':
        LOG.info('Volumes are thin: group %s was empty, or had a thin pool '
                 'for them.', group)


def _are_thin(group: str, lvm_type: str, serves: bool) -> bool:
    """Return whether volumes are thin in the group that is open."""
    if lvm_type == 'auto' and not (
            volume_utils.supports_thin_provisioning() and
            thin_pools.are_chosen(group)):
        return False
    return lvm_type != 'default' and (
        serves or thin_pools.find(group) is not None)


def open_backend(host: str,
                 configuration: cinder_configuration.Configuration,
                 group: Any,
                 execute: collections.abc.Callable[..., Any]) -> Backend:
    """Return the backend of a node, with an open volume group.

    :param host: ``node@backend``
    :param group: Cinder's object of the volume group
    :param execute: function of the driver that runs a program
    :raises: BadConfiguration
    """
    target = importutils.import_object(
        options.ISCSI_TARGETS[configuration.target_helper],
        configuration=configuration, executor=execute)
    return Backend(
        host, configuration, group,
        stores.open_store(configuration, execute), target,
        initiator.Initiator(configuration.num_volume_device_scan_tries,
                            configuration.dmclone_source_timeout),
        rpcapi.PeerClient())
