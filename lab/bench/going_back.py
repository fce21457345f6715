# SPDX-License-Identifier: Apache-2.0
"""Measure what a volume costs that goes back: tools/bench going-back.

A thin snapshot of a thin volume stands for the copy that a node has retained.
After some writes to the volume it is compared what a move copies today, what
thin_delta and dm-era report, and what differs by the digests of all chunks.
Then a guest's random writes are measured with each way to know what it writes.
The service of the node is stopped meanwhile.
"""

import contextlib
import time

from lab.bench import changed_chunks
from lab.bench.changed_chunks import BASE
from lab.bench.changed_chunks import GROUP
from lab.bench.changed_chunks import MIB
from lab.bench.changed_chunks import POOL
from lab.bench.changed_chunks import VOLUME
from lab.bench import load
from lab.bench import ratios
from lab.common import volumes
from lab import errors
from lab import lab

METADATA, STORE = 'benchera', 'benchstore'
#: Devices of device-mapper.
ERA, ORIGIN, SAVED = 'bench-era', 'bench-origin', 'bench-saved'
PATH = 'bench-going-back.json'
LOAD = '--rw=randwrite --iodepth=4'
TODAY, DELTA, DIFFERENT = 'copied today', 'thin_delta', 'different'
WRITTEN, MISSED, SECONDS = 'dm-era', 'missed by dm-era', 'seconds of digests'
AMOUNTS = TODAY, DELTA, DIFFERENT, WRITTEN, MISSED
ALONE, AGAIN = 'alone', ' again'
#: Seconds that a command may take which reads or writes a whole volume.
LONG = 3600

_NEEDED = ('set -e; for each in thin_delta era_invalidate fio blkdiscard; do '
           'command -v $each; done; modprobe dm-era; modprobe dm-snapshot')
_REMOVE = """
for each in {0} {1} {2}; do
    ! dmsetup info $each > /dev/null 2>&1 || dmsetup remove --retry $each
done
for each in {3}; do
    ! lvs {4}/$each > /dev/null 2>&1 || lvremove -qq --yes {4}/$each
done
""".format(ORIGIN, SAVED, ERA, ' '.join((
    BASE, VOLUME, STORE, METADATA, POOL)), GROUP)
#: The first writes to a sparse file last longer: all is written once.
_MAKE = """
set -e
create='lvcreate -qq --yes --wipesignatures n'
lvcreate -qq --yes --type thin-pool --size {0}m --chunksize {2}k \\
    --poolmetadatasize 128m --poolmetadataspare n --name {4} {3}
$create --thin --virtualsize {0}m --name {5} {3}/{4}
dd if=/dev/zero of=/dev/{3}/{5} bs=1M count=$(({0} - 64)) oflag=direct \\
    conv=fsync status=none
lvremove -qq --yes {3}/{5}
$create --thin --virtualsize {1}m --name {5} {3}/{4}
$create --size 64m --name {6} {3}
$create --size $(({1} * 9 / 8))m --name {7} {3}
dd if=/dev/zero of=/dev/{3}/{7} bs=1M count={1} oflag=direct status=none
"""
_BASE = ('lvcreate -qq --yes --snapshot --setactivationskip n --name %s %s/%s'
         % (BASE, GROUP, VOLUME))


def device(name):
    """Return the path of a logical volume."""
    return '/dev/%s/%s' % (GROUP, name)


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = ratios.parts(name)
    if way in AMOUNTS:
        base = TODAY, what
    elif way == SECONDS:
        return None
    else:
        base = way, ALONE + (AGAIN if what.endswith(AGAIN) else '')
    return None if base == (way, what) else '%s, %s' % base


class Bench(volumes.Volumes):
    """A thin volume whose old copy is kept."""

    ROUNDS, MINUTES = 3, 20

    def __init__(self, size, seconds, chunk, changed):
        """Remember the options.

        :param size: of the volume in GiB
        :param seconds: of a load
        :param chunk: of the pool in KiB, also of what is recorded
        :param changed: per cent of the volume that change
        """
        self.lab = lab.Lab.load()
        self.node = next(iter(self.lab.nodes.values()))
        self.results = ratios.Ratios()
        self._mib, self._seconds = size * 1024, seconds
        self._kib, self._changed = chunk, changed
        self._chunk = chunk * 1024

    @contextlib.contextmanager
    def prepared(self):
        """Have a pool with a volume, in the group of a stopped service."""
        with contextlib.ExitStack() as made:
            print(self.node.run(_NEEDED), flush=True)
            made.callback(self.node.wait_ready)
            made.callback(self.node.start_service, 'cinder-volume')
            self.node.stop('cinder-volume')
            self.node.run(_REMOVE)
            made.callback(self.node.run, _REMOVE)
            self.node.run(_MAKE.format(
                2 * self._mib + 1024, self._mib, self._kib, GROUP, POOL,
                VOLUME, METADATA, STORE), timeout=LONG)
            yield

    def round(self):
        """Measure everything once."""
        self.fill(self.node, device(VOLUME), self._mib, timeout=LONG)
        for name, way in (
                (ALONE, self._alone), ('thin snapshot', self._base),
                ('dm-era', self._era), ('dm-snapshot', self._saved),
                ('beside digests', self._beside_digests)):
            with way() as path:
                for again in ('', AGAIN):
                    load.note(self.results, name + again, load.run(
                        self.node, path, self._seconds, LOAD, offset=0))
        for change in changed_chunks.changes(self._mib, self._changed):
            self._compare(change)

    def _compare(self, change):
        """Note what changes, by each of those that should know."""
        with self._base():
            with self._era() as path:
                self.node.run(change.command % path, timeout=LONG)
            written = changed_chunks.parse_written(self.node.run(
                'era_invalidate --written-since 1 ' + device(METADATA)))
            changed, allocated = changed_chunks.parse_delta(self.node.run(
                changed_chunks.COMPARE, timeout=LONG))
            begin = time.monotonic()
            old, new = map(self._digests, (BASE, VOLUME))
            self.results.note('%s, %s' % (SECONDS, change.what),
                              time.monotonic() - begin)
        if len(old) != len(new) or len(old) * self._chunk != self._mib * MIB:
            raise errors.LabError('%d and %d digests' % (len(old), len(new)))
        differ = {at for at, digest in enumerate(old) if digest != new[at]}
        for way, count in zip(AMOUNTS, (
                allocated, *map(len, (changed, differ, written,
                                      differ - written)))):
            self.results.note('%s, %s' % (way, change.what),
                              count * self._chunk / MIB)
        self._judge(change, differ, changed, written)

    @staticmethod
    def _judge(change, differ, changed, written):
        """Fail if a change was not reported, or if there was none."""
        for who, found in (('thin_delta', changed), ('dm-era', written)):
            missed = sorted(differ - found)
            # A discard is one request for many blocks: see the
            # documentation, "Going back".
            if missed and not (change.discards and who == 'dm-era'):
                raise errors.LabError(
                    '%s: %s has not reported %d of %d chunks, the first %s' % (
                        change.what, who, len(missed), len(differ),
                        missed[:9]))
        if not differ:
            raise errors.LabError(change.what + ' has changed nothing')

    def _digests(self, name):
        return self.node.run(changed_chunks.digests(device(name), self._chunk),
                             timeout=LONG).split()

    # Ways to know what is written; each yields the path that a guest has

    @contextlib.contextmanager
    def _alone(self):
        yield device(VOLUME)

    @contextlib.contextmanager
    def _base(self):
        self.node.run(_BASE)
        try:
            yield device(VOLUME)
        finally:
            self.node.run('lvremove -qq --yes %s/%s' % (GROUP, BASE))

    @contextlib.contextmanager
    def _devices(self, blank, **tables):
        """Create devices above the volume; yields the path of the last one.

        :param blank: logical volume that is begun anew
        """
        made = ['set -e; dd if=/dev/zero of=%s bs=1M count=1 oflag=direct '
                'conv=fsync status=none' % device(blank)]
        made += ['dmsetup create %s --table "0 %d %s"' % (
            name, self._mib * 2048, table) for name, table in tables.items()]
        try:
            self.node.run('; '.join(made))
            yield '/dev/mapper/' + list(tables)[-1]
        finally:
            self.node.run('; '.join('dmsetup remove --retry ' + name
                                    for name in reversed(tables)))

    def _era(self):
        return self._devices(METADATA, **{ERA: 'era %s %s %d' % (
            device(METADATA), device(VOLUME), self._kib * 2)})

    def _saved(self):
        return self._devices(STORE, **{
            SAVED: 'snapshot %s %s P %d' % (
                device(VOLUME), device(STORE), self._kib * 2),
            ORIGIN: 'snapshot-origin ' + device(VOLUME)})

    @contextlib.contextmanager
    def _beside_digests(self):
        process = int(self.node.run(changed_chunks.digests(
            device(VOLUME), self._chunk, 10 ** 6, 'ionice -c 3 ', ' &')
            + 'echo $!'))
        try:
            yield device(VOLUME)
        finally:
            self.node.run('kill %d' % process)

    def report(self):
        """Print medians and ratios, and save the results."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
        print('amounts in MiB')
