# SPDX-License-Identifier: Apache-2.0
"""Metadata on a logical volume of the same or another volume group."""

import collections.abc
from typing import Any

from cinder.brick.local_dev import lvm
from cinder import exception as cinder_exception
from cinder import utils
from cinder.volume import configuration as cinder_configuration
from oslo_concurrency import processutils
from oslo_log import log as logging
from oslo_utils import units

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm as lvm_commands
from dmclone_driver.node.metadata import base
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import block

LOG = logging.getLogger(__name__)

# dm-clone formats metadata whose superblock, the first 4 KiB, is all zeros.
SUPERBLOCK = Bytes(4096)


class LogicalVolumeMetadata(base.MetadataStore):
    """One logical volume per clone, tagged with the region size."""

    kind = 'lvm'

    def __init__(self, configuration: cinder_configuration.Configuration,
                 executor: collections.abc.Callable[..., Any]) -> None:
        super().__init__(configuration)
        self.group_name = (configuration.dmclone_metadata_volume_group or
                           configuration.volume_group)
        self._executor = executor

    def verify(self) -> None:
        try:
            self._open_group()
        except (cinder_exception.VolumeGroupNotFound,
                processutils.ProcessExecutionError):
            self.refuse('dmclone_metadata_volume_group',
                        _('there is no volume group %s on this host')
                        % self.group_name)

    def _open_group(self) -> lvm.LVM:
        """Create Cinder's object of the group, as its LVM driver does.

        The last one created decides how Cinder runs all LVM commands.
        """
        path = self.configuration.lvm_conf_file
        return lvm.LVM(
            self.group_name, utils.get_root_helper(),
            executor=self._executor,
            lvm_conf=None if path.lower() == 'none' else path,
            suppress_fd_warn=self.configuration.lvm_suppress_fd_warnings)

    def create(self, names: Names, size: Bytes, region: Sectors,
               before: logical_volumes.LogicalVolume | None = None
               ) -> tuple[str, Sectors]:
        found = self.find(names) if before else None
        if found is None:
            found = self._create(names, size, region), region
        elif before and before.clone:
            # It is formatted, and never zeroed again.
            return found
        block.zero_start(found[0], SUPERBLOCK)
        return found

    def _create(self, names: Names, size: Bytes, region: Sectors) -> str:
        """Create a logical volume for metadata; return its path.

        The tag does not say that it is formatted: that of the clone's logical
        volume does, which is added afterwards.
        """
        needed = sizing.metadata_size(sizing.regions(size, region))
        self._refuse_without_memory(names, needed)
        try:
            logical_volumes.create(
                self.group_name, names.metadata,
                Bytes(-(-needed // units.Mi) * units.Mi),
                '%s%d' % (logical_volumes.REGION_TAG, region))
        except (lvm_commands.TimedOut, lvm_commands.Exists):
            raise
        except lvm_commands.LVMError:
            # Only then, since it is one more process.
            self._refuse_without_room(names, needed)
            raise
        return '/dev/%s/%s' % (self.group_name, names.metadata)

    def _refuse_without_memory(self, names: Names, needed: Bytes) -> None:
        """Refuse metadata for which the node has no memory.

        :raises: NoRoomForMetadata
        """

    def _refuse_without_room(self, names: Names, needed: Bytes) -> None:
        """Refuse metadata without room, in MiB: LVM would report extents.

        :raises: NoRoomForMetadata
        """
        group = volume_groups.find(self.group_name)
        if group is None or group.free < needed:
            raise exception.NoRoomForMetadata(
                names=names, needed=-(-needed // units.Mi),
                group=self.group_name,
                reason=_('%d MiB are left') % (
                    (group.free if group else 0) // units.Mi))

    def find(self, names: Names) -> tuple[str, Sectors] | None:
        # In any group, because the option may have been changed since.
        found = logical_volumes.find_anywhere(names.metadata)
        region = found.tagged(logical_volumes.REGION_TAG) if found else None
        if not (found and region):
            return None
        logical_volumes.activate(found)
        return found.path, Sectors(int(region))

    def remove(self, names: Names) -> None:
        found = logical_volumes.find_anywhere(names.metadata)
        if found:
            self._zero(names, found)
            logical_volumes.remove(found)

    def _zero(self, names: Names, lv: logical_volumes.LogicalVolume) -> None:
        """Zero what a new thick volume may get.

        Cinder takes a new volume for zeros: a backup that is restored to one
        leaves them out (_write_nonzero in cinder/backup/chunkeddriver.py).
        No clone is built with this metadata again: its tag is gone.
        """
        if lv.group != self.configuration.volume_group:
            return
        try:
            logical_volumes.activate(lv)
            block.zero_out(lv.path)
        except (OSError, processutils.ProcessExecutionError) as error:
            LOG.warning('The metadata of %(names)s could not be zeroed before '
                        'its removal: %(error)s', {
                            'names': names,
                            'error': exception.text_of(error)})
