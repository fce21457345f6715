# SPDX-License-Identifier: Apache-2.0
"""Copies that stop before the reserve of their thin pool."""

import dataclasses
from unittest import mock

import ddt

from dmclone_driver.move import pace
from dmclone_driver.move.report import Wait
from dmclone_driver.move import reserve
from dmclone_driver.move import room
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import storage
from tests.unit.move import test_pacer

GIB = storage.GIB
POOL = '/dev/volumes/volumes-pool'
MINE, OTHER = Names('1'), Names('2')


@ddt.ddt
class RoomTestCase(base.PlainTestCase):
    """A pool of 1000 blocks of 1 MiB."""

    def room(self, used, metadata=0, reserved=0, mode='rw'):
        return reserve.room(status.PoolStatus(
            1000 * 2048, mode, used, 1000, metadata, 100), reserved, [MINE])

    @ddt.data((0, 0, 980), (900, 0, 80), (900, 5, 50), (980, 0, 0),
              (1000, 10, -100))
    @ddt.unpack
    def test_data(self, used, reserved, left):
        found = self.room(used, reserved=reserved)
        self.assertEqual(left << 20, found.left)
        self.assertEqual(left > 0, bool(found.rate(10, 1)))

    @ddt.data((89, 0, True), (90, 0, False), (79, 20, True), (80, 20, False))
    @ddt.unpack
    def test_metadata(self, used, reserved, fits):
        found = self.room(0, used, reserved)
        self.assertEqual((fits, fits), (found.begins(1),
                                        bool(found.rate(10, 1))))

    def test_cannot_be_written(self):
        self.assertFalse(self.room(0, mode='ro').begins(1))
        failed = reserve.room(status.PoolStatus(8, 'Fail'), 0, [MINE])
        self.assertFalse(failed.begins(1))
        self.assertEqual(0, failed.rate(10, 1))

    @ddt.data((970, 10, True), (971, 10, False), (971, 9, True),
              (980, 1, False))
    @ddt.unpack
    def test_begins(self, used, left, begins):
        """With one per cent, or with all that it needs."""
        self.assertEqual(begins, self.room(used).begins(left << 20))

    def test_rate(self):
        """Two that run together take half of it until the next look."""
        self.assertEqual((400 << 20) / 10 / 2 / 2,
                         self.room(580).rate(10, 2))
        # The last part is taken at once.
        self.assertEqual(self.room(979).rate(10, 1),
                         self.room(979.5).rate(10, 1))

    def limit(self, used, *copies):
        return [each.room for each in reserve.limit(
            list(copies), self.room(used), 10, 2)]

    def test_limit(self):
        """Only what is in the pool, and only if not all of it fits."""
        mine = pace.Copy(MINE, 100 << 20, running=True)
        other = pace.Copy(OTHER, 1 << 40, running=True)
        none = float('inf')
        self.assertEqual([none, none], self.limit(880, mine, other))
        self.assertEqual([(90 << 20) / 20, none],
                         self.limit(890, mine, other))
        self.assertEqual([0, none], self.limit(980, mine, other))
        waiting = pace.Copy(MINE, 100 << 20)
        self.assertEqual([0], self.limit(975, waiting))
        self.assertEqual([(50 << 20) / 20], self.limit(930, waiting))

    def test_limit_in_blocks(self):
        """Each region that is copied may take a block."""
        region = 1 << 17
        small = pace.Copy(MINE, 10 << 20, running=True, region=region)
        self.assertEqual([float('inf')], self.limit(900, small))
        self.assertEqual([(79 << 20) / 20 / 8], self.limit(901, small))
        waiting = pace.Copy(MINE, 10 << 20, region=region)
        self.assertEqual([(10 << 20) / 20 / 8], self.limit(970, waiting))
        self.assertEqual([0], self.limit(971, waiting))
        # It allocates no more than it has.
        small = dataclasses.replace(small, size=50 << 20)
        self.assertEqual([float('inf')], self.limit(930, small))
        large = pace.Copy(MINE, 10 << 20, running=True, region=1 << 22)
        self.assertEqual([float('inf')], self.limit(970, large))

    @ddt.data((0, 2), (0, 9), (1, 9), (9, 2))
    @ddt.unpack
    def test_limit_of_those_that_begin(self, running, turns):
        """They do not reach the reserve together, either."""
        copies = [pace.Copy(Names(str(number)), 100 << 20,
                            running=number < running) for number in range(9)]
        found = reserve.room(status.PoolStatus(
            1000 * 2048, 'rw', 880, 1000, 0, 100), 0,
            [each.names for each in copies])
        room = sum(each.room for each in reserve.limit(
            copies, found, 10, turns)[:running + turns])
        self.assertTrue(0 < room * 10 <= 100 << 20, room)


class ReserveTestCase(test_pacer.PacedTestCase):
    """A simulated node with a pool of 95 GiB, to which all is copied."""

    KINDS = ('default', 'thin')
    COPIES = 2

    def setUp(self):
        super().setUp()
        self.warning = self.patch('dmclone_driver.move.messages.LOG.warning')
        self.first = self.add(size=60)
        # It asks for a map of the source, which is thick, and begins.
        self.look()

    def use(self, size, **fields):
        """Have guests use some GiB of the pool beside the copies."""
        path = '/dev/volumes/guests'
        self.b.lvm.volumes.pop(path, None)
        self.b.lvm.add('volumes', 'guests', 90 * GIB, pool=POOL)
        self.b.lvm.volumes[path]['allocated'] = int(
            size * GIB)
        self.b.lvm.volumes[POOL].update(fields)

    def names(self):
        return Names(self.cloud.row(self.first.id).name_id)

    def told(self):
        return [call[0][1]['names'] for call in self.warning.call_args_list]

    def test_stops_and_goes_on(self):
        self.look()
        self.assertEqual([0], self.running(self.first))
        self.use(93.2)
        for _ in range(3):
            self.look()
            self.assertEqual([], self.running(self.first))
        self.assertEqual([Wait.ROOM], self.waits())
        self.assertTrue(self.b.kernel.write(self.names().path()))
        self.assertEqual([self.names()], self.told())
        self.assertEqual(1, len(self.cloud.messages()))
        self.use(93)
        self.look()
        self.assertEqual([], self.running(self.first))
        self.use(92)
        self.look()
        self.look()
        self.assertEqual([0], self.running(self.first))
        self.assertEqual([''], self.waits())
        self.assertEqual([0], self.complete([self.first], 5))

    def test_is_told_again(self):
        for size in (94, 0) * 2:
            self.use(size)
            for _ in range(3):
                self.copy(self.first, bool(self.running(self.first)))
                self.look()
        self.assertEqual([self.names()] * 2, self.told())

    def test_does_not_reach_the_reserve_before_the_next_look(self):
        self.use(90)
        self.look()
        rate = self.b.watcher._pacer.copying()[self.names()]
        self.assertAlmostEqual((95 * .98 - 90) * GIB / 2, rate * 10,
                               delta=GIB / 100)

    def test_metadata(self):
        self.use(0, metadata='90.50')
        self.look()
        self.assertEqual([], self.running(self.first))
        self.use(0, metadata='70.00')
        self.look()
        self.look()
        self.assertEqual([0], self.running(self.first))

    def test_begins_without_room(self):
        """Of a copy that would begin, the first region is not copied."""
        self.use(94)
        second = self.a.create(1)
        with mock.patch.object(self.b.destination, '_free',
                               return_value=room.Free(95)), mock.patch(
                'dmclone_driver.move.room.refuse_overfull'):
            self.cloud.attach(second, self.b)
        self.assertEqual([], self.running(second))
        for _ in range(2):
            self.look()
        self.assertEqual([Wait.ROOM] * 2, self.waits())
        self.assertEqual(2, len(self.told()))

    def test_restart_of_the_service(self):
        """The kernel and the pool say the same again."""
        self.use(94)
        self.look()
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        for _ in range(2):
            self.look()
        self.assertEqual([], self.running(self.first))
        self.assertEqual([Wait.ROOM], self.waits())
        self.use(0)
        self.look()
        self.look()
        self.assertEqual([0], self.running(self.first))

    def test_one_look_a_pass(self):
        """While something copies; nothing is asked without."""
        asked = 'node2: dm status volumes-volumes--pool-tpool'
        self.look()
        self.assertEqual(1, sum(asked in step for step in self.steps))
        self.complete([self.first], 5)
        self.look()
        self.assertEqual(0, sum(asked in step for step in self.steps))

    def test_waits_for_turn_and_room(self):
        """Who waits for its turn says so, if there is room."""
        self.pace(copies=0)
        for _ in range(2):
            self.look()
        self.assertEqual([Wait.TURN], self.waits())
        self.use(94)
        self.look()
        self.assertEqual([Wait.ROOM], self.waits())


class ThickTestCase(test_pacer.PacedTestCase):
    """A thick copy needs nothing of the pool of its node."""

    def test_goes_on(self):
        volume = self.add()
        self.b.lvm.add_pool('volumes', 30 * GIB)
        self.b.lvm.add('volumes', 'guests', 90 * GIB, pool=POOL)
        self.b.lvm.volumes['/dev/volumes/guests']['allocated'] = 30 * GIB
        for _ in range(2):
            self.look()
        self.assertEqual([0], self.running(volume))
        self.assertEqual([''], self.waits())
