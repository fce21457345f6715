# SPDX-License-Identifier: Apache-2.0
"""Marks of scenarios are in the ids by which stestr selects."""

import unittest

from tests.scenarios.lib import marks
from tests.unit import base


class MarksTestCase(base.PlainTestCase):
    """The examples are created here, so that they are not run."""

    def setUp(self):
        super().setUp()

        class Plain(marks.Marked, unittest.TestCase):

            def test_quick(self):
                pass

            @marks.slow
            def test_slow(self):
                pass

        @marks.needs('nova')
        class WithNova(Plain):
            pass

        @marks.slow
        class SlowWithNova(WithNova):
            pass

        self.plain, self.nova, self.both = Plain, WithNova, SlowWithNova

    @staticmethod
    def marks_in(test):
        return test.id().partition('[')[2]

    def test_none(self):
        self.assertTrue(self.plain('test_quick').id().endswith(
            '.Plain.test_quick'))

    def test_of_a_test(self):
        self.assertEqual('slow]', self.marks_in(self.plain('test_slow')))

    def test_of_a_class(self):
        self.assertEqual('nova]', self.marks_in(self.nova('test_quick')))

    def test_of_class_base_and_test(self):
        for test in (self.nova('test_slow'), self.both('test_slow'),
                     self.both('test_quick')):
            self.assertEqual('nova,slow]', self.marks_in(test))

    def test_a_base_stays_as_it_is(self):
        self.assertEqual('', self.marks_in(self.plain('test_quick')))
