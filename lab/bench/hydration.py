# SPDX-License-Identifier: Apache-2.0
"""Measure copies beside their guests' requests: tools/bench hydration.

A volume moves to a node, where fio uses it while it hydrates, and for the
same time once it is complete. The copy without a load is compared with a raw
copy over a session of the same kind, to the same disk.
"""

import contextlib
import json
import time

from lab.bench import measurements
from lab.bench import numbered
from lab.bench import remote_disk
from lab.common import user as user_module
from lab.common import volumes
from lab import lab
from lab import wait

#: GiB of the volume, and seconds of a load.
SIZE, SECONDS = 2, 60
#: Options of fio for all loads, which leave the numbered writes alone.
FIO = ('fio --name=load --filename={path} --direct=1 --ioengine=libaio '
       '--bs=4k --offset=%dm --time_based --runtime={seconds} '
       '--output-format=json --output={out} ' % numbered.PLACES)
#: {load: its options}
LOADS = {
    'none': None,
    '1 at a time, 70 % reads, 256 MiB':
        '--rw=randrw --rwmixread=70 --iodepth=1 --size=256m',
    '4 at a time, 70 % reads, 256 MiB':
        '--rw=randrw --rwmixread=70 --iodepth=4 --size=256m',
    '8 at a time, writes, 256 MiB':
        '--rw=randwrite --iodepth=8 --size=256m',
    '8 at a time, reads, all of it': '--rw=randread --iodepth=8',
    '32 at a time, reads, all of it': '--rw=randread --iodepth=32'}
OUT = '/tmp/bench-load.json'  # noqa: S108, on a node of the laboratory


def parse_load(text):
    """Return (requests a second, 99th percentile in ms) of fio's report."""
    job = json.loads(text)['jobs'][0]
    ways = [job[way] for way in ('read', 'write') if job[way]['iops']]
    return (sum(way['iops'] for way in ways),
            max(way['clat_ns']['percentile']['99.000000']
                for way in ways) / 1e6)


def parse_regions(status):
    """Return the hydrated share of a clone's status line, 1 if complete."""
    words = status.split()
    if words[2] != 'clone':
        return 1
    hydrated, total = map(int, words[6].split('/'))
    return hydrated / total


class Bench(volumes.Volumes):
    """Copies beside each load, and without one."""

    def __init__(self):
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = measurements.Measurements()

    def round(self):
        """Measure each load once, and the raw copy."""
        for load, options in LOADS.items():
            with contextlib.ExitStack() as made:
                made.callback(self.clean_up)
                self._measure(load, options)
        self._raw_copy()

    def _measure(self, load, options):
        volume_id = self.user.create_volume(SIZE)['id']
        home, writes = self.home(volume_id), numbered.Numbered()
        with self.attached(volume_id, home) as path:
            writes.write(home, path)
        node = self.other(home)
        with self.attached(volume_id, node) as path:
            start = time.monotonic()
            with self._load(node, path, load, options, 'meanwhile'):
                self._watch(node, path, writes, start, options)
            share = parse_regions(self.clone_status(node, path))
            self.results.note('copied, load ' + load, 100 * share, '%')
            self.hydrated(volume_id, timeout=900)
            if options:
                with self._load(node, path, load, options, 'afterwards'):
                    time.sleep(SECONDS)
            writes.compare(node, path)

    def _watch(self, node, path, writes, start, options):
        """Write a number each second, until the load or the copy ends."""
        while time.monotonic() < start + SECONDS:
            writes.write(node, path)
            if not options and parse_regions(
                    self.clone_status(node, path)) == 1:
                self._note_copy('copy without a load', start)
                return
            time.sleep(1)

    @contextlib.contextmanager
    def _load(self, node, path, load, options, when):
        """Run a load; note its rate and its latency at the end."""
        if options is None:
            yield
            return
        node.run('rm -f {out}; setsid {fio} {options} >/dev/null 2>&1 '
                 '</dev/null & echo'.format(out=OUT, options=options,
                                            fio=FIO.format(
                                                path=path, out=OUT,
                                                seconds=SECONDS)))
        yield
        wait.until(lambda: node.try_run('grep -q disk_util ' + OUT)[0] == 0,
                   'the report of fio', SECONDS)
        rate, latency = parse_load(node.run('cat ' + OUT))
        name = '%s, load %s' % (when, load)
        self.results.note(name + ': rate', rate, 'a second')
        self.results.note(name + ': p99', latency, 'ms')

    def _raw_copy(self):
        """Copy a logical volume over a session, without a clone."""
        source, target = list(self.lab.nodes.values())[:2]
        make = ('lvcreate --yes --wipesignatures n --size %dg --name bench '
                'cinder-volumes' % SIZE)
        with contextlib.ExitStack() as made:
            for node in (source, target):
                node.run(make)
                made.callback(node.run, 'lvremove --yes cinder-volumes/bench')
            disk = made.enter_context(remote_disk.served(
                source, '/dev/cinder-volumes/bench', target))
            start = time.monotonic()
            target.run('dd if=%s of=/dev/cinder-volumes/bench bs=1M '
                       'iflag=direct oflag=direct conv=fsync status=none'
                       % disk, timeout=900)
            self._note_copy('raw copy', start)

    def _note_copy(self, what, start):
        self.results.note(what, SIZE * 1024 / (time.monotonic() - start),
                          'MiB/s')

    def report(self):
        """Print medians, spreads and ratios."""
        self.results.report([
            ('copy without a load', 'raw copy'), *(
                ('meanwhile, load %s: %s' % (load, what),
                 'afterwards, load %s: %s' % (load, what))
                for load in LOADS for what in ('rate', 'p99'))])
