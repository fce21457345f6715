# SPDX-License-Identifier: Apache-2.0
"""Remote connections to nodes of this backend that have no room."""

from unittest import mock
import uuid

from cinder import exception as cinder_exception
from cinder.message import message_field
from cinder import objects
import ddt

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move import records
from dmclone_driver.move import remotes
from dmclone_driver.move.report import Remote
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage
from tests.unit import test_driver

OPTION = 'dmclone_remote_attach_without_room'
MOMENTS = ('before', 'made', 'connected')


class Target(test_driver.Remote):
    """A target of Cinder on a node, which holds the devices open."""

    def __init__(self, node):
        super().__init__()
        self._node = node
        #: {volume's name: path}
        self.exports = {}
        #: Names of the nodes that may log in.
        self.allowed = set()
        #: Where the service is killed.
        self.moment = None

    def reach(self, moment):
        if moment == self.moment:
            self.moment = None
            raise steps.Killed(moment)

    def create_export(self, context, volume, path):
        self.reach('before')
        if volume.name not in self.exports:
            self.exports[volume.name] = path
            self._node.kernel.get(path).opened += 1
        self.reach('made')
        return super().create_export(context, volume, path)

    @staticmethod
    def location(volume):
        return '192.0.2.1:3260,1 iqn.2010-10.org.openstack:%s 1' % volume.name

    def initialize_connection(self, volume, connector):
        if volume.name not in self.exports:
            raise AssertionError('not exported')
        self.reach('connected')
        self.allowed.add(connector['host'])
        return {'driver_volume_type': 'iscsi', 'data': {}}

    def remove_export(self, context, volume):
        # As Cinder's, by what is in the row.
        name = volume.provider_location.split(' ')[1].rpartition(':')[2]
        path = self.exports.pop(name, None)
        if path:
            self._node.kernel.get(path).opened -= 1


class RemotesTestCase(base.QueriesTestCase):
    """A volume on node1, no room on node2, and node3 with room."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()
        self.server = str(uuid.uuid4())
        self.targets = {}
        for node in self.cloud.nodes.values():
            self.use_target(node)
        self.allow()
        self.set_room(self.b, False)

    def use_target(self, node):
        """Give the service of a node its target, which outlives it."""
        target = self.targets.setdefault(node, Target(node))
        node.parts.connections._target_driver = target

    def allow(self, allowed=True):
        for node in self.cloud.nodes.values():
            setattr(node.driver.configuration, OPTION, allowed)

    def set_room(self, node, room):
        node.lvm.groups['volumes'] = (
            100 * storage.GIB if room else storage.GIB // 2)

    def restart(self, node):
        node.stop()
        node.start()
        self.use_target(node)
        self.allow()
        self.cloud.settle()

    def home(self):
        return self.cloud.by_host[self.row().host.partition('#')[0]]

    def set_status(self, status):
        db_api.volume_update(self.context, self.volume.id,
                             {'status': status})

    def connect(self, node, complete=True, **connector):
        """Attach as Nova and Cinder do; return the kind of connection."""
        connector = dict(node.connector, **connector)
        if not self.row().volume_attachment:
            self.set_status('reserved')
        record = objects.VolumeAttachment(
            self.context, volume_id=self.volume.id, attach_mode='rw',
            attach_status='reserved', instance_uuid=self.server)
        record.create()
        row, home = self.row(), self.home()
        with self.cloud.on(home):
            try:
                home.driver.create_export(self.context, row, connector)
                data = home.driver.initialize_connection(row, connector)
            except cinder_exception.CinderException:
                home.driver.remove_export(self.context, row)
                record.destroy()
                raise
        record.connector, record.attach_status = connector, 'attaching'
        record.save()
        if complete:
            self.complete(record)
        return data['driver_volume_type']

    def complete(self, record):
        record.attach_status = 'attached'
        record.save()
        self.set_status('in-use')

    def disconnect(self, node):
        self.cloud.detach(self.volume, node)
        if not self.row().volume_attachment:
            self.set_status('available')

    def refused(self, node, error=exception.MoveRefused):
        """Return the message of a refused attachment."""
        before = len(self.row().volume_attachment)
        found = self.assertRaises(error, self.connect, node)
        self.assertEqual(before, len(self.row().volume_attachment))
        return found.msg

    def assertNothingLeft(self, node=None):
        self.cloud.settle()
        self.assertEqual({}, {each.name: target.exports for each, target
                              in self.targets.items() if target.exports})
        self.assertIdle(node or self.home())

    def look(self, node=None):
        """Have a service report its statistics, as once a minute."""
        node = node or self.a
        with self.cloud.on(node):
            node.driver.get_volume_stats(refresh=True)
        return node.parts.remotes.found

    def told(self):
        return [each for each in self.cloud.messages()
                if each['action_id'] ==
                message_field.Action.UPDATE_ATTACHMENT[0]]


@ddt.ddt
class ConnectTestCase(RemotesTestCase):

    def test_not_allowed(self):
        self.allow(False)
        self.assertIn('only 0.50 GiB left',
                      self.refused(self.b, exception.NoRoomOnPeer))
        self.assertEqual(1, len(self.cloud.messages()))
        self.assertNothingLeft(self.a)

    def test_no_room(self):
        """Nothing is begun, and the volume stays."""
        with self.assertLogs('dmclone_driver.connections', 'INFO') as logs:
            self.assertEqual('iscsi', self.connect(self.b))
        self.assertIn('Volume %s is connected remotely on node2 and stays on '
                      'node1' % self.volume.id, logs.output[0])
        self.assertEqual(1, len(self.cloud.rows()))
        self.assertEqual(self.a.pool, self.row().host)
        self.assertIsNone(lookups.prepared_move(self.row()))
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual([], self.cloud.messages())
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    def test_room_again(self):
        """The next attachment there is local."""
        self.connect(self.b)
        self.disconnect(self.b)
        self.set_room(self.b, True)
        self.assertEqual('local', self.connect(self.b))
        self.cloud.watch(3)
        self.disconnect(self.b)
        self.assertNothingLeft(self.b)

    def ensure(self, node):
        """Start Cinder's part of the service, as VolumeManager.init_host."""
        with self.cloud.on(node):
            for row in self.cloud.rows():
                node.driver.ensure_export(self.context, row)

    def boot(self):
        """Boot the first node: what its target had is gone."""
        self.a.reboot()
        self.targets[self.a].exports.clear()
        self.targets[self.a].allowed.clear()
        self.restart(self.a)

    def test_node_is_booted(self):
        """The guest's node finds the volume again."""
        self.connect(self.b)
        before, auth = self.row().provider_location, self.row().provider_auth
        target = self.targets[self.a]
        with mock.patch.object(target, 'initialize_connection') as connected:
            # The service may have been killed before it was connected.
            self.restart(self.a)
            with mock.patch.object(target, 'create_export') as create:
                self.ensure(self.a)
            create.assert_not_called()
            connected.assert_called_once()
            connected.reset_mock()
            self.boot()
            self.ensure(self.a)
            self.assertEqual([self.b.connector], [
                call.args[1] for call in connected.call_args_list])
        path = Names(self.row().name_id).path()
        self.assertEqual({self.volume.name: path}, target.exports)
        self.assertEqual(1, self.a.kernel.get(path).opened)
        self.assertEqual((before, auth), (self.row().provider_location,
                                          self.row().provider_auth))
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    def test_export_fails_after_a_boot(self):
        self.connect(self.b)
        self.boot()
        with mock.patch.object(self.targets[self.a], 'create_export',
                               side_effect=OSError('no target')), (
                self.assertLogs('dmclone_driver.connections',
                                'ERROR')) as logs:
            self.ensure(self.a)
        self.assertIn('Volume %s is not exported again' % self.volume.id,
                      logs.output[0])
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    def test_killed_after_a_boot(self):
        """The next start finds no missing device."""
        for moment in (None, *MOMENTS):
            self.connect(self.b)
            self.boot()
            self.targets[self.a].moment = moment
            if moment:
                self.assertRaises(steps.Killed, self.ensure, self.a)
            self.restart(self.a)
            self.ensure(self.a)
            path = Names(self.row().name_id).path()
            self.assertEqual({self.volume.name: path},
                             self.targets[self.a].exports, moment)
            self.assertEqual({self.b.connector['host']},
                             self.targets[self.a].allowed, moment)
            self.disconnect(self.b)
            self.assertNothingLeft(self.a)

    def test_restored_database(self):
        """It was attached elsewhere since, and its data is there."""
        self.connect(self.b)
        auth = self.row().provider_auth
        with self.cloud.on(self.a):
            logical_volumes.tag(
                self.a.backend.logical_volume(Names(self.volume.id)),
                logical_volumes.SEALED_TAG + 'x')
        self.boot()
        self.ensure(self.a)
        self.assertEqual({}, self.targets[self.a].exports)
        self.assertEqual(auth, self.row().provider_auth)

    def test_nobody_uses_the_export(self):
        self.connect(self.b, complete=False)
        self.row().volume_attachment[0].destroy()
        self.boot()
        with mock.patch.object(self.targets[self.a],
                               'create_export') as create:
            self.ensure(self.a)
        create.assert_not_called()

    def test_other_node(self):
        """Detached, it moves to any node with room."""
        self.connect(self.b)
        self.disconnect(self.b)
        self.assertEqual('local', self.connect(self.c))
        self.cloud.watch(3)
        self.assertNothingLeft(self.c)

    def down(self):
        self.b.stop()

    def grouped(self):
        db_api.volume_update(self.context, self.volume.id,
                             {'group_id': self.volume.id})

    def of_another_type(self):
        db_api.volume_update(self.context, self.volume.id, {
            'volume_type_id': db_api.volume_type_create(self.context, {
                'name': 'picky', 'extra_specs': {
                    'dmclone_metadata_backend': 'zram'}}).id})

    def being_filled(self):
        self.a.preflight.staying.add(self.volume.id)

    def migrating(self):
        """There is room, but another reason."""
        self.set_room(self.b, True)
        db_api.volume_update(self.context, self.volume.id,
                             {'migration_status': 'migrating'})

    def opened(self):
        self.a.kernel.get(Names(self.volume.id).path()).opened += 1

    @ddt.data(('down', 'did not answer'), ('grouped', 'it is in group'),
              ('of_another_type', 'wants dmclone_metadata_backend'),
              ('being_filled', 'still being filled'),
              ('migrating', 'is being migrated'),
              ('opened', 'is still open'))
    @ddt.unpack
    def test_other_reasons(self, situation, reason):
        getattr(self, situation)()
        self.assertIn(reason, self.refused(self.b))
        self.assertEqual({}, self.targets[self.a].exports)
        self.assertIsNone(self.row().provider_location)

    def test_failed_move(self):
        """What fails later is no lack of room, whatever its text says."""
        self.set_room(self.b, True)
        with mock.patch.object(
                self.b.builder, 'build', side_effect=OSError(
                    'it needs 1 GiB, and has only 0.50 GiB left')):
            self.refused(self.b, exception.MoveFailed)
        self.assertNothingLeft(self.a)

    def test_live_migration_to_a_node_without_room(self):
        """The second attachment is refused; the first one goes on."""
        self.connect(self.a)
        self.assertIn('only 0.50 GiB left',
                      self.refused(self.b, exception.NoRoomOnPeer))
        self.disconnect(self.a)
        self.assertNothingLeft(self.a)

    def test_guest_that_has_just_begun_at_home(self):
        """Its attachment is not complete, but its device is open."""
        self.connect(self.a, complete=False)
        self.opened()
        self.refused(self.b, exception.NoRoomOnPeer)
        self.assertEqual({}, self.targets[self.a].exports)

    def test_after_a_failed_attempt_elsewhere(self):
        """Its prepared move is aborted, and leaves nothing."""
        self.connect(self.a)
        self.connect(self.c, complete=False)
        self.cloud.set_attach_status(self.volume, self.a, 'attaching')
        self.assertEqual('iscsi', self.connect(self.b))
        self.cloud.settle()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.c.lvm.names())
        self.assertEqual({}, self.a.target.exports)

    def test_repeated_request(self):
        """The guest there goes on, also if there is room now."""
        self.connect(self.b)
        self.set_room(self.b, True)
        location = self.row().provider_location
        self.assertEqual('iscsi', self.connect(self.b))
        self.assertEqual(location, self.row().provider_location)

    def test_while_it_hydrates(self):
        """Reads go through the handle, below which the copy completes."""
        self.connect(self.c)
        self.disconnect(self.c)
        self.assertEqual(self.c, self.home())
        self.assertEqual('iscsi', self.connect(self.b))
        handle = self.c.kernel.get(Names(self.row().name_id).path())
        self.assertIsNotNone(handle.clone)
        self.cloud.watch(3)
        self.assertEqual('linear', handle.kinds)
        self.assertEqual(1, handle.opened)
        self.disconnect(self.b)
        self.assertNothingLeft(self.c)

    def test_with_snapshots(self):
        taken = self.snapshot_row()
        with self.cloud.on(self.a):
            self.a.driver.create_snapshot(taken)
        self.assertEqual('iscsi', self.connect(self.b))
        second = self.snapshot_row()
        with self.cloud.on(self.a):
            self.a.driver.create_snapshot(second)
            for each in taken, second:
                self.a.driver.delete_snapshot(each)
                each.destroy()
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    @ddt.data(('luks', True), ('plain', False))
    @ddt.unpack
    def test_encrypted(self, provider, allowed):
        db_api.volume_update(self.context, self.volume.id, {
            'encryption_key_id': self.volume.id})
        self.patch('cinder.volume.volume_types.get_volume_type_encryption',
                   return_value={'provider': provider})
        if allowed:
            self.assertEqual('iscsi', self.connect(self.b))
        else:
            self.refused(self.b, exception.EncryptionRefused)

    @ddt.data(*((moment, room, start) for moment in MOMENTS
                for room in (False, True) for start in (False, True)))
    @ddt.unpack
    def test_killed(self, moment, room, start):
        """The next attachment ends what was left, and so does the start."""
        target = self.targets[self.a]
        target.moment = moment
        self.assertRaises(steps.Killed, self.connect, self.b)
        # Cinder deletes a record without a connector by itself.
        for record in self.row().volume_attachment:
            record.destroy()
        self.set_status('available')
        if start:
            self.restart(self.a)
            self.assertNothingLeft(self.a)
        self.set_room(self.b, room)
        self.assertEqual('local' if room else 'iscsi', self.connect(self.b))
        self.cloud.watch(3)
        self.disconnect(self.b)
        self.assertNothingLeft(self.b if room else self.a)

    def test_answer_that_was_too_late(self):
        """Nova deletes its attachment."""
        self.connect(self.b, complete=False)
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    def test_forgotten_attachment(self):
        """One that was never completed gives way to the next."""
        self.connect(self.b, complete=False)
        self.set_status('attaching')
        self.assertEqual('local', self.connect(self.c))
        self.assertEqual({}, self.targets[self.a].exports)

    def test_task_of_cinder(self):
        """Its export is not taken for a forgotten one."""
        self.targets[self.a].create_export(
            self.context, self.row(), Names(self.volume.id).path())
        records.set_export(self.context, self.row(),
                           Target.location(self.volume), 'CHAP')
        self.set_status('backing-up')
        with mock.patch.object(self, 'set_status'):
            self.assertIn('by an image, backup', self.refused(self.b))


class MigrationTestCase(RemotesTestCase):
    """Live migrations of an instance whose volume is used remotely."""

    def setUp(self):
        super().setUp()
        self.connect(self.b)

    def test_home(self):
        """It is local there; the export ends with the old attachment."""
        self.assertEqual('local', self.connect(self.a))
        self.assertNotEqual({}, self.targets[self.a].exports)
        self.assertTrue(self.cloud.detach(self.volume, self.b))
        self.assertNothingLeft(self.a)

    def test_home_in_vain(self):
        """The guest goes on where it is."""
        self.connect(self.a)
        self.cloud.detach(self.volume, self.a)
        self.assertNotEqual({}, self.targets[self.a].exports)
        self.assertIsNotNone(self.row().provider_location)
        self.disconnect(self.b)
        self.assertNothingLeft(self.a)

    def test_elsewhere(self):
        """It is refused: the way leads over its home."""
        reason = self.refused(self.c)
        for part in ('over iSCSI on node2',
                     'live-migrate its instance to node1 first'):
            self.assertIn(part, reason)
        self.assertNotEqual({}, self.targets[self.a].exports)
        self.connect(self.a)
        self.cloud.detach(self.volume, self.b)
        self.assertEqual('local', self.connect(self.c))
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(4)
        self.assertNothingLeft(self.c)

    def test_back_over_its_home(self):
        """When there is room the volume follows the guest."""
        self.set_room(self.b, True)
        self.connect(self.a)
        self.cloud.detach(self.volume, self.b)
        self.assertEqual('local', self.connect(self.b))
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(4)
        self.assertNothingLeft(self.b)

    def test_evacuation(self):
        """Nova ends the old attachment first."""
        self.b.die()
        self.cloud.detach(self.volume, self.b)
        self.assertEqual('local', self.connect(self.c))
        self.cloud.watch(3)
        self.assertNothingLeft(self.c)


class LookTestCase(RemotesTestCase):
    """The periodic question whether there is room now."""

    def found(self, room, node='node2'):
        return (Remote(self.volume.id, node, room),)

    def test_told_once(self):
        self.connect(self.b)
        self.assertEqual(self.found(False), self.look())
        self.set_room(self.b, True)
        # It is not asked again at once.
        self.assertEqual(self.found(False), self.look())
        with self.assertLogs('dmclone_driver.move.remotes', 'INFO') as logs:
            for _ in range(3):
                self.cloud.pass_time(remotes.PAUSE)
                self.assertEqual(self.found(True), self.look())
        message, = self.told()
        self.assertEqual(self.volume.id, message['resource_uuid'])
        line, = logs.output
        for part in (self.volume.id, 'on node2', 'There is room now',
                     'to node1 and from there to node2'):
            self.assertIn(part, line)
        self.disconnect(self.b)
        self.cloud.pass_time(remotes.PAUSE)
        self.assertEqual((), self.look())

    def test_asks_as_an_attachment(self):
        """What counts may be less than its size, see needs."""
        self.connect(self.b)
        self.set_room(self.b, True)
        self.patch('dmclone_driver.move.needs.Needs.lacking',
                   return_value='too little')
        self.assertEqual(self.found(False), self.look())
        self.assertEqual([], self.told())

    def test_after_a_restart(self):
        self.connect(self.b)
        self.restart(self.a)
        self.set_room(self.b, True)
        self.assertEqual(self.found(True), self.look())
        self.assertEqual(1, len(self.told()))

    def test_node_that_does_not_answer(self):
        self.connect(self.b)
        self.b.stop()
        self.assertEqual(self.found(None), self.look())

    def test_new_connection_is_found_soon(self):
        self.assertEqual((), self.look())
        self.connect(self.b)
        self.assertEqual(self.found(False), self.look())

    def test_grouped_meanwhile(self):
        """It could not move."""
        self.connect(self.b)
        db_api.volume_update(self.context, self.volume.id,
                             {'group_id': self.volume.id})
        self.set_room(self.b, True)
        self.assertEqual(self.found(False), self.look())
        self.assertEqual([], self.told())

    def test_host_without_the_backend(self):
        self.a.driver.configuration.dmclone_remote_attach = True
        self.connect(self.b, host='laptop', ip='198.51.100.1')
        self.assertEqual((), self.look())

    def test_home_of_a_guest(self):
        """A guest at home is local, and others read its source."""
        self.connect(self.a)
        self.connect(self.c)
        self.assertEqual((), self.look())

    def test_costs(self):
        """One query in five minutes, and one question to a node."""
        for _ in range(3):
            self.a.create()
        with self.cloud.on(self.a):
            look = self.a.parts.remotes.look
            for queries in (1, 0):
                self.queries.clear()
                look(self.context)
                self.assertEqual(queries, len([
                    each for each in self.queries
                    if each.startswith('SELECT')]), self.queries)
        first, self.volume = self.volume, self.a.create()
        self.connect(self.b)
        self.volume = first
        self.connect(self.b)
        self.cloud.pass_time(remotes.PAUSE)
        self.cloud.steps.start()
        self.assertEqual(2, len(self.look()))
        self.assertEqual(1, len([step for step in self.cloud.steps.log
                                 if 'ask node2' in step]))

    def test_metrics(self):
        self.connect(self.b)
        for room, numbers in ((False, [0, 1]), (True, [1, 0])):
            self.set_room(self.b, room)
            self.cloud.pass_time(remotes.PAUSE)
            self.look()
            found = self.a.metrics()
            self.assertEqual(numbers, [
                found['dmclone_volumes_remote', (('room', word),)]
                for word in ('yes', 'no')])
