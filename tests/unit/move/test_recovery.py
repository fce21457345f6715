# SPDX-License-Identifier: Apache-2.0
"""Starts of services after restarts, reboots and crashes."""

import contextlib
from unittest import mock
import uuid

import ddt
from oslo_db import exception as db_exception
from sqlalchemy import engine
from sqlalchemy import event

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import steps


class RecoveryTestCase(base.CloudTestCase):

    def restart(self, *nodes, reboot=False, settle=True):
        for node in nodes:
            node.reboot() if reboot else node.stop()
        for node in nodes:
            node.start()
        if settle:
            self.cloud.settle()

    def handle(self, node):
        return node.kernel.get(Names(self.row().name_id).path())


class BootTestCase(RecoveryTestCase):
    """LVM has activated all logical volumes before the service starts."""

    def setUp(self):
        super().setUp()
        self.volumes = [self.volume, self.a.create(), self.a.create()]
        self.boot(self.a)

    def boot(self, node):
        """Boot a node; its service is not started."""
        node.reboot()
        for volume in node.lvm.volumes.values():
            volume['active'] = True
        self.cloud.steps.start()

    def created(self):
        """Return the commands that have created devices."""
        return [step for step in self.cloud.steps.log
                if 'dmsetup create' in step]

    def assertUsable(self):
        for volume in self.volumes:
            path = Names(self.cloud.row(volume.id).name_id).path()
            self.a.kernel.write(path)
        self.assertEqual([], self.cloud.violations())

    def test_one_process_creates_all_handles(self):
        self.a.start()
        self.assertEqual(['node1: dmsetup create --concise'], self.created())
        self.assertUsable()

    def steps_of_creation(self):
        """Return the numbers of the steps of the process."""
        self.a.start()
        first, = (number for number, step in enumerate(self.cloud.steps.log)
                  if '--concise' in step)
        self.boot(self.a)
        # The process, and the table of each device.
        return range(first, first + 1 + len(self.volumes))

    def test_one_fails(self):
        """What the process has not created is created one by one."""
        for number in self.steps_of_creation():
            self.cloud.steps.start(number)
            self.a.start()
            self.assertUsable()
            self.boot(self.a)

    def test_service_is_killed_meanwhile(self):
        for number in self.steps_of_creation():
            self.cloud.steps.start(number, killed=True)
            self.assertRaises(steps.Killed, self.a.start)
            self.cloud.steps.start()
            self.a.start()
            self.assertUsable()
            self.boot(self.a)

    def test_snapshots_and_moves_are_left_alone(self):
        """Only volumes at rest are created together."""
        self.a.start()
        self.cloud.attach(self.volumes[0], self.b)
        self.boot(self.b)
        self.b.start()
        self.assertNotIn('--concise', ' '.join(self.created()))
        self.assertEqual([], self.cloud.violations())


class VolumesTestCase(RecoveryTestCase):

    def test_idle(self):
        self.restart(self.a, reboot=True)
        self.assertIdle(self.a)

    def test_host_was_changed_while_the_node_was_off(self):
        """The host is corrected, as after cinder-manage volume update_host."""
        self.a.reboot()
        db_api.volume_update(self.context, self.volume.id,
                             {'host': self.b.pool})
        self.restart(self.a)
        self.assertIdle(self.a)

    def test_service_only(self):
        before = self.handle(self.a)
        self.restart(self.a)
        self.assertIs(before, self.handle(self.a))

    def test_cost_does_not_grow_with_idle_volumes(self):
        """A start needs as many processes and queries for one as for ten."""
        def cost():
            self.cloud.steps.start()
            with self.queries() as queries:
                self.restart(self.a)
            return list(self.cloud.steps.log), len(queries)
        one = cost()
        for _number in range(9):
            self.a.create()
        self.assertEqual(one, cost())

    @contextlib.contextmanager
    def queries(self):
        """Collect the database queries."""
        found = []

        def query(connection, cursor, statement, *args):
            found.append(statement)
        event.listen(engine.Engine, 'before_cursor_execute', query)
        try:
            yield found
        finally:
            event.remove(engine.Engine, 'before_cursor_execute', query)

    def test_volumes_cannot_be_read_at_once(self):
        """Then they are read one by one."""
        self.cloud.attach(self.volume, self.b)
        with mock.patch.object(lookups, 'on_host', side_effect=[
                lookups.on_host(self.context, self.a.host),
                db_exception.DBConnectionError(), *3 * [[]]]):
            self.restart(self.a)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_attachments_cannot_be_read_at_once(self):
        """What follows is done all the same."""
        row = self.row()
        row.provider_location = 'an old target'
        row.save()
        self.a.stop()
        self.patch('dmclone_driver.move.recovery._has_old_export',
                   side_effect=[OSError('the database is away'), False])
        deleted = self.patch('dmclone_driver.move.snapshots.Snapshots.'
                             'delete_unfinished')
        self.a.start()
        self.cloud.settle()
        deleted.assert_called_once_with(mock.ANY, [])

    def test_suspended_handle_goes_on(self):
        self.handle(self.a).suspended = True
        self.restart(self.a)
        self.assertIdle(self.a)

    def test_handle_is_a_clone_itself(self):
        """As in earlier versions; such a volume is not taken for complete."""
        self.cloud.attach(self.volume, self.b)
        names = Names(self.row().name_id)
        kernel = self.b.kernel
        old = kernel.devices.pop(names.of(names_module.CLONE))
        kernel.devices[names.of(names_module.HANDLE)] = old
        self.restart(self.b)
        self.assertNotIn(
            logical_volumes.COMPLETE_TAG,
            self.b.lvm.at('/dev/volumes/' + names.volume)['tags'])
        self.assertIs(old, kernel.get(names.path()))

    def test_broken_volume_stops_nothing(self):
        """The service starts, and other volumes can be used."""
        others = [self.a.create() for _ in range(2)]
        self.cloud.attach(self.volume, self.b)
        self.cloud.attach(others[0], self.b)
        broken = Names(self.row().name_id)
        self.b.kernel.reboot()
        self.b.lvm.drop('/dev/volumes/' + broken.metadata)
        self.restart(self.b, reboot=True)
        self.assertEqual({}, self.b.kernel.roles(broken))
        self.assertIn('volume-' + broken.name_id, self.b.lvm.names())
        self.assertEqual('error', self.row().status)
        self.assertEqual([self.volume.id], [
            message['resource_uuid'] for message in self.cloud.messages()])
        self.assertEqual('clone', self.b.kernel.roles(Names(
            self.cloud.row(others[0].id).name_id))['handle'])
        self.cloud.attach(others[1], self.b)

    def test_exports_that_nobody_needs(self):
        """They are removed, also after an error with another one."""
        names = [Names(self.volume.id), Names(self.a.create().id)]
        with self.cloud.on(self.a):
            for each in names:
                LocalVolume(each).ensure_export(1024 ** 3)
        owner_row = lookups.owner_row

        def fails(context, name_id):
            if name_id == min(each.name_id for each in names):
                raise OSError
            return owner_row(context, name_id)

        with mock.patch('dmclone_driver.move.lookups.owner_row', new=fails):
            self.restart(self.a)
        self.assertEqual(1, len([name for name in self.a.kernel.devices
                                 if name.endswith('-export')]))
        self.restart(self.a)
        self.assertEqual([], self.cloud.leftovers())

    def test_copy_that_was_cut_off(self):
        """Its snapshot is deleted; it would prevent moves."""
        name = 'clone-snap-' + str(uuid.uuid4())
        with self.cloud.on(self.a):
            self.a.driver.vg.create_lv_snapshot(name, self.volume.name)
            self.a.driver.vg.create_lv_snapshot('clone-snap-of-mine',
                                                self.volume.name)
        self.restart(self.a)
        self.assertEqual({self.volume.name, 'clone-snap-of-mine'},
                         set(self.a.lvm.names()))

    def test_copy_that_is_not_removed_at_once(self):
        names = ['clone-snap-' + str(uuid.uuid4()) for _ in range(2)]
        with self.cloud.on(self.a):
            for name in names:
                self.a.driver.vg.create_lv_snapshot(name, self.volume.name)
        cleared, fails = [], [OSError('busy')]

        def delete(lv, group, configuration):
            cleared.append(lv.name)
            if fails:
                raise fails.pop()
            group.delete(lv.name)
        self.patch('dmclone_driver.node.deletion.delete_snapshot', new=delete)
        self.restart(self.a)
        self.assertEqual(set(names), set(cleared))
        self.assertEqual(2, len(cleared))
        self.cloud.watch(2)
        self.assertEqual(3, len(cleared))
        self.assertEqual({}, self.a.jobs.left())

    def test_logical_volume_is_gone(self):
        other = self.a.create()
        self.a.kernel.reboot()
        self.a.lvm.drop('/dev/volumes/' + self.volume.name)
        self.restart(self.a, reboot=True)
        self.assertEqual(['dmclone-' + other.id],
                         list(self.a.kernel.of_volumes()))


class AgainTestCase(RecoveryTestCase):
    """Failures at a start are retried until they succeed."""

    def setUp(self):
        super().setUp()
        self.other = self.a.create()
        self.names = Names(self.volume.id)
        self.broken = {self.names}
        ensure_linear = LocalVolume.ensure_linear

        def ensure(volume, lv, **kwargs):
            if volume.names in self.broken:
                raise OSError('the-reason')
            ensure_linear(volume, lv, **kwargs)
        self.patch('dmclone_driver.node.devices.LocalVolume.ensure_linear',
                   new=ensure)
        self.restart(self.a, reboot=True)

    def test_heals(self):
        self.cloud.watch(3)
        self.assertEqual(['dmclone-' + self.other.id],
                         list(self.a.kernel.of_volumes()))
        self.broken.clear()
        self.cloud.watch()
        self.assertIdle(self.a)
        self.assertEqual([], self.a.left('recover'))

    def test_one_that_stays_broken_holds_up_no_other(self):
        others = [self.a.create() for _ in range(3)]
        self.broken |= {Names(volume.id) for volume in others}
        self.restart(self.a, reboot=True)
        self.assertEqual(4, len(self.a.left('recover')))
        self.broken = {Names(others[1].id)}
        self.cloud.watch()
        self.assertEqual({'dmclone-' + volume.id for volume in (
            self.volume, self.other, others[0], others[2])},
            set(self.a.kernel.of_volumes()))
        self.assertEqual([others[1].id],
                         self.a.left('recover'))

    def test_ever_less_often(self):
        again = self.a.jobs._kinds['recover'].run = mock.Mock()
        self.a.jobs.add('recover', 'x')
        for _ in range(100):
            self.cloud.pass_time(1)
            self.a.look()
            self.cloud.settle()
        self.assertIn(again.call_count, range(5, 9))

    def hold(self, act):
        """Run an action while a retry waits for a volume's lock."""
        lock, self.locked = self.a.backend.lock, []

        @contextlib.contextmanager
        def wait(volume_id):
            act()
            with lock(volume_id):
                self.locked.append(volume_id)
                yield

        self.a.backend.lock = wait
        self.broken.clear()
        self.cloud.watch()
        self.assertEqual([self.volume.id], self.locked)
        self.assertEqual([], self.a.left('recover'))

    def test_has_gone_meanwhile(self):
        self.hold(self.volume.destroy)
        self.assertEqual({}, self.a.kernel.roles(self.names))

    def test_has_moved_meanwhile(self):
        def move():
            row = self.row()
            row.host = self.b.pool
            row.save()

        self.hold(move)
        self.assertEqual({}, self.a.kernel.roles(self.names))

    def chain(self):
        """Move the volume on to a third node, before its copy is complete.

        :returns: the node, the metadata on the second one, and the path
        """
        self.broken.clear()
        self.cloud.watch()
        c = self.cloud.add('node3')
        self.cloud.attach(self.volume, self.b)
        metadata = '/dev/volumes/' + Names(self.row().name_id).metadata
        self.cloud.detach(self.volume, self.b)
        return c, metadata, self.cloud.attach(self.volume, c)

    def test_metadata_in_the_middle_of_a_chain(self):
        """A volume with its home on another node is in error, too."""
        c, metadata, _path = self.chain()
        lost = self.b.lvm.volumes.pop(metadata)
        self.restart(self.b, reboot=True)
        self.assertEqual((c.pool, 'error'), (self.row().host,
                                             self.row().status))
        message, = self.cloud.messages()
        self.assertEqual(self.volume.id, message['resource_uuid'])
        self.b.lvm.volumes[metadata] = lost
        self.cloud.watch()
        self.assertEqual('available', self.row().status)

    def test_metadata_of_a_source_that_is_not_needed(self):
        """The volume is complete on another node, and stays usable."""
        c, metadata, path = self.chain()
        self.b.reboot()
        c.kernel.hydrate(path)
        c.look()
        self.assertIn(State.RELEASED, self.cloud.states())
        self.b.lvm.drop(metadata)
        self.restart(self.b, reboot=True)
        self.cloud.watch(4)
        self.assertEqual(('available', []), (self.row().status,
                                             self.cloud.messages()))
        self.assertEqual([], self.b.lvm.names())

    def test_metadata_that_appears_late(self):
        self.broken.clear()
        self.cloud.watch()
        path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.write(path)
        metadata = '/dev/volumes/' + Names(self.row().name_id).metadata
        self.b.reboot()
        lost = self.b.lvm.volumes.pop(metadata)
        self.restart(self.b, reboot=True)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual('error', self.row().status)
        self.b.lvm.volumes[metadata] = lost
        self.b.look()
        self.cloud.settle()
        self.assertEqual('available', self.row().status)
        self.assertEqual(1, self.b.kernel.get(path).clone.bitmap['hydrated'])
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.leftovers())

    def test_deletion_goes_on_without_metadata(self):
        """The status stays: Cinder resumes only volumes in "deleting"."""
        self.broken.clear()
        self.cloud.watch()
        self.cloud.attach(self.volume, self.b)
        row = self.row()
        row.status = 'deleting'
        row.save()
        self.b.kernel.reboot()
        self.b.lvm.drop('/dev/volumes/' + Names(row.name_id).metadata)
        self.restart(self.b, reboot=True)
        self.assertEqual('deleting', self.row().status)
        with self.cloud.on(self.b):
            self.b.driver.delete_volume(self.row())
        self.assertNotIn(row.name, self.b.lvm.names())

    def test_operator_knows_better(self):
        """A status that an operator has set meanwhile is kept."""
        self.broken.clear()
        self.cloud.watch()
        self.cloud.attach(self.volume, self.b)
        metadata = '/dev/volumes/' + Names(self.row().name_id).metadata
        self.b.reboot()
        lost = self.b.lvm.volumes.pop(metadata)
        self.restart(self.b, reboot=True)
        row = self.row()
        row.status = 'in-use'
        row.save()
        self.b.lvm.volumes[metadata] = lost
        self.b.look()
        self.cloud.settle()
        self.assertEqual('in-use', self.row().status)

    def test_target_that_starts_late(self):
        """The export is retried: an initiator with a session does not ask."""
        self.broken.clear()
        self.cloud.watch()
        self.cloud.attach(self.volume, self.b)
        export = self.a.target.export
        self.a.target.export = mock.Mock(side_effect=OSError)
        self.restart(self.a, reboot=True)
        self.a.target.export = export
        self.assertEqual([None], self.served())
        self.a.look()
        self.cloud.settle()
        self.assertEqual([Names(self.volume.id).path('export')],
                         self.served())

    def served(self):
        return [path for path, *_ in self.a.target.exports.values()]

    def test_slow_retry_holds_up_no_gate(self):
        """A retry may take long; the watcher continues, with one retry."""
        run = self.a.jobs.run
        self.a.jobs.run = mock.Mock()
        for _ in range(5):
            self.cloud.pass_time(1000)
            self.a.look()
        self.a.jobs.run.assert_called_once()
        self.broken.clear()
        with self.cloud.on(self.a):
            run(*self.a.jobs.run.call_args.args)
        self.assertIdle(self.a)

    def test_database_is_away_after_the_start(self):
        self.broken.clear()
        self.cloud.watch()
        self.cloud.attach(self.volume, self.b)
        self.restart(self.a, reboot=True, settle=False)
        began, on_host = self.cloud.seconds, lookups.on_host

        def away(*args):
            if self.cloud.seconds < began + 100:
                raise OSError('the database')
            return on_host(*args)

        with mock.patch('dmclone_driver.move.lookups.on_host', new=away):
            self.cloud.settle()
            self.cloud.watch(hydrate=False)
        self.assertEqual(1, len(self.a.target.exports))


class HydratingTestCase(RecoveryTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.write(self.path)

    def test_importer_comes_back(self):
        """The clone is usable at once, and hydrates."""
        self.restart(self.b, reboot=True, settle=False)
        handle = self.handle(self.b)
        self.assertEqual(1, handle.clone.bitmap['hydrated'])
        self.assertFalse(handle.suspended)
        clone, = self.b.clones()
        self.assertFalse(self.b.kernel.get(clone).discards)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_importer_comes_back_with_nothing_written(self):
        """The old home is sealed before the gate opens."""
        other = self.a.create()
        path = self.cloud.attach(other, self.b)
        home = self.a.kernel.get('dmclone-' + other.id)
        home.sealed = False
        self.restart(self.b, reboot=True, settle=False)
        self.assertFalse(self.b.kernel.get(self.path + '-gate').suspended)
        self.look_at_order(self.b, self.b.kernel.get(path + '-gate'), home)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.leftovers())

    def see_sealed_at_every_moment(self, node, path):
        seen = set()

        def observe():
            handle = node.kernel.get(path)
            if handle:
                gate = node.kernel.get(path + '-gate')
                seen.add(handle.sealed or handle.read_only or
                         bool(gate and gate.suspended))

        self.cloud.steps.observe = observe
        self.restart(node, reboot=True)
        self.cloud.steps.observe = lambda: None
        self.assertEqual({True}, seen)
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    def test_source_is_sealed_from_its_first_moment(self):
        self.see_sealed_at_every_moment(
            self.a, '/dev/mapper/dmclone-' + self.volume.id)

    def test_source_that_is_a_clone_is_sealed_from_its_first_moment(self):
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.see_sealed_at_every_moment(self.b, self.path)

    def test_source_that_is_a_clone_comes_back(self):
        """Its gate is open, and it stays sealed."""
        other = self.a.create()
        path = self.cloud.attach(other, self.b)
        self.cloud.detach(other, self.b)
        self.cloud.attach(other, self.a)
        names = names_module.parse(path.removeprefix('/dev/mapper/'))[0]
        tags = self.b.lvm.at('/dev/volumes/' + names.volume)['tags']
        # As if it had moved on before its gate was opened for the first time.
        tags.discard(logical_volumes.OPENED_TAG + other.id)
        self.restart(self.b, reboot=True, settle=False)
        self.assertFalse(self.b.kernel.get(path + '-gate').suspended)
        self.assertTrue(self.b.kernel.get(path).sealed)
        self.assertIn(logical_volumes.OPENED_TAG + other.id, tags)
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    def prepare_another(self):
        """Prepare the move of a volume; returns it and its new path."""
        other = self.a.create()
        self.cloud.attach(other, self.a)
        return other, self.cloud.attach(other, self.b)

    def test_switchover_while_the_new_home_starts(self):
        """The rows that the start has read are older than the commit."""
        other, path = self.prepare_another()
        self.restart(self.b, reboot=True, settle=False)
        self.assertIsNone(self.b.kernel.get(path))
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.activate',
                        side_effect=exception.PeerUnreachable(
                            host='b', call='activate', seconds=1)):
            self.cloud.detach(other, self.a)
        self.cloud.settle()
        self.assertEqual('clone', self.b.kernel.get(path).kinds)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.leftovers())

    def test_activation_is_asked_for_again(self):
        """The old home repeats it, since the new home has no devices."""
        other, path = self.prepare_another()
        self.restart(self.b, reboot=True)
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.activate',
                        side_effect=exception.PeerFailed(
                            host='b', reason='no memory')):
            self.cloud.detach(other, self.a)
        self.assertIsNone(self.b.kernel.get(path))
        self.cloud.pass_time(1000)
        self.a.look()
        self.assertEqual('clone', self.b.kernel.get(path).kinds)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.leftovers())
        self.assertEqual({}, self.a.requests.pending)

    def test_importer_comes_back_alone(self):
        """Its start does not wait for the old home."""
        self.b.stop()
        self.a.stop()
        self.cloud.steps.start()
        self.restart(self.b, reboot=True, settle=False)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'ask' in step or 'log in' in step])
        self.assertEqual('clone', self.handle(self.b).kinds)
        self.a.start()
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def test_old_home_comes_back(self):
        """It exports the source again, read-only."""
        self.restart(self.a, reboot=True)
        (path, initiator, auth), = self.a.target.exports.values()
        self.assertEqual(self.b.initiator, initiator)
        self.assertRaises(OSError, self.a.kernel.write,
                          '/dev/mapper/dmclone-' + self.volume.id)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_all_come_back(self):
        self.restart(self.a, self.b, reboot=True)
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def test_importer_comes_back_after_the_source_was_released(self):
        self.a.stop()
        self.b.kernel.hydrate(self.path)
        self.b.look()
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.restart(self.b, reboot=True)
        self.a.start()
        self.cloud.watch(3)
        self.assertIdle(self.b)


class SilentNodeTestCase(RecoveryTestCase):
    """A start calls a node that does not answer only once."""

    def setUp(self):
        super().setUp()
        self.volumes = [self.volume] + [self.a.create() for _ in range(3)]
        self.c = self.cloud.add('node3')
        self.cloud.settle()

    def asked(self, node):
        """Return the calls of a node at its start."""
        node.stop()
        self.cloud.steps.start()
        self.restart(node)
        return len([step for step in self.cloud.steps.log if 'ask' in step])

    def move_all(self):
        for volume in self.volumes:
            self.cloud.attach(volume, self.b)

    def test_new_home_is_silent(self):
        self.move_all()
        self.b.stop()
        self.assertEqual(1, self.asked(self.a))
        self.assertEqual(4, len(self.a.requests.pending))
        self.assertEqual(0, self.asked(self.c))
        self.b.start()
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.leftovers())
        self.assertEqual({}, self.a.requests.pending)

    def test_new_home_is_known_to_be_down(self):
        self.move_all()
        self.b.die()
        self.assertEqual(0, self.asked(self.a))
        self.assertEqual(0, self.asked(self.c))

    def test_old_home_is_silent(self):
        self.move_all()
        self.a.stop()
        for device in self.b.clones():
            self.b.kernel.hydrate(device)
        self.b.look()
        self.assertEqual([State.RELEASED] * 4, self.cloud.states())
        self.assertEqual(1, self.asked(self.b))
        self.assertEqual(4, len(self.b.requests.pending))
        self.assertEqual(0, self.asked(self.c))

    def test_peer_that_has_something_to_delete_is_silent(self):
        for volume in self.volumes:
            self.cloud.attach(volume, self.a)
            self.cloud.attach(volume, self.b)
        self.b.stop()
        for volume in self.volumes:
            self.cloud.detach(volume, self.b)
        self.assertEqual([State.ABORTED] * 4, self.cloud.states())
        self.assertEqual(1, self.asked(self.a))
        self.assertEqual(0, self.asked(self.c))

    def test_request_asks_only_the_peer_that_it_needs(self):
        """It does not wait for another node, which may be dead."""
        self.move_all()
        self.a.stop()
        for device in self.b.clones():
            self.b.kernel.hydrate(device)
        self.b.look()
        for record in self.row().volume_attachment:
            record.destroy()
        self.cloud.steps.start()
        self.cloud.attach(self.volume, self.c)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'ask ' + self.a.host in step])


class PreparedTestCase(RecoveryTestCase):

    def setUp(self):
        super().setUp()
        self.home = self.cloud.attach(self.volume, self.a)
        self.path = self.cloud.attach(self.volume, self.b)
        self.gate = self.path + '-gate'

    def test_service_of_the_peer(self):
        self.b.kernel.write(self.path)
        self.restart(self.b)
        self.assertTrue(self.b.kernel.get(self.gate).suspended)
        self.b.look()
        self.assertEqual(self.b.pool, self.row().host)
        self.assertFalse(self.b.kernel.get(self.gate).suspended)

    def test_peer_reboots(self):
        """The peer has no devices before the switchover."""
        self.restart(self.b, reboot=True)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.cloud.detach(self.volume, self.b)
        self.assertIdle(self.a)

    def test_peer_reboots_and_home_goes(self):
        self.restart(self.b, reboot=True)
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(4)
        self.assertIdle(self.b)

    def test_peer_reboots_with_its_metadata_in_memory(self):
        """It cannot become the home, and the move is aborted."""
        self.b.kernel.reboot()
        self.b.lvm.drop('/dev/volumes/' + Names(
            lookups.prepared_move(self.row())).metadata)
        self.restart(self.b, reboot=True)
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch()
        self.assertIdle(self.a)
        self.assertEqual('available', self.row().status)

    def test_peer_reboots_and_home_dies_after_the_switchover(self):
        """The restarted old home activates the new home."""
        self.restart(self.b, reboot=True)
        with mock.patch('dmclone_driver.node.devices.LocalVolume.seal',
                        side_effect=steps.Killed('seal')):
            self.assertRaises(steps.Killed, self.cloud.detach, self.volume,
                              self.a)
        self.assertEqual([State.SWITCHED], self.cloud.states())
        self.assertIsNone(self.handle(self.b))
        self.cloud.locks.clear()
        self.restart(self.a)
        self.cloud.watch(3)
        self.assertIdle(self.b)
        self.assertIsNotNone(self.handle(self.b))

    def test_service_of_the_home(self):
        """It finds prepared moves, and aborts orphans."""
        self.restart(self.a)
        self.assertEqual([self.volume.id], list(self.a.prepared_moves.known))
        self.cloud.watch()
        self.assertEqual([State.PREPARED], self.cloud.states())
        for record in self.row().volume_attachment:
            record.destroy()
        self.cloud.watch()
        self.assertIdle(self.a)

    def test_home_reboots(self):
        self.restart(self.a, reboot=True)
        self.assertEqual(1, len(self.a.target.exports))
        self.assertTrue(self.a.kernel.write(self.home))
        self.cloud.detach(self.volume, self.b)
        self.assertIdle(self.a)

    def test_peer_aborts_while_the_home_is_off(self):
        """A reboot keeps the target's file, not the device below."""
        self.a.reboot()
        for record in self.row().volume_attachment:
            record.destroy()
        placeholder, = self.cloud.placeholders()
        with self.cloud.on(self.b):
            records.abort(self.context, self.volume.id, placeholder.id)
        self.a.start()
        self.cloud.settle()
        self.cloud.watch(3)
        self.assertIdle(self.a)

    def test_switchover_while_the_peer_was_down(self):
        self.b.stop()
        self.cloud.detach(self.volume, self.a)
        self.assertTrue(self.b.kernel.get(self.gate).suspended)
        self.restart(self.b)
        # The old home is called first to seal; a start does not wait for that.
        self.assertTrue(self.b.kernel.get(self.gate).suspended)
        self.b.look()
        self.assertFalse(self.b.kernel.get(self.gate).suspended)
        self.assertIn(self.path, self.b.kernel.flushed)
        self.cloud.watch(3)
        self.assertIdle(self.b)


# Whether the node's power is cut.
WAYS = (False, True)


@ddt.ddt
class CrashTestCase(RecoveryTestCase):
    """Killed services, and power cuts, at each step."""

    def check(self, act, before, reboot, seen=lambda row: None):
        """Kill at each step; returns {final host: steps}.

        :param seen: called with the row of each volume at the end
        """
        wrong, ends = {}, {}
        for step, volume, _error in self.each_step(act, before, killed=True,
                                                   power=reboot):
            node = self.cloud.nodes[step.partition(':')[0]]
            other = self.b if node is self.a else self.a
            node.reboot() if reboot else node.stop()
            self.cloud.locks.clear()
            self.cloud.pass_time(1000)
            other.look()
            node.start()
            self.cloud.settle()
            # Nova has given up, or the instance was deleted.
            for record in self.cloud.row(volume.id).volume_attachment:
                record.destroy()
            self.cloud.watch(5)
            left = self.cloud.leftovers()
            if left:
                wrong[step] = left
            ends.setdefault(self.cloud.row(volume.id).host, set()).add(step)
            seen(self.cloud.row(volume.id))
        self.assertEqual({}, wrong)
        return ends

    @ddt.data(*WAYS)
    def test_attach(self, reboot):
        ends = self.check(lambda volume: self.cloud.attach(volume, self.b),
                          None, reboot)
        self.assertEqual({self.a.pool, self.b.pool}, set(ends))

    @ddt.data(*WAYS)
    def test_migration_by_the_api(self, reboot):
        def seen(row):
            statuses.add((row.host, row.status, row.migration_status))
            # Cinder deletes no volume that migrates.
            row.update({'status': 'available', 'migration_status': None})
            row.save()
        statuses = set()
        self.check(lambda volume: self.cloud.migrate(volume, self.b, True),
                   None, reboot, seen)
        # No driver's migration survives the end of its process before the
        # driver has recorded it.
        statuses.discard((self.a.pool, 'maintenance', 'migrating'))
        self.assertEqual({(self.a.pool, 'available', 'error'),
                          (self.b.pool, 'available', 'success')}, statuses)

    @ddt.data(*WAYS)
    def test_move_by_the_command(self, reboot):
        """No volume keeps the status of a migration that has ended."""
        def move(volume):
            with self.cloud.on(self.b):
                rpcapi.PeerClient().move(self.context, self.a.host, volume.id,
                                         self.b.name)

        statuses = set()
        self.check(move, None, reboot, lambda row: statuses.add(
            (row.host, row.status, row.migration_status)))
        self.assertEqual({(self.a.pool, 'available', None),
                          (self.a.pool, 'available', 'error'),
                          (self.b.pool, 'available', 'success')}, statuses)

    def test_start_of_a_new_home(self):
        """A device without a table does not count as a complete volume."""
        def before(volume):
            self.b.kernel.write(self.cloud.attach(volume, self.b))
            self.b.reboot()

        seen = []
        for step, volume, _error in self.each_step(
                lambda volume: self.b.start(), before, killed=True):
            seen.append(step)
            self.b.stop()
            self.cloud.locks.clear()
            self.b.start()
            clone = self.b.kernel.get(
                Names(self.cloud.row(volume.id).name_id).path()).clone
            self.assertIsNotNone(clone, step)
            self.assertEqual(1, clone.bitmap['hydrated'], step)
            self.cloud.settle()
            self.cloud.watch(3)
            self.assertEqual([], self.cloud.leftovers(), step)
        self.assertTrue(any('table of' in step for step in seen))

    def migrate(self, volume):
        self.cloud.attach(volume, self.a)
        self.cloud.attach(volume, self.b)

    @ddt.data(*WAYS)
    def test_end_of_a_migration(self, reboot):
        ends = self.check(lambda volume: self.cloud.detach(volume, self.a),
                          self.migrate, reboot)
        # The first steps check whether the volume is in use there.
        self.assertEqual([], [
            step for step in ends.pop(self.a.pool)
            if step != 'node1: lock' and not base.READS.search(step)])
        self.assertEqual({self.b.pool}, set(ends))

    @ddt.data(*WAYS)
    def test_end_of_a_failed_migration(self, reboot):
        ends = self.check(lambda volume: self.cloud.detach(volume, self.b),
                          self.migrate, reboot)
        self.assertEqual({self.a.pool}, set(ends))

    @ddt.data(*WAYS)
    def test_guest_writes_first(self, reboot):
        def act(volume):
            clone, = self.b.clones()
            self.b.kernel.write(clone)
            self.b.look()

        self.check(act, self.migrate, reboot)

    @ddt.data(*WAYS)
    def test_completion(self, reboot):
        def before(volume):
            self.b.kernel.hydrate(self.cloud.attach(volume, self.b))

        def act(volume):
            self.b.look()
            self.cloud.settle()

        ends = self.check(act, before, reboot)
        self.assertEqual({self.b.pool}, set(ends))
