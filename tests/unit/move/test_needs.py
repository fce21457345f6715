# SPDX-License-Identifier: Apache-2.0
"""What a move needs on its destination."""

import ddt

from dmclone_driver.move.needs import Needs
from tests.unit import base

GIB = 2 ** 30


@ddt.ddt
class NeedsTestCase(base.PlainTestCase):

    @ddt.data((None, 4, 0, 0, None), (None, 3, 9, 9, 'needs 4 GiB'),
              (1, 0, 4, 1, None), (1, 9, 3, 9, 'it has 4 GiB'),
              (1, 9, 9, 0.5, 'allocated 1.00 GiB'),
              (0, 9, 9, 0, '(reserved_percentage = 5, 2 at least;'))
    @ddt.unpack
    def test_lacking(self, allocated, free, virtual, blocks, lacking):
        needs = Needs(4 * GIB, None if allocated is None else allocated * GIB)
        found = needs.lacking({
            'free_gb': free, 'virtual_free_gb': virtual,
            'free_blocks_gb': blocks, 'reserved_percentage': 5})
        if lacking is None:
            self.assertIsNone(found)
        else:
            self.assertIn(lacking, found)
            self.assertIn('reserved_percentage = 5', found)

    def test_request(self):
        """An older peer would refuse the argument."""
        self.assertEqual({}, Needs(4 * GIB).request())
        self.assertEqual({'version': '1.6', 'allocated': 0},
                         Needs(4 * GIB, 0).request())
