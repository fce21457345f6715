# SPDX-License-Identifier: Apache-2.0
"""The threshold that keeps a clone to its rate."""

import ddt

from dmclone_driver.move import throttle
from dmclone_driver.node.devicemapper.status import CloneStatus
from tests.unit import base

REGION = 128 * 512
TUNED = 128


@ddt.ddt
class ThrottleTestCase(base.PlainTestCase):
    """A clone whose copies take a time that depends on the threshold."""

    def setUp(self):
        super().setUp()
        self.now = self.hydrated = 0

    def status(self):
        return CloneStatus(length=2 ** 40, mode='rw', region=128,
                           hydrated=self.hydrated, total=2 ** 31)

    def run_for(self, seconds, allowed, latency, pause=1, most=10 ** 6):
        """Return the average rate in bytes per second.

        :param latency: seconds that a region takes
        :param pause: between two looks
        :param most: regions per second that the link carries
        """
        self.found = throttle.begin(self.status(), allowed, TUNED, self.now)
        self.seen = [self.found.threshold]
        for _ in range(seconds // pause):
            self.hydrated += int(min(
                self.found.threshold / latency, most) * pause)
            self.now += pause
            self.found = throttle.after(self.found, self.status(), allowed,
                                        TUNED, self.now)
            self.seen.append(self.found.threshold)
        return self.hydrated * REGION / self.now

    def test_no_limit(self):
        self.run_for(100, None, 0.01)
        self.assertEqual({TUNED}, set(self.seen))

    @ddt.data((50e6, 0.01, 1), (50e6, 0.1, 1), (50e6, 0.01, 10),
              (1e6, 0.001, 1), (5e6, 0.02, 10), (200e6, 0.02, 10))
    @ddt.unpack
    def test_rate_is_kept(self, allowed, latency, pause):
        rate = self.run_for(1000, allowed, latency, pause)
        self.assertLess(rate, 1.15 * allowed)
        self.assertGreater(rate, 0.8 * allowed)

    def test_slow_link_is_used(self):
        """A rate that the link never reaches limits nothing."""
        self.run_for(100, 1e9, 0.01, most=100)
        self.assertEqual(TUNED, self.found.threshold)

    def test_never_stopped_for_long(self):
        """A region is copied each ten minutes, however low the rate is."""
        self.run_for(10000, 1, 0.001)
        longest = max(map(len, ''.join(
            'x' if each else '-' for each in self.seen).split('x')))
        self.assertIn(longest, range(500, 601))

    def test_limit_is_taken_away(self):
        self.run_for(100, 1e6, 0.001)
        found = throttle.after(self.found, self.status(), None, TUNED,
                               self.now + 1)
        self.assertEqual(TUNED, found.threshold)

    def test_clone_that_was_built_again(self):
        self.run_for(100, 1e6, 0.001)
        self.hydrated = 0
        found = throttle.after(self.found, self.status(), 1e6, TUNED,
                               self.now + 1)
        self.assertEqual((1, 0), (found.threshold, found.credit))

    def test_two_looks_at_once(self):
        self.run_for(10, 1e6, 0.001)
        self.assertIs(self.found, throttle.after(
            self.found, self.status(), 1e6, TUNED, self.now))
