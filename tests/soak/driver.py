# SPDX-License-Identifier: Apache-2.0
"""The driver with small volumes, so that much happens in little time."""

from dmclone_driver import driver
from tests.soak import life


class SmallVolumes(driver.DMCloneVolumeDriver):
    """In nothing but size not the real one."""

    def _sizestr(self, size_in_g):
        return '%dm' % (life.MIB * int(size_in_g))
