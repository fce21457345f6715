# SPDX-License-Identifier: Apache-2.0
"""Live migration of more than one volume."""

from tests.live import base


class LiveMigrationTest(base.LiveTest):
    """Each volume has a transfer of its own."""

    def test_two_volumes(self):
        server_id, console, volume_ids = self.writing_server(more=1)
        new = self.other(self.home(volume_ids[0]))
        self.migrate(server_id, console, new, *volume_ids)
        for volume_id in volume_ids:
            self.hydrated(volume_id)
            self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, *volume_ids)
