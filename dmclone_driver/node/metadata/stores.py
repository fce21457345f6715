# SPDX-License-Identifier: Apache-2.0
"""The metadata stores, and the choice of the configured one."""

import collections.abc
from typing import Any

from cinder.volume import configuration as cinder_configuration
from oslo_utils import importutils

from dmclone_driver.node.metadata import base

#: The class for each value of dmclone_metadata_backend.
STORES = {
    'lvm': 'dmclone_driver.node.metadata.lvm.LogicalVolumeMetadata',
    'device': 'dmclone_driver.node.metadata.device.DeviceMetadata',
    'brd': 'dmclone_driver.node.metadata.brd.BrdMetadata',
    'zram': 'dmclone_driver.node.metadata.zram.ZramMetadata',
    'tmpfs': 'dmclone_driver.node.metadata.tmpfs.TmpfsMetadata'}


def open_store(
        configuration: cinder_configuration.Configuration,
        executor: collections.abc.Callable[..., Any]) -> base.MetadataStore:
    """Return the store that a backend is configured with, ready for use.

    The other stores release their resources of the host if not in use.

    :raises: BadConfiguration
    """
    stores: dict[str, base.MetadataStore] = {
        kind: importutils.import_class(name)(configuration, executor)
        for kind, name in STORES.items()}
    chosen = stores.pop(configuration.dmclone_metadata_backend)
    for store in stores.values():
        store.give_back()
    chosen.check()
    return chosen
