# SPDX-License-Identifier: Apache-2.0
"""Things that are done a few at a time."""

import threading

from dmclone_driver.drain import threads
from tests.unit import base


class ThreadsTestCase(base.PlainTestCase):

    def test_a_few_at_a_time(self):
        both = threading.Barrier(2, timeout=30)
        lock, now, most = threading.Lock(), [], []

        def work(item):
            with lock:
                now.append(item)
                most.append(len(now))
            both.wait()
            with lock:
                now.remove(item)
            # Only then may the next ones begin.
            both.wait()
            return 2 * item
        found = list(threads.each(work, range(6), 2))
        self.assertEqual([(item, 2 * item) for item in range(6)],
                         sorted(found))
        self.assertEqual(2, max(most))

    def test_results_come_as_they_are_there(self):
        go = threading.Event()
        self.addCleanup(go.set)
        results = threads.start(
            lambda item: item or go.wait(30), [0, 1], 2)
        self.assertEqual((1, 1), results.get(timeout=30))
        go.set()
        self.assertEqual((0, True), results.get(timeout=30))

    def test_nothing_to_do(self):
        self.assertEqual([], list(threads.each(str, [], 2)))
