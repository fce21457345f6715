# SPDX-License-Identifier: Apache-2.0
"""The moments at which processes are killed: none is left out."""

from tests.unit import base
from tests.unit.fakes import moments


class MomentsTestCase(base.CloudTestCase):

    def different(self, *actions):
        """Act; return (what step, whether it is done) of each moment."""
        seen = moments.Moments(self.cloud)
        self.cloud.steps.start()
        with seen.recorded():
            for action in actions:
                action()
        return [(moment.step, moment.done) for moment in seen.different()]

    def step(self, what, node='node1', function=lambda: None):
        return lambda: self.cloud.steps.run(
            node + ': ' + what, OSError(), function)

    def test_reads(self):
        """Nothing has changed before the last of some."""
        look = self.step('dm look x')
        self.assertEqual([('node1: dm look x', False)],
                         self.different(look, look, look))

    def test_other_steps(self):
        """They may change another process."""
        self.assertEqual(
            [('node1: ask node2', False), ('node1: ask node2', True)],
            self.different(self.step('ask node2'), self.step('lvs')))

    def test_process_that_outlives_its_caller(self):
        """A killed caller of a swap has begun it, or not."""
        status = 'node1: dm status_of x'
        self.assertEqual([(status, False), (status, True)],
                         self.different(self.step('dm status_of x')))

    def test_device(self):
        def suspend():
            self.a.kernel.devices['dmclone-' + self.volume.id].suspended = True

        look, other = self.step('dm look x'), self.step('lvs')
        self.assertEqual(
            [('node1: dm look x', False), ('node1: lvs', False)],
            self.different(look, suspend, other))

    def test_database(self):
        def write():
            row = self.row()
            row.status = 'in-use'
            row.save()

        self.assertEqual(
            [('node1: lvs', False), ('node1: vgs', False)],
            self.different(self.step('lvs'), self.row, self.step('lvs'),
                           write, self.step('vgs')))

    def test_other_node(self):
        self.assertEqual(
            [('node1: lvs', False), ('node2: lvs', False)],
            self.different(self.step('lvs'), self.step('lvs', 'node2')))

    def test_time_and_turns(self):
        def turn():
            with self.cloud.on(self.b):
                pass

        lvs, vgs = self.step('lvs'), self.step('vgs')
        for between in (turn, lambda: self.cloud.pass_time(1)):
            self.assertEqual(
                [('node1: lvs', False), ('node1: vgs', False)],
                self.different(lvs, between, vgs))
