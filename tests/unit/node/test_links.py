# SPDX-License-Identifier: Apache-2.0
"""The speed of the link that has an address."""

import types

import ddt

from dmclone_driver.node import links
from tests.unit import base


@ddt.ddt
class SpeedTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        cards = {'lo': (['127.0.0.1', '::1'], 0),
                 'eth0': (['192.0.2.11', 'fe80::1%eth0'], 10000),
                 'br0': (['198.51.100.1'], 1000),
                 'virtual': (['203.0.113.1'], 0)}
        self.patch('dmclone_driver.node.links.psutil',
                   new=types.SimpleNamespace(
                       net_if_addrs=lambda: dict({
                           name: [types.SimpleNamespace(address=each)
                                  for each in addresses]
                           for name, (addresses, _) in cards.items()},
                           gone=[types.SimpleNamespace(
                               address='192.0.2.99')]),
                       net_if_stats=lambda: {
                           name: types.SimpleNamespace(speed=speed)
                           for name, (_, speed) in cards.items()}))

    @ddt.data(('192.0.2.11', 1250000000), ('fe80::1', 1250000000),
              ('198.51.100.1', 125000000), ('203.0.113.1', None),
              ('127.0.0.1', None), ('192.0.2.99', None),
              ('192.0.2.1', None))
    @ddt.unpack
    def test_address(self, address, expected):
        self.assertEqual(expected, links.speed(address))


class ThisMachineTestCase(base.PlainTestCase):

    def test_any_address(self):
        """The library knows the cards of the machine that runs the test."""
        self.assertIsNone(links.speed('not an address'))
        found = links.speed('127.0.0.1')
        self.assertTrue(found is None or found > 0)
