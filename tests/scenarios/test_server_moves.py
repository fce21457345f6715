# SPDX-License-Identifier: Apache-2.0
"""Server moves with a stopped guest, with other orders of attachments."""

from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow


class MovesTest(live.OneServerTest):
    """The volume's home is the server's node, with all records."""

    def test_cold_migration(self):
        self.servers.action(self.server_id, 'migrate',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'VERIFY_RESIZE')
        self.servers.action(self.server_id, 'confirmResize')
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.new)

    def test_delete_while_it_hydrates(self):
        with self.slow_network(self.new):
            self.migrate(self.server_id, self.console, self.new,
                         self.volume_id)
            self.assertTrue(self.placeholders(self.volume_id))
            self.servers.delete(self.server_id)
            self.check_records(self.volume_id, self.console)

    @slow
    def test_resize_and_revert(self):
        self.servers.resize(self.server_id)
        self.servers.settled(self.server_id, 'VERIFY_RESIZE')
        self.console.wait_writing(self.volume_id, self.new.name)
        self.servers.action(self.server_id, 'revertResize')
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.old)

    @slow
    def test_shelve(self):
        self.servers.action(self.server_id, 'shelve')
        self.servers.settled(self.server_id, 'SHELVED_OFFLOADED')
        self.servers.action(self.server_id, 'unshelve',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.new)

    @slow
    def test_evacuate(self):
        # The guest is really stopped, so that there is no second writer. The
        # volumes of a dead node are reachable again when it is back.
        self.old.stop('nova-compute')
        self.old.run('virsh destroy $(virsh list --name)')
        self.servers.force_down(self.old, True)
        # In Nova a host is up only after its service was restarted.
        self.addCleanup(self.servers.force_down, self.old, False)
        self.addCleanup(self.old.wait_ready)
        self.addCleanup(self.old.start_service, 'nova-compute')
        self.servers.action(self.server_id, 'evacuate',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'SHUTOFF')
        self.servers.action(self.server_id, 'os-start')
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.new)


class PlugTest(live.LiveTest):
    """Volumes of another node, attached to and detached from a server."""

    def test_hot_plug_and_unplug_while_it_hydrates(self):
        volume_id, home, _ = self.filled_volume(whole=True)
        node = self.other(home)
        server_id, console = self.boot(node)
        with self.slow_network(node):
            self.attach(server_id, console, volume_id)
            self.assertIs(node, self.home(volume_id))
            self.assertTrue(self.placeholders(volume_id))
            self.servers.detach(server_id, volume_id)
            self.user.settled(volume_id, 'available')
            self.assertTrue(self.placeholders(volume_id))
            self.check_records(volume_id, console)
        self.hydrated(volume_id)
        self.check_records(volume_id, console)


class EncryptedTest(live.LiveTest):
    """A volume with LUKS, which QEMU opens above the handle."""

    def test_encrypted_volume_moves(self):
        self.user.encrypted_type('luks')
        volume = self.user.create_volume(volume_type='luks')
        server_id, console, (root,) = self.writing_server()
        home = self.home(root)
        self.attach(server_id, console, volume['id'])
        self.hydrated(volume['id'])
        self.migrate(server_id, console, self.other(home), volume['id'])
        self.hydrated(volume['id'])
        self.servers.detach(server_id, volume['id'])
        self.user.settled(volume['id'], 'available')
        # Only a guest can read it: its writer counts bad records at a start.
        with self.attached(volume['id'], self.home(volume['id'])) as path:
            self.home(volume['id']).run('cryptsetup isLuks ' + path)
        written = console.last(volume['id'])
        self.attach(server_id, console, volume['id'])
        *_, found = [line.said for line in console.of(volume['id'])
                     if line.said.startswith('starts')]
        _, last, bad = found.split()
        self.assertEqual('0', bad)
        self.assertGreaterEqual(int(last), written)
        self.servers.delete(server_id)


@slow
class ForceDetachTest(live.LiveTest):
    """A forced detach, as for a server that is lost."""

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
