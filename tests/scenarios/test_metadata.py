# SPDX-License-Identifier: Apache-2.0
"""Move, crash and recovery with each kind of metadata."""

import contextlib

from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow


@slow
class MetadataTest(base.SetupTest):
    """A volume moves; services are killed, and the new home loses power."""

    def volume_away(self):
        """Attach a filled volume on another node, and write to it there.

        :returns: (volume id, its node, path, checksum)
        """
        volume_id, home, before = self.filled_volume()
        node = self.other(home)
        path = user_module.path(self.user.attach(volume_id, node))
        expected = self.checksum_with(node, path, 20, 'one')
        self.write(node, path, 20, 'one')
        return volume_id, node, path, expected

    def check_services(self, group):
        """Check that a volume hydrates if both services are killed."""
        volume_id, node, path, expected = self.volume_away()
        self.assertIn('dmclone-metadata-', node.run(
            'lvs --noheadings -o lv_name $(vgs --noheadings -o vg_name '
            '| grep %s)' % group))
        for each in self.lab.nodes.values():
            each.kill('cinder-volume')
        for each in self.lab.nodes.values():
            each.start_service('cinder-volume')
        for each in self.lab.nodes.values():
            each.wait_ready()
        self.assertEqual(expected, self.checksum(node, path))
        self.fast()
        self.hydrated(volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(node, path))
        self.end_volume(volume_id)

    def check_memory_is_lost(self):
        """Check that a volume without metadata is in error, and deletable."""
        volume_id, node, path, expected = self.volume_away()
        node.cut_power()
        node.start()
        node.wait_ready()
        wait.until(lambda: self.user.volume(volume_id)['status'] == 'error',
                   'volume %s to be in error' % volume_id, 60)
        self.assertTrue(self.user.messages(volume_id))
        self.assertTrue(self.placeholders(volume_id))
        self.assertEqual('', node.run('dmsetup ls | grep %s; true'
                                      % path.rpartition('/')[2]))
        self.end_volume(volume_id, timeout=120)

    def check_disk_is_kept(self):
        """Check that a clone continues to hydrate after a power cut."""
        volume_id, node, path, expected = self.volume_away()
        node.cut_power()
        node.start()
        node.wait_ready()
        self.fast()
        self.hydrated(volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(node, path))
        self.end_volume(volume_id)

    def check_kind(self, kind, group, then, **options):
        nodes = list(self.lab.nodes.values())
        with self.configured(dict(options, dmclone_metadata_backend=kind),
                             *nodes):
            for check in (lambda: self.check_services(group), then):
                with contextlib.ExitStack() as slow:
                    for node in nodes:
                        slow.enter_context(self.slow_network(node))
                    self.fast = slow.close
                    check()

    def check_memory(self, kind):
        self.check_kind(kind, 'clone-metadata-' + kind,
                        self.check_memory_is_lost,
                        dmclone_volatile_metadata='True',
                        dmclone_metadata_memory='32')

    def test_brd(self):
        self.check_memory('brd')

    def test_zram(self):
        self.check_memory('zram')

    def test_tmpfs(self):
        self.check_memory('tmpfs')

    def test_device(self):
        nodes = self.lab.nodes.values()
        for node in nodes:
            node.run('vgremove --yes cinder-metadata; pvremove /dev/ubdc')
        try:
            self.check_kind('device', 'clone-metadata-',
                            self.check_disk_is_kept,
                            dmclone_metadata_device='/dev/ubdc')
        finally:
            for node in nodes:
                node.run('vgremove --yes $(pvs --noheadings -o vg_name '
                         '/dev/ubdc); vgcreate cinder-metadata /dev/ubdc')
