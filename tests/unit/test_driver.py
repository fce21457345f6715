# SPDX-License-Identifier: Apache-2.0
"""The driver's methods that Cinder calls, and their results."""

import contextlib
from unittest import mock

from cinder import exception as cinder_exception
from cinder.tests.unit import utils
from cinder import utils as cinder_utils
import ddt
from oslo_concurrency import processutils
from oslo_config import cfg

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import storage


class DriverTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.names = Names(self.volume.id)
        self.here = contextlib.ExitStack()
        self.addCleanup(self.here.close)
        self.on(self.a)

    def on(self, node):
        """Use the driver of a node from now on."""
        self.here.close()
        self.here.enter_context(self.cloud.on(node))
        self.driver = node.driver
        self.connections = node.parts.connections

    def handle(self, node=None):
        return (node or self.a).kernel.get(
            Names(self.row().name_id).path())

    def snapshot(self):
        return self.snapshot_row()

    def override(self, option, value):
        cfg.CONF.set_override(option, value, group=cloud.BACKEND)
        self.addCleanup(cfg.CONF.clear_override, option,
                        group=cloud.BACKEND)


class StartTestCase(DriverTestCase):

    def test_answers_peers_only_after_recovery(self):
        answered = []
        self.patch('dmclone_driver.move.recovery.Recovery.run',
                   side_effect=lambda context: answered.append(
                       self.a.server is not None))
        self.a.stop()
        self.a.start()
        self.assertEqual([False], answered)
        self.assertIsNotNone(self.a.server)

    def test_limit_of_sessions_is_as_configured(self):
        self.assertEqual(-1, self.a.backend.initiator.timeout)
        self.override('dmclone_source_timeout', 30)
        self.a.stop()
        self.a.start()
        self.assertEqual(30, self.a.backend.initiator.timeout)

    def test_tried_again_after_a_failure(self):
        self.a.stop()
        self.a.kernel.targets.discard('clone')
        modprobe = self.patch('dmclone_driver.privsep.command.modprobe',
                              side_effect=OSError('no such module'))
        self.assertRaises(exception.BadConfiguration, self.a.start)
        self.assertIsNone(self.a.server)
        modprobe.side_effect = None
        self.a.driver.check_for_setup_error()
        server = self.a.server
        self.a.driver.check_for_setup_error()
        self.assertIs(server, self.a.server)

    def test_suspended_handle_is_resumed_first(self):
        """It is resumed also if the start fails."""
        device = self.a.kernel.get('dmclone-' + self.volume.id)
        for what in ('move.lookups.on_host', 'checks.start.check_kernel',
                     'checks.start.check_options'):
            device.suspended = True
            self.a.stop()
            with mock.patch('dmclone_driver.' + what, side_effect=OSError):
                self.assertRaises(OSError, self.a.start)
            self.assertFalse(device.suspended, what)

    def test_no_such_group(self):
        self.a.stop()
        del self.a.lvm.groups['volumes']
        error = self.assertRaises(exception.BadConfiguration, self.a.start)
        self.assertIn('volume_group = volumes in section [dmclone]',
                      error.msg)

    def test_stats(self):
        stats = self.driver.get_volume_stats(refresh=True)
        self.assertEqual(('local', False), (stats['storage_protocol'],
                                            stats['shared_targets']))
        pool, = stats['pools']
        self.assertEqual(cloud.BACKEND, pool['pool_name'])
        for feature in ('multiattach', 'online_extend_support',
                        'thin_provisioning_support'):
            self.assertIs(False, pool[feature], feature)
        self.assertEqual(99, pool['free_capacity_gb'])
        self.assertIs(False, pool['dmclone_remote_attach'])
        self.assertIs(False, pool['dmclone_remote_attach_without_room'])
        self.assertEqual(('lvm', True), (pool['dmclone_metadata_backend'],
                                         pool['dmclone_metadata_persistent']))
        # What others save of LIO, they save at any time.
        with mock.patch.object(self.a.target, 'forget_saved') as forget:
            self.driver.get_volume_stats(refresh=True)
            forget.assert_called_once_with()
        # In Cinder's migration a peer must not count as the same host.
        self.on(self.b)
        other = self.b.driver.get_volume_stats(refresh=True)['pools'][0]
        self.assertNotEqual(pool['location_info'], other['location_info'])


@ddt.ddt
class VolumesTestCase(DriverTestCase):

    def test_create(self):
        self.assertEqual('linear', self.handle().kinds)
        self.assertEqual(storage.GIB, self.handle().size)

    def test_local_path(self):
        """It is the handle: the logical volume has another page cache."""
        self.assertEqual(self.names.path(),
                         self.driver.local_path(self.row()))
        self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        self.assertEqual(Names(self.row().name_id).path(),
                         self.driver.local_path(self.row()))

    def test_local_path_of_a_snapshot(self):
        path = self.driver.local_path(self.snapshot())
        self.assertIn('snapshot', path)
        self.assertIn('volumes', path)

    def test_delete(self):
        for _ in range(2):
            self.driver.delete_volume(self.row())
            self.assertEqual([], self.a.lvm.names())
            self.assertEqual({}, self.a.kernel.of_volumes())

    def test_delete_clears_through_the_handle(self):
        self.override('volume_clear', 'zero')
        self.driver.delete_volume(self.row())
        half = storage.GIB // 2
        self.assertEqual([(self.names.path(), 0, half),
                          (self.names.path(), half, storage.GIB)],
                         self.a.kernel.zeroed)

    def test_delete_in_use(self):
        self.handle().opened = 1
        self.assertRaises(cinder_exception.VolumeIsBusy,
                          self.driver.delete_volume, self.row())

    def test_delete_with_snapshots(self):
        self.driver.create_snapshot(self.snapshot())
        self.assertRaises(cinder_exception.VolumeIsBusy,
                          self.driver.delete_volume, self.row())
        self.assertEqual('linear', self.handle().kinds)

    def test_delete_a_prepared_one(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.driver.delete_volume(self.row())
        for node in (self.a, self.b):
            self.assertEqual([], node.lvm.names())
            self.assertEqual({}, node.kernel.of_volumes())
        self.assertEqual([], self.cloud.states())

    def test_delete_one_that_has_just_moved(self):
        """The old home refuses: the new home needs the source."""
        self.cloud.attach(self.volume, self.b)
        self.assertRaises(cinder_exception.VolumeIsBusy,
                          self.driver.delete_volume, self.row())
        self.assertEqual('clone', self.handle(self.b).kinds)
        self.assertIn('volume-' + self.volume.id, self.a.lvm.names())

    def test_delete_a_prepared_one_that_was_written(self):
        self.cloud.attach(self.volume, self.a)
        self.b.kernel.write(self.cloud.attach(self.volume, self.b))
        self.assertRaises(cinder_exception.VolumeIsBusy,
                          self.driver.delete_volume, self.row())
        self.assertEqual('clone', self.handle(self.b).kinds)

    def test_delete_while_it_hydrates(self):
        self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        self.driver.delete_volume(self.row())
        self.cloud.settle()
        for node in (self.a, self.b):
            self.assertEqual([], node.lvm.names())
            self.assertEqual({}, node.kernel.of_volumes())

    def test_extend(self):
        self.driver.extend_volume(self.row(), 3)
        self.assertEqual(3 * storage.GIB, self.handle().size)
        self.assertFalse(self.handle().suspended)

    def test_extend_with_snapshots(self):
        """The handle is closed, since LVM deactivates the volume."""
        self.driver.create_snapshot(self.snapshot())
        self.driver.extend_volume(self.row(), 3)
        self.assertEqual(3 * storage.GIB, self.handle().size)

    def test_extend_while_it_hydrates(self):
        path = self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        handle = self.b.kernel.get(path)
        for size in 2, 3:
            self.driver.extend_volume(self.row(), size)
            self.assertEqual(size * storage.GIB, handle.size)
            self.assertIsNotNone(handle.clone)
        self.b.stop()
        self.b.kernel.reboot()
        self.b.start()
        handle = self.b.kernel.get(path)
        self.assertEqual(3 * storage.GIB, handle.size)
        self.assertIsNotNone(handle.clone)
        self.cloud.watch(4)
        self.assertEqual('linear', handle.kinds)
        self.assertEqual(3 * storage.GIB, handle.size)
        self.assertEqual([], self.cloud.leftovers())

    def test_extend_while_a_request_waits(self):
        """The instance's other requests are not held up."""
        path = self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        handle = self.b.kernel.get(path)
        source = self.b.kernel.get(path + '-source')
        source.suspended = True
        self.b.kernel.write(path)
        error = self.assertRaises(exception.RequestsWait,
                                  self.driver.extend_volume, self.row(), 2)
        self.assertIn(self.volume.id, error.msg)
        self.assertFalse(handle.suspended)
        # Nothing is changed: a reboot would show what LVM has.
        lv = self.b.backend.logical_volume(Names(self.row().name_id))
        self.assertEqual((storage.GIB, storage.GIB), (handle.size, lv.size))
        source.suspended = False
        self.driver.extend_volume(self.row(), 2)
        self.assertEqual(2 * storage.GIB, handle.size)

    def test_extend_without_its_devices(self):
        """As after a start at which a clone could not be built."""
        path = self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        self.b.stop()
        self.b.kernel.reboot()
        with mock.patch('dmclone_driver.node.devices.LocalVolume.build_clone',
                        side_effect=processutils.ProcessExecutionError):
            self.b.start()
            error = self.assertRaises(exception.HandleMissing,
                                      self.driver.extend_volume, self.row(), 2)
        self.assertIn(self.volume.id, error.msg)
        lv = self.b.backend.logical_volume(Names(self.row().name_id))
        self.assertEqual((storage.GIB, None), (
            lv.size, self.b.kernel.devices.get(path.rpartition('/')[2])))
        self.cloud.pass_time(300)
        self.cloud.watch(1)
        self.assertIsNotNone(self.b.kernel.get(path).clone)

    def test_move_on_after_an_extension_while_it_hydrates(self):
        self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        self.driver.extend_volume(self.row(), 2)
        self.cloud.detach(self.volume, self.b)
        path = self.cloud.attach(self.volume, self.a)
        self.assertEqual(2 * storage.GIB, self.a.kernel.get(path).size)
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    @ddt.data(False, True)
    def test_extend_after_a_crash(self, with_snapshot):
        """It succeeds: LVM refuses a size that the volume already has."""
        self.driver.vg.extend_volume(self.volume.name, '3g')
        if with_snapshot:
            self.driver.create_snapshot(self.snapshot())
        self.driver.extend_volume(self.row(), 3)
        self.assertEqual(3 * storage.GIB, self.handle().size)

    @ddt.data(False, True)
    def test_extend_without_room(self, with_snapshot):
        if with_snapshot:
            self.driver.create_snapshot(self.snapshot())
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  self.driver.extend_volume, self.row(), 9999)
        self.assertIn('Insufficient', error.stderr)
        self.assertEqual(storage.GIB, self.handle().size)

    def test_snapshot_flushes_what_was_cached(self):
        flushed = []
        self.cloud.steps.observe = lambda: flushed.append(
            (len(self.a.kernel.flushed), len(self.a.lvm.names())))
        self.driver.create_snapshot(self.snapshot())
        # Between the lock and its release.
        self.assertEqual([(0, 1), (1, 1), (1, 2)],
                         sorted(set(flushed)))

    def test_new_volumes_have_no_export_of_another(self):
        """The row or its update clears the export that Cinder has copied."""
        self.patch('cinder.volume.volume_utils.copy_volume')
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        for create in (
                self.driver.create_volume,
                lambda volume: self.driver.create_volume_from_snapshot(
                    volume, snapshot),
                lambda volume: self.driver.create_cloned_volume(
                    volume, self.row())):
            copied = {'provider_location': 'there', 'provider_auth': 'CHAP',
                      'replication_driver_data': 'its move'}
            volume = utils.create_volume(
                self.context, host=self.a.pool,
                volume_type_id=self.vt['id'], **copied)
            update, row = create(volume), self.cloud.row(volume.id)
            self.assertEqual(dict.fromkeys(copied), {
                field: update.pop(field, row[field]) for field in copied})
            self.assertEqual({'provider_id': self.a.pool}, update)
            # Cinder changes the returned update.
            update['status'] = 'downloading'

    def test_revert(self):
        self.addOnException(lambda info: self.cloud.dead_locks.clear())
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        self.driver.revert_to_snapshot(self.context, self.row(), snapshot)
        self.assertEqual('linear', self.handle().kinds)
        self.assertEqual(2, len(self.a.lvm.names()))

    def test_revert_that_fails(self):
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        self.patch('tests.unit.fakes.storage.Group.revert',
                   side_effect=OSError('busy'))
        self.assertRaises(OSError, self.driver.revert_to_snapshot,
                          self.context, self.row(), snapshot)
        self.assertEqual('linear', self.handle().kinds)
        self.assertEqual(set(), self.a.lvm.volumes[
            '/dev/volumes/' + self.volume.name]['tags'])

    def test_revert_that_fails_after_the_merge(self):
        """The snapshot that LVM has removed is taken again."""
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        self.patch('tests.unit.fakes.storage.Group.deactivate_lv',
                   side_effect=OSError('busy'))
        self.assertRaises(OSError, self.driver.revert_to_snapshot,
                          self.context, self.row(), snapshot)
        self.assertEqual(2, len(self.a.lvm.names()))
        self.assertEqual('linear', self.handle().kinds)

    def test_revert_whose_end_fails(self):
        """A job takes the snapshot again, and only then adds the handle."""
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        with mock.patch.object(logical_volumes, 'take_snapshot',
                               side_effect=OSError('no space')):
            self.assertRaises(OSError, self.driver.revert_to_snapshot,
                              self.context, self.row(), snapshot)
            self.assertEqual({}, self.a.kernel.of_volumes())
        self.cloud.watch()
        self.assertEqual(2, len(self.a.lvm.names()))
        self.assertEqual('linear', self.handle().kinds)
        self.assertEqual(set(), self.a.lvm.volumes[
            '/dev/volumes/' + self.volume.name]['tags'])

    def test_manage_and_unmanage(self):
        self.driver.unmanage(self.row())
        self.assertEqual({}, self.a.kernel.of_volumes())
        self.assertEqual([self.volume.name], self.a.lvm.names())
        other = utils.create_volume(
            self.context, host=self.a.pool, volume_type_id=self.vt['id'])
        self.patch('cinder.volume.volume_utils.check_already_managed_volume',
                   return_value=False)
        self.driver.manage_existing(other,
                                    {'source-name': self.volume.name})
        self.assertEqual([Names(other.id).of('handle')],
                         list(self.a.kernel.of_volumes()))

    def manageable(self):
        """Return (name, reason) of each logical volume in the list."""
        return {
            entry['reference']['source-name']: entry['reason_not_safe']
            for entry in self.driver.get_manageable_volumes(
                self.cloud.rows(), None, 100, 0, ['size'], ['asc'])}

    @ddt.data('get_manageable_volumes', 'get_manageable_snapshots')
    def test_deletion_while_the_list_is_read(self, name):
        """Cinder's LVM driver asks for one that is gone by then."""
        gone = processutils.ProcessExecutionError('not found', exit_code=5)
        listing = self.patch('cinder.volume.drivers.lvm.LVMVolumeDriver.' +
                             name, side_effect=[gone, gone, []])
        arguments = [], None, 10, 0, ['size'], ['asc']
        self.assertEqual([], getattr(self.driver, name)(*arguments))
        listing.side_effect = gone
        self.assertRaises(processutils.ProcessExecutionError,
                          getattr(self.driver, name), *arguments)

    def test_logical_volumes_of_a_move_are_not_managed(self):
        """Neither data nor metadata, even while no device has it open."""
        self.cloud.attach(self.volume, self.b)
        mine = Names(self.row().name_id)
        self.on(self.b)
        self.b.lvm.add('volumes', 'foreign', 1 << 30)
        for _times in range(2):
            listed = self.manageable()
            self.assertIsNone(listed.pop('foreign'))
            self.assertEqual({mine.volume, mine.metadata}, set(listed))
            self.assertTrue(all(listed.values()), listed)
            for name in listed:
                error = self.assertRaises(
                    cinder_exception.ManageExistingInvalidReference,
                    self.driver.manage_existing, self.volume,
                    {'source-name': name})
                self.assertIn('dmclone-reconcile says for what', error.msg)
            self.b.kernel.devices.clear()

    def test_size_of_a_snapshot(self):
        """It is that of the content, not of what LVM has saved."""
        snapshot = self.snapshot()
        self.driver.create_snapshot(snapshot)
        name = '_' + snapshot.name
        self.driver.vg.get_volume = lambda name: {'name': name,
                                                  'size': '1.01'}
        self.driver.vg.lv_get_origin = lambda name: ''
        reference = {'source-name': name}
        self.assertEqual((1, 1), (
            self.driver.manage_existing_snapshot_get_size(
                snapshot, reference),
            self.driver.get_manageable_snapshots(
                [], None, 10, 0, ['size'], ['asc'])[0]['size']))

    def test_migration_of_volumes_that_have_moved(self):
        """Neither a prepared move's export nor the old id is left."""
        new = self.b.create(migration_status='target:' + self.volume.id)
        self.cloud.attach(new, self.a)
        self.cloud.attachment(new, self.a)
        self.cloud.attach(new, self.b)
        new = self.cloud.row(new.id)
        self.assertIsNotNone(new.provider_location)
        update = self.driver.update_migrated_volume(
            self.context, self.row(), new, 'available')
        self.assertEqual({'_name_id': new.name_id, 'provider_location': None},
                         update)
        with self.cloud.on(self.a):
            lv = self.a.backend.logical_volume(Names(new.name_id))
        self.assertEqual(self.volume.id,
                         lv.tagged(logical_volumes.OPENED_TAG))
        self.assertEqual(
            {(State.SWITCHED, self.volume.id), (State.ABORTED, new.id)},
            {(each.state, each.volume_id) for each in map(
                placeholders.Placeholder, self.cloud.placeholders())})

    def test_migration_keeps_the_logical_volumes_name(self):
        other = self.a.create()
        self.assertEqual({'_name_id': other.id, 'provider_location': None},
                         self.driver.update_migrated_volume(
                             self.context, self.row(), other, 'available'))
        self.assertEqual((False, None), self.driver.migrate_volume(
            self.context, self.row(), {'host': 'a@lvm#a'}))


@ddt.ddt
class WhileMovingTestCase(DriverTestCase):

    ACTIONS = {
        'extend': lambda self: self.driver.extend_volume(self.row(), 2),
        'revert': lambda self: self.driver.revert_to_snapshot(
            self.context, self.row(), self.snapshot()),
        'unmanage': lambda self: self.driver.unmanage(self.row()),
        'migrate': lambda self: self.driver.migrate_volume(
            self.context, self.row(), {'host': 'a@lvm#a'}),
    }

    def assertRefused(self, action):
        before = [(node.lvm.names(), list(node.kernel.devices))
                  for node in (self.a, self.b)]
        error = self.assertRaises(exception.NotWhileMoving,
                                  self.ACTIONS[action], self)
        for part in (action, self.volume.id, 'from node1 to node2'):
            self.assertIn(part, error.msg)
        self.assertEqual(before, [(node.lvm.names(),
                                   list(node.kernel.devices))
                                  for node in (self.a, self.b)])

    @ddt.data(*ACTIONS)
    def test_prepared(self, action):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.assertRefused(action)

    @ddt.data(*sorted(set(ACTIONS) - {'extend', 'migrate', 'revert'}))
    def test_hydrating(self, action):
        self.cloud.attach(self.volume, self.b)
        self.on(self.b)
        self.assertRefused(action)

    def test_copies_while_it_hydrates(self):
        """Cinder copies it to another backend, or an image to it."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.on(self.b)
        self.assertEqual((False, None), self.ACTIONS['migrate'](self))
        copy = self.patch('cinder.volume.drivers.lvm.LVMVolumeDriver.'
                          'copy_image_to_volume')
        self.driver.copy_image_to_volume(self.context, self.row(), None, 'x')
        copy.assert_called_once()

    def test_images_while_it_is_prepared(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        error = self.assertRaises(
            exception.NotWhileMoving, self.driver.copy_image_to_volume,
            self.context, self.row(), None, 'x')
        self.assertIn("Can't copy an image to", error.msg)

    def test_placeholder_is_not_given_to_another_project(self):
        """A transfer of the placeholder is refused, of the volume allowed."""
        self.cloud.attach(self.volume, self.b)
        placeholder = lookups.get(self.context, self.row().name_id)
        error = self.assertRaises(
            exception.IsPlaceholder, self.driver.accept_transfer,
            self.context, placeholder, 'user', 'project')
        self.assertIn(self.volume.id, error.msg)
        self.driver.accept_transfer(self.context, self.row(), 'user',
                                    'project')

    def test_stale_row(self):
        """It is refused if the volume has moved since the request."""
        stale = self.row()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        error = self.assertRaises(exception.NotHere,
                                  self.driver.extend_volume, stale, 2)
        self.assertIn("Can't extend", error.msg)
        self.assertIn(self.b.pool, error.msg)
        self.assertEqual([], self.a.lvm.names())


@ddt.ddt
class ConnectionTestCase(DriverTestCase):

    def connect(self, **connector):
        return self.driver.initialize_connection(
            self.row(), dict(self.b.connector, **connector))

    @ddt.data('host', 'initiator')
    def test_connector_that_says_too_little(self, key):
        connector = dict(self.b.connector)
        self.assertTrue(self.driver.validate_connector(connector))
        connector[key] = None
        self.assertRaises(cinder_exception.InvalidConnectorException,
                          self.driver.validate_connector, connector)

    def test_at_home(self):
        self.cloud.attachment(self.volume, self.a, connected=False)
        data = self.driver.initialize_connection(self.row(),
                                                 self.a.connector)
        self.assertEqual('local', data['driver_volume_type'])
        self.assertEqual(self.names.path(), data['data']['device_path'])

    def test_without_handle(self):
        """It is refused if the device does not exist."""
        LocalVolume(self.names).remove(HANDLE)
        for _users in (0, 1):
            error = self.assertRaises(
                exception.HandleMissing, self.driver.initialize_connection,
                self.row(), self.a.connector)
            self.assertIn(self.names.path(), error.msg)
            self.cloud.attachment(self.volume, self.a, connected=False)
        self.assertEqual(2, len(self.cloud.messages()))

    def test_no_peer(self):
        """The user gets a message, and nothing is changed."""
        error = self.assertRaises(
            exception.NoPeer, self.cloud.attach, self.volume, self.b,
            host='laptop', ip='198.51.100.1')
        for part in ('laptop', '198.51.100.1', 'no such service'):
            self.assertIn(part, error.msg)
        message, = self.cloud.messages()
        self.assertEqual(self.volume.id, message['resource_uuid'])
        self.assertIdle(self.a)

    @ddt.data(('luks', True), ('luks2', False), ('plain', False),
              (None, False))
    @ddt.unpack
    def test_encryption(self, provider, allowed):
        """Others are refused: they would replace the handle by a link."""
        row = self.row()
        row.encryption_key_id = self.volume.id
        row.save()
        self.patch('cinder.volume.volume_types.get_volume_type_encryption',
                   return_value=provider and {'provider': provider})
        if allowed:
            self.cloud.attach(self.volume, self.b)
            return
        error = self.assertRaises(exception.EncryptionRefused,
                                  self.cloud.attach, self.volume, self.b)
        self.assertIn(str(provider), error.msg)
        self.assertEqual(1, len(self.cloud.messages()))

    def test_failed_move_is_told_to_the_user(self):
        self.b.stop()
        self.assertRaises(exception.MoveRefused, self.cloud.attach,
                          self.volume, self.b)
        message, = self.cloud.messages()
        self.assertEqual(self.volume.project_id, message['project_id'])

    def test_has_just_moved(self):
        stale = self.row()
        self.cloud.attach(self.volume, self.b)
        error = self.assertRaises(
            exception.NotHere, self.driver.initialize_connection,
            stale, self.a.connector)
        self.assertIn('it has just moved to ' + self.b.pool, error.msg)

    def test_internal_at_home(self):
        """An internal attach does not move the volume."""
        data = self.driver.initialize_connection(self.row(),
                                                 self.a.connector)
        self.assertEqual(self.names.path(), data['data']['device_path'])
        self.assertIdle(self.a)

    def test_internal_from_elsewhere(self):
        self.connections._target_driver = Remote()
        data = self.connect()
        self.assertEqual('iscsi', data['driver_volume_type'])
        self.assertEqual(self.names.path(),
                         self.connections._target_driver.path)
        self.assertEqual(Remote.location(self.volume),
                         self.row().provider_location)
        self.assertEqual(self.a.pool, self.row().host)
        # The end of the access.
        self.driver.remove_export(self.context, self.row())
        self.assertIsNone(self.connections._target_driver.path)
        self.assertIdle(self.a)

    def test_internal_with_the_location_of_another(self):
        """The volume is exported anew: its row has another's location."""
        self.connections._target_driver = Remote()
        other = self.a.create()
        row = self.row()
        row.provider_location = Remote.location(other)
        row.provider_auth = 'CHAP user secret'
        row.save()
        self.connect()
        self.assertEqual(self.names.path(),
                         self.connections._target_driver.path)
        self.assertEqual(Remote.location(self.volume),
                         self.row().provider_location)

    def test_attachment_goes_while_its_request_waits(self):
        """It is refused, and does not count as an internal attach."""
        self.connections._target_driver = Remote()
        record = self.cloud.attachment(self.volume, self.b, connected=False)
        row = self.row()
        self.assertEqual(1, len(row.volume_attachment))
        record.destroy()
        error = self.assertRaises(
            exception.MoveRefused, self.driver.initialize_connection,
            row, self.b.connector)
        self.assertIn('deleted meanwhile', error.msg)
        self.assertIsNone(self.row().provider_location)

    def test_deletion_has_begun(self):
        with mock.patch.object(self.a.teardown, 'delete_data',
                               side_effect=KeyError):
            self.assertRaises(KeyError, self.driver.delete_volume, self.row())
        self.assertEqual(1, len(self.cloud.messages()))
        self.assertRaises(exception.PartlyDeleted,
                          self.driver.initialize_connection, self.row(),
                          self.a.connector)
        self.assertEqual(2, len(self.cloud.messages()))

    def test_internal_while_it_hydrates(self):
        """What reads it for Cinder reads through its handle."""
        self.cloud.attach(self.volume, self.b)
        for record in self.row().volume_attachment:
            record.destroy()
        self.on(self.b)
        self.connections._target_driver = Remote()
        data = self.driver.initialize_connection(self.row(),
                                                 self.a.connector)
        self.assertEqual('iscsi', data['driver_volume_type'])
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_remote_attachment_where_it_is_allowed(self):
        self.override('dmclone_remote_attach', True)
        self.connections._target_driver = Remote()
        self.cloud.attachment(self.volume, self.b, connected=False)
        data = self.connect(host='laptop', ip='198.51.100.1')
        self.assertEqual('iscsi', data['driver_volume_type'])
        self.assertEqual(1, len(self.cloud.rows()))

    def prepare_move(self, status):
        """Prepare a move to B, as a live migration does."""
        self.override('dmclone_remote_attach', True)
        self.connections._target_driver = Remote()
        self.cloud.attachment(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.cloud.set_attach_status(self.volume, self.b, status)
        self.cloud.attachment(self.volume, self.a, host='laptop')

    def test_remote_attachment_during_a_migration(self):
        """The move's export is not replaced by another."""
        self.prepare_move('attached')
        location = self.row().provider_location
        error = self.assertRaises(
            exception.MoveRefused, self.connect, host='laptop',
            ip='198.51.100.1')
        self.assertIn('migration', error.msg)
        self.assertEqual(location, self.row().provider_location)

    def test_remote_attachment_after_a_failed_attempt(self):
        """Its prepared move is aborted first; nothing of it is left."""
        self.prepare_move('attaching')
        data = self.connect(host='laptop', ip='198.51.100.1')
        self.assertEqual('iscsi', data['driver_volume_type'])
        self.assertEqual(Remote.location(self.volume),
                         self.row().provider_location)
        self.cloud.settle()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({}, self.b.kernel.disks)
        self.assertEqual({}, self.a.target.exports)

    def test_remote_attachment_and_one_that_fails(self):
        """The export is kept for the first one when the other one fails."""
        self.override('dmclone_remote_attach', True)
        self.connections._target_driver = Remote()
        self.connect(host='laptop', ip='198.51.100.1')
        self.cloud.attachment(self.volume, self.b, host='laptop')
        self.assertRaises(exception.MoveRefused,
                          self.driver.initialize_connection, self.row(),
                          self.b.connector)
        self.driver.remove_export(self.context, self.row())
        self.assertIsNotNone(self.connections._target_driver.path)
        self.assertEqual(Remote.location(self.volume),
                         self.row().provider_location)

    def test_last_remote_attachment_goes(self):
        """The export ends, although the volume is attached at home."""
        self.override('dmclone_remote_attach', True)
        self.connections._target_driver = Remote()
        self.connect(host='laptop', ip='198.51.100.1')
        laptop = self.cloud.attachment(self.volume, self.b, host='laptop')
        self.cloud.attachment(self.volume, self.a)
        self.assertTrue(self.driver.terminate_connection(
            self.row(), self.a.connector))
        self.assertIsNotNone(self.connections._target_driver.path)
        self.assertTrue(self.driver.terminate_connection(
            self.row(), laptop.connector))
        self.assertIsNone(self.connections._target_driver.path)
        self.assertIsNone(self.row().provider_location)

    def test_remove_export_leaves_a_move_alone(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.connections._target_driver = None
        self.driver.remove_export(self.context, self.row())
        self.assertEqual(1, len(self.a.target.exports))
        self.assertIsNotNone(self.row().provider_location)

    def test_ensure_export_asks_for_nothing(self):
        self.cloud.steps.start()
        self.driver.ensure_export(self.context, self.row())
        self.assertEqual([], self.cloud.steps.log)

    def test_ensure_export_waits_for_no_move(self):
        """Who holds the volume's lock may be asking a peer that is silent."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.assertIsNotNone(self.row().provider_location)
        with self.a.backend.lock(self.volume.id):
            self.driver.ensure_export(self.context, self.row())
        self.assertEqual(1, len(self.a.target.exports))


class TerminateTestCase(DriverTestCase):

    def test_at_home(self):
        self.cloud.attach(self.volume, self.a)
        self.assertFalse(self.cloud.detach(self.volume, self.a))
        self.assertIdle(self.a)

    def test_after_the_move(self):
        """A call of the old home with an old row changes nothing."""
        stale = self.row()
        self.cloud.attach(self.volume, self.b)
        self.assertTrue(self.driver.terminate_connection(
            stale, self.a.connector))
        self.assertEqual(1, len(self.a.target.exports))
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_remote(self):
        self.connections._target_driver = Remote()
        records.set_export(self.context, self.row(), 'where', 'x')
        self.cloud.attachment(self.volume, self.b)
        self.assertFalse(self.driver.terminate_connection(
            self.row(), self.b.connector))
        self.assertEqual([self.b.connector],
                         self.connections._target_driver.ended)

    def test_two_attachments(self):
        for _ in range(2):
            self.cloud.attachment(self.volume, self.a)
        self.assertTrue(self.driver.terminate_connection(
            self.row(), self.a.connector))


class LockTestCase(DriverTestCase):

    def test_files_of_a_deleted_volume(self):
        remove = self.patch('cinder.coordination.COORDINATOR.remove_lock')
        cinder_utils.clean_volume_file_locks(self.volume.id, self.driver)
        self.assertIn('dmclone-*-' + self.volume.id,
                      [call.args[0] for call in remove.call_args_list])

    def test_holds(self):
        self.assertTrue(self.a.backend.holds(self.row()))
        self.assertFalse(self.b.backend.holds(self.row()))
        row = self.row()
        row.host = None
        self.assertFalse(self.a.backend.holds(row))

    def test_warm_up_that_fails(self):
        self.cloud.steps.start(0)
        self.a.backend.warm_up()
        self.assertEqual(1, len(self.cloud.steps.log))


class Remote:
    """Replaces a target of Cinder."""

    def __init__(self):
        self.path = None
        self.ended = []

    @staticmethod
    def location(volume):
        return 'where iqn.2010-10.org.openstack:' + volume.name

    def create_export(self, context, volume, path):
        self.path = path
        return {'location': self.location(volume),
                'auth': 'CHAP user secret'}

    def initialize_connection(self, volume, connector):
        if not volume.provider_location:
            raise AssertionError('not exported')
        return {'driver_volume_type': 'iscsi', 'data': {}}

    def terminate_connection(self, volume, connector):
        self.ended.append(connector)

    def remove_export(self, context, volume):
        self.path = None
