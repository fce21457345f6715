# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "A day in operations", on three nodes."""

import contextlib

from lab import wait
from tests.day import outputs
from tests.maintenance import recipes
from tests.scenarios.lib import drains
from tests.scenarios.lib import live

BACKEND = 'dmclone'
SERVICE = 'A node is taken out of service'
DIES = 'A node dies'


class DayTest(recipes.Recipes, drains.Drains, live.OneServerTest):
    """One day, with one instance and two volumes that none has."""

    PAGE = 'admin/day'
    TO_END = 300

    def setUp(self):
        super().setUp()
        self.nodes = list(self.lab.nodes.values())
        self.assertGreaterEqual(len(self.nodes), 3)
        self.outputs = outputs.Outputs(self.PAGE)

    def told(self, block, number, text):
        self.outputs.add(block.section, number, text)

    def of_day(self, section, *parts, at=None, **values):
        """Run the commands of a section, see :meth:`follow`."""
        return self.follow(section, *parts, at=at, BACKEND=BACKEND,
                           SERVER=self.server_id, **values)

    def where(self):
        """Return the node of the instance."""
        return self.lab.node(self.servers.node(self.server_id))

    def test_day(self):
        with self.created_on(self.old):
            other, _home, before = self.filled_volume()
        self.of_day('In the morning')
        self.of_day('A user asks about a volume', VOLUME=self.volume_id)
        self.move_instance()
        self.make_room(other)
        drained = self.drain_and_reboot()
        self.lose_power(drained)
        self.assertEqual('', self.of_day('In the evening'))
        home = self.home(other)
        with self.attached(other, home) as path:
            self.assertEqual(before, self.checksum(home, path))
        self.assert_writes_on(self.where())

    def move_instance(self):
        """Live-migrate it to where Nova chooses; see its volume hydrate."""
        with contextlib.ExitStack() as slow:
            for node in self.nodes:
                if node is not self.old:
                    slow.enter_context(self.slow_network(node, mbit=60))
            said = self.of_day('An instance is moved', 0, 1, 2,
                               VOLUME=self.volume_id)
            self.assertIsNot(self.old, self.where())
            self.assertIn('do not switch that node off', said)
        self.of_day('An instance is moved', 3)
        self.assertEqual([], self.placeholders(self.volume_id))

    def make_room(self, volume_id):
        """Move a volume to the node that has neither it nor the instance."""
        there = next(node for node in self.nodes
                     if node not in (self.old, self.where()))
        self.of_day('A node has little room', at=self.old, VOLUME=volume_id,
                    THERE=there.name)
        self.assertIs(there, self.home(volume_id))

    def drain_and_reboot(self):
        """Drain the node of the instance; return it when it is back."""
        node = self.where()
        names = {'at': node, 'NODE': node.name}
        self.addCleanup(self.enable, node)
        planned = self.of_day(SERVICE, 0, **names)
        self.assertIn('live-migrate it', planned)
        # It still gets new volumes and instances.
        self.assertIn('exit code 1', planned)
        self.assertIn('done: instance', self.of_day(SERVICE, 1, **names))
        self.assertIsNot(node, self.where())
        self.assertEqual([], self.placeholders(self.volume_id))
        self.of_day(SERVICE, 2, 3, **names)
        said = self.of_day(SERVICE, 4, 5, **names)
        self.assertEqual(len(self.nodes), said.count(' up '), said)
        self.assertNotIn(' disabled ', said)
        return node

    def lose_power(self, node):
        """Cut a node's power while a volume is copied from it."""
        with self.created_on(node):
            volume_id, home, before = self.filled_volume()
        self.assertIs(node, home)
        there = self.other(node)
        with self.slow_network(there, mbit=20):
            self.assertEqual(0, self.command(there, 'move', volume_id,
                                             there.name)[0])
            node.cut_power()
            wait.until(lambda: 'FAILED' in there.run(
                'cat /sys/class/iscsi_session/*/state'),
                'the session to be lost', 60)
            for part in (self.of_day(DIES, 0, at=node, VOLUME=volume_id),
                         self.of_day(DIES, 1, at=node, VOLUME=volume_id)):
                self.assertIn('exit code 1', part)
            node.start()
            node.wait_ready()
        self.of_day(DIES, 2, at=node, VOLUME=volume_id)
        self.assertEqual([], self.placeholders(volume_id))
        with self.attached(volume_id, there) as path:
            self.assertEqual(before, self.checksum(there, path))
