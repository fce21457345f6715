# SPDX-License-Identifier: Apache-2.0

from dmclone_driver import exception
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import storage


class MigrationTestCase(base.CloudTestCase):
    """Migrations by Cinder's API, as VolumeManager.migrate_volume calls."""

    def migrate(self, node=None, lock=False):
        return self.cloud.migrate(self.volume, node or self.b, lock)

    def assertStayed(self, status='error'):
        row = self.row()
        self.assertEqual(self.a.pool, row.host)
        self.assertEqual(('available', status),
                         (row.status, row.migration_status))
        self.cloud.settle()
        self.assertEqual([], self.cloud.leftovers())

    def test_at_rest(self):
        answer = self.migrate()
        self.assertEqual((True, {'host': self.b.pool}), answer)
        row = self.row()
        self.assertEqual(self.b.pool, row.host)
        self.assertEqual(self.b.service.uuid, row.service_uuid)
        self.assertEqual(('available', 'success'),
                         (row.status, row.migration_status))
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.cloud.leftovers())

    def test_status_before_the_lock_is_back(self):
        self.migrate(lock=True)
        self.assertEqual('available', self.row().status)

    def test_while_it_hydrates(self):
        self.migrate()
        self.assertEqual((True, {'host': self.a.pool}), self.migrate(self.a))
        self.assertEqual(
            [State.SWITCHED] * 2, [placeholders.state_of(row)
                                   for row in self.cloud.placeholders()])
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    def test_chain_has_a_limit(self):
        limit = self.a.driver.configuration.dmclone_chain_limit
        nodes = [(self.a, self.b)[number % 2] for number in range(limit + 2)]
        for node in nodes[1:-1]:
            self.migrate(node)
        self.assertEqual(limit, len(self.cloud.placeholders()))
        error = self.assertRaises(exception.MigrationRefused, self.migrate,
                                  nodes[-1])
        for text in (self.volume.id, ' <- '.join(
                node.name for node in reversed(nodes[:-1]))):
            self.assertIn(text, error.msg)
        self.assertEqual(nodes[-2].pool, self.row().host)
        self.assertEqual(limit, len(self.cloud.placeholders()))
        # When the oldest copy is complete, the chain is shorter.
        oldest, = [row.id for row in self.cloud.placeholders()
                   if row.name_id == self.volume.id]
        self.cloud.pass_time(1000)
        self.b.look()
        self.b.kernel.hydrate(Names(oldest).of(CLONE))
        self.b.look()
        self.cloud.settle()
        self.migrate(nodes[-1])
        self.assertEqual(nodes[-1].pool, self.row().host)
        self.cloud.watch(2 * limit)
        self.assertEqual([], self.cloud.leftovers())

    def test_to_its_own_node(self):
        self.assertEqual((True, {'host': self.a.pool}), self.migrate(self.a))
        self.assertEqual([], self.cloud.placeholders())

    def test_sealed_source(self):
        """The database was restored: the volume has moved away before."""
        with self.cloud.on(self.a):
            logical_volumes.tag(
                self.a.backend.logical_volume(Names(self.volume.id)),
                logical_volumes.SEALED_TAG + 'x')
        self.assertRaises(exception.MovedAway, self.migrate)
        self.assertEqual([], self.cloud.placeholders())

    def test_another_backend(self):
        volume = self.row()
        with self.cloud.on(self.a):
            self.assertEqual((False, None), self.a.driver.migrate_volume(
                self.context, volume, {'host': 'node2@lvm#lvm'}))
        self.assertEqual([], self.cloud.placeholders())

    def test_attached(self):
        self.cloud.attach(self.volume, self.a)
        error = self.assertRaises(exception.MigrationRefused, self.migrate)
        self.assertIn("can't be migrated to %s: it is attached" % self.b.pool,
                      error.msg)
        self.assertEqual([], self.cloud.placeholders())

    def test_peer_without_space(self):
        self.b.lvm.groups['volumes'] = storage.GIB // 2
        error = self.assertRaises(exception.MigrationRefused, self.migrate)
        self.assertIn('it needs 1 GiB', error.msg)
        self.assertStayed('migrating')

    def test_preparation_fails(self):
        self.patch('dmclone_driver.move.builder.Builder.build',
                   side_effect=OSError('no'))
        self.assertRaises(exception.MoveFailed, self.migrate, lock=True)
        self.assertStayed()

    def test_attached_meanwhile(self):
        def attach(*args):
            self.cloud.attachment(self.volume, self.a)
            return build(*args)
        build = self.b.builder.build
        self.b.builder.build = attach
        error = self.assertRaises(exception.MigrationRefused, self.migrate)
        self.assertIn('attached meanwhile', error.msg)
        self.assertStayed()

    def copy(self, **fields):
        """Begin the copy of the attached volume, as Cinder does."""
        self.cloud.attach(self.volume, self.a)
        return self.b.create(migration_status='target:' + self.volume.id,
                             **fields)

    def test_in_use(self):
        error = self.assertRaises(exception.MigrationRefused, self.copy)
        for part in (self.volume.id, 'live-migrate'):
            self.assertIn(part, error.msg)
        self.assertEqual([], self.b.lvm.names())

    def test_in_use_from_another_backend(self):
        row = self.row()
        row.provider_id = row.host = 'node1@lvm#lvm'
        row.save()
        self.cloud.attachment(self.volume, self.a)
        self.b.create(migration_status='target:' + self.volume.id)

    def test_no_other_move_until_its_end(self):
        volume = self.row()
        volume.migration_status = 'migrating'
        volume.save()
        error = self.assertRaises(exception.MoveRefused, self.cloud.attach,
                                  self.volume, self.b)
        self.assertIn('it is being migrated', error.msg)
        self.assertEqual([], self.cloud.placeholders())
