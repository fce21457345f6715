# SPDX-License-Identifier: Apache-2.0
"""Volume groups, and those that the driver creates for metadata."""

import dataclasses
import json

from oslo_concurrency import processutils
from oslo_utils import units

from dmclone_driver.privsep import command

#: On groups that the driver has created.
OWN_TAG = 'dmclone.metadata'

#: The part of a disk that LVM reserves for itself, in bytes.
HEADER = units.Mi

# LVM's exit code for a valid command that failed (lib/commands/errors.h,
# ECMD_FAILED).
FAILED = 5


@dataclasses.dataclass(frozen=True)
class VolumeGroup:
    """What LVM says about a volume group; sizes are in bytes."""

    name: str
    size: int
    free: int
    volumes: int
    tags: frozenset = frozenset()

    @property
    def own(self):
        """Whether the driver has created it."""
        return OWN_TAG in self.tags


def parse(report):
    """Parse ``vgs --reportformat json`` with the columns of find_all."""
    rows = json.loads(report)['report'][0]['vg']
    return [VolumeGroup(name=row['vg_name'], size=int(row['vg_size']),
                        free=int(row['vg_free']), volumes=int(
                            row['lv_count']),
                        tags=frozenset(filter(None,
                                              row['vg_tags'].split(','))))
            for row in rows]


def find_all():
    """Return all volume groups of this host."""
    return parse(command.lvm([
        'vgs', '--reportformat', 'json', '--units', 'b', '--nosuffix', '-o',
        'vg_name,vg_size,vg_free,lv_count,vg_tags']))


def find(name):
    """Return a volume group, or None."""
    return next((group for group in find_all() if group.name == name), None)


def of_device(path):
    """Return the group that a device belongs to, or None."""
    try:
        report = command.lvm(['pvs', '--reportformat', 'json', '-o',
                              'vg_name', path])
    except processutils.ProcessExecutionError as error:
        if error.exit_code == FAILED:
            return None
        raise
    row, = json.loads(report)['report'][0]['pv']
    return find(row['vg_name'])


def create(name, path):
    """Create a group on a device; existing data is not overwritten.

    :raises: ProcessExecutionError, also if LVM finds data on the device
    """
    command.lvm(['vgcreate', '--addtag', OWN_TAG, '--physicalextentsize',
                 '1m', '--dataalignment', '%db' % HEADER, name, path])


def remove(name):
    """Remove an empty group."""
    command.lvm(['vgremove', name])
