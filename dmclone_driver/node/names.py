# SPDX-License-Identifier: Apache-2.0
"""Names of the devices that belong to a volume.

All derive from the id of the logical volume (``volume.name_id``) and
the device's role, never from the user's volume id. So the names of a volume
that returns to a node do not collide with those of its old logical volume
there.
"""

import dataclasses
import re

UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_DEVICE = re.compile('dmclone-(?P<name_id>%s)(?:-(?P<role>clone|gate|source'
                     '|export|origin|snapshot))?' % UUID)

_VOLUME = re.compile('(?:volume|dmclone-metadata)-(?P<name_id>%s)' % UUID)

HANDLE, CLONE, GATE, SOURCE, EXPORT = (
    'handle', 'clone', 'gate', 'source', 'export')
#: The device that a handle shares with its snapshots, and a snapshot's own
#: device, which is named after the snapshot.
ORIGIN, SNAPSHOT = 'origin', 'snapshot'

#: The devices of a node that belong to no volume, see anchor.
ANCHOR, ZEROS = 'dmclone-anchor', 'dmclone-zeros'

# The volume of each logical volume, for log lines only: {name id: volume id}.
# The names of the kernel's devices have only the name id.
_volumes: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Names:
    """The device-mapper names of one logical volume's devices."""

    name_id: str

    def __str__(self) -> str:
        """Return a text for log lines, with the id that users see."""
        volume_id = _volumes.get(self.name_id)
        if volume_id == self.name_id:
            return 'volume ' + volume_id
        return 'volume %s (logical volume %s)' % (volume_id or 'unknown',
                                                  self.name_id)

    def of(self, role: str) -> str:
        """Return the device-mapper name for a role."""
        suffix = '' if role == HANDLE else '-' + role
        return 'dmclone-' + self.name_id + suffix

    def uuid(self, role: str) -> str:
        """Return the device-mapper UUID; udev and LVM match its prefix."""
        return 'DMCLONE-%s-%s' % (role, self.name_id)

    def path(self, role: str = HANDLE) -> str:
        """Return the device's path."""
        return '/dev/mapper/' + self.of(role)

    @property
    def volume(self) -> str:
        """The name of the volume's logical volume."""
        return 'volume-' + self.name_id

    @property
    def metadata(self) -> str:
        """The name of the metadata's logical volume."""
        return 'dmclone-metadata-' + self.name_id

    @property
    def target(self) -> str:
        """The last part of the iSCSI name of a source."""
        return 'dmclone-' + self.name_id


def belongs_to(name_id: str, volume_id: str) -> None:
    """Remember a logical volume's volume, for log lines."""
    _volumes[name_id] = volume_id


def volume_of(name_id: str) -> str | None:
    """Return the volume of a logical volume, as far as this process knows."""
    return _volumes.get(name_id)


def text(name_id: str) -> str:
    """Return a text for log lines about the id of a row or logical volume."""
    return str(Names(name_id)) if name_id in _volumes else name_id


def text_of_target(iqn: str) -> str:
    """Return a text for log lines about an iSCSI name, with its volume."""
    found = of_target(iqn)
    return '%s of %s' % (iqn, found) if found else iqn


def parse(device: str) -> tuple[Names, str] | None:
    """Return (Names, role) of a device-mapper name, or None if not ours."""
    match = _DEVICE.fullmatch(device)
    return match and (Names(match['name_id']), match['role'] or HANDLE)


def of_logical_volume(name: str) -> Names | None:
    """Return the Names that a logical volume belongs to, None for others."""
    match = _VOLUME.fullmatch(name)
    return match and Names(match['name_id'])


def of_snapshot(name: str) -> str:
    """Return the name of a snapshot's logical volume.

    Cinder's LVM driver adds a prefix, since LVM reserves names that begin
    with "snapshot" (_escape_snapshot in cinder/volume/drivers/lvm.py).

    :param name: the snapshot's name in Cinder
    """
    return '_' + name if name.startswith('snapshot') else name


def of_target(iqn: str) -> Names | None:
    """Return the Names that an iSCSI name belongs to, None for others."""
    found = parse(iqn.rpartition(':')[2])
    return found[0] if found and found[1] == HANDLE else None
