# SPDX-License-Identifier: Apache-2.0
"""Measure moves of thin volumes: tools/bench thin.

A volume of which a part is used moves between two thin nodes, alternately with
one that has the same data and is no larger than it has to be. The time until
it is complete is compared with that of the other, what it allocates with what
the source had.
"""

import dataclasses
import time

from lab.bench import hydration
from lab.bench import ratios
from lab.common import pools
from lab.common import user as user_module
from lab.common import volumes
from lab import lab

MIB, GIB = 2 ** 20, 2 ** 30
PERCENTAGES = 1, 10, 100
#: In the name of what a measurement is compared with.
ALONE, AT_SOURCE = ' alone', ': source'
#: Seconds until a volume is complete.
TO_END = 7200


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


def cases(size, extents, chunk):
    """Return all cases, each after the one that it is compared with.

    :param size: of the volumes, in GiB
    :param chunk: bytes of an extent
    """
    found = [Case('%d %% of %d GiB' % (percent, size), size,
                  size * 1024 * percent // 100 * MIB)
             for percent in PERCENTAGES]
    found.append(Case('%d extents in %d GiB' % (extents, size), size,
                      extents * chunk, extents))
    return [each for case in found for each in (case.alone(), case)
            # What is used as a whole is alone.
            if each is case or case.used < size * GIB]


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

    :param step: bytes from one to the next
    """
    return ("python3 -c 'import mmap, os; data = mmap.mmap(-1, {chunk}); "
            'data.write(os.urandom({chunk})); '
            'disk = os.open("{path}", os.O_WRONLY | os.O_DIRECT); '
            '[os.pwrite(disk, data, at * {step}) for at in range({extents})]; '
            "os.fsync(disk)'".format(path=path, chunk=chunk, step=step,
                                     extents=extents))


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = name.split(', ', 1)
    if what.endswith((ALONE, AT_SOURCE)):
        return None
    if way == 'allocated':
        return name + AT_SOURCE
    return None if what.startswith('100 %') else name + ALONE


class Bench(volumes.Volumes):
    """Moves of idle thin volumes."""

    def __init__(self, size, extents):
        """Remember the size of the volumes in GiB, and their extents."""
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = ratios.Ratios()
        self.node = self.lab.node('node1')
        self._size, self._extents = size, extents

    def round(self):
        """Measure all cases once, on nodes with pools of their own."""
        with pools.on(list(self.lab.nodes.values()), self.end_volumes):
            for case in cases(self._size, self._extents,
                              pools.chunk(self.node)):
                self._measure(case)
                self.end_volumes()

    def _measure(self, case):
        with self.created_on(self.node):
            volume_id = self.user.create_volume(case.size)['id']
        with self.attached(volume_id, self.node) as path:
            self._write(case, path)
            expected = self.checksum(self.node, path)
        source, = pools.volumes(self.node).values()
        other = self.other(self.node)
        begin = time.monotonic()
        with self.attached(volume_id, other) as path:
            while hydration.parse_regions(self.clone_status(other, path)) < 1:
                assert time.monotonic() < begin + TO_END, case
                time.sleep(0.2)
            self.results.note('time, ' + case.what, time.monotonic() - begin)
            self.hydrated(volume_id)
            assert self.checksum(other, path) == expected, case
        if not case.what.endswith(ALONE):
            allocated, = pools.volumes(other).values()
            for name, size in (('', allocated), (AT_SOURCE, source)):
                self.results.note('allocated, %s%s' % (case.what, name),
                                  size / MIB)

    def _write(self, case, path):
        if not case.extents:
            self.fill(self.node, path, case.used // MIB, timeout=3600)
            return
        chunk = pools.chunk(self.node)
        self.node.run(writing(path, case.extents, chunk, stride(
            case.size, case.extents, chunk)), timeout=3600)

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(base_of)
        self.results.save('bench-thin.json', base_of)
