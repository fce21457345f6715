# SPDX-License-Identifier: Apache-2.0
"""What a thin source has not allocated is not copied, on a real kernel.

The map is read by the real thin_dump from the pool in use, and regions are
marked by discards of the clone while its guest is held for moments.
"""

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
import threading
import time
from unittest import mock
import uuid

from oslo_concurrency import processutils

from dmclone_driver.node import anchor
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import marks
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.names import ANCHOR
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import thin_maps
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import marks as privileged
from dmclone_driver.privsep import thin
from lab.common import clones
from tests.functional import base
from tests.functional import test_ioctls

SIZE = 32 * clones.MIB
#: Bytes of a region, and of a block of the pool.
REGION = 1 << 16
POOL = thin_pools.name_of(clones.GROUP)
#: The regions of the source that have data.
FILLED = (*range(10, 20), 33, *range(100, 140), 510)

#: Marks in many pieces, as if a guest used the volume.
SLOWLY = marks.PROGRAM.replace(
    'marks.main()', 'marks.MOST, marks.PIECE, marks.QUIET = 8, 0, 1e9; '
    'marks.UNOPENED = 0; marks.main()')
#: The same in the pieces of a volume that nobody uses.
IDLE = marks.PROGRAM.replace(
    'marks.main()', 'marks.MOST, marks.PIECE, marks.QUIET = '
    '8, -marks.LIMIT, 0; marks.UNOPENED = 0; marks.main()')
#: Is killed while requests wait.
SUICIDE = marks.PROGRAM.replace(
    'marks.main()', 'import os; marks.MOST, marks.PIECE = 4, 0; '
    'marks.UNOPENED = 0; '
    'mark = marks.Marker._discard; '
    'marks.Marker._discard = lambda *all: (mark(*all), '
    'os.kill(os.getpid(), 9)); marks.main()')


class Guest:
    """A thread that writes numbers all the time, and remembers them."""

    def __init__(self, path, size):
        self._path, self._places = path, size // 4096
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.written, self.longest, self.error = {}, 0, None

    def _run(self):
        try:
            for number in range(1 << 30):
                if self._over.is_set():
                    return
                place = random.randrange(self._places) * 4096
                began = time.monotonic()
                clones.write(self._path, place, self.block(number),
                             durably=not number % 16)
                self.longest = max(self.longest, time.monotonic() - began)
                self.written[place] = number
        except OSError as error:
            self.error = error

    @staticmethod
    def block(number):
        return (b'%015d\n' % number) * 256

    def __enter__(self):
        self._thread.start()
        clones.wait_until(lambda: len(self.written) > 3, 'writes')
        return self

    def __exit__(self, *_arguments):
        self._over.set()
        self._thread.join(60)

    def over(self, data):
        """Return data as it is with what was written."""
        data = bytearray(data)
        for place, number in self.written.items():
            data[place:place + 4096] = self.block(number)
        return bytes(data)


class PoolTest(base.FunctionalTest):
    """A thin pool, and a thin source with some data."""

    def setUp(self):
        super().setUp()
        clones.run('lvcreate', '--yes', '--type', 'thin-pool', '--size',
                   '%db' % (3 * SIZE), '--chunksize', '64k', '--name', POOL,
                   clones.GROUP)
        self.addCleanup(clones.run, 'lvremove', '--yes', '%s/%s' % (
            clones.GROUP, POOL))
        self.source, self.source_lv = self.volume()
        self.data = self.fill(self.source.path())

    @staticmethod
    def fill(path, regions=FILLED):
        """Write to some regions of a device; returns all of its data."""
        data = bytearray(SIZE)
        for region in regions:
            content = clones.pattern(REGION, region + 1)
            clones.write(path, region * REGION, content)
            data[region * REGION:(region + 1) * REGION] = content
        return bytes(data)

    @staticmethod
    def find(name):
        return logical_volumes.find(name, clones.GROUP)

    def volume(self, *tags):
        """Create a thin volume with a handle; returns (Names, lv)."""
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, *tags,
                               pool=POOL)
        lv = self.find(names.volume)
        LocalVolume(names).ensure_linear(lv)
        self.addCleanup(LocalVolume(names).remove, EXPORT, HANDLE)
        return names, lv

    @staticmethod
    def map(lv):
        """Read what a thin volume has allocated, from the pool in use."""
        device = logical_volumes.thin_id(lv)
        return thin_maps.parse(thin.dump(
            lvm.device(clones.GROUP, POOL, 'tpool'),
            '%s/%s' % (sysfs.MAPPER, lvm.device(clones.GROUP,
                                                POOL + '_tmeta')),
            device, 60), device)

    @staticmethod
    def is_copied():
        """Return whether the pool has a copy of its metadata."""
        return dmsetup.pool(thin_pools.device_of(clones.GROUP))[0].copied

    @staticmethod
    def allocated(lv):
        """Return the bytes that a thin volume has."""
        percent = clones.run('lvs', '--noheadings', '-o', 'data_percent',
                             lv.full_name)
        return float(percent) * lv.size / 100


class MapTest(PoolTest):

    def regions(self, lv, length=SIZE):
        return [region for each in thin_maps.unallocated(
            self.map(lv), Sectors(length // 512), Sectors(REGION // 512))
            for region in range(each.first, each.end)]

    def test_real_program(self):
        """While another volume of the pool is written."""
        expected = [region for region in range(SIZE // REGION)
                    if region not in FILLED]
        other, _lv = self.volume()
        with Guest(other.path(), SIZE) as guest:
            for _time in range(5):
                self.assertEqual(expected, self.regions(self.source_lv))
                self.assertFalse(self.is_copied())
        self.assertIsNone(guest.error)

    def test_snapshot(self):
        """It shares blocks with its origin, which has others meanwhile."""
        logical_volumes.take_snapshot(self.source_lv, 'taken')
        clones.write(self.source.path(), 200 * REGION, b'x' * REGION)
        clones.write(self.source.path(), 33 * REGION, b'x' * REGION)
        self.assertNotIn(200, self.regions(self.source_lv))
        self.assertEqual([region for region in range(SIZE // REGION)
                          if region not in FILLED],
                         self.regions(self.find('taken')))

    def test_empty_volume(self):
        self.assertEqual(list(range(SIZE // REGION)),
                         self.regions(self.volume()[1]))

    def test_failure_releases(self):
        """There is no such volume in the pool; the next one is read."""
        pool = lvm.device(clones.GROUP, POOL, 'tpool')
        with contextlib.suppress(processutils.ProcessExecutionError):
            thin.dump(pool, '/dev/null', 1, 60)
        self.assertFalse(self.is_copied())
        self.regions(self.source_lv)

    def test_crash(self):
        """The copy is left; nobody else reads until it is released."""
        pool = lvm.device(clones.GROUP, POOL, 'tpool')
        dmsetup.message(pool, 'reserve_metadata_snap')
        self.assertTrue(self.is_copied())
        self.assertRaises(processutils.ProcessExecutionError, self.map,
                          self.source_lv)
        self.assertTrue(self.is_copied())
        self.assertTrue(thin.release(pool))
        self.assertFalse(self.is_copied())
        self.assertFalse(thin.release(pool))
        self.regions(self.source_lv)


class CloneTest(PoolTest):
    """A clone of the source."""

    def setUp(self):
        super().setUp()
        LocalVolume(self.source).ensure_export(SIZE)
        self.names = self.lv = None

    def clone(self, source=None, size=SIZE):
        """Build a clone that may be marked, with an open gate."""
        self.names = Names(str(uuid.uuid4()))
        tags = [] if size == SIZE else [
            logical_volumes.CLONED_TAG + str(size)]
        logical_volumes.create(clones.GROUP, self.names.volume, SIZE,
                               logical_volumes.MARKABLE_TAG, *tags, pool=POOL)
        self.metadata.create(self.names, size, REGION // 512)
        self.addCleanup(self.metadata.remove, self.names)
        self.addCleanup(LocalVolume(self.names).remove, HANDLE, ORIGIN, CLONE,
                        GATE, SOURCE)
        self.lv = self.find(self.names.volume)
        self.build(self.names, self.lv, source or self.source.path(EXPORT),
                   passive=False)
        self.device = self.names.of(CLONE)

    def status(self):
        return dmsetup.clone(self.device)

    def ranges(self, size=SIZE):
        """Return what the driver marks, by the map of the source."""
        found = thin_maps.unallocated(self.map(self.source_lv),
                                      Sectors(size // 512),
                                      Sectors(REGION // 512))
        return [[each.first, each.count] for each in thin_maps.inside(
            found, 1, size // REGION)]

    def mark(self, ranges, seconds=30):
        return marks.Result(**privileged.run(
            self.names.name_id, self.names.of(HANDLE), ranges, seconds))

    def assertGoesOn(self):
        """Check that requests to the handle do not wait."""
        self.assertFalse(sysfs.is_suspended(self.names.of(HANDLE)))
        self.assertFalse(sysfs.is_suspended(self.device))
        clones.read(self.names.path(), 0, 4096)

    def assertCopied(self, expected, size=SIZE):
        """Check that the rest is copied, and compare all data."""
        LocalVolume(self.names).start_hydration()
        clones.wait_until(lambda: self.status().complete, 'complete clone')
        self.assertEqual(expected[:size], clones.read(self.names.path(), 0,
                                                      size))
        self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        self.assertNotIn(self.names.of(ORIGIN), sysfs.devices())
        self.assertEqual('linear', dmsetup.kinds(
            self.names.of(HANDLE)).split()[0])
        self.assertEqual(expected[:size], clones.read(self.names.path(), 0,
                                                      size))

    def assertRefusesDiscards(self):
        self.assertEqual('snapshot-origin', dmsetup.kinds(
            self.names.of(HANDLE)))
        self.assertFalse(sysfs.takes_discards(self.names.of(HANDLE)))
        self.assertRaises(subprocess.CalledProcessError, clones.run,
                          'blkdiscard', self.names.path())
        self.assertEqual(0, self.status().hydrated)

    def test_discards(self):
        """The clone takes them, and the handle refuses them at any time."""
        self.clone()
        self.assertRefusesDiscards()
        self.assertTrue(sysfs.takes_discards(self.device))
        # The table is loaded again.
        LocalVolume(self.names).grow(self.lv)
        self.assertRefusesDiscards()
        dmsetup.suspend(self.names.of(HANDLE))
        dmsetup.resume(self.names.of(HANDLE))
        self.assertRefusesDiscards()
        self.assertTrue(sysfs.takes_discards(self.device))

    def test_copy(self):
        """The destination has hardly more blocks than the source."""
        self.clone()
        ranges, cookies = self.ranges(), test_ioctls.semaphores()
        result = self.mark(ranges)
        self.assertEqual(cookies, test_ioctls.semaphores())
        expected = SIZE // REGION - len(FILLED) - 1
        self.assertEqual((marks.DONE, expected, []),
                         (result.ended, result.marked, result.left))
        self.assertEqual(expected, self.status().hydrated)
        self.assertGoesOn()
        self.assertEqual(self.data, clones.read(self.names.path(), 0, SIZE))
        self.assertCopied(self.data)
        self.assertLessEqual(self.allocated(self.lv),
                             1.1 * (len(FILLED) + 1) * REGION)
        # A guest may discard now.
        self.assertTrue(sysfs.takes_discards(self.names.of(HANDLE)))


class MarksTest(CloneTest):

    def test_handle_is_made_again(self):
        """As after a crash: whoever decides, decides by the tag."""
        self.clone()
        LocalVolume(self.names).remove(HANDLE)
        self.build(self.names, self.lv, self.source.path(EXPORT),
                   passive=False)
        self.assertRefusesDiscards()
        self.assertTrue(sysfs.takes_discards(self.device))

    def test_begin_within_a_piece(self):
        """Copies begin only when the process that marks has unlocked it."""
        self.clone()
        begin = threading.Thread(
            target=LocalVolume(self.names).start_hydration)
        with swap.alone(self.names.of(HANDLE)):
            begin.start()
            time.sleep(0.5)
            self.assertFalse(self.status().hydration)
        begin.join(60)
        self.assertTrue(self.status().hydration)
        clones.wait_until(lambda: self.status().complete, 'complete clone')

    def test_thick_and_untagged_ones(self):
        """They are as before: linear, above a clone without discards."""
        names = Names(str(uuid.uuid4()))
        logical_volumes.create(clones.GROUP, names.volume, SIZE, pool=POOL)
        self.metadata.create(names, SIZE, REGION // 512)
        self.addCleanup(self.metadata.remove, names)
        self.addCleanup(LocalVolume(names).remove, HANDLE, CLONE, GATE, SOURCE)
        self.build(names, self.find(names.volume), self.source.path(EXPORT))
        self.assertEqual('linear', dmsetup.kinds(names.of(HANDLE)))
        for role in HANDLE, CLONE:
            self.assertFalse(sysfs.takes_discards(names.of(role)))

    def test_rebuilt(self):
        """Marks are in the metadata of the clone."""
        self.clone()
        marked = self.mark(self.ranges()).marked
        LocalVolume(self.names).remove(HANDLE, ORIGIN, CLONE, GATE, SOURCE)
        self.build(self.names, self.lv, self.source.path(EXPORT),
                   passive=False)
        self.assertEqual(marked, self.status().hydrated)
        self.assertCopied(self.data)

    def test_partial_last_region(self):
        """It is copied: a discard does not cover it."""
        size = SIZE - REGION // 2
        LocalVolume(self.source).remove(EXPORT)
        clones.write(self.source.path(), size - 4096, b'x' * 4096)
        LocalVolume(self.source).ensure_export(size)
        self.clone(size=size)
        expected = self.data[:size - 4096] + b'x' * 4096
        result = self.mark(self.ranges(size))
        self.assertEqual(SIZE // REGION - len(FILLED) - 2, result.marked)
        self.assertCopied(expected, size)

    def test_written_before(self):
        """A region that a guest has written keeps what it has."""
        self.clone()
        clones.write(self.names.path(), 50 * REGION, b'x' * 4096)
        clones.write(self.names.path(), 60 * REGION, b'y' * REGION)
        result = self.mark(self.ranges())
        self.assertEqual(SIZE // REGION - len(FILLED) - 3, result.marked)
        expected = bytearray(self.data)
        expected[50 * REGION:50 * REGION + 4096] = b'x' * 4096
        expected[60 * REGION:61 * REGION] = b'y' * REGION
        self.assertCopied(bytes(expected))

    def test_guest_writes_meanwhile(self):
        """In many pieces; each write is there in the end."""
        self.write_meanwhile(SLOWLY)

    def test_guest_begins_to_write(self):
        """Nobody has used the volume before."""
        self.write_meanwhile(IDLE)

    def write_meanwhile(self, program):
        self.clone()
        ranges = self.ranges()
        with mock.patch.object(marks, 'PROGRAM', program), Guest(
                self.names.path(), SIZE) as guest:
            result = self.mark(ranges, 120)
        self.assertIsNone(guest.error)
        self.assertEqual((marks.DONE, []), (result.ended, result.left))
        self.assertLess(0, result.marked)
        self.assertLess(guest.longest, 5)
        self.assertCopied(guest.over(self.data))

    def test_killed(self):
        """The caller lets the guest go; the rest is copied."""
        self.clone()
        ranges = self.ranges()
        with mock.patch.object(marks, 'PROGRAM', SUICIDE):
            self.assertRaises(processutils.ProcessExecutionError, self.mark,
                              ranges)
        self.assertLess(0, self.status().hydrated)
        self.assertGoesOn()
        self.assertCopied(self.data)

    def test_killed_with_its_caller(self):
        """The watcher, or the next start, lets the guest go."""
        self.clone()
        ranges = self.ranges()
        handle = self.names.of(HANDLE)
        process = subprocess.Popen(
            [sys.executable, '-ISc', SUICIDE, privileged._PACKAGES, handle],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        process.communicate((
            '{"name_id": "%s", "ranges": %s, "seconds": 9, "locks": "%s"}' % (
                self.names.name_id, ranges, swap.LOCKS)).encode())
        self.assertEqual(-signal.SIGKILL, process.returncode)
        self.assertTrue(sysfs.is_suspended(handle))
        self.assertTrue(dmsetup.swap_was_killed())
        devices.resume_left()
        self.assertGoesOn()
        self.assertCopied(self.data)

    def test_terminated(self):
        """It finishes its piece, and all others."""
        self.clone()
        ranges = self.ranges()
        process = subprocess.Popen(
            [sys.executable, '-ISc', SLOWLY, privileged._PACKAGES,
             self.names.of(HANDLE)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        process.stdin.write((
            '{"name_id": "%s", "ranges": %s, "seconds": 60, "locks": "%s"}' % (
                self.names.name_id, ranges, swap.LOCKS)).encode())
        process.stdin.close()
        clones.wait_until(lambda: self.status().hydrated, 'marks')
        for _time in range(20):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            time.sleep(0.02)
        self.assertEqual(0, process.wait(90))
        self.assertGoesOn()
        self.assertCopied(self.data)

    def test_source_is_lost(self):
        """Nobody is held, as reads under way would not end."""
        self.clone()
        ranges = self.ranges()
        dmsetup.suspend(self.names.of(SOURCE), flush=False)
        reader = threading.Thread(target=clones.read, daemon=True, args=(
            self.names.path(), 10 * REGION, 4096))
        reader.start()
        result = self.mark(ranges, 2)
        self.assertEqual((marks.REFUSED, 0), (result.ended, result.marked))
        self.assertFalse(sysfs.is_suspended(self.names.of(HANDLE)))
        dmsetup.resume(self.names.of(SOURCE))
        reader.join(60)
        self.assertCopied(self.data)

    def slow_source(self):
        """Return the path of a source whose reads take five seconds."""
        clones.run('modprobe', 'dm-delay')
        return self.raw('0 %d delay %s 0 5000' % (
            (SIZE // 512) + 2 * devices.MARGIN, self.source.path(EXPORT)),
            probed=False)

    def test_source_does_not_answer(self):
        """A read of five seconds is under way: no moment is found."""
        self.clone(self.slow_source())
        # One region is there without the source.
        clones.write(self.names.path(), 60 * REGION, b'y' * REGION)
        ranges = self.ranges()
        reader = threading.Thread(target=clones.read, daemon=True, args=(
            self.names.path(), 10 * REGION, 4096))
        reader.start()
        time.sleep(0.3)
        result = self.mark(ranges, 1)
        self.assertEqual((marks.OVER, 0), (result.ended, result.marked))
        clones.read(self.names.path(), 60 * REGION, 4096)
        # What is local has not waited for the source.
        self.assertTrue(reader.is_alive())
        reader.join(60)
        self.assertEqual(marks.DONE, self.mark(ranges, 30).ended)

    def test_closed_gate(self):
        self.clone()
        ranges = self.ranges()
        dmsetup.suspend(self.names.of(GATE))
        result = self.mark(ranges, 2)
        dmsetup.resume(self.names.of(GATE))
        self.assertEqual((marks.REFUSED, 0), (result.ended, result.marked))
        self.assertEqual(0, self.status().hydrated)

    def test_while_it_hydrates(self):
        self.clone()
        ranges = self.ranges()
        dmsetup.message(self.device, 'hydration_threshold 0')
        LocalVolume(self.names).start_hydration()
        result = self.mark(ranges, 2)
        self.assertEqual((marks.REFUSED, 0), (result.ended, result.marked))

    def test_discard_during_a_copy_loses_a_write(self):
        """Why a copy under way has to end before: the kernel lets it go on."""
        self.clone(self.slow_source())
        for message in ('hydration_batch_size 1', 'hydration_threshold 1',
                        'enable_hydration'):
            dmsetup.message(self.device, message)
        clones.wait_until(lambda: self.status().hydrating, 'a copy')
        dmsetup.message(self.device, 'disable_hydration')
        # It is the first region.
        with marks.Kernel.opened(self.device) as discard:
            discard(0, REGION)
        clones.write(self.names.path(), 0, b'y' * 4096)
        self.assertEqual((1, 1), (self.status().hydrated,
                                  self.status().hydrating))
        clones.wait_until(lambda: not self.status().hydrating, 'its end')
        self.assertEqual(self.data[:4096],
                         clones.read(self.names.path(), 0, 4096))

    def test_snapshot_above_it(self):
        """The handle keeps refusing discards when its snapshot is deleted."""
        self.clone()
        logical_volumes.tag(self.lv, logical_volumes.ORIGIN_TAG)
        taken = logical_volumes.Taken(str(uuid.uuid4()), self.names.name_id,
                                      SIZE)
        _names, store = self.logical_volume(SIZE + 4 * clones.MIB)
        local = LocalVolume(self.names)
        local.take_snapshot(self.find(self.names.volume), taken, store)
        self.assertRefusesDiscards()
        clones.run('dmsetup', 'remove', 'dmclone-%s-snapshot' %
                   taken.snapshot_id)
        local.forget_snapshots(self.find(self.names.volume))
        logical_volumes.untag(self.lv, logical_volumes.ORIGIN_TAG)
        self.assertRefusesDiscards()
        self.mark(self.ranges())
        self.assertCopied(self.data)


class HeldMarksTest(CloneTest):
    """Clones with a tail, below which is something that takes discards."""

    TUNING = dataclasses.replace(clones.TUNING, held=True)

    def setUp(self):
        super().setUp()
        clones.run('modprobe', 'dm-delay')
        anchor.tail()
        if not sysfs.takes_discards(ANCHOR):
            self.skipTest('dmclone-anchor is there since another version '
                          'of the driver has made it: boot the node again')
