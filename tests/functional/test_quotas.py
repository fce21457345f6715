# SPDX-License-Identifier: Apache-2.0
"""Copies beside a guest that is busy all the time, by the kernel's message.

Only a kernel with the patch of contrib/linux has that. With another one these
tests are not collected, which is said.
"""

import sys
import time
import unittest
from unittest import mock

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import quotas
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import pacing as node_pacing
from dmclone_driver.privsep import pacing
from lab.common import clones
from tests.functional import test_holds
from tests.functional.test_holds import Guest
from tests.functional.test_holds import PATIENCE
from tests.functional.test_holds import WINDOW

WINDOWS = 10


def load_tests(loader, tests, pattern):
    """Return the tests if the kernel has the message."""
    try:
        found = ioctl.versions().get(quotas.TARGET)
    except OSError as error:
        found = error
    if isinstance(found, tuple) and found >= quotas.VERSION:
        return tests
    print('NOT RUN: tests/functional/test_quotas.py. They need version %s of '
          'the clone target, and found %s: see contrib/linux/README.rst' % (
              quotas.VERSION, found), file=sys.stderr)
    return unittest.TestSuite()


class QuotasTest(test_holds.HoldsTest):

    SIZE = 64 * clones.MIB

    def setUp(self):
        super().setUp()
        self.quotas = quotas.Quotas(quotas.RealKernel())

    def begin(self):
        return self.quotas.begin(self.device, WINDOW).ended


class WindowsTest(QuotasTest):

    def setUp(self):
        super().setUp()
        self.hydrating()

    def test_windows_are_filled(self):
        with Guest(self.names.path()) as guest:
            for number in range(1, WINDOWS + 1):
                self.assertEqual(holds.BEGUN, self.begin())
                clones.wait_until(lambda number=number:
                                  self.status().hydrated >= number * WINDOW,
                                  'window %d' % number)
                self.threshold(0)
                self.wait_for_copies()
            self.assertTrue(guest.goes_on(PATIENCE))
        self.assertLess(guest.longest, PATIENCE)
        self.assertIntact()

    def test_minimum_rate(self):
        """No request is held for it."""
        rate = 8 * clones.MIB
        pacemaker = node_pacing.Pacemaker(lambda: [node_pacing.Pace(
            'the volume', self.device, WINDOW)], lambda: rate)
        with mock.patch.object(pacing.Holder, 'hold') as hold, mock.patch(
                'dmclone_driver.node.pacing.LOG') as log, Guest(
                self.names.path()) as guest:
            began = time.monotonic()
            while not self.status().complete:
                self.assertLess(time.monotonic() - began,
                                3 * self.SIZE / rate)
                pacemaker.beat()
        hold.assert_not_called()
        self.assertIn('beside its requests', log.info.call_args.args[0])
        self.assertLess(guest.longest, PATIENCE)
        self.assertIntact()

    def test_rest_of_a_quota(self):
        """It begins nothing between the turns, nor while hydration is off."""
        with Guest(self.names.path()):
            dmsetup.message(self.device, 'hydrate 1100')
            time.sleep(3)
            self.assertEqual(0, self.status().hydrated)
            LocalVolume(self.names).stop_hydration()
            self.threshold(WINDOW)
            time.sleep(3)
            self.assertEqual(0, self.status().hydrated)
            LocalVolume(self.names).start_hydration()
            clones.wait_until(lambda: self.status().complete,
                              'complete clone')
        self.assertIntact()

    def test_made_linear_with_a_rest(self):
        with Guest(self.names.path()) as guest:
            self.threshold(WINDOW)
            dmsetup.message(self.device, 'hydrate 1000000')
            clones.wait_until(lambda: self.status().complete,
                              'complete clone')
            lv = logical_volumes.find(self.lv.name, self.lv.group)
            self.assertTrue(LocalVolume(self.names).make_linear(lv))
            self.assertTrue(guest.goes_on(PATIENCE))
        self.assertEqual(self.data, clones.read(self.names.path(), 0,
                                                self.SIZE))

    def test_removed_with_a_rest(self):
        """While copies are under way; see addCleanup."""
        self.threshold(WINDOW)
        with Guest(self.names.path()):
            dmsetup.message(self.device, 'hydrate 1000000')


class RefusedTest(QuotasTest):

    def test_closed_gate(self):
        self.hydrating(passive=True)
        self.assertEqual(holds.REFUSED, self.begin())
        self.assertEqual(0, self.status().threshold)

    def test_source_is_suspended(self):
        self.hydrating()
        source = self.names.of('source')
        dmsetup.suspend(source, flush=False)
        try:
            self.assertEqual(holds.REFUSED, self.begin())
        finally:
            dmsetup.resume(source)
        self.assertEqual(0, self.status().threshold)
        self.assertIntact()


class WithoutTailTest(QuotasTest):

    TUNING = clones.TUNING

    def test_no_tail(self):
        """A clone that was built without a minimum rate is served, too."""
        self.hydrating()
        with Guest(self.names.path()):
            self.assertEqual(holds.BEGUN, self.begin())
            clones.wait_until(lambda: self.status().hydrated >= WINDOW,
                              'window')
        self.assertIntact()
