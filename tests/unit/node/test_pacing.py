# SPDX-License-Identifier: Apache-2.0
"""The pace of clones over many seconds, with what it costs."""

import contextlib
import dataclasses
from unittest import mock

from dmclone_driver.node.devicemapper import holds as devicemapper_holds
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node import pacing
from dmclone_driver import opts
from tests.unit import base

MIB = 1024 * 1024
#: MiB in a second that the link can do.
SPEED = 100


class PacingTestCase(base.CloudTestCase):

    #: The minimum rate in MiB per second.
    FLOOR = 0

    def setUp(self):
        super().setUp()
        self.volume = self.a.create(size=10)
        self.clone = self.attach(self.volume)

    def attach(self, volume):
        """Attach a volume away; return its clone, which copies."""
        self.cloud.attach(volume, self.b)
        self.b.look()
        names = Names(self.cloud.row(volume.id).name_id)
        clone = self.b.kernel.devices[names.of(CLONE)].own
        clone.speed = SPEED * MIB // (clone.region * table.SECTOR)
        return clone

    def paces(self):
        with self.cloud.on(self.b):
            return self.b.pacemaker._paces()

    @contextlib.contextmanager
    def used(self, guests, clones=1):
        """Have guests use the node, as it seems to it.

        :param clones: how many copy; all but the first are gone by then
        """
        paces = self.b.pacemaker._paces
        with mock.patch.object(self.b.pacemaker, '_paces', lambda: [
                dataclasses.replace(pace, guests=guests, device=name)
                for pace in paces()
                for name in (pace.device, *map(str, range(1, clones)))]):
            yield

    def pace(self, seconds=1, rate=None):
        """Let some seconds pass at a rate; return the MiB copied."""
        before = self.clone.bitmap['hydrated']
        paces = self.b.pacemaker._paces
        with mock.patch.object(self.b.pacemaker, '_paces', lambda: [
                dataclasses.replace(pace, rate=rate) for pace in paces()]):
            for _ in range(seconds):
                self.b.pace()
        return ((self.clone.bitmap['hydrated'] - before) *
                self.clone.region * table.SECTOR / MIB)


class PaceTestCase(PacingTestCase):

    def test_as_fast_as_it_can(self):
        self.assertGreater(self.pace(10), 0.8 * 10 * SPEED)

    def test_rate(self):
        """Rates above and below a window a second."""
        for rate in (0.2, 1, 3, 8, 20, 50):
            self.pace(10, rate * MIB)
            seconds = int(80 / rate) if rate < 1 else 40
            copied = self.pace(seconds, rate * MIB) / seconds
            self.assertAlmostEqual(rate, copied, delta=0.2 * rate + 0.1)

    def test_not_now(self):
        self.pace(3)
        self.pace(1, rate=0)
        self.assertEqual(0, self.pace(60, rate=0))
        # The time without a copy is no credit.
        self.assertLess(self.pace(10, rate=MIB), 10 + 2 * 8)

    def test_window(self):
        pace, = self.paces()
        self.assertEqual(
            pacing.Pace(self.volume.id,
                        Names(self.row().name_id).of(CLONE), 128),
            pace)

    def use(self, requests, volume=None):
        """Have a guest make so many requests in each second."""
        names = Names(self.cloud.row((volume or self.volume).id).name_id)
        handle = self.b.kernel.devices[names.of(HANDLE)]
        found = []
        for _ in range(3):
            handle.requests += requests
            found.append([pace.guests for pace in self.paces()])
        return found[-2:]

    def test_busy_guest(self):
        """Less is copied at a time, from the second beat on."""
        none, own = pacing.Guests.NONE, pacing.Guests.OWN
        for requests, guests in ((0, none), (5, none), (100, own), (0, none)):
            self.assertEqual([[guests]] * 2, self.use(requests), requests)

    def test_guest_of_another_volume(self):
        """It is on the same disks."""
        other = self.b.create()
        self.cloud.attach(other, self.b)
        for requests, guests in ((100, pacing.Guests.OTHERS),
                                 (0, pacing.Guests.NONE)):
            self.assertEqual([[guests]] * 2, self.use(requests, other))

    def test_part(self):
        pace, = self.paces()
        self.assertEqual([None, 16, 16], [
            dataclasses.replace(pace, guests=guests).part
            for guests in pacing.Guests])

    def test_copies_are_no_guest(self):
        clone = self.b.kernel.devices[Names(self.row().name_id).of(CLONE)]
        for _ in range(3):
            clone.requests += 100
            pace, = self.paces()
            self.assertEqual(pacing.Guests.NONE, pace.guests)

    def test_guests_have_the_rest_of_the_time(self):
        for guests, share in ((pacing.Guests.OWN, 0.27),
                              (pacing.Guests.OTHERS, 0.02)):
            self.clone.bitmap['hydrated'] = 0
            with self.used(guests):
                self.pace(1)
                self.assertAlmostEqual(share * 10 * SPEED, self.pace(10),
                                       delta=0.5 * share * 10 * SPEED)

    def test_hydration_by_others(self):
        """A guest that writes much uses up the rate, but not for long."""
        self.pace(1, rate=MIB)
        self.clone.bitmap['hydrated'] += 16 * 100
        self.pace(2, rate=MIB)
        self.assertEqual(0, self.pace(2, rate=MIB))
        self.assertGreater(self.pace(30, rate=MIB), 0)


class FloorTestCase(PacingTestCase):
    """A guest with eight requests at a time, without a pause."""

    FLOOR = 16

    def setUp(self):
        super().setUp()
        self.clone.guest = lambda now: 8
        self.clone.in_flight = 8

    def holds(self, seconds=1, floor=16, rate=None):
        """Let some seconds pass; return the holds and the MiB copied."""
        self.b.pacemaker._floor = lambda: floor * MIB
        found = []
        copied = 0
        for _ in range(seconds):
            copied += self.pace(1, rate)
            found.append(len(self.b.kernel.time.holds))
        return found, copied

    def test_minimum_rate(self):
        for floor in (4, 16, 32):
            self.holds(5, floor)
            holds, copied = self.holds(40, floor)
            self.assertAlmostEqual(floor, copied / 40, delta=0.2 * floor)
            self.assertLessEqual(max(holds), pacing.HOLDS)

    def test_promise_is_kept_to_a_busy_guest(self):
        """Though it takes more than the share of a busy one."""
        self.clone.guest = lambda now: now % 0.1 > 0.02
        self.clone.speed //= 4
        with self.used(pacing.Guests.OWN):
            _holds, copied = self.holds(40)
        self.assertGreater(copied, 40 * 14)

    def test_promise_is_shared_while_others_use_the_node(self):
        for number in (1, 4):
            with self.used(pacing.Guests.OTHERS, number):
                self.holds(5)
                _holds, copied = self.holds(40)
            self.assertAlmostEqual(4 / number, copied / 40,
                                   delta=0.3 * 4 / number)

    def test_no_more_than_promised_while_others_use_the_node(self):
        """Also if the clone's own guest leaves it all of the time."""
        self.clone.guest = lambda now: 0
        self.clone.in_flight = 0
        with self.used(pacing.Guests.OTHERS):
            self.holds(5)
            _holds, copied = self.holds(40)
        self.assertAlmostEqual(4, copied / 40, delta=0.2 * 4)

    def test_less_than_a_window_in_five_seconds(self):
        """A low minimum, or rate, or a share of many, is kept, too."""
        for floor, rate in ((1, None), (16, 1 * MIB)):
            self.holds(10, floor, rate)
            _holds, copied = self.holds(80, floor, rate)
            self.assertAlmostEqual(1, copied / 80, delta=0.3)
        with self.used(pacing.Guests.OTHERS, 4):
            self.holds(10)
            _holds, copied = self.holds(80)
        self.assertAlmostEqual(1, copied / 80, delta=0.3)

    def test_default(self):
        option, = [each for each in opts.MOVE_OPTS if
                   each.name == 'dmclone_hydration_min_rate']
        self.assertEqual(self.FLOOR, option.default)

    def test_option(self):
        self.assertEqual(16 * MIB, self.b.pacemaker._floor())

    def test_never(self):
        self.assertEqual(([0] * 20, 0), self.holds(20, floor=0))

    def test_limit(self):
        """A rate that holds cannot bring."""
        holds, _copied = self.holds(20, floor=500)
        self.assertEqual({pacing.HOLDS}, set(holds[2:]))

    def test_pauses_are_enough(self):
        """Guests with moments for the copy are not held."""
        self.clone.guest = lambda now: now % 0.2 > 0.05
        holds, copied = self.holds(20)
        self.assertEqual({0}, set(holds))
        self.assertGreater(copied, 20 * 16)

    def test_only_as_much_as_the_rate_allows(self):
        _holds, copied = self.holds(40, floor=32, rate=8 * MIB)
        self.assertAlmostEqual(8, copied / 40, delta=2)
        self.assertEqual(([0] * 9, 0), self.holds(9, rate=0))

    def test_does_not_help(self):
        """The pauses between the attempts grow."""
        self.clone.drains = False
        holds, _copied = self.holds(200)
        self.assertLessEqual(max(holds), 1)
        self.assertIn(sum(holds), range(6, 10))
        # They are forgotten when one has helped.
        self.clone.drains = True
        _holds, copied = self.holds(100)
        self.assertGreater(copied, 16 * 30)

    def test_clone_without_a_tail(self):
        """One that was built without a minimum is left alone."""
        names = Names(self.row().name_id)
        self.b.kernel.devices[names.of(CLONE)].table.pop()
        holds, copied = self.holds(200)
        self.assertEqual(0, copied)
        self.assertLess(sum(holds), 10)

    def test_told_once(self):
        with mock.patch('dmclone_driver.node.pacing.LOG') as log:
            self.holds(20)
        (_line, values), _ = log.info.call_args
        self.assertEqual(1, log.info.call_count)
        self.assertEqual(self.volume.id, values['volume'])

    def test_told_why_not(self):
        self.clone.drains = False
        with mock.patch('dmclone_driver.node.pacing.LOG') as log:
            self.holds(5)
        (_line, values), _ = log.debug.call_args
        self.assertEqual(devicemapper_holds.LATE, values['why'])


class BesideTestCase(FloorTestCase):
    """The same guest, and a kernel that can copy beside its requests."""

    def setUp(self):
        super().setUp()
        self.b.kernel.versions['clone'] = (1, 1, 0)

    def count(self, verb):
        return sum(text.startswith(verb + ' ') for _now, _name, text in
                   self.b.kernel.time.messages)

    def beside(self, seconds=1, **options):
        """Let some seconds pass; return the messages and the MiB copied."""
        found, total = [], 0
        for _ in range(seconds):
            (holds,), copied = self.holds(**options)
            self.assertEqual(0, holds)
            found.append(self.count('hydrate'))
            total += copied
        return found, total

    # What is asked of holds holds for the messages in their place.

    def test_minimum_rate(self):
        for floor in (4, 16, 32):
            self.beside(5, floor=floor)
            sent, copied = self.beside(40, floor=floor)
            self.assertAlmostEqual(floor, copied / 40, delta=0.2 * floor)
            self.assertLessEqual(max(sent), pacing.HOLDS)

    def test_limit(self):
        sent, _copied = self.beside(20, floor=500)
        self.assertEqual({pacing.HOLDS}, set(sent[2:]))

    def test_never(self):
        self.assertEqual(([0] * 20, 0), self.beside(20, floor=0))

    def test_pauses_are_enough(self):
        """Guests with moments for the copy are left alone."""
        self.clone.guest = lambda now: now % 0.2 > 0.05
        sent, copied = self.beside(20)
        self.assertEqual({0}, set(sent))
        self.assertGreater(copied, 20 * 16)

    def test_only_as_much_as_the_rate_allows(self):
        _sent, copied = self.beside(40, floor=32, rate=8 * MIB)
        self.assertAlmostEqual(8, copied / 40, delta=2)
        # What is left of a quota begins nothing.
        self.clone.quota = 1000
        self.assertEqual(([0] * 9, 0), self.beside(9, rate=0))

    def test_does_not_help(self):
        """Requests that would not drain need not do so."""
        self.clone.drains = False
        _sent, copied = self.beside(40)
        self.assertAlmostEqual(16, copied / 40, delta=4)

    def test_clone_without_a_tail(self):
        names = Names(self.row().name_id)
        self.b.kernel.devices[names.of(CLONE)].table.pop()
        _sent, copied = self.beside(40)
        self.assertAlmostEqual(16, copied / 40, delta=4)

    def test_told_once(self):
        with mock.patch('dmclone_driver.node.pacing.LOG') as log:
            self.beside(20)
        (_line, volume_id), _ = log.info.call_args
        self.assertEqual(1, log.info.call_count)
        self.assertEqual(self.volume.id, volume_id)

    def test_told_why_not(self):
        """The session of the source is lost, which was not seen yet."""
        self.b.kernel.lost.update(self.b.kernel.disks)
        with mock.patch('dmclone_driver.node.pacing.LOG') as log:
            for _ in range(20):
                self.holds()
                self.assertEqual(0, self.count('hydrate'))
        (_line, values), _ = log.debug.call_args
        self.assertEqual(devicemapper_holds.REFUSED, values['why'])
        self.assertLess(log.debug.call_count, 6)

    def test_end_of_the_service(self):
        """A quota that is left ends by itself, within a window."""
        self.beside(5)
        before = self.clone.bitmap['hydrated'] + self.clone.copying
        self.clone.quota = quota = 100
        for _ in range(100):
            self.b.kernel.time.sleep(0.1)
        self.assertEqual(before + quota, self.clone.bitmap['hydrated'])

    def test_message_is_not_known(self):
        """Another change than that of contrib/linux has the version."""
        self.b.kernel.unknown = {'hydrate'}
        holds, copied = self.holds(40)
        self.assertAlmostEqual(16, copied / 40, delta=4)
        self.assertGreater(max(holds), 0)
        self.assertEqual(0, self.count('hydrate'))


class NoMinimumTestCase(PacingTestCase):

    def test_nobody_is_held(self):
        """Neither is there anything with which that could be done."""
        self.clone.guest = lambda now: 8
        self.clone.in_flight = 8
        for _ in range(20):
            self.assertEqual(0, self.pace())
            self.assertEqual([], self.b.kernel.time.holds)
        names = Names(self.row().name_id)
        self.assertEqual(1, len(self.b.kernel.devices[
            names.of(CLONE)].table))
        self.assertEqual(self.b.kernel.of_volumes(), self.b.kernel.devices)


class CostTestCase(PacingTestCase, base.QueriesTestCase):

    def beat(self):
        self.queries.clear()
        self.cloud.steps.start()
        self.b.pace()
        self.assertEqual([], self.queries)
        return self.cloud.steps.log

    def test_one_call_for_all(self):
        """A call a second, whatever the number of clones."""
        for _ in range(3):
            self.attach(self.a.create())
        call, = self.beat()
        self.assertIn('dm pace', call)
        self.assertEqual(4, call.count('-clone'))

    def test_nothing_hydrates(self):
        self.b.hydrate()
        self.cloud.watch(2)
        self.assertEqual([], self.beat())
        self.assertEqual({}, self.b.pacemaker._accounts)


class WhoIsPacedTestCase(PacingTestCase):

    def paced(self):
        return [pace.volume_id for pace in self.paces()]

    def test_closed_gate(self):
        """The destination of a live migration is left alone."""
        other = self.a.create()
        self.cloud.attach(other, self.a)
        self.cloud.attach(other, self.b)
        self.b.look()
        self.assertEqual([self.volume.id], self.paced())

    def test_lost_session(self):
        """It is left alone at once, not only from the next check on."""
        self.b.kernel.lost.update(self.b.kernel.disks)
        self.b.look_at_sessions()
        self.assertEqual([], self.paced())
        self.b.kernel.lost.clear()
        self.b.look_at_sessions()
        self.assertEqual([self.volume.id], self.paced())

    def test_hydration_off(self):
        self.clone.hydration = False
        self.a.stop()
        self.b.look()
        self.assertEqual([], self.paced())


class LoopTestCase(PacingTestCase):

    def run_once(self):
        """Run the thread's loop until it sleeps; return for how long."""
        class Ended(Exception):
            pass

        with mock.patch('dmclone_driver.node.pacing.time.sleep',
                        side_effect=Ended) as sleep, self.cloud.on(self.b):
            self.assertRaises(Ended, self.b.pacemaker._run)
        return sleep.call_args.args[0]

    def test_sleeps_for_the_rest(self):
        self.assertEqual(pacing.BEAT, self.run_once())

    def test_failure(self):
        self.cloud.steps.start(0)
        with mock.patch('dmclone_driver.node.pacing.LOG.exception') as log:
            self.assertEqual(pacing.RETRY, self.run_once())
        log.assert_called_once()
