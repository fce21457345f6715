# SPDX-License-Identifier: Apache-2.0
"""Metadata on a dedicated disk, divided by LVM."""

import collections.abc
import uuid

from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import lvm
from dmclone_driver.node import volume_groups

# Returns the group on a disk.
_Find = collections.abc.Callable[[str], volume_groups.VolumeGroup | None]


class DeviceMetadata(lvm.LogicalVolumeMetadata):
    """A blank disk or partition, made a volume group at the first start."""

    kind = 'device'

    def verify(self) -> None:
        """Verify the disk; a blank one is accepted.

        :raises: BadConfiguration
        """
        self._look(volume_groups.of_device)

    def check(self) -> None:
        """Verify the disk, or create a volume group on it if it is blank.

        :raises: BadConfiguration
        """
        group = self._look(lambda path: volume_groups.of_device(path) or
                           self._make_group(path))
        # It has been created if there was none.
        assert group is not None
        self.group_name = group.name
        super().verify()

    def _look(self, find: _Find) -> volume_groups.VolumeGroup | None:
        """Return the group on the disk; refuse one that is not our own.

        :raises: BadConfiguration
        """
        path = self.configuration.dmclone_metadata_device
        if not path:
            self.refuse('dmclone_metadata_device', _(
                'the metadata backend "device" needs the path of a disk'))
        try:
            group = find(path)
        except processutils.ProcessExecutionError as error:
            self.refuse('dmclone_metadata_device', _(
                'LVM cannot use this disk; if no data on it is needed, '
                'blank it with wipefs: %s') % exception.text_of(error))
        if group is not None and not group.own:
            self.refuse('dmclone_metadata_device', _(
                'this disk belongs to volume group %s already; to share '
                'that group, set dmclone_metadata_backend = lvm and '
                'dmclone_metadata_volume_group') % group.name)
        return group

    @staticmethod
    def _make_group(path: str) -> volume_groups.VolumeGroup:
        # A unique name, because disks may be moved between nodes.
        name = 'clone-metadata-' + uuid.uuid4().hex[:8]
        volume_groups.create(name, path)
        group = volume_groups.find(name)
        # It has just been created by the same commands, on the same disks.
        assert group is not None
        return group
