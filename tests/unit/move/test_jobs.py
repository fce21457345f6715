# SPDX-License-Identifier: Apache-2.0
"""The queue of jobs, and its pauses between retries."""

from unittest import mock

from dmclone_driver.move import jobs
from tests.unit import base


class PausesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.now = 5
        self.pauses = jobs.Pauses(lambda: self.now)

    def test_pauses_double_up_to_the_last(self):
        gaps, last = [], self.now
        while len(gaps) < 12:
            if self.pauses.due('key'):
                gaps.append(self.now - last)
                last = self.now
            else:
                self.now += 1
        self.assertEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300],
                         gaps)

    def test_forget(self):
        self.assertTrue(self.pauses.due('key'))
        self.assertFalse(self.pauses.due('key'))
        self.pauses.forget('key')
        self.assertTrue(self.pauses.due('key'))

    def test_keys_are_apart(self):
        self.assertTrue(self.pauses.due('one'))
        self.assertTrue(self.pauses.due('two'))


class JobsBase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.now, self.tried = 5, []
        self.jobs = jobs.Jobs(lambda: self.now)
        self.threads = self.patch('dmclone_driver.move.jobs.threading').Thread
        self.kind = self.jobs.kind('a kind', self.tried.append, last=2)

    def work(self):
        """Run the functions of all started threads."""
        for call in self.threads.call_args_list:
            call.kwargs['target'](*call.kwargs['args'])
        self.threads.reset_mock()


class JobsTestCase(JobsBase):

    def test_nothing_to_do(self):
        self.jobs.look('context')
        self.threads.assert_not_called()
        self.assertEqual({}, self.jobs.left())

    def test_until_it_is_done(self):
        self.kind.add('x', 'details')
        for seconds, expected in ((0, 1), (0, 0), (1, 1), (1, 0), (1, 1),
                                  (1, 0), (1, 1)):
            self.now += seconds
            self.jobs.look('context')
            self.work()
            self.assertEqual(expected, len(self.tried))
            self.tried.clear()
        self.assertEqual({'a kind': ['x']}, self.jobs.left())
        self.kind.discard('x')
        self.kind.discard('x')
        self.now += 100
        self.jobs.look('context')
        self.threads.assert_not_called()

    def test_the_next_begins_with_a_short_pause(self):
        for _ in range(5):
            self.kind.add('x')
            self.jobs.look('context')
            self.work()
            self.kind.discard('x')
            self.jobs.look('context')
        self.assertEqual(5, len(self.tried))

    def test_once_at_a_time(self):
        self.kind.add('x')
        for _ in range(3):
            self.jobs.look('context')
            self.now += 100
        self.threads.assert_called_once()
        self.assertTrue(self.jobs.at_work('a kind'))
        self.work()
        self.assertEqual(['context'], self.tried)
        self.assertFalse(self.jobs.at_work('a kind'))

    def test_it_fails(self):
        failing = mock.Mock(side_effect=OSError)
        self.jobs.start('key', failing, 1)
        self.work()
        self.jobs.start('key', failing, 2)
        self.work()
        self.assertEqual([mock.call(1), mock.call(2)],
                         failing.call_args_list)

    def test_no_thread(self):
        self.threads.return_value.start.side_effect = RuntimeError
        self.assertRaises(RuntimeError, self.jobs.start, 'key', id, 1)
        self.assertFalse(self.jobs.at_work('key'))

    def test_of_a_kind_that_is_known_elsewhere(self):
        self.jobs.add('a kind', 'x', 'details')
        self.assertEqual({'x': 'details'}, self.kind)


class HurriedJobsTestCase(JobsBase):

    def setUp(self):
        super().setUp()
        self.patient = self.jobs.kind('patient', self.run_it, last=60)
        self.patient.add('x')
        self.patient.add('y')
        self.assertEqual([('context',)], self.look())

    def run_it(self, *args):
        self.tried.append(args)

    def look(self):
        """Look, and run the threads; returns what they are called with."""
        self.tried.clear()
        self.jobs.look('context')
        self.work()
        return list(self.tried)

    def test_before_its_pause_is_over(self):
        """Once, and no other."""
        self.jobs.hurry('patient', 'x')
        self.assertEqual([('context', {'x'})], self.look())
        self.assertEqual([], self.look())
        self.now += 1
        self.assertEqual([('context',)], self.look())

    def test_unknown(self):
        self.jobs.hurry('patient', 'z')
        self.assertEqual([], self.look())

    def test_while_others_are_tried(self):
        """It is tried afterwards."""
        self.tried.clear()
        self.jobs.start('patient', self.run_it, 'long')
        self.jobs.hurry('patient', 'x')
        self.jobs.look('context')
        self.work()
        self.assertEqual([('long',)], self.tried)
        self.assertEqual([('context', {'x'})], self.look())
