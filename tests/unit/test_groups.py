# SPDX-License-Identifier: Apache-2.0
"""Generic volume groups, with the code of Cinder's VolumeManager."""

from unittest import mock

from cinder import exception as cinder_exception
from cinder import objects
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import group_types
from cinder.volume import manager
import ddt

from dmclone_driver import exception
from dmclone_driver.move import snapshot_rows
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import kernel
from tests.unit.fakes import storage


class GroupsTestCase(base.CloudTestCase):
    """Two volumes in a group on the first node."""

    def setUp(self):
        super().setUp()
        self.type_id = group_types.create(self.context, 'plain').id
        self.group = self.new_group()
        self.other = self.a.create()
        self.members = [self.volume, self.other]
        for volume in self.members:
            self.put_in(volume)

    def new_group(self, **fields):
        return cinder_utils.create_group(
            self.context, host=self.a.pool, group_type_id=self.type_id,
            volume_type_ids=[self.vt['id']], **fields)

    def put_in(self, volume, group_id='mine'):
        row = self.cloud.row(volume.id)
        row.group_id = self.group.id if group_id == 'mine' else group_id
        row.save()

    def service(self):
        """Return Cinder's manager on the first node, without its start."""
        service = object.__new__(manager.VolumeManager)
        service.driver, service.host = self.a.driver, self.a.host
        service.cluster, service.db = None, db_api
        service.stats = {'allocated_capacity_gb': 0, 'pools': {}}
        service._is_our_resource = lambda volume: (
            volume.host == self.a.pool)
        for name in ('_notify_about_group_usage',
                     '_notify_about_group_snapshot_usage',
                     'publish_service_capabilities'):
            setattr(service, name, mock.Mock())
        self.a.driver.set_initialized()
        return service

    def cinder(self, method, *args):
        """Call a method of Cinder's manager on the first node."""
        with self.cloud.on(self.a):
            getattr(self.service(), method)(self.context, *args)

    def rows_of_snapshot(self, volumes=None):
        """Create the rows of a group snapshot, as Cinder's API does."""
        row = objects.GroupSnapshot(
            self.context, group_id=self.group.id, status='creating',
            group_type_id=self.type_id, user_id=self.context.user_id,
            project_id=self.context.project_id, name='one')
        row.create()
        for volume in volumes or self.members:
            cinder_utils.create_snapshot(
                self.context, volume.id, status='creating', volume_size=1,
                volume_type_id=self.vt['id'], group_snapshot_id=row.id)
        return row

    def snapshots(self, row):
        return list(objects.SnapshotList.get_all_for_group_snapshot(
            self.context, row.id))

    def snapshot(self):
        row = self.rows_of_snapshot()
        self.cinder('create_group_snapshot', row)
        return row

    def rows_from(self, **source):
        """Create the rows of a group from another, as Cinder's API does."""
        group = self.new_group(status='creating')
        for key, value in source.get('sources'):
            cinder_utils.create_volume(
                self.context, host=self.a.pool, size=1, status='creating',
                service_uuid=self.a.service.uuid, group_id=group.id,
                availability_zone=self.a.service.availability_zone,
                volume_type_id=self.vt['id'], **{key: value})
        return group

    def from_snapshot(self, row):
        group = self.rows_from(sources=[
            ('snapshot_id', each.id) for each in self.snapshots(row)])
        return group, lambda: self.cinder('create_group_from_src', group, row,
                                          None)

    def from_group(self):
        group = self.rows_from(sources=[
            ('source_volid', each.id) for each in self.members])
        return group, lambda: self.cinder('create_group_from_src', group,
                                          None, self.group)

    def volumes(self, group):
        return list(objects.VolumeList.get_all_by_generic_group(
            self.context, group.id))

    def minute(self):
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.driver.get_volume_stats(refresh=True)
        self.cloud.watch(2)

    def delete(self, row):
        """Delete a group or group snapshot as Cinder's API does."""
        row.status = 'deleting'
        row.save()
        self.cinder('delete_group' if isinstance(row, objects.Group) else
                    'delete_group_snapshot', row)

    def assertNothingMade(self, group):
        """Check that only the first two volumes are on the node."""
        self.cloud.watch(2)
        self.minute()
        self.assertEqual(sorted(each.name for each in self.members),
                         self.a.lvm.names())
        self.assertEqual([], self.cloud.placeholders())
        group.refresh()
        self.assertEqual('error', group.status)


@ddt.ddt
class SnapshotTestCase(GroupsTestCase):

    def test_of_members_at_rest(self):
        row = self.snapshot()
        self.assertEqual('available', row.status)
        for each in self.snapshots(row):
            self.assertEqual(('available', self.a.pool),
                             (each.status, each.provider_id))
            self.assertIn('_' + each.name, self.a.lvm.names())
        self.delete(row)
        self.assertEqual([], self.snapshots(row))
        self.assertEqual([], self.cloud.leftovers())

    def test_of_a_member_that_hydrates(self):
        """It was put into the group meanwhile."""
        self.put_in(self.volume, None)
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)
        self.cloud.attach(self.volume, self.a)
        self.put_in(self.volume)
        row = self.snapshot()
        self.assertEqual(['available'] * 2,
                         [each.status for each in self.snapshots(row)])
        with self.cloud.on(self.a):
            self.assertEqual([True, False], [
                bool(self.a.parts.snapshots.find(each.id).taken)
                for each in sorted(self.snapshots(row), key=lambda each:
                                   each.volume_id != self.volume.id)])

    def refused(self, row=None):
        row = row or self.rows_of_snapshot()
        error = self.assertRaises(exception.GroupRefused, self.cinder,
                                  'create_group_snapshot', row)
        self.assertEqual(['error'] * 2,
                         [each.status for each in self.snapshots(row)])
        self.assertNothingMade(row)
        self.delete(row)
        return error.msg

    @ddt.data(0, 1)
    def test_member_elsewhere(self, number):
        """It was put into the group while it was moving."""
        moved = self.members[number]
        self.put_in(moved, None)
        self.cloud.attach(moved, self.b)
        self.cloud.watch(3)
        self.put_in(moved)
        row = self.rows_of_snapshot()
        self.members.remove(moved)
        message = self.refused(row)
        for part in (moved.id, self.b.pool, 'remove it from the group'):
            self.assertIn(part, message)

    def test_without_space(self):
        self.a.lvm.groups['volumes'] = 3 * storage.GIB
        self.assertIn('its snapshots need 2 GiB, and the volume group has '
                      'only 1.00 GiB left', self.refused())

    @ddt.data(kernel.error('no'), OSError('no'))
    def test_last_member_fails(self, fault):
        """An error that is not Cinder's own counts, too."""
        done, take = [], self.a.driver.create_snapshot

        def create(snapshot):
            if done:
                raise fault
            done.append(self.a.lvm.names())
            return take(snapshot)
        self.a.driver.create_snapshot = create
        self.refused()
        self.assertEqual(1, len(done))

    def test_type_with_a_common_moment(self):
        db_api.group_type_specs_update_or_create(
            self.context, self.type_id,
            {'consistent_group_snapshot_enabled': '<is> True'})
        self.assertIn('of one moment', self.refused())

    def test_deletion_in_a_pool_that_takes_no_changes(self):
        """Cinder keeps the rows, and the deletion can be repeated."""
        row = self.snapshot()
        pool = self.a.lvm.make_thin('volumes')
        pool['mode'] = 'ro'
        self.assertRaises(cinder_exception.VolumeDriverException, self.delete,
                          row)
        self.assertEqual(
            ('error', ['error', 'error']),
            (row.status, [each.status for each in self.snapshots(row)]))
        pool['mode'] = 'rw'
        self.delete(row)
        self.assertEqual([], self.snapshots(row))
        self.assertEqual(sorted(each.name for each in self.members),
                         self.a.lvm.names())

    def test_deleted_while_volumes_read_it(self):
        """It is gone for its user; its space follows."""
        row = self.snapshot()
        group, create = self.from_snapshot(row)
        create()
        rows = self.snapshots(row)
        self.delete(row)
        self.assertEqual([], self.snapshots(row))
        self.assertRaises(cinder_exception.GroupSnapshotNotFound, row.refresh)
        with self.cloud.on(self.a):
            self.assertEqual(
                {each.id for each in rows},
                set(snapshot_rows.to_delete(self.context, self.a.host)))
            for each in rows:
                self.assertIsNotNone(self.a.parts.snapshots.find(each.id))
        self.cloud.watch(3)
        self.minute()
        self.assertEqual([], self.cloud.leftovers())


@ddt.ddt
class FromSourceTestCase(GroupsTestCase):

    def source(self, kind):
        return (self.from_snapshot(self.snapshot()) if kind == 'snapshot' else
                self.from_group())

    def assertMade(self, group):
        volumes = self.volumes(group)
        self.assertEqual([('available', self.a.pool)] * 2, [
            (each.status, each.provider_id) for each in volumes])
        with self.cloud.on(self.a):
            for each in volumes:
                self.assertIsNotNone(self.a.lvm.volumes.get(
                    '/dev/volumes/' + each.name))
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())

    @ddt.data('snapshot', 'group')
    def test_all(self, kind):
        group, create = self.source(kind)
        create()
        self.assertMade(group)

    def test_a_volume_has_left_the_group_and_moved(self):
        row = self.snapshot()
        self.put_in(self.other, None)
        self.cloud.attach(self.other, self.b)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.cloud.row(self.other.id).host)
        group, create = self.from_snapshot(row)
        create()
        self.assertMade(group)
        self.delete(row)
        self.minute()
        self.assertEqual([], self.cloud.leftovers())

    @ddt.data('snapshot', 'group')
    def test_last_member_fails(self, kind):
        """Cinder itself would declare it available all the same."""
        group, create = self.source(kind)
        build = self.a.builder.build_copy
        failed = []

        def fail(*args):
            failed.append(len(self.a.lvm.names()))
            if len(failed) == 2:
                raise OSError('no')
            return build(*args)
        self.a.builder.build_copy = fail
        before = self.a.lvm.names()
        error = self.assertRaises(exception.GroupRefused, create)
        self.assertIn('no', error.msg)
        self.assertEqual(2, len(failed))
        self.cloud.watch(2)
        self.minute()
        self.assertEqual(before, self.a.lvm.names())
        self.assertEqual([], self.cloud.placeholders())
        group.refresh()
        self.assertEqual(['error'] * 3, [group.status] + [
            each.status for each in self.volumes(group)])
        self.delete(group)
        self.assertEqual([], self.volumes(group))
        self.assertEqual(before, self.a.lvm.names())

    def test_snapshot_is_missing(self):
        row = self.snapshot()
        group, create = self.from_snapshot(row)
        lost = self.snapshots(row)[1]
        with self.cloud.on(self.a):
            self.a.parts.snapshots.delete_unread(lost.id)
        before = self.a.lvm.names()
        error = self.assertRaises(exception.GroupRefused, create)
        self.assertIn(lost.id, error.msg)
        self.assertEqual(before, self.a.lvm.names())

    def test_node_of_a_snapshot_is_down(self):
        row = self.snapshot()
        group, create = self.from_snapshot(row)
        there = self.snapshots(row)[1]
        there.provider_id = self.b.pool
        there.save()
        self.b.die()
        before = self.a.lvm.names()
        error = self.assertRaises(exception.GroupRefused, create)
        self.assertIn(self.b.host, error.msg)
        self.assertEqual(before, self.a.lvm.names())
