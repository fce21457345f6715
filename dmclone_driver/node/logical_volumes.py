# SPDX-License-Identifier: Apache-2.0
"""Logical volumes and the tags that this driver keeps on them.

Cinder's LVM class creates, deletes and extends logical volumes; it does not
support tags.
"""

import collections.abc
import dataclasses

from dmclone_driver.node import lvm
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes

#: On a metadata device: the region size in sectors. It is formatted once a
#: data volume is tagged as the clone that uses it.
REGION_TAG = 'dmclone.region='
#: On a data volume that is a clone: where its metadata is.
METADATA_TAG = 'dmclone.metadata='
#: On a data volume that was extended while it was a clone: the clone's size,
#: in bytes.
CLONED_TAG = 'dmclone.cloned='
#: On a thin data volume, before its clone is created: the clone takes discards
#: and its handle is one that refuses them.
MARKABLE_TAG = 'dmclone.markable'
#: On such a volume, before the first discard: the bytes of the regions that
#: are marked as present without a copy, at most.
MARKED_TAG = 'dmclone.marked='
#: On a thin destination whose source is thin, and until it has MARKED_TAG: the
#: bytes that the source had allocated when it was prepared.
ALLOCATED_TAG = 'dmclone.allocated='
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
#: On a former source that is only the origin of its snapshots any longer.
KEPT_TAG = 'dmclone.kept'
#: On a volume, with the name of the snapshot that LVM merges into it: that is
#: taken again before the volume gets its handle back.
MERGED_TAG = 'dmclone.merged='
#: On a snapshot, with the name id of a source: a volume reads the snapshot.
READER_TAG = 'dmclone.reader='
#: On a data volume that has, or had, snapshots above its clone.
ORIGIN_TAG = 'dmclone.origin'
#: On the logical volume of such a snapshot: see :class:`Taken`.
TAKEN_TAG = 'dmclone.taken='
#: On it, instead, until the snapshot is taken.
NOT_TAKEN_TAG = 'dmclone.not_taken='
#: On a snapshot that no user has: only clones need it.
HIDDEN_TAG = 'dmclone.hidden'
#: On a complete copy of a snapshot of another node, with the snapshot's id: it
#: is the snapshot from now on.
FOLLOWED_TAG = 'dmclone.followed='
#: On a clone that has taken the place of a volume's data, with the id of the
#: snapshot that it is copied from: no older home of the volume has that.
REVERTED_TAG = 'dmclone.reverted='

#: Tags of a thin clone that mean nothing when it is complete.
THIN_CLONE_TAGS = MARKABLE_TAG, MARKED_TAG, ALLOCATED_TAG

# What LVM's snapshots save at a time, as lvcreate takes it.
_CHUNK = '64k'


@dataclasses.dataclass(frozen=True)
class Taken:
    """A snapshot above a clone.

    :ivar snapshot_id: its id
    :ivar name_id: name id of the logical volume that it was taken of
    :ivar size: of the volume at that time
    """

    snapshot_id: str
    name_id: str
    size: Bytes

    def __str__(self) -> str:
        return '%s/%s/%d' % (self.snapshot_id, self.name_id, self.size)

    @classmethod
    def parse(cls, text: str) -> 'Taken':
        """Return the snapshot of a tag's text."""
        snapshot_id, name_id, size = text.split('/')
        return cls(snapshot_id, name_id, Bytes(int(size)))


@dataclasses.dataclass(frozen=True)
class LogicalVolume:
    """What LVM says about a logical volume."""

    group: str
    name: str
    size: Bytes
    active: bool
    tags: frozenset[str] = frozenset()
    #: Of LVM's snapshots: the name of the logical volume below. A thin volume
    #: that was cloned from another one has it, too, and LVM forgets it when
    #: the origin of a thin one is deleted.
    origin: str = ''
    #: Of thin ones: the name of the pool that has their blocks.
    pool: str = ''

    @property
    def full_name(self) -> str:
        """The name by which LVM's commands find exactly this one."""
        return '%s/%s' % (self.group, self.name)

    @property
    def path(self) -> str:
        """The device's path."""
        return '/dev/' + self.full_name

    @property
    def thin(self) -> bool:
        """Whether it has only those blocks that were written."""
        return bool(self.pool)

    @property
    def saved_blocks(self) -> str:
        """The path of the blocks that a snapshot has saved of its origin."""
        return '/dev/mapper/' + lvm.device(self.group, self.name, 'cow')

    def tagged(self, prefix: str) -> str | None:
        """Return what follows the prefix in a tag, or None."""
        return next((tag[len(prefix):] for tag in self.tags
                     if tag.startswith(prefix)), None)

    @property
    def deleted(self) -> bool:
        """Whether its deletion has begun: no user may see its data."""
        return self.tagged(DELETED_TAG) is not None

    @property
    def of_move(self) -> bool:
        """Whether it is, or was, part of a move."""
        return any(tag.startswith('dmclone.') for tag in self.tags)

    @property
    def needed(self) -> bool:
        """Whether a move, or what is left of one, still needs it.

        It may be metadata, too.
        """
        return any(tag.startswith('dmclone.') and
                   not tag.startswith(OPENED_TAG) for tag in self.tags)

    @property
    def clone(self) -> bool:
        """Whether part of its data may be elsewhere."""
        return self.tagged(METADATA_TAG) is not None

    @property
    def cloned(self) -> Bytes:
        """The size of the clone on it: its own, unless it was extended."""
        size = self.tagged(CLONED_TAG)
        return self.size if size is None else Bytes(int(size))

    @property
    def markable(self) -> bool:
        """Whether its clone takes discards, and its handle refuses them."""
        return MARKABLE_TAG in self.tags

    @property
    def marked(self) -> Bytes | None:
        """What is not copied since the source has nothing there.

        None if that was not decided yet. After a crash it may be more than
        there is.
        """
        size = self.tagged(MARKED_TAG)
        return None if size is None else Bytes(int(size))

    @property
    def left_marks(self) -> list[str]:
        """Tags of a marked clone that an older version has completed.

        That does not know them, nor why the handle is a snapshot-origin.
        """
        return sorted(tag for tag in self.tags if self.complete and
                      tag.startswith(THIN_CLONE_TAGS))

    @property
    def complete(self) -> bool:
        """Whether a volume that has moved here has all its data here.

        The clone's other devices are removed, too. The deletion of a clone
        begins with the removal of its tag.
        """
        return self.opened and not (self.in_parts or self.deleted)

    @property
    def in_parts(self) -> bool:
        """Whether it is a clone, or not all parts of one are removed yet."""
        return self.clone or self.tagged(COMPLETE_TAG) is not None

    @property
    def opened(self) -> bool:
        """Whether a user may have written it since it was made for a move."""
        return self.tagged(OPENED_TAG) is not None

    @property
    def sealed(self) -> bool:
        """Whether the volume's data has moved away from it."""
        return self.tagged(SEALED_TAG) is not None

    @property
    def kept(self) -> bool:
        """Whether it is kept for its snapshots alone."""
        return KEPT_TAG in self.tags

    @property
    def has_taken(self) -> bool:
        """Whether snapshots may have been taken above its clone."""
        return ORIGIN_TAG in self.tags

    @property
    def hidden(self) -> bool:
        """Whether it is a snapshot that no user has: only clones need it."""
        return HIDDEN_TAG in self.tags

    @property
    def unfinished(self) -> bool:
        """Whether it is a snapshot that a killed service has left behind.

        It was never finished, or no user and no clone needs it.
        """
        return self.not_taken is not None or (
            self.hidden and not self.readers)

    @property
    def followed(self) -> str | None:
        """The id of the snapshot of which it is a whole copy, or None."""
        return self.tagged(FOLLOWED_TAG)

    @property
    def taken(self) -> Taken | None:
        """The snapshot above a clone whose saved blocks it has.

        None if LVM was told what it is, for Cinder's LVM driver: it is a
        snapshot of LVM with the same name since, and may come back.
        """
        text = None if self.origin else self.tagged(TAKEN_TAG)
        return None if text is None else Taken.parse(text)

    @property
    def not_taken(self) -> Taken | None:
        """The snapshot above a clone that was never finished."""
        text = self.tagged(NOT_TAKEN_TAG)
        return None if text is None else Taken.parse(text)

    @property
    def snapshot_of(self) -> str | None:
        """Of any snapshot: the name of the logical volume below, or None.

        Of a thin one it may be unknown: it does not need the other.
        """
        if self.taken:
            return Names(self.taken.name_id).volume
        cloned = names_module.of_logical_volume(self.name) is not None
        return None if cloned else self.origin or None

    @property
    def readers(self) -> set[str]:
        """Of a snapshot: the name ids of the sources that it serves as."""
        return {tag.removeprefix(READER_TAG) for tag in self.tags
                if tag.startswith(READER_TAG)}


_COLUMNS = ('vg_name,lv_name,lv_size,lv_active,lv_tags,origin,pool_lv,'
            'lv_layout')


def parse(row: dict[str, str]) -> LogicalVolume:
    """Return the logical volume of a row of ``lvs``.

    :param row: e.g. ``{"vg_name": "cinder-volumes", "lv_name": "volume-1",
        "lv_size": "1073741824", "lv_active": "active", "lv_tags": "a,b",
        "origin": "", "pool_lv": "cinder-volumes-pool", "lv_layout":
        "thin,sparse"}``; a cached volume has a pool, too
    """
    return LogicalVolume(group=row['vg_name'], name=row['lv_name'],
                         size=Bytes(int(row['lv_size'])),
                         active=row['lv_active'] == 'active',
                         tags=lvm.words(row['lv_tags']),
                         origin=row['origin'],
                         pool=row['pool_lv'] if 'thin' in lvm.words(
                             row['lv_layout']) else '')


def find_all(*groups: str) -> list[LogicalVolume]:
    """Return all logical volumes of the groups, or of all groups.

    :raises: LVMError
    """
    return [parse(row) for row in lvm.report('lvs', *sorted(set(groups)),
                                             '-o', _COLUMNS)]


def find(name: str, group: str) -> LogicalVolume | None:
    """Return a logical volume of a group, or None.

    :raises: LVMError, also if the group is not found: that is no proof that
        the logical volume is gone
    """
    try:
        row, = lvm.report('lvs', '%s/%s' % (group, name), '-o', _COLUMNS)
    except lvm.NotFound:
        return None
    return parse(row)


def find_read_as(name_id: str, group: str) -> LogicalVolume | None:
    """Return the snapshot that serves as a source, or None.

    :param name_id: of the source
    :raises: LVMError
    """
    return next((lv for lv in find_all(group) if name_id in lv.readers),
                None)


def find_followed(snapshot_id: str, group: str) -> LogicalVolume | None:
    """Return the logical volume that is a snapshot as a whole, or None.

    :raises: LVMError
    """
    return next((lv for lv in find_all(group) if lv.followed == snapshot_id),
                None)


def find_anywhere(name: str) -> LogicalVolume | None:
    """Return a logical volume of any group, or None.

    :raises: LVMError
    """
    rows = lvm.report('lvs', '--select', 'lv_name="%s"' % name, '-o',
                      _COLUMNS)
    return parse(rows[0]) if rows else None


def create(group: str, name: str, size: Bytes | str, *tags: str,
           pool: str = '') -> None:
    """Create a logical volume, whatever its blocks had before.

    If there is a signature, such as a filesystem's, LVM asks whether to wipe
    it. With Cinder's LVM class, which does not answer, the creation fails.

    :param size: in bytes, or as LVM's commands take it, such as ``3g``; is
        rounded up to whole extents
    :param tags: which it has from its first moment on
    :param pool: name of the pool of a thin one
    :raises: LVMError; Exists if the group has one of that name: then nothing
        is changed
    """
    text = size if isinstance(size, str) else '%db' % size
    kind = ('--size', text) if not pool else (
        '--type', 'thin', '--virtualsize', text, '--thinpool', pool)
    lvm.run('lvcreate', '--yes', '--name', name, *kind, *_adding(tags), group)


def _adding(tags: collections.abc.Iterable[str]) -> list[str]:
    return [part for text in tags for part in ('--addtag', text)]


def take_snapshot(lv: LogicalVolume, name: str, *tags: str) -> None:
    """Take a snapshot of LVM, which has room for a change of every block.

    Cinder's LVM class makes it as large as the volume, which has no room for
    the records of what it saved: when all is overwritten, the snapshot is
    lost. With ``%ORIGIN`` LVM adds that room. The records are in memory, too,
    so a chunk is as large as a region, not LVM's default of 4 KiB.

    A thin snapshot is one without a size (lvmthin(7), "Thin Snapshot
    Creation"). Without the option it would not be activated, now or at the
    next start of the node (lv_set_activation_skip in LVM's
    lib/metadata/lv_manip.c).

    :raises: LVMError
    """
    kind = ('--setactivationskip', 'n') if lv.thin else (
        '--chunksize', _CHUNK, '--extents', '100%ORIGIN')
    lvm.run('lvcreate', '--yes', '--snapshot', '--name', name, *kind,
            *_adding(tags), lv.full_name)


def chunk_size(lv: LogicalVolume) -> Bytes:
    """Return what a snapshot of LVM saves at a time."""
    row, = lvm.report('lvs', lv.full_name, '-o', 'chunk_size')
    return Bytes(int(row['chunk_size']))


def thin_id(lv: LogicalVolume) -> int:
    """Return the number of a thin volume in its pool.

    :raises: LVMError, ValueError if it is not thin
    """
    row, = lvm.report('lvs', lv.full_name, '-o', 'thin_id')
    return int(row['thin_id'])


def tag(lv: LogicalVolume, *tags: str) -> None:
    """Add tags to a logical volume."""
    tag_by_name(lv.group, lv.name, *tags)


def tag_by_name(group: str, name: str, *tags: str) -> None:
    """Add tags to a logical volume; those that it has are no error.

    :raises: LVMError
    """
    lvm.run('lvchange', *(part for text in tags
                          for part in ('--addtag', text)),
            '%s/%s' % (group, name))


def untag(lv: LogicalVolume, *tags: str) -> None:
    """Remove tags from a logical volume."""
    lvm.run('lvchange', *(part for text in tags
                          for part in ('--deltag', text)), lv.full_name)


def retag(lv: LogicalVolume, prefix: str, new: str) -> None:
    """Replace the tag with a prefix by another, in one command."""
    old = lv.tagged(prefix)
    options = [] if old is None else ['--deltag', prefix + old]
    lvm.run('lvchange', *options, '--addtag', new, lv.full_name)


def activate(lv: LogicalVolume, timeout: int = lvm.TIMEOUT) -> None:
    """Activate a logical volume.

    Thin snapshots of Cinder's LVM driver are marked as skipped (lvmthin(7),
    "Thin LV Activation").

    :param timeout: seconds that it may take
    :raises: LVMError
    """
    if not lv.active:
        lvm.run('lvchange', '--activate', 'y', '--ignoreactivationskip',
                '--yes', lv.full_name, timeout=timeout)


def remove(lv: LogicalVolume) -> None:
    """Delete a logical volume, in any volume group.

    Its blocks are discarded, because its disk may be in memory.

    :raises: LVMError if it is open
    """
    lvm.run('lvremove', '--yes', '--config', 'devices/issue_discards=1',
            lv.full_name)
