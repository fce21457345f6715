# SPDX-License-Identifier: Apache-2.0
"""The parts of the tests of Cinder's own commands."""

import importlib
import inspect
import pathlib
import sys

import fixtures

from dmclone_driver.node.devices import LocalVolume
from tests.admin import logs
from tests.admin import operations
from tests.admin import table
from tests.crash import stops
from tests.unit import base


class OperationsTestCase(base.PlainTestCase):

    def test_each_is_asked_for_once_of_each_row(self):
        asked = [each for chain in operations.CHAINS for each in chain]
        self.assertEqual(len(asked), len(set(asked)))
        self.assertEqual(set(operations.OPERATIONS),
                         {name for row, name in asked})


class LogsTestCase(base.PlainTestCase):

    LINES = ['WARNING dmclone_driver.move.peer_requests [-] Request of x',
             'ERROR dmclone_driver.driver [None req-1a-2 -] x is not deleted',
             'ERROR cinder.volume.manager [None req-3b-4 -] x is busy']

    def setUp(self):
        super().setUp()
        self.logs = logs.Logs.__new__(logs.Logs)
        self.logs.lines = self.LINES

    def test_background_jobs_refuse_nothing(self):
        self.assertEqual(self.LINES[0], self.logs.said('x'))
        self.assertEqual(self.LINES[1], self.logs.said(
            'x', but=[logs.BACKGROUND]))
        self.assertEqual('', self.logs.said('z'))

    def test_lines_of_another_request(self):
        earlier = logs.request_ids('', *self.LINES[:2])
        self.assertEqual(['req-1a-2'], earlier)
        self.assertEqual(self.LINES[2], self.logs.said(
            'x', since=1, but=earlier))


class StopsTestCase(base.PlainTestCase):

    def test_held_up_until_let_go(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertFalse(stops.dry(folder, 'x'))
        stops.hold_up(folder, 'x')
        self.assertTrue(stops.dry(folder, 'x'))
        self.assertFalse(stops.dry(folder, 'y'))
        stops.let_go(folder, 'x')
        self.assertFalse(stops.dry(folder, 'x'))


class DriverTestCase(base.PlainTestCase):

    def test_what_is_replaced_has_the_same_parameters(self):
        replaced = {name: getattr(LocalVolume, name)
                    for name in ('start_hydration', 'connect_source')}
        for name, original in replaced.items():
            # Its own ones come back when this test ends.
            self.patch('dmclone_driver.node.devices.LocalVolume.' + name,
                       new=original)
        self.patch('dmclone_driver.move.hydration.STALLED')
        self.patch('dmclone_driver.move.outages.Outages.look')
        # That replaces more.
        self.patch('tests.crash.driver', create=True)
        importlib.import_module('tests.admin.driver')
        self.addCleanup(sys.modules.pop, 'tests.admin.driver')
        for name, original in replaced.items():
            own = list(inspect.signature(original).parameters)[1:]
            found = list(inspect.signature(
                getattr(LocalVolume, name)).parameters)[1:]
            self.assertEqual(own, found[:len(own)], name)


class TableTestCase(base.PlainTestCase):

    def test_lines(self):
        def cell(operation, row, state, outcome, reset=False, wrong=None):
            return {'operation': operation, 'row': row, 'state': state,
                    'outcome': outcome, 'reset': reset, 'wrong': wrong}
        header = '       |   | prepared    | gate closed | hydrating   | '
        self.assertEqual([
            header + 'complete   ',
            'delete | V | refused     | done*       | -           | -'.ljust(
                len(header) + 11),
            'delete | P | FAILED      | FAILED      | -           | -'.ljust(
                len(header) + 11),
            'extend | V | -           | -           | done        | -'.ljust(
                len(header) + 11)],
            list(table.lines([
                cell('delete', 'V', 'prepared', 'refused'),
                cell('delete', 'V', 'gate closed', 'done', reset=True),
                cell('delete', 'P', 'prepared', 'done', wrong='its data'),
                cell('delete', 'P', 'gate closed', None),
                cell('extend', 'V', 'hydrating', 'done')]))[:-1])
