# SPDX-License-Identifier: Apache-2.0
"""Base of tests with instances, whose guests write all the time."""

from lab.common import consoles
from lab.common import servers as servers_module
from lab.common import volumes
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import needs
from tests.scenarios.lib import writers


@needs('nova')
class LiveTest(writers.Writers, base.E2ETest):
    """A test with servers, and checks of their acknowledged records."""

    def setUp(self):
        super().setUp()
        self.servers = servers_module.Servers(self.lab)
        self.addCleanup(self.servers.delete_all)
        self.addCleanup(self.switch_on, *self.lab.nodes.values())

    @staticmethod
    def switch_on(*nodes):
        """Start the nodes that are off, and wait until they are ready."""
        off = [node for node in nodes if not node.machine.powered()]
        for node in off:
            node.power_on()
        for node in off:
            node.wait_ready()

    # Guests

    def boot(self, node, volume_id=None):
        """Start a server and follow its console; returns both."""
        server_id = self.servers.boot(node, volume_id)
        return server_id, self.console_of(server_id)

    def console_of(self, server_id):
        """Follow a server's console until the test ends."""
        console = consoles.Console(self.lab, server_id)
        self.addCleanup(console.close)
        return console

    def attach(self, server_id, console, *volume_ids):
        """Attach volumes, and wait until the guest writes to all."""
        for volume_id in volume_ids:
            self.servers.attach(server_id, volume_id)
            self.user.settled(volume_id, 'in-use')
        for volume_id in volume_ids:
            console.wait_writing(volume_id)

    def writing_server(self, more=0):
        """Start a server that boots from a volume and writes to it.

        It has no local disk, so that a migration copies only memory.

        :param more: number of additional volumes
        :returns: (server id, console, volume ids)
        """
        made = [self.filled_volume(whole=True) for _ in range(1 + more)]
        volume_ids = [volume_id for volume_id, home, checksum in made]
        self.user.make_bootable(volume_ids[0],
                                self.servers.boot_properties())
        server_id, console = self.boot(made[0][1], volume_ids[0])
        console.wait_writing(volume_ids[0])
        self.attach(server_id, console, *volume_ids[1:])
        for volume_id in volume_ids:
            self.hydrated(volume_id)
        return server_id, console, volume_ids

    def migrate(self, server_id, console, node, *volume_ids):
        """Live-migrate a server, and wait until its guest writes there."""
        self.servers.live_migrate(server_id, node)
        self.servers.migration_ended(server_id, 'completed')
        self.servers.settled(server_id, 'ACTIVE')
        self.assertEqual(node.name, self.servers.node(server_id))
        for volume_id in volume_ids:
            console.wait_writing(volume_id, node.name)
            self.assertIs(node, self.home(volume_id))

    def begin_migration(self, server_id, node):
        """Start a live migration; returns it when it copies memory.

        On a slow network the copy takes long enough to inject a fault.
        """
        self.servers.live_migrate(server_id, node)

        def runs():
            newest = self.servers.migration(server_id)
            return (newest and newest['status'] == 'running' and
                    self.servers.copied(server_id, newest['id']) and newest)
        return wait.until(runs, 'the migration to run', 90, 0.1)

    # Data

    def check_records(self, volume_id, console, mib=volumes.DATA):
        """Compare a detached volume with the guest's writes."""
        acknowledged = console.last(volume_id)
        self.assertGreater(acknowledged, 0)
        self.assertIsNone(console.crash)
        wait.until(lambda: self.user.volume(volume_id)['status'] ==
                   'available', 'volume %s to be detached' % volume_id, 60)
        node = self.home(volume_id)
        with self.attached(volume_id, node) as path:
            self.compare(node, path, volume_id, acknowledged, mib)

    def check_after_delete(self, server_id, console, *volume_ids):
        """Delete a server, then check its volumes."""
        self.servers.delete(server_id)
        for volume_id in volume_ids:
            self.check_records(volume_id, console)


class OneServerTest(LiveTest):
    """A test with one server that writes, its node, and another node."""

    #: The number of volumes in addition to the root disk; the last volume
    #: of all is checked.
    more = 0

    def setUp(self):
        super().setUp()
        self.server_id, self.console, (*_, self.volume_id) = (
            self.writing_server(self.more))
        self.old = self.home(self.volume_id)
        self.new = self.other(self.old)

    def assert_writes_on(self, node):
        """Check that the guest and its volume are on a node."""
        self.assertEqual(node.name, self.servers.node(self.server_id))
        self.console.wait_writing(self.volume_id, node.name)
        self.assertIs(node, self.home(self.volume_id))
        started = [line.said.split() for line in
                   self.console.of(self.volume_id)
                   if line.said.startswith('starts')]
        # The guest has found all its records after each start.
        self.assertEqual({'0'}, {bad for _, last, bad in started})
        self.check_after_delete(self.server_id, self.console, self.volume_id)


class FailedMigrationTest(OneServerTest):
    """A test of a migration that fails, with the guest on its old node."""

    def assert_as_before(self):
        """Check that the guest writes on its old node, without a move."""
        self.assertEqual(self.old.name, self.servers.node(self.server_id))
        self.console.wait_writing(self.volume_id, self.old.name)
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the move to be aborted', 60)
        self.assertIs(self.old, self.home(self.volume_id))
        self.assertEqual([], self.console.complaints(self.volume_id))

    def set_right(self):
        """Clean up as an operator where Nova does not.

        When libvirt reports a cancelled or broken job as failed, Nova's
        monitor raises and does not roll back: the server is in error, with
        the attachment for the destination (_live_migration_monitor in
        nova/virt/libvirt/driver.py of Nova 34). An attachment whose creation
        failed is left, too: only Cinder knows its id.
        """
        server = self.servers.settled(self.server_id, 'ACTIVE', 'ERROR')
        if server['status'] == 'ERROR':
            self.servers.action(self.server_id, 'os-resetState',
                                {'state': 'active'})
        for attachment, in self.lab.sql(
                "SELECT id FROM volume_attachment WHERE NOT deleted AND "
                "NOT (attached_host <=> '%s')" % self.old.name):
            self.user.detach(attachment)
