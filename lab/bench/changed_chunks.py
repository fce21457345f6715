# SPDX-License-Identifier: Apache-2.0
"""Which chunks of a thin volume have changed, and what has changed them.

The volume has a thin snapshot, and perhaps a device of dm-era above it.
"""

import dataclasses
import re

from lab import errors

MIB = 2 ** 20
GROUP = 'cinder-volumes'
POOL, VOLUME, BASE = 'benchpool', 'benchvolume', 'benchbase'

#: Prints how the volume differs from its snapshot.
COMPARE = """
set -e
pool=/dev/mapper/{0}-{1}
dmsetup message $pool-tpool 0 reserve_metadata_snap
trap 'dmsetup message $pool-tpool 0 release_metadata_snap' EXIT
id() {{ lvs --noheadings -o thin_id {2}/$1 | tr -d ' '; }}
thin_delta --metadata-snap --snap1 $(id {3}) --snap2 $(id {4}) ${{pool}}_tmeta
""".format(GROUP.replace('-', '--'), POOL, GROUP, BASE, VOLUME)
_CHANGE = ('fio --name=change --filename={0} --direct=1 --ioengine=libaio '
           '--iodepth=16 --rw={1} --bs={2} --size={3}m --io_size={4}m '
           '--randrepeat=0 --refill_buffers --end_fsync=1 --output=/dev/null')
#: Its arguments: the device, bytes of a chunk, how many times.
_DIGESTS = """python3 - {0} {1} {2} {3} <<'END'{4}
import hashlib, mmap, os, sys
chunk, times = map(int, sys.argv[2:])
disk = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
data = mmap.mmap(-1, max(chunk, 2 ** 20 // chunk * chunk))
for turn in range(times):
    for begin in range(0, os.lseek(disk, 0, os.SEEK_END), len(data)):
        for at in range(0, os.preadv(disk, [data], begin), chunk):
            print(hashlib.sha256(data[at:at + chunk]).hexdigest()[:16])
END
"""


@dataclasses.dataclass(frozen=True)
class Change:
    """What a guest does to its volume.

    :ivar what: in the table
    :ivar command: that does it; has a place for the path
    """

    what: str
    command: str

    @property
    def discards(self):
        """Whether it writes nothing."""
        return self.command.startswith('blkdiscard')


def changes(mib, percentages):
    """Return all changes; the last ones discard.

    :param mib: size of the volume
    """
    made = {}
    for percent in percentages:
        part = max(1, mib * percent // 100)
        made['random %d %%' % percent] = _CHANGE.format(
            '%s', 'randwrite', '4k', mib, part)
        made['sequential %d %%' % percent] = _CHANGE.format(
            '%s', 'write', '1m', mib, part)
    made['discard %d %%' % percentages[-1]] = (
        'blkdiscard --offset %d --length %d %%s' % (
            mib // 2 * MIB, mib * percentages[-1] // 100 * MIB))
    return [Change(*each) for each in made.items()]


def parse_delta(text):
    """Return what thin_delta has printed.

    :returns: (chunks that have changed, number that the second one has)
    :raises LabError: if that is not all
    """
    changed, allocated = set(), 0
    if '</superblock>' not in text:
        raise errors.LabError('thin_delta has ended early: ' + text[-400:])
    for kind, first, count in re.findall(
            r'<(same|different|left_only|right_only) begin="(\d+)" '
            r'length="(\d+)"/>', text):
        first, count = int(first), int(count)
        allocated += count if kind != 'left_only' else 0
        if kind != 'same':
            changed.update(range(first, first + count))
    return changed, allocated


def parse_written(text):
    """Return the chunks that era_invalidate has printed.

    :raises LabError: if these are not all
    """
    if '</blocks>' not in text:
        raise errors.LabError('era_invalidate has ended early: ' + text[-400:])
    found = set(map(int, re.findall(r'<block block="(\d+)"', text)))
    for first, end in re.findall(
            r'<range begin="(\d+)" end ?= ?"(\d+)"', text):
        found.update(range(int(first), int(end)))
    return found


def digests(path, chunk, times=1, nice='', behind=''):
    """Return the command that prints a digest of each chunk.

    :param nice: before it
    :param behind: text after it, such as an ampersand
    """
    return nice + _DIGESTS.format(
        path, chunk, times, '> /dev/null 2>&1' if behind else '', behind)
