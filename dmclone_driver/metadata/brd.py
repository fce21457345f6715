# SPDX-License-Identifier: Apache-2.0
"""Metadata on the kernel's RAM disk."""

from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.metadata import volatile
from dmclone_driver.privsep import command
from dmclone_driver.privsep import ram_disks


class BrdMetadata(volatile.VolatileMetadata):
    """The module brd, loaded for this and for nothing else."""

    kind = 'brd'

    def make_disk(self, size):
        """Load brd, whose size is a parameter of the module."""
        if ram_disks.is_loaded('brd'):
            self.refuse('dmclone_metadata_backend', _(
                'the module brd is in the kernel already, and its disks may '
                'be in use; unload it, or use zram or tmpfs'))
        command.modprobe('brd', 'rd_nr=1', 'rd_size=%d' % (size // units.Ki))
        return ram_disks.BRD

    def remove_disk(self):
        """Unload brd; refused while any of its disks is in use."""
        command.modprobe('--remove', 'brd')
