# SPDX-License-Identifier: Apache-2.0
"""Measure a node with many volumes: tools/bench scale.

The volumes are logical volumes with one extent each, and rows that are copies
of the row of a volume at rest. Nobody uses them; one more volume is attached
at home and away. Processes are counted of all that runs on the node, and
statements of all that asks the database, and of the node's services.

LVM activates the volumes before, as at a boot. That takes the time and the
processes of LVM and of udev for one device of each volume, with which those
of the start are compared: it creates another one, the handle. The second
start creates none.

Then many real volumes are attached on another node, and threads are counted
there: without clones, while all copies are stopped, with the configured
limits, and when all of them are copied at once. Logical volumes are not
cleared meanwhile, as that would take the most time.
"""

import contextlib
import functools
import shutil
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
from lab import machine
from lab import paths
from lab import wait

#: Seconds for which the node is left alone.
IDLE = 60
#: Logical volumes that one command creates.
AT_ONCE = 50
TAG = 'bench-scale'
#: The results of volumes at rest, and those of clones.
PATH, CLONES_PATH = 'bench-scale.json', 'bench-scale-clones.json'
#: Times that are compared with those of a node with one volume.
WAYS = ('LVM lists all', 'start', 'start again', 'attach at home',
        'attach away')
#: GiB of a volume that is copied: more than it gets meanwhile.
SIZE = 3
#: Requests to Cinder at a time, and attachments.
REQUESTS, ATTACH = 4, 2
#: Seconds until a service is ready, until all copies run, and until a volume
#: is copied.
TO_START, TO_RUN, TO_COPY = 900, 120, 600
#: GiB of the machine's disk that all copies take until they are stopped, at
#: 200 MiB per second, and that stay free.
COPIED, SPARE = 45, 10
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


def require_room(hydrating, machine_free):
    """Check that there is room for the volumes that hydrate.

    :param hydrating: their number
    :param machine_free: free GiB of the disk that has the nodes' disks
    :raises LabError: if there is not
    """
    # A hundredth is for metadata, and for the volumes of the other parts.
    most = int(0.99 * machine.DATA_BYTES / 2 ** 30 / SIZE)
    if hydrating > most:
        raise errors.LabError('%d volumes of %d GiB fit into the volume group '
                              'of a node, not %d' % (most, SIZE, hydrating))
    needed = min(hydrating * SIZE, COPIED) + SPARE
    if hydrating and machine_free < needed:
        raise errors.LabError('copies need %d GiB of the disk of this '
                              'machine, and %d are free' % (
                                  needed, machine_free))


def in_parts(ids):
    """Return parts of a list that one command takes."""
    return [ids[start:start + AT_ONCE]
            for start in range(0, len(ids), AT_ONCE)]


def base_of(name):
    """Return the measurement that one is compared with, or None.

    That is the one with a single volume. Counts are not compared.
    """
    way, what = name.split(', ', 1)
    return '%s, 1 volume' % way if way in WAYS and ': ' not in what else None


def is_of_rest(name):
    """Whether a measurement is one of volumes at rest, and not of clones."""
    return ratios.parts(name)[1].endswith((' volume', ' volumes'))


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
        # Before the hour that the other parts may take.
        require_room(hydrating,
                     shutil.disk_usage(paths.NODES).free / 2 ** 30)

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
                self._measure(used, ids, '1 volume' if count == 1 else
                              '%d volumes' % count)
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

    def _activate(self):
        """Have LVM activate what _add() has added, and wait for udev."""
        self.node.run('lvchange -qq --activate y @%s && udevadm settle '
                      '--timeout=600' % TAG, timeout=1800)

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

    def _measure(self, volume_id, ids, of_some):
        if ids:
            self._count('LVM activates all, ' + of_some, self._activate)
        self._timed('LVM lists all, ' + of_some, self.node.run, 'lvs')
        self._count('start, ' + of_some, self._start)
        self.node.stop('cinder-volume')
        self._count('start again, ' + of_some, self._start)
        rest, cpu = '%d s at rest, %s' % (IDLE, of_some), self._cpu(self.node)
        self._count(rest, time.sleep, IDLE)
        self.results.note(rest + ': CPU seconds of cinder-volume',
                          self._cpu(self.node) - cpu)
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
        """Start the service, and look for its end without a process there."""
        self.node.start_service('cinder-volume')
        wait.until(self.node.driver_ready, 'cinder-volume to be ready',
                   TO_START)

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
        """Wait until so many copies run, or all that are not complete.

        What has not begun is seen later.
        """
        def run():
            running, clones = neighbours.running(self.peer)
            return running >= min(wanted, clones)
        with contextlib.suppress(errors.LabError):
            wait.until(run, 'copies to run', TO_RUN)

    def _look(self, what):
        """Measure the node for some time."""
        for way, command in COMMANDS.items():
            self.results.note('%s, %s' % (way, what),
                              int(self.peer.run(command)))
        before, cpu = counters.read(self.lab, self.peer), self._cpu(self.peer)
        time.sleep(IDLE)
        self.results.note('CPU seconds in %d s, %s' % (IDLE, what),
                          self._cpu(self.peer) - cpu)
        for name, value in counters.read(self.lab, self.peer).items():
            self.results.note('%s in %d s, %s' % (name, IDLE, what),
                              value - before[name])
        self._timed('kernel lists all clones, ' + what, neighbours.running,
                    self.peer)
        running, clones = neighbours.running(self.peer)
        self.results.note('copies that run, ' + what, running)
        self.results.note('clones, ' + what, clones)

    @staticmethod
    def _cpu(node):
        """Return the seconds that cinder-volume has used on a node."""
        return float(node.run(CPU))

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(base_of)
        self.results.save(PATH, base_of, is_of_rest)
        if self._hydrating:
            self.results.save(CLONES_PATH, base_of,
                              lambda name: not is_of_rest(name))
