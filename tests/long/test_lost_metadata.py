# SPDX-License-Identifier: Apache-2.0
"""The disk with the bitmap of a clone fails."""

from dmclone_driver.names import Names
from tests.e2e import base
from tests.e2e import leftovers
from tests.e2e import user as user_module
from tests.lab import errors
from tests.lab import wait

_FAIL = """
dmsetup load {0} --table "0 $(blockdev --getsz /dev/mapper/{0}) error"
dmsetup suspend --noflush {0}
dmsetup resume {0}
"""


class LostMetadataTest(base.E2ETest):
    """No guess is made, and all is well when the disk is back."""

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
        name = self.metadata(node)
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

    def test_disk_refuses_writes(self):
        """Its user is told; after a restart of the node all goes on."""
        volume_id, home, before = self.filled_volume()
        node = self.other(home)
        with self.slow_network(node):
            path = user_module.path(self.user.attach(volume_id, node))
            self.write(node, path, 20, 'one')
            expected = self.checksum_with(node, path, 40, 'two')
            node.run(_FAIL.format('cinder--volumes-' + self.metadata(
                node).replace('-', '--')))
            with self.assertRaises(errors.LabError):
                self.write(node, path, 40, 'two')
            wait.until(lambda: self.user.messages(volume_id), 'a message',
                       60)
            self.assertNotIn(' rw', self.clone_status(node, path))
            node.run('grep "its device has failed" '
                     '/var/log/lab/cinder-volume.log')
            self.assertIn('one', node.run(
                'dd if=%s bs=1M skip=20 count=1 iflag=direct status=none '
                '| head -c 3' % path))
            node.cut_power()
            node.start()
            node.wait_ready()
            self.write(node, path, 40, 'two')
        self.hydrated(volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(node, path))

    @staticmethod
    def metadata(node):
        """Return the name of the one clone's metadata."""
        name, = [lv for lv in leftovers.volumes(node) if 'metadata' in lv]
        return name

    def status_becomes(self, volume_id, status):
        wait.until(lambda: self.user.volume(volume_id)['status'] == status,
                   'volume %s to be %s' % (volume_id, status), 120)
