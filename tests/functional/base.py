# SPDX-License-Identifier: Apache-2.0
"""Base of tests on a real kernel with LVM, run as root on a lab node."""

import unittest

from lab.common import clones


class FunctionalTest(clones.Clones, unittest.TestCase):
    """A test that checks that it leaves no device and no logical volume."""

    def setUp(self):
        super().setUp()
        self.prepare()
        self.addCleanup(lambda: self.assertEqual([], self.left()))
