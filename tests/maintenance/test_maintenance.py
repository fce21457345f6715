# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "Maintenance", with volumes in use."""

import contextlib

from lab.common import user as user_module
from lab import wait
from tests.maintenance import recipes
from tests.scenarios.lib import base
from tests.scenarios.lib import live

BACKEND = 'dmclone'
GROUP = 'cinder-volumes'
#: The disk of that group on a node.
DISK = '/dev/ubdb'


def pool(node):
    """Return the pool of a node, as Cinder's scheduler names it."""
    return '%s@%s#%s' % (node.name, BACKEND, BACKEND)


class Maintenance(recipes.Recipes):

    PAGE = 'admin/maintenance'

    def maintain(self, section, node=None, **values):
        """Run the commands of a section, with the names of the laboratory."""
        if node is not None:
            values.update(NODE=node.name, HERE=pool(node),
                          THERE=pool(self.other(node)))
        return self.follow(section, at=node, BACKEND=BACKEND, GROUP=GROUP,
                           **values)

    def disabled(self):
        """Return the hosts of the disabled services of Cinder."""
        return [host for host, in self.lab.sql(
            'SELECT host FROM services WHERE disabled AND NOT deleted')]


class RebootTest(Maintenance, live.OneServerTest):
    """A node with an instance gets another kernel."""

    def test_kernel_and_reboot(self):
        self.maintain('Taking a node out of service', self.old)
        self.assertEqual(['%s@%s' % (self.old.name, BACKEND)],
                         self.disabled())
        self.console.wait_writing(self.volume_id, self.new.name)
        self.assertIs(self.new, self.home(self.volume_id))
        self.assertEqual([], self.placeholders(self.volume_id))
        self.assertIn('dm-clone', self.maintain('Upgrade of the kernel',
                                                self.old))
        started = self.booted_at(self.old)
        self.maintain('Reboot of a node', self.old)
        self.assertNotEqual(started, self.booted_at(self.old))
        said = self.maintain('Putting a node back into service', self.old)
        self.assertEqual(len(self.lab.nodes), said.count(' up '), said)
        self.assertEqual([], self.disabled())
        self.assert_writes_on(self.new)

    @staticmethod
    def booted_at(node):
        return node.run('cat /proc/sys/kernel/random/boot_id')


class RestartTest(Maintenance, base.HydratingTest):
    """Services are restarted or replaced while a volume hydrates."""

    @contextlib.contextmanager
    def hydrating(self):
        """Check afterwards that all data of a volume has arrived."""
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            yield
        self.hydrated(self.volume_id, timeout=240)
        self.assertEqual(expected, self.checksum(self.peer, path))

    def test_database(self):
        with self.hydrating():
            said = self.maintain('Restart of the database')
            self.assertEqual(len(self.lab.nodes), said.count(' up '), said)

    def test_rabbitmq(self):
        with self.hydrating():
            said = self.maintain('Restart of RabbitMQ')
            self.assertEqual('', said)

    def test_driver_and_cinder(self):
        with self.hydrating():
            self.maintain('Upgrade of the driver')
        self.maintain('Upgrade of Cinder')
        self.assertEqual([], self.placeholders(self.volume_id))


class DisksTest(Maintenance, base.HydratingTest):
    """The disk of a node is replaced, and then put back."""

    def setUp(self):
        super().setUp()
        self.new_disk = self.node.run(
            'lvcreate -qq -y -n replacement -L 3g cinder-metadata && '
            'losetup --find --show /dev/cinder-metadata/replacement').strip()
        # Last in first out: after the group is on its own disk again.
        self.addCleanup(self.node.run, 'losetup --detach %s && '
                        'udevadm settle && lvremove -qq -y '
                        'cinder-metadata/replacement' % self.new_disk)

    def disks(self):
        return self.node.run('vgs --noheadings -o pv_name ' + GROUP).split()

    def replace(self, section):
        """Follow a section, and again to put the disk of the node back."""
        for old, new in ((DISK, self.new_disk), (self.new_disk, DISK)):
            self.maintain(section, self.node, OLD_DISK=old, NEW_DISK=new)
            self.assertEqual([new], self.disks())
            self.node.wait_ready()

    def test_disk(self):
        path = user_module.path(self.user.attach(self.volume_id, self.node))
        self.replace('Replacement of a disk')
        self.maintain('Putting a node back into service', self.node)
        self.assertEqual([], self.disabled())
        self.assertEqual(self.before, self.checksum(self.node, path))
        expected = self.checksum_with(self.node, path, 20, 'later')
        self.write(self.node, path, 20, 'later')
        self.assertEqual(expected, self.checksum(self.node, path))

    def test_volume_group(self):
        self.maintain('Taking a node out of service', self.node)
        self.replace('Replacement of a volume group')
        self.maintain('Putting a node back into service', self.node)
        self.assertIs(self.peer, self.home(self.volume_id))
        wait.until(self.is_migrated, 'the migration', 60)
        # The new group can be used.
        with self.attached(self.volume_id, self.node) as path:
            self.assertEqual(self.before, self.checksum(self.node, path))
        self.hydrated(self.volume_id)

    def is_migrated(self):
        """Whether Cinder has ended the migration, which users cannot see."""
        (status,), = self.lab.sql('SELECT migration_status FROM volumes WHERE '
                                  "id = '%s'" % self.volume_id)
        return status in (None, 'success')
