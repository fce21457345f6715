# SPDX-License-Identifier: Apache-2.0
"""How large regions and metadata have to be.

Metadata that is too small is a fault that shows late: the clone can be made,
but the first commit that finds no room turns it read-only.
"""

from oslo_utils import units

from dmclone_driver.node.devicemapper import table

SMALLEST_REGION = 8
LARGEST_REGION = 2097152
# Keeps metadata of any volume below about 5 MiB and the kernel's memory for
# it in the same order.
MOST_REGIONS = 4 * units.Mi


def region(size, configured=0, smallest=64):
    """Choose the size of a clone's regions, in sectors.

    :param size: of the volume, in bytes
    :param configured: in KiB, or 0 for the smallest that keeps the number
        of regions within bounds
    :param smallest: in KiB, unless it is configured
    """
    if configured:
        return configured * units.Ki // table.SECTOR
    sectors = smallest * units.Ki // table.SECTOR
    while regions(size, sectors) > MOST_REGIONS:
        sectors *= 2
    return min(sectors, LARGEST_REGION)


def valid_region(configured):
    """Whether a configured region size, in KiB, is one that dm-clone takes."""
    sectors = configured * units.Ki // table.SECTOR
    return (SMALLEST_REGION <= sectors <= LARGEST_REGION and
            sectors & (sectors - 1) == 0)


def regions(size, region_sectors):
    """Return how many regions a volume of this size, in bytes, has."""
    return -(-size // (region_sectors * table.SECTOR))


def metadata_size(count):
    """Return the bytes that metadata for that many regions needs.

    Metadata is copied on write: when every region changes in one
    transaction the old and the new bitmap exist side by side. Measured on
    Linux 6.1 and 7.2 with 4 KiB regions: 100 GiB use 3400 KiB after
    formatting and 6528 KiB at worst, 1 TiB 33 MiB and 66.5 MiB. This is a
    quarter byte a region (twice the first), 5 % and 2 MiB more.
    """
    return count // 4 + count // 80 + 2 * units.Mi
