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


class ReconcileTest(base.E2ETest):
    """The program for what no row knows."""

    def reconcile(self, node, *options):
        """Return its exit code, and what it prints."""
        code, lines, err = self.program(node, 'reconcile', *options)
        return code, sorted(lines)

    def test_row_is_deleted_and_comes_back(self):
        volume_id, home, before = self.filled_volume()
        self.assertEqual((0, []), self.reconcile(home))
        row = "UPDATE volumes SET deleted = %d WHERE id = '%s'"
        self.lab.sql(row % (1, volume_id))
        handle = 'device dmclone-%s: ' % volume_id
        data = 'logical volume cinder-volumes/volume-%s: kept' % volume_id
        code, lines = self.reconcile(home)
        self.assertEqual((1, handle + 'can be removed'), (code, lines[0]))
        self.assertIn(data, lines[1])
        code, lines = self.reconcile(home, '--remove')
        self.assertEqual((1, handle + 'removed'), (code, lines[0]))
        self.assertIn(data, lines[1])
        code, lines = self.reconcile(home)
        self.assertEqual(1, len(lines))
        self.lab.sql(row % (0, volume_id))
        home.restart('cinder-volume')
        home.wait_ready()
        with self.attached(volume_id, home) as path:
            self.assertEqual(before, self.checksum(home, path))
        self.assertEqual((0, []), self.reconcile(home))
