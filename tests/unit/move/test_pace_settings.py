# SPDX-License-Identifier: Apache-2.0
"""The limits of copies: configured, or set by an operator."""

import os
import pathlib
import types
from unittest import mock

import ddt
import fixtures

from dmclone_driver.move.pace import Bandwidth
from dmclone_driver.move.pace import Order
from dmclone_driver.move import pace_settings
from tests.unit import base


@ddt.ddt
class PaceSettingsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.patch('dmclone_driver.move.pace_settings.CONF',
                   new=types.SimpleNamespace(state_path=str(self.folder)))
        self.speed = self.patch('dmclone_driver.node.links.speed',
                                return_value=1000)
        self.configuration = types.SimpleNamespace(
            target_ip_address='192.0.2.1', dmclone_copies_at_once=4,
            dmclone_bandwidth_in='50%', dmclone_bandwidth_out='1MB',
            dmclone_hydration_min_rate=16,
            dmclone_copy_order='nearly-complete')
        self.now = 0

    def open(self):
        return pace_settings.PaceSettings(
            'node1@dmclone', self.configuration, lambda: self.now)

    def test_configured(self):
        found = self.open()
        self.assertEqual((4, Order.NEARLY_COMPLETE, [], ()), (
            found.limits.copies, found.limits.order, found.changed,
            found.first))
        self.assertEqual((500, 1000000),
                         (found.bandwidth_in, found.bandwidth_out))
        self.assertEqual([], os.listdir(self.folder))

    def test_link_is_measured_again_after_a_minute(self):
        found = self.open()
        for now, speed in ((0, 1000), (59, 1000), (61, 10)):
            self.now = now
            self.assertEqual(speed / 2, found.bandwidth_in)
            self.speed.return_value = 10
        self.assertEqual(2, self.speed.call_count)

    def test_link_is_not_measured_for_nothing(self):
        found = self.open()
        self.assertEqual(1000000, found.bandwidth_out)
        self.speed.assert_not_called()

    def test_change_outlives_a_restart(self):
        self.open().change({'copies': 2, 'order': 'longest-wait'}, ('x', 'y'))
        # This one is not set, so it follows the configuration.
        self.configuration.dmclone_bandwidth_out = 'none'
        found = self.open()
        self.assertEqual((2, Order.LONGEST_WAIT, Bandwidth()), (
            found.limits.copies, found.limits.order,
            found.limits.bandwidth_out))
        self.assertEqual(['copies', 'order'], found.changed)
        self.assertEqual(('x', 'y'), found.first)
        self.assertEqual(1, len(os.listdir(self.folder)))

    def test_back_to_the_configuration(self):
        found = self.open()
        found.change({'copies': 0, 'bandwidth_in': 'none'}, ())
        found.change({'copies': None}, ())
        self.configuration.dmclone_copies_at_once = 7
        found = self.open()
        self.assertEqual((7, ['bandwidth_in']),
                         (found.limits.copies, found.changed))

    @ddt.data({'copies': -1}, {'bandwidth_in': 'x'}, {'min_rate': -1},
              {'order': 'x'})
    def test_refused(self, wrong):
        found = self.open()
        self.assertRaises(ValueError, found.change, wrong, ('x',))
        self.assertEqual((found.configured, ()), (found.limits, found.first))
        self.assertEqual([], os.listdir(self.folder))

    def test_cannot_be_stored(self):
        found = self.open()
        with mock.patch('dmclone_driver.move.pace_settings.os.replace',
                        side_effect=OSError):
            self.assertRaises(OSError, found.change, {'copies': 1}, ())
        self.assertEqual(4, found.limits.copies)

    @ddt.data('', '[]', '{}', '{"copies": "many", "first": []}',
              '{"copies": 1, "first": 7}', '{"first": [], "order": "x"}')
    def test_damaged(self, text):
        """The service starts nevertheless, and says what it has lost."""
        self.open().change({'copies': 1}, ())
        file, = self.folder.iterdir()
        file.write_text(text)
        with mock.patch(
                'dmclone_driver.move.pace_settings.LOG.warning') as warning:
            found = self.open()
        warning.assert_called_once()
        self.assertEqual((found.configured, ()), (found.limits, found.first))

    def test_value_of_a_newer_version(self):
        """What this version does not know does not harm."""
        self.open().change({'copies': 1}, ())
        file, = self.folder.iterdir()
        file.write_text('{"copies": 1, "first": [], "speed": "high"}')
        self.assertEqual(1, self.open().limits.copies)

    def test_unknown_change(self):
        found = self.open()
        found.change({'copies': 1, 'speed': 'high'}, ())
        self.assertEqual(['copies'], found.changed)
