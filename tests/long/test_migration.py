# SPDX-License-Identifier: Apache-2.0
"""Rarer ends of a move that is prepared."""

from lab import wait
from tests.e2e import base


class TwoAttachmentsTest(base.TwoAttachmentsTest):
    """A reboot, and a flush that waits at the gate."""

    def test_peer_reboots_and_the_old_attachment_goes(self):
        self.new.cut_power()
        self.new.start()
        self.new.wait_ready()
        self.write(self.old, self.old_path, 10, 'late')
        expected = self.checksum(self.old, self.old_path)
        self.user.detach(self.first['id'])
        self.assertEqual(self.new, self.home(self.volume_id))
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        self.hydrated(self.volume_id)

    def test_flush_before_the_new_attachment_goes(self):
        self.flush()
        self.user.detach(self.second['id'])
        self.end()
        self.assertEqual(self.old, self.home(self.volume_id))
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the destination to be removed', 60)
        self.assertNotIn('dmclone', self.new.run('dmsetup ls; lvs'))


class TargetTest(base.E2ETest):
    """The target's own service, which forgets what it serves."""

    def test_target_is_restarted_while_the_volume_hydrates(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.slow_network(other), self.attached(volume_id, other) as path:
            home.kill('tgtd')
            home.start_service('tgtd')
            # Some time until the initiator misses its source.
            wait.until(lambda: 'dmclone-' in home.run(
                'tgtadm --op show --mode target'),
                'the source to be served again', 120)
            self.assertEqual(checksum, self.checksum(other, path))
        self.hydrated(volume_id)
