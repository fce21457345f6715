# SPDX-License-Identifier: Apache-2.0
"""The process that marks, which its parent kills if it does not end."""

import os
import time

import fixtures
from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import swap
from dmclone_driver import privsep
from dmclone_driver.privsep import marks
from tests.unit import base

_BEGIN = 'import json, os, signal, sys; request = json.load(sys.stdin); '
#: Replace marks.PROGRAM.
ECHO = _BEGIN + ('print(json.dumps([request, sys.argv[2], '
                 'os.getsid(0) == os.getpid()]))')
FAILS = _BEGIN + 'sys.exit("no such thing")'
#: Has the lock, as in a piece, and ignores signals that would end it.
STOPS = ('import sys; sys.path.append(sys.argv[1]); '
         'from dmclone_driver.node.devicemapper import swap; ' + _BEGIN +
         'signal.signal(signal.SIGTERM, signal.SIG_IGN); '
         'lock = swap.alone(sys.argv[2], request["locks"]); '
         'lock.__enter__(); print("{}", flush=True); '
         'os.kill(os.getpid(), signal.SIGSTOP)')


class MarksTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.locks = os.path.join(self.useFixture(fixtures.TempDir()).path,
                                  'locks')
        self.patch('dmclone_driver.node.devicemapper.swap.LOCKS',
                   new=self.locks)
        self.resumed = []
        self.patch('dmclone_driver.node.devicemapper.ioctl.resume',
                   new=lambda name, cookie: self.resumed.append(name))

    def run_program(self, program):
        self.patch('dmclone_driver.node.devicemapper.marks.PROGRAM',
                   new=program)
        return marks.run('x', 'handle', [[1, 2]], 0.5)

    def test_answer(self):
        self.assertEqual(
            [{'name_id': 'x', 'ranges': [[1, 2]], 'seconds': 0.5,
              'locks': self.locks}, 'handle', True], self.run_program(ECHO))
        self.assertEqual([], self.resumed)

    def test_fails(self):
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.run_program, FAILS)
        self.assertIn('no such thing', error.stderr)
        self.assertEqual(['handle'], self.resumed)

    def test_stopped(self):
        """It is killed, and the handle resumed under its lock."""
        self.patch('dmclone_driver.privsep.marks.PATIENCE', new=2)
        began = time.monotonic()
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.run_program, STOPS)
        self.assertEqual((-9, '{}\n'), (error.exit_code, error.stdout))
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(['handle'], self.resumed)
        with swap.alone('handle', self.locks, wait=False):
            pass
