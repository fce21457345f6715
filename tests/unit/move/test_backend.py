# SPDX-License-Identifier: Apache-2.0
"""The locks of volumes, with failures of the locks' service."""

import re
import threading

from cinder import exception as cinder_exception
import ddt
import fixtures
from oslo_concurrency import lockutils
import testtools
import tooz

from dmclone_driver import exception
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import records
from tests.unit import base


class Lock:
    """Replaces tooz's lock; always acquired, like a lock that was lost.

    Tests replace its actions.
    """

    def __init__(self):
        self.asked = []
        self.answer = lambda blocking: True
        self.end = lambda: True

    def acquire(self, blocking=True):
        self.asked.append(blocking)
        return self.answer(blocking)

    def release(self):
        self.asked.append('release')
        return self.end()


def fail(*args):
    raise tooz.coordination.ToozConnectionError('no etcd')


class Elsewhere(Exception):
    """The exception of some backends of tooz at a timeout."""


class LocksTestCase(base.PlainTestCase):
    """A test with one backend on one node, with real semaphores."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.tooz = Lock()
        self.names = []
        self.patch('cinder.coordination.Coordinator.get_lock',
                   new=self.get_lock)
        self.backend = self.make_backend()
        self.semaphores = lockutils.Semaphores()
        self.patch('dmclone_driver.move.locks._SEMAPHORES',
                   new=self.semaphores)

    def get_lock(self, name):
        self.names.append(name)
        return self.tooz

    @staticmethod
    def make_backend(host='node1@dmclone'):
        return backend_module.Backend(host, *[None] * 6)

    def refused(self, volume_id='x', timeout=None, backend=None):
        """Return the error of a lock that can't be acquired."""
        def enter():
            with (backend or self.backend).lock(volume_id, timeout):
                self.fail('two hold the lock')
        return self.assertRaises(exception.LockNotAcquired, enter)


@ddt.ddt
class HoldersTestCase(LocksTestCase):
    """A volume's lock has one holder per process."""

    def test_lost_lock_lets_no_second_thread_in(self):
        with self.backend.lock('x'):
            self.refused(timeout=0)
            self.refused(timeout=-1)
            self.refused(timeout=0, backend=self.make_backend())
        self.assertEqual([True, 'release'], self.tooz.asked)
        with self.backend.lock('x', timeout=0):
            self.assertEqual([True, 'release', 0], self.tooz.asked)

    def test_unused_ones_take_no_memory(self):
        for volume_id in 'xyz':
            with self.backend.lock(volume_id):
                self.assertEqual(1, len(self.semaphores))
        self.assertEqual(0, len(self.semaphores))

    def test_others_are_let_in(self):
        other = self.make_backend('node2@dmclone')
        with self.backend.lock('x'), other.lock('x'), self.backend.lock('y'):
            self.assertEqual(['dmclone-node1@dmclone-x',
                              'dmclone-node2@dmclone-x',
                              'dmclone-node1@dmclone-y'], self.names)

    def test_second_thread_waits(self):
        order, begun = [], threading.Event()

        def second():
            begun.set()
            with self.backend.lock('x'):
                order.append('second')

        thread = threading.Thread(target=second, daemon=True)
        with self.backend.lock('x'):
            thread.start()
            begun.wait(60)
            order.append('first')
        thread.join(60)
        self.assertEqual(['first', 'second'], order)

    @ddt.data((0, 'INFO'), (3600, 'DEBUG'))
    @ddt.unpack
    def test_times_are_logged(self, long, level):
        self.patch('dmclone_driver.move.locks.LONG', new=long)
        with (self.assertLogs('dmclone_driver.move.locks', 'DEBUG') as logs,
              self.backend.lock('x')):
            pass
        self.assertEqual(
            [(level, 'The lock of volume x was acquired after N seconds.'),
             (level, 'The lock of volume x was held for N seconds.')],
            # The machine may be busy.
            [(record.levelname, re.sub(r'\d+\.\d', 'N', record.getMessage()))
             for record in logs.records])

    def test_error_under_the_lock(self):
        """It is not replaced by an error of the release."""
        self.tooz.end = fail
        with (testtools.ExpectedException(ZeroDivisionError),
              self.backend.lock('x')):
            raise ZeroDivisionError
        self.tooz.end = lambda: True
        with self.backend.lock('x', timeout=0):
            self.assertEqual({}, self.backend.locks.unreleased)


@ddt.ddt
class AcquireTestCase(LocksTestCase):
    """A lock that cannot be acquired is refused with a reason."""

    def assert_free(self):
        self.tooz.answer = lambda blocking: True
        with self.backend.lock('x', timeout=60):
            self.assertGreater(self.tooz.asked[-1], 0)

    def test_without_limit(self):
        with self.backend.lock('x'):
            self.assertEqual([True], self.tooz.asked)

    def test_service_does_not_answer(self):
        for timeout in (None, 60):
            self.tooz.answer = fail
            error = self.refused(timeout=timeout)
            for word in ('volume x', 'Nothing was done', 'backend_url',
                         'Try again'):
                self.assertIn(word, error.msg)
        self.assertIn('no etcd', self.log.output)
        self.assert_free()

    def test_service_was_not_started(self):
        self.patch('cinder.coordination.Coordinator.get_lock',
                   side_effect=cinder_exception.LockCreationFailed('none'))
        self.assertIn('backend_url', self.refused().msg)

    @ddt.data(lambda blocking: False, fail, Elsewhere)
    def test_held_by_another_process(self, answer):
        def wait(blocking):
            # A number; True would wait for ever.
            self.assertEqual((float, 0), (type(blocking), blocking))
            result = answer(blocking)
            if isinstance(result, Exception):
                raise result
            return result

        self.tooz.answer = wait
        error = self.refused(timeout=0)
        for word in ('volume x', 'within 0 seconds', 'another request'):
            self.assertIn(word, error.msg)
        self.assertEqual([0], self.tooz.asked)
        self.assert_free()


class ReleaseTestCase(LocksTestCase):
    """An operation succeeds although its lock cannot be released."""

    def leave_unreleased(self):
        self.tooz.end = fail
        with self.backend.lock('x'):
            pass
        self.old, self.tooz = self.tooz, Lock()

    def test_lock_was_lost(self):
        self.tooz.end = lambda: False
        with self.backend.lock('x'):
            pass
        self.assertIn('volume x was lost', self.log.output)
        self.assertEqual({}, self.backend.locks.unreleased)

    def test_fails(self):
        self.leave_unreleased()
        self.assertIn('volume x could not be released', self.log.output)
        self.assertEqual({'x': self.old}, self.backend.locks.unreleased)

    def test_next_holder_releases_it_first(self):
        """Tooz renews the old lock, and a new one could not be acquired."""
        self.leave_unreleased()
        self.refused()
        self.assertEqual([], self.tooz.asked)
        self.old.end = lambda: True
        with self.backend.lock('x'):
            self.assertEqual({}, self.backend.locks.unreleased)
        self.assertEqual([True, 'release', 'release', 'release'],
                         self.old.asked)
        self.assertEqual([True, 'release'], self.tooz.asked)

    def test_it_is_released_without_a_next_holder(self):
        self.leave_unreleased()
        self.backend.locks.release_again()
        self.assertEqual({'x': self.old}, self.backend.locks.unreleased)
        self.old.end = lambda: True
        self.backend.locks.release_again()
        self.assertEqual({}, self.backend.locks.unreleased)
        self.assertEqual([0, 'release'], self.tooz.asked)

    def test_answer_is_late(self):
        """The request does not wait for the answer to the release."""
        answers = threading.Event()
        self.addCleanup(answers.set)
        self.tooz.end = lambda: answers.wait(60)
        self.patch('dmclone_driver.move.locks.RELEASE_TIMEOUT', new=0)
        with self.backend.lock('x'):
            pass
        self.assertEqual({'x': self.tooz}, self.backend.locks.unreleased)
        self.assertIn('backend_url', self.refused().msg)
        self.patch('dmclone_driver.move.locks.RELEASE_TIMEOUT', new=60)
        answers.set()
        with self.backend.lock('x'):
            self.assertEqual({}, self.backend.locks.unreleased)

    def test_no_thread_can_be_started(self):
        self.patch('dmclone_driver.move.locks.threading.Thread',
                   side_effect=RuntimeError("can't start new thread"))
        with self.backend.lock('x'):
            pass
        self.assertIn('volume x is not released', self.log.output)
        self.assertEqual({'x': self.tooz}, self.backend.locks.unreleased)


@ddt.ddt
class RequestsTestCase(base.CloudTestCase):
    """Attaching a volume away while a lock fails."""

    def attach(self, fault=None, **kind):
        """Attach a volume while one step fails.

        :returns: (volume, error or None, steps)
        """
        volume, error = self.a.create(), None
        self.cloud.steps.start(fault, **kind)
        try:
            self.cloud.attach(volume, self.b)
            self.cloud.settle()
        except cinder_exception.VolumeDriverException as caught:
            error = caught
        log = self.cloud.steps.log
        self.cloud.steps.start()
        return volume, error, log

    def attach_without(self, what, **kind):
        """Attach once per such step, which fails; yields (volume, error)."""
        *_, log = self.attach()
        self.cloud.watch(4)
        numbers = [number for number, step in enumerate(log) if step == what]
        self.assertNotEqual([], numbers)
        for number in numbers:
            volume, error, _ = self.attach(number, **kind)
            yield volume, error
            self.cloud.watch(4)
            self.assertEqual([], self.cloud.leftovers())

    def assert_home(self, node, volume):
        self.assertEqual(node.pool, self.cloud.row(volume.id).host)

    @ddt.data(('node1', False), ('node1', True),
              ('node2', False), ('node2', True))
    @ddt.unpack
    def test_release_fails(self, node, after):
        """The attach succeeds, also if the release fails later."""
        for volume, error in self.attach_without(node + ': unlock',
                                                 after=after):
            self.assertIsNone(error)
            self.assert_home(self.b, volume)

    @ddt.data(False, True)
    def test_acquire_fails_at_home(self, after):
        """The attach is refused, and nothing is changed."""
        for volume, error in self.attach_without('node1: lock', after=after):
            self.assertIsInstance(error, exception.LockNotAcquired)
            self.assertIn(volume.id, error.msg)
            self.assert_home(self.a, volume)
            self.assertEqual([], self.cloud.leftovers())

    def test_acquire_fails_on_the_peer(self):
        """Before the switchover it is refused; later it is retried."""
        ends = set()
        for volume, error in self.attach_without('node2: lock'):
            home = self.b if error is None else self.a
            self.assert_home(home, volume)
            ends.add(home)
            if error is not None:
                self.assertIsInstance(error, exception.MoveFailed)
                self.assertIn('Nothing was done to volume ' + volume.id,
                              error.msg)
        self.assertEqual({self.a, self.b}, ends)

    def test_service_is_away_after_the_switchover(self):
        """No lock can be acquired until the attach has returned."""
        switch_over, step = records.switch_over, self.cloud.steps.run

        def run(what, error, *args):
            if what.endswith('lock'):
                raise error
            return step(what, error, *args)

        def go_away(*args):
            result = switch_over(*args)
            self.cloud.steps.run = run
            return result

        self.patch('dmclone_driver.move.records.switch_over',
                   side_effect=go_away)
        path = self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)
        # A write waits, since opening the gate needs the lock.
        self.assertFalse(self.b.kernel.write(path))
        self.cloud.steps.run = step
        self.cloud.watch(4)
        self.assertTrue(self.b.kernel.write(path))
        self.assertIdle(self.b)
