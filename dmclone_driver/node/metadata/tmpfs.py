# SPDX-License-Identifier: Apache-2.0
"""Metadata on a loop device over a file in memory."""

from dmclone_driver.node.metadata import volatile
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.privsep import ram_disks


class TmpfsMetadata(volatile.VolatileMetadata):
    """A dedicated tmpfs, parts of which the kernel may swap out."""

    kind = 'tmpfs'

    def make_disk(self, size: Bytes) -> str:
        """Mount the file system and attach a file in it."""
        self.remove_disk()
        return ram_disks.make_tmpfs(size)

    def remove_disk(self) -> None:
        """Detach the file and unmount the file system."""
        ram_disks.remove_tmpfs()
