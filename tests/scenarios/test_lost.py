# SPDX-License-Identifier: Apache-2.0
"""Messages and nodes that are lost after a live migration."""

import time

from lab import wait
from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow


class LostDeletionTest(live.OneServerTest):
    """The old attachment is not deleted after the migration."""

    more = 1

    def end_old_attachment(self):
        """Delete the remaining attachment, as a user has to."""
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
        # The new attachment is deleted first.
        self.servers.detach(self.server_id, self.volume_id)
        wait.until(lambda: len(self.user.attachments(self.volume_id)) == 1,
                   'the new attachment to be deleted', 60)
        self.hydrated(self.volume_id)
        self.end_old_attachment()
        self.check_records(self.volume_id, self.console)


@slow
class LostSourceTest(live.LiveTest):
    """The source's node loses power before the volume is complete."""

    def move_and_cut_power(self):
        """Migrate a guest, then cut its old node's power.

        :returns: (server id, console, volume id, old node, new node)
        """
        server_id, console, (volume_id,) = self.writing_server()
        old = self.home(volume_id)
        new = self.other(old)
        with self.slow_network(new):
            self.migrate(server_id, console, new, volume_id)
            self.servers.migration_ended(server_id, 'completed')
            old.cut_power()
        return server_id, console, volume_id, old, new

    def test_requests_wait_for_the_source(self):
        server_id, console, volume_id, old, new = self.move_and_cut_power()
        # Longer than all timeouts of the layers below.
        time.sleep(150)
        self.assertTrue(self.user.messages(volume_id))
        stopped_at = console.last(volume_id)
        self.switch_on(old)
        wait.until(lambda: console.last(volume_id) > stopped_at,
                   'the guest to continue', 60)
        console.wait_writing(volume_id, new.name)
        self.hydrated(volume_id)
        self.assertEqual([], console.complaints(volume_id))
        self.check_after_delete(server_id, console, volume_id)

    def test_requests_fail_if_the_operator_wants_that(self):
        for node in self.lab.nodes.values():
            node.configure({'dmclone': {'dmclone_source_timeout': '5'}})
            node.restart('cinder-volume')
            node.wait_ready()
            self.addCleanup(node.wait_ready)
            self.addCleanup(node.restart, 'cinder-volume')
            self.addCleanup(node.configure, {})
        server_id, console, volume_id, old, new = self.move_and_cut_power()
        wait.until(lambda: console.complaints(volume_id),
                   'the guest to get an error', 60)
        self.switch_on(old)
        console.wait_writing(volume_id, new.name)
        self.hydrated(volume_id)
        self.check_after_delete(server_id, console, volume_id)


@slow
class LostNovaTest(live.OneServerTest):
    """The old node's nova-compute dies before it deletes the attachment."""

    more = 1

    def test_nova_dies_and_the_server_is_deleted(self):
        with self.slow_network(self.new, mbit=40):
            self.begin_migration(self.server_id, self.new)
            self.console.wait_writing(self.volume_id, self.new.name)
            self.old.kill('nova-compute')
        self.assertIs(self.new, self.home(self.volume_id))
        # In Nova the server is still on the old node. The volume cannot be
        # written there.
        self.old.start_service('nova-compute')
        self.old.wait_ready()
        self.servers.settled(self.server_id, 'ACTIVE', 'ERROR', 'SHUTOFF')
        self.console.wait_writing(self.volume_id, self.new.name)
        self.servers.delete(self.server_id)
        # Nova would remove the guest after half an hour.
        self.console.wait_writing(self.volume_id, self.new.name)
        self.new.run('virsh destroy $(virsh list --name) && '
                     'virsh undefine $(virsh list --name --all)')
        self.hydrated(self.volume_id)
        self.user.detach_all(self.volume_id)
        self.check_records(self.volume_id, self.console)
