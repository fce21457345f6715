# SPDX-License-Identifier: Apache-2.0
"""Moves of volumes at rest that an operator's command requests."""

from unittest import mock

from cinder.tests.unit import utils as cinder_utils
import ddt

from dmclone_driver import exception
from dmclone_driver.move import left_behind
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import rpcapi
from tests.unit import base
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots


class RelocationTestCase(base.CloudTestCase):

    def move(self, volume=None, node='node2', home=None):
        """Move a volume as the command does."""
        home = home or self.a
        with self.cloud.on(home):
            return rpcapi.PeerClient().move(
                self.context, home.host, (volume or self.volume).id, node)

    def set(self, **fields):
        row = self.row()
        row.update(fields)
        row.save()


@ddt.ddt
class MoveTestCase(RelocationTestCase):

    def test_at_rest(self):
        self.assertEqual({'host': self.b.pool, 'left_behind': []},
                         self.move())
        row = self.row()
        self.assertEqual(
            (self.b.pool, self.b.service.uuid, 'zone-node2', 'available',
             'success', 'available'),
            (row.host, row.service_uuid, row.availability_zone, row.status,
             row.migration_status, row.previous_status))
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_while_it_hydrates(self):
        self.move()
        self.assertEqual(self.a.pool, self.move(
            node='node1', home=self.b)['host'])
        self.cloud.watch(6)
        self.assertIdle(self.a)

    def refused(self, reason, **arguments):
        """Check that a move is refused before anything is done."""
        before = self.row()
        error = self.assertRaises(exception.PeerFailed, self.move,
                                  **arguments)
        self.assertIn(reason, error.msg)
        self.assertEqual([], [row for row in self.cloud.placeholders() if
                              row.id != before.replication_driver_data])
        row = self.row()
        self.assertEqual(
            (before.host, before.status, before.migration_status),
            (row.host, row.status, row.migration_status))

    @ddt.data('in-use', 'reserved', 'deleting', 'backing-up', 'error',
              'maintenance')
    def test_other_status(self, status):
        self.set(status=status)
        self.refused('its status is ' + status)

    @ddt.data('starting', 'migrating', 'completing')
    def test_cinder_migrates_it(self, status):
        self.set(migration_status=status)
        self.refused('Cinder migrates it')

    def test_cinder_has_just_begun_to_migrate_it(self):
        """Cinder's API has checked the row at the same moment."""
        describe = self.b.destination.describe

        def begin():
            self.set(migration_status='starting')
            return describe()
        self.b.destination.describe = begin
        error = self.assertRaises(exception.PeerFailed, self.move)
        self.assertIn('its migration status starting', error.msg)
        self.assertEqual((self.a.pool, 'starting'), (
            self.row().host, self.row().migration_status))
        self.assertEqual([], self.cloud.placeholders())

    def test_copy_of_another_volume(self):
        self.set(migration_status='target:x')
        self.refused('its migration status target:x')

    @ddt.data('error', 'success')
    def test_earlier_migration(self, status):
        self.set(migration_status=status)
        self.assertEqual(self.b.pool, self.move()['host'])

    def test_attached(self):
        self.cloud.attach(self.volume, self.a)
        self.refused('it is attached')

    def test_prepared(self):
        for node in (self.a, self.b):
            self.cloud.attach(self.volume, node)
        self.refused('it is attached')
        self.assertEqual([State.PREPARED], self.cloud.states())

    def test_grouped(self):
        group = cinder_utils.create_group(
            self.context, host=self.a.pool, group_type_id=self.volume.id,
            volume_type_ids=[self.vt['id']])
        self.set(group_id=group.id)
        self.refused('it is in group ' + group.id)

    def test_image_is_copied(self):
        self.a.preflight.staying.add(self.volume.id)
        self.refused('still being filled')

    def test_placeholder(self):
        self.move()
        placeholder, = self.cloud.placeholders()
        error = self.assertRaises(exception.PeerFailed, self.move,
                                  volume=placeholder)
        self.assertIn('it stands for data of volume ' + self.volume.id,
                      error.msg)

    def test_it_has_moved(self):
        self.move()
        error = self.assertRaises(exception.PeerFailed, self.move)
        self.assertIn('it has just moved to ' + self.b.pool, error.msg)

    def test_it_is_gone(self):
        error = self.assertRaises(exception.PeerFailed, self.move,
                                  volume=mock.Mock(id='x'))
        self.assertIn('Volume x could not be found', error.msg)

    def test_no_such_node(self):
        self.refused('backend dmclone is not configured there', node='node9')

    def test_already_there(self):
        self.refused('it is there already', node='node1')

    def test_peer_is_down(self):
        self.b.die()
        self.refused('%s did not answer' % self.b.host)

    def test_peer_without_space(self):
        self.b.lvm.groups['volumes'] = storage.GIB // 2
        self.refused('it needs 1 GiB')

    def test_preparation_fails(self):
        self.patch('dmclone_driver.move.builder.Builder.build',
                   side_effect=OSError('no'))
        error = self.assertRaises(exception.PeerFailed, self.move)
        self.assertIn('It stays where it was', error.msg)
        self.assertEqual(('available', 'error'), (
            self.row().status, self.row().migration_status))
        self.cloud.settle()
        self.assertIdle(self.a)

    def test_answer_of_the_database_is_lost(self):
        """The move has begun, and ends as one without an attachment."""
        begin = records.begin

        def lose(*args):
            begin(*args)
            raise OSError('no answer')
        with mock.patch('dmclone_driver.move.records.begin', new=lose):
            self.assertRaises(exception.PeerFailed, self.move)
        self.assertEqual('migrating', self.row().migration_status)
        self.cloud.watch(2)
        self.assertEqual('error', self.row().migration_status)
        self.assertIdle(self.a)


class LeftBehindTestCase(test_snapshots.SnapshotsTestCase):

    move = RelocationTestCase.move

    def lines(self, node):
        with self.cloud.on(node):
            return [each.line() for each in left_behind.find('volumes')]

    def test_until_the_snapshot_is_deleted(self):
        taken = self.snapshot()
        left = self.move()['left_behind']
        self.assertEqual(
            ['the origin of snapshots of volume {0}: 1.00 GiB in '
             'volumes/volume-{0}'.format(self.volume.id),
             'snapshot {0} of volume {1}: 1.00 GiB in '
             'volumes/_snapshot-{0}'.format(taken.id, self.volume.id)], left)
        self.assertEqual(left, self.lines(self.a))
        self.cloud.watch(3)
        self.assertEqual(left, self.lines(self.a))
        self.assertEqual([], self.lines(self.b))
        self.delete_snapshot(taken)
        self.minute()
        self.assertEqual([], self.lines(self.a))
        self.assertIdle(self.b)

    def test_of_a_volume_that_had_moved_before(self):
        self.move()
        self.cloud.watch(3)
        taken = self.snapshot()
        name_id = self.row().name_id
        self.assertEqual(
            ['the origin of snapshots of volume %s: 1.00 GiB in '
             'volumes/volume-%s' % (self.volume.id, name_id),
             'snapshot {0} of volume {1}: 1.00 GiB in '
             'volumes/_snapshot-{0}'.format(taken.id, self.volume.id)],
            self.move(node='node1', home=self.b)['left_behind'])

    def test_hidden_snapshot(self):
        clone = self.new(self.a)
        with self.cloud.on(self.a):
            clone.update(self.a.driver.create_cloned_volume(clone,
                                                            self.row()))
        clone.save()
        lines = self.move()['left_behind']
        self.assertEqual(['a snapshot that a clone reads of volume %s'
                          % self.volume.id],
                         [line.partition(':')[0] for line in lines[1:]])
