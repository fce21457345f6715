# SPDX-License-Identifier: Apache-2.0
"""An administrator's commands on a volume that is moving.

Each operation is tested on the user's volume and on its placeholder, in each
state of a move, with unchanged rows and with rows that were reset. It is
refused or done, and no data is lost.
"""

import contextlib
import itertools
from unittest import mock

from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import manager
import ddt

from dmclone_driver import exception
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base

STATES = ('prepared', 'gate closed', 'hydrating', 'not released')
#: The values that os-reset_status can set.
RESETS = ({}, {'status': 'available'}, {'status': 'error'},
          {'status': 'in-use'}, {'status': 'maintenance'},
          {'migration_status': None},
          {'status': 'available', 'migration_status': None})
# A cloned volume is created from a snapshot, see test_driver.
OPERATIONS = ('extend', 'snapshot', 'attach', 'attach_at_home', 'copy',
              'upload', 'unmanage', 'migrate', 'retype', 'image', 'revert',
              'detach', 'force_detach')


class HandsTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.attachment(self.volume, self.a)
        self.path = self.cloud.attach(self.volume, self.b)
        self.placeholder, = self.cloud.placeholders()
        self.source = Names(self.volume.id)
        self.clone = Names(self.placeholder.id)

    def bring_to(self, state):
        """Bring the volume to a state, with a write of its guest."""
        if state == 'prepared':
            return
        if state == 'gate closed':
            with mock.patch('dmclone_driver.move.rpcapi.PeerClient.activate'):
                self.cloud.detach(self.volume, self.a)
            return
        self.cloud.detach(self.volume, self.a)
        self.assertTrue(self.b.kernel.write(self.path))
        if state == 'not released':
            self.a.stop()
            self.cloud.watch(2)
            self.a.down = False
            self.assertEqual([State.RELEASED], self.cloud.states())

    def change(self, row_id, columns):
        if columns:
            db_api.volume_update(self.context, row_id, columns)

    def node_of(self, row):
        return self.cloud.by_host[row.host.partition('#')[0]]

    def facts(self):
        """Return the state of each node that must not change."""
        found = []
        for node in (self.a, self.b):
            for path, volume in node.lvm.volumes.items():
                found.append((node.name, path, volume['size']))
            for path, bitmap in node.lvm.bitmaps.items():
                found.append((node.name, path, bitmap['hydrated']))
            for name, device in node.kernel.devices.items():
                found.append((node.name, name, device.kinds, device.size))
        return sorted(found)

    # Operations, with the calls of Cinder's manager

    def extend(self, driver, row):
        driver.extend_volume(row, 2)

    def _snapshot_of(self, row):
        record = objects.Snapshot(
            self.context, volume_id=row.id, volume_size=1, status='creating',
            user_id=row.user_id, project_id=row.project_id,
            volume_type_id=row.volume_type_id)
        record.create()
        return objects.Snapshot.get_by_id(self.context, record.id)

    def snapshot(self, driver, row):
        snapshot = self._snapshot_of(row)
        driver.create_snapshot(snapshot)
        driver.delete_snapshot(snapshot)

    def attach(self, driver, row):
        other = self.b if self.node_of(row) is self.a else self.a
        driver.create_export(self.context, row, other.connector)
        driver.initialize_connection(row, other.connector)

    def attach_at_home(self, driver, row):
        driver.initialize_connection(row, self.node_of(row).connector)

    def copy(self, driver, row):
        """Attach internally, as for an upload or a backup."""
        driver.initialize_connection(row, {
            'host': 'backup', 'initiator': 'iqn.backup', 'ip': '192.0.2.9'})

    def unmanage(self, driver, row):
        driver.unmanage(row)

    def migrate(self, driver, row):
        driver.migrate_volume(self.context, row, {'host': 'a@lvm#a'})

    def retype(self, driver, row):
        driver.retype(self.context, row, None, {}, {'host': 'elsewhere'})

    def image(self, driver, row):
        with mock.patch('cinder.image.image_utils.fetch_to_raw'):
            driver.copy_image_to_volume(self.context, row, None, 'image')

    def upload(self, driver, row):
        with mock.patch('cinder.volume.volume_utils.upload_volume'):
            driver.copy_volume_to_image(self.context, row, None, {})

    def revert(self, driver, row):
        snapshot = self._snapshot_of(row)
        if placeholders.is_placeholder(row):
            driver.revert_to_snapshot(self.context, row, snapshot)
        else:
            driver.create_snapshot(snapshot)
            try:
                with mock.patch('cinder.volume.volume_utils.copy_volume'):
                    driver.revert_to_snapshot(self.context, row, snapshot)
            finally:
                driver.delete_snapshot(snapshot)

    def detach(self, driver, row):
        driver.remove_export(self.context, row)

    def force_detach(self, driver, row):
        if placeholders.is_placeholder(row):
            driver.terminate_connection(row, None, force=True)

    def delete(self, row):
        """Delete a row's volume; returns whether its data may be deleted."""
        node = self.node_of(row)
        with self.cloud.on(node):
            node.driver.remove_export(self.context, row)
            node.driver.delete_volume(row)

    def converge(self):
        """Detach the volume; check that the move completes."""
        for node in (self.a, self.b):
            with self.cloud.on(node):
                node.driver._update_volume_stats()
        row = self.row()
        for record in row.volume_attachment:
            node = self.b if record.connector['host'] == 'node2' else self.a
            self.cloud.detach(self.volume, node)
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.leftovers())


#: The operations on the user's volume that are allowed in all states.
ALLOWED = ('retype', 'detach', 'force_detach', 'attach_at_home',
           'upload')
#: More operations that are allowed in a state. Data is read and written
#: through the handle.
MORE = {'prepared': ('snapshot',), 'gate closed': ('migrate', 'image'),
        'hydrating': ('migrate', 'image', 'snapshot', 'revert')}


@ddt.ddt
class OperationsTestCase(HandsTestCase):

    @ddt.data(*itertools.product(STATES, OPERATIONS))
    @ddt.unpack
    def test_placeholder(self, state, operation):
        self.bring_to(state)
        for columns in RESETS:
            self.change(self.placeholder.id, columns)
            row = self.cloud.row(self.placeholder.id)
            before, node = self.facts(), self.node_of(row)
            with self.cloud.on(node):
                self.refused_or_harmless(operation, node.driver, row)
            self.assertEqual(before, self.facts(), columns)
        self.converge()

    def refused_or_harmless(self, operation, driver, row):
        try:
            getattr(self, operation)(driver, row)
        except exception.IsPlaceholder as error:
            self.assertIn(self.volume.id, error.msg)
            self.assertIn(self.placeholder.id, error.msg)
        else:
            self.assertIn(operation, ('retype', 'detach', 'force_detach'))

    @ddt.data(*itertools.product(STATES, OPERATIONS))
    @ddt.unpack
    def test_volume(self, state, operation):
        """The placeholder's row looks like that of any volume."""
        self.bring_to(state)
        self.change(self.placeholder.id, RESETS[-1])
        for columns in ({}, {'status': 'available'}, {'status': 'error'}):
            self.change(self.volume.id, columns)
            row = self.row()
            before, node = self.facts(), self.node_of(row)
            with self.cloud.on(node):
                try:
                    getattr(self, operation)(node.driver, row)
                except exception.NoPeer:
                    self.assertEqual('copy', operation)
                except cinder_exception.CinderException as error:
                    self.assertIn(self.volume.id, error.msg)
                else:
                    if self.changes_nothing(state, operation):
                        self.assertIn(operation, ALLOWED + MORE[state])
            if self.changes_nothing(state, operation):
                self.assertEqual(before, self.facts(), columns)

    def changes_nothing(self, state, operation):
        """Return whether an operation must not change the nodes.

        It may if the volume is complete, or if the operation moves it.
        """
        return not (state == 'not released' or
                    operation in ('attach', 'extend') and state != 'prepared'
                    or operation in ('snapshot', 'revert') and
                    state == 'hydrating')


class MigrationTestCase(HandsTestCase):

    def test_cinder_can_end_its_copy_of_a_placeholder(self):
        """Cinder deletes the new volume only if the row is "migrating".

        VolumeManager._clean_temporary_volume in cinder/volume/manager.py
        """
        self.bring_to('hydrating')
        self.change(self.placeholder.id, {'status': 'available',
                                          'migration_status': 'migrating'})
        row = self.cloud.row(self.placeholder.id)
        with self.cloud.on(self.a):
            self.assertRaises(
                exception.IsPlaceholder, self.a.driver.initialize_connection,
                row, self.a.connector)
        self.assertEqual('migrating', row.migration_status)


@ddt.ddt
class DeletionTestCase(HandsTestCase):

    @ddt.data(*itertools.product(STATES, RESETS))
    @ddt.unpack
    def test_of_the_placeholder(self, state, columns):
        """It is refused, as called by cinder-manage without the API."""
        self.bring_to(state)
        self.change(self.placeholder.id, columns)
        before = self.facts()
        log = self.patch('dmclone_driver.deletions.LOG.error')
        self.assertRaises(cinder_exception.VolumeIsBusy, self.delete,
                          self.cloud.row(self.placeholder.id))
        self.assertEqual(before, self.facts())
        self.assertIn('it stands for data of volume ' + self.volume.id,
                      str(log.call_args))
        # The status that Cinder sets.
        self.change(self.placeholder.id, {'status': 'available'})
        self.converge()

    @ddt.data(*STATES)
    def test_of_the_volume(self, state):
        self.bring_to(state)
        self.change(self.placeholder.id, RESETS[-1])
        for record in self.row().volume_attachment:
            record.destroy()
        self.delete(self.row())
        self.row().destroy()
        self.cloud.settle()
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.leftovers())

    def test_in_a_group(self):
        """Another error is raised: Cinder destroys busy volumes of a group."""
        self.bring_to('hydrating')
        self.change(self.placeholder.id, {'group_id': self.volume.id})
        with mock.patch.object(objects.Volume, 'group_id', self.volume.id):
            self.assertRaises(cinder_exception.InvalidVolume, self.delete,
                              self.cloud.row(self.placeholder.id))


@ddt.ddt
class HostTestCase(HandsTestCase):
    """cinder-manage volume update_host, and late answers."""

    @ddt.data(*itertools.product(STATES, ('node1', 'node2', 'node3')))
    @ddt.unpack
    def test_all_rows_get_another_host(self, state, name):
        self.cloud.add('node3')
        self.bring_to(state)
        home = self.row().host
        for row_id in (self.volume.id, self.placeholder.id):
            # Without the pool.
            self.change(row_id, {'host': name + '@dmclone'})
        row = self.row()
        with (self.cloud.on(self.node_of(row)),
              contextlib.suppress(cinder_exception.CinderException)):
            self.node_of(row).driver.extend_volume(row, 2)
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.driver._update_volume_stats()
        self.assertEqual(home, self.row().host)
        self.converge()

    def test_a_node_has_got_another_name(self):
        """It keeps its volumes, since it has their logical volumes."""
        self.change(self.volume.id, {'provider_id': 'old@dmclone#dmclone'})
        self.a.start()
        self.assertEqual((self.a.pool, self.a.pool),
                         (self.row().host, self.row().provider_id))

    @ddt.data('volume', 'placeholder')
    def test_copy_that_cinder_has_just_begun(self, of):
        """Cinder has copied the columns of the original to its row."""
        other = self.cloud.add('node3')
        self.bring_to('hydrating')
        row = self.cloud.row(getattr(self, of).id)
        new = objects.Volume(
            self.context, host=other.pool, status='creating', size=row.size,
            migration_status='target:' + row.id, use_quota=False,
            **{field: getattr(row, field) for field in (
                'provider_id', 'replication_driver_data', 'project_id',
                'user_id', 'provider_location', 'provider_auth')})
        new.create()
        for record in row.volume_attachment:
            # A volume in use is not copied to a peer.
            record.destroy()
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.driver._update_volume_stats()
        new.refresh()
        self.assertEqual(
            (other.pool, 'creating', 'target:' + row.id),
            (new.host, new.status, new.migration_status))
        with self.cloud.on(other):
            new.update(other.driver.create_volume(new))
            new.save()
            other.driver.delete_volume(new)
        new.destroy()
        self.assertEqual([], other.lvm.names())
        self.converge()

    def test_service_was_removed(self):
        """The host is not corrected for a node that was removed."""
        self.change(self.volume.id, {'host': self.b.pool})
        self.a.service.destroy()
        with self.cloud.on(self.b):
            self.b.driver._update_volume_stats()
        self.assertEqual(self.b.pool, self.row().host)

    def test_unfinished_creation_is_sent_elsewhere(self):
        """It is deleted on the old host when its row has a new one."""
        volume = self.a.create()
        self.change(volume.id, {'host': self.b.pool, 'launched_at': None})
        with self.cloud.on(self.a), mock.patch(
                'dmclone_driver.move.lookups.is_being_made',
                return_value=True):
            self.a.driver.delete_volume(self.cloud.row(volume.id))
        self.assertEqual(self.b.pool, self.cloud.row(volume.id).host)
        self.assertNotIn(volume.name, self.a.lvm.names())

    def retype(self, stale, reply):
        """Retype on the old home as Cinder does, with an old row."""
        service = mock.MagicMock()
        service.driver = self.a.driver
        self.a.driver.set_initialized()
        service._is_our_backend = lambda *args: (
            manager.VolumeManager._is_our_backend(service, *args))
        new = db_api.volume_type_create(self.context, {'name': 'other'})
        with self.cloud.on(self.a), mock.patch.object(
                manager.volume_types, 'volume_types_diff',
                return_value=({'encryption': {}, 'extra_specs': {}},
                              reply)):
            manager.VolumeManager.retype(
                service, self.context, stale, new['id'],
                {'host': self.a.pool, 'cluster_name': None,
                 'capabilities': {}}, migration_policy='never')

    @ddt.data(False, True)
    def test_retype_that_has_waited(self, equal):
        """With types of equal content Cinder does not call the driver."""
        stale = self.row()
        self.bring_to('hydrating')
        self.retype(stale, equal)
        self.assertEqual(self.a.pool if equal else self.b.pool,
                         self.row().host)
        with self.cloud.on(self.a):
            self.a.driver._update_volume_stats()
        self.assertEqual(self.b.pool, self.row().host)
        self.converge()

    def test_new_home_starts_before_that_is_noticed(self):
        stale = self.row()
        self.bring_to('hydrating')
        self.retype(stale, True)
        self.b.reboot()
        self.b.start()
        self.assertEqual('clone', self.b.kernel.get(self.path).kinds)
        self.assertEqual(self.b.pool, self.row().host)
