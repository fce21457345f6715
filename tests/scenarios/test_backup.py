# SPDX-License-Identifier: Apache-2.0
"""Backups by cinder-backup, which runs on one node."""

import sys
import time

from tests.scenarios.lib import backups
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations

# Seconds for which a request that needs a source waits for it, at least.
AWAY = 15


@slow
class BackupTest(backups.Backups, operations.Operations, base.HydratingTest):
    """A volume that has just moved is backed up."""

    #: A node deletes the snapshots that were backed up within a minute.
    TO_END = 180

    def setUp(self):
        super().setUp()
        # The volume leaves it, so it reads by iSCSI.
        self.node = self.run_backups()
        self.peer = self.other(self.node)
        if self.home(self.volume_id) is not self.node:
            with self.attached(self.volume_id, self.node):
                self.hydrated(self.volume_id)

    def test_backup_while_it_hydrates(self):
        with self.slow_network(self.peer, mbit=100):
            expected = self.attach_and_write()[1]
            self.user.detach_all(self.volume_id)
            made = self.backup(self.volume_id)
            self.assertNotEqual([], self.placeholders(self.volume_id))
        copy = self.restored(self.begin_restore(made['id']))
        self.assert_data(copy, expected)
        self.hydrated(self.volume_id)

    def test_backup_of_a_volume_in_use_that_hydrates(self):
        with self.slow_network(self.peer, mbit=100):
            path, expected = self.attach_and_write()
            made = self.backup(self.volume_id, force=True)
            self.assertNotEqual([], self.placeholders(self.volume_id))
            self.user.settled(self.volume_id, 'in-use')
            self.assertEqual(expected, self.checksum(self.peer, path))
        copy = self.restored(self.begin_restore(made['id']))
        self.assert_data(copy, expected)
        self.user.detach_all(self.volume_id)
        self.hydrated(self.volume_id)
        self.hydrated(copy)


@slow
class StatesTest(backups.Backups, operations.Operations, base.E2ETest):
    """Volumes at rest, with a snapshot elsewhere, and without a source."""

    #: A node looks for snapshots to delete each minute.
    TO_END = 180

    def setUp(self):
        super().setUp()
        self.near = self.run_backups()
        self.far = self.other(self.near)
        self.volume_id, self.before, self.moved = self.make(self.far)

    def incremental(self, **options):
        """Back the volume up, on top of its newest backup."""
        made = self.backup(self.volume_id, incremental=True, **options)
        self.assertTrue(made['is_incremental'], made)
        return made

    def test_at_rest_and_with_a_snapshot_elsewhere(self):
        full = self.backup(self.volume_id)
        self.move(self.volume_id, self.far)
        self.incremental()
        with self.attached(self.volume_id, self.far) as path:
            self.write(self.far, path, 30, 'two')
            self.incremental(force=True)
            self.user.settled(self.volume_id, 'in-use')
            frozen = self.checksum(self.far, path)
        snapshot_id = self.take_snapshot(self.volume_id)
        with self.attached(self.volume_id, self.near) as path:
            self.hydrated(self.volume_id)
            last = self.checksum_with(self.near, path, 40, 'three')
            self.write(self.near, path, 40, 'three')
            newest = self.incremental(force=True)
            self.user.settled(self.volume_id, 'in-use')
            self.assertEqual(last, self.checksum(self.near, path))
        # Read through a clone of the snapshot, which is on the other node.
        of_snapshot = self.backup(self.volume_id, snapshot_id=snapshot_id)
        copy = self.restored(self.begin_restore(newest['id']))
        self.assert_data(copy, last)
        self.restored(self.begin_restore(full['id'], copy))
        self.assert_data(copy, self.before)
        self.restored(self.begin_restore(of_snapshot['id'], self.volume_id))
        self.assert_data(self.volume_id, frozen)
        again = self.user.create_volume(snapshot_id=snapshot_id)
        self.assert_data(again['id'], frozen)

    def test_while_it_hydrates_and_its_source_is_down(self):
        """What needs the source waits for it, and then ends as usual."""
        full = self.backup(self.volume_id)
        whole, _, of_whole = self.make(self.far)
        while_down, _, _ = self.make(self.far)
        hydrating, _, _ = self.make(self.far)
        snapshot_id = self.take_snapshot(whole)
        with self.slow_network(self.near, mbit=100):
            self.move(hydrating, self.near)
            self.begin_restore(full['id'], hydrating)
            self.assertNotEqual([], self.placeholders(hydrating))
            self.assert_data(self.restored(hydrating), self.before)
        with self.slow_network(self.near):
            for volume_id in self.volume_id, whole, while_down:
                self.move(volume_id, self.near)
            incremental = self.begin_backup(self.volume_id, incremental=True)
            for volume_id in self.volume_id, whole, while_down:
                self.assertNotEqual([], self.placeholders(volume_id))
            with self.power_cut(self.far):
                refused = self.backup(whole, 'error', snapshot_id=snapshot_id)
                self.assertIn("can't be created from snapshot",
                              refused['fail_reason'])
                self.assertEqual('available',
                                 self.snapshot_status(snapshot_id))
                in_full = self.begin_backup(whole)
                self.begin_restore(full['id'], while_down)
                time.sleep(AWAY)
                for made in incremental, in_full:
                    self.assertEqual('creating',
                                     self.show_backup(made)['status'])
                # Only the first write to a part of a region waits.
                print('A restoration while the source is down: %s' %
                      self.user.volume(while_down)['status'], file=sys.stderr)
        self.assert_data(self.restored(while_down), self.before)
        for made, expected in (incremental, self.moved), (in_full, of_whole):
            self.backup_ended(made)
            self.assert_data(self.restored(self.begin_restore(made)), expected)
        for volume_id, expected in ((self.volume_id, self.moved),
                                    (whole, of_whole)):
            self.assert_data(volume_id, expected)
