# SPDX-License-Identifier: Apache-2.0
"""The verbs of dmclone that only read: what they leave as it is."""

import shlex

from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow

#: Holds all locks of volumes on a node until it is killed.
HOLD = '''
import fcntl, glob, time
held = [open(path, "r+") for path in glob.glob("/var/lib/cinder/cinder-*")]
for each in held:
    fcntl.lockf(each, fcntl.LOCK_EX)
open("/run/held", "w").write(str(len(held)))
time.sleep(120)
'''
#: Prints what a change of LVM, of a device or a request to one would change:
#: of the requests the writes, discards and flushes
#: (Documentation/block/stat.rst).
ON_NODE = ('vgs --noheadings -o vg_name,vg_seqno; dmsetup table; dmsetup info '
           '-c --noheadings -o name,open,segments,events,suspended; cd '
           '/sys/block; for dev in dm-*; do echo $(cat $dev/dm/name) '
           "$(awk '{print $5, $12, $16}' $dev/stat); done")
READING = (('status',), ('status', '--format', 'json'), ('show', '{volume}'),
           ('pace', '{node}'), ('drain', '--plan', '{node}'), ('check',),
           ('reconcile', 'dmclone', '--left-behind'))
#: It waits for requests that are under way: what they make is no leftover.
LOCKING = ('reconcile', 'dmclone')


@slow
class ReadingTest(base.TwoAttachmentsTest):
    """They change nothing, and all but one wait for nobody's lock.

    A live migration is prepared meanwhile: a gate is closed, and nothing is
    being copied.
    """

    def setUp(self):
        super().setUp()
        self.addCleanup(self.user.delete_snapshot,
                        self.user.create_snapshot(self.volume_id))

    def everything(self):
        """Return what is on the nodes' disks and in the database."""
        tables = [name for name, in self.lab.sql('SHOW TABLES')
                  # It has the heartbeats.
                  if name != 'services']
        return {
            'database': self.lab.sql('CHECKSUM TABLE ' + ', '.join(tables)),
            **{node.name: node.run(ON_NODE).splitlines()
               for node in self.lab.nodes.values()}}

    def read(self, *verbs):
        """Call verbs on a node."""
        for words in verbs:
            words = [word.format(volume=self.volume_id, node=self.old.name)
                     for word in words]
            code, lines, error = self.command(self.new, 'dmclone', *words,
                                              timeout=30)
            self.assertIn(code, (0, 1), (words, error))
            self.assertTrue(lines or words[0] == 'reconcile', words)

    def hold_locks(self, node):
        """Hold the locks of all volumes on a node, until the test ends."""
        process = node.run('setsid python3 -c %s > /dev/null 2>&1 '
                           '< /dev/null & echo $!' % shlex.quote(HOLD))
        self.addCleanup(node.run, 'kill %s; rm -f /run/held'
                        % process.strip())
        wait.until(lambda: node.try_run('test -s /run/held')[0] == 0,
                   'the locks to be held', 10)

    def test_nothing_changes(self):
        before = self.everything()
        self.read(*READING, LOCKING)
        self.assertEqual(before, self.everything())
        for node in self.lab.nodes.values():
            self.hold_locks(node)
        self.assertNotEqual('0', self.old.run('cat /run/held'))
        self.read(*READING)
        self.assertEqual(before, self.everything())
        self.assert_passive()
