# SPDX-License-Identifier: Apache-2.0
"""The choice of a node by its free room, and what is reserved there."""

import collections
import sys
from unittest import mock

from dmclone_driver.drain.facts import Place
from dmclone_driver.drain.facts import Volume
from dmclone_driver.drain import room
from tests.unit import base


class RoomTestCase(base.PlainTestCase):

    def room(self, *places, to=None, silent=()):
        made = room.Room(to)
        made.update(places, dict(silent))
        return made

    def refused(self, made, *volumes, **options):
        """Return the error of a reservation."""
        return self.assertRaises(room.NoRoom, made.reserve, volumes,
                                 **options)

    def test_most_room_is_first(self):
        made = self.room(Place('b', None, 20), Place('c', None, 30.5))
        self.assertEqual('c', made.reserve([Volume('v', 10)]).node)

    def test_what_is_reserved_is_not_free(self):
        made = self.room(Place('b', None, 20), Place('c', None, 30.5))
        chosen = [made.reserve([Volume('v', 10)]).node
                  for _number in range(5)]
        self.assertEqual(('c', ['b', 'b', 'c', 'c', 'c']),
                         (chosen[0], sorted(chosen)))
        error = self.refused(made, Volume('v', 1))
        self.assertEqual(('b: 0.00 GiB are free; c: 0.50 GiB are free', True),
                         (str(error), error.later))

    def choices(self, *places):
        """Return {node: volumes} of drains that know nothing of each other."""
        return collections.Counter(
            self.room(*places).reserve([Volume('volume-%d' % number, 10)]).node
            for number in range(200))

    def test_drains_at_once_do_not_choose_the_same_nodes(self):
        nodes = ['node%d' % number for number in range(10)]
        found = self.choices(*(Place(node, None, 500) for node in nodes))
        self.assertEqual(set(nodes), set(found))
        self.assertLess(max(found.values()), 40)

    def test_much_less_room_is_not_as_good(self):
        self.assertEqual({'b', 'c'}, set(self.choices(
            Place('b', None, 500), Place('c', None, 451),
            Place('d', None, 449))))

    def test_the_same_choice_each_time(self):
        """A volume that is tried again goes to the same node."""
        self.assertEqual(1, len({self.room(*(
            Place(node, None, 500) for node in order)).reserve(
                [Volume('v', 10)]).node for order in ('bcd', 'dcb', 'cbd')}))

    def lines(self, number):
        """Return the lines of the module that run to place many volumes."""
        made = self.room(*(Place('node%d' % each, None, 5000)
                           for each in range(10)))
        volumes = [Volume('volume-%d' % each, 10) for each in range(number)]
        lines = 0

        def trace(frame, event, argument):
            nonlocal lines
            if not frame.f_code.co_filename.endswith('/drain/room.py'):
                return None
            lines += event == 'line'
            return trace
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            for each in volumes:
                made.reserve([each])
        finally:
            sys.settrace(before)
        return lines

    def test_a_volume_costs_the_same_after_many_others(self):
        few, many = self.lines(50), self.lines(200)
        self.assertLess(many, 4.4 * few)

    def test_type_is_compared_once_with_each_node(self):
        made = self.room(*(Place('node%d' % each, None, 500)
                           for each in range(20)))
        with mock.patch('dmclone_driver.move.preflight.unwanted',
                        return_value=None) as unwanted:
            for number in range(100):
                made.reserve([Volume('volume-%d' % number, 1, extra_specs={
                    'fast': '<is> True'})])
            self.assertEqual(20, unwanted.call_count)
            made.exclude('node3', 'it is dead')
            made.reserve([Volume('other', 1)])
            self.assertEqual(20 + 19, unwanted.call_count)

    def test_never_more_than_fits(self):
        made = self.room(Place('b', None, 9.99))
        error = self.refused(made, Volume('v', 10))
        self.assertFalse(error.later)
        self.assertEqual('b', made.reserve([Volume('v', 9)]).node)

    def test_volumes_of_an_instance_go_together(self):
        made = self.room(Place('b', None, 15), Place('c', None, 15))
        self.assertFalse(self.refused(made, Volume('v', 10), Volume('w', 10),
                                      anywhere=True).later)

    def test_space_for_novas_choice_is_reserved_on_all(self):
        made = self.room(Place('b', None, 15), Place('c', None, 15))
        self.assertIsNone(made.reserve([Volume('v', 10)],
                                       anywhere=True).node)
        self.assertTrue(self.refused(made, Volume('v', 10)).later)

    def test_space_for_the_operators_choice(self):
        made = self.room(Place('b', 'z', 15), to='b')
        self.assertEqual('b', made.reserve([Volume('v', 10)],
                                           anywhere=True).node)

    def test_move_that_has_failed_takes_no_space(self):
        made = self.room(Place('b', None, 10))
        made.end(made.reserve([Volume('v', 10)]), moved=False)
        self.assertEqual('b', made.reserve([Volume('v', 10)]).node)

    def test_move_that_has_ended_takes_space_until_the_node_says_so(self):
        made = self.room(Place('b', None, 20))
        made.end(made.reserve([Volume('v', 10)]), moved=True)
        used = made.used()
        made.end(made.reserve([Volume('v', 10)]), moved=True)
        self.assertFalse(self.refused(made, Volume('v', 1)).later)
        # The answer was sent before the second move.
        made.update([Place('b', None, 10)], {}, used)
        self.refused(made, Volume('v', 1))
        made.update([Place('b', None, 5)], {}, made.used())
        self.assertEqual('b', made.reserve([Volume('v', 5)]).node)

    def test_volume_at_rest_stays_in_its_zone(self):
        made = self.room(Place('b', 'east', 20))
        self.assertIn('another availability zone (east)', str(
            self.refused(made, Volume('v', 1, zone='west'))))
        for options in ({'to': 'b'}, {}):
            made = self.room(Place('b', 'east', 20), **options)
            made.reserve([Volume('v', 1, zone='west')],
                         anywhere=not options)

    def test_type_that_does_not_want_the_node(self):
        made = self.room(Place('b', None, 20, {'fast': False}))
        self.assertIn('its type wants fast <is> True', str(self.refused(
            made, Volume('v', 1, extra_specs={'fast': '<is> True'}))))

    def test_excluded_node(self):
        made = self.room(Place('b', None, 20), Place('c', None, 30))
        made.exclude('c', 'it is dead')
        self.assertEqual('b', made.reserve([Volume('v', 10)]).node)
        self.assertIn('c: it is dead', str(self.refused(made,
                                                        Volume('v', 11))))

    def test_nodes_that_do_not_answer_are_named(self):
        self.assertEqual('c: no answer', str(self.refused(
            self.room(silent={'c': 'no answer'}), Volume('v', 1))))

    def test_no_node(self):
        self.assertEqual('there is no other node', str(self.refused(
            self.room(), Volume('v', 1))))
