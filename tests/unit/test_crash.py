# SPDX-License-Identifier: Apache-2.0
"""The parts of the crash tests, without a laboratory."""

import json
import pathlib

import fixtures

from dmclone_driver import steps
from dmclone_driver.steps import Step
from tests.crash import flows
from tests.crash import on_node
from tests.crash import snapshot_cases
from tests.crash import stops
from tests.crash import table
from tests.unit import base


class CasesTestCase(base.PlainTestCase):

    def test_each_step_of_each_flow(self):
        self.assertLessEqual(
            set(steps.FLOWS), set(flows.MOVES) | set(flows.COPIES))
        for of_flows in (flows.MOVES, flows.COPIES):
            self.assertEqual(
                [(flow, *point) for flow, points in of_flows.items()
                 for point in points],
                [(case.FLOW, case.side, case.step)
                 for case in flows.all_of(of_flows, None, 'a', 'b')])

    def test_thin_volumes(self):
        """They have the same steps, and those of the marks."""
        for of_flows in (flows.MOVES, flows.COPIES):
            thin = flows.of_kind(of_flows, True)
            self.assertEqual(set(of_flows), set(thin))
            self.assertIs(of_flows, flows.of_kind(of_flows, False))
            for flow, points in thin.items():
                more = set(points) - set(of_flows[flow])
                copied = (steps.PEER, Step.HYDRATING) in points
                self.assertEqual(set(steps.MARKS) if copied else set(), more)
            self.assertIn(steps.MARKS[0], {
                (case.side, case.step)
                for case in flows.all_of(thin, None, 'a', 'b')})

    def test_node(self):
        for case in [*flows.all_of(flows.MOVES, None, 'a', 'b'),
                     *flows.all_of(flows.COPIES, None, 'a', 'b')]:
            expected = {steps.HOME: 'a', steps.PEER: 'b'}[case.side]
            if isinstance(case, snapshot_cases.SnapshotWhileItHydrates):
                # The volume is a clone on the peer, so that is its home.
                expected = 'b'
            self.assertEqual(expected, case.node)


class FillTestCase(base.PlainTestCase):
    """What is written to the volumes, to a file here."""

    SIZE = 64 << 10

    def fill(self, action):
        path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'volume')
        path.write_bytes(bytes(self.SIZE))
        # Not every file system of a temporary folder has direct I/O.
        self.patch('os.O_DIRECT', new=0)
        self.patch('sys.argv', new=['', action, str(self.SIZE), '0'])
        self.patch('sys.stdin', new=['x %s\n' % path])
        on_node.main()
        return path.read_bytes()

    def test_all(self):
        found = self.fill('fill')
        self.assertEqual(self.SIZE, len(found))
        for place in range(0, self.SIZE, 4096):
            self.assertNotEqual(bytes(4096), found[place:place + 4096])

    def test_ends(self):
        found, part = self.fill('fill-ends'), self.SIZE * 7 // 16
        self.assertEqual((self.SIZE, bytes(self.SIZE - 2 * part)),
                         (len(found), found[part:-part]))
        for end in found[:part], found[-part:]:
            self.assertNotEqual(bytes(part), end)
        self.assertNotEqual(found[:part], found[-part:])


class StopsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def comes_to(self, step, node, volume_id='x'):
        return stops.stop_if_told(self.folder, volume_id, step, node)

    def test_nobody_is_told(self):
        self.assertFalse(stops.anybody_told(self.folder / 'not mounted'))
        (self.folder / 'x.durable').touch()
        self.assertFalse(stops.anybody_told(self.folder))
        self.assertFalse(self.comes_to(Step.BEGUN, 'a'))

    def test_all_stop_from_the_step_on(self):
        stops.stop_at(self.folder, 'x', Step.SEALED, 'a')
        self.assertTrue(stops.anybody_told(self.folder))
        self.assertFalse(self.comes_to(Step.SEALED, 'b'))
        self.assertFalse(self.comes_to(Step.OPENED, 'a'))
        self.assertFalse(self.comes_to(Step.SEALED, 'a', 'y'))
        self.assertTrue(self.comes_to(Step.SEALED, 'a'))
        self.assertTrue(self.comes_to(Step.OPENED, 'b'))
        self.assertFalse(self.comes_to(Step.OPENED, 'b', 'y'))
        stops.go_on(self.folder)
        self.assertFalse(self.comes_to(Step.SEALED, 'a'))

    def test_copies_wait(self):
        self.assertFalse(stops.waits(self.folder, 'x', 'clone of y'))
        (self.folder / 'x.waits').touch()
        self.assertTrue(stops.waits(self.folder, 'x'))
        self.assertFalse(stops.waits(self.folder, 'y', 'clone of x'))
        (self.folder / 'x.clone_waits').touch()
        self.assertTrue(stops.waits(self.folder, 'y', 'clone of x'))
        self.assertFalse(stops.waits(self.folder, 'y', 'x'))
        stops.go_on(self.folder)
        self.assertFalse(stops.waits(self.folder, 'x'))
        self.assertFalse(stops.waits(self.folder, 'y', 'clone of x'))

    def test_what_was_written_is_remembered(self):
        (self.folder / 'x.durable').touch()
        stops.go_on(self.folder)
        self.assertTrue(stops.durable(self.folder, 'x'))
        self.assertFalse(stops.durable(self.folder, 'y'))


class TableTestCase(base.PlainTestCase):

    def test_results_of_a_cut_are_read_together(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, times in (('peer off', {'a': [17, False]}),
                            ('peer off' + table.COPIES, {'b': [1, True]}),
                            ('mariadb', {'a': [3, True]})):
            (folder / (name + '.json')).write_text(json.dumps(times))
        self.assertEqual(
            {'mariadb': {'a': [3, True]},
             'peer off': {'a': [17, False], 'b': [1, True]}},
            table.read(folder))

    def test_lines(self):
        self.assertEqual([
            '   | peer off | mariadb',
            'a  |       17 |      3*',
            'bb |   FAILED |       -',
            ('3 cells; seconds from the fault until the volume had '
             'converged; *: an operator reset the state that Cinder had '
             'left'),
        ], list(table.lines({
            'peer off': {'a': [17, False], 'bb': [False, False]},
            'mariadb': {'a': [3, True]}})))
