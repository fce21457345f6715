# SPDX-License-Identifier: Apache-2.0
"""Live migration of a guest that writes all the time."""

from lab.common import leftovers
from tests.scenarios.lib import full_nodes
from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations


class LiveMigrationTest(live.LiveTest):
    """Volumes are usable at once on the new node, and complete later."""

    def test_volume_follows_its_guest(self):
        server_id, console, (volume_id,) = self.writing_server()
        old = self.home(volume_id)
        new = self.other(old)
        self.migrate(server_id, console, new, volume_id)
        self.hydrated(volume_id)
        self.assertNotIn(' clone ', new.run('dmsetup table'))
        self.assertEqual([], leftovers.volumes(old))
        console.wait_writing(volume_id, new.name)
        self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, volume_id)

    def test_back_again_before_it_is_complete(self):
        server_id, console, (volume_id,) = self.writing_server()
        first = self.home(volume_id)
        second = self.other(first)
        with (self.slow_network(first, mbit=40),
              self.slow_network(second, mbit=40)):
            for hop, node in enumerate((second, first, second), 1):
                self.migrate(server_id, console, node, volume_id)
                self.assertEqual(hop, len(self.placeholders(volume_id)))
        self.hydrated(volume_id, timeout=300)
        console.wait_writing(volume_id, second.name)
        self.assertEqual([], leftovers.volumes(first))
        self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, volume_id)

    @slow
    def test_two_volumes(self):
        server_id, console, volume_ids = self.writing_server(more=1)
        new = self.other(self.home(volume_ids[0]))
        self.migrate(server_id, console, new, *volume_ids)
        for volume_id in volume_ids:
            self.hydrated(volume_id)
            self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, *volume_ids)


@slow
class SnapshotsTest(operations.Operations, live.LiveTest):
    """Snapshots of a guest's volume, on one node and then on both."""

    #: A node looks for snapshots to delete each minute.
    TO_END = 180

    def test_they_stay(self):
        server_id, console, (volume_id,) = self.writing_server()
        old = self.home(volume_id)
        new = self.other(old)
        taken = []
        for here, there in ((old, new), (new, old), (old, new)):
            acknowledged = console.last(volume_id)
            taken.append((self.take_snapshot(volume_id), acknowledged, here))
            self.migrate(server_id, console, there, volume_id)
            self.hydrated(volume_id)
        self.assertEqual([], console.complaints(volume_id))
        for snapshot_id, acknowledged, node in taken:
            self.assertTrue([name for name in leftovers.volumes(node)
                             if snapshot_id in name], snapshot_id)
            copy = self.user.create_volume(snapshot_id=snapshot_id)
            self.assertIs(new, self.home(copy['id']))
            with self.attached(copy['id'], new) as path:
                self.compare(new, path, volume_id, acknowledged)
            self.end_volume(copy['id'])
        console.wait_writing(volume_id, new.name)
        self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, volume_id)


class FailedMigrationTest(live.FailedMigrationTest):
    """The guest continues on its old node, and there is no leftover."""

    def test_preparation_fails(self):
        with full_nodes.full(self.lab, self.new):
            self.servers.live_migrate(self.server_id, self.new)
            self.servers.migration_ended(self.server_id, 'error', 'failed')
            self.set_right()
        self.assert_as_before()
        self.assertTrue(self.user.messages(self.volume_id))
        self.check_after_delete(self.server_id, self.console, self.volume_id)

    def test_abort(self):
        with self.slow_network(self.new, mbit=20):
            migration = self.begin_migration(self.server_id, self.new)
            self.assertEqual(1, len(self.placeholders(self.volume_id)))
            self.servers.request('DELETE', '/servers/%s/migrations/%s' % (
                self.server_id, migration['id']))
            # The state depends on when Nova checks libvirt's job, and on
            # whether QEMU reports a cancellation or a broken channel.
            self.servers.migration_ended(self.server_id, 'cancelled',
                                         'error', 'failed')
        self.set_right()
        self.assert_as_before()
        self.check_after_delete(self.server_id, self.console, self.volume_id)

    @slow
    def test_destination_loses_power(self):
        with self.slow_network(self.new, mbit=20):
            self.begin_migration(self.server_id, self.new)
            self.new.cut_power()
        self.servers.migration_ended(self.server_id, 'error', 'failed',
                                     timeout=240)
        self.set_right()
        self.console.wait_writing(self.volume_id, self.old.name)
        self.assertIs(self.old, self.home(self.volume_id))
        self.switch_on(self.new)
        self.assert_as_before()
        self.check_after_delete(self.server_id, self.console, self.volume_id)
