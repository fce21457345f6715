# SPDX-License-Identifier: Apache-2.0
"""Volumes from images that Cinder has cached on one node."""

from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib import images
from tests.scenarios.lib.marks import slow


@slow
class ImageCacheTest(images.ImageTest, base.SetupTest):
    """The cached image is on the node of the first volume."""

    def setUp(self):
        super().setUp()
        nodes, mode = list(self.lab.nodes.values()), self.lab.settings.mode
        # The user's own project, so that the user can delete cached images.
        cloud = self.user.cloud
        self.addCleanup(self._configure, {}, nodes, mode)
        self._configure({
            'DEFAULT': {
                'cinder_internal_tenant_project_id': cloud.current_project_id,
                'cinder_internal_tenant_user_id': cloud.current_user_id},
            'dmclone': {'image_volume_cache_enabled': 'True'}}, nodes, mode)
        self.image_id = self.image().id
        # Larger than the image, so that Cinder extends it afterwards.
        self.first = self.user.create_volume(2, imageRef=self.image_id)
        self.node = self.home(self.first['id'])
        self.peer = self.other(self.node)
        self.assertEqual([self.node.name], self.cached())
        self.at_rest()

    def cached(self):
        """Return the nodes that have the image in their cache."""
        return sorted(host.partition('@')[0] for host, in self.lab.sql(
            "SELECT host FROM image_volume_cache_entries WHERE image_id = "
            "'%s'" % self.image_id))

    def at_rest(self, timeout=240):
        """Wait until no volume is a clone any longer."""
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM volumes WHERE deleted = 0 AND migration_status "
            "LIKE 'dmclone:%'"), 'all volumes to be complete', timeout)

    def check(self, volume, node, size):
        """Compare a volume with the image, and write beyond its end."""
        self.assertEqual(node, self.home(volume['id']))
        with self.attached(volume['id'], node) as path:
            self.assertEqual(images.CHECKSUM,
                             self.checksum(node, path, images.MIB))
            self.assertEqual(str(size << 30), node.run(
                'blockdev --getsize64 ' + path).strip())
            self.write(node, path, (size << 10) - 10, 'beyond')

    def test_used_at_once_on_another_node(self):
        self.check(self.first, self.node, 2)
        with self.created_on(self.peer), (
                self.slow_network(self.peer, mbit=100)):
            second = self.user.create_volume(3, imageRef=self.image_id)
            self.assertEqual(sorted([self.node.name, self.peer.name]),
                             self.cached())
            with self.attached(second['id'], self.peer) as path:
                self.assertIn('clone', self.clone_status(self.peer, path))
            self.check(second, self.peer, 3)
            # From the new entry, which still hydrates.
            third = self.user.create_volume(imageRef=self.image_id)
            self.check(third, self.peer, 1)
            self.assertEqual(2, len(self.cached()))
        self.at_rest()
        self.node.cut_power()
        try:
            with self.created_on(self.peer):
                last = self.user.create_volume(imageRef=self.image_id)
            for volume, size in ((second, 3), (last, 1)):
                self.check(volume, self.peer, size)
        finally:
            self.node.power_on()
        self.node.wait_ready()
        self.at_rest()

    def test_peer_does_not_answer(self):
        """Cinder downloads the image; nothing of the attempt is left."""
        self.node.kill('cinder-volume')
        try:
            with self.created_on(self.peer):
                answer = self.user.request('POST', '/volumes', {'volume': {
                    'size': 1, 'imageRef': self.image_id}})
                volume = self.user.settled(answer['volume']['id'],
                                           'available', timeout=180)
            self.check(volume, self.peer, 1)
        finally:
            self.node.start_service('cinder-volume')
            self.node.wait_ready()
        self.assertEqual(sorted([self.node.name, self.peer.name]),
                         self.cached())
        self.at_rest()
