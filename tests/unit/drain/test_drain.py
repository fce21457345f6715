# SPDX-License-Identifier: Apache-2.0
"""dmclone drain, with volumes and instances on simulated nodes."""

import io
import json
import signal
import types
from unittest import mock

from cinder import objects
from cinder.tests.unit import utils as cinder_utils
import ddt
from keystoneauth1 import exceptions as ks_exceptions
from oslo_config import cfg

from dmclone_driver.cmd import dmclone
from dmclone_driver.drain import survey
from dmclone_driver import exception
from dmclone_driver.move import deadline
from dmclone_driver.move import peers
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import rpcapi
from tests.unit import base
from tests.unit.fakes import nova
from tests.unit.fakes import steps
from tests.unit.fakes import storage
from tests.unit.move import test_followers


class DrainTestCase(base.CloudTestCase):
    """The first of three nodes is drained; it is not used any longer."""

    def setUp(self):
        super().setUp()
        # Never as good as the second one, unless that is full.
        self.c = self.cloud.add('node3', size=80 * storage.GIB)
        for node in self.cloud.nodes.values():
            node.service.availability_zone = 'nova'
            node.service.save()
        self.set(availability_zone='nova')
        self.disable(self.a)
        self.nova = nova.Nova(self.cloud)
        self.patch('cinder.compute.nova.novaclient', return_value=self.nova)
        self.override('auth_type', 'password')
        self.patch('dmclone_driver.drain.threads.threading',
                   new=types.SimpleNamespace(
                       Thread=self.cloud._thread_at_once))
        for name in ('connect', 'logging.setup', 'logging.getLogger'):
            self.patch('dmclone_driver.cmd.program.' + name)
        self.waits = 0
        test = self

        def wait(self, seconds):
            test.wait()
            return self.is_set()
        self.patch('dmclone_driver.drain.stop.Stop.wait', new=wait)

    def wait(self):
        """Let the nodes work while the command waits."""
        self.waits += 1
        self.assertLess(self.waits, 200)
        self.cloud.watch()

    def override(self, name, value):
        cfg.CONF.set_override(name, value, group='nova')
        self.addCleanup(cfg.CONF.clear_override, name, group='nova')

    def set(self, volume=None, **fields):
        row = self.cloud.row((volume or self.volume).id)
        row.update(fields)
        row.save()

    @staticmethod
    def disable(node):
        node.service.disabled = True
        node.service.save()

    def drain(self, *arguments, node='node1'):
        """Return (exit code, lines of the output, text of the error)."""
        out, error = io.StringIO(), io.StringIO()
        # The operator's command runs on the third node.
        with self.cloud.on(self.c), mock.patch(
                'dmclone_driver.cmd.program.CONF', new=cfg.ConfigOpts()):
            code = dmclone.Application(
                stdout=out, stderr=error).run(['drain', node, *arguments])
        self.cloud.settle()
        return code, out.getvalue().splitlines(), error.getvalue()

    def home(self, volume=None):
        return self.cloud.row((volume or self.volume).id).host

    def of(self, volume):
        """Return how lines call a volume."""
        return 'volume %s (1 GiB)' % volume.id

    def snapshot(self, volume=None):
        snapshot = cinder_utils.create_snapshot(
            self.context, (volume or self.volume).id, status='available',
            volume_size=1)
        with self.cloud.on(self.a):
            snapshot.update(self.a.driver.create_snapshot(snapshot))
        snapshot.save()
        return snapshot

    def of_snapshot(self, snapshot):
        return 'snapshot %s of volume %s (1 GiB)' % (snapshot.id,
                                                     snapshot.volume_id)


@ddt.ddt
class AtRestTestCase(DrainTestCase):

    def test_plan_changes_nothing(self):
        before = self.row().updated_at
        code, lines, _error = self.drain('--plan')
        self.assertEqual((0, ['to do: %s: move it to node2' %
                              self.of(self.volume)]), (code, lines))
        self.assertEqual(before, self.row().updated_at)
        self.assertEqual([], self.cloud.leftovers())

    def test_moved(self):
        code, lines, _error = self.drain()
        self.assertEqual(0, code)
        copy, = self.cloud.placeholders()
        self.assertEqual([
            'done: %s: on node2 now, and hydrates there' %
            self.of(self.volume),
            'needed: copy %s, by volume %s on %s' % (
                copy.id, self.volume.id, self.b.host)], lines)
        self.assertEqual(self.b.pool, self.home())

    def test_nothing_to_do(self):
        self.drain('--wait')
        self.assertEqual((0, [], ''), self.drain())

    def test_wait(self):
        self.patch('dmclone_driver.drain.runner.LOOK_AT_PROGRESS', new=0)
        code, lines, _error = self.drain('--wait')
        self.assertEqual(0, code)
        self.assertEqual('complete: volume %s needs nothing on node1 any '
                         'longer' % self.volume.id, lines[-1])
        self.assertRegex(lines[1], r'^needed: copy \S+, by volume .*, which '
                         r'has \d+ % of it$')
        self.assertIdle(self.b)

    def test_nobody_is_asked_for_room_during_the_wait(self):
        asked = []
        places = survey.Survey.places

        def count(*args):
            asked.append(self.waits)
            return places(*args)
        self.patch('dmclone_driver.drain.survey.Survey.places', new=count)
        self.assertEqual(0, self.drain('--wait')[0])
        self.assertGreater(self.waits, 1)
        self.assertEqual({0}, set(asked))

    def test_wait_while_the_new_home_is_down(self):
        """The operator sees for what the drain waits, and can end it."""
        self.patch('dmclone_driver.drain.runner.LOOK_AT_PROGRESS', new=0)
        self.drain()
        self.b.stop()

        def wait():
            signal.raise_signal(signal.SIGTERM)
        self.wait = wait
        code, lines, _error = self.drain('--wait')
        self.assertEqual(128 + signal.SIGTERM, code)
        self.assertIn('which does not answer', lines[0])

    def test_destination_by_room(self):
        more = [self.a.create(size=30) for _number in range(3)]
        self.b.lvm.groups['volumes'] = 65 * storage.GIB
        code, lines, _error = self.drain()
        self.assertEqual(0, code)
        self.assertEqual([self.b.pool, self.c.pool, self.c.pool], sorted(
            self.home(volume) for volume in more))

    def asked(self, *options):
        """Return the names of the nodes that a drain asks for their room."""
        found = []
        describe = survey.Survey._describe

        def count(self, service):
            found.append(service.host.partition('@')[0])
            return describe(self, service)
        with mock.patch('dmclone_driver.drain.survey.Survey._describe',
                        new=count):
            self.assertEqual(0, self.drain(*options)[0])
        return found

    def test_each_node_is_asked_once(self):
        """Not again for the moves that follow the plan at once."""
        self.a.create()
        self.assertEqual(['node2', 'node3'], sorted(self.asked()))

    def test_some_nodes_are_asked(self):
        self.patch('dmclone_driver.drain.survey.SOME', new=1)
        asked = self.asked()
        self.assertEqual(1, len(asked))
        self.assertEqual(self.cloud.nodes[asked[0]].pool, self.home())

    def test_each_drain_asks_others(self):
        names = ['node%d@dmclone' % number for number in range(200)]
        services = [mock.Mock(host=name, availability_zone='nova')
                    for name in names]
        asked = [{each.host for each in survey.Survey(
            None, None, name, None)._first(services, services)}
            for name in names]
        self.assertEqual({survey.SOME}, set(map(len, asked)))
        self.assertEqual(set(names), set.union(*asked))

    def test_more_are_asked_if_these_lack_room(self):
        self.patch('dmclone_driver.drain.survey.SOME', new=1)
        first, = self.asked('--plan')
        self.cloud.nodes[first].lvm.groups['volumes'] = storage.GIB // 2
        self.assertEqual([first, 'node2', 'node3'], [
            first, *sorted(self.asked('--plan')[1:])])
        self.drain()
        self.assertNotIn(self.home(), (self.a.pool,
                                       self.cloud.nodes[first].pool))

    def test_more_are_asked_during_the_drain(self):
        """What had room for the plan has none for the move."""
        self.patch('dmclone_driver.drain.survey.SOME', new=1)
        self.patch('dmclone_driver.drain.mover.FRESH', new=0)
        first, = self.asked('--plan')
        places, calls = survey.Survey.places, []

        def fill(*args):
            calls.append(args)
            if len(calls) == 2:
                self.cloud.nodes[first].lvm.groups['volumes'] = (
                    storage.GIB // 2)
            return places(*args)
        self.patch('dmclone_driver.drain.survey.Survey.places', new=fill)
        self.assertEqual(0, self.drain()[0])
        self.assertNotIn(self.home(), (self.a.pool,
                                       self.cloud.nodes[first].pool))

    def test_nodes_of_the_same_zone_are_first(self):
        self.patch('dmclone_driver.drain.survey.SOME', new=1)
        for near, far in ((self.b, self.c), (self.c, self.b)):
            for node, zone in ((near, 'nova'), (far, 'far')):
                node.service.availability_zone = zone
                node.service.save()
            self.assertEqual([near.name], self.asked('--plan'))

    def test_no_room(self):
        for node in (self.b, self.c):
            node.lvm.groups['volumes'] = storage.GIB // 2
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertEqual([
            'stays: %s: no node can take its 1 GiB: node2: 0.50 GiB are '
            'free; node3: 0.50 GiB are free; make room there, or name '
            'another node with --to' % self.of(self.volume)], lines)

    def test_to(self):
        self.drain('--to', 'node3')
        self.assertEqual(self.c.pool, self.home())

    def test_to_another_zone(self):
        self.c.service.availability_zone = 'far'
        self.c.service.save()
        self.drain('--to', 'node3')
        self.assertEqual(self.c.pool, self.home())

    @ddt.data('node1', 'node9')
    def test_to_no_other_node(self, node):
        code, lines, error = self.drain('--to', node)
        self.assertEqual((1, []), (code, lines))
        self.assertIn('no other node %s has a backend' % node, error)

    def test_disabled_nodes_get_nothing(self):
        self.disable(self.b)
        self.drain()
        self.assertEqual(self.c.pool, self.home())

    def test_node_that_is_not_disabled(self):
        self.a.service.disabled = False
        self.a.service.save()
        code, lines, _error = self.drain('--plan')
        self.assertEqual(1, code)
        self.assertIn('first: Cinder creates new volumes on node1@dmclone; '
                      'use --disable', lines[0])
        code, lines, error = self.drain()
        self.assertEqual((1, []), (code, lines))
        self.assertIn('use --disable', error)
        self.assertEqual(self.a.pool, self.home())
        self.nova.add(self.a)
        code, lines, _error = self.drain('--disable')
        self.assertEqual((0, self.b.pool), (code, self.home()))
        service = objects.Service.get_by_id(self.context, self.a.service.id)
        self.assertEqual((True, 'dmclone drain'),
                         (service.disabled, service.disabled_reason))
        self.assertEqual('disabled', self.nova.computes['node1'].status)

    def test_unknown_node(self):
        code, _lines, error = self.drain(node='node9')
        self.assertEqual(1, code)
        self.assertIn('no backend of this driver is known', error)

    def test_node_with_another_backend(self):
        """The backend of this driver is the one that answers."""
        objects.Service(self.context, host='node1@lvm',
                        binary='cinder-volume').create()
        self.cloud.by_host['node1@lvm'] = types.SimpleNamespace(
            down=True, name='node1')
        self.drain()
        self.assertEqual(self.b.pool, self.home())

    def test_named_backend(self):
        self.drain(node='node1@dmclone')
        self.assertEqual(self.b.pool, self.home())

    def test_node_that_is_down(self):
        self.a.die()
        code, lines, _error = self.drain('--plan')
        self.assertEqual(1, code)
        self.assertIn('does not answer', lines[0])
        self.assertIn('does not answer', self.drain()[2])

    def test_volume_that_stays_does_not_stop_others(self):
        other = self.a.create()
        self.set(other, status='error')
        code, lines, _error = self.drain()
        self.assertEqual((1, self.b.pool, self.a.pool),
                         (code, self.home(), self.home(other)))
        self.assertIn('stays: %s: its status is error' % self.of(other),
                      '\n'.join(lines))

    def test_what_only_the_home_knows(self):
        self.patch('dmclone_driver.node.devices.LocalVolume.is_sick',
                   return_value=True)
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertRegex(lines[0], 'not done: .* metadata of its clone has '
                         'failed')
        self.assertEqual(1, len(lines))

    def test_destination_dies(self):
        """The volume goes to another node, and so do all others."""
        more = self.a.create()
        self.b.destination.prepare = mock.Mock(
            side_effect=steps.Killed('node2'))
        code, lines, _error = self.drain()
        self.assertEqual((0, {self.c.pool}),
                         (code, {self.home(), self.home(more)}))
        self.assertIn('no volume goes to node2: it does not answer', lines)
        self.b.stop()
        self.b.start()
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.leftovers())

    def test_the_node_itself_dies(self):
        self.a.create()
        self.a.server.endpoint._relocation.move = mock.Mock(
            side_effect=steps.Killed('node1'))
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertEqual(2, sum(line.startswith('not done:') and
                                'dmclone-forget-node' in line
                                for line in lines))

    def test_answer_is_late(self):
        """The move has ended meanwhile."""
        move = rpcapi.PeerClient.move

        def late(client, context, host, *args):
            move(client, context, host, *args)
            raise exception.PeerUnreachable(host=host, call='move',
                                            seconds=60)
        self.patch('dmclone_driver.move.rpcapi.PeerClient.move', new=late)
        code, lines, _error = self.drain()
        self.assertEqual((0, self.b.pool), (code, self.home()))
        self.assertIn('done:', lines[0])

    def test_move_under_way_is_waited_for(self):
        """Also one that is aborted: a second run moves the volume."""
        with self.cloud.on(self.a), mock.patch.object(
                self.a.home_side, '_switch_if_sole'):
            self.a.home_side.move(
                self.context, self.row(), self.a.parts.peers.on_node(
                    self.context, 'node2', 'dmclone'), '',
                deadline.Deadline.of_request())
        self.assertEqual([State.PREPARED], self.cloud.states())
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertIn('its move was aborted', lines[0])
        self.assertEqual(0, self.drain()[0])

    def test_snapshot_stays(self):
        snapshot = self.snapshot()
        line = ('stays: %s: snapshots stay on their node; have it follow its '
                'volume (--with-snapshots), or delete it'
                % self.of_snapshot(snapshot))
        code, lines, _error = self.drain('--plan')
        self.assertEqual((3, line), (code, lines[-1]))
        code, lines, _error = self.drain('--wait')
        self.assertEqual((3, line), (code, lines[-1]))
        self.assertEqual(self.b.pool, self.home())
        self.assertRegex(lines[1], '^left behind: the origin of snapshots')

    def test_volume_on_its_way_to_the_node(self):
        other = self.b.create()
        for node in (self.b, self.a):
            self.cloud.attach(other, node)
        code, lines, _error = self.drain('--plan')
        self.assertEqual(1, code)
        self.assertIn('stays: volume %s: it is being moved here' % other.id,
                      lines[-1])

    def test_json(self):
        code, lines, error = self.drain('--format', 'json')
        found = json.loads('\n'.join(lines))
        self.assertEqual((0, 'node1', False, []), (
            code, found['node'], found['plan'], found['first']))
        self.assertEqual([{
            'action': 'move', 'state': 'done', 'instance': None,
            'volumes': [{'id': self.volume.id, 'size': storage.GIB}],
            'snapshots': [], 'node': 'node2',
            'left_behind': [], 'reason': None, 'remedy': None}],
            found['items'])
        self.assertEqual([(self.volume.id, self.b.host)], [
            (each['volume'], each['needed_by']) for each in found['copies']])
        self.assertIn('done:', error)

    def test_json_of_a_plan(self):
        self.set(status='error')
        code, lines, _error = self.drain('--plan', '-f', 'json')
        item, = json.loads('\n'.join(lines))['items']
        self.assertEqual((1, 'stays'), (code, item['state']))
        self.assertEqual('its status is error, and only available volumes '
                         'are moved', item['reason'])

    @ddt.data(['--parallel', '0'], ['--parallel', 'x'], ['--format', 'x'])
    def test_wrong_options(self, arguments):
        with mock.patch('sys.stderr', io.StringIO()):
            self.assertRaises(SystemExit, self.drain, *arguments)


class FollowerTestCase(DrainTestCase, test_followers.FollowersTestCase):
    """A snapshot is being copied to the node that is drained."""

    home = test_followers.FollowersTestCase.home

    def setUp(self):
        super().setUp()
        self.take_along()
        self.disable(self.b)
        self.line = (
            'stays: snapshot %s: it is being copied here; run this command '
            'again when that has ended' % self.taken.id)

    def test_plan(self):
        code, lines, _error = self.drain('--plan', node='node2')
        self.assertEqual((1, [self.line]), (code, lines))

    def test_wait(self):
        code, lines, _error = self.drain('--wait', node='node2')
        self.assertEqual((1, [self.line]), (code, lines))
        self.cloud.watch(4)
        self.assertOn(self.b)
        # Now it is one of the snapshots there.
        code, lines, _error = self.drain('--wait', node='node2')
        self.assertEqual(3, code)
        self.assertIn('snapshots stay on their node', lines[0])

    def test_json(self):
        _code, lines, _error = self.drain('-f', 'json', node='node2')
        found = json.loads('\n'.join(lines))
        self.assertEqual([{
            'snapshot': self.taken.id, 'reason': 'it is being copied here',
            'remedy': 'run this command again when that has ended'}],
            found['following'])
        self.assertEqual([], found['arriving'])


class SnapshotsTestCase(DrainTestCase):
    """Snapshots follow their volumes."""

    def follow(self, *arguments):
        return self.drain('--with-snapshots', *arguments)

    def fail(self, *effects):
        """Have requests to copy a snapshot fail, or not, one by one."""
        ask = rpcapi.PeerClient.take_along
        effects = list(effects)

        def take_along(client, *args):
            if effects and effects.pop(0):
                raise exception.PeerFailed(host=self.b.host, reason='no disk')
            return ask(client, *args)
        self.patch('dmclone_driver.move.rpcapi.PeerClient.take_along',
                   new=take_along)

    def hosts(self, *snapshots):
        return {objects.Snapshot.get_by_id(self.context, each.id).provider_id
                for each in snapshots}

    def test_plan(self):
        for _number in range(2):
            self.snapshot()
        self.assertEqual((0, [
            'to do: %s: move it to node2, and copy 2 snapshots, which take '
            '2 GiB there' % self.of(self.volume)]), self.follow('--plan')[:2])
        self.assertEqual([], self.cloud.placeholders())

    def test_follow(self):
        found = [self.snapshot() for _number in range(2)]
        code, lines, _error = self.follow()
        self.assertEqual(0, code)
        self.assertEqual(sorted(
            'done: %s: it is being copied to node2' % self.of_snapshot(each)
            for each in found), sorted(lines[:2]))
        self.assertEqual({'under way: %s: it is being copied to node2'
                          % self.of_snapshot(each) for each in found},
                         {line for line in lines if 'under way' in line})
        self.assertEqual({self.a.pool}, self.hosts(*found))
        # A second run has nothing to do but to wait.
        code, lines, _error = self.follow('--wait')
        self.assertEqual(0, code)
        for each in found:
            self.assertIn('complete: snapshot %s needs nothing on node1 any '
                          'longer' % each.id, lines)
        self.assertEqual({self.b.pool}, self.hosts(*found))
        self.cloud.watch(3)
        self.assertEqual([], self.a.lvm.names())

    def test_no_room_for_the_snapshot(self):
        self.snapshot()
        for node in (self.b, self.c):
            node.lvm.groups['volumes'] = 3 * storage.GIB // 2
        code, lines, _error = self.follow()
        self.assertEqual(1, code)
        self.assertIn('no node can take its 2 GiB', lines[0])
        self.assertIn('its volume stays', lines[1])
        self.assertEqual(self.a.pool, self.home())

    def test_room_is_kept_for_the_snapshots(self):
        """The next volume does not take it."""
        self.snapshot()
        self.a.create()
        self.b.lvm.groups['volumes'] = 9 * storage.GIB // 4
        self.c.lvm.groups['volumes'] = 5 * storage.GIB // 4
        self.assertEqual(0, self.follow()[0])
        self.assertEqual(self.b.pool, self.home())

    def test_one_that_was_left_behind(self):
        snapshot = self.snapshot()
        self.assertEqual(3, self.drain()[0])
        self.assertEqual((0, 'to do: %s: copy it to node2'
                          % self.of_snapshot(snapshot)), (
            lambda code, lines, _error: (code, lines[0]))(
                *self.follow('--plan')))
        code, lines, _error = self.follow('--wait')
        self.assertEqual((0, {self.b.pool}), (code, self.hosts(snapshot)))

    def test_fails_once(self):
        """The same run tries it again."""
        snapshot = self.snapshot()
        self.fail(True)
        self.assertEqual(0, self.follow('--wait')[0])
        self.assertEqual({self.b.pool}, self.hosts(snapshot))

    def test_fails(self):
        """The next run continues."""
        snapshot = self.snapshot()
        self.fail(True, True)
        code, lines, _error = self.follow()
        self.assertEqual((3, self.b.pool), (code, self.home()))
        line, = [line for line in lines if 'not done' in line]
        self.assertIn(self.of_snapshot(snapshot), line)
        self.assertIn('no disk', line)
        self.assertEqual(0, self.follow('--wait')[0])
        self.assertEqual({self.b.pool}, self.hosts(snapshot))

    def test_not_available(self):
        snapshot = self.snapshot()
        snapshot.status = 'error'
        snapshot.save()
        code, lines, _error = self.follow()
        self.assertEqual((3, self.b.pool), (code, self.home()))
        self.assertIn('stays: %s: its status is error'
                      % self.of_snapshot(snapshot), '\n'.join(lines))

    def test_of_an_instance(self):
        self.nova.choice = self.c
        snapshot = self.snapshot()
        self.nova.boot(self.a, self.volume)
        code, lines, _error = self.follow('--plan')
        self.assertIn('a node that Nova chooses, and copy 1 snapshots',
                      lines[0])
        code, lines, _error = self.follow('--wait')
        self.assertEqual((0, self.c.pool), (code, self.home()))
        self.assertEqual({self.c.pool}, self.hosts(snapshot))

    def test_stopped(self):
        """What is not begun is named, and done by the next run."""
        snapshot = self.snapshot()
        moves = self.a.server.endpoint._relocation
        move = moves.move

        def stop(*args):
            signal.raise_signal(signal.SIGINT)
            return move(*args)
        moves.move = stop
        code, lines, _error = self.follow()
        self.assertEqual((128 + signal.SIGINT, self.b.pool),
                         (code, self.home()))
        moves.move = move
        self.assertEqual(0, self.follow('--wait')[0])
        self.assertEqual({self.b.pool}, self.hosts(snapshot))

    def test_json(self):
        snapshot = self.snapshot()
        found = json.loads('\n'.join(self.follow('-f', 'json')[1]))
        item, = found['items']
        self.assertEqual((['move'], [snapshot.id]), (
            [item['action']], item['snapshots']))
        self.assertEqual([{
            'id': snapshot.id, 'volume': self.volume.id,
            'size': storage.GIB, 'copied_to': 'node2', 'reason': None,
            'remedy': None}], found['snapshots'])
        self.assertEqual({None, snapshot.id}, {
            each['snapshot'] for each in found['copies']})


class StopTestCase(DrainTestCase):

    def test_nothing_new_is_begun(self):
        """What has begun is named, and goes on."""
        others = [self.a.create() for _number in range(2)]
        moves = self.a.server.endpoint._relocation
        move, moved = moves.move, []

        def stop(context, volume_id, node):
            moved.append(volume_id)
            signal.raise_signal(signal.SIGINT)
            return move(context, volume_id, node)
        moves.move = stop
        code, lines, _error = self.drain()
        self.assertEqual(128 + signal.SIGINT, code)
        self.assertEqual(1, len(moved))
        self.assertEqual(2, sum(self.home(volume) == self.a.pool for volume
                                in [self.volume, *others]))
        self.assertEqual(['done', 'to do', 'to do'], [
            line.partition(':')[0] for line in lines[:3]])


@ddt.ddt
class InstancesTestCase(DrainTestCase):

    def setUp(self):
        super().setUp()
        self.nova.choice = self.c
        self.server = self.nova.boot(self.a, self.volume)

    def test_plan(self):
        code, lines, _error = self.drain('--plan')
        self.assertEqual((0, [
            'to do: instance %s with volume %s (1 GiB): live-migrate it to a '
            'node that Nova chooses' % (self.server, self.volume.id)]),
            (code, lines))
        self.assertEqual([], self.nova.requests)

    def test_attachments_cost_no_queries_of_services(self):
        def services():
            with mock.patch('dmclone_driver.move.peers.Peers._services',
                            autospec=True,
                            side_effect=peers.Peers._services) as found:
                self.drain('--plan')
            return found.call_count
        before = services()
        for _number in range(3):
            self.nova.boot(self.a, self.a.create())
        self.assertEqual(before, services())

    def test_live_migrated(self):
        code, lines, _error = self.drain('--wait')
        self.assertEqual((0, self.c.pool), (code, self.home()))
        self.assertEqual([(self.server, None, 'auto')], self.nova.requests)
        self.assertIn('done: instance %s' % self.server, lines[0])
        self.assertEqual([], self.cloud.leftovers())

    def test_to(self):
        self.drain('--to', 'node2')
        self.assertEqual(self.b.pool, self.home())
        self.assertEqual([(self.server, 'node2', 'auto')],
                         self.nova.requests)

    def test_migration_fails(self):
        self.nova.faults[self.server] = 'No valid host was found.'
        code, lines, _error = self.drain()
        self.assertEqual((1, self.a.pool), (code, self.home()))
        self.assertEqual([
            'not done: instance %s with volume %s (1 GiB): its live '
            'migration has failed: No valid host was found.; see "openstack '
            'server event list %s", and run this command again' % (
                self.server, self.volume.id, self.server)], lines)
        del self.nova.faults[self.server]
        self.assertEqual((0, self.c.pool), (self.drain()[0], self.home()))

    def test_migration_under_way_is_waited_for(self):
        self.nova.servers.live_migrate(self.server, None, 'auto')
        self.nova.requests.clear()
        self.assertEqual((0, self.c.pool), (self.drain()[0], self.home()))
        self.assertEqual([], self.nova.requests)

    def test_nova_refuses(self):
        self.nova.servers.live_migrate = mock.Mock(
            side_effect=ks_exceptions.Forbidden('not you'))
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertIn('Nova says: not you', lines[0])

    def test_nova_is_down(self):
        """Volumes that are not attached are moved."""
        other = self.a.create()
        self.nova.error = ks_exceptions.ConnectFailure('nobody there')
        code, lines, _error = self.drain('--plan')
        self.assertEqual(1, code)
        self.assertIn('unknown: whether Nova puts new instances on node1: '
                      'Nova says: nobody there', lines[0])
        code, lines, _error = self.drain()
        self.assertEqual((1, self.a.pool, self.b.pool),
                         (code, self.home(), self.home(other)))
        self.assertIn('live-migrate instance ' + self.server,
                      '\n'.join(lines))

    def test_no_credentials(self):
        self.override('auth_type', None)
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertIn('[nova] of the configuration has no credentials',
                      lines[0])

    def test_nova_still_uses_the_node(self):
        self.nova.add(self.a)
        code, lines, error = self.drain()
        self.assertEqual((1, []), (code, lines))
        self.assertIn('Nova puts new instances on node1; use --disable',
                      error)
        self.assertEqual(0, self.drain('--disable')[0])
        self.assertEqual(('disabled', 'dmclone drain'), (
            self.nova.computes['node1'].status,
            self.nova.computes['node1'].reason))

    def test_enabled_again(self):
        self.nova.add(self.a)
        self.drain('--disable')
        self.assertEqual((0, [], ''), self.drain('--enable'))
        self.a.service.refresh()
        self.assertEqual((False, None), (self.a.service.disabled,
                                         self.a.service.disabled_reason))
        self.assertEqual('enabled', self.nova.computes['node1'].status)
        self.assertEqual((0, [], ''), self.drain('--enable'))
        # Nothing has come back.
        self.assertNotEqual(self.a.pool, self.home())

    def test_nova_cannot_enable(self):
        self.nova.add(self.a)
        self.drain('--disable')
        self.nova.error = ks_exceptions.ConnectFailure('nobody there')
        code, lines, error = self.drain('--enable')
        self.assertEqual((1, []), (code, lines))
        self.assertIn('cinder-volume of %s is enabled, nova-compute is not: '
                      'Nova says: nobody there' % self.a.host, error)

    def test_names_of_nova(self):
        """Its name of the node is that of the attachments."""
        row, = self.row().volume_attachment
        row.connector = dict(row.connector, host='node1.example.org')
        row.save()
        self.nova._put(self.nova.all[self.server], 'node1.example.org', None)
        self.nova.computes['node1.example.org'] = types.SimpleNamespace(
            id='x', status='enabled')
        self.assertIn('Nova puts new instances on node1.example.org',
                      self.drain()[2])

    def test_volume_does_not_follow(self):
        self.patch('tests.unit.fakes.cloud.Cloud.detach')
        self.cloud.watch = mock.Mock()
        code, lines, _error = self.drain()
        self.assertEqual(1, code)
        self.assertIn('its instance is on node3, and volume %s has not '
                      'followed it' % self.volume.id, lines[0])

    def test_instance_is_deleted_meanwhile(self):
        request = self.nova.servers.live_migrate

        def delete(server, *args):
            request(server, *args)
            del self.nova.all[server]
        self.nova.servers.live_migrate = delete
        self.assertIn('its instance was deleted meanwhile',
                      self.drain()[1][0])

    def test_stopped_during_a_migration(self):
        self.wait = lambda: signal.raise_signal(signal.SIGINT)
        code, lines, _error = self.drain()
        self.assertEqual(128 + signal.SIGINT, code)
        self.assertIn('under way: instance ' + self.server, lines[-1])
