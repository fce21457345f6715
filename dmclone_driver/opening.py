# SPDX-License-Identifier: Apache-2.0
"""Opening a node's volume group and backend, as the options say."""

import collections.abc
import functools
from typing import Any

from cinder.volume import configuration as cinder_configuration
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import importutils

from dmclone_driver.checks import options
from dmclone_driver.checks import start
from dmclone_driver import exception
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import rpcapi
from dmclone_driver.node import initiator
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.metadata import stores
from dmclone_driver.node import thin_pools

LOG = logging.getLogger(__name__)


def open_group(configuration: cinder_configuration.Configuration,
               lvm_type: str, look: collections.abc.Callable[..., None],
               serves: bool) -> None:
    """Open the volume group as Cinder does, with thick or thin volumes.

    Cinder creates a thin pool in any group that has none, if volumes are thin,
    and with "auto". It fails if it cannot activate the pool, after minutes if
    the check of the pool is slow (cinder/brick/local_dev/lvm.py,
    LVM.__init__). A group may have thick volumes, too, and guests wait for
    them: so Cinder does not activate a pool that has just failed.

    :param configuration: its ``lvm_type`` becomes what the volumes are
    :param lvm_type: as configured
    :param look: function that opens the group again, as Cinder does; with the
        name of a thin pool it uses the group that is open, and that pool as
        it is
    :param serves: whether this is cinder-volume, which may create and activate
        the pool
    :raises: BadConfiguration
    """
    group = configuration.volume_group
    configuration.lvm_type = 'default'
    start.check_group(configuration, look)
    if not _are_thin(group, lvm_type, serves):
        return
    configuration.lvm_type = 'thin'
    if not (serves and _activate_pool(group)):
        look = functools.partial(look, thin_pools.name_of(group))
    start.check_group(configuration, look)
    if lvm_type == 'auto':
        LOG.info('Volumes are thin: group %s was empty, or had a thin pool '
                 'for them.', group)


def _activate_pool(group: str) -> bool:
    """Activate the thin pool of a group, or log why that fails.

    :returns: True also if there is none yet, which Cinder creates
    """
    pool = logical_volumes.find(thin_pools.name_of(group), group)
    if pool is None:
        return True
    try:
        logical_volumes.activate(pool, lvm.TIMEOUT_OF_POOL)
    except lvm.LVMError as error:
        LOG.error('Thin pool %(pool)s cannot be activated: %(error)s. No '
                  'volume in it can be used, and none is created in it; all '
                  'other volumes are used. See "A pool that cannot be '
                  'activated" in the documentation of thin volumes. What is '
                  'in the pool is tried again at least every five minutes.', {
                      'pool': pool.full_name,
                      'error': exception.text_of(error).rstrip('.')})
        return False
    return True


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
