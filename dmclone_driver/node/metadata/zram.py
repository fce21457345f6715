# SPDX-License-Identifier: Apache-2.0
"""Metadata in compressed memory."""

from oslo_concurrency import processutils
from oslo_utils import excutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.metadata import volatile
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.privsep import command
from dmclone_driver.privsep import ram_disks

# LVM refuses a physical volume on a zram disk, whose type it does not know
# (lib/device/device-types.h), but accepts one on a mapping. The recommended
# LVM filter accepts this name.
MAPPING = 'clone-metadata-zram'


class ZramMetadata(volatile.VolatileMetadata):
    """A dedicated zram disk, beside those that the host swaps to."""

    kind = 'zram'

    def make_disk(self, size: Bytes) -> str:
        """Create a zram disk below a mapping."""
        self.remove_disk()
        command.modprobe('zram', 'num_devices=0')
        disk = ram_disks.make_zram(size)
        try:
            dmsetup.create(MAPPING, MAPPING,
                           table.Linear(table.sectors(size), disk))
        except processutils.ProcessExecutionError:
            with excutils.save_and_reraise_exception():
                ram_disks.remove_zram(disk)
        return '/dev/mapper/' + MAPPING

    def remove_disk(self) -> None:
        """Remove the mapping, then the disk below it."""
        if dmsetup.device(MAPPING):
            disk, = sysfs.disks_below(MAPPING)
            dmsetup.remove(MAPPING)
            ram_disks.remove_zram('/dev/' + disk)
