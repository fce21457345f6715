# SPDX-License-Identifier: Apache-2.0
"""The commands of the page "From Cinder's LVM driver", there and back."""

from dmclone_driver.node.names import Names
from lab import config
from tests.maintenance import recipes
from tests.scenarios.lib import base
from tests.scenarios.lib import live
from tests.scenarios.lib import operations

BACKEND = 'dmclone'
GROUP = 'cinder-volumes'
LVM = {'volume_driver': config.DRIVERS['lvm']}
#: Seconds in which Cinder's LVM driver copies a volume.
TO_COPY = 300


class AdoptionTest(recipes.Recipes, operations.Operations, live.LiveTest,
                   base.SetupTest):
    """Volumes that an instance has used over iSCSI, and one at rest."""

    PAGE = 'admin/adoption'
    TO_END = 120

    def setUp(self):
        super().setUp()
        self.nodes = list(self.lab.nodes.values())
        self.kind = 'thin' if self.lab.settings.thin else 'default'
        lvm = self.configured(dict(LVM, lvm_type=self.kind), *self.nodes)
        lvm.__enter__()
        self.addCleanup(lvm.__exit__, None, None, None)
        # While the services use Cinder's LVM driver, as at the test's end.
        self.addCleanup(self.clean_up)
        self.addCleanup(self.servers.delete_all)

    def adopt(self, section, *parts, **values):
        return self.follow(section, *parts, BACKEND=BACKEND, GROUP=GROUP,
                           KIND=self.kind, **values)

    def disk(self, volume_id):
        """Return (node, path of the logical volume) of a volume."""
        (name_id,), = self.lab.sql(
            "SELECT COALESCE(_name_id, id) FROM volumes WHERE id = '%s'"
            % volume_id)
        return self.home(volume_id), '/dev/%s/%s' % (
            GROUP, Names(name_id).volume)

    def of_lvm_driver(self, node):
        """Create a volume with data, which Cinder's LVM driver serves."""
        with self.created_on(node):
            volume_id = self.user.create_volume()['id']
        self.fill(*self.disk(volume_id))
        return volume_id

    def boot_from(self, volume_id):
        """Start a server on the node where its volume is not."""
        server_id, console = self.boot(self.other(self.home(volume_id)),
                                       volume_id)
        console.wait_writing(volume_id)
        return server_id, console

    def test_there_and_back(self):
        root, used, idle = [self.of_lvm_driver(self.nodes[0])
                            for _ in range(3)]
        before = self.checksum(*self.disk(idle))
        self.user.make_bootable(root, self.servers.boot_properties())
        server_id, console = self.boot_from(root)
        self.attach(server_id, console, used)
        self.look_at_thin_volumes(root, used, idle)
        self.adopt('In place', 1, 2, SERVER=server_id, VOLUME=used)
        for volume_id in root, used, idle:
            self.user.settled(volume_id, 'available')
        self.adopt('In place', 3)
        self.wait_ready()
        self.adopt('In place', 4)
        self.check_records(root, console)
        self.check_records(used, console)
        console, snapshot_id, after = self.use(root, idle, before)
        last = console.last(root)
        self.adopt('Back, in place', 0, 1, 2)
        self.look_at_snapshot(snapshot_id)
        self.adopt('Back, in place', 4, 5, 6)
        self.wait_ready()
        said = self.adopt('Back, in place', 7)
        self.assertEqual(len(self.nodes), said.count(' up '), said)
        self.compare(*self.disk(root), root, last)
        self.assertEqual(after, self.checksum(*self.disk(idle)))
        if self.kind == 'default':
            self.use_snapshot(snapshot_id, idle, before)
        server_id, console = self.boot_from(root)
        self.servers.delete(server_id)
        self.compare(*self.disk(root), root, console.last(root))

    def look_at_thin_volumes(self, *volume_ids):
        """Have the page's command list them, if they are thin."""
        said = self.adopt('In place', 0)
        if self.kind == 'default':
            self.assertEqual('', said)
        for volume_id in volume_ids if self.kind == 'thin' else ():
            self.assertIn(self.disk(volume_id)[1].rpartition('/')[2], said)

    def wait_ready(self):
        for node in self.nodes:
            node.wait_ready()

    def look_at_snapshot(self, snapshot_id):
        """Read of a snapshot above a clone; delete it if it cannot go back."""
        said = self.adopt('Back, in place', 3)
        if self.kind == 'default':
            self.assertEqual('', said)
        else:
            self.assertIn('taken=' + snapshot_id, said)
            self.user.delete_snapshot(snapshot_id)

    def use_snapshot(self, snapshot_id, volume_id, before):
        """Use a snapshot with Cinder's LVM driver, and delete it."""
        node, _path = self.disk(volume_id)
        self.assertEqual(before, self.checksum(
            node, '/dev/%s/_snapshot-%s' % (GROUP, snapshot_id)))
        copy = self.user.request('POST', '/volumes', {'volume': {
            'size': 1, 'snapshot_id': snapshot_id}})['volume']['id']
        self.user.settled(copy, 'available', timeout=TO_COPY)
        self.assertEqual(before, self.checksum(*self.disk(copy)))
        self.user.delete_snapshot(snapshot_id)

    def use(self, root, idle, before):
        """Use volumes as this driver's, which moves them.

        :returns: the console of the server that has used the first one; the
            id of a snapshot of the other, taken while that hydrates; and the
            checksum of what was written there since
        """
        there = self.nodes[1]
        with self.slow_network(there), self.attached(idle, there) as path:
            self.assertIs(there, self.home(idle))
            snapshot_id = self.take_snapshot(idle)
            there.run('dmsetup info dmclone-%s-snapshot' % snapshot_id)
            self.assertEqual(before, self.checksum(there, path))
            self.write(there, path, 3, 'later')
            after = self.checksum(there, path)
        server_id, console = self.boot_from(root)
        self.assertIs(there, self.home(root))
        for volume_id in root, idle:
            self.hydrated(volume_id)
        self.servers.delete(server_id)
        self.check_records(root, console)
        return console, snapshot_id, after
