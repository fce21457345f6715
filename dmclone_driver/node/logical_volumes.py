# SPDX-License-Identifier: Apache-2.0
"""Logical volumes and the tags that this driver keeps on them.

Cinder's LVM classes create, delete and extend logical volumes; they do not
support tags.
"""

import dataclasses
import json

from dmclone_driver.privsep import command

#: On a formatted metadata device: the region size in sectors.
REGION_TAG = 'dmclone.region='
#: On a data volume that is a clone: where its metadata is.
METADATA_TAG = 'dmclone.metadata='
#: On a complete data volume, until the clone's other devices are removed.
COMPLETE_TAG = 'dmclone.complete'
#: On a data volume whose deletion has begun: no user may see it.
DELETED_TAG = 'dmclone.deleted'
#: On a destination that has been a volume's home at any time, with the
#: volume's id: it is never deleted as a destination.
OPENED_TAG = 'dmclone.opened='
#: On a source, with the id of its placeholder: it is never written again,
#: and kept until it is released.
SEALED_TAG = 'dmclone.sealed='


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """What LVM says about a logical volume; ``size`` is in bytes."""

    group: str
    name: str
    size: int
    active: bool
    tags: frozenset = frozenset()

    @property
    def path(self):
        """The device's path."""
        return '/dev/%s/%s' % (self.group, self.name)

    def tagged(self, prefix):
        """Return what follows the prefix in a tag, or None."""
        return next((tag[len(prefix):] for tag in self.tags
                     if tag.startswith(prefix)), None)

    @property
    def deleted(self):
        """Whether its deletion has begun: no user may see its data."""
        return self.tagged(DELETED_TAG) is not None

    @property
    def of_move(self):
        """Whether it is, or was, part of a move."""
        return any(tag.startswith('dmclone.') for tag in self.tags)

    @property
    def clone(self):
        """Whether part of its data may be elsewhere."""
        return self.tagged(METADATA_TAG) is not None

    @property
    def complete(self):
        """Whether a volume that has moved here has all its data here.

        The clone's other devices are removed, too.
        """
        return self.opened and not (
            self.clone or self.tagged(COMPLETE_TAG) is not None)

    @property
    def opened(self):
        """Whether a user may have written it since it was made for a move."""
        return self.tagged(OPENED_TAG) is not None

    @property
    def sealed(self):
        """Whether the volume's data has moved away from it."""
        return self.tagged(SEALED_TAG) is not None


def parse(report):
    """Parse ``lvs --reportformat json`` with the columns of find_all."""
    rows = json.loads(report)['report'][0]['lv']
    return [LogicalVolume(group=row['vg_name'], name=row['lv_name'],
                          size=int(row['lv_size']),
                          active=row['lv_active'] == 'active',
                          tags=frozenset(filter(None,
                                                row['lv_tags'].split(','))))
            for row in rows]


def find_all(*groups):
    """Return all logical volumes of the groups, or of all groups."""
    out = command.lvm(['lvs', '--reportformat', 'json', '--units', 'b',
                       '--nosuffix', '-o',
                       'vg_name,lv_name,lv_size,lv_active,lv_tags',
                       *sorted(set(groups))])
    return parse(out)


def find(name, *groups):
    """Return a logical volume of one of the groups, or of any; or None."""
    return next((lv for lv in find_all(*groups) if lv.name == name), None)


def tag(group, name, *tags):
    """Add tags to a logical volume."""
    options = [part for text in tags for part in ('--addtag', text)]
    command.lvm(['lvchange', *options, '%s/%s' % (group, name)])


def untag(group, name, *tags):
    """Remove tags from a logical volume."""
    options = [part for text in tags for part in ('--deltag', text)]
    command.lvm(['lvchange', *options, '%s/%s' % (group, name)])


def retag(lv, prefix, new):
    """Replace the tag with a prefix by another, in one command."""
    old = lv.tagged(prefix)
    options = [] if old is None else ['--deltag', prefix + old]
    command.lvm(['lvchange', *options, '--addtag', new,
                 '%s/%s' % (lv.group, lv.name)])


def activate(lv):
    """Activate a logical volume."""
    if not lv.active:
        command.lvm(['lvchange', '--activate', 'y', '--yes',
                     '%s/%s' % (lv.group, lv.name)])


def remove(lv):
    """Delete a logical volume, in any volume group.

    Its blocks are discarded, because its disk may be in memory.

    :raises: ProcessExecutionError if it is open
    """
    command.lvm(['lvremove', '--yes', '--config',
                 'devices/issue_discards=1',
                 '%s/%s' % (lv.group, lv.name)])
