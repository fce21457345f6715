# SPDX-License-Identifier: Apache-2.0
"""The driver with small volumes, so that moves take little time."""

from dmclone_driver import driver
from tests.soak import life


class SmallVolumes(driver.DMCloneVolumeDriver):
    """The driver, except for the size of volumes."""

    def _sizestr(self, size_in_g):
        return '%dm' % (life.MIB * int(size_in_g))
