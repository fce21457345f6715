# SPDX-License-Identifier: Apache-2.0
"""A volume follows its user."""

from tests.e2e import base
from tests.e2e import user as user_module


class TransferTest(base.E2ETest):
    """The main job."""

    def test_attach_at_home_exports_nothing(self):
        volume_id, home, checksum = self.filled_volume()
        attachment = self.user.attach(volume_id, home)
        self.assertEqual('local',
                         attachment['connection_info']['driver_volume_type'])
        self.assertEqual('', home.run(
            'tgtadm --op show --mode target; ls '
            '/sys/kernel/config/target/iscsi 2>/dev/null || true'))
        self.assertEqual(checksum, self.checksum(
            home, user_module.path(attachment)))

    def test_attach_away(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.attached(volume_id, other) as path:
            self.assertEqual(other, self.home(volume_id))
            self.assertEqual(checksum, self.checksum(other, path))
            expected = self.checksum_with(other, path, 50, 'moved')
            self.write(other, path, 50, 'moved')
            self.assertEqual(expected, self.checksum(other, path))
            self.hydrated(volume_id)
            self.assertIn('linear', self.clone_status(other, path))
            self.assertEqual(expected, self.checksum(other, path))
