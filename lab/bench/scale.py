# SPDX-License-Identifier: Apache-2.0
"""Measure a node with many volumes: tools/bench scale.

The volumes are logical volumes with one extent each, and rows that are copies
of the row of a volume at rest. Nobody uses them; one more volume is attached
at home and away. Processes and statements are counted, on the node and in the
database, of all that runs there.
"""

import contextlib
import time

from lab.bench import counters
from lab.bench import measurements
from lab.bench import numbered
from lab.common import user as user_module
from lab.common import volumes
from lab import lab

COUNTS = (1, 100, 1000)
#: Seconds for which the node is left alone.
IDLE = 60
#: Logical volumes that one command creates.
AT_ONCE = 50
TAG = 'bench-scale'


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
    return ('for id in %s; do lvcreate -qq --yes --wipesignatures n '
            '--extents 1 --addtag %s --name volume-$id cinder-volumes || '
            'exit 1; done' % (' '.join(ids), TAG))


def deletion(ids):
    """Return the statement that removes the copied rows."""
    return 'DELETE FROM volumes WHERE id IN (%s)' % ', '.join(
        "'%s'" % each for each in ids)


def in_parts(ids):
    """Return parts of a list that one command takes."""
    return [ids[start:start + AT_ONCE]
            for start in range(0, len(ids), AT_ONCE)]


class Bench(volumes.Volumes):
    """A node with one volume, with some, and with many."""

    def __init__(self):
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.node = self.lab.node('node1')
        self.results = measurements.Measurements()

    def round(self):
        """Measure all numbers once."""
        for count in COUNTS:
            with contextlib.ExitStack() as made:
                made.callback(self.clean_up)
                with self.created_on(self.node):
                    first, used = (self.user.create_volume()['id']
                                   for _ in range(2))
                ids = [user_module.uuid4() for _ in range(count - 1)]
                made.callback(self._remove, ids)
                self._add(first, ids)
                self._measure(used, ', %d volumes' % count)

    def _add(self, template, ids):
        """Add volumes at rest to the node, whose service is stopped then."""
        self.node.stop('cinder-volume')
        columns = [name for name, in self.lab.sql(
            'SELECT column_name FROM information_schema.columns WHERE '
            "table_schema = 'cinder' AND table_name = 'volumes'")]
        for some in in_parts(ids):
            self.node.run(creation(some), timeout=600)
            self.lab.sql(insertion(columns, template, some))

    def _remove(self, ids):
        """Remove what _add() has added."""
        self.node.stop('cinder-volume')
        for some in in_parts(ids):
            self.lab.sql(deletion(some))
            self.node.run('for id in %s; do dmsetup remove dmclone-$id || '
                          'true; done' % ' '.join(some), timeout=600)
        if ids:
            self.node.run('lvremove -qq --yes @' + TAG, timeout=1800)
        self.node.start_service('cinder-volume')
        self.node.wait_ready()

    def _measure(self, volume_id, of_some):
        self.results.timed('LVM lists all' + of_some, self.node.run, 'lvs')
        self._count('start' + of_some, self._start)
        self._count('%d s at rest%s' % (IDLE, of_some), time.sleep, IDLE)
        writes = numbered.Numbered()
        for what, node in (('attach at home', self.node),
                           ('attach away', self.other(self.node))):
            attachment = self._count(what + of_some, self.user.attach,
                                     volume_id, node)
            path = user_module.path(attachment)
            writes.compare(node, path)
            writes.write(node, path)
            if node is not self.node:
                self.hydrated(volume_id)
                writes.compare(node, path)
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')

    def _start(self):
        self.node.start_service('cinder-volume')
        self.node.wait_ready(timeout=900)

    def _count(self, what, function, *args):
        """Measure the time, the processes and the statements of a call."""
        before = counters.read(self.lab, self.node)
        result = self.results.timed(what, function, *args)
        for name, count in counters.read(self.lab,
                                         self.node).items():
            self.results.note('%s: %s' % (what, name), count - before[name],
                              name)
        return result

    def report(self):
        """Print medians, spreads and ratios."""
        few, *more = (', %d volumes' % count for count in COUNTS)
        self.results.report((what + many, what + few) for many in more
                            for what in ('start', 'attach at home',
                                         'attach away'))
