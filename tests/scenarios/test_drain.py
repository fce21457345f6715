# SPDX-License-Identifier: Apache-2.0
"""Draining a node: all its volumes move to another node."""

import concurrent.futures
import signal
import sys
import time

from lab.common import user as user_module
from lab.common import volumes as volumes_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib import drains
from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow

VOLUMES = 20
#: Maximum of attempts of an attachment, as by a user of Nova.
ATTEMPTS = 6


@slow
class DrainTest(base.SetupTest):
    """An attachment that times out does not prevent the next attempt."""

    TO_END = 300

    def setUp(self):
        super().setUp()
        self.old = self.lab.node('node1')
        self.new = self.other(self.old)

    def test_all_volumes_at_once(self):
        # Small volumes, so that the moves are measured, not the hydration.
        with self.configured({
                'volume_driver': 'tests.soak.driver.SmallVolumes'},
                self.old, self.new):
            self.create_volumes()
            self.move_volumes()
            for volume_id in self.volumes:
                self.end_volume(volume_id)

    def create_volumes(self):
        """Create all volumes on the node to drain."""
        service = ("UPDATE services SET disabled = %%d WHERE host = "
                   "'%s@dmclone'" % self.new.name)
        self.lab.sql(service % 1)
        try:
            self.volumes = [self.user.create_volume()['id']
                            for _ in range(VOLUMES)]
        finally:
            self.lab.sql(service % 0)

    def move_volumes(self):
        for volume_id in self.volumes:
            self.fill(self.old, '/dev/mapper/dmclone-' + volume_id, mib=1,
                      seed=volume_id)
        before = self.checksums()
        self.seconds = []
        with concurrent.futures.ThreadPoolExecutor(
                VOLUMES, initializer=self.lab.enter) as pool:
            tries = list(pool.map(self.attach, self.volumes))
        self.say(tries)
        for volume_id in self.volumes:
            self.assertEqual(self.new, self.home(volume_id))
            self.hydrated(volume_id, 600)
        self.assertEqual(before, self.checksums())

    def attach(self, volume_id):
        """Attach until that succeeds; returns the number of attempts.

        Like Nova, leaves the records of failed attempts.
        """
        user, instance = user_module.User(self.lab), user_module.uuid4()
        for attempt in range(1, ATTEMPTS + 1):
            begun = time.monotonic()
            try:
                user.attach(volume_id, self.new, instance)
                return attempt
            except user_module.ApiError as error:
                self.assertIn(error.status, (400, 409, 500, 504), error)
            finally:
                self.seconds.append(time.monotonic() - begun)
        self.fail('volume %s was not attached in %d attempts' % (
            volume_id, ATTEMPTS))

    def say(self, tries):
        """Print the figures, with which a drain can be planned."""
        print('%d volumes to one node at once: attempts %s, seconds per '
              'attempt %.0f to %.0f' % (
                  VOLUMES, sorted(tries), min(self.seconds),
                  max(self.seconds)), file=sys.stderr)

    def checksums(self):
        return [self.checksum(self.home(volume_id), self.path(volume_id), 1)
                for volume_id in self.volumes]

    def path(self, volume_id):
        (name_id,), = self.lab.sql(
            "SELECT COALESCE(_name_id, id) FROM volumes WHERE id = '%s'"
            % volume_id)
        return '/dev/mapper/dmclone-' + name_id


@slow
class CommandTest(drains.Drains, base.E2ETest):
    """Volumes that no instance uses, and nodes that die."""

    TO_END = 300

    def setUp(self):
        super().setUp()
        self.old = self.lab.node('node1')
        self.new = self.other(self.old)
        self.addCleanup(self.enable)

    def test_at_rest_hydrating_with_a_snapshot_and_in_error(self):
        plain, first = self.filled_on_old()
        kept, second = self.filled_on_old()
        snapshot = self.user.request('POST', '/snapshots', {'snapshot': {
            'volume_id': kept}})['snapshot']['id']
        wait.until(lambda: self.user.request(
            'GET', '/snapshots/' + snapshot)['snapshot']['status'] ==
            'available', 'the snapshot', 30)
        with self.created_on(self.new):
            hydrating, _home, third = self.filled_volume(mib=512)
        with self.created_on(self.old):
            broken = self.user.create_volume()['id']
        self.user.as_admin('POST', '/volumes/%s/action' % broken, {
            'os-reset_status': {'status': 'error'}})
        with self.slow_network(self.old, mbit=20):
            self.assertEqual(0, self.command(
                self.new, 'move', hydrating, self.old.name)[0])
            planned = self.drain('--plan', code=1)
            # Both services take new volumes.
            self.assertTrue(planned['first'])
            self.assertEqual({plain: ('move', 'to do'),
                              kept: ('move', 'to do'),
                              hydrating: ('move', 'to do'),
                              broken: ('stay', 'stays')},
                             self.states(planned))
            self.assertIs(self.old, self.home(plain))
            code, lines, err = self.command(self.new, 'dmclone', 'drain',
                                            self.old.name)
            self.assertEqual((1, []), (code, lines))
            self.assertIn('--disable', err)
            done = self.drain('--disable', code=1)
        self.assertEqual({plain: ('move', 'done'), kept: ('move', 'done'),
                          hydrating: ('move', 'done'),
                          broken: ('stay', 'stays')}, self.states(done))
        self.assertEqual([snapshot],
                         [each['id'] for each in done['snapshots']])
        self.user.as_admin('POST', '/volumes/%s/action' % broken, {
            'os-reset_status': {'status': 'available'}})
        # What is left, and then only the snapshot.
        done = self.drain('--wait', code=3)
        self.assertEqual({broken: ('move', 'done')}, self.states(done))
        self.assertEqual([], done['copies'])
        for volume_id, checksum, mib in ((plain, first, volumes_module.DATA),
                                         (kept, second, volumes_module.DATA),
                                         (hydrating, third, 512)):
            self.assertEqual([], self.placeholders(volume_id))
            self.assert_on_new(volume_id, checksum, mib)
        self.user.request('DELETE', '/snapshots/' + snapshot)
        wait.until(lambda: self.command(
            self.new, 'dmclone', 'drain', self.old.name)[0] == 0,
            'the snapshot to be gone', 60)

    def test_the_drained_node_dies(self):
        """What was not begun is done by the next run."""
        volume_id, checksum = self.filled_on_old()
        self.old.cut_power()
        code, lines, err = self.command(self.new, 'dmclone', 'drain',
                                        self.old.name, '--disable',
                                        timeout=300)
        self.assertEqual((1, []), (code, lines))
        self.assertIn('does not answer', err)
        self.assertIs(self.old, self.home(volume_id))
        self.old.power_on()
        self.old.wait_ready()
        done = self.drain('--wait')
        self.assertEqual({volume_id: ('move', 'done')}, self.states(done))
        self.assert_on_new(volume_id, checksum)

    def test_stopped_while_it_waits(self):
        volume_id, checksum = self.filled_on_old(mib=512)
        with self.slow_network(self.new, mbit=20):
            code, lines, err = self.command(
                self.new, 'dmclone', 'drain', self.old.name, '--disable',
                '--wait', '& drain=$!; sleep 90; kill $drain; wait $drain',
                timeout=300)
            self.assertEqual(128 + signal.SIGTERM, code, err)
            self.assertIn('needed: copy', '\n'.join(lines))
        self.assertEqual([], self.drain('--wait')['copies'])
        self.assert_on_new(volume_id, checksum, 512)


@slow
class InstancesTest(drains.Drains, live.LiveTest):
    """Volumes that instances use, and others, to wherever Nova chooses."""

    def test_attached_and_detached(self):
        server_id, console, (used,) = self.writing_server()
        self.old = self.home(used)
        self.new = self.other(self.old)
        self.addCleanup(self.enable)
        detached, checksum = self.filled_on_old()
        planned = self.drain('--plan', code=1)
        self.assertEqual({used: ('live-migrate', 'to do'),
                          detached: ('move', 'to do')}, self.states(planned))
        # Cinder's service, and Nova's.
        self.assertEqual(2, len(planned['first']))
        done = self.drain('--disable', '--wait', '--to', self.new.name)
        self.assertEqual({used: ('live-migrate', 'done'),
                          detached: ('move', 'done')}, self.states(done))
        self.assertEqual([], done['copies'])
        self.assertEqual('disabled', self.compute(self.servers)['status'])
        console.wait_writing(used, self.new.name)
        self.assertEqual([], console.complaints(used))
        self.assert_on_new(detached, checksum)
        self.check_after_delete(server_id, console, used)
