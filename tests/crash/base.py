# SPDX-License-Identifier: Apache-2.0
"""Base of tests with many small volumes that stop at steps of flows."""

import json
import os

from dmclone_driver.node.names import Names
from lab.common import leftovers
from lab import paths
from lab import wait
from tests.crash import cases
from tests.crash import stops
from tests.scenarios.lib import base

#: On the host; mounted on the nodes as stops.ON_NODE.
FOLDER = paths.STATE / 'crash'
#: Seconds until a move without an attachment is aborted. It is longer than
#: volumes are stopped, so that only the injected fault has an effect.
TO_PREPARE = 150
OPTIONS = {'volume_driver': 'tests.crash.driver.StoppingDriver',
           'dmclone_prepare_timeout': str(TO_PREPARE),
           # Many volumes move at a time, and some of them stop.
           'dmclone_copies_at_once': '1000',
           # A deletion would clear the nominal size, which is larger.
           'volume_clear_size': str(stops.MIB)}

# Write to each volume, and print those that refuse the write.
_USE = r"""
use() { dd if=/dev/zero of=$1 bs=4096 count=1 oflag=direct \
    conv=nocreat,notrunc,fsync status=none || echo $1; }
"""
_ON_NODE = '%s/bin/python %s/tests/crash/on_node.py {0} %d %d' % (
    paths.VENV, paths.CHECKOUT, stops.MIB << 20, 4096 * cases.GUEST_BLOCK)


class StoppingTest(base.SetupTest):
    """A test with a home and a peer, with the driver that stops volumes."""

    #: Options of the backend on both nodes.
    OPTIONS = OPTIONS

    def setUp(self):
        super().setUp()
        self.home, self.peer = list(self.lab.nodes.values())[:2]
        FOLDER.mkdir(exist_ok=True)
        for name in os.listdir(FOLDER):
            (FOLDER / name).unlink()
        for node in (self.home, self.peer):
            node.run('mkdir -p {0}; mountpoint -q {0} || mount -t hostfs '
                     'none {0} -o {1}'.format(stops.ON_NODE, FOLDER))
        stopping = self.configured(self.OPTIONS, self.home, self.peer)
        stopping.__enter__()
        self.addCleanup(stopping.__exit__, None, None, None)
        # Also after a failure, with the driver that created the volumes.
        self.addCleanup(self.clean_up)
        self.addCleanup(stops.go_on, FOLDER)

    def clean_up(self):
        """Delete what a failed test has left, snapshots first."""
        for snapshot_id, in self.lab.sql(
                "SELECT id FROM snapshots WHERE deleted = 0"):
            path = '/snapshots/%s' % snapshot_id
            self.user.as_admin('POST', path + '/action', {
                'os-reset_status': {'status': 'error'}})
            self.user.as_admin('DELETE', path)
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM snapshots WHERE deleted = 0"),
            'all snapshots to be gone', self.TO_END)
        super().clean_up()

    def create(self, all_cases):
        """Create a volume on the home for each case."""
        with self.created_on(self.home):
            for case in all_cases:
                case.volume_id = self.user.request('POST', '/volumes', {
                    'volume': {'size': 1, 'name': case.name}})['volume']['id']
            wait.until(lambda: not self.lab.sql(
                "SELECT id FROM volumes WHERE deleted = 0 AND status = "
                "'creating'"), 'all volumes', 180)

    def fill(self, all_cases):
        """Fill the volumes on the home; returns their parts' checksums.

        Thin volumes keep a gap, in which the guest's block is. It is small,
        so that they hydrate nearly as long as thick ones.
        """
        action = 'fill-ends' if self.lab.settings.thin else 'fill'
        self.home.run(_ON_NODE.format(action), timeout=180, input=''.join(
            '%s %s\n' % (case.volume_id, Names(case.volume_id).path())
            for case in all_cases))
        return self.parts()

    def parts(self):
        """Return {volume id: checksums of its parts}, read on the homes."""
        found = {}
        for node, paths_of in self.paths():
            found.update(self.parts_on(node, paths_of))
        return found

    def parts_of(self, volume_id):
        """Return the checksums of a volume's parts, read on its home."""
        for node, paths_of in self.paths():
            if volume_id in paths_of:
                return self.parts_on(node, {
                    volume_id: paths_of[volume_id]})[volume_id]
        raise AssertionError('there is no volume ' + volume_id)

    @staticmethod
    def parts_on(node, paths_of):
        """Return {name: checksums of its parts} of devices on a node.

        :param paths_of: {name: path}
        """
        found, lines = {}, ''.join(
            '%s %s\n' % item for item in paths_of.items())
        for line in node.run(_ON_NODE.format('parts'), timeout=180,
                             input=lines).splitlines():
            name, *sums = line.split()
            found[name] = sums
        return found

    def paths(self):
        """Return pairs of a node and {volume id: path} of its volumes."""
        rows = self.lab.sql(
            "SELECT id, COALESCE(_name_id, id), host FROM volumes "
            "WHERE deleted = 0 AND host IS NOT NULL AND "
            "COALESCE(replication_driver_data, '') NOT LIKE '{%'")
        return [(node, {row[0]: Names(row[1]).path() for row in rows
                        if row[2].startswith(node.name + '@')})
                for node in (self.home, self.peer)]

    def at_rest(self):
        """Check that all volumes are writable, and without leftovers."""
        with self.subTest('all volumes can be written'):
            self.assertEqual('', ''.join(
                node.run(_USE + '\n'.join(
                    'use ' + path for path in paths_of.values()), timeout=180)
                for node, paths_of in self.paths()))
        with self.subTest('there are no leftovers'):
            wait.until(lambda: not leftovers.beside_volumes(self.lab),
                       'leftovers to be gone', TO_PREPARE, log=lambda:
                       '\n'.join(leftovers.beside_volumes(self.lab)))

    def states(self):
        """Return {volume id: [its row, its placeholders' rows]}."""
        found = {}
        for row in self.lab.sql(
                "SELECT id, status, migration_status, "
                "replication_driver_data FROM volumes WHERE deleted = 0"):
            data = row[3] or ''
            owner = (json.loads(data)['volume'] if data.startswith('{') else
                     row[0])
            found.setdefault(owner, []).append(row)
        return found

    def compare_parts(self, originals, now, written, acknowledged):
        """Compare the parts before, in and after the guest's block."""
        self.assertEqual((originals[0], originals[2]), (now[0], now[2]))
        self.assertIn(now[1], [written] if acknowledged else
                      [originals[1], written])

    def written(self, volume_id):
        return self.home.run('yes %s | head -c 4096 | sha256sum'
                             % volume_id).split()[0]
