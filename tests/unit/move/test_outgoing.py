# SPDX-License-Identifier: Apache-2.0
"""Which copies from a node run, and how fast they are together."""

import types

from dmclone_driver.move import lenders
from dmclone_driver.move import outgoing
from tests.unit import base


class OutgoingTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.now = 0
        self.settings = types.SimpleNamespace(
            limits=types.SimpleNamespace(copies=2), bandwidth_out=100)
        self.outgoing = outgoing.Outgoing(self.settings, lambda: self.now)

    def lend(self, reader, wanted, seconds=1):
        self.now += seconds
        return self.outgoing.lend(reader, wanted.split())

    def test_nothing(self):
        self.assertEqual({}, self.lend('a', ''))
        self.assertEqual((0, 0), self.outgoing.counts())

    def test_share(self):
        self.assertEqual({'1': 100}, self.lend('a', '1'))
        self.assertEqual({'2': 50}, self.lend('b', '2'))
        self.assertEqual({'1': 50}, self.lend('a', '1'))

    def test_no_limit(self):
        self.settings.bandwidth_out = None
        self.assertEqual({'1': None, '2': None, '3': 0},
                         self.lend('a', '1 2 3'))

    def test_who_came_first(self):
        """Turns are kept, whatever other nodes want."""
        self.lend('a', '2 1')
        for _ in range(20):
            self.assertEqual({'3': 0}, self.lend('b', '3', lenders.RETRY))
            self.assertEqual({'1': 50, '2': 50},
                             self.lend('a', '1 2', lenders.RETRY))
        self.assertEqual((2, 1), self.outgoing.counts())

    def test_turn_is_passed_on(self):
        self.lend('a', '1 2')
        self.lend('b', '3')
        self.lend('c', '4')
        self.assertEqual({'2': 50}, self.lend('a', '2'))
        self.assertEqual({'4': 0}, self.lend('c', '4'))
        self.assertEqual({'3': 50}, self.lend('b', '3'))

    def test_copy_is_complete(self):
        self.lend('a', '1 2')
        self.lend('b', '3')
        self.outgoing.forget('1')
        self.outgoing.forget('unknown')
        self.assertEqual({'3': 50}, self.lend('b', '3'))

    def test_node_that_does_not_ask_again(self):
        self.lend('a', '1 2')
        self.assertEqual({'3': 0}, self.lend('b', '3', outgoing.LEASE - 10))
        self.assertEqual({'3': 100}, self.lend('b', '3', 20))
        self.assertEqual((1, 0), self.outgoing.counts())

    def test_reader_asks_before_it_is_forgotten(self):
        """Also if one of its requests is lost."""
        self.assertLess(2 * lenders.RENEW, outgoing.LEASE)

    def test_limit_changes(self):
        self.lend('a', '1 2')
        self.settings.limits.copies = 1
        self.assertEqual({'1': 100, '2': 0}, self.lend('a', '1 2'))
        self.settings.limits.copies = 0
        self.assertEqual({'1': 0, '2': 0}, self.lend('a', '1 2'))
        self.assertEqual((0, 2), self.outgoing.counts())
