# SPDX-License-Identifier: Apache-2.0
"""What is in a thin pool that fails is not tried volume by volume."""

from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import lvm
from dmclone_driver.node import pool_activation
from dmclone_driver.node.quantities import Bytes
from tests.unit import base


def volume(name, active=False, pool='volumes-pool'):
    return LogicalVolume('volumes', name, Bytes(1 << 30), active, pool=pool)


class PoolActivationTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.seconds = 0
        self.live = self.patch('dmclone_driver.node.thin_pools.is_live',
                               return_value=False)
        self.activate = self.patch(
            'dmclone_driver.node.logical_volumes.activate',
            side_effect=lvm.LVMError(stderr='Check of pool failed'))
        self.pools = pool_activation.PoolActivation(lambda: self.seconds)

    def assertFails(self, name, text='Check of pool failed', **fields):
        error = self.assertRaises(lvm.LVMError, self.pools.activate,
                                  volume(name, **fields))
        self.assertEqual(text, error.stderr)

    def test_is_tried_once_in_a_minute(self):
        self.assertFails('volume-1')
        self.seconds = 59
        self.assertFails('volume-2')
        self.assertEqual(1, self.activate.call_count)
        self.seconds = 60
        self.assertFails('volume-2')
        self.assertEqual(2, self.activate.call_count)

    def test_others_are_activated(self):
        self.assertFails('volume-1')
        self.activate.side_effect = None
        for fields in {'pool': 'other'}, {'pool': ''}:
            self.pools.activate(volume('volume-2', **fields))
        self.assertEqual(3, self.activate.call_count)

    def test_pool_works(self):
        """Only the volume itself cannot be activated."""
        self.live.return_value = True
        for name in 'volume-1', 'volume-2':
            self.assertFails(name)
        self.assertEqual(2, self.activate.call_count)

    def test_failed_before(self):
        self.pools.note_inactive('volumes', 'volumes-pool')
        self.assertFails('volume-1', 'thin pool volumes-pool is not active')
        self.activate.assert_not_called()

    def test_active(self):
        self.assertFails('volume-1')
        self.pools.activate(volume('volume-2', active=True))
        self.assertEqual(1, self.activate.call_count)
