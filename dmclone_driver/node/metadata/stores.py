# SPDX-License-Identifier: Apache-2.0
"""Which places for metadata there are, and which of them is used."""

from oslo_utils import importutils

#: By the value of dmclone_metadata_backend.
STORES = {
    'lvm': 'dmclone_driver.node.metadata.lvm.LogicalVolumeMetadata',
    'device': 'dmclone_driver.node.metadata.device.DeviceMetadata',
    'brd': 'dmclone_driver.node.metadata.brd.BrdMetadata',
    'zram': 'dmclone_driver.node.metadata.zram.ZramMetadata',
    'tmpfs': 'dmclone_driver.node.metadata.tmpfs.TmpfsMetadata'}


def open_store(configuration, executor):
    """Return the store that a backend is configured with, ready for use.

    What an earlier choice has taken and nobody uses goes back.

    :raises: BadConfiguration
    """
    stores = {kind: importutils.import_class(name)(configuration, executor)
              for kind, name in STORES.items()}
    chosen = stores.pop(configuration.dmclone_metadata_backend)
    for store in stores.values():
        store.give_back()
    chosen.check()
    return chosen
