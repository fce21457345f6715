# SPDX-License-Identifier: Apache-2.0
"""Rarer ways to set a backend up."""

from tests.e2e import base


class SetupTest(base.SetupTest):
    """Other places for what a transfer needs."""

    def test_metadata_in_another_group(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        options = {'dmclone_metadata_volume_group': 'cinder-metadata',
                   'dmclone_region_size': '4'}
        with self.slow_network(other):
            with self.configured(options, other):
                with self.attached(volume_id, other) as path:
                    self.assertIn('dmclone-metadata', other.run(
                        'lvs --noheadings -o lv_name cinder-metadata'))
                    self.assertIn(' 8 ', self.clone_status(other, path))
                    self.assertEqual(checksum, self.checksum(other, path))
            # The option is back to its default: what is under way is not
            # confused by that.
            with self.attached(volume_id, other) as path:
                self.assertEqual(checksum, self.checksum(other, path))
        self.hydrated(volume_id)
