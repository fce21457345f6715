# SPDX-License-Identifier: Apache-2.0
"""Volumes from snapshots that move on before they were written."""

from unittest import mock

import ddt

from dmclone_driver import exception
from dmclone_driver.move import copy_records
from dmclone_driver.move import lookups
from dmclone_driver.move import lost_node
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move import records
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots


class BypassTestCase(test_snapshots.SnapshotsTestCase):
    """A volume on the second node, from a snapshot on the first."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()
        self.taken = self.snapshot()
        self.made = self.copy(self.taken, self.b)

    def path(self):
        return Names(self.cloud.row(self.made.id).name_id).path()

    def move(self, volume=None, node=None):
        """Attach the volume on a node, and detach it."""
        volume = volume or self.made
        path = self.cloud.attach(volume, node or self.c)
        self.cloud.detach(volume, node or self.c)
        self.cloud.settle()
        return path

    def sources(self, volume=None):
        """Return the backends of the volume's sources, nearest first."""
        return [each.backend for each in lookups.chain(
            self.context, lookups.placeholder(self.context, self.cloud.row(
                (volume or self.made).id).name_id))]

    def readers(self, snapshot=None):
        return self.snapshot_lv(snapshot or self.taken).readers

    def assertBypassed(self, node=None):
        """Check that the volume reads from the snapshot alone."""
        node = node or self.c
        self.assertEqual([self.a.host], self.sources())
        source, = map(Placeholder, self.cloud.placeholders())
        self.assertEqual({source.name_id}, self.readers())
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual({}, self.b.kernel.disks)
        if node is not self.a:
            disk, = node.kernel.disks
            self.assertIn(source.name_id, disk)

    def assertComplete(self, node=None):
        """Let everything end; check that nothing is left."""
        self.cloud.watch(6)
        self.assertEqual((node or self.c).pool,
                         self.cloud.row(self.made.id).host)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(set(), self.readers())
        self.delete_snapshot(self.taken)
        self.minute()
        self.assertEqual([], self.cloud.leftovers())


@ddt.ddt
class UnwrittenTestCase(BypassTestCase):

    def test_moves_on(self):
        self.move()
        self.assertBypassed()
        self.assertComplete()

    def test_moves_on_twice(self):
        self.move()
        self.move(node=self.b)
        self.assertEqual([self.a.host], self.sources())
        self.assertEqual(1, len(self.cloud.placeholders()))
        self.assertEqual([], self.c.lvm.names())
        self.assertComplete(self.b)

    def test_to_the_node_of_the_snapshot(self):
        """It reads without iSCSI."""
        self.move(node=self.a)
        self.assertBypassed(self.a)
        self.assertEqual({}, self.a.kernel.disks)
        self.assertComplete(self.a)

    def test_from_the_node_of_the_snapshot(self):
        made = self.copy(self.taken, self.a)
        self.move(made)
        self.assertEqual([self.a.host], self.sources(made))
        self.assertNotIn('volume-' + made.name_id, self.a.lvm.names())
        self.delete(made)
        self.cloud.watch(2)
        self.assertComplete(self.b)

    def test_live_migration(self):
        self.cloud.attach(self.made, self.b)
        path = self.cloud.attach(self.made, self.c)
        self.cloud.detach(self.made, self.b)
        self.cloud.settle()
        self.assertBypassed()
        self.c.kernel.write(path)
        self.assertComplete()

    def test_snapshot_is_deleted_meanwhile(self):
        """It stays until the volume is complete."""
        self.delete_snapshot(self.taken)
        self.move()
        self.assertBypassed()
        self.minute()
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    def test_deleted(self):
        self.move()
        self.delete(self.made)
        self.cloud.watch(2)
        self.assertEqual(set(), self.readers())
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.c.lvm.names())

    def test_after_a_reboot(self):
        self.move()
        self.c.reboot()
        self.c.start()
        self.cloud.watch(hydrate=False)
        self.assertBypassed()
        self.assertComplete()


@ddt.ddt
class ChainTestCase(BypassTestCase):
    """The old home is needed."""

    def assertChain(self, *hosts):
        self.assertEqual(list(hosts) or [self.b.host, self.a.host],
                         self.sources())
        self.assertComplete()

    def test_written(self):
        self.b.kernel.write(self.path())
        self.move()
        self.assertChain()

    def test_partly_copied(self):
        """Whether it was written cannot be seen any longer."""
        self.b.kernel.get(self.path()).clone.bitmap['hydrated'] = 1
        self.move()
        self.assertChain()

    def test_larger_than_the_snapshot(self):
        self.delete(self.made)
        self.made = self.copy(self.taken, self.b, size=2)
        self.move()
        self.assertChain()

    def test_has_a_snapshot(self):
        """Its origin is the old home."""
        mine = self.snapshot(self.made)
        self.move()
        self.assertEqual([self.b.host, self.a.host], self.sources())
        self.delete_snapshot(mine)
        self.minute()
        self.assertComplete()

    @ddt.data(exception.PeerTooOld(host='b', call='is_unwritten'),
              exception.PeerUnreachable(host='b', call='is_unwritten',
                                        seconds=10))
    def test_no_answer(self, error):
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.is_unwritten',
                        side_effect=error):
            self.move()
        self.assertChain()

    def test_snapshot_is_on_a_node_that_is_down(self):
        self.a.stop()
        self.move()
        self.assertEqual([self.b.host, self.a.host], self.sources())
        self.a.start()
        self.assertComplete()

    def test_source_is_no_snapshot(self):
        other = self.a.create()
        for node in (self.b, self.c):
            self.move(other, node)
        self.assertEqual([self.b.host, self.a.host], self.sources(other))
        self.delete(other)
        self.assertComplete(self.b)

    def test_not_sealed(self):
        placeholder_id, = [row.id for row in self.cloud.placeholders()]
        with self.cloud.on(self.b):
            self.assertIs(False, self.b.source.is_unwritten(
                self.context, placeholder_id))


@ddt.ddt
class FailuresTestCase(BypassTestCase):
    """The work is interrupted, and continued."""

    def interrupted(self, path):
        """Move the volume while something fails."""
        with mock.patch('dmclone_driver.move.' + path,
                        side_effect=OSError('injected')):
            self.move()
        self.assertEqual(3, len(self.cloud.placeholders()))
        self.assertEqual([self.b.host, self.a.host], self.sources())

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_continues(self, path):
        self.interrupted(path)
        self.cloud.watch(2, hydrate=False)
        self.assertBypassed()
        self.assertComplete()

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_all_nodes_reboot(self, path):
        self.interrupted(path)
        for node in self.cloud.nodes.values():
            node.reboot()
        for node in self.cloud.nodes.values():
            node.start()
        self.cloud.watch(3, hydrate=False)
        self.assertBypassed()
        self.assertComplete()

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_deleted(self, path):
        self.interrupted(path)
        self.delete(self.made)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(set(), self.readers())
        for node in (self.b, self.c):
            self.assertEqual(([], {}, {}), (
                node.lvm.names(), node.kernel.of_volumes(), node.kernel.disks))

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_complete_by_writes(self, path):
        """The guest writes everything before the copy can begin."""
        self.interrupted(path)
        clone = self.c.kernel.get(self.path()).clone
        clone.bitmap['hydrated'] = clone.total
        self.assertComplete()

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_snapshot_is_counted(self, path):
        """It is deleted, and the old home's node restarts."""
        self.interrupted(path)
        self.delete_snapshot(self.taken)
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        with self.cloud.on(self.a):
            self.a.parts.snapshots.delete_later_ones(self.context)
        self.assertNotEqual(set(), self.readers())
        self.cloud.watch(2, hydrate=False)
        self.assertBypassed()
        self.minute()
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.leftovers())

    @ddt.data('builder.Builder.reconnect', 'bypass.Bypass.end')
    def test_old_home_is_lost(self, path):
        """The database still says that the volume needs it."""
        self.interrupted(path)
        self.b.die()
        with self.cloud.on(self.c):
            list(lost_node.LostNode(self.c.backend, self.c.requests,
                                    'node2').run(self.context, do_it=True))
        self.cloud.watch(2)
        self.assertEqual('error', self.cloud.row(self.made.id).status)
        self.delete(self.made)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(set(), self.readers())

    def test_row_that_was_recreated(self):
        """It may stand for another source."""
        source, = [each.id for each in self.cloud.placeholders()]
        with mock.patch('dmclone_driver.move.activation.Activation.hydrate',
                        return_value=False):
            self.move()
        nearest, = [each.id for each in self.cloud.placeholders()
                    if each.id != source]
        self.assertIs(True, copy_records.begin_bypass(
            self.context, nearest, source, False))
        records.destroy(self.context, placeholders.derived_id(nearest,
                                                              'reader'))
        self.assertIs(False, copy_records.begin_bypass(
            self.context, nearest, source, False))
        self.assertIs(False, copy_records.bypass(self.context, nearest))

    def test_source_that_does_not_answer(self):
        """The clone keeps it; no request is lost."""
        with mock.patch('dmclone_driver.node.devicemapper.dmsetup.swap',
                        return_value=swap.WAITS):
            self.move()
        self.assertEqual([self.b.host, self.a.host], self.sources())
        self.cloud.watch(2, hydrate=False)
        self.assertBypassed()
        self.assertComplete()

    def _move_later(self, volume):
        """Move the volume; its hydration has not begun."""
        with mock.patch('dmclone_driver.move.activation.Activation.hydrate',
                        return_value=False):
            self.move(volume)

    def _hydrate(self, volume):
        self.cloud.pass_time(1000)
        self.c.look()
        self.cloud.settle()

    @ddt.data({'after': True}, {'killed': True})
    def test_each_step(self, fault):
        """After a failure the volume has one source, or still a chain."""
        self.delete(self.made)
        self.a.create = lambda: self.copy(self.taken, self.b)
        for step, volume, _error in self.each_step(
                self._hydrate, self._move_later, **fault):
            for node in self.cloud.nodes.values():
                if fault.get('killed'):
                    node.stop()
                    node.start()
            self.cloud.watch(2, hydrate=False)
            self.assertIn(self.sources(volume), (
                [self.a.host], [self.b.host, self.a.host]), step)
            self.assertEqual(1, len(self.readers()), step)
        self.assertEqual(set(), self.readers())
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual([], self.c.lvm.names())


class EvidenceTestCase(BypassTestCase):

    def test_tags(self):
        """What was extended, or is an origin, is not all in the clone."""
        self.cloud.attach(self.made, self.c)
        self.cloud.settle()
        self.assertBypassed()
        source = self.cloud.placeholders()[0]
        with self.cloud.on(self.a):
            self.assertIs(False, self.a.source.is_unwritten(self.context,
                                                            source.id))
            self.assertIs(False, self.a.source.is_unwritten(self.context,
                                                            self.made.id))

    def test_extended_before_it_moved(self):
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.cloud.row(self.made.id), 2)
        lv = self.lv(self.b, 'volume-' + self.made.name_id)
        self.assertEqual(storage.GIB, lv.cloned)
        self.assertIn(logical_volumes.CLONED_TAG + str(storage.GIB), lv.tags)
        self.move()
        self.assertEqual([self.b.host, self.a.host], self.sources())
        self.assertComplete()
