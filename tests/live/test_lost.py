# SPDX-License-Identifier: Apache-2.0
"""Messages that are lost after the guest has arrived."""

from lab import wait
from tests.live import base


class LostDeletionTest(base.OneServerTest):
    """The old attachment is not deleted when the guest has arrived."""

    more = 1

    def end_old_attachment(self):
        """Do what is left to a user: delete the attachment by hand."""
        attachment, = self.user.attachments(self.volume_id)
        self.user.detach(attachment['id'])

    def test_the_api_is_down_and_the_volume_is_detached(self):
        with self.slow_network(self.new, mbit=100):
            self.begin_migration(self.server_id, self.new)
            self.lab.control.stop('cinder-api')
            try:
                self.servers.migration_ended(self.server_id, 'completed')
                self.servers.settled(self.server_id, 'ACTIVE')
            finally:
                self.lab.control.start('cinder-api')
        self.console.wait_writing(self.volume_id, self.new.name)
        self.assertIs(self.new, self.home(self.volume_id))
        self.assertEqual(2, len(self.user.attachments(self.volume_id)))
        # The new attachment goes first.
        self.servers.detach(self.server_id, self.volume_id)
        wait.until(lambda: len(self.user.attachments(self.volume_id)) == 1,
                   'the new attachment to go', 60)
        self.hydrated(self.volume_id)
        self.end_old_attachment()
        self.check_records(self.volume_id, self.console)
