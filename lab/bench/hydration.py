# SPDX-License-Identifier: Apache-2.0
"""Measure copies beside their guests' requests: tools/bench hydration.

A volume is attached on another node, whose copies are stopped (dmclone pace
--copies 0). There fio uses the clone for some seconds. Then copies are allowed
again, and the same load runs from the moment in which the kernel begins to
copy until the clone is complete and has been replaced. So the rate and the
latency during the copy are compared with those of the same clone, which is not
copied. A load on 256 MiB has other ones each time: what the first one has
written is local, and this is a part of 256 MiB that is not copied any more.

The copy of a volume at rest is compared with raw copies to the same disk, over
a session to a target with the same options. One of these reads a MiB, then
writes it, and the other does both at a time.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import re
import shlex
import time

from lab.bench import during_copy
from lab.bench import load
from lab.bench import numbered
from lab.bench import ratios
from lab.bench import remote_disk
from lab.bench import services
from lab.common import user as user_module
from lab.common import volumes
from lab import lab
from lab import node as node_module

#: MiB of some loads, and the option of fio for them.
PART = 256
SOME = '--size=%dm' % PART
#: {load: its options of fio}, numbered from 1.
LOADS = {
    '1 at a time, 70 % reads, 256 MiB':
        '--rw=randrw --rwmixread=70 --iodepth=1 ' + SOME,
    '4 at a time, 70 % reads, 256 MiB':
        '--rw=randrw --rwmixread=70 --iodepth=4 ' + SOME,
    '8 at a time, writes, 256 MiB':
        '--rw=randwrite --iodepth=8 ' + SOME,
    '8 at a time, reads, all of it': '--rw=randread --iodepth=8',
    '32 at a time, reads, all of it': '--rw=randread --iodepth=32'}
#: MiB/s that the driver promises by default.
MINIMUM_RATE = 16
#: In the name of what a measurement is compared with.
NOT_COPIED = ': not copied'
AT_REST, RAW, PIPED = 'no load', 'raw copy', 'raw copy, two at a time'
PATH = 'bench-hydration.json'
#: What is promised: the copy ends within that many times of its time at rest,
#: the load keeps that share of its rate, its p99 becomes no longer than that,
#: no hold is longer than so many ms, and a copy at rest is as fast as that
#: share of a raw one.
TIMES, RATE, P99, HOLD, WIRE = 3, 0.8, 1.6, 50, 0.9
#: A copy may take that many times as long as promised, and some seconds, until
#: its load is ended.
MARGIN, MORE = 1.25, 10
#: Seconds until a copy without a load is complete.
TO_COPY = 900
OUT = '/tmp/bench-load.json'  # noqa: S108, on a node of the laboratory
# Of holds that have begun copies as they should, only the first one is logged.
_HOLDS = (
    r'The guest of volume %s leaves .* ([\d.]+) seconds at most',
    r'Holding the requests to volume %s did .* \(([\d.]+) seconds\)')


def parse_regions(status):
    """Return the hydrated share of a clone's status line, 1 if complete."""
    words = status.split()
    if words[2] != 'clone':
        return 1
    hydrated, total = map(int, words[6].split('/'))
    return hydrated / total


def offset(options):
    """Return the first MiB for a load during the copy, as load.command()."""
    return numbered.PLACES + (PART if SOME in options else 0)


def longest_hold(log, volume_id):
    """Return the longest hold of a volume's guest in ms, 0 without one.

    :param log: text of cinder-volume's log
    """
    return 1000 * max((float(seconds) for form in _HOLDS for seconds in
                       re.findall(form % volume_id, log)), default=0)


def promised(at_rest, size, minimum):
    """Return the seconds within which a copy has to be complete.

    :param at_rest: seconds of the copy without a load
    :param size: MiB of the volume
    :param minimum: promised MiB/s, or 0
    """
    return max(TIMES * at_rest, size / minimum if minimum else 0)


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = name.split(', ', 1)
    if name.endswith(NOT_COPIED):
        return None
    if way in ('rate', 'p99', 'longest'):
        return name + NOT_COPIED
    if way == 'seconds':
        return 'seconds, ' + AT_REST if what in LOADS else None
    return 'MiB/s, ' + RAW if name == 'MiB/s, ' + AT_REST else None


@dataclasses.dataclass(frozen=True)
class Waiting:
    """A volume whose copy waits.

    :ivar node: that it is copied to
    :ivar writes: its numbered writes
    """

    volume_id: str
    node: node_module.Node
    path: str
    writes: numbered.Numbered


class Bench(volumes.Volumes):
    """Copies beside each load, and without one."""

    TO_END = 240
    ROUNDS = 2

    def __init__(self, size, seconds, loads, minimum_rate=None, window=None):
        """Remember the options.

        :param size: GiB of the volumes
        :param seconds: of a load on a clone that is not copied
        :param loads: numbers of the loads, from 1
        :param minimum_rate: MiB/s, 0 for none, or None for the default
        :param window: KiB, or None for the nodes' own
        """
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = ratios.Ratios()
        self.source, self.target = list(self.lab.nodes.values())[:2]
        self._size, self._seconds = size, seconds
        self._loads = {name: options for number, (name, options) in enumerate(
            LOADS.items(), 1) if number in loads}
        self._minimum = (MINIMUM_RATE if minimum_rate is None else
                         minimum_rate)
        self._changes = {name: str(value) for name, value in (
            ('dmclone_hydration_min_rate', minimum_rate),
            ('dmclone_hydration_window', window)) if value is not None}
        self._rounds = 0

    @contextlib.contextmanager
    def prepared(self):
        """Have the nodes use the options."""
        with contextlib.ExitStack() as made:
            if self._changes:
                made.enter_context(services.configured(
                    self.lab.nodes.values(), self._changes))
            yield

    def round(self):
        """Measure each load once, and the copies without one in turn."""
        parts = [self._raw_copies, self._at_rest]
        # The first one gets blocks of the disk that were never written.
        for part in parts[::-1] if self._rounds % 2 else parts:
            part()
        self._rounds += 1
        for name, options in self._loads.items():
            self._measure(name, options)

    # Volumes

    @contextlib.contextmanager
    def _waiting(self):
        """Attach a volume whose copy waits; compare its data at the end."""
        with contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            made.callback(services.allow, self.target)
            with self.created_on(self.source):
                volume_id = self.user.create_volume(self._size)['id']
            writes = numbered.Numbered()
            with self.attached(volume_id, self.source) as path:
                for _number in range(3):
                    writes.write(self.source, path)
            services.allow(self.target, 0)
            with self.attached(volume_id, self.target) as path:
                writes.write(self.target, path)
                yield Waiting(volume_id, self.target, path, writes)
                self.hydrated(volume_id, TO_COPY)
                writes.compare(self.target, path)

    def _copy(self, volume, limit, options=None):
        """Let a volume be copied, with a load; see during_copy.measure()."""
        words = [volume.path.rpartition('/')[2] + '-clone', '%d' % limit, OUT]
        if options:
            words.append(shlex.quote(load.command(
                volume.path, int(limit) + 2 * during_copy.TO_REPLACE,
                options, offset=offset(options))))
        with concurrent.futures.ThreadPoolExecutor(
                1, initializer=self.lab.enter) as pool:
            job = pool.submit(
                volume.node.run, '. /lab/node.env; cd $CHECKOUT; '
                'PYTHONDONTWRITEBYTECODE=1 $VENV/bin/python -W ignore -m '
                'lab.bench.during_copy ' + ' '.join(words),
                timeout=limit + during_copy.TO_BEGIN +
                during_copy.TO_REPLACE + 2 * during_copy.TO_END)
            services.allow(volume.node)
            return json.loads(job.result())

    # Without a load

    def _at_rest(self):
        with self._waiting() as volume:
            found = self._copy(volume, TO_COPY)
            assert found['share'] == 1, found
            self.results.note('seconds, ' + AT_REST, found['seconds'])
            self.results.note('MiB/s, ' + AT_REST,
                              self._size * 1024 / found['seconds'])

    def _raw_copies(self):
        """Copy a logical volume over a session, without a clone."""
        make = ('lvcreate --yes --wipesignatures n --size %dg --name bench '
                'cinder-volumes' % self._size)
        copy = 'set -o pipefail; dd if=%s bs=1M iflag=direct status=none %s'
        to = 'of=/dev/cinder-volumes/bench oflag=direct conv=fsync'
        with contextlib.ExitStack() as made:
            for node in (self.source, self.target):
                node.run(make)
                made.callback(node.run, 'lvremove --yes cinder-volumes/bench')
            disk = made.enter_context(remote_disk.served(
                self.source, '/dev/cinder-volumes/bench', self.target))
            for what, rest in ((RAW, to), (
                    PIPED, '| dd %s bs=1M iflag=fullblock status=none' % to)):
                start = time.monotonic()
                self.target.run(copy % (disk, rest), timeout=TO_COPY)
                self.results.note('MiB/s, ' + what, self._size * 1024 / (
                    time.monotonic() - start))

    # With one

    def _measure(self, name, options):
        limit = MARGIN * self._promised(-1) + MORE
        with self._waiting() as volume:
            self._measure_without_copy(volume, name, options)
            logged = len(volume.node.log('cinder-volume'))
            with volume.writes.meanwhile(volume.node, volume.path,
                                         self.lab.enter):
                found = self._copy(volume, limit, options)
            log = volume.node.log('cinder-volume')[logged:]
            load.note(self.results, name,
                      load.parse(volume.node.run('cat ' + OUT)))
            for what, value in (
                    ('seconds', found['seconds']),
                    ('copied, %', 100 * found['share']),
                    ('replaced after, seconds', found['after']),
                    ('longest hold, ms', longest_hold(
                        log, volume.volume_id))):
                way, _, unit = what.partition(', ')
                self.results.note('%s, %s%s' % (
                    way, name, unit and ': ' + unit), value)

    def _measure_without_copy(self, volume, name, options):
        with volume.writes.meanwhile(volume.node, volume.path,
                                     self.lab.enter):
            found = load.run(volume.node, volume.path, self._seconds, options)
        status = self.clone_status(volume.node, volume.path)
        assert 'no_hydration' in status, status
        load.note(self.results, name + NOT_COPIED, found)

    def _promised(self, number):
        """Return the seconds that a copy may take, by a round's at rest."""
        return promised(self.results.values['seconds, ' + AT_REST][number],
                        self._size * 1024, self._minimum)

    # Report

    def report(self):
        """Print medians, ratios and what is kept, and save the results."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
        print()
        self.judge()

    def judge(self):
        """Print which promises are kept; return whether all are."""
        values = self.results.values
        kept = [ratios.judge('%s, to the raw copy' % AT_REST, self.results.of(
            'MiB/s, ' + AT_REST, 'MiB/s, ' + RAW)[0], WIRE, least=True)]
        for name in self._loads:
            kept += [
                ratios.judge('copied in time, %, ' + name, min(
                    values['copied, %s: %%' % name]), 100, least=True),
                ratios.judge('seconds by what is promised, ' + name, max(
                    seconds / self._promised(number) for number, seconds in
                    enumerate(values['seconds, ' + name])), 1),
                *(ratios.judge('%s, %s' % (what, name), self._ratio(
                    '%s, %s' % (what, name)), limit, least)
                  for what, limit, least in (('rate', RATE, True),
                                             ('p99', P99, False))),
                ratios.judge('longest hold in ms, ' + name, max(
                    values['longest hold, %s: ms' % name]), HOLD)]
        return all(kept)

    def _ratio(self, name):
        return self.results.of(name, base_of(name))[0]
