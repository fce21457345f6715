# SPDX-License-Identifier: Apache-2.0
"""The reading verbs of dmclone, while a volume hydrates and at rest."""

import json
import shlex

from lab.common import commands
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import named

#: Runs a command of the shell on a terminal with some number of columns.
ON_TERMINAL = ("python3 -c 'import os, pty, sys; sys.exit("
               'os.waitstatus_to_exitcode(pty.spawn(["bash", "-c", '
               '"stty columns %d; " + sys.argv[1]])))\' %s')


class StatusTest(base.HydratingTest):

    def dmclone(self, *arguments):
        """Run a verb on the node that does not hydrate."""
        code, lines, error = self.command(self.node, 'dmclone', *arguments)
        self.assertEqual('', error)
        return code, '\n'.join(lines)

    def on_terminal(self, columns, *arguments):
        """Run a verb on a terminal; return the lines that it shows."""
        return self.node.run(ON_TERMINAL % (columns, shlex.quote(
            commands.line('dmclone', *arguments)))).splitlines()

    def nodes(self):
        """Return the nodes by name, as "status" reports them."""
        code, text = self.dmclone('status', '--format', 'json')
        found = {each['Node']: each for each in json.loads(text)}
        self.assertEqual({'ok'}, {each['State'] for each in found.values()})
        return code, {name.partition('@')[0]: each
                      for name, each in found.items()}

    def arriving(self):
        """Return the move to the peer once something of it was copied."""
        _code, nodes = self.nodes()
        moves = [each for each in nodes[self.peer.name]['Arriving']
                 if each['volume'] == self.volume_id]
        return moves if moves and moves[0]['copied'] else None

    @named
    def test_hydrating(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            move, = wait.until(self.arriving, 'the move to be reported', 60)
            self.assertEqual(
                ('hydrating', '', self.node.name, self.peer.name),
                (move['state'], move['waits'],
                 move['source'].partition('@')[0],
                 move['destination'].partition('@')[0]))
            self.assertLess(move['copied'], move['size'])
            code, nodes = self.nodes()
            self.assertEqual(0, code)
            self.assertEqual([self.volume_id], [
                each['volume'] for each in nodes[self.node.name]['Sources']])
            code, text = self.dmclone('status')
            self.assertEqual((0, True), (code, self.volume_id in text))
            self.assertNotIn('[#', text)
            wide, narrow = (self.on_terminal(columns, 'status')
                            for columns in (100, 60))
            self.assertIn('[#', '\n'.join(wide))
            self.assertLessEqual(max(map(len, wide)), 100)
            self.assertLessEqual(max(map(len, narrow)), 60)
            code, text = self.dmclone('show', self.volume_id)
            self.assertEqual(0, code, text)
            self.assertIn('Its home is %s@dmclone' % self.peer.name, text)
            code, text = self.dmclone('drain', '--plan', self.node.name)
            self.assertEqual(1, code)
            self.assertIn(self.volume_id, text)
        code, text = self.dmclone('watch', '--until-complete')
        self.assertEqual(0, code, text)
        self.hydrated(self.volume_id, 10)
        self.assertEqual(expected, self.checksum(self.peer, path))
        code, text = self.dmclone('show', self.volume_id)
        self.assertEqual(0, code)
        self.assertIn('No move is under way', text)
