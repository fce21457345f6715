# SPDX-License-Identifier: Apache-2.0
"""The metadata device of a clone is missing for some time."""

from dmclone_driver.node.names import Names
from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow


@slow
class LostMetadataTest(base.E2ETest):
    """The volume is in error, and usable when the device is back."""

    def test_disk_comes_back(self):
        volume_id, home, before = self.filled_volume()
        node = self.other(home)
        with self.slow_network(node):
            path = user_module.path(self.user.attach(volume_id, node))
            expected = self.checksum_with(node, path, 20, 'one')
            self.write(node, path, 20, 'one')
            node.stop('cinder-volume')
            node.cut_power()
        node.start()
        name = leftovers.metadata(node)
        node.run('lvrename cinder-volumes %s away' % name)
        node.start_service('cinder-volume')
        node.wait_ready()
        self.status_becomes(volume_id, 'error')
        self.assertTrue(self.user.messages(volume_id))
        self.assertTrue(self.placeholders(volume_id))
        self.assertNotIn(Names(name[-36:]).of('handle'),
                         node.run('dmsetup ls'))
        node.run('lvrename cinder-volumes away %s' % name)
        self.status_becomes(volume_id, 'in-use')
        self.assertEqual(expected, self.checksum(node, path))
        self.hydrated(volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(node, path))

    def status_becomes(self, volume_id, status):
        wait.until(lambda: self.user.volume(volume_id)['status'] == status,
                   'volume %s to be %s' % (volume_id, status), 120)
