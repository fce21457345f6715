# SPDX-License-Identifier: Apache-2.0
"""Parsing the output of the kernel and dmsetup."""

import ddt

from dmclone_driver.node.devicemapper import status
from tests.unit import base

# Linux 6.1
PASSIVE = ('0 16384 clone 8 12/1024 128 0/128 0 2 no_hydration '
           'no_discard_passdown 4 hydration_threshold 64 '
           'hydration_batch_size 32 rw')


def changed(old, new):
    return status.clone(PASSIVE.replace(old, new))


@ddt.ddt
class CloneTestCase(base.PlainTestCase):

    def test_all_words(self):
        self.assertEqual(
            status.CloneStatus(length=16384, mode='rw', region=128,
                               hydrated=0, total=128, hydrating=0,
                               hydration=False, threshold=64, batch=32),
            status.clone(PASSIVE + ' \n'))

    def test_tail(self):
        """What is beyond the clone in the device does not matter."""
        self.assertEqual(status.clone(PASSIVE), status.clone(
            PASSIVE + '\n16384 8 linear \n'))

    @ddt.data(('0/128 64', True), ('0/128 63', False), ('0/128 1', False),
              ('120/128 4', True), ('120/128 3', False), ('127/128 1', True),
              ('127/128 0', False))
    @ddt.unpack
    def test_copies(self, counts, expected):
        """At least half of the window, or of what is left."""
        self.assertIs(expected, changed('0/128 0', counts).copies(128))

    @ddt.data((0, False), (1, True))
    @ddt.unpack
    def test_copies_of_one_region(self, number, expected):
        found = changed('0/128 0', '0/128 %d' % number)
        self.assertIs(expected, found.copies(1))

    def test_other_features(self):
        found = changed('2 no_hydration no_discard_passdown',
                        '1 no_discard_passdown')
        self.assertTrue(found.hydration)
        self.assertEqual('rw', found.mode)
        found = changed('2 no_hydration no_discard_passdown', '0')
        self.assertTrue(found.hydration)

    def test_paused(self):
        """A threshold of 0 begins no copy, also if hydration is on."""
        self.assertFalse(status.clone(PASSIVE).paused)
        on = PASSIVE.replace('2 no_hydration', '1')
        self.assertFalse(status.clone(on).paused)
        self.assertTrue(status.clone(on.replace(
            'threshold 64', 'threshold 0')).paused)

    def test_no_hydration_counts_as_a_feature_only(self):
        found = changed('2 no_hydration no_discard_passdown 4',
                        '0 5 no_hydration')
        self.assertTrue(found.hydration)

    @ddt.data(('0/128 0', False), ('1/128 0', True), ('0/128 1', True),
              ('128/128 0', True))
    @ddt.unpack
    def test_written(self, counts, expected):
        self.assertIs(expected, changed('0/128 0', counts).written)

    @ddt.data(('0/128 0', False), ('127/128 1', False), ('127/128 0', False),
              ('128/128 1', False), ('128/128 0', True), ('0/0 0', False))
    @ddt.unpack
    def test_complete(self, counts, expected):
        self.assertIs(expected, changed('0/128 0', counts).complete)

    @ddt.data((0, 0, 0, 128), (100, 100, 0, 28), (100, 110, 10, 28),
              # Not all are marked yet.
              (100, 60, 0, 68))
    @ddt.unpack
    def test_without(self, marked, hydrated, rest, total):
        found = changed('0/128 0', '%d/128 0' % hydrated).without(marked)
        self.assertEqual((rest, total), (found.hydrated, found.total))

    def test_without_is_complete_with_all(self):
        for hydrated, expected in (127, False), (128, True):
            found = changed('0/128 0', '%d/128 0' % hydrated)
            self.assertIs(expected, found.without(100).complete)

    def test_complete_but_read_only(self):
        """After a failed commit the metadata on disk is older."""
        text = PASSIVE.replace('0/128', '128/128')
        self.assertTrue(status.clone(text).complete)
        found = status.clone(text.replace(' rw', ' ro'))
        self.assertFalse(found.healthy)
        self.assertFalse(found.complete)

    @ddt.data('Fail', 'Error')
    def test_failed(self, mode):
        found = status.clone('0 16384 clone %s' % mode)
        self.assertEqual((16384, mode), (found.length, found.mode))
        self.assertFalse(found.healthy)
        self.assertFalse(found.complete)

    @ddt.data('', '0 16384 linear', '0 16384 linear 253:1 0', 'clone')
    def test_something_else(self, text):
        self.assertRaises(ValueError, status.clone, text)


class PoolTestCase(base.PlainTestCase):
    #: Of a kernel, with a metadata snapshot.
    POOL = ('0 204800 thin-pool 7 12/1024 100/1600 6 %s no_discard_passdown '
            'error_if_no_space - 256 \n')

    def test_fields(self):
        for mode in ('rw', 'ro', 'out_of_data_space'):
            self.assertEqual(
                status.PoolStatus(204800, mode, 100, 1600, 12, 1024, True),
                status.pool(self.POOL % mode))

    def test_needs_check(self):
        found = status.pool((self.POOL % 'ro').replace(
            'error_if_no_space -', 'error_if_no_space needs_check'))
        self.assertEqual(('ro', True), (found.mode, found.needs_check))

    def test_without_a_metadata_snapshot(self):
        self.assertFalse(status.pool(
            (self.POOL % 'rw').replace(' 6 ', ' - ')).copied)

    def test_failed(self):
        found = status.pool('0 204800 thin-pool Fail\n')
        self.assertEqual(('Fail', 0), (found.mode, found.total))

    def test_something_else(self):
        self.assertRaises(ValueError, status.pool, '0 64 thin 0 -\n')


class ThinTestCase(base.PlainTestCase):

    def test_mapped(self):
        for text, mapped in (('20480 2097151', 20480), ('0 -', 0)):
            self.assertEqual(mapped, status.thin('0 2097152 thin %s\n' % text))

    def test_failed(self):
        self.assertRaises(ValueError, status.thin, '0 64 thin Fail\n')

    def test_something_else(self):
        self.assertRaises(ValueError, status.thin, '0 64 linear 253:1 0\n')
