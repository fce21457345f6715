# SPDX-License-Identifier: Apache-2.0
"""The rarer moves in which the guest stops."""

from tests.live import base


class MovesTest(base.OneServerTest):
    """The volume is where its server is, with all that was written."""

    def test_resize_and_revert(self):
        self.servers.resize(self.server_id)
        self.servers.settled(self.server_id, 'VERIFY_RESIZE')
        self.console.wait_writing(self.volume_id, self.new.name)
        self.servers.action(self.server_id, 'revertResize')
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.old)

    def test_shelve(self):
        self.servers.action(self.server_id, 'shelve')
        self.servers.settled(self.server_id, 'SHELVED_OFFLOADED')
        self.servers.action(self.server_id, 'unshelve',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.new)

    def test_evacuate(self):
        # The host that Nova takes for dead is: a second writer is nobody's
        # wish. Its volumes are reachable again once it is back.
        self.old.stop('nova-compute')
        self.old.run('virsh destroy $(virsh list --name)')
        self.servers.force_down(self.old, True)
        # Nova takes a host for alive only after its service was restarted.
        self.addCleanup(self.servers.force_down, self.old, False)
        self.addCleanup(self.old.wait_ready)
        self.addCleanup(self.old.start_service, 'nova-compute')
        self.servers.action(self.server_id, 'evacuate',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'SHUTOFF')
        self.servers.action(self.server_id, 'os-start')
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.new)


class ForceDetachTest(base.LiveTest):
    """What an operator does for a server that is gone for good."""

    def test_force_detach(self):
        server_id, console, (volume_id,) = self.writing_server()
        node = self.home(volume_id)
        attachment, = self.user.attachments(volume_id)
        node.run('virsh destroy $(virsh list --name)')
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id, {
            'os-force_detach': {'attachment_id': attachment['id'],
                                'connector': None}})
        self.user.settled(volume_id, 'available')
        self.check_records(volume_id, console)
        self.servers.delete(server_id)
