# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "When a node with volumes fails"."""

import re

from dmclone_driver.node.names import UUID
from lab.common import leftovers
from lab import wait
from tests.maintenance import recipes
from tests.scenarios.lib import base
from tests.scenarios.lib import live

BACKEND = 'dmclone'
#: Seconds until an evacuation fails: Nova asks five times, and Cinder's API
#: waits 60 for the node each time.
TO_FAIL = 420


class Recipes(recipes.Recipes):

    PAGE = 'admin/evacuation'

    def wait_down(self, lost, live_node):
        """Wait until a node without power may be declared lost."""
        wait.until(lambda: self.program(live_node, 'forget_node',
                                        lost.name)[1],
                   'the service to count as down', 120)

    def forget(self, lost, live_node):
        """Declare a node lost; returns what the command has printed."""
        self.wait_down(lost, live_node)
        return self.follow('The node does not return', 1, at=live_node,
                           NODE=lost.name, BACKEND=BACKEND)

    def come_back(self, lost):
        """Start a node that was declared lost, and clear its disk."""
        lost.start()
        lost.wait_ready()
        self.assertTrue([name for name in leftovers.volumes(lost)
                         if name.startswith('volume-')])
        self.program(lost, 'reconcile', '--remove')
        lost.run("lvremove --yes --select 'segtype!=thin-pool' "
                 'cinder-volumes; iscsiadm -m node -o delete || true')


class RescueTest(Recipes, base.HydratingTest):
    """The node to which a volume was moving is lost."""

    def test_data_of_the_old_home(self):
        with self.slow_network(self.peer):
            self.attach_and_write()
            self.peer.cut_power()
        device = '/dev/mapper/dmclone-' + self.volume_id
        self.assertIn(device, self.forget(self.peer, self.node))
        self.user.detach_all(self.volume_id)
        new = self.user.create_volume()['id']
        self.assertIs(self.node, self.home(new))
        self.follow('What can be rescued', at=self.node, FROM=device,
                    TO='/dev/mapper/dmclone-' + new)
        with self.attached(new, self.node) as path:
            self.assertEqual(self.before, self.checksum(self.node, path))
        for volume_id in (self.volume_id, new):
            self.user.delete_volume(volume_id)
        self.come_back(self.peer)


class ReturnTest(Recipes, live.OneServerTest):
    """An instance is evacuated in vain, and its node returns."""

    def test_node_returns(self):
        self.console.wait_writing(self.volume_id)
        self.old.cut_power()
        self.addCleanup(self.servers.force_down, self.old, False)
        self.servers.force_down(self.old, True)
        self.servers.action(self.server_id, 'evacuate',
                            {'host': self.new.name})
        self.servers.settled(self.server_id, 'ERROR', timeout=TO_FAIL)
        self.assertEqual(self.old.name, self.servers.node(self.server_id))
        self.assertEqual(['attached', 'reserved'], self.statuses())
        self.servers.force_down(self.old, False)
        self.switch_on(self.old)
        self.follow('The node returns', SERVER=self.server_id,
                    VOLUME=self.volume_id)
        self.assertEqual(['attached'], self.statuses())
        self.servers.settled(self.server_id, 'ACTIVE')
        self.assert_writes_on(self.old)

    def statuses(self):
        """Return the statuses of the volume's attachments."""
        return sorted(status for status, in self.lab.sql(
            "SELECT attach_status FROM volume_attachment WHERE NOT deleted "
            "AND volume_id = '%s'" % self.volume_id))


class RestoreTest(Recipes, live.LiveTest):
    """The node of an instance is lost; its volume is restored."""

    def setUp(self):
        super().setUp()
        # Always the same node, since Cinder's scheduler remembers services
        # that were stopped.
        self.live = self.lab.node('node1')
        self.lost = self.other(self.live)
        with self.created_on(self.lost):
            self.server_id, self.console, (self.volume_id,) = (
                self.writing_server())
        self.live.start_service('cinder-backup')
        self.addCleanup(self.live.stop, 'cinder-backup')
        self.live.wait_ready()
        self.addCleanup(self.delete_backups)

    def owner(self, *parts, **values):
        return self.follow('Restoring the last backup', *parts,
                           VOLUME=self.volume_id, **values)

    def delete_backups(self):
        for backup in self.user.request('GET', '/backups')['backups']:
            self.user.request('DELETE', '/backups/' + backup['id'])
        wait.until(lambda: not self.lab.sql(
            'SELECT id FROM backups WHERE deleted = 0'),
            'the backups to be gone', 120)

    def test_last_backup(self):
        acknowledged = self.console.last(self.volume_id)
        self.owner(0)
        wait.until(lambda: 'available' in self.owner(1), 'the backup', 240)
        backup = re.search(UUID, self.owner(1))[0]
        self.console.wait_writing(self.volume_id, self.lost.name)
        self.lost.cut_power()
        self.follow('The node does not return', 0, NODE=self.lost.name)
        self.assertIn(self.volume_id, self.forget(self.lost, self.live))
        self.assertEqual('error',
                         self.user.volume(self.volume_id)['status'])
        self.owner(2, BACKUP=backup, TYPE='dmclone', SIZE=1)
        self.owner(3, SERVER=self.server_id)
        self.user.wait_gone(self.volume_id)
        (restored, bootable), = self.lab.sql(
            'SELECT id, bootable FROM volumes WHERE deleted = 0 AND '
            "display_name = 'restored'")
        self.assertTrue(bootable)
        self.assertIs(self.live, self.home(restored))
        with self.attached(restored, self.live) as path:
            self.compare(self.live, path, self.volume_id, acknowledged)
        self.user.delete_volume(restored)
        self.servers.force_down(self.lost, False)
        self.come_back(self.lost)
        self.lost.run('for name in $(virsh list --name --all); do '
                      'virsh undefine "$name"; done')
