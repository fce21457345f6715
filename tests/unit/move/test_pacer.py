# SPDX-License-Identifier: Apache-2.0
"""Copies that wait for their turn, on simulated nodes."""

import types
from unittest import mock

import ddt
import fixtures
from oslo_config import cfg

from dmclone_driver import exception
from dmclone_driver.move import activation
from dmclone_driver.move import hydration
from dmclone_driver.move import lenders
from dmclone_driver.move import lookups
from dmclone_driver.move import pace
from dmclone_driver.move import pacer
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move.report import Wait
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import cloud as fake_cloud

MIB = 1024 * 1024


class PacedTestCase(base.QueriesTestCase):
    """Nodes with room for one copy at a time, to and from each."""

    COPIES = 1

    def setUp(self):
        super().setUp()
        folder = self.useFixture(fixtures.TempDir()).path
        self.patch('dmclone_driver.move.pace_settings.CONF',
                   new=types.SimpleNamespace(state_path=folder))
        for name, value in self.options():
            cfg.CONF.set_override(name, value, group=fake_cloud.BACKEND)
            self.addCleanup(cfg.CONF.clear_override, name,
                            group=fake_cloud.BACKEND)
        for node in self.cloud.nodes.values():
            node.start()
        self.cloud.settle()

    def options(self):
        return [('dmclone_copies_at_once', self.COPIES)]

    def add(self, node=None, size=1, home=None):
        """Move a volume to a node; return it."""
        volume = (home or self.a).create(size)
        self.cloud.attach(volume, node or self.b)
        return volume

    def clone(self, volume, node=None):
        names = Names(self.cloud.row(volume.id).name_id)
        device = (node or self.b).kernel.devices.get(names.of('clone'))
        return device and device.own

    def running(self, *volumes, node=None):
        """Return the indices of those that hydrate."""
        clones = [self.clone(volume, node) for volume in volumes]
        return [number for number, clone in enumerate(clones)
                if clone and clone.hydration]

    def copy(self, volume, regions=50, node=None):
        clone = self.clone(volume, node)
        clone.bitmap['hydrated'] = min(
            clone.total, clone.bitmap['hydrated'] + regions)

    def look(self, seconds=10, node=None):
        self.cloud.pass_time(seconds)
        self.cloud.steps.start()
        self.queries.clear()
        interval = (node or self.b).look()
        self.steps = self.cloud.steps.log
        return interval

    def pace(self, node=None, **changes):
        with self.cloud.on(self.a):
            return self.b.backend.client.pace(
                self.context, (node or self.b).host, changes)

    def waits(self, node=None):
        node = node or self.b
        with self.cloud.on(node):
            found = node.server.endpoint.report(self.context)
        return [each['waits'] for each in found['moves']]

    def complete(self, volumes, times):
        """Hydrate what may, until all are complete; return their order."""
        done = []
        for _ in range(times):
            for volume in volumes:
                if volume not in done and self.clone(volume) is None:
                    done.append(volume)
            self.b.hydrate()
            self.cloud.watch(hydrate=False)
        return [volumes.index(volume) for volume in done]


class TurnTestCase(PacedTestCase):

    def test_second_copy_waits(self):
        first, second = self.add(), self.add()
        self.assertEqual([0], self.running(first, second))
        self.look()
        self.assertEqual([0], self.running(first, second))
        self.assertEqual(['', Wait.TURN], sorted(self.waits()))

    def test_next_one_begins_when_one_is_complete(self):
        volumes = [self.add() for _ in range(4)]
        self.assertEqual(4, len(self.complete(volumes, 10)))
        self.assertEqual([], self.cloud.placeholders())

    def test_guest_writes_meanwhile(self):
        _, second = self.add(), self.add()
        path = Names(self.cloud.row(second.id).name_id).path()
        self.assertTrue(self.b.kernel.write(path))

    def test_turn_is_taken_without_a_new_request_for_it(self):
        """A running copy does not cost more requests with others waiting."""
        first, _ = self.add(), self.add()
        self.look()
        asked = []
        for _ in range(60):
            self.copy(first)
            self.look()
            asked += [step for step in self.steps if 'ask' in step]
        self.assertEqual({'node2: ask node1@dmclone to lend'}, set(asked))
        self.assertIn(len(asked), range(9, 12))

    def test_waiting_is_no_trouble(self):
        """Neither in the log, nor for the user, nor in metrics."""
        first, second = self.add(size=2), self.add()
        with mock.patch('dmclone_driver.move.messages.LOG.error') as error:
            for _ in range(600):
                self.copy(first)
                self.look()
        error.assert_not_called()
        self.assertEqual([], self.cloud.messages())
        self.assertEqual([0], self.running(first, second))
        values = self.b.metrics()
        self.assertEqual(1, values['dmclone_moves_waiting',
                                   (('reason', 'turn'),)])
        self.assertEqual(0, values['dmclone_moves_waiting',
                                   (('reason', 'progress'),)])
        self.copy(first)
        self.assertEqual(10, self.look())

    def test_begin_after_a_long_wait(self):
        """It has the whole time until it counts as stalled."""
        first, second = self.add(), self.add()
        for _ in range(20):
            self.copy(first)
            self.look()
        self.b.kernel.hydrate(Names(self.cloud.row(
            first.id).name_id).path())
        self.look(seconds=1)
        self.look(seconds=1)
        self.assertEqual([1], self.running(first, second))
        for _ in range(hydration.STALLED // 10 - 1):
            self.assertEqual([''], self.waits())
            self.look()
        self.assertEqual([], self.cloud.messages())
        self.assertEqual([1], self.running(first, second))

    def test_restart_of_the_service(self):
        """The kernel says which copies run, and no other one begins."""
        volumes = [self.add() for _ in range(3)]
        running = self.running(*volumes)
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        for _ in range(3):
            self.look()
            self.assertEqual(running, self.running(*volumes))
        self.assertEqual(3, len(self.complete(volumes, 8)))

    def test_reboot(self):
        """All are connected, as guests read; one copies."""
        volumes = [self.add() for _ in range(3)]
        self.b.reboot()
        self.b.start()
        self.cloud.settle()
        for _ in range(2):
            self.look()
        self.assertEqual(1, len(self.running(*volumes)))
        self.assertEqual(3, len(self.b.kernel.disks))
        self.assertEqual(3, len(self.complete(volumes, 8)))

    def test_deletion_of_one_that_waits(self):
        _, second = self.add(), self.add()
        self.look()
        self.cloud.detach(second, self.b)
        self.delete(second)
        self.look()
        self.assertEqual({}, self.b.watcher._pacer._ready)
        found = self.pace()
        self.assertEqual((1, 0),
                         (len(found['copying']), len(found['waiting'])))

    def test_all_is_forgotten(self):
        volumes = [self.add() for _ in range(3)]
        self.complete(volumes, 8)
        self.look()
        paces = self.b.watcher._pacer
        self.assertEqual(
            [pace.Plan(), {}, set(), {}, {}, {}, {}],
            [paces._plan, paces._ready, paces._begun, paces._vain,
             paces._lenders._sources, paces._lenders._grants, paces._runs])


class OutageTestCase(PacedTestCase):
    """Whoever cannot copy holds nobody up."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()

    def test_lost_session(self):
        first, second = self.add(), self.add(home=self.c)
        self.look()
        self.assertEqual([0], self.running(first, second))
        self.a.target.forget()
        self.a.server = None
        self.b.look_at_sessions()
        self.look()
        self.look()
        self.assertEqual([0, 1], self.running(first, second))

    def test_source_that_gives_nothing(self):
        first, second = self.add(), self.add()
        for _ in range(1 + pacer.IDLE // 10):
            self.look()
        self.look()
        self.assertEqual([0, 1], self.running(first, second))
        # It goes on: one of them has to wait.
        self.copy(first, 900)
        self.copy(second, 300)
        self.look()
        self.assertEqual([0], self.running(first, second))

    def test_source_that_gives_next_to_nothing(self):
        """As while a guest is busy all the time."""
        first, second = self.add(), self.add()
        for _ in range(2 + pacer.IDLE // 10):
            self.copy(first, 1)
            self.look()
        self.assertEqual([0, 1], self.running(first, second))

    def test_sources_that_give_nothing_do_not_come_first(self):
        """They had their turn, although the least is left of them."""
        stuck = [self.add(), self.add()]
        large = self.add(size=3)
        for _ in range(20):
            if self.running(large):
                self.copy(large)
            self.look()
        before = self.clone(large).bitmap['hydrated']
        for _ in range(90):
            if self.running(large):
                self.copy(large)
            self.look()
        # They are tried again meanwhile, with pauses.
        self.assertGreater(self.clone(large).bitmap['hydrated'] - before,
                           50 * 80)
        self.assertEqual([0, 0], [self.clone(each).bitmap['hydrated']
                                  for each in stuck])

    def test_source_is_lost_with_its_node_while_its_copy_waits(self):
        """What waits for the lost data fails, whoever has the turn."""
        first, second = self.add(), self.add(home=self.c)
        self.look()
        self.c.die()
        self.b.look_at_sessions()
        records.lose(self.context, Names(
            self.cloud.row(second.id).name_id).name_id)
        for _ in range(2 + hydration.STALLED // 10):
            self.copy(first)
            self.look()
        self.assertEqual([0], self.running(first, second))
        self.assertEqual('error', self.cloud.row(second.id).status)

    def test_service_of_a_source_is_down(self):
        """Its copies cannot begin; the turn is for another one."""
        first, second, third = (self.add(), self.add(),
                                self.add(home=self.c))
        self.look()
        # It is next, but cannot begin.
        self.copy(second, 99)
        self.a.stop()
        self.b.kernel.hydrate(Names(self.cloud.row(first.id).name_id).path())
        for _ in range(6):
            self.look()
        self.assertEqual([2], self.running(first, second, third))
        self.assertEqual([Wait.NOTHING, Wait.START], sorted(self.waits()))

    def begin_three(self):
        """Have the second be next; return the name id of its copy."""
        self.volumes = [self.add(), self.add(), self.add(home=self.c)]
        self.look()
        self.copy(self.volumes[1], 99)
        self.b.kernel.hydrate(
            Names(self.cloud.row(self.volumes[0].id).name_id).path())
        return self.cloud.row(self.volumes[1].id).name_id

    def assertThirdBegins(self):
        """It gets the turn with which the second can do nothing."""
        for _ in range(8):
            self.look()
            if self.running(*self.volumes) == [2]:
                return
        self.fail('it does not begin')

    def test_node_of_a_source_is_known_to_be_down(self):
        self.begin_three()
        self.a.die()
        self.assertThirdBegins()

    def test_begin_fails(self):
        broken = self.begin_three()
        hydrate = activation.Activation.hydrate

        def fail(side, context, names, *args):
            if names.name_id == broken:
                raise OSError
            return hydrate(side, context, names, *args)

        self.patch('dmclone_driver.move.activation.Activation.hydrate',
                   new=fail)
        self.assertThirdBegins()

    def test_source_is_not_in_the_database(self):
        unknown, placeholder = self.begin_three(), lookups.placeholder
        self.patch('dmclone_driver.move.lookups.placeholder',
                   new=lambda context, name_id: None if name_id == unknown
                   else placeholder(context, name_id))
        self.assertThirdBegins()

    def test_begin_that_does_not_end(self):
        """As when another request holds the lock of the volume."""
        stuck, begin = self.begin_three(), (
            hydration.Hydration._start_hydration)
        self.patch('dmclone_driver.move.hydration.Hydration._start_hydration',
                   new=lambda self, context, names, *args: None
                   if names.name_id == stuck else
                   begin(self, context, names, *args))
        self.assertThirdBegins()

    def test_source_is_lost_while_its_copy_waits(self):
        _, second = self.add(), self.add()
        self.look()
        placeholder = Names(self.cloud.row(second.id).name_id).name_id
        records.lose(self.context, placeholder)
        with self.cloud.on(self.b):
            self.b.activation.activate(self.context, placeholder)
        self.look()
        self.assertIn(Wait.SOURCE, self.waits())
        self.assertEqual([], self.pace()['waiting'])

    def test_sealed_although_it_waits(self):
        """The old home may still be written: that does not wait."""
        first, second = self.add(), self.a.create()
        self.cloud.attach(second, self.a)
        path = self.cloud.attach(second, self.b)
        home = self.a.kernel.get('dmclone-' + second.id)
        server, self.a.server = self.a.server, None
        self.b.kernel.write(path)
        self.look()
        self.assertFalse(home.sealed)
        self.a.server = server
        self.copy(first)
        self.look()
        self.assertTrue(home.sealed)
        self.assertIn(Wait.TURN, self.waits())


class OrderTestCase(PacedTestCase):

    def test_nearly_complete_first(self):
        volumes = [self.add(size=size) for size in (1, 3, 2)]
        self.assertEqual([0, 2, 1], self.complete(volumes, 8))

    def test_longest_wait_first(self):
        self.pace(order='longest-wait')
        volumes = []
        for size in (1, 3, 2):
            volumes.append(self.add(size=size))
            self.cloud.pass_time(1)
        self.assertEqual([0, 1, 2], self.complete(volumes, 8))

    def test_drained_node_first(self):
        c = self.cloud.add('node3')
        self.cloud.settle()
        volumes = [self.add(), self.add(), self.add(size=9, home=c)]
        self.look()
        self.assertEqual([0], self.running(*volumes))
        c.service.disabled = True
        c.service.save()
        for _ in range(10):
            for number in self.running(*volumes):
                self.copy(volumes[number])
            self.look()
        self.assertEqual([2], self.running(*volumes))
        self.assertEqual([2, 0, 1], self.complete(volumes, 8))

    def test_chain_from_its_end(self):
        """A copy through which another node reads is first."""
        c = self.cloud.add('node3')
        self.cloud.settle()
        first, second = self.add(), self.add(size=5)
        self.look()
        names = Names(self.cloud.row(second.id).name_id)
        self.cloud.detach(second, self.b)
        self.cloud.attach(second, c)
        for _ in range(3):
            self.look()
        self.assertTrue(self.b.kernel.devices[
            names.of('clone')].own.hydration)
        self.assertEqual([], self.running(first))

    def test_patience(self):
        """Small copies that come all the time do not go before for ever."""
        self.patch('dmclone_driver.move.pace.PATIENCE', new=300)
        volumes = [self.add(), self.add(size=9)]
        for _ in range(9):
            volumes.append(self.add())
            for _ in range(5):
                for number in self.running(*volumes):
                    self.copy(volumes[number])
                self.look()
            self.b.hydrate()
            self.look(1)
            self.cloud.settle()
        self.assertIsNone(self.clone(volumes[1]))
        self.assertNotEqual([], self.pace()['waiting'])


class OutgoingTestCase(PacedTestCase):
    """Two nodes copy from one."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()
        self.first, self.second = self.add(self.b), self.add(self.c)
        self.look(node=self.b)
        self.look(node=self.c)

    def both(self):
        return (self.running(self.first, node=self.b) +
                self.running(self.second, node=self.c))

    def rounds(self, number):
        for _ in range(number):
            for node, volume in ((self.b, self.first), (self.c, self.second)):
                if self.running(volume, node=node):
                    self.copy(volume, node=node)
                self.look(node=node)

    def test_source_lets_one_wait(self):
        self.rounds(3)
        self.assertEqual([0], self.both())
        self.assertEqual([Wait.TURN], self.waits(self.c))
        waiting, = self.pace(self.c)['waiting']
        self.assertEqual((self.second.id, True),
                         (waiting['volume'], waiting['refused']))
        self.assertEqual({'copying': 1, 'waiting': 1},
                         self.pace(self.a)['leaving'])

    def test_turn_at_the_source_comes(self):
        self.rounds(3)
        self.b.hydrate()
        for _ in range(20):
            self.rounds(1)
            self.cloud.settle()
        self.assertEqual([0], self.running(self.second, node=self.c))

    def test_turn_of_a_node_that_dies(self):
        self.rounds(3)
        self.b.die()
        for _ in range(20):
            self.look(node=self.c)
        self.assertEqual([0], self.running(self.second, node=self.c))

    def test_source_does_not_answer(self):
        """Without an answer there is no limit; the data is served."""
        self.rounds(2)
        self.a.stop()
        for _ in range(10):
            self.look(node=self.b)
            self.copy(self.first)
        self.assertEqual([0], self.running(self.first))

    def test_refusal_that_is_not_repeated(self):
        """As if the message bus were gone: a call has no end then."""
        self.rounds(3)
        self.patch('dmclone_driver.move.lenders.Lenders.ask_if_due',
                   new=lambda *args: None)
        for _ in range(lenders.BELIEVED // 10 + 2):
            self.look(node=self.c)
        self.assertEqual([0], self.running(self.second, node=self.c))

    def lend(self, error):
        """Have all requests to lend fail; return their mock."""
        return self.patch('dmclone_driver.move.rpcapi.PeerClient.lend',
                          side_effect=error)

    def test_older_driver_at_the_source(self):
        """It is not asked all the time: each time is an error in its log."""
        lend = self.lend(exception.PeerTooOld(host='a', call='lend'))
        for _ in range(lenders.OLD // 10):
            self.look(node=self.c)
            self.copy(self.second, node=self.c)
        self.assertEqual([0], self.running(self.second, node=self.c))
        self.assertLessEqual(lend.call_count, 2)

    def test_asking_fails(self):
        lend = self.lend(OSError)
        for _ in range(60):
            self.look(node=self.c)
            self.copy(self.second, node=self.c)
        self.assertEqual([0], self.running(self.second, node=self.c))
        self.assertLess(lend.call_count, 20)

    def test_refusal_holds_up_no_other_copy(self):
        self.rounds(3)
        other = self.add(self.c, home=self.b)
        self.rounds(3)
        self.assertEqual([1], self.running(self.second, other, node=self.c))


@ddt.ddt
class ChangeTestCase(PacedTestCase):
    """An operator changes the pace while copies run."""

    def setUp(self):
        super().setUp()
        self.volumes = [self.add(size=size) for size in (1, 2, 3)]
        self.look()

    def test_report(self):
        found = self.pace()
        self.assertEqual(
            {'copies': 1, 'bandwidth_in': '90%', 'bandwidth_out': '90%',
             'min_rate': 0, 'order': 'nearly-complete'}, found['limits'])
        self.assertEqual(found['limits'], found['configured'])
        self.assertEqual([{'volume': self.volumes[0].id, 'allowed': None}],
                         found['copying'])
        self.assertEqual([volume.id for volume in self.volumes[1:]],
                         [each['volume'] for each in found['waiting']])
        self.assertEqual({(10, False)}, {
            (each['seconds'], each['refused']) for each in found['waiting']})

    def test_more(self):
        # The node of the sources has a limit of its own.
        for node in (self.a, self.b):
            self.pace(node, copies=2)
        for _ in range(3):
            self.look(seconds=1)
        self.assertEqual([0, 1], self.running(*self.volumes))

    def test_none(self):
        """All stop, and go on later, without anything lost."""
        self.copy(self.volumes[0], 5)
        self.pace(copies=0)
        self.look()
        self.look()
        self.assertEqual([], self.running(*self.volumes))
        self.assertEqual({Wait.TURN}, set(self.waits()))
        self.add()
        self.assertEqual([], self.running(*self.volumes))
        self.pace(copies=None)
        self.look()
        self.look()
        self.assertEqual([0], self.running(*self.volumes))
        self.assertEqual(5, self.clone(self.volumes[0]).bitmap['hydrated'])

    def test_first(self):
        self.pace(first=[self.volumes[2].id])
        self.look()
        self.look()
        self.assertEqual([2], self.running(*self.volumes))
        self.assertEqual([self.volumes[2].id], self.pace()['first'])
        self.assertEqual([2, 0, 1], self.complete(self.volumes, 8))

    def test_after_a_restart(self):
        self.pace(first=[self.volumes[2].id], copies=3)
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        found = self.pace()
        self.assertEqual((3, [self.volumes[2].id]),
                         (found['limits']['copies'], found['first']))

    def test_first_is_elsewhere(self):
        for volume in (self.volume.id, 'no id'):
            error = self.assertRaises(exception.PeerFailed, self.pace,
                                      first=[volume], copies=3)
            self.assertIn(volume, error.msg)
        self.assertEqual(1, self.pace()['limits']['copies'])

    @ddt.data({'copies': -1}, {'copies': 'x'}, {'bandwidth_in': '0%'},
              {'order': 'x'})
    def test_refused(self, change):
        error = self.assertRaises(exception.PeerFailed, self.pace, **change)
        self.assertIn('was not changed', error.msg)
        self.assertEqual(self.pace()['configured'], self.pace()['limits'])


class RateTestCase(PacedTestCase):
    COPIES = 2

    def options(self):
        return [*super().options(), ('dmclone_bandwidth_in', '10MiB'),
                ('dmclone_bandwidth_out', '100MB')]

    def run_for(self, seconds, volumes, speed=100):
        """Let copies go on; return their rates in MiB per second.

        :param speed: MiB per second that each could have
        """
        for volume in volumes:
            self.clone(volume).speed = speed * 16
        before = [self.clone(each).bitmap['hydrated'] for each in volumes]
        for second in range(seconds):
            if not second % 10:
                self.look(0)
            self.b.pace()
        return [(self.clone(each).bitmap['hydrated'] - start) *
                self.clone(each).region * 512 / MIB / seconds
                for each, start in zip(volumes, before)]

    def test_two_share(self):
        volumes = [self.add(size=20), self.add(size=20)]
        for found in self.run_for(100, volumes):
            self.assertGreater(found, 4)
            self.assertLess(found, 6)

    def paces(self):
        with self.cloud.on(self.b):
            return {pace.volume_id: pace.rate
                    for pace in self.b.pacemaker._paces()}

    def test_before_the_first_look(self):
        """A copy begins at its rate, and with one region before that."""
        volumes = [self.add(size=20), self.add(size=20)]
        self.assertEqual([0, 1], self.running(*volumes))
        self.assertEqual([1, 1], [
            self.clone(each).threshold for each in volumes])
        self.assertEqual({each.id: 5 * MIB for each in volumes}, self.paces())
        self.b.pace()
        self.assertEqual([128, 128], [
            self.clone(each).threshold for each in volumes])

    def test_begun_with_a_turn(self):
        """It has the turn by the last look, which saw it wait."""
        self.pace(copies=0)
        volume = self.add(size=20)
        self.look()
        self.pace(copies=2)
        self.look()
        self.assertEqual([0], self.running(volume))
        self.assertEqual({volume.id: 10 * MIB}, self.paces())

    def test_local_copy_begins_without_a_limit(self):
        self.patch(
            'dmclone_driver.move.pacer.Pacer._is_local', return_value=True)
        volume = self.add(size=20)
        self.assertEqual({volume.id: None}, self.paces())

    def test_begins_though_the_node_of_its_source_refuses(self):
        self.patch('dmclone_driver.move.lenders.Lenders.allowed',
                   return_value=0)
        volume = self.add(size=20)
        self.assertEqual({volume.id: 0}, self.paces())

    def test_has_its_turn_and_has_not_begun(self):
        volume = self.add(size=20)
        self.clone(volume).hydration = False
        self.assertEqual({}, self.paces())

    def test_one_has_all(self):
        found, = self.run_for(100, [self.add(size=20)])
        self.assertGreater(found, 9)
        self.assertLess(found, 11)

    def test_what_the_source_allows(self):
        self.pace(self.a, bandwidth_out='3MiB')
        volume = self.add(size=20)
        self.run_for(30, [volume])
        found, = self.run_for(100, [volume])
        self.assertGreater(found, 2.5)
        self.assertLess(found, 3.5)

    def test_paused_is_no_trouble(self):
        """A clone stops between two windows, for a long time at a low rate."""
        self.pace(bandwidth_in='100kB')
        volume = self.add(size=50)
        clone = self.clone(volume)
        batch = clone.batch
        with mock.patch('dmclone_driver.move.messages.LOG.error') as error:
            found, = self.run_for(400, [volume])
        error.assert_not_called()
        self.assertLess(found, 0.15)
        self.assertGreater(found, 0.05)
        self.assertTrue(clone.hydration)
        self.assertEqual(batch, clone.batch)
        self.assertEqual([volume.id], [
            each['volume'] for each in self.pace()['copying']])

    def test_limit_is_taken_away(self):
        volume = self.add(size=20)
        self.run_for(30, [volume])
        for name in ('bandwidth_in', 'bandwidth_out'):
            for node in (self.a, self.b):
                self.pace(node, **{name: 'none'})
        self.run_for(70, [volume], 10)
        self.assertEqual(128, self.clone(volume).threshold)
        found, = self.run_for(20, [volume])
        self.assertGreater(found, 80)

    def test_service_ended_while_a_copy_was_slow(self):
        volume = self.add(size=20)
        self.clone(volume).threshold = 0
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        self.look()
        self.b.pace()
        self.assertNotEqual(0, self.clone(volume).bitmap['hydrated'] +
                            self.clone(volume).threshold)

    def test_who_waits_is_not_paced(self):
        volumes = [self.add(size=20) for _ in range(3)]
        self.look()
        with self.cloud.on(self.b):
            paces = self.b.pacemaker._paces()
        self.assertEqual({volume.id for volume in volumes[:2]},
                         {pace.volume_id for pace in paces})

    def test_gates_do_not_wait_for_the_pace(self):
        path = self.cloud.attach(self.a.create(), self.b)
        with mock.patch('dmclone_driver.move.pacer.Pacer.look',
                        side_effect=OSError):
            self.b.kernel.write(path)
            self.look()
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_copy_cannot_be_stopped(self):
        volumes = [self.add(size=20), self.add(size=20)]
        self.pace(copies=1)
        with mock.patch('dmclone_driver.node.devices.LocalVolume.'
                        'pause_hydration', side_effect=OSError):
            self.look()
        self.assertEqual([0, 1], self.running(*volumes))
        self.look()
        self.assertEqual(1, len(self.running(*volumes)))


class SwitchedStateTestCase(PacedTestCase):

    def test_database_is_away_while_the_order_is_looked_up(self):
        first, second = self.add(), self.add()
        with mock.patch('dmclone_driver.move.peers.disabled',
                        side_effect=OSError):
            for _ in range(10):
                self.copy(first)
                self.look()
        self.assertEqual([0], self.running(first, second))
        self.assertEqual([State.SWITCHED] * 2, self.cloud.states())


class QueriesTestCase(PacedTestCase):

    def test_while_copies_wait(self):
        """One query a minute, however many wait."""
        volumes = [self.add() for _ in range(7)]
        self.look()
        asked = 0
        for _ in range(60):
            self.copy(volumes[self.running(*volumes)[0]])
            self.look()
            queries = [each for each in self.queries if each != 'BEGIN']
            asked += len(queries)
            self.assertLessEqual(len(queries), 1)
        self.assertIn(asked, range(9, 12))

    def test_restart(self):
        """The sources of copies that run are looked up once."""
        volume = self.add()
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        for _ in range(20):
            self.copy(volume)
            self.look()
            asked = len(self.queries)
        self.assertEqual(0, asked)
