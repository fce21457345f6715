# SPDX-License-Identifier: Apache-2.0
"""Names of the devices that belong to a volume.

All derive from the identity of the logical volume (``volume.name_id``) and
the device's role, never from the user's volume id: a volume that comes back
to a node while its old logical volume still exists there collides with
nothing.
"""

import dataclasses
import re

UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_DEVICE = re.compile('dmclone-(?P<name_id>%s)(?:-(?P<role>gate|source|export'
                     '))?' % UUID)

_VOLUME = re.compile('(?:volume|dmclone-metadata)-(?P<name_id>%s)' % UUID)

HANDLE, GATE, SOURCE, EXPORT = 'handle', 'gate', 'source', 'export'

# Which volume a logical volume belongs to, for log lines and nothing else:
# {name id: volume id}. The kernel's devices know only the former.
_volumes = {}


@dataclasses.dataclass(frozen=True)
class Names:
    """The device-mapper names of one logical volume's devices."""

    name_id: str

    def __str__(self):
        """For log lines: with the id that the volume's user knows."""
        volume_id = _volumes.get(self.name_id)
        if volume_id == self.name_id:
            return 'volume ' + volume_id
        return 'volume %s (logical volume %s)' % (volume_id or 'unknown',
                                                  self.name_id)

    def of(self, role):
        """Return the device-mapper name for a role."""
        suffix = '' if role == HANDLE else '-' + role
        return 'dmclone-' + self.name_id + suffix

    def uuid(self, role):
        """Return the device-mapper UUID: udev and LVM go by its prefix."""
        return 'DMCLONE-%s-%s' % (role, self.name_id)

    def path(self, role=HANDLE):
        """Return the device's path."""
        return '/dev/mapper/' + self.of(role)

    @property
    def metadata(self):
        """The metadata's logical volume."""
        return 'dmclone-metadata-' + self.name_id

    @property
    def target(self):
        """The last part of the iSCSI name under which a source is seen."""
        return 'dmclone-' + self.name_id


def belongs_to(name_id, volume_id):
    """Let log lines about a logical volume name its volume."""
    _volumes[name_id] = volume_id


def parse(device):
    """Return (Names, role) of a device-mapper name, or None if not ours."""
    match = _DEVICE.fullmatch(device)
    return match and (Names(match['name_id']), match['role'] or HANDLE)


def of_logical_volume(name):
    """Return the Names that a logical volume belongs to, None for others."""
    match = _VOLUME.fullmatch(name)
    return match and Names(match['name_id'])


def of_target(iqn):
    """Return the Names that an iSCSI name belongs to, None for others."""
    found = parse(iqn.rpartition(':')[2])
    return found[0] if found and found[1] == HANDLE else None
