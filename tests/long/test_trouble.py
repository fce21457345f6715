# SPDX-License-Identifier: Apache-2.0
"""What a random life comes across, too, each by itself."""

from lab.common import leftovers
from tests.e2e import base


class WhileHydratingTest(base.HydratingTest):
    """A node or its service is away while the data is still moving."""

    def test_volume_is_deleted_while_its_source_is_down(self):
        with (self.slow_network(self.peer),
              self.attached(self.volume_id, self.peer)):
            self.assertTrue(self.placeholders(self.volume_id))
            self.node.cut_power()
        self.user.delete_volume(self.volume_id)
        self.assertEqual([], leftovers.volumes(self.peer))
        self.node.start()
        self.node.wait_ready()
        self.nothing_left()

    def test_source_is_unreachable_for_a_minute(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            self.node.cut_network()
            try:
                self.peer.run('sleep 60', timeout=90)
                # What is here is served meanwhile.
                self.assertIn('one', self.peer.run(
                    'dd if=%s bs=1M skip=20 count=1 iflag=direct '
                    'status=none | head -c 3' % path))
            finally:
                self.node.restore_network()
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.peer, path))

    def test_both_services_are_restarted(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            for node in (self.peer, self.node):
                node.kill('cinder-volume')
            for node in (self.peer, self.node):
                node.start_service('cinder-volume')
            for node in (self.peer, self.node):
                node.wait_ready()
            self.assertEqual(expected, self.checksum(self.peer, path))
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.peer, path))
