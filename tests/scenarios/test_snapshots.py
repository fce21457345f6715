# SPDX-License-Identifier: Apache-2.0
"""Snapshots and volumes from them, wherever both are."""

from lab.common import leftovers
from lab import wait
from tests.scenarios.lib import base

# Seconds until a node looks for snapshots to delete, and deletes them.
TO_DELETE = 120


class SnapshotsTest(base.E2ETest):
    """A volume moves away from its snapshot."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.old, self.before = self.filled_volume()
        self.new = self.other(self.old)
        self.snapshot_id = self.user.request('POST', '/snapshots', {
            'snapshot': {'volume_id': self.volume_id}})['snapshot']['id']
        wait.until(lambda: self.user.request(
            'GET', '/snapshots/' + self.snapshot_id)['snapshot'][
                'status'] == 'available', 'the snapshot', 30)
        self.addCleanup(self.delete_snapshot)

    def delete_snapshot(self):
        if self.snapshot_id:
            self.user.request('DELETE', '/snapshots/' + self.snapshot_id)
            wait.until(lambda: not self.lab.sql(
                "SELECT id FROM snapshots WHERE deleted = 0"),
                'the snapshot to be gone', 60)
            self.snapshot_id = None

    def nothing_left_behind(self):
        wait.until(lambda: not leftovers.volumes(self.old),
                   'snapshot and origin to be deleted', TO_DELETE)

    def test_both_are_right(self):
        """The volume is changed on its new home; the snapshot is not."""
        with self.attached(self.volume_id, self.new) as path:
            self.write(self.new, path, 3, 'later')
            changed = self.checksum(self.new, path)
            self.hydrated(self.volume_id)
            wait.until(lambda: not self.placeholders(self.volume_id),
                       'the release of the source', 60)
            self.assertEqual(2, len(leftovers.volumes(self.old)))
            # On the volume's node, by Cinder's scheduler.
            copy = self.user.create_volume(snapshot_id=self.snapshot_id)
            self.assertEqual(self.new, self.home(copy['id']))
            with self.attached(copy['id'], self.new) as other:
                self.assertEqual(self.before, self.checksum(self.new, other))
            self.assertEqual(changed, self.checksum(self.new, path))
        self.hydrated(copy['id'])
        self.delete_snapshot()
        self.nothing_left_behind()

    def test_larger_volume_while_its_snapshot_is_deleted(self):
        """The volume is written at once, and its snapshot deleted."""
        with self.attached(self.volume_id, self.new):
            self.hydrated(self.volume_id)
        with self.slow_network(self.new):
            copy = self.user.create_volume(2, snapshot_id=self.snapshot_id)
            with self.attached(copy['id'], self.new) as path:
                self.assertIn('clone', self.clone_status(self.new, path))
                expected = self.checksum_with(self.new, path, 5, 'at once')
                self.write(self.new, path, 5, 'at once')
                self.write(self.new, path, 1500, 'beyond')
                self.delete_snapshot()
                self.assertEqual(expected, self.checksum(self.new, path))
                self.old.restart('cinder-volume')
                self.old.wait_ready()
                self.assertIn('clone', self.clone_status(self.new, path))
        self.hydrated(copy['id'], timeout=240)
        with self.attached(copy['id'], self.old) as path:
            self.assertEqual(expected, self.checksum(self.old, path))
            self.hydrated(copy['id'])
        self.user.delete_volume(copy['id'])
        self.nothing_left_behind()

    def test_node_of_the_snapshot_is_off(self):
        with self.attached(self.volume_id, self.new):
            self.hydrated(self.volume_id)
        self.old.cut_power()
        try:
            self.delete_snapshot()
        finally:
            self.old.power_on()
        self.old.wait_ready()
        self.nothing_left_behind()
