# SPDX-License-Identifier: Apache-2.0
"""Thin volumes, their snapshots and their pool, with LVM on a real kernel."""

import uuid

from dmclone_driver.move import reserve
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import thin_pools
from lab.common import clones
from tests.functional import base

SIZE = 8 * clones.MIB
POOL = thin_pools.name_of(clones.GROUP)


class ThinTest(base.FunctionalTest):

    def setUp(self):
        super().setUp()
        clones.run('lvcreate', '--yes', '--type', 'thin-pool', '--size',
                   '%db' % (8 * SIZE), '--name', POOL, clones.GROUP)
        self.addCleanup(clones.run, 'lvremove', '--yes', '%s/%s' % (
            clones.GROUP, POOL))

    @staticmethod
    def find(name):
        return logical_volumes.find(name, clones.GROUP)

    def volume(self):
        """Create a thin volume with a handle."""
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, 'a=b',
                               pool=POOL)
        lv = self.find(names.volume)
        LocalVolume(names).ensure_linear(lv)
        self.addCleanup(LocalVolume(names).remove, HANDLE)
        return names, lv

    def snapshot(self, lv):
        """Take a snapshot; returns its logical volume."""
        name = '_snapshot-%s' % uuid.uuid4()
        logical_volumes.take_snapshot(lv, name, 'c', 'd')
        return self.find(name)

    def test_new_volume(self):
        """It has no block, and reads zeros."""
        names, lv = self.volume()
        self.assertEqual((True, {'a=b'}, SIZE, None), (
            lv.thin, lv.tags, lv.size, lv.snapshot_of))
        self.assertEqual(bytes(SIZE), clones.read(names.path(), 0, SIZE))
        self.assertEqual(0, thin_pools.find(clones.GROUP).used)

    def test_pool(self):
        names, lv = self.volume()
        clones.write(names.path(), 0, clones.pattern(SIZE // 2, 1))
        pool = thin_pools.find(clones.GROUP)
        self.assertEqual(SIZE // 2, thin_pools.allocated(clones.GROUP,
                                                         names.volume))
        # LVM prints percentages with two digits.
        self.assertAlmostEqual(SIZE // 2, pool.used, delta=pool.size / 1000)
        self.assertEqual((8 * SIZE, SIZE, 0), (
            pool.size, pool.provisioned, pool.awaited))
        self.assertTrue(pool.zeroes)
        logical_volumes.tag(lv, logical_volumes.METADATA_TAG + 'x/y')
        self.assertAlmostEqual(SIZE // 2, thin_pools.find(
            clones.GROUP).awaited, delta=SIZE / 1000)

    def test_room(self):
        """The kernel's status of the pool, and of what is in it."""
        names, _lv = self.volume()
        thick, _lv = self.logical_volume()
        clones.write(names.path(), 0, clones.pattern(SIZE // 2, 1))
        found = self.room(names, thick)
        self.assertEqual({names}, found.thin)
        self.assertEqual((8 * SIZE, False), (found.size, found.metadata))
        kept = 8 * SIZE * reserve.LEAST / 100
        self.assertAlmostEqual(8 * SIZE - SIZE // 2 - kept, found.left,
                               delta=SIZE / 100)
        self.assertEqual(frozenset(), self.room(thick).thin)

    @staticmethod
    def room(*copies):
        return reserve.look(clones.GROUP, 0, copies)

    def test_no_old_blocks(self):
        """What another volume has written is zeroed with its block."""
        first, lv = self.volume()
        clones.write(first.path(), 0, clones.pattern(SIZE, 1))
        LocalVolume(first).remove(HANDLE)
        logical_volumes.remove(lv)
        names, _lv = self.volume()
        for place in range(0, SIZE, 1 << 16):
            clones.write(names.path(), place, b'x' * 4096)
        self.assertEqual((b'x' * 4096 + bytes(60 << 10)) * (SIZE >> 16),
                         clones.read(names.path(), 0, SIZE))

    def test_snapshot(self):
        """It is active, shares blocks, and outlives its origin."""
        before = clones.pattern(SIZE, 1)
        names, lv = self.volume()
        clones.write(names.path(), 0, before)
        used = thin_pools.find(clones.GROUP).used
        taken = self.snapshot(lv)
        self.assertEqual(
            (True, True, {'c', 'd'}, lv.name),
            (taken.thin, taken.active, taken.tags, taken.snapshot_of))
        self.assertEqual(used, thin_pools.find(clones.GROUP).used)
        clones.write(names.path(), 0, clones.pattern(SIZE, 2))
        self.assertEqual(before, clones.read(taken.path, 0, SIZE))
        LocalVolume(names).remove(HANDLE)
        logical_volumes.remove(lv)
        self.assertEqual(before, clones.read(taken.path, 0, SIZE))
        self.assertIsNone(self.find(taken.name).snapshot_of)

    def test_is_active_after_a_deactivation(self):
        """A start of the node activates it: it is not skipped."""
        taken = self.snapshot(self.volume()[1])
        clones.run('lvchange', '-an', taken.full_name)
        clones.run('vgchange', '-ay', clones.GROUP)
        self.assertTrue(self.find(taken.name).active)

    def test_skipped_snapshot(self):
        """As those that Cinder's LVM driver takes."""
        lv = self.volume()[1]
        clones.run('lvcreate', '--snapshot', '--name', 'skipped',
                   lv.full_name)
        self.assertFalse(self.find('skipped').active)
        logical_volumes.activate(self.find('skipped'))
        self.assertTrue(self.find('skipped').active)

    def test_extend_with_a_snapshot(self):
        names, lv = self.volume()
        self.snapshot(lv)
        clones.run('lvextend', '--size', '%db' % (2 * SIZE), lv.full_name)
        LocalVolume(names).grow(self.find(lv.name))
        self.assertEqual(bytes(SIZE), clones.read(names.path(), SIZE, SIZE))

    def test_merge(self):
        """The volume keeps its tags; other snapshots lose their origin."""
        before = clones.pattern(SIZE, 1)
        names, lv = self.volume()
        clones.write(names.path(), 0, before)
        other, latest = self.snapshot(lv), self.snapshot(lv)
        clones.write(names.path(), 0, clones.pattern(SIZE, 2))
        LocalVolume(names).remove(HANDLE)
        for each in latest, lv:
            clones.run('lvchange', '-an', each.full_name)
        clones.run('lvconvert', '--merge', latest.full_name)
        logical_volumes.activate(self.find(lv.name))
        merged = self.find(lv.name)
        self.assertEqual(({'a=b'}, True), (merged.tags, merged.thin))
        self.assertIsNone(self.find(latest.name))
        self.assertIsNone(self.find(other.name).snapshot_of)
        LocalVolume(names).ensure_linear(merged)
        self.assertEqual(before, clones.read(names.path(), 0, SIZE))
        self.assertEqual(before, clones.read(other.path, 0, SIZE))

    def test_discard(self):
        """A guest gives blocks back to the pool."""
        names, _lv = self.volume()
        clones.write(names.path(), 0, clones.pattern(SIZE, 1))
        clones.run('blkdiscard', names.path())
        self.assertEqual(0, thin_pools.find(clones.GROUP).used)
        self.assertEqual(bytes(SIZE), clones.read(names.path(), 0, SIZE))

    def thin_clone(self, source):
        """Create a clone of a device on a thin volume; returns its Names."""
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, pool=POOL)
        self.metadata.create(names, SIZE, 128)
        self.addCleanup(self.metadata.remove, names)
        self.build(names, self.find(names.volume), source, passive=False)
        self.addCleanup(LocalVolume(names).remove, HANDLE, CLONE, GATE, SOURCE)
        return names

    def test_full_pool(self):
        """A clone loses nothing, and copies on when the pool is extended."""
        _names, path, data = self.exported_source()
        pool = '%s/%s' % (clones.GROUP, POOL)
        clones.run('lvchange', '--errorwhenfull', 'y', pool)
        filler = 8 * SIZE - SIZE // 2
        logical_volumes.create(clones.GROUP, 'filler', filler, pool=POOL)
        clones.write('/dev/%s/filler' % clones.GROUP, 0,
                     clones.pattern(filler, 2))
        names = self.thin_clone(path)
        LocalVolume(names).copy_one_by_one()
        LocalVolume(names).start_hydration()
        clones.wait_until(lambda: not thin_pools.find(clones.GROUP).free,
                          'full pool')
        self.assertFalse(self.room(names).begins(SIZE))
        clones.write(names.path(), 0, b'x' * 4096)
        self.assertFalse(dmsetup.clone(names.of(CLONE)).complete)
        clones.run('lvextend', '--size', '+%db' % SIZE, pool)
        self.assertTrue(self.room(names).begins(SIZE))
        clones.wait_until(lambda: dmsetup.clone(names.of(CLONE)).complete,
                          'complete clone')
        self.assertEqual(b'x' * 4096 + data[4096:],
                         clones.read(names.path(), 0, SIZE))
