# SPDX-License-Identifier: Apache-2.0
"""Measure moves of thin volumes: tools/bench thin.

A volume of which a part is used moves between two thin nodes, alternately with
one that has the same data and is no larger than it has to be. The time until
it is complete is compared with that of the other, what it allocates with what
the source had. Afterwards all that was written is compared, and samples of the
rest. Every other round measures in the opposite order, since what is first may
be slower. The services do not log at the level debug, as with operators: the
map of many extents is megabytes of text.
"""

import dataclasses
import shutil
import time

from lab.bench import hydration
from lab.bench import ratios
from lab.common import pools
from lab.common import user as user_module
from lab.common import volumes
from lab import errors
from lab import lab

MIB, GIB = 2 ** 20, 2 ** 30
#: In the name of what a measurement is compared with.
ALONE, AT_SOURCE = ' alone', ': source'
#: Seconds until a volume is complete, and until it is written or read.
TO_END, TO_READ = 7200, 3600
#: What either ratio may be at most.
LIMIT = 1.1
#: How many MiB of what is not written are compared, at equal distances.
SAMPLES = 64
#: GiB that stay free on the machine, whose disk has those of the nodes.
SPARE = 10


@dataclasses.dataclass(frozen=True)
class Case:
    """A volume that is measured.

    :ivar size: GiB of it
    :ivar used: bytes that are written, from its start or in extents
    :ivar extents: their number; 0 for one piece
    """

    what: str
    size: int
    used: int
    extents: int = 0

    def alone(self):
        """Return the same data in a volume of the least size."""
        return Case(self.what + ALONE, -(-self.used // GIB), self.used)


def cases(size, percentages, extents, chunk):
    """Return all cases, each after the one that it is compared with.

    :param size: of the volumes, in GiB
    :param extents: of the fragmented volume; 0 for none
    :param chunk: bytes of an extent
    :raises ValueError: if the extents do not fit
    """
    found = [Case('%d %% of %d GiB' % (percent, size), size,
                  size * 1024 * percent // 100 * MIB)
             for percent in percentages]
    if extents:
        stride(size, extents, chunk)
        found.append(Case('%d extents in %d GiB' % (extents, size), size,
                          extents * chunk, extents))
    return [each for case in found for each in (case.alone(), case)
            # What is used as a whole is alone.
            if each is case or case.used < size * GIB]


def in_turn(found, number):
    """Return cases in the order of a round, reversed in every other one.

    :param number: of the round, from 0 on
    """
    return found[::-1] if number % 2 else found


def stride(size, extents, chunk):
    """Return the bytes from one extent to the next.

    :param size: of the volume, in GiB
    :raises ValueError: if they would not be apart
    """
    found = size * GIB // extents // chunk * chunk
    if found < 2 * chunk:
        raise ValueError('%d extents of %d bytes do not fit into %d GiB with '
                         'gaps' % (extents, chunk, size))
    return found


def writing(path, extents, chunk, step):
    """Return the command that writes extents, durably.

    Each begins with its number, so that no two have the same data.

    :param step: bytes from one to the next
    """
    return ("python3 -c 'import mmap, os; data = mmap.mmap(-1, {chunk}); "
            'data.write(os.urandom({chunk})); '
            'disk = os.open("{path}", os.O_WRONLY | os.O_DIRECT); '
            '[(data.seek(0), data.write(at.to_bytes(8, "big")), '
            'os.pwrite(disk, data, at * {step})) for at in range({extents})]; '
            "os.fsync(disk)'".format(path=path, chunk=chunk, step=step,
                                     extents=extents))


def compared(case):
    """Return (MiB at the start, places of further MiB) that are compared."""
    size = case.size * 1024
    written = size if case.extents else case.used // MIB
    rest = range(written, size, max(1, (size - written) // SAMPLES))
    return written, [*rest, size - 1] if rest else []


def reading(path, start, places):
    """Return the command that prints the checksum of what is compared.

    :param start, places: as compared() returns them
    """
    return ('set -eo pipefail; '
            '(dd if={0} bs=1M count={1} iflag=direct status=none; '
            'for at in {2}; do '
            'dd if={0} bs=1M skip=$at count=1 iflag=direct status=none; '
            'done) | sha256sum'.format(path, start, ' '.join(
                map(str, places))))


def refuse_without_room(found, room):
    """Check that the machine's disk has room for the nodes' disks.

    A pool gives blocks that were freed to new data only after all that were
    never used (sm_disk_new_block of the kernel). So the disks of both nodes
    grow by all that is written.

    :param found: all cases
    :param room: bytes that are free, or that the nodes' disks have already
    :raises LabError: if there is none
    """
    needed = 2 * sum(case.used for case in found) + SPARE * GIB
    if needed > room:
        raise errors.LabError(
            "the nodes' disks need %d GiB, there are %d: measure less at a "
            'time' % (needed // GIB, room // GIB))


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = name.split(', ', 1)
    if what.endswith((ALONE, AT_SOURCE)):
        return None
    if way == 'allocated':
        return name + AT_SOURCE
    return None if what.startswith('100 %') else name + ALONE


def judge(results):
    """Print which ratios are within the limit; return whether all are."""
    kept = [ratios.judge(name, results.of(name, base_of(name))[0], LIMIT)
            for name in results.values if base_of(name)]
    return all(kept)


class Bench(volumes.Volumes):
    """Moves of idle thin volumes."""

    def __init__(self, size, percentages, extents, chunk=None):
        """Remember the options.

        :param size: GiB of the volumes
        :param percentages: how much of them is used
        :param extents: of the fragmented one; 0 for none
        :param chunk: KiB of a block of the pools, or None for LVM's choice
        """
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = ratios.Ratios()
        self.node = self.lab.node('node1')
        self._size, self._percentages = size, percentages
        self._extents, self._chunk = extents, chunk
        self._rounds = 0

    def round(self):
        """Measure all cases once, on nodes with pools of their own."""
        nodes = list(self.lab.nodes.values())
        with pools.on(nodes, self.end_volumes, self._chunk, debug=False):
            found = cases(self._size, self._percentages, self._extents,
                          pools.chunk(self.node))
            refuse_without_room(found, self._room(nodes))
            for case in in_turn(found, self._rounds):
                self._measure(case)
                self.end_volumes()
        self._rounds += 1

    @staticmethod
    def _room(nodes):
        disks = [node.machine.folder / 'data' for node in nodes]
        return shutil.disk_usage(disks[0].parent).free + sum(
            512 * disk.stat().st_blocks for disk in disks)

    def _measure(self, case):
        with self.created_on(self.node):
            volume_id = self.user.create_volume(case.size)['id']
        with self.attached(volume_id, self.node) as path:
            self._write(case, path)
            expected = self._checksum(case, self.node, path)
        source, = pools.volumes(self.node).values()
        other = self.other(self.node)
        begin = time.monotonic()
        with self.attached(volume_id, other) as path:
            while hydration.parse_regions(self.clone_status(other, path)) < 1:
                assert time.monotonic() < begin + TO_END, case
                time.sleep(0.2)
            self.results.note('time, ' + case.what, time.monotonic() - begin)
            self.hydrated(volume_id)
            assert self._checksum(case, other, path) == expected, case
        if not case.what.endswith(ALONE):
            allocated, = pools.volumes(other).values()
            for name, size in (('', allocated), (AT_SOURCE, source)):
                self.results.note('allocated, %s%s' % (case.what, name),
                                  size / MIB)

    def _write(self, case, path):
        if not case.extents:
            self.fill(self.node, path, case.used // MIB, timeout=TO_READ)
            return
        chunk = pools.chunk(self.node)
        self.node.run(writing(path, case.extents, chunk, stride(
            case.size, case.extents, chunk)), timeout=TO_READ)

    @staticmethod
    def _checksum(case, node, path):
        return node.run(reading(path, *compared(case)), timeout=TO_READ)

    def report(self):
        """Print medians, ratios and what is kept, and save the results."""
        self.results.report(base_of)
        self.results.save('bench-thin.json', base_of)
        print()
        judge(self.results)
