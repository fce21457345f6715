# SPDX-License-Identifier: Apache-2.0
"""Copies beside a guest, in kernels with and without the message for them."""

import uuid

import ddt

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from tests.unit import base
from tests.unit.fakes import clone as clone_module
from tests.unit.fakes import kernel as kernel_module
from tests.unit.fakes import steps

TOTAL, WINDOW = 1000, 64
#: Regions in a second.
SPEED = 1000
DISK = '/dev/sda'


class QuotasTestCase(base.PlainTestCase):
    """A clone whose guest has eight requests under way all the time."""

    def setUp(self):
        super().setUp()
        self.kernel = kernel_module.Kernel(None, steps.Steps(), 'node')
        self.kernel.versions['clone'] = (1, 1, 0)
        self.time = self.kernel.time
        self.names = Names(str(uuid.uuid4()))
        self.name = self.names.of(CLONE)
        self.kernel.disks[DISK] = TOTAL * 4096
        for role in GATE, SOURCE:
            self.make(self.names.of(role), '0 %d linear %s 0' % (
                TOTAL * 8, DISK))
        self.make(self.name, '0 %d clone metadata %s %s 8 1 '
                  'no_discard_passdown 4 hydration_threshold 8 '
                  'hydration_batch_size %d' % (
                      TOTAL * 8, self.names.of(GATE), self.names.of(SOURCE),
                      WINDOW))
        device = self.kernel.devices[self.name]
        device.own = self.clone = clone_module.Clone(
            {'hydrated': 0}, device.table[0])
        self.clone.hydration, self.clone.speed = True, SPEED
        self.clone.guest = lambda now: 8
        self.clone.in_flight = 8
        self.addCleanup(lambda: self.assertEqual([], self.kernel.violations))

    def make(self, name, table):
        device = kernel_module.Device(self.kernel, name, False)
        device.table = [kernel_module.Segment(table)]
        self.kernel.devices[name] = device

    def begin(self):
        result = self.kernel.quotas.begin(self.name, WINDOW)
        return result and result.ended

    def sent(self):
        return [text for _now, _name, text in self.time.messages]


@ddt.ddt
class BeginTestCase(QuotasTestCase):

    @ddt.data((1, 1, 0), (1, 1, 7), (1, 2, 0), (2, 0, 0))
    def test_message(self, version):
        """The whole window, and nothing more, beside the requests."""
        self.kernel.versions['clone'] = version
        self.assertEqual(holds.BEGUN, self.begin())
        self.assertEqual(WINDOW, self.clone.copying)
        self.time.sleep(10)
        self.assertEqual(WINDOW, self.clone.bitmap['hydrated'])
        self.assertEqual(0, self.clone.quota)
        # A quota before the threshold would begin less at a time.
        self.assertEqual(['hydration_threshold 64', 'hydrate 64'],
                         self.sent())

    @ddt.data((1, 0, 0), (1, 0, 9), None)
    def test_plain_kernel(self, version):
        """It is not asked: it would log an error."""
        self.kernel.versions = {'clone': version} if version else {}
        self.assertIsNone(self.begin())
        self.assertEqual([], self.sent())

    def test_module_was_exchanged(self):
        self.assertEqual(holds.BEGUN, self.begin())
        self.kernel.versions['clone'] = (1, 0, 0)
        self.assertIsNone(self.begin())
        self.kernel.versions['clone'] = (1, 1, 0)
        self.assertEqual(holds.BEGUN, self.begin())

    def test_new_quota_replaces_the_rest(self):
        self.clone.threshold = 0
        self.clone.quota = 5 * WINDOW
        self.begin()
        self.time.sleep(10)
        self.assertEqual(WINDOW, self.clone.bitmap['hydrated'])


@ddt.ddt
class RestTestCase(QuotasTestCase):
    """What is left of a quota begins nothing when nothing may begin."""

    @ddt.data(({'threshold': 0}, True), ({'hydration': False}, True),
              ({'mode': 'ro'}, True), ({}, False))
    @ddt.unpack
    def test_rest(self, state, stays):
        self.clone.quota = WINDOW
        for name, value in state.items():
            setattr(self.clone, name, value)
        for _ in range(10):
            self.time.sleep(1)
        self.assertEqual(stays, not self.clone.bitmap['hydrated'])
        self.assertEqual(WINDOW if stays else 0, self.clone.quota)


@ddt.ddt
class RefusedTestCase(QuotasTestCase):

    @ddt.data(CLONE, GATE, SOURCE)
    def test_copies_would_wait(self, role):
        self.kernel.devices[self.names.of(role)].suspended = True
        self.assertEqual(holds.REFUSED, self.begin())
        self.assertEqual([], self.sent())

    def test_session_is_lost(self):
        self.kernel.lost.add(DISK)
        self.assertEqual(holds.REFUSED, self.begin())
        self.assertEqual([], self.sent())

    def test_gone(self):
        for role in SOURCE, CLONE:
            del self.kernel.devices[self.names.of(role)]
            self.assertEqual(holds.FAILED, self.begin())
        self.assertEqual([], self.sent())

    def test_no_clone_of_the_driver(self):
        self.assertIsNone(self.kernel.quotas.begin('another', WINDOW))


class UnknownTestCase(QuotasTestCase):
    """A target of that version without the message, as another patch has."""

    def setUp(self):
        super().setUp()
        self.kernel.unknown = {'hydrate'}

    def tries(self):
        return self.sent().count('hydrate 64')

    def test_held_instead(self):
        """It is tried once: the kernel logs an error."""
        for _ in range(3):
            self.assertIsNone(self.begin())
        self.assertEqual(1, self.tries())

    def test_another_version(self):
        self.begin()
        self.kernel.unknown.clear()
        self.assertIsNone(self.begin())
        self.kernel.versions['clone'] = (1, 2, 0)
        self.assertEqual(holds.BEGUN, self.begin())

    def test_made_linear(self):
        """That has no messages at all, and says nothing about others."""
        device = self.kernel.devices[self.name]
        message = self.time.message

        def refuse(name, text):
            if text.startswith('hydrate '):
                device.table = [kernel_module.Segment(
                    '0 %d linear %s 0' % (TOTAL * 8, DISK))]
            message(name, text)
        self.patch('tests.unit.fakes.clone.Time.message', side_effect=refuse)
        self.assertEqual(holds.FAILED, self.begin())
        device.table = [kernel_module.Segment(
            '0 %d clone metadata a b 8 0 0' % (TOTAL * 8))]
        self.patch('tests.unit.fakes.clone.Time.message', new=message)
        self.kernel.unknown.clear()
        self.assertEqual(holds.BEGUN, self.begin())
