# SPDX-License-Identifier: Apache-2.0
"""Measure a node with many volumes: tools/bench scale.

The volumes are logical volumes with one extent each, and rows that are copies
of the row of a volume at rest. Nobody uses them; one more volume is attached
at home and away. Processes and statements are counted, on the node and in the
database, of all that runs there.

Then many real volumes are attached on another node, and threads are counted
there: without clones, while all copies are stopped, with the configured
limits, and when all of them are copied at once. Logical volumes are not
cleared meanwhile, as that would take the most time.
"""

import contextlib
import functools
import time

from lab.bench import counters
from lab.bench import neighbours
from lab.bench import numbered
from lab.bench import ratios
from lab.bench import services
from lab.common import user as user_module
from lab.common import volumes
from lab import errors
from lab import lab
from lab import wait

#: Seconds for which the node is left alone.
IDLE = 60
#: Logical volumes that one command creates.
AT_ONCE = 50
TAG = 'bench-scale'
PATH = 'bench-scale.json'
#: Times that are compared with those of a node with one volume.
WAYS = 'LVM lists all', 'start', 'attach at home', 'attach away'
#: GiB of a volume that is copied: more than it gets meanwhile.
SIZE = 3
#: Requests to Cinder at a time, and attachments.
REQUESTS, ATTACH = 4, 2
#: Seconds until all copies run, and until a volume is copied.
TO_RUN, TO_COPY = 120, 600
# Of all processes of the service: the privileged ones, too.
_PROCESSES = 'for pid in $(cat /sys/fs/cgroup/cinder-volume/cgroup.procs); do '
#: {way: command that prints it}
COMMANDS = {
    'threads of cinder-volume':
        _PROCESSES + 'ls /proc/$pid/task; done | wc -l',
    'threads of the node': 'ls -d /proc/[0-9]*/task/* | wc -l'}
# Fields 14 to 17 of proc_pid_stat(5), in hundredths of seconds; children that
# have ended are in the last two. The name of the program may have spaces.
CPU = _PROCESSES + (
    "sed 's/.*) //' /proc/$pid/stat; done | awk "
    "'{ all += $12 + $13 + $14 + $15 } END { print all / 100 }'")


def insertion(columns, template, ids):
    """Return the statement that copies a row to some ids.

    :param columns: all columns of the table
    :param template: id of the row
    """
    names = ', '.join('`%s`' % name for name in columns)
    values = ', '.join('made.id' if name == 'id' else 'old.`%s`' % name
                       for name in columns)
    return ('INSERT INTO volumes (%s) SELECT %s FROM volumes old, (%s) made '
            "WHERE old.id = '%s'" % (names, values, ' UNION '.join(
                "SELECT '%s' AS id" % each for each in ids), template))


def creation(ids):
    """Return the command that creates logical volumes."""
    # Each one would add a backup of all of LVM's metadata to /etc/lvm/archive.
    return ('for id in %s; do lvcreate -qq --yes --autobackup n --activate n '
            '--zero n --wipesignatures n --extents 1 --addtag %s --name '
            'volume-$id cinder-volumes || exit 1; done' % (' '.join(ids), TAG))


def deletion(ids):
    """Return the statement that removes the copied rows."""
    return 'DELETE FROM volumes WHERE id IN (%s)' % ', '.join(
        "'%s'" % each for each in ids)


def in_parts(ids):
    """Return parts of a list that one command takes."""
    return [ids[start:start + AT_ONCE]
            for start in range(0, len(ids), AT_ONCE)]


def base_of(name):
    """Return the measurement that one is compared with, or None.

    That is the one with a single volume. Counts are not compared.
    """
    way, what = name.split(', ', 1)
    return '%s, 1 volumes' % way if way in WAYS and ': ' not in what else None


class Bench(volumes.Volumes):
    """A node with one volume, with some, and with many."""

    TO_END = 240
    ROUNDS = 1

    def __init__(self, counts, hydrating):
        """Remember the options.

        :param counts: of volumes at rest; 1 is always among them
        :param hydrating: number of volumes that hydrate at once, or 0
        """
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.node = self.lab.node('node1')
        self.peer = self.other(self.node)
        self.results = ratios.Ratios()
        self._counts = sorted({1, *counts})
        self._hydrating = hydrating

    def round(self):
        """Measure all numbers once."""
        for count in self._counts:
            with contextlib.ExitStack() as made:
                made.callback(self.clean_up)
                with self.created_on(self.node):
                    first, used = (self.user.create_volume()['id']
                                   for _ in range(2))
                ids = [user_module.uuid4() for _ in range(count - 1)]
                made.callback(self._remove, ids)
                self._add(first, ids)
                self._measure(used, '%d volumes' % count)
        if self._hydrating:
            with services.configured(self.lab.nodes.values(),
                                     {'volume_clear': 'none'}):
                self._measure_hydrating()

    # Volumes at rest

    def _add(self, template, ids):
        """Add volumes at rest to the node, whose service is stopped then."""
        self.node.stop('cinder-volume')
        columns = [name for name, in self.lab.sql(
            'SELECT column_name FROM information_schema.columns WHERE '
            "table_schema = 'cinder' AND table_name = 'volumes'")]
        for some in in_parts(ids):
            self.node.run(creation(some), timeout=600)
            self.lab.sql(insertion(columns, template, some))
        if ids:
            self.node.run('lvchange -qq --activate y @' + TAG, timeout=1800)

    def _remove(self, ids):
        """Remove what _add() has added."""
        self.node.stop('cinder-volume')
        for some in in_parts(ids):
            self.lab.sql(deletion(some))
            self.node.run('for id in %s; do [ ! -e /dev/mapper/dmclone-$id ] '
                          '|| dmsetup remove dmclone-$id; done' %
                          ' '.join(some), timeout=600)
        if ids:
            self.node.run('lvremove -qq --yes --autobackup n @' + TAG,
                          timeout=1800)
        self.node.start_service('cinder-volume')
        self.node.wait_ready()

    def _measure(self, volume_id, of_some):
        self._timed('LVM lists all, ' + of_some, self.node.run, 'lvs')
        self._count('start, ' + of_some, self._start)
        self._count('%d s at rest, %s' % (IDLE, of_some), time.sleep, IDLE)
        writes = numbered.Numbered()
        for what, node in (('attach at home, ', self.node),
                           ('attach away, ', self.peer)):
            attachment = self._count(what + of_some, self.user.attach,
                                     volume_id, node)
            path = user_module.path(attachment)
            writes.compare(node, path)
            writes.write(node, path)
            if node is not self.node:
                self.hydrated(volume_id, TO_COPY)
                writes.compare(node, path)
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')

    def _start(self):
        self.node.start_service('cinder-volume')
        self.node.wait_ready(timeout=900)

    def _timed(self, what, function, *args):
        """Measure the time of a call; return its result."""
        start = time.monotonic()
        result = function(*args)
        self.results.note(what, time.monotonic() - start)
        return result

    def _count(self, what, function, *args):
        """Measure the time, the processes and the statements of a call."""
        before = counters.read(self.lab, self.node)
        result = self._timed(what, function, *args)
        for name, count in counters.read(self.lab, self.node).items():
            self.results.note('%s: %s' % (what, name), count - before[name])
        return result

    # Volumes that hydrate

    def _measure_hydrating(self):
        """Measure a node with many clones."""
        count = self._hydrating
        with contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            for node in (self.node, self.peer):
                made.callback(services.allow, node)
            quota = '/os-quota-sets/' + self.user.cloud.current_project_id
            made.callback(self.user.as_admin, 'DELETE', quota)
            self.user.as_admin('PUT', quota, {'quota_set': {
                'volumes': 2 * count + 100}})
            ids = []
            made.callback(self._end_all, ids)
            self._create_all(ids)
            self._look('no clone')
            services.allow(self.peer, 0)
            paths = self._attach_all(ids)
            made.callback(services.allow, self.peer, 0)
            self._look('%d clones that wait' % count)
            services.allow(self.peer)
            self._wait_running(1)
            self._look('%d clones, limits as configured' % count)
            for node in (self.node, self.peer):
                services.allow(node, count)
            self._wait_running(count)
            self._look('%d clones, all copied at once' % count)
            for volume_id, path in paths.items():
                neighbours.compare(self.peer, path, volume_id)

    def _create_all(self, ids):
        def create():
            ids.append(self.user.create_volume(SIZE)['id'])
        with self.created_on(self.node):
            self.at_once(self._hydrating * [create], REQUESTS)

    def _attach_all(self, ids):
        """Attach and mark all volumes; return {id: path}."""
        paths = {}

        def attach(volume_id):
            path = user_module.path(self.user.attach(volume_id, self.peer))
            self.write(self.peer, path, 0, volume_id)
            paths[volume_id] = path
        self.at_once([functools.partial(attach, each) for each in ids],
                     ATTACH)
        return paths

    def _end_all(self, ids):
        self.at_once([functools.partial(self.end_volume, each)
                      for each in ids], REQUESTS)

    def _wait_running(self, wanted):
        """Wait until so many copies run; what has not begun is seen later."""
        with contextlib.suppress(errors.LabError):
            wait.until(lambda: neighbours.running(self.peer)[0] >= wanted,
                       'copies to run', TO_RUN)

    def _look(self, what):
        """Measure the node for some time."""
        for way, command in COMMANDS.items():
            self.results.note('%s, %s' % (way, what), self._number(command))
        before, cpu = counters.read(self.lab, self.peer), self._number(CPU)
        time.sleep(IDLE)
        self.results.note('CPU seconds in %d s, %s' % (IDLE, what),
                          self._number(CPU) - cpu)
        for name, value in counters.read(self.lab, self.peer).items():
            self.results.note('%s in %d s, %s' % (name, IDLE, what),
                              value - before[name])
        self._timed('kernel lists all clones, ' + what, neighbours.running,
                    self.peer)
        running, clones = neighbours.running(self.peer)
        self.results.note('copies that run, ' + what, running)
        self.results.note('clones, ' + what, clones)

    def _number(self, command):
        return float(self.peer.run(command))

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
