# SPDX-License-Identifier: Apache-2.0
"""tools/bench simulation, with a small cloud."""

import csv
import pathlib
import subprocess
import sys

import eventlet
import fixtures

from lab import paths
from tests.simulation import clock
from tests.unit import base


class ClockTestCase(base.PlainTestCase):

    def test_greenlet_that_slept_in_eventlet(self):
        """oslo.db does that after a transaction, if eventlet has patched."""
        simulated, done = clock.Clock(), []

        def work():
            eventlet.sleep(0)
            done.append(simulated.now)
        simulated.spawn(work)
        with eventlet.Timeout(10):
            simulated.run()
        self.assertEqual([0], done)


class SimulationTestCase(base.PlainTestCase):

    def test_small_cloud(self):
        # In a process of its own: without eventlet, if Cinder can do that.
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'table')
        subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', 'tests.simulation',
             '--nodes', '4', '--volumes', '3', '--drained', '1',
             '--moving', '2', '--save', path],
            cwd=paths.CHECKOUT, check=True, timeout=120,
            stdout=subprocess.DEVNULL)
        with path.open() as stream:
            found = {row[0]: row[1:] for row in csv.reader(stream)}
        self.assertEqual(['at rest', 'status', 'during the drains'],
                         found[''])
        self.assertEqual(['', '', '2'], found['volumes moved'])
        # Three questions a minute for five minutes, and one each five, of
        # each node, whatever the volumes.
        self.assertEqual(str(4 * (3 * 5 + 1)), found['queries'][0])
        self.assertEqual('', found['messages'][0])
        # Four queries, and one of each node, which has no moves; a question
        # and an answer each.
        self.assertEqual((str(4 + 4), str(2 * 4)),
                         (found['queries'][1], found['messages'][1]))
