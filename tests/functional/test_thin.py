# SPDX-License-Identifier: Apache-2.0
"""Thin volumes, their snapshots and their pool, with LVM on a real kernel."""

import pathlib
import re
import shutil
import tempfile
import types
from unittest import mock
import uuid

from cinder.brick.local_dev import lvm as cinder_lvm

from dmclone_driver import exception
from dmclone_driver.move import reserve
from dmclone_driver.node import deletion
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import block
from lab.common import clones
from tests.functional import base

SIZE = 8 * clones.MIB
POOL = thin_pools.name_of(clones.GROUP)
#: The options that a deletion reads.
CLEAR = types.SimpleNamespace(volume_clear='zero')


class ThinPoolTest(base.FunctionalTest):
    """A test with a thin pool."""

    #: Of the pool's blocks.
    CHUNK = '64k'

    def setUp(self):
        super().setUp()
        clones.run('lvcreate', '--yes', '--type', 'thin-pool', '--size',
                   '%db' % (8 * SIZE), '--chunksize', self.CHUNK, '--name',
                   POOL, clones.GROUP)
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

    @staticmethod
    def room(*copies):
        return reserve.look(clones.GROUP, 0, copies)

    def fill_pool(self, when_full='error'):
        """Allocate what is left of the pool for another volume.

        :param when_full: what becomes of writes that need a block: 'error',
            or 'queue' to have them wait for one
        """
        self.when_full('error')
        logical_volumes.create(clones.GROUP, 'filler', 9 * SIZE, pool=POOL)
        with self.assertRaises(OSError):
            clones.write('/dev/%s/filler' % clones.GROUP, 0,
                         b'f' * 9 * SIZE)
        self.assertEqual(0, thin_pools.find(clones.GROUP).free)
        if when_full == 'queue':
            self.when_full(when_full)

    @staticmethod
    def when_full(what):
        clones.run('lvchange', '--errorwhenfull', {
            'error': 'y', 'queue': 'n'}[what],
            '%s/%s' % (clones.GROUP, POOL))

    @staticmethod
    def extend_pool():
        clones.run('lvextend', '--size', '+%db' % SIZE, '%s/%s' % (
            clones.GROUP, POOL))

    def thin_clone(self, source, first=False):
        """Create a clone of a device on a thin volume; returns its Names.

        :param first: whether its first block is allocated
        """
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, pool=POOL)
        if first:
            block.zero_start(self.find(names.volume).path, 4096)
        self.metadata.create(names, SIZE, 128)
        self.addCleanup(self.metadata.remove, names)
        self.build(names, self.find(names.volume), source, passive=False)
        self.addCleanup(LocalVolume(names).remove, HANDLE, CLONE, GATE, SOURCE)
        return names


class ThinTest(ThinPoolTest):

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
        self.assertEqual((8 * SIZE, False), (
            found.size, found.metadata_short))
        kept = 8 * SIZE * reserve.LEAST / 100
        self.assertAlmostEqual(8 * SIZE - SIZE // 2 - kept, found.left,
                               delta=SIZE / 100)
        self.assertEqual(frozenset(), self.room(thick).thin)

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

    def test_repair(self):
        """As the page about thin volumes says."""
        names, lv = self.volume()
        data = clones.pattern(SIZE, 1)
        clones.write(names.path(), 0, data)
        LocalVolume(names).remove(HANDLE)
        pool = '%s/%s' % (clones.GROUP, POOL)
        for name in lv.full_name, pool:
            clones.run('lvchange', '-an', name)
        clones.run('lvconvert', '--yes', '--repair', pool)
        self.addCleanup(clones.run, 'lvremove', '--yes', pool + '_meta0')
        clones.run('lvchange', '-ay', lv.full_name)
        LocalVolume(names).ensure_linear(self.find(lv.name))
        self.assertEqual(data, clones.read(names.path(), 0, SIZE))

    def test_deletion_in_a_read_only_pool(self):
        """Nothing is deleted, and LVM counts nothing that the pool misses."""
        names, lv = self.volume()
        taken = self.snapshot(lv)
        group = cinder_lvm.LVM(clones.GROUP, 'env')
        ids = self.transaction_ids()
        self.set_features('read_only')
        self.assertEqual('ro', thin_pools.status(clones.GROUP).mode)
        for delete in (lambda: deletion.delete_snapshot(taken, group, CLEAR),
                       lambda: deletion.delete_volume(names, group, CLEAR),
                       lambda: deletion.remove(lv, group)):
            self.assertRaises(exception.PoolTakesNoChanges, delete)
        self.assertEqual((lv, taken), (self.find(lv.name),
                                       self.find(taken.name)))
        self.assertEqual(ids, self.transaction_ids())
        self.set_features()
        deletion.delete_snapshot(taken, group, CLEAR)
        deletion.delete_volume(names, group, CLEAR)
        self.assertEqual((None, None), (self.find(lv.name),
                                        self.find(taken.name)))
        self.assertEqual(2 + ids[0], self.transaction_ids()[0])
        self.assertEqual(*self.transaction_ids())

    def test_deletion_that_the_pool_misses(self):
        """What the driver avoids, and the way out on the page."""
        kept, gone = self.volume(), self.volume()
        data = clones.pattern(SIZE, 1)
        clones.write(kept[0].path(), 0, data)
        clones.write(gone[0].path(), 0, clones.pattern(SIZE, 2))
        for names, _lv in kept, gone:
            LocalVolume(names).remove(HANDLE)
        gone_id = logical_volumes.thin_id(gone[1])
        before, _same = self.transaction_ids()
        self.set_features('read_only')
        self.assertRaises(lvm.LVMError, logical_volumes.remove, gone[1])
        self.assertIsNone(self.find(gone[1].name))
        self.assertEqual((before + 1, before), self.transaction_ids())
        pool = '%s/%s' % (clones.GROUP, POOL)
        for name in kept[1].full_name, pool:
            clones.run('lvchange', '-an', name)
        with tempfile.NamedTemporaryFile('w+') as backup:
            clones.run('vgcfgbackup', '--file', backup.name, clones.GROUP)
            text = pathlib.Path(backup.name).read_text()
            self.assertEqual(1, text.count('transaction_id = %d\n' % (
                before + 1)))
            text = text.replace('transaction_id = %d\n' % (before + 1),
                                'transaction_id = %d\n' % before)
            message = re.search(r'\n\s*message1 \{\s*delete = (\d+)\s*\}',
                                text)
            text = text.replace(message[0], '')
            pathlib.Path(backup.name).write_text(text)
            clones.run('vgcfgrestore', '--force', '--file', backup.name,
                       clones.GROUP)
        clones.run('lvconvert', '--yes', '--repair', pool)
        self.addCleanup(clones.run, 'lvremove', '--yes', pool + '_meta0')
        clones.run('lvchange', '-ay', kept[1].full_name)
        clones.run('dmsetup', 'message', thin_pools.device_of(clones.GROUP),
                   '0', 'delete %s' % message[1])
        self.assertEqual(data, clones.read(kept[1].path, 0, SIZE))
        # LVM gives its number to the next one.
        new = self.volume()[1]
        self.assertEqual(gone_id, logical_volumes.thin_id(new))
        self.assertEqual(bytes(SIZE), clones.read(new.path, 0, SIZE))
        self.snapshot(kept[1])
        self.assertEqual(*self.transaction_ids())

    @staticmethod
    def transaction_ids():
        """Return the pool's transaction id, as LVM and the kernel know it."""
        told = clones.run('lvs', '--noheadings', '-o', 'transaction_id',
                          '%s/%s' % (clones.GROUP, POOL))
        status = clones.run('dmsetup', 'status',
                            thin_pools.device_of(clones.GROUP))
        return int(told), int(status.split()[3])

    @staticmethod
    def set_features(*features):
        """Load the pool's table with some features instead of its own."""
        name = thin_pools.device_of(clones.GROUP)
        words = clones.run('dmsetup', 'table', name).split()[:7]
        clones.run('dmsetup', 'load', name, '--table', ' '.join(
            [*words, str(len(features)), *features]))
        clones.run('dmsetup', 'suspend', name)
        clones.run('dmsetup', 'resume', name)

    def test_discard(self):
        """A guest gives blocks back to the pool."""
        names, _lv = self.volume()
        clones.write(names.path(), 0, clones.pattern(SIZE, 1))
        clones.run('blkdiscard', names.path())
        self.assertEqual(0, thin_pools.find(clones.GROUP).used)
        self.assertEqual(bytes(SIZE), clones.read(names.path(), 0, SIZE))

    def test_full_pool(self):
        """A clone loses nothing, and copies on when the pool is extended."""
        _names, path, data = self.exported_source()
        self.when_full('error')
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
        self.extend_pool()
        self.assertTrue(self.room(names).begins(SIZE))
        clones.wait_until(lambda: dmsetup.clone(names.of(CLONE)).complete,
                          'complete clone')
        self.assertEqual(b'x' * 4096 + data[4096:],
                         clones.read(names.path(), 0, SIZE))

    def test_volume_in_a_full_pool(self):
        """What was acknowledged is kept; it goes on in an extended pool."""
        names, _lv = self.volume()
        piece = 64 << 10
        first, later = (clones.pattern(SIZE, seed) for seed in (1, 3))
        for place in range(0, SIZE // 2, piece):
            clones.write(names.path(), place, first[place:place + piece])
        self.fill_pool()
        for place in range(0, SIZE, piece):
            part = later[place:place + piece]
            if place < SIZE // 2:
                clones.write(names.path(), place, part)
            else:
                self.assertRaises(OSError, clones.write, names.path(), place,
                                  part)
        self.assertEqual(later[:SIZE // 2] + bytes(SIZE // 2),
                         clones.read(names.path(), 0, SIZE))
        self.extend_pool()
        clones.write(names.path(), SIZE // 2, later[SIZE // 2:])
        self.assertEqual(later, clones.read(names.path(), 0, SIZE))

    def test_wait_for_room(self):
        """By default a write in a full pool waits, and then goes on."""
        names, _lv = self.volume()
        self.fill_pool('queue')
        data = clones.pattern(SIZE, 1)
        write = clones.Background(names.path(), 0, data)
        self.assertTrue(write.waits(2))
        self.extend_pool()
        self.assertFalse(write.waits(20))
        self.assertIsNone(write.error)
        self.assertEqual(data, clones.read(names.path(), 0, SIZE))


class ConfigurationTest(ThinPoolTest):
    """LVM's configuration may change how it prints things."""

    def setUp(self):
        super().setUp()
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        shutil.copytree('/etc/lvm', folder, dirs_exist_ok=True)
        (folder / 'lvmlocal.conf').write_text(
            'report {\n binary_values_as_numeric = 1\n'
            ' list_item_separator = ";"\n compact_output = 1\n'
            ' compact_output_cols = "lv_tags"\n prefixes = 1\n}\n')
        self.enterContext(mock.patch.object(
            cinder_lvm.LVM, 'LVM_CMD_PREFIX',
            ['env', 'LVM_SYSTEM_DIR=%s' % folder]))

    def test_whether_a_pool_zeroes(self):
        self.assertIs(True, thin_pools.find(clones.GROUP).zeroes)
        clones.run('lvchange', '--zero', 'n', '%s/%s' % (clones.GROUP, POOL))
        self.assertIs(False, thin_pools.find(clones.GROUP).zeroes)

    def test_tags(self):
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, 'a=b', 'c',
                               pool=POOL)
        self.assertEqual({'a=b', 'c'}, self.find(names.volume).tags)


class LargeBlocksTest(ThinPoolTest):
    """A pool in whose blocks two regions of a clone are."""

    CHUNK = '128k'

    def flush_in_a_full_pool(self, first):
        """Write what is allocated, and flush it, to a clone in a full pool.

        The clone's metadata changes by that: a region is present, then.

        :param first: whether the first block is allocated
        :returns: the mode of the clone's metadata
        """
        _names, path, data = self.exported_source()
        names = self.thin_clone(path, first)
        # Two regions are in a block of the pool.
        clones.write(names.path(), SIZE // 2, b'x' * (64 << 10))
        self.fill_pool()
        try:
            clones.write(names.path(), SIZE // 2 + (64 << 10),
                         b'y' * (64 << 10))
        except OSError:
            self.assertFalse(first)
        else:
            self.assertTrue(first)
        mode = dmsetup.clone(names.of(CLONE)).mode
        self.assertEqual(
            b'x' * (64 << 10) + (b'y' * (64 << 10) if first else b''),
            clones.read(names.path(), SIZE // 2, (64 << 10) * (1 + first)))
        if first:
            self.extend_pool()
            LocalVolume(names).start_hydration()
            clones.wait_until(lambda: dmsetup.clone(names.of(CLONE)).complete,
                              'complete clone')
            self.assertEqual(data[:SIZE // 2],
                             clones.read(names.path(), 0, SIZE // 2))
        return mode

    def test_flush_of_a_clone_in_a_full_pool(self):
        self.assertEqual('rw', self.flush_in_a_full_pool(first=True))

    def test_flush_without_the_first_block(self):
        """Why a clone's first block is allocated before it is built."""
        self.assertEqual('ro', self.flush_in_a_full_pool(first=False))
