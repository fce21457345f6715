# SPDX-License-Identifier: Apache-2.0
"""Metadata on the kernel's RAM disk."""

import time

from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.node.metadata import volatile
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node import volume_groups
from dmclone_driver.privsep import command
from dmclone_driver.privsep import ram_disks

# How often to try to unload the module, a second apart.
ATTEMPTS = 5


class BrdMetadata(volatile.VolatileMetadata):
    """A RAM disk of the module brd, which is loaded only for metadata."""

    kind = 'brd'

    def make_disk(self, size: Bytes) -> str:
        """Load brd, whose size is a parameter of the module."""
        if ram_disks.is_loaded('brd'):
            if not (ram_disks.brd_holds_nothing() and
                    volume_groups.of_device(ram_disks.BRD) is None):
                self.refuse('dmclone_metadata_backend', _(
                    'the module brd is loaded already, and its disks may be '
                    'in use; unload it, or set this option to zram or tmpfs'))
            self.remove_disk()
        command.modprobe('brd', 'rd_nr=1', 'rd_size=%d' % (size // units.Ki))
        return ram_disks.BRD

    def remove_disk(self) -> None:
        """Unload brd; the kernel refuses while any of its disks is in use.

        udev may use them for a moment.
        """
        for attempt in range(ATTEMPTS):
            try:
                command.modprobe('--remove', 'brd')
                return
            except processutils.ProcessExecutionError:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(1)
