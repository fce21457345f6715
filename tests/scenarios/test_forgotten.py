# SPDX-License-Identifier: Apache-2.0
"""A lost node, and a database without the last move of a volume."""

import re

from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations


@slow
class LostNodeTest(operations.Operations, base.E2ETest):
    """A node's power is cut, and an operator runs forget_node."""

    def bring(self, node):
        """Create a filled volume with its home on a node; returns its id."""
        volume_id, home, before = self.filled_volume()
        if home is not node:
            with self.attached(volume_id, node):
                self.hydrated(volume_id)
        return volume_id

    def forget(self, *options):
        return self.program(self.live, 'forget_node', self.lost.name,
                            *options)

    def test_node_is_forgotten_and_comes_back(self):
        idle, self.lost, before = self.filled_volume()
        self.live = self.other(self.lost)
        moving, staying = self.bring(self.lost), self.bring(self.live)
        instance = user_module.uuid4()
        self.user.attach(staying, self.live, instance)
        with self.slow_network(self.live):
            path = user_module.path(self.user.attach(moving, self.live))
            self.write(self.live, path, 20, 'one')
            prepared = self.user.attach(staying, self.lost, instance)
            self.lost.cut_power()
        code, lines, said = self.forget('--do-it')
        self.assertEqual((1, []), (code, lines))
        self.assertIn('sent a heartbeat lately', said)
        self.forget_when_down()
        self.look_at_what_is_left(idle, moving, staying, path)
        self.user.delete_volume(idle)
        self.user.detach_all(moving)
        self.user.settled(moving, 'available', 'error')
        self.refused_without_its_data(moving)
        self.user.delete_volume(moving)
        self.user.detach(prepared['id'])
        wait.until(lambda: not self.exports(self.live),
                   'the export to be removed', 90)
        (name_id,), = self.lab.sql(
            "SELECT COALESCE(_name_id, id) FROM volumes WHERE id = '%s'"
            % staying)
        self.assertEqual(['volume-' + name_id], leftovers.volumes(self.live))
        self.come_back()

    def forget_when_down(self):
        wait.until(lambda: self.forget()[1],
                   'the service to count as down', 120)
        code, said, err = self.forget()
        self.assertEqual((1, 3), (code, len(said)), said)
        code, done, err = self.forget('--do-it')
        self.assertEqual((0, [line.replace('to do', 'done', 1)
                              for line in said]), (code, done))
        self.assertEqual((0, []), self.forget()[:2])

    def look_at_what_is_left(self, idle, moving, staying, path):
        """Hydrated regions can be read, other reads fail at once."""
        self.assertEqual('error', self.user.volume(idle)['status'])
        for volume_id in idle, moving:
            self.assertTrue(self.user.messages(volume_id))
        self.assertEqual('one', self.live.run(
            'dd if=%s bs=1M skip=20 count=1 iflag=direct status=none | '
            'head -c 3' % path))
        self.assertNotEqual(0, self.live.try_run(
            'dd if=%s of=/dev/null bs=1M iflag=direct' % path, 60)[0])
        self.assertEqual([], self.placeholders(staying))
        self.assertIs(self.live, self.home(staying))

    def refused_without_its_data(self, volume_id):
        """Nothing is made that would lack part of a volume's data."""
        self.reset(volume_id)
        self.extend(volume_id, 'error_extending')
        self.assertEqual(1, self.user.volume(volume_id)['size'])
        self.reset(volume_id)
        snapshot_id = self.user.request('POST', '/snapshots', {
            'snapshot': {'volume_id': volume_id}})['snapshot']['id']
        wait.until(lambda: self.snapshot_status(snapshot_id) != 'creating',
                   'the refusal', 60)
        self.assertEqual('error', self.snapshot_status(snapshot_id))
        self.user.delete_snapshot(snapshot_id)
        clone_id = self.user.request('POST', '/volumes', {'volume': {
            'size': 1, 'source_volid': volume_id}})['volume']['id']
        self.user.settled(clone_id, 'error', timeout=120)
        self.user.delete_volume(clone_id)

    @staticmethod
    def exports(node):
        return node.run('dmsetup ls | grep -e -export || true')

    def come_back(self):
        """Start the lost node: it keeps its data, without devices."""
        self.lost.start()
        self.lost.wait_ready()
        kept = [name for name in leftovers.volumes(self.lost)
                if name.startswith('volume-')]
        self.assertEqual(3, len(kept))
        self.assertEqual([], [
            line for line in leftovers.devices(self.lost).splitlines()
            if 'metadata' not in line])
        lines = self.program(self.lost, 'reconcile', '--remove')[1]
        self.assertEqual(3, sum(line.startswith('logical volume ') and
                                '/volume-' in line for line in lines))
        # Another node may read the source; the line says what to do if not.
        kept, = [line for line in lines if line.startswith('target ')]
        self.lost.run(re.search('run "(.*?)"', kept)[1])
        self.program(self.lost, 'reconcile', '--remove')
        self.lost.run('lvremove --yes cinder-volumes')
        self.lost.run('iscsiadm -m node -o delete || true')


@slow
class ForgetfulDatabaseTest(base.HydratingTest):
    """The database is restored to the state before a volume's move."""

    def test_switchover_is_repeated(self):
        row, = self.lab.sql(
            "SELECT host, provider_id, service_uuid, availability_zone FROM "
            "volumes WHERE id = '%s'" % self.volume_id)
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            name_id, = self.placeholders(self.volume_id)
            self.lab.sql(
                "UPDATE volumes SET _name_id = NULL, host = '%s', "
                "provider_id = '%s', service_uuid = '%s', "
                "availability_zone = '%s' WHERE id = '%s'" % (
                    *row, self.volume_id))
            self.lab.sql("UPDATE volumes SET deleted = 1 WHERE id = '%s'"
                         % name_id)
            self.peer.cut_power()
            self.peer.start()
            self.peer.wait_ready()
            self.assertNotIn('dmclone-' + name_id,
                             self.peer.run('dmsetup ls'))
            self.assertIn('has moved from it', self.named(self.node))
            self.assertIn('is the home of volume ' + self.volume_id,
                          self.named(self.peer))
            said = self.restore(1)
            self.assertEqual(self.node, self.home(self.volume_id))
            self.assertEqual(said.replace('to do', 'done', 1),
                             self.restore(0, '--do-it'))
            self.assertEqual(self.peer, self.home(self.volume_id))
            self.peer.restart('cinder-volume')
            self.peer.wait_ready()
            self.assertEqual(expected, self.checksum(self.peer, path))
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.peer, path))

    def named(self, node):
        """Return reconcile's line about a node's logical volume."""
        line, = [line for line in self.program(node, 'reconcile')[1]
                 if '/volume-' in line]
        return line

    def restore(self, expected, *options):
        code, (line,), err = self.program(
            self.peer, 'reconcile', '--restore', self.volume_id, *options)
        self.assertEqual(expected, code)
        return line


@slow
class ReconcileTest(base.E2ETest):
    """The command reconcile, with a deleted row."""

    def reconcile(self, node, *options):
        """Return the command's exit code and its lines."""
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
