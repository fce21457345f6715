# SPDX-License-Identifier: Apache-2.0
"""The commands of a swap and their order."""

import contextlib
import os
import subprocess

import ddt
import fixtures

from dmclone_driver.node.devicemapper import swap
from tests.unit import base

LINEAR = '0 64 linear \n'
CLONE = ('0 64 clone 8 12/1024 8 %s 0 1 no_discard_passdown 4 '
         'hydration_threshold 64 hydration_batch_size 64 %s\n')
COMPLETE = CLONE % ('8/8', 'rw')
INCOMPLETE = CLONE % ('7/8', 'rw')
FAILED = CLONE % ('8/8', 'ro')


class StateTestCase(base.PlainTestCase):

    def test_states(self):
        for text, expected in (
                (LINEAR, 'linear'), (COMPLETE, 'complete clone'),
                (INCOMPLETE, 'clone'), (FAILED, 'clone'), ('', ''),
                ('0 64 clone Fail\n', 'clone'), ('0 64 error \n', 'error'),
                ('0 8 zero \n8 64 linear \n', 'zero linear')):
            self.assertEqual(expected, swap.state(text))


@ddt.ddt
class PerformTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        #: The status of the device at each check.
        self.looks = []
        self.run = []
        self.fails = None

    def _run(self, arguments, table=None, limit=None):
        self.run.append(' '.join(arguments))
        if arguments[0] == self.fails:
            raise OSError(arguments[0])
        if arguments[0] == 'suspend' and limit:
            raise subprocess.TimeoutExpired('dmsetup', limit)
        if arguments[0] == 'status':
            return self.looks.pop(0)
        self.table = table

    def perform(self, expected, *looks, **options):
        self.looks = list(looks)
        return swap.perform(self._run, 'x', '0 64 linear a 0\n', expected,
                            **options)

    def verbs(self):
        return ' '.join(line.split()[0] for line in self.run)

    @ddt.data((swap.LINEAR, LINEAR), (swap.COMPLETE_CLONE, COMPLETE),
              (swap.COMPLETE_CLONE, LINEAR), (swap.CLONE, INCOMPLETE),
              (swap.CLONE, FAILED), (swap.CLONE, LINEAR))
    @ddt.unpack
    def test_as_expected(self, expected, text):
        self.assertIsNone(self.perform(expected, text, text))
        self.assertEqual(['status --noflush x', 'suspend x',
                          'status --noflush x', 'load x', 'resume x'],
                         self.run)

    @ddt.data((swap.LINEAR, COMPLETE), (swap.LINEAR, INCOMPLETE),
              (swap.COMPLETE_CLONE, INCOMPLETE), (swap.COMPLETE_CLONE, FAILED),
              (swap.CLONE, '0 64 error \n'), (swap.CLONE, ''))
    @ddt.unpack
    def test_not_as_expected(self, expected, text):
        """The state differs before the suspend, or after it."""
        self.assertEqual(text, self.perform(expected, text))
        self.assertEqual('status', self.verbs())
        self.run.clear()
        self.assertEqual(text, self.perform(expected, {
            swap.LINEAR: LINEAR, swap.COMPLETE_CLONE: COMPLETE,
            swap.CLONE: INCOMPLETE}[expected], text))
        self.assertEqual('status suspend status resume', self.verbs())

    def test_options(self):
        self.assertIsNone(self.perform(None, load=['--readonly'],
                                       suspend=['--noflush', '--nolockfs']))
        self.assertEqual(['suspend --noflush --nolockfs x',
                          'load x --readonly', 'resume x'], self.run)

    @ddt.data('suspend', 'load')
    def test_failure(self, verb):
        self.fails = verb
        self.assertRaises(OSError, self.perform, swap.LINEAR, LINEAR, LINEAR)
        self.assertEqual('resume x', self.run[-1])

    @ddt.data('suspend', 'load')
    def test_failure_of_what_is_held(self, verb):
        """It is not resumed: its requests would fail on the old table."""
        self.fails = verb
        self.assertRaises(OSError, self.perform, None, hold=True)
        self.assertEqual(verb, self.verbs().split()[-1])

    def test_clone_below(self):
        """It is suspended after the handle, and checked in its place."""
        self.assertIsNone(self.perform(swap.COMPLETE_CLONE, COMPLETE,
                                       COMPLETE, clone='y'))
        self.assertEqual(['status --noflush y', 'suspend x', 'suspend y',
                          'status --noflush y', 'load x', 'resume x',
                          'resume y'], self.run)

    def test_limit(self):
        self.assertEqual(swap.WAITS, self.perform(swap.LINEAR, LINEAR,
                                                  limit=5))
        self.assertEqual('status suspend resume', self.verbs())

    def test_first_look_fails(self):
        self.fails = 'status'
        self.assertRaises(OSError, self.perform, swap.LINEAR)
        self.assertEqual('status', self.verbs())


class AloneTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = os.path.join(
            self.useFixture(fixtures.TempDir()).path, 'locks')

    def alone(self, name='x'):
        return swap.alone(name, self.folder, wait=False)

    def test_one_at_a_time(self):
        with self.alone(), self.alone('y'):
            self.assertRaises(BlockingIOError, self.alone().__enter__)
        with self.alone():
            pass

    def test_leaves_nothing(self):
        before = os.listdir('/proc/self/fd')
        with contextlib.suppress(KeyError), self.alone():
            raise KeyError
        self.assertEqual([], os.listdir(self.folder))
        self.assertEqual(len(before), len(os.listdir('/proc/self/fd')))
