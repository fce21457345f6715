# SPDX-License-Identifier: Apache-2.0
"""Live migration of two volumes, and to a node that dies."""

from tests.live import base


class LiveMigrationTest(base.LiveTest):
    """Each volume has a move of its own."""

    def test_two_volumes(self):
        server_id, console, volume_ids = self.writing_server(more=1)
        new = self.other(self.home(volume_ids[0]))
        self.migrate(server_id, console, new, *volume_ids)
        for volume_id in volume_ids:
            self.hydrated(volume_id)
            self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, *volume_ids)


class FailedMigrationTest(base.FailedMigrationTest):
    """Nova needs minutes to give up."""

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
