# SPDX-License-Identifier: Apache-2.0
"""Marking regions while nothing is under way at a clone."""

import contextlib
import errno

import ddt

from dmclone_driver.node.devicemapper import marks
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from tests.unit import base

NAMES = Names('00000000-0000-0000-0000-00000000000a')
TOTAL = 100000


class Kernel:
    """A clone with regions, and its devices."""

    def __init__(self):
        self.time = 0
        self.present = {5}
        self.suspended = set()
        self.kind = 'snapshot-origin'
        self.features = 'no_hydration no_discard_passdown'
        self.hydrating = self.answered = 0
        #: Whether requests end in time, and the source answers.
        self.drains = self.reachable = True
        #: Seconds that a discard takes.
        self.slow = 0.003
        #: The number of requests to the handle, and how many there are in
        #: each pause.
        self.count = self.used = 0
        #: How many have the handle open.
        self.opens = 1
        self.log = []
        self.pauses = []
        self.locked = False

    def now(self):
        return self.time

    def sleep(self, seconds):
        self.log.append('pause')
        self.pauses.append(seconds)
        self.time += seconds
        self.count += self.used

    def requests(self, name):
        assert name == NAMES.of(HANDLE)
        return self.count

    def answers(self, name):
        return self.reachable

    def info(self, name):
        return status.Device(name, '', self.opens, name in self.suspended)

    def status(self, name):
        if name == NAMES.of(HANDLE):
            return '0 %d %s x\n' % (TOTAL * 128, self.kind)
        return ('0 %d clone 8 1/9 128 %d/%d %d 2 %s 4 hydration_threshold 1 '
                'hydration_batch_size 1 rw\n' % (
                    TOTAL * 128, len(self.present), TOTAL, self.hydrating,
                    self.features))

    @contextlib.contextmanager
    def events(self):
        try:
            yield
        finally:
            # Others may use the handle meanwhile.
            assert not self.locked
            self.log.append('events')

    @contextlib.contextmanager
    def alone(self, name):
        self.log.append('alone')
        self.locked = True
        try:
            yield
        finally:
            self.locked = False

    def commit(self, name):
        self.log.append('commit')

    def suspend(self, name, limit):
        self.log.append('suspend')
        self.time += 0.01 if self.drains else limit
        if not self.drains:
            raise swap.Waits
        self.suspended.add(name)

    def resume(self, name):
        self.log.append('resume')
        self.suspended.remove(name)

    @contextlib.contextmanager
    def opened(self, name):
        yield self.discard

    def discard(self, first, length):
        self.log.append('discard')
        assert self.suspended == {NAMES.of(HANDLE)}
        assert not self.hydrating
        assert first % 65536 == length % 65536 == 0
        self.time += self.slow
        # A region that is present stays what it is.
        self.present.update(range(first >> 16, first + length >> 16))


@ddt.ddt
class MarksTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.kernel = Kernel()

    def run_marker(self, *ranges, seconds=60):
        found = marks.Marker(self.kernel, NAMES, ranges).run(seconds)
        self.assertEqual(set(), self.kernel.suspended)
        return found

    def test_one_piece(self):
        found = self.run_marker([1, 3], [6, 2])
        self.assertEqual((marks.DONE, 5, []),
                         (found.ended, found.marked, found.left))
        self.assertEqual({1, 2, 3, 5, 6, 7}, self.kernel.present)
        self.assertEqual(
            ['alone', 'commit', 'suspend', 'discard', 'discard', 'resume',
             'events'], self.kernel.log)

    def test_written_before(self):
        """What a guest has written is present, and not counted."""
        self.assertEqual(3, self.run_marker([4, 4]).marked)

    def test_pieces(self):
        """Nobody is held for longer than a piece and one discard."""
        found = self.run_marker([1, 40 * marks.MOST // 2])
        self.assertEqual(marks.DONE, found.ended)
        self.assertEqual(20 * marks.MOST, len(self.kernel.present))
        self.assertLess(found.seconds, 0.01 + marks.PIECE + 0.004)
        self.assertLess(marks.LIMIT + marks.PIECE + 0.004, 0.05)
        self.assertEqual(4, self.kernel.log.count('suspend'))
        self.assertEqual(3, self.kernel.log.count('pause'))

    def test_used(self):
        """A guest has most of the time."""
        self.kernel.used = 1
        self.run_marker([1, 400 * marks.MOST // 2])
        self.assertEqual({marks.PAUSE}, set(self.kernel.pauses))
        self.assertLess(2 * (0.01 + marks.PIECE), marks.PAUSE + 0.001)
        # One discard takes 3 ms here.
        self.assertLess(max(self.discards()), 7)

    def test_unused(self):
        """Nobody is there who would wait, as far as is known."""
        self.run_marker([1, 400 * marks.MOST // 2])
        pauses = self.kernel.pauses
        long = pauses.count(marks.PAUSE)
        self.assertEqual(long * [marks.PAUSE], pauses[:long])
        self.assertLess(marks.QUIET, long * (0.01 + marks.PIECE + marks.PAUSE))
        self.assertLess(long, 5)
        self.assertEqual({marks.SHORT_PAUSE}, set(pauses[long:]))
        self.assertLess(max(self.discards()[:long]), 7)
        self.assertLess(10, min(self.discards()[long + 1:-1]))

    def test_nobody_has_it_open(self):
        """Whoever opens it meanwhile is held once, for a quarter second."""
        self.kernel.opens, self.kernel.used = 0, 1
        found = self.run_marker([1, 400 * marks.MOST // 2])
        self.assertEqual({marks.SHORT_PAUSE}, set(self.kernel.pauses))
        self.assertLess(50, min(self.discards()[:-1]))
        self.assertLess(found.seconds, marks.UNOPENED + 0.004)
        self.assertLessEqual(marks.UNOPENED, 0.25)

    def test_opened_meanwhile(self):
        suspend = self.kernel.suspend

        def opened(name, limit):
            suspend(name, limit)
            self.kernel.opens = self.kernel.used = 1

        self.kernel.opens, self.kernel.suspend = 0, opened
        self.run_marker([1, 400 * marks.MOST // 2])
        self.assertEqual(marks.SHORT_PAUSE, self.kernel.pauses[0])
        self.assertEqual({marks.PAUSE}, set(self.kernel.pauses[1:]))
        self.assertLess(max(self.discards()[1:]), 7)

    def discards(self):
        """Return the number of discards in each piece."""
        return [piece.count('discard') for piece in
                ' '.join(self.kernel.log).split('suspend')[1:]]

    def test_nobody_is_held_for_long(self):
        """Nor if the requests of an idle volume take long to end."""
        suspend = self.kernel.suspend

        def slow(name, limit):
            suspend(name, limit)
            self.kernel.time += limit - 0.011

        self.kernel.suspend = slow
        found = self.run_marker([1, 400 * marks.MOST // 2])
        self.assertLess(found.seconds, 0.05)
        self.assertEqual({marks.SHORT_PAUSE}, set(self.kernel.pauses[9:]))

    def test_events(self):
        """They do not pile up, and are not waited for in each piece."""
        self.run_marker([1, 4000 * marks.MOST], seconds=2)
        groups = ' '.join(self.kernel.log).split('events')
        self.assertEqual('', groups.pop())
        sizes = [group.count('resume') for group in groups]
        self.assertEqual({marks.TOGETHER}, set(sizes[:-1]))
        self.assertLess(1, len(sizes))

    def test_used_again(self):
        # It is asked twice for each piece.
        counts = iter(40 * [0] + 100 * [1])
        self.kernel.requests = lambda name: next(counts)
        self.run_marker([1, 400 * marks.MOST])
        pauses = self.kernel.pauses
        self.assertEqual([marks.SHORT_PAUSE, marks.PAUSE, marks.PAUSE],
                         pauses[19:22])
        self.assertLess(max(self.discards()[20:23]), 7)
        self.assertEqual(marks.SHORT_PAUSE, pauses[-1])

    def test_time_is_over(self):
        self.kernel.slow = 1
        found = self.run_marker([1, 3], [6, 2], [10, 1], seconds=1.5)
        self.assertEqual((marks.OVER, 5, [[10, 1]]),
                         (found.ended, found.marked, found.left))

    def test_requests_do_not_end(self):
        """They go on after each try."""
        self.kernel.drains = False
        found = self.run_marker([1, 3], seconds=1)
        self.assertEqual((marks.OVER, 0, [[1, 3]]),
                         (found.ended, found.marked, found.left))
        self.assertNotIn('discard', self.kernel.log)
        self.assertNotIn('resume', self.kernel.log)

    def test_something_is_copied(self):
        self.kernel.hydrating = 1
        found = self.run_marker([1, 3], seconds=0.5)
        self.assertEqual((marks.OVER, 0), (found.ended, found.marked))
        self.assertNotIn('discard', self.kernel.log)

    @ddt.data(('kind', 'linear'), ('features', 'no_discard_passdown x'),
              ('reachable', False), ('suspended', {NAMES.of(CLONE)}),
              ('suspended', {NAMES.of(GATE)}),
              ('suspended', {NAMES.of(SOURCE)}),
              ('suspended', {NAMES.of(HANDLE)}))
    @ddt.unpack
    def test_refused(self, what, value):
        """Nobody is held."""
        setattr(self.kernel, what, value)
        found = marks.Marker(self.kernel, NAMES, [[1, 3]]).run(1)
        self.assertEqual((marks.REFUSED, 0, ['alone', 'events']), (
            found.ended, found.marked, self.kernel.log))

    def test_changes_while_requests_end(self):
        suspend = self.kernel.suspend

        def change(name, limit):
            suspend(name, limit)
            self.kernel.kind = 'linear'

        self.kernel.suspend = change
        found = self.run_marker([1, 3])
        self.assertEqual((marks.REFUSED, 0), (found.ended, found.marked))

    def test_discard_fails(self):
        def fail(first, length):
            raise OSError(errno.EOPNOTSUPP, 'no')

        self.kernel.discard = fail
        found = self.run_marker([1, 3])
        self.assertEqual((marks.FAILED, 0, [[1, 3]]),
                         (found.ended, found.marked, found.left))
        self.assertEqual(['resume', 'events'], self.kernel.log[-2:])
