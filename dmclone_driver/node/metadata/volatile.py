# SPDX-License-Identifier: Apache-2.0
"""Metadata in memory: fast, and gone with the node.

A RAM disk of a fixed size holds a volume group, so that its size is the limit
of what all clones together can take. It takes memory only for what has been
written, and LVM discards what it removes.
"""

import abc

from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import lvm
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import ram_disks

LOG = logging.getLogger(__name__)

# How much more memory than it needs has to be available before metadata is
# made: a host that is short of memory has better uses for it.
MARGIN = 2


class VolatileMetadata(lvm.LogicalVolumeMetadata):
    """A volume group in memory, for all clones of this node."""

    persistent = False
    # No write that covers a page of a file system waits for the source.
    smallest_region = 4

    def __init__(self, configuration, executor):
        super().__init__(configuration, executor)
        self.group_name = 'clone-metadata-' + self.kind

    @abc.abstractmethod
    def make_disk(self, size):
        """Make the RAM disk; returns its path.

        What a crash has left of an earlier one is removed.

        :param size: in bytes
        """

    @abc.abstractmethod
    def remove_disk(self):
        """Remove the RAM disk, which nobody uses, and what it took."""

    def check(self):
        """Make the RAM disk, if it is not there.

        :raises: BadConfiguration
        """
        if not self.configuration.dmclone_volatile_metadata:
            self.refuse('dmclone_metadata_backend', _(
                'it is lost when the node goes down, and with it every '
                'volume that is still hydrating there; set '
                'dmclone_volatile_metadata = True if that may be'))
        try:
            self._ensure_pool()
        except (processutils.ProcessExecutionError, OSError) as error:
            self.refuse('dmclone_metadata_backend', _(
                'the RAM disk could not be made: %s') % str(
                    getattr(error, 'stderr', None) or error).strip())
        super().check()

    def _ensure_pool(self):
        """Make the RAM disk and its group, unless they are as configured."""
        size = self.configuration.dmclone_metadata_memory * units.Mi
        group = volume_groups.find(self.group_name)
        if group is not None:
            if group.size + volume_groups.HEADER == size:
                return
            if group.volumes:
                LOG.warning(
                    'Clones use the %(size)d MiB of %(group)s: another limit '
                    'holds from the first start that finds none.',
                    {'group': group.name, 'size': group.size // units.Mi})
                return
            self._remove_pool()
        volume_groups.create(self.group_name, self.make_disk(size))

    def _remove_pool(self):
        volume_groups.remove(self.group_name)
        self.remove_disk()

    def give_back(self):
        """Remove the RAM disk, unless clones of an earlier choice use it."""
        group = volume_groups.find(self.group_name)
        if group is not None and not group.volumes:
            self._remove_pool()

    def _refuse_without_room(self, names, needed):
        """Refuse as any logical volume, and if memory is short.

        :param needed: bytes
        :raises: NoRoomForMetadata
        """
        super()._refuse_without_room(names, needed)
        available = ram_disks.available_memory()
        if available < MARGIN * needed:
            raise exception.NoRoomForMetadata(
                volume=names.name_id, needed=-(-needed // units.Mi),
                group=self.group_name, reason=_(
                    'the node has only %d MiB of memory left') % (
                        available // units.Mi))
