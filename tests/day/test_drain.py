# SPDX-License-Identifier: Apache-2.0
"""A drain of a node with volumes of every kind; another node dies meanwhile.

The node that dies is the source of a volume that hydrates on the drained node,
and the destination of the first volumes that leave it.
"""

import concurrent.futures

from lab.common import volumes as volumes_module
from lab import wait
from tests.scenarios.lib import drains
from tests.scenarios.lib import live

#: MiB of data in the volume that hydrates; others have DATA.
MUCH = 512
#: GiB of a volume on the node that stays, so that the other one has more room
#: and gets the first volumes.
BALLAST = 8


class DrainTest(drains.Drains, live.LiveTest):
    """All data is there after the drain was run again."""

    TO_END = 300

    def setUp(self):
        super().setUp()
        nodes = list(self.lab.nodes.values())
        self.assertGreaterEqual(len(nodes), 3)
        self.old, self.new, self.dying = nodes[:3]
        self.addCleanup(self.delete_snapshots)
        self.addCleanup(self.enable)
        #: {volume id: (checksum, MiB)} of those that no instance has.
        self.expected = {}

    def filled(self, mib=volumes_module.DATA, **attributes):
        """Create a volume with data on the node to drain; returns its id."""
        volume_id, checksum = self.filled_on_old(mib, **attributes)
        self.expected[volume_id] = checksum, mib
        return volume_id

    def snapshot_of(self, volume_id):
        """Create a snapshot; returns its id."""
        path = '/snapshots'
        snapshot = self.user.request('POST', path, {'snapshot': {
            'volume_id': volume_id}})['snapshot']['id']
        wait.until(lambda: self.user.request('GET', '%s/%s' % (
            path, snapshot))['snapshot']['status'] == 'available',
            'the snapshot', 60)
        return snapshot

    def snapshots(self):
        return self.user.request('GET', '/snapshots')['snapshots']

    def delete_snapshots(self):
        """Delete what a failed test has left: volumes need that."""
        for each in self.snapshots():
            self.user.request('DELETE', '/snapshots/' + each['id'])
        wait.until(lambda: not self.snapshots(), 'all snapshots to be gone',
                   60)

    def reset(self, volume_id, status):
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id, {
            'os-reset_status': {'status': status}})

    def keep_instances_from(self, node):
        """Have Nova's scheduler choose another node, until the test ends."""
        self.addCleanup(self.set_compute, self.servers, node, 'enabled')
        self.set_compute(self.servers, node, 'disabled')

    def make_volumes(self):
        """Create volumes of every kind."""
        with self.created_on(self.new):
            self.user.create_volume(size=BALLAST)
        with self.created_on(self.old):
            self.server_id, self.console, (self.used,) = (
                self.writing_server())
        self.filled()
        self.filled()
        self.user.encrypted_type('luks')
        self.filled(volume_type='luks')
        kept = self.filled()
        self.snapshot = self.snapshot_of(kept)
        self.sick = self.filled()
        self.reset(self.sick, 'error')
        with self.created_on(self.dying):
            self.hydrating, home, checksum = self.filled_volume(MUCH)
        self.assertIs(self.dying, home)
        self.expected[self.hydrating] = checksum, MUCH

    def homes(self):
        """Return the homes of the volumes that no instance has."""
        return [self.home(volume_id) for volume_id in self.expected]

    def drain_while_one_dies(self):
        """Run the drain; cut the power of the node with the first volume.

        :returns: the document that describes the drain
        """
        with concurrent.futures.ThreadPoolExecutor(
                1, initializer=self.lab.enter) as pool:
            drain = pool.submit(self.drain, '--disable', '--parallel', '1',
                                code=1, timeout=1200)
            wait.until(lambda: drain.done() or self.dying in self.homes(),
                       'a volume to be on %s' % self.dying.name, 180, 0.3)
            if drain.done():
                self.fail('the drain is over: %s' % drain.result())
            self.dying.cut_power()
            return drain.result()

    def test_another_node_dies_in_the_middle(self):
        self.make_volumes()
        self.keep_instances_from(self.dying)
        with self.slow_network(self.old, mbit=20):
            self.assertEqual(0, self.command(
                self.new, 'move', self.hydrating, self.old.name)[0])
            self.assertEqual({self.old}, set(self.homes()))
            first = self.states(self.drain_while_one_dies())
            self.assertEqual(('stay', 'stays'), first.pop(self.sick))
            # What does not need the dead node has left.
            self.assertEqual(('live-migrate', 'done'), first.pop(self.used))
            self.assertEqual(set(self.expected) - {self.sick}, set(first))
            self.assertLessEqual(set(first.values()), {
                ('move', 'done'), ('move', 'failed')})
            self.dying.power_on()
            self.dying.wait_ready()
        self.end_drain()
        self.compare_all()

    def drain_again(self):
        """Run the drain once more; return whether it has met no obstacle."""
        again = self.drain('--wait', code=1)
        self.assertEqual([], again['copies'])
        states = self.states(again)
        self.assertEqual(('stay', 'stays'), states.pop(self.sick))
        return {state for _action, state in states.values()} <= {'done'}

    def end_drain(self):
        """Run the drain again until only the snapshot is left."""
        # A move that had begun may have to be aborted first.
        wait.until(self.drain_again, 'what had failed to be drained', 900)
        self.assertEqual([self.sick], [
            volume_id for volume_id in self.expected
            if self.home(volume_id) is self.old])
        self.reset(self.sick, 'available')
        last = self.drain('--wait', code=3)
        self.assertEqual({self.sick: ('move', 'done')}, self.states(last))
        self.assertEqual([self.snapshot],
                         [each['id'] for each in last['snapshots']])
        self.user.request('DELETE', '/snapshots/' + self.snapshot)
        wait.until(lambda: self.command(
            self.new, 'dmclone', 'drain', self.old.name)[0] == 0,
            'the snapshot to be gone', 60)

    def compare_all(self):
        """Compare all data with what it was before the drain."""
        self.assertNotIn(self.old, self.homes())
        for volume_id, (checksum, mib) in self.expected.items():
            self.assertEqual([], self.placeholders(volume_id))
            home = self.home(volume_id)
            with self.attached(volume_id, home) as path:
                self.assertEqual(checksum, self.checksum(home, path, mib),
                                 volume_id)
        self.console.wait_writing(self.used, self.new.name)
        self.assertEqual([], self.console.complaints(self.used))
        self.check_after_delete(self.server_id, self.console, self.used)
