# SPDX-License-Identifier: Apache-2.0
"""A signal ends waits; the next one ends the process."""

import os
import signal
import threading

from dmclone_driver.drain import stop as stop_module
from tests.unit import base


class StopTestCase(base.PlainTestCase):

    def test_without_a_signal(self):
        with stop_module.by_signals() as stop:
            self.assertFalse(stop.wait(0.01))
            self.assertEqual((False, 0), (stop.is_set(), stop.number))

    def test_signal_ends_a_wait(self):
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
        self.addCleanup(timer.cancel)
        with stop_module.by_signals() as stop:
            timer.start()
            self.assertTrue(stop.wait(600))
            self.assertEqual(signal.SIGTERM, stop.number)

    def test_next_signal_is_not_caught(self):
        before = signal.getsignal(signal.SIGINT)
        with stop_module.by_signals():
            signal.raise_signal(signal.SIGINT)
            self.assertEqual(signal.SIG_DFL, signal.getsignal(signal.SIGINT))
        self.assertIs(before, signal.getsignal(signal.SIGINT))
