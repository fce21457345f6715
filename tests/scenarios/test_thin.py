# SPDX-License-Identifier: Apache-2.0
"""Thin volumes: nodes with lvm_type = thin, alone and beside thick ones."""

import contextlib
import json

from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from lab.common import pools
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios import test_snapshots

MIB, GIB = 2 ** 20, 2 ** 30


class ThinTest(test_snapshots.Snapshots, base.SetupTest):
    """Nodes whose pool is made for the test, and removed at its end."""

    def thin(self, *nodes):
        """Have nodes make thin volumes meanwhile."""
        return pools.on(nodes, self.end)

    def end(self):
        self.delete_snapshot()
        self.end_volumes()

    def create(self, **attributes):
        """Create a volume on the first node, and write a part of it."""
        self.old = self.lab.node('node1')
        self.new = self.other(self.old)
        with self.created_on(self.old):
            self.volume_id, home, self.before = self.filled_volume(
                **attributes)
        self.assertIs(self.old, home)

    def is_thin(self, node):
        """Whether the only logical volume of a volume there is thin."""
        size, = pools.volumes(node).values()
        return size is not None

    def move(self):
        """Attach it away, write there, and wait until it is complete."""
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(self.before, self.checksum(self.new, path))
            self.before = self.checksum_with(self.new, path, 20, 'away')
            self.write(self.new, path, 20, 'away')
        self.hydrated(self.volume_id)
        wait.until(lambda: not pools.volumes(self.old),
                   'the source to be deleted', 60)
        self.compare(self.volume_id)

    def compare(self, volume_id):
        """Compare the data of a volume at its home."""
        with self.attached(volume_id, self.new) as path:
            self.assertEqual(self.before, self.checksum(self.new, path))

    def test_move(self):
        with self.thin(*self.lab.nodes.values()):
            self.create()
            size, = pools.volumes(self.old).values()
            self.assertIn(size // MIB, range(60, 200))
            self.move()
            self.assertTrue(self.is_thin(self.new))
            there, = pools.volumes(self.new).values()
            # What was written there may need a block.
            self.assertLessEqual(there, 1.1 * size + MIB)

    @slow
    def test_larger_than_the_pool(self):
        """What is allocated fits."""
        nodes = list(self.lab.nodes.values())
        with self.thin(*nodes):
            self.create(size=1 + max(map(pools.size, nodes)) // GIB)
            self.move()

    @slow
    def test_snapshots_after_a_move(self):
        """A revert, a volume from the snapshot, and one from the volume."""
        with self.thin(*self.lab.nodes.values()):
            self.create()
            self.move()
            self.take_snapshot()
            with self.attached(self.volume_id, self.new) as path:
                self.write(self.new, path, 3, 'later')
                self.assertNotEqual(self.before,
                                    self.checksum(self.new, path))
            self.revert()
            self.compare(self.volume_id)
            with self.created_on(self.new):
                copies = [self.user.create_volume(**source)['id'] for source in
                          ({'snapshot_id': self.snapshot_id},
                           {'source_volid': self.volume_id})]
            for copy in copies:
                self.assertIs(self.new, self.home(copy))
                self.compare(copy)
                self.assertEqual([], self.placeholders(copy))
            self.assertNotIn(None, pools.volumes(self.new).values())
            self.delete_snapshot()

    @slow
    def test_thin_to_thick(self):
        with self.thin(self.lab.node('node1')):
            self.create()
            self.assertTrue(self.is_thin(self.old))
            self.move()
            self.assertFalse(self.is_thin(self.new))

    @slow
    def test_thick_to_thin(self):
        with self.thin(self.other(self.lab.node('node1'))):
            self.create()
            self.assertFalse(self.is_thin(self.old))
            self.move()
            self.assertTrue(self.is_thin(self.new))

    @slow
    def test_pool_that_is_refused(self):
        """Thick volumes are used, and thin ones are without a restart."""
        self.old = self.lab.node('node1')
        with self.created_on(self.old):
            thick, _home, of_thick = self.filled_volume()
        with self.thin(self.old):
            self.create()
            handle = Names(self.volume_id).of(HANDLE)
            with pools.refused(self.old, handle):
                with self.attached(thick, self.old) as path:
                    self.assertEqual(of_thick, self.checksum(self.old, path))
                log = self.old.log('cinder-volume')
                self.assertIn('Thin pool %s cannot be activated: ' %
                              pools.POOL, log)
                self.assertIn('Recovering volume %s failed' % self.volume_id,
                              log)
                self.assertNotIn(handle, self.old.run('ls /dev/mapper'))
                code, lines, _error = self.command(self.old, 'dmclone',
                                                   'status')
                self.assertEqual(0, code, lines)
            wait.until(lambda: handle in self.old.run('ls /dev/mapper'),
                       'the volume to have its device', 360)
            with self.attached(self.volume_id, self.old) as path:
                self.assertEqual(self.before, self.checksum(self.old, path))

    def arriving(self):
        """Return what the move waits for, as "dmclone status" says it."""
        _code, lines, _error = self.command(
            self.old, 'dmclone', 'status', '--format', 'json')
        return [each['waits'] for node in json.loads('\n'.join(lines))
                for each in node['Arriving'] or ()]

    @slow
    def test_no_room(self):
        """The copy stops, the guest writes, and the copy goes on.

        The whole pool becomes its reserve while the volume hydrates.
        """
        nodes = list(self.lab.nodes.values())
        with self.thin(*nodes):
            self.create()
            with self.slow_network(self.new):
                path = user_module.path(
                    self.user.attach(self.volume_id, self.new))
                with self.reserve_of(self.new, 100):
                    wait.until(lambda: self.arriving() == ['room'],
                               'the copy to wait for room', 90)
                    self.assertIn('no_hydration',
                                  self.clone_status(self.new, path))
                    self.assertNotEqual(
                        [], self.user.messages(self.volume_id))
                    expected = self.checksum_with(self.new, path, 20, 'full')
                    self.write(self.new, path, 20, 'full')
                    self.assertEqual(expected, self.checksum(self.new, path))
            self.hydrated(self.volume_id)
            self.assertEqual(expected, self.checksum(self.new, path))

    @contextlib.contextmanager
    def reserve_of(self, node, percentage):
        """Have a thin node keep another reserve meanwhile."""
        usual = self.lab.settings.mode
        options = {'lvm_type': 'thin', 'reserved_percentage': str(percentage)}
        self._configure({'dmclone': options}, [node], usual)
        try:
            yield
        finally:
            del options['reserved_percentage']
            self._configure({'dmclone': options}, [node], usual)
