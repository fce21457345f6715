# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is, how the bandwidth is divided, and the limits as values."""

import math

import ddt

from dmclone_driver.move import pace
from dmclone_driver.move.pace import Bandwidth
from dmclone_driver.move.pace import Copy
from dmclone_driver.move.pace import Limits
from dmclone_driver.move.pace import Order
from dmclone_driver.node.names import Names
from dmclone_driver import opts
from tests.unit import base

NONE = Bandwidth()


def copy(number, left=100, **facts):
    return Copy(Names('%08d' % number), left, **facts)


def numbers(names):
    return [int(each.name_id) for each in names]


def limits(copies, order=Order.NEARLY_COMPLETE):
    return Limits(copies, NONE, NONE, 16, order)


@ddt.ddt
class BandwidthTestCase(base.PlainTestCase):

    @ddt.data(('50%', 50), ('100%', 100), ('1 %', 1), ('200MB', 2e8),
              ('1Gbit', 1.25e8), ('1.5MiB', 1572864), ('none', None))
    @ddt.unpack
    def test_of_a_link(self, text, expected):
        self.assertEqual(expected, Bandwidth.parse(text).of(100))

    @ddt.data('50%', '200MB', '2GB', '3GiB', '1MiB', '7kB', '9KiB', '11B',
              'none')
    def test_text(self, text):
        self.assertEqual(text, str(Bandwidth.parse(text)))

    def test_unknown_link(self):
        self.assertIsNone(Bandwidth.parse('50%').of(None))
        self.assertEqual(1000, Bandwidth.parse('1kB').of(None))

    @ddt.data('', '0%', '101%', '999%', '-5%', '0MB', '-1MB', '7', 'much',
              '50', '1MB/s')
    def test_wrong(self, text):
        error = self.assertRaises(ValueError, Bandwidth.parse, text)
        self.assertIn(repr(text), str(error))

    @ddt.data('50%', '100%', '1%', '200MB', '1Gbit', '1.5MiB', '9b', 'none')
    def test_option_takes_it(self, text):
        self.assertEqual(text, self.option().type(text))
        Bandwidth.parse(text)

    @ddt.data('', '0%', '101%', '-5%', '7', 'much', '1MB/s', 'xnone', '%')
    def test_option_refuses_it(self, text):
        self.assertRaises(ValueError, self.option().type, text)

    @staticmethod
    def option():
        return next(each for each in opts.MOVE_OPTS
                    if each.name == 'dmclone_bandwidth_in')


@ddt.ddt
class LimitsTestCase(base.PlainTestCase):

    def test_as_dict(self):
        found = Limits(3, Bandwidth(percent=50), Bandwidth(rate=7), 5,
                       Order.LONGEST_WAIT)
        self.assertEqual(found, Limits.parse(found.as_dict()))

    @ddt.data({'copies': -1}, {'copies': '3'}, {'copies': True},
              {'bandwidth_out': '0%'}, {'min_rate': -1}, {'min_rate': '1'},
              {'order': 'alphabet'})
    def test_wrong(self, wrong):
        self.assertRaises(ValueError, Limits.parse,
                          dict(limits(1).as_dict(), **wrong))


@ddt.ddt
class TurnsTestCase(base.PlainTestCase):

    def plan(self, *copies, limit=1, order=Order.NEARLY_COMPLETE):
        found = pace.plan(copies, limits(limit, order), None)
        # Each has its place, and nobody has two.
        self.assertEqual(
            sorted(each.names.name_id for each in copies),
            sorted(each.name_id for each in [*found.rates, *found.queue]))
        return found

    def test_nothing(self):
        self.assertEqual(pace.Plan(), self.plan())

    def test_number(self):
        found = self.plan(*map(copy, range(5)), limit=3)
        self.assertEqual(3, len(found.turns))
        self.assertEqual([3, 4], numbers(found.queue))

    def test_nearly_complete_first(self):
        found = self.plan(copy(1, 300), copy(2, 100), copy(3, 200))
        self.assertEqual([2], numbers(found.turns))
        self.assertEqual([3, 1], numbers(found.queue))

    def test_longest_wait_first(self):
        found = self.plan(copy(1, 1, waited=5), copy(2, 9, waited=7),
                          order=Order.LONGEST_WAIT)
        self.assertEqual([2], numbers(found.turns))

    def test_who_runs_keeps_its_turn(self):
        found = self.plan(copy(1, 1), copy(2, 9, running=True))
        self.assertEqual([2], numbers(found.turns))

    @ddt.data({'draining': True}, {'read': True}, {'first': 0})
    def test_what_is_urgent_takes_a_turn(self, urgent):
        found = self.plan(copy(1, 1, running=True), copy(2, 9, **urgent))
        self.assertEqual([2], numbers(found.turns))

    def test_what_is_urgent_in_order(self):
        """The operator's wish, then chains from their end, then drains."""
        found = self.plan(copy(1), copy(2, draining=True), copy(3, read=True),
                          copy(4, first=1), copy(5, first=0))
        self.assertEqual([5], numbers(found.turns))
        self.assertEqual([4, 3, 2, 1], numbers(found.queue))

    def test_patience_has_an_end(self):
        """Small copies that arrive all the time do not go before for ever."""
        found = self.plan(copy(1, 10 ** 12, waited=pace.PATIENCE), copy(2, 1))
        self.assertEqual([1], numbers(found.turns))

    @ddt.data({}, {'draining': True}, {'read': True})
    def test_who_has_had_a_turn_in_vain(self, urgent):
        """Many of them do not take all turns, again and again."""
        found = self.plan(copy(1, 1, vain=True, **urgent), copy(2, 9))
        self.assertEqual([2], numbers(found.turns))
        found = self.plan(copy(1, 1, vain=True, waited=pace.PATIENCE),
                          copy(2, 9))
        self.assertEqual([1], numbers(found.turns))

    def test_patience_takes_no_turn(self):
        found = self.plan(copy(1, waited=pace.PATIENCE),
                          copy(2, running=True))
        self.assertEqual([2], numbers(found.turns))

    def test_who_copies_nothing_needs_no_turn(self):
        """A dead source, or a busy guest, holds nobody up."""
        found = self.plan(copy(1, running=True, idle=True), copy(2))
        self.assertEqual([2], numbers(found.turns))
        self.assertEqual([1, 2], sorted(numbers(found.rates)))

    def test_who_cannot_begin_needs_no_turn(self):
        found = self.plan(copy(1, idle=True), copy(2))
        self.assertEqual([2], numbers(found.turns))
        self.assertEqual([1, 2], sorted(numbers(found.rates)))

    def test_whom_the_source_refuses_needs_no_turn(self):
        found = self.plan(copy(1, 1, granted=0), copy(2),
                          copy(3, running=True, granted=0))
        self.assertEqual([2], numbers(found.turns))
        self.assertEqual([3, 1], numbers(found.queue))

    def test_all_are_stopped(self):
        found = self.plan(copy(1, running=True), copy(
            2, running=True, idle=True), copy(3, first=0), limit=0)
        self.assertEqual([3, 1, 2], numbers(found.queue))

    def test_limit_was_lowered(self):
        """Those that are complete soonest go on."""
        found = self.plan(*(copy(number, 9 - number, running=True)
                            for number in range(4)), limit=2)
        self.assertEqual([2, 3], sorted(numbers(found.turns)))


class RatesTestCase(base.PlainTestCase):

    def rates(self, bandwidth, *copies):
        found = pace.plan(copies, limits(9), bandwidth).rates
        return {int(names.name_id): rate for names, rate in found.items()}

    def test_no_limit(self):
        self.assertEqual({1: None, 2: None},
                         self.rates(None, copy(1), copy(2)))

    def test_equal_shares(self):
        self.assertEqual({1: 50, 2: 50}, self.rates(100, copy(1), copy(2)))

    def test_what_a_source_does_not_give_others_get(self):
        self.assertEqual({1: 10, 2: 45, 3: 45}, self.rates(
            100, copy(1, granted=10), copy(2), copy(3, granted=70)))

    def test_sources_alone_limit(self):
        self.assertEqual({1: 10, 2: None}, self.rates(
            None, copy(1, granted=10), copy(2, granted=math.inf)))

    def test_source_on_the_same_node(self):
        """It uses no link."""
        self.assertEqual({1: None, 2: 100},
                         self.rates(100, copy(1, local=True), copy(2)))

    def test_idle_copies_take_nothing_from_others(self):
        idle = {'running': True, 'idle': True}
        self.assertEqual({1: 50, 2: 50, 3: 10, 4: 33, 5: None}, self.rates(
            100, copy(1), copy(2), copy(3, granted=10, **idle),
            copy(4, granted=33, **idle), copy(5, local=True, **idle)))
        self.assertEqual({1: 100, 2: 50}, self.rates(
            100, copy(1), copy(2, **idle)))
