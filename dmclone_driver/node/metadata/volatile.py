# SPDX-License-Identifier: Apache-2.0
"""Metadata in memory: fast, but lost when the node goes down.

A RAM disk of a fixed size holds a volume group. Its size limits the metadata
of all clones together. It uses memory only for written blocks, and LVM
discards the blocks of removed logical volumes.
"""

import abc
import collections.abc
from typing import Any

from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import lvm
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import KiB
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import ram_disks

LOG = logging.getLogger(__name__)

# Metadata is created only if this multiple of its size is available memory: a
# host that is short of memory needs it for other purposes.
MARGIN = 2


class VolatileMetadata(lvm.LogicalVolumeMetadata):
    """A volume group in memory, for all clones of this node."""

    persistent = False
    # A write of a whole page of a file system never waits for the source.
    smallest_region = KiB(4)

    def __init__(self, configuration: cinder_configuration.Configuration,
                 executor: collections.abc.Callable[..., Any]) -> None:
        super().__init__(configuration, executor)
        self.group_name = 'clone-metadata-' + self.kind

    @abc.abstractmethod
    def make_disk(self, size: Bytes) -> str:
        """Create the RAM disk and return its path.

        The remains of an earlier one after a crash are removed.
        """

    @abc.abstractmethod
    def remove_disk(self) -> None:
        """Remove the unused RAM disk and free its resources."""

    def verify(self) -> None:
        """Verify that the loss of such metadata is accepted.

        :raises: BadConfiguration
        """
        if not self.configuration.dmclone_volatile_metadata:
            self.refuse('dmclone_metadata_backend', _(
                'metadata in memory is lost when the node goes down, and '
                'with it every volume that is still hydrating there; to '
                'accept that, set dmclone_volatile_metadata = True'))

    def check(self) -> None:
        """Create the RAM disk if it does not exist.

        :raises: BadConfiguration
        """
        self.verify()
        try:
            self._ensure_pool()
        except (processutils.ProcessExecutionError, OSError) as error:
            self.refuse('dmclone_metadata_backend', _(
                'creating the RAM disk failed: %s') %
                exception.text_of(error))
        super().verify()

    def _ensure_pool(self) -> None:
        """Create the RAM disk and its group, or keep those configured."""
        size = Bytes(self.configuration.dmclone_metadata_memory * units.Mi)
        group = volume_groups.find(self.group_name)
        if group is not None:
            if group.size + volume_groups.HEADER == size:
                return
            if group.volumes:
                LOG.warning(
                    'Clones use the %(size)d MiB of %(group)s. The changed '
                    'dmclone_metadata_memory takes effect at the first start '
                    'without clones.',
                    {'group': group.name, 'size': group.size // units.Mi})
                return
            self._remove_pool()
        volume_groups.create(self.group_name, self.make_disk(size))

    def _remove_pool(self) -> None:
        volume_groups.remove(self.group_name)
        self.remove_disk()

    def give_back(self) -> None:
        """Remove the RAM disk, unless clones still use it."""
        group = volume_groups.find(self.group_name)
        if group is not None and not group.volumes:
            self._remove_pool()

    def _refuse_without_memory(self, names: Names, needed: Bytes) -> None:
        available = ram_disks.available_memory()
        if available < MARGIN * needed:
            raise exception.NoRoomForMetadata(
                names=names, needed=-(-needed // units.Mi),
                group=self.group_name, reason=_(
                    'the node has only %d MiB of memory left') % (
                        available // units.Mi))
