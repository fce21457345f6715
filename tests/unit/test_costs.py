# SPDX-License-Identifier: Apache-2.0
"""How many processes and queries the most frequent operations cost.

A larger number needs a reason, a smaller one is written down here. The
queries have some room: each release of Cinder makes its own of one call.
"""

import collections
import functools
import re
from unittest import mock

from cinder.volume import manager

from tests.unit import base

#: The steps that start a process, one each. That of a swap is not a step.
PROCESS = re.compile(r'\w+: ((dmsetup|group|hold|[lpv][vg]\w+) .*|vgs)$')


class CostsTestCase(base.QueriesTestCase):

    def cost(self, act, *args):
        """Do something, and count its processes and queries."""
        self.queries.clear()
        self.cloud.steps.start()
        act(*args)

    def processes(self):
        return [step for step in self.cloud.steps.log if PROCESS.match(step)]

    def assertCost(self, processes, queries):
        """Compare the number of processes, and the most that is asked."""
        self.assertEqual(processes, len(self.processes()), self.processes())
        self.assertLessEqual(len(self.queries), queries)

    @staticmethod
    def restart(node):
        node.start()
        node.cloud.settle()

    def more(self, number):
        """Create volumes, of which each second one is used at home."""
        for each in range(number):
            volume = self.a.create()
            if each % 2:
                self.cloud.attachment(volume, self.a)
                volume.status = 'in-use'
                volume.save()

    def test_attach(self):
        """On both nodes, beside what os-brick and the target start."""
        self.cost(self.cloud.attach, self.volume, self.b)
        self.assertEqual([
            # The request, and what the peer answers before the move.
            'node1: lvs', 'node2: vgs',
            # The export.
            'node1: dmsetup',
            # The logical volume, the metadata, and the tags of the clone.
            'node2: lvcreate', 'node2: lvcreate', 'node2: lvchange',
            # The gate, the source, the clone and the handle.
            'node2: dmsetup', 'node2: dmsetup', 'node2: dmsetup',
            'node2: dmsetup',
            # The seal, the opening, and the question whether it is sealed.
            'node1: lvchange', 'node2: lvchange', 'node1: lvs',
        ], [' '.join(step.split()[:2]) for step in self.processes()])
        self.assertCost(13, 80)

    def test_attach_beside_others(self):
        """Whatever the number of volumes."""
        self.more(6)
        self.cost(self.cloud.attach, self.volume, self.b)
        self.assertCost(13, 80)

    def test_first_write_of_a_guest(self):
        """Until its gate is open, and beside what it does not wait for."""
        self.cloud.attach(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.write(path)
        with mock.patch.object(self.b.activation, 'hydrate'):
            self.cost(self.b.look)
        self.assertFalse(self.b.kernel.get(path + '-gate').suspended)
        # At the same time, on two nodes.
        self.assertEqual(['node1: lvchange', 'node2: lvchange'], [
            ' '.join(step.split()[:2]) for step in self.processes()])
        self.assertCost(2, 35)

    def test_attach_at_home(self):
        self.cost(self.cloud.attach, self.volume, self.a)
        self.assertCost(1, 25)

    def test_completion(self):
        """With the deletion of the source; beside the process of the swap."""
        self.cloud.attach(self.volume, self.b)
        self.b.hydrate()
        self.cost(self.cloud.watch, 3)
        self.assertCost(19, 37)
        self.assertIdle(self.b)

    def test_look_at_rest(self):
        """Whatever the number of volumes."""
        for _ in range(5):
            self.a.create()
        for look in (self.a.look, self.a.look_at_sessions):
            self.cost(look)
            self.assertCost(0, 0)

    def test_minute_at_rest(self):
        """Whatever the number of volumes; the report to the scheduler."""
        for number in (0, 5):
            for _ in range(number):
                self.a.create()
            with self.cloud.on(self.a):
                self.cost(self.a.driver.get_volume_stats, True)
            self.assertCost(2, 8)

    def test_look_while_copies_are_made(self):
        for _ in range(3):
            self.cloud.attach(self.a.create(), self.b)
        for look in (self.b.look, self.b.look_at_sessions, self.b.pace):
            self.cost(look)
            self.assertCost(0, 0)

    def test_pace(self):
        """One privileged call in a second, whatever the number of clones."""
        for number in range(4):
            self.cost(self.b.pace)
            self.assertEqual(bool(number), len(self.cloud.steps.log))
            self.cloud.attach(self.a.create(), self.b)
            self.b.look()

    def test_look_while_copies_wait(self):
        """One query a minute finds out which nodes are drained."""
        for _ in range(6):
            self.cloud.attach(self.a.create(), self.b)
        for queries in (2, 0):
            self.cost(self.b.look)
            self.assertCost(0, queries)
        self.cloud.pass_time(10)
        self.cost(self.b.look)
        self.assertCost(0, 0)

    def test_start(self):
        """Whatever the number of volumes, too, and of their users."""
        for number in (0, 5):
            self.more(number)
            self.cost(self.restart, self.a)
            self.assertCost(7, 12)

    def test_start_after_a_boot(self):
        """One process creates the handles of all volumes at rest."""
        for number in (0, 5):
            self.more(number)
            self.a.reboot()
            # As LVM does while a node boots.
            for volume in self.a.lvm.volumes.values():
                volume['active'] = True
            self.cost(self.restart, self.a)
            self.assertCost(8, 12)

    def start_of_cinder(self):
        """Count the queries of Cinder's own start, after the driver's."""
        self.restart(self.a)
        with mock.patch.object(manager.importutils, 'import_object',
                               return_value=self.a.driver):
            service = manager.VolumeManager(host=self.a.host)
        # It reports to the schedulers, and looks for keys in a thread.
        service.publish_service_capabilities = mock.Mock()
        service._add_to_threadpool = mock.Mock()
        with self.cloud.on(self.a):
            self.cost(functools.partial(service.init_host,
                                        service_id=self.a.service.id))
        self.assertTrue(self.a.driver.initialized)
        return collections.Counter(self.queries)

    def test_start_of_cinder(self):
        """Cinder asks for each attachment, and for no volume.

        In VolumeAttachment._from_db_object, in cinder/objects. The driver asks
        for neither.
        """
        few = self.start_of_cinder()
        self.more(6)
        other = self.start_of_cinder() - few
        self.assertLessEqual(other.pop('BEGIN', 0), 3)
        for query, number in other.items():
            self.assertIn('FROM attachment_specs', query)
            self.assertLessEqual(number, 3)
