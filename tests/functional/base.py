# SPDX-License-Identifier: Apache-2.0
"""Driver code on a real kernel with real LVM; run as root on a lab node."""

import unittest

from lab.common import clones


class FunctionalTest(clones.Clones, unittest.TestCase):
    """A test with logical volumes, and a check that none is left."""

    def setUp(self):
        super().setUp()
        self.prepare()
        self.addCleanup(lambda: self.assertEqual([], self.left()))
