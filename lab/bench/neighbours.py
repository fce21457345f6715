# SPDX-License-Identifier: Apache-2.0
"""Measure what copies cost other guests: tools/bench neighbours.

Many volumes are attached on a node while its copies are stopped, and a load
runs there on a volume that was never elsewhere. The load is measured in turn
while nothing is copied, and while all of them are copied as the node's limits
allow, or with less bandwidth. None of the volumes becomes complete meanwhile,
they are large enough.
"""

import contextlib
import functools
import time

from dmclone_driver.move import pace
from dmclone_driver.node.devicemapper import status
from lab.bench import load
from lab.bench import numbered
from lab.bench import ratios
from lab.bench import services
from lab.common import user as user_module
from lab.common import volumes
from lab import lab
from lab import wait

#: GiB of a volume that is copied, of which little is, and of the one with the
#: load.
SIZE, OTHER = 8, 1
LOAD = '--rw=randrw --rwmixread=70 --iodepth=4 --size=256m'
#: How often both are measured in a round.
TURNS = 3
#: Requests to Cinder at a time, and attachments.
AT_ONCE, ATTACH = 4, 2
#: Promised: the p99 becomes no longer than that.
P99 = 1.2
PATH = 'bench-neighbours.json'
#: In the name of what a measurement is compared with.
ALONE = ': alone'
#: Times a bandwidth that copies may have had when they count as slow.
MORE = 1.25
#: Seconds until copies have begun or stopped, in which they begin to keep to a
#: bandwidth, and until they are as slow as they should.
TO_TURN, BEGIN, TO_SLOW = 90, 5, 240


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    return (None if name.endswith(ALONE) or
            name.startswith(('copies', 'copied')) else name + ALONE)


class Bench(volumes.Volumes):
    """A load beside copies of other volumes, and without them."""

    TO_END = 240
    ROUNDS = 1

    def __init__(self, copies, at_once, seconds, bandwidths=()):
        """Remember the options.

        :param copies: number of the volumes that are copied
        :param at_once: how many at a time; None for the configured number
        :param seconds: of a load
        :param bandwidths: of all copies together, each measured in turn; the
            configured one always is
        """
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = ratios.Ratios()
        self.source, self.node = list(self.lab.nodes.values())[:2]
        self._copies, self._seconds = copies, seconds
        self._at_once = at_once
        self._bandwidths = {'%d copies' % copies: None, **{
            '%d copies with %s' % (copies, each): each
            for each in bandwidths}}

    def round(self):
        """Measure everything once, in turns."""
        with contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            made.callback(services.allow, self.node)
            with self.created_on(self.node):
                used = self.user.create_volume(OTHER)['id']
            copied = self._written()
            made.callback(self._end_all, copied)
            if self._at_once:
                # Both nodes have a limit.
                made.callback(services.allow, self.source)
                services.allow(self.source, self._at_once)
            services.allow(self.node, 0)
            paths = self._attach_all(copied)
            made.callback(services.allow, self.node, 0)
            with self.attached(used, self.node) as path:
                self._measure(path, numbered.Numbered())
            # The data that is not copied yet is read from its source.
            for volume_id, each in paths.items():
                compare(self.node, each, volume_id)

    def _written(self):
        """Create the volumes that are copied later, each with its mark."""
        made = []
        with self.created_on(self.source):
            self.at_once([functools.partial(self._create, made)
                          for _number in range(self._copies)], AT_ONCE)
        for volume_id in made:
            with self.attached(volume_id, self.source) as path:
                self.write(self.source, path, 0, volume_id)
        return made

    def _create(self, made):
        made.append(self.user.create_volume(SIZE)['id'])

    def _attach_all(self, copied):
        """Attach them on the other node; return {id: path}."""
        paths = {}

        def attach(volume_id):
            paths[volume_id] = user_module.path(
                self.user.attach(volume_id, self.node))
        self.at_once([functools.partial(attach, each) for each in copied],
                     ATTACH)
        return paths

    def _measure(self, path, writes):
        writes.write(self.node, path)
        # The first writes to a sparse file last longer.
        load.run(self.node, path, self._seconds, LOAD)
        for _turn in range(TURNS):
            for what, bandwidth in self._bandwidths.items():
                self._load(path, writes, what + ALONE)
                self._load_beside(path, writes, what, bandwidth)
        writes.compare(self.node, path)

    def _load_beside(self, path, writes, what, bandwidth):
        """Measure the load while volumes are copied."""
        services.allow(self.node, self._at_once, bandwidth)
        wait.until(lambda: self._running()[0], 'copies to begin', TO_TURN)
        if bandwidth:
            # They begin with a window each, and pause until that is saved.
            time.sleep(BEGIN)
            before, since = copied(self.node), time.monotonic()
            wait.until(lambda: keeps_to(
                bandwidth, copied(self.node) - before,
                time.monotonic() - since), 'copies to be slow', TO_SLOW)
            paused = copied(self.node)
            wait.until(lambda: copied(self.node) > paused,
                       'copies to go on', TO_SLOW)
        begun = copied(self.node)
        self._load(path, writes, what)
        done = copied(self.node) - begun
        self.results.note('copied, %s: MiB/s' % what, done / self._seconds)
        running, clones = self._running()
        self.results.note('copies that run at the end', running)
        self.results.note('copies under way at the end', clones)
        assert clones == self._copies and running and done > 0, (
            running, clones, done)
        services.allow(self.node, 0)
        wait.until(lambda: not self._running()[0], 'copies to stop', TO_TURN)

    def _load(self, path, writes, what):
        with writes.meanwhile(self.node, path, self.lab.enter):
            found = load.run(self.node, path, self._seconds, LOAD)
        load.note(self.results, what, found)

    def _running(self):
        """Return the numbers of clones that copy, and of all."""
        return running(self.node)

    def _end_all(self, copied):
        self.at_once([functools.partial(self.end_volume, each)
                      for each in copied], AT_ONCE)

    def report(self):
        """Print medians, ratios and what is kept, and save the results."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
        print()
        for what in self._bandwidths:
            name = 'p99, ' + what
            ratios.judge(name, self.results.of(name, base_of(name))[0], P99)


def running(node):
    """Return the numbers of a node's clones that copy, and of all."""
    clones = _clones(node)
    return sum('no_hydration' not in line for line in clones), len(clones)


def copied(node):
    """Return the MiB of the regions that a node's clones have."""
    # A line begins with the name and a colon.
    found = [status.clone(line.partition(': ')[2]) for line in _clones(node)]
    return sum(each.hydrated * each.region for each in found) / 2048


def keeps_to(bandwidth, done, seconds):
    """Return whether copies have been about as slow as a bandwidth.

    They are never below it for long: each pauses until its last window is
    saved, and then copies the next one.

    :param bandwidth: such as ``4MiB``
    :param done: MiB that were copied
    :param seconds: in which that was done
    """
    rate = pace.Bandwidth.parse(bandwidth).rate
    # A share of the link is unknown here.
    return rate is None or (
        done * numbered.MIB <= MORE * rate * seconds)


def _clones(node):
    """Return the status of each clone, a line of dmsetup."""
    lines = node.run("dmsetup status --noflush --target clone").splitlines()
    return [line for line in lines if ' clone ' in line]


def compare(node, path, volume_id):
    """Compare the first MiB of a volume with its id, see Volumes.write().

    :raises AssertionError: if there is anything else
    """
    found = node.run('dd if=%s bs=1M count=1 iflag=direct status=none | '
                     'head -c %d | uniq' % (path, 1000 * (len(volume_id) + 1)))
    assert found.split() == [volume_id], (volume_id, found)
