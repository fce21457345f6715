# SPDX-License-Identifier: Apache-2.0
"""Pokes of simulated clones, whose guests are idle or busy."""

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import pokes
from tests.unit import base
from tests.unit.fakes import clone as clone_module
from tests.unit.fakes import kernel
from tests.unit.fakes import steps

TOTAL, WINDOW = 1000, 64
#: Regions in a second: a window takes 64 ms.
SPEED = 1000


class PokesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.kernel = kernel.Kernel(None, steps.Steps(), 'node')
        self.time = clone_module.Time(self.kernel, 0)
        self.clone = self.make('one')

    def make(self, name, guest=lambda now: 0):
        """Create a clone that hydrates."""
        segment = kernel.Segment(
            '0 %d clone metadata gate source 8 2 no_hydration '
            'no_discard_passdown 4 hydration_threshold %d '
            'hydration_batch_size %d' % (TOTAL * 8, WINDOW, WINDOW))
        device = kernel.Device(self.kernel, name, False)
        self.kernel.devices[name] = device
        device.table = [segment, kernel.Segment(
            '%d 8 linear dmclone-anchor 0' % (TOTAL * 8))]
        device.own = clone_module.Clone({'hydrated': 0}, segment)
        device.own.guest, device.own.speed = guest, SPEED
        device.own.hydration = True
        return device.own

    def run_for(self, seconds, *requests):
        return pokes.run(self.time, requests or [
            pokes.Request('one', WINDOW)], seconds)

    def sent(self, name='one'):
        return [text.split()[1] for _now, device, text in self.time.messages
                if device == name]


class BusyTestCase(PokesTestCase):

    def busy(self, period, gap):
        """Have the guest pause for a moment again and again."""
        self.clone.guest = lambda now: round(now % period, 6) >= gap
        self.clone.in_flight = self.clone.guest(0)

    def test_moments_are_used(self):
        """Each of the guest's pauses is enough for a window.

        By itself the kernel would look once a second.
        """
        self.busy(0.1, 0.02)
        self.run_for(1)
        self.assertGreaterEqual(self.clone.bitmap['hydrated'], 9 * WINDOW)
        self.assertEqual({str(WINDOW)}, set(self.sent()))

    def test_kernel_by_itself(self):
        """What the former test is worth."""
        self.busy(0.1, 0.02)
        for _ in range(100):
            self.time.sleep(0.01)
        self.assertLessEqual(self.clone.bitmap['hydrated'], WINDOW)

    def test_no_moment(self):
        """A guest that never pauses is left alone."""
        self.busy(1, 0)
        self.run_for(1)
        self.assertEqual(0, self.clone.bitmap['hydrated'])
        # There are no more looks than that, however long it waits.
        self.assertLessEqual(len(self.sent()), 1.01 / pokes.ROUND)

    def test_idle_guest(self):
        """The kernel goes on by itself; a copy is not disturbed."""
        self.run_for(2)
        self.assertEqual(TOTAL, self.clone.bitmap['hydrated'])
        self.assertLessEqual(len(self.sent()), 2)

    def test_all_of_many(self):
        """The number of looks does not grow with that of the clones."""
        names = ['c%d' % number for number in range(500)]
        for name in names:
            self.make(name, lambda now: 1)
        requests = [pokes.Request(name, WINDOW) for name in names]
        self.run_for(1, *requests)
        self.assertEqual({1}, {len(self.sent(name)) for name in names})
        self.time.messages.clear()
        self.run_for(1, *requests[:100])
        self.assertIn(len(self.time.messages), range(
            pokes.LOOKS - 100, pokes.LOOKS + 101))


class PartTestCase(PokesTestCase):
    """A guest that uses its volume, and has moments without a request."""

    PART, SHARE = 16, 0.33

    def copied(self, **options):
        self.run_for(1, pokes.Request('one', WINDOW, **options))
        return self.clone.bitmap['hydrated']

    def test_share(self):
        """As exact as looks can tell how long a part has taken."""
        copied = self.copied(part=self.PART, share=self.SHARE)
        self.assertGreater(copied, 0.8 * self.SHARE * SPEED)
        self.assertLess(copied, 1.7 * self.SHARE * SPEED)
        self.assertEqual({'0', str(self.PART)}, set(self.sent()))

    def test_large_part(self):
        """That of a slow source takes longer than a look."""
        self.clone.speed = SPEED / 10
        self.assertAlmostEqual(self.SHARE * SPEED / 10,
                               self.copied(part=self.PART, share=self.SHARE),
                               delta=2 * self.PART)

    def test_many_clones(self):
        """They share the time, and one copies at a time."""
        self.make('two').guest = self.make('three').guest = lambda now: 0
        names = 'one', 'two', 'three'
        most = 0
        sleep = self.time.sleep

        def counted(seconds):
            nonlocal most
            sleep(seconds)
            most = max(most, sum(bool(
                self.kernel.devices[name].own.copying) for name in names))
        self.time.sleep = counted
        self.run_for(1, *(pokes.Request(
            name, WINDOW, part=self.PART, share=self.SHARE)
            for name in names))
        copied = [self.kernel.devices[name].own.bitmap['hydrated']
                  for name in names]
        self.assertLess(sum(copied), 1.7 * self.SHARE * SPEED)
        self.assertGreater(min(copied), self.PART)
        self.assertLessEqual(most, 2)

    def test_least_share(self):
        self.make('two').guest = lambda now: 0
        self.run_for(
            1, pokes.Request('one', WINDOW, part=self.PART, share=0.1),
            pokes.Request('two', WINDOW, part=self.PART, share=self.SHARE))
        self.assertLess(sum(
            self.kernel.devices[name].own.bitmap['hydrated']
            for name in ('one', 'two')), 0.2 * SPEED)

    def test_budget(self):
        self.assertEqual(5 * self.PART, self.copied(
            part=self.PART, budget=5 * self.PART))

    def test_as_much_as_it_can(self):
        self.assertGreater(self.copied(), 0.85 * SPEED)


class BudgetTestCase(PokesTestCase):

    def test_budget(self):
        """Whole windows begin, until the budget is used."""
        found = self.run_for(1, pokes.Request('one', WINDOW, 2 * WINDOW))
        self.assertEqual(2 * WINDOW, self.clone.bitmap['hydrated'])
        self.assertEqual(0, self.clone.threshold)
        self.assertIn(' %d/%d 0 ' % (2 * WINDOW, TOTAL), found['one'].text)

    def test_new_budget(self):
        for _ in range(3):
            self.run_for(1, pokes.Request('one', WINDOW, 1))
        self.assertEqual(3 * WINDOW, self.clone.bitmap['hydrated'])

    def test_none(self):
        """What is under way goes on."""
        self.clone.wake()
        self.run_for(1, pokes.Request('one', WINDOW, 0))
        self.assertEqual(WINDOW, self.clone.bitmap['hydrated'])
        self.assertEqual(['0'], self.sent())

    def test_a_threshold_that_was_left(self):
        """After a run that ended early, or a change of the window."""
        for left in (0, 1, 3 * WINDOW):
            self.clone.threshold = left
            self.run_for(0.01)
            self.assertEqual(WINDOW, self.clone.threshold)


class HoldTestCase(PokesTestCase):

    def setUp(self):
        super().setUp()
        self.clone.guest = lambda now: 8
        self.clone.in_flight = 8

    def hold(self, times, **options):
        return self.run_for(1, pokes.Request('one', WINDOW, holds=times,
                                             **options))['one']

    def test_holds(self):
        """As many as are allowed, in equal distances."""
        found = self.hold(4)
        self.assertEqual((4, None), (found.held, found.missed))
        self.assertEqual(4 * WINDOW, self.clone.bitmap['hydrated'])
        times = [now for now, _name in self.time.holds]
        for now, expected in zip(times, (0.125, 0.375, 0.625, 0.875)):
            self.assertAlmostEqual(expected, now, delta=2 * pokes.ROUND)
        self.assertLess(0, found.seconds)

    def test_none(self):
        found = self.hold(0)
        self.assertEqual((0, None), (found.held, found.missed))
        self.assertEqual(0, self.clone.bitmap['hydrated'])

    def test_idle_guest(self):
        """A guest without requests is not held."""
        self.clone.guest = lambda now: 0
        self.clone.in_flight = 0
        self.assertEqual(0, self.hold(5).held)
        self.assertEqual([], self.time.holds)

    def test_copies_for_a_writing_guest(self):
        """They are not what the hold is for."""
        self.clone.waiting = 8
        self.assertEqual(2, self.hold(2).held)

    def test_does_not_help(self):
        """It is not repeated in this run; others are still served."""
        self.clone.drains = False
        other = self.make('two')
        found = self.run_for(1, pokes.Request('one', WINDOW, holds=5),
                             pokes.Request('two', WINDOW))
        self.assertEqual((0, holds.LATE),
                         (found['one'].held, found['one'].missed))
        self.assertEqual(1, len(self.time.holds))
        self.assertEqual(holds.LIMIT, found['one'].seconds)
        self.assertGreater(other.bitmap['hydrated'], 5 * WINDOW)

    def test_budget_is_used(self):
        self.assertEqual(1, self.hold(5, budget=1).held)

    def test_beside(self):
        """Nobody is held, and the next one comes as a hold would."""
        self.time.hold = lambda name, window: holds.Result(holds.BEGUN)
        found = self.hold(4)
        self.assertEqual((0, 4, None, 0), (
            found.held, found.beside, found.missed, found.seconds))

    def test_refused(self):
        """A quota that the clone must not get is not tried again."""
        calls = []

        def hold(name, window):
            calls.append(name)
            return holds.Result(holds.REFUSED)
        self.time.hold = hold
        found = self.hold(4)
        self.assertEqual((0, 0, holds.REFUSED),
                         (found.held, found.beside, found.missed))
        self.assertEqual(1, len(calls))

    def test_closed_gate(self):
        self.clone.hydration = False
        self.hold(5)
        self.assertEqual([], self.time.holds)


class EndTestCase(PokesTestCase):

    def assertNothingSent(self, answers):
        found = self.run_for(1)
        self.assertEqual(answers, list(found))
        self.assertEqual([], self.sent())
        # It is not waited for.
        self.assertLess(self.time.now(), 0.1)

    def test_closed_gate(self):
        """A passive clone has never begun to hydrate."""
        self.clone.hydration = False
        self.assertNothingSent(['one'])

    def test_failed_metadata(self):
        for mode in ('ro', 'Fail'):
            self.clone.mode = mode
            self.assertNothingSent(['one'])

    def test_complete(self):
        self.clone.bitmap['hydrated'] = TOTAL
        self.assertNothingSent(['one'])

    def test_gone(self):
        del self.kernel.devices['one']
        self.assertNothingSent([])

    def test_linear(self):
        self.kernel.devices['one'].own = None
        self.kernel.devices['one'].table = [kernel.Segment('0 8 linear x 0')]
        self.assertNothingSent([])

    def test_others_go_on(self):
        self.make('two')
        self.clone.guest = lambda now: 1
        del self.kernel.devices['one']
        found = self.run_for(0.5, pokes.Request('one', WINDOW),
                             pokes.Request('two', WINDOW))
        self.assertEqual(['two'], list(found))
        self.assertGreater(
            self.kernel.devices['two'].own.bitmap['hydrated'], 0)
