# SPDX-License-Identifier: Apache-2.0
"""Work in a thread beside something else."""

import threading

from oslo_context import context as oslo_context
from oslo_context import fixture as context_fixture

from dmclone_driver.move import threads
from tests.unit import base


class BesideTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(context_fixture.ClearRequestContext())
        self.may_end, self.seen = threading.Event(), []

    def work(self, number=1):
        """Wait until the test allows that this ends, and note that."""
        self.may_end.wait(60)
        self.seen.append('work')
        return number + 1

    def work_in_vain(self):
        self.work()
        raise OSError('the work has failed')

    def end_soon(self):
        """Have the work end while its end is waited for."""
        timer = threading.Timer(0.1, self.may_end.set)
        timer.start()
        self.addCleanup(timer.join)

    def test_both_run(self):
        """Neither waits for the other one before its result is needed."""
        with threads.beside(self.work, 2) as result:
            self.seen.append('body')
            self.may_end.set()
            self.assertEqual(3, result())
            self.assertEqual(3, result())
        self.assertEqual(['body', 'work'], self.seen)

    def test_body_fails(self):
        """Its error is raised after the end of the work, whatever that is."""
        for function in (self.work, self.work_in_vain):
            self.may_end.clear()
            self.seen.clear()
            with self.assertRaisesRegex(RuntimeError, 'the body'), (
                    threads.beside(function)):
                self.end_soon()
                raise RuntimeError('the body has failed')
            self.assertEqual(['work'], self.seen)

    def test_body_does_not_wait(self):
        with threads.beside(self.work_in_vain):
            self.end_soon()
        self.assertEqual(['work'], self.seen)

    def test_work_fails(self):
        self.may_end.set()
        with self.assertRaisesRegex(OSError, 'the work'), (
                threads.beside(self.work_in_vain)) as result:
            result()

    def test_request(self):
        """The lines that the work logs have the id of the request."""
        context = oslo_context.RequestContext()
        with threads.beside(oslo_context.get_current) as result:
            self.assertIs(context, result())
