# SPDX-License-Identifier: Apache-2.0
"""Snapshots and volumes from them, wherever both are."""

from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations
from tests.scenarios.lib import writers

# Seconds until a node looks for snapshots to delete, and deletes them.
TO_DELETE = 120


class Snapshots(operations.Operations, base.E2ETest):
    """A test with one snapshot at a time, whose methods need no ids."""

    snapshot_id = None

    def take_snapshot(self):
        self.snapshot_id = self.user.request('POST', '/snapshots', {
            'snapshot': {'volume_id': self.volume_id,
                         'force': True}})['snapshot']['id']
        self.addCleanup(self.delete_snapshot)
        wait.until(lambda: self.user.request(
            'GET', '/snapshots/' + self.snapshot_id)['snapshot'][
                'status'] == 'available', 'the snapshot', 30)

    def delete_snapshot(self):
        if self.snapshot_id:
            self.user.request('DELETE', '/snapshots/' + self.snapshot_id)
            wait.until(lambda: not self.lab.sql(
                "SELECT id FROM snapshots WHERE deleted = 0"),
                'the snapshot to be gone', 60)
            self.snapshot_id = None

    def revert(self):
        self.user.request('POST', '/volumes/%s/action' % self.volume_id, {
            'revert': {'snapshot_id': self.snapshot_id}})
        self.user.settled(self.volume_id, 'available', timeout=240)


class SnapshotsTest(Snapshots):
    """A volume moves away from its snapshot."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.old, self.before = self.filled_volume()
        self.new = self.other(self.old)
        self.take_snapshot()

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

    @slow
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

    @slow
    def test_reverted_wherever_the_volume_is(self):
        """At home, away, and back in another logical volume."""
        for node in (self.old, self.new, self.old):
            with self.attached(self.volume_id, node) as path:
                self.write(node, path, 3, 'later')
                self.assertNotEqual(self.before, self.checksum(node, path))
                self.hydrated(self.volume_id)
            self.revert()
            with self.attached(self.volume_id, node) as path:
                self.assertEqual(self.before, self.checksum(node, path))
        self.hydrated(self.volume_id)
        self.delete_snapshot()
        wait.until(lambda: not leftovers.volumes(self.new) and len(
            leftovers.volumes(self.old)) == 1, 'one logical volume',
            TO_DELETE)

    @slow
    def test_reverted_at_once(self):
        """It is written while it hydrates, and its snapshot deleted."""
        with self.attached(self.volume_id, self.new) as path:
            self.write(self.new, path, 3, 'later')
            self.hydrated(self.volume_id)
        with self.slow_network(self.new):
            self.revert()
            with self.attached(self.volume_id, self.new) as path:
                self.assertIn('clone', self.clone_status(self.new, path))
                expected = self.checksum_with(self.new, path, 5, 'at once')
                self.write(self.new, path, 5, 'at once')
                self.delete_snapshot()
                self.new.restart('cinder-volume')
                self.new.wait_ready()
                self.assertIn('clone', self.clone_status(self.new, path))
        self.hydrated(self.volume_id, timeout=240)
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(expected, self.checksum(self.new, path))
        wait.until(lambda: not leftovers.volumes(self.old) and len(
            leftovers.volumes(self.new)) == 1, 'one logical volume',
            TO_DELETE)

    @slow
    def test_moved_at_rest_by_the_command(self):
        """Cinder itself migrates no volume that has snapshots."""
        code, lines, err = self.command(self.new, 'move', self.volume_id,
                                        self.new.name)
        self.assertEqual((0, 3), (code, len(lines)), (lines, err))
        for part, line in zip((self.new.name + '@dmclone', 'the origin',
                               self.snapshot_id), lines):
            self.assertIn(part, line)
        self.assertEqual([('available', 'success')], [tuple(row) for row in (
            self.lab.sql("SELECT status, migration_status FROM volumes "
                         "WHERE id = '%s'" % self.volume_id))])
        code, lines, err = self.command(self.new, 'move', self.volume_id,
                                        self.new.name)
        self.assertEqual((1, []), (code, lines))
        self.assertIn('it is there already', err)
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(self.new, self.home(self.volume_id))
            self.assertEqual(self.before, self.checksum(self.new, path))
            self.write(self.new, path, 3, 'later')
            changed = self.checksum(self.new, path)
            self.hydrated(self.volume_id)
            self.assertEqual(changed, self.checksum(self.new, path))
        code, lines, err = self.program(self.old, 'reconcile',
                                        '--left-behind')
        self.assertEqual((0, 2), (code, len(lines)), (lines, err))
        copy = self.user.create_volume(snapshot_id=self.snapshot_id)
        with self.attached(copy['id'], self.new) as path:
            self.assertEqual(self.before, self.checksum(self.new, path))
        self.hydrated(copy['id'])
        self.delete_snapshot()
        self.nothing_left_behind()

    def move_with_snapshot(self, *options):
        """Run dmclone-move --with-snapshots; returns its lines."""
        code, lines, err = self.command(
            self.new, 'move', '--with-snapshots', *options, self.volume_id,
            self.new.name)
        self.assertEqual(1 if '--plan' in options else 0, code, err)
        return lines

    def follows(self):
        """Wait until the snapshot has followed to the new node."""
        wait.until(lambda: self.new.name + '@' in self.lab.sql(
            "SELECT provider_id FROM snapshots WHERE id = '%s'"
            % self.snapshot_id)[0][0], 'the snapshot to follow', 240)

    def volume_of_snapshot(self):
        """Compare a volume from the snapshot with what the volume had."""
        copy = self.user.create_volume(snapshot_id=self.snapshot_id)
        with self.attached(copy['id'], self.new) as path:
            self.assertEqual(self.before, self.checksum(self.new, path))
            self.hydrated(copy['id'], timeout=240)
        self.user.delete_volume(copy['id'])

    @slow
    def test_follows_its_volume(self):
        """The old node is empty then, and the snapshot of use on the new."""
        lines = self.move_with_snapshot('--plan')
        for part, line in zip(('the snapshots need 1 GiB', self.volume_id,
                               self.snapshot_id), lines, strict=True):
            self.assertIn(part, line)
        self.assertEqual(self.old, self.home(self.volume_id))
        self.move_with_snapshot()
        self.assertEqual(self.new, self.home(self.volume_id))
        with self.attached(self.volume_id, self.new) as path:
            self.write(self.new, path, 3, 'later')
            self.hydrated(self.volume_id)
            self.follows()
            self.nothing_left_behind()
            self.assertEqual([], self.move_with_snapshot())
            self.assert_unmanage_refused(self.snapshot_id)
            self.volume_of_snapshot()
        self.revert()
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(self.before, self.checksum(self.new, path))
        self.delete_snapshot()
        wait.until(lambda: len(leftovers.volumes(self.new)) == 1,
                   'the snapshot to be deleted', TO_DELETE)

    @slow
    def test_both_nodes_go_off_as_it_follows(self):
        """The copy goes on, and the snapshot follows in the end."""
        with self.slow_network(self.new):
            self.move_with_snapshot()
            for node in (self.new, self.old):
                node.cut_power()
                node.power_on()
                node.wait_ready()
            self.assertIn('is being copied', self.move_with_snapshot()[0])
        self.follows()
        self.nothing_left_behind()
        self.volume_of_snapshot()
        self.delete_snapshot()
        wait.until(lambda: len(leftovers.volumes(self.new)) == 1,
                   'the snapshot to be deleted', TO_DELETE)

    @slow
    def test_deleted_as_it_follows(self):
        with self.slow_network(self.new):
            self.move_with_snapshot()
            # Its row, and that of its source.
            rows = ("SELECT id FROM volumes WHERE deleted = 0 AND "
                    "snapshot_id = '%s'" % self.snapshot_id)
            self.assertEqual(2, len(self.lab.sql(rows)))
            self.delete_snapshot()
            wait.until(lambda: not self.lab.sql(rows),
                       'the copy to be given up', TO_DELETE)
        self.hydrated(self.volume_id, timeout=240)
        self.nothing_left_behind()

    @slow
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


@slow
class WhileHydratingTest(Snapshots, writers.Writers, base.HydratingTest):
    """A volume in use that hydrates: its snapshots, a clone, and its size."""

    def test_both_show_their_moments(self):
        with self.slow_network(self.peer):
            path, before = self.attach_and_write()
            self.take_snapshot()
            self.write(self.peer, path, 30, 'two')
            at_clone = self.checksum(self.peer, path)
            self.assertNotEqual(before, at_clone)
            self.assert_unmanage_refused(self.snapshot_id)
            clone = self.user.create_volume(2, source_volid=self.volume_id)
            self.write(self.peer, path, 30, 'three')
            self.write(self.peer, path, 40, 'three')
            now = self.checksum(self.peer, path)
            self.assertIn('clone', self.clone_status(self.peer, path))
            for change in (self.restart_service, self.reboot):
                change()
                self.assertEqual(now, self.checksum(self.peer, path))
        with self.attached(clone['id'], self.peer) as other:
            self.assertEqual(at_clone, self.checksum(self.peer, other))
            self.write(self.peer, other, 1500, 'beyond')
        self.hydrated(self.volume_id, timeout=240)
        self.hydrated(clone['id'], timeout=240)
        copy = self.user.create_volume(snapshot_id=self.snapshot_id)
        with self.attached(copy['id'], self.node) as other:
            self.assertEqual(before, self.checksum(self.node, other))
            self.hydrated(copy['id'], timeout=240)
        self.assertEqual(now, self.checksum(self.peer, path))
        self.delete_snapshot()
        wait.until(lambda: len(leftovers.volumes(self.peer)) == 2,
                   'the snapshot to be deleted', TO_DELETE)
        self.user.detach_all(self.volume_id)
        self.user.request('POST', '/volumes/%s/action' % self.volume_id, {
            'os-extend': {'new_size': 2}})
        self.user.settled(self.volume_id, 'available')

    def test_snapshot_is_deleted_and_the_volume_extended(self):
        with self.slow_network(self.peer):
            with self.attached(self.volume_id, self.peer) as path:
                with self.writing(self.peer, path, self.volume_id) as writer:
                    self.take_snapshot()
                    taken = self.snapshot_id
                    writer.goes_on()
                    self.delete_snapshot()
                    wait.until(lambda: not [
                        name for name in leftovers.volumes(self.peer)
                        if taken in name], 'the snapshot to be deleted',
                        TO_DELETE)
                self.assertIn('clone', self.clone_status(self.peer, path))
            self.user.request('POST', '/volumes/%s/action' % self.volume_id, {
                'os-extend': {'new_size': 2}})
            self.user.settled(self.volume_id, 'available')
            path = user_module.path(self.user.attach(self.volume_id,
                                                     self.peer))
            self.assertEqual(str(2 << 30), self.peer.run(
                'blockdev --getsize64 ' + path).strip())
            with self.writing(self.peer, path, self.volume_id) as again:
                self.assertGreater(again.last, writer.last)
                self.write(self.peer, path, 1500, 'beyond')
            self.assertIn('clone', self.clone_status(self.peer, path))
            self.reboot()
            self._compare_extended(path, again.last)
        self.hydrated(self.volume_id, timeout=240)
        self._compare_extended(path, again.last)

    def _compare_extended(self, path, acknowledged):
        self.compare(self.peer, path, self.volume_id, acknowledged)
        self.assertEqual('beyond', self.peer.run(
            'dd if=%s bs=1M skip=1500 count=1 iflag=direct status=none | '
            'head -c 6' % path).strip())

    def restart_service(self):
        self.peer.kill('cinder-volume')
        self.peer.start_service('cinder-volume')
        self.peer.wait_ready()

    def reboot(self):
        self.peer.cut_power()
        self.peer.start()
        self.peer.wait_ready()
