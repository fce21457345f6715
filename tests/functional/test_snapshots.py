# SPDX-License-Identifier: Apache-2.0
"""Snapshots of LVM and above a clone, on a real kernel."""

import os
import random
import subprocess
import threading
import time
import uuid

from dmclone_driver import exception
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import snapshot_devices
from dmclone_driver.privsep import block
from dmclone_driver.privsep import events
from lab.common import clones
from lab import pages
from tests.functional import base

SIZE = 8 * clones.MIB
RECORD = 4096
#: Of the random moments, how many hundredths are tried.
PERCENT = int(os.environ.get('DMCLONE_MOMENTS_PERCENT') or 100)


class Writer(threading.Thread):
    """Writes numbered records, one after the other, each durably."""

    def __init__(self, path, number=SIZE // RECORD):
        super().__init__(daemon=True)
        self._path = path
        self._places = random.sample(range(number), number)
        self.done = 0
        self.stop = False
        self.start()

    def run(self):
        while not self.stop:
            text = b'%016d' % (self.done + 1)
            place = self._places[self.done % len(self._places)]
            clones.write(self._path, place * RECORD,
                         text * (RECORD // len(text)))
            self.done += 1

    def end(self):
        """End after the record that is under way."""
        self.stop = True
        self.join(10)

    def found(self, data):
        """Return the number of the newest record, None if there are gaps."""
        numbers = {}
        for place in self._places:
            text = data[place * RECORD:(place + 1) * RECORD]
            numbers[place] = (int(text[:16]) if text == text[:16] * (
                RECORD // 16) and text[:16].isdigit() else 0)
        newest = max(numbers.values())
        for place, number in numbers.items():
            turn = self._places.index(place) + 1
            expected = (newest - turn) // len(self._places) * len(
                self._places) + turn if newest >= turn else 0
            if number != expected:
                return None
        return newest


class BesideAWriterTest(base.FunctionalTest):
    """A test of snapshots at random moments."""

    def assert_prefixes(self, path, take, content, delete,
                        halfway=lambda: None, moments=20):
        """Check that each shows a prefix of what a writer has written.

        :param path: of the volume
        :param take: takes a snapshot, and returns it
        :param content: returns the content of a snapshot
        :param delete: deletes a snapshot
        :param halfway: called after half of the moments
        :param moments: number of them, if all are tried
        """
        moments = max(2, moments * PERCENT // 100)
        writer = Writer(path)
        self.addCleanup(writer.end)
        for number in range(moments):
            if number == moments // 2:
                halfway()
            time.sleep(random.random() / 2)
            before = writer.done
            taken = take()
            after = writer.done + 1
            newest = writer.found(content(taken))
            self.assertIsNotNone(newest, number)
            self.assertTrue(before <= newest <= after,
                            (before, newest, after))
            delete(taken)
        writer.end()
        self.assertEqual(writer.done, writer.found(
            clones.read(path, 0, SIZE)))


class OfLVMTest(BesideAWriterTest):
    """A snapshot of a complete volume is LVM's own."""

    def assert_prefixes_of(self, names, lv):
        def take():
            name = '_snapshot-%s' % uuid.uuid4()
            block.flush_buffers(names.path())
            logical_volumes.take_snapshot(lv, name)
            return logical_volumes.find(name, clones.GROUP)
        self.assert_prefixes(
            names.path(), take,
            lambda taken: clones.read(taken.path, 0, SIZE),
            logical_volumes.remove)

    def test_each_is_a_prefix_of_a_writer(self):
        self.assert_prefixes_of(*self.linear_volume(SIZE, bytes(SIZE)))

    def test_prefix_while_a_move_is_prepared(self):
        """The volume is exported, and is the source of a passive clone."""
        source, path, _data = self.exported_source(SIZE)
        names, _lv = self.clone(path)
        self.assert_prefixes_of(source, logical_volumes.find(
            source.volume, clones.GROUP))
        self.assertEqual(0, dmsetup.clone(names.of(CLONE)).hydrated)

    def test_every_block_is_overwritten(self):
        """LVM has room for all; Cinder's LVM class would lose the snapshot."""
        before = clones.pattern(SIZE, 1)
        names, lv = self.linear_volume(SIZE, before)
        name = '_snapshot-%s' % uuid.uuid4()
        logical_volumes.take_snapshot(lv, name)
        taken = logical_volumes.find(name, clones.GROUP)
        self.addCleanup(logical_volumes.remove, taken)
        clones.write(names.path(), 0, clones.pattern(SIZE, 2))
        self.assertEqual(before, clones.read(taken.path, 0, SIZE))
        self.assertEqual(SIZE, block.size(taken.path))


class SnapshotsTest(BesideAWriterTest):

    def setUp(self):
        super().setUp()
        self.source, path, self.data = self.exported_source()
        self.names, lv = self.clone(path)
        self.local = LocalVolume(self.names)
        self.local.open_gate()

    @property
    def lv(self):
        return logical_volumes.find(self.names.volume, clones.GROUP)

    def take(self):
        """Take a snapshot; returns its :class:`Taken`."""
        taken = Taken(str(uuid.uuid4()), self.names.name_id,
                      block.size(self.names.path()))
        name = '_snapshot-' + taken.snapshot_id
        logical_volumes.tag(self.lv, logical_volumes.ORIGIN_TAG)
        logical_volumes.create(clones.GROUP, name,
                               snapshot_devices.store_size(taken.size),
                               logical_volumes.TAKEN_TAG + str(taken))
        store = logical_volumes.find(name, clones.GROUP)
        self.addCleanup(self._delete, taken, store)
        block.zero_start(store.path, 4096)
        self.local.take_snapshot(self.lv, taken, store)
        return taken

    def _delete(self, taken, store):
        snapshot_devices.remove(taken)
        if logical_volumes.find(store.name, clones.GROUP):
            logical_volumes.remove(store)
        if not snapshot_devices.taken_of(self.lv):
            self.local.forget_snapshots(self.lv)

    def content(self, taken):
        return clones.read(snapshot_devices.path(taken), 0, taken.size)

    def volume(self):
        return clones.read(self.names.path(), 0,
                           block.size(self.names.path()))

    def hydrate(self):
        self.local.start_hydration()
        deadline = time.monotonic() + 60
        while not dmsetup.clone(self.names.of(CLONE)).complete:
            self.assertLess(time.monotonic(), deadline, 'hydration')
            events.wait(1)

    def complete(self):
        self.hydrate()
        self.assertTrue(self.local.make_linear(self.lv))
        self.local.remove(GATE, SOURCE)

    def write(self, offset, data):
        """Write to the volume; returns its content."""
        before = self.volume()
        clones.write(self.names.path(), offset, data)
        after = before[:offset] + data + before[offset + len(data):]
        self.assertEqual(after, self.volume())
        return after

    def test_content_stays_while_it_hydrates_and_afterwards(self):
        first = self.write(4096, b'1' * 4096)
        one = self.take()
        second = self.write(clones.MIB - 4096, b'2' * clones.MIB)
        two = self.take()
        self.write(0, b'3' * 3 * clones.MIB)
        self.assertEqual([first, second],
                         [self.content(one), self.content(two)])
        self.complete()
        third = self.write(2 * clones.MIB + 512, b'4' * 3 * clones.MIB)
        self.assertEqual([first, second],
                         [self.content(one), self.content(two)])
        self.delete(one, two)
        self.assertEqual(third, self.volume())
        self.assertEqual(third, clones.read(self.lv.path, 0, SIZE))
        self.assertEqual('linear', dmsetup.state(self.names.of(HANDLE)))

    def delete(self, *snapshots):
        """Delete snapshots; the volume then has a plain handle."""
        for taken in snapshots:
            self._delete(taken, logical_volumes.find(
                '_snapshot-' + taken.snapshot_id, clones.GROUP))

    def test_every_block_is_overwritten(self):
        """The store has room for all."""
        self.complete()
        before = self.volume()
        taken = self.take()
        self.write(0, clones.pattern(SIZE, 7))
        self.assertEqual(before, self.content(taken))

    def test_snapshot_refuses_writes(self):
        taken = self.take()
        self.assertRaises(OSError, clones.write,
                          snapshot_devices.path(taken), 0, b'x' * 4096)
        self.assertEqual(self.data, self.content(taken))

    def test_rebuilt_after_a_reboot(self):
        first = self.write(4096, b'1' * 4096)
        one = self.take()
        second = self.write(clones.MIB - 4096, b'2' * clones.MIB)
        two = self.take()
        third = self.write(0, b'3' * 3 * clones.MIB)
        self.local.remove(HANDLE)
        for taken in (one, two):
            snapshot_devices.remove(taken)
        self.local.remove(ORIGIN, CLONE, GATE, SOURCE)
        self.build(self.names, self.lv, self.source.path('export'),
                   passive=False)
        self.assertEqual([first, second, third],
                         [self.content(one), self.content(two),
                          self.volume()])
        fourth = self.write(5 * clones.MIB, b'4' * clones.MIB)
        self.complete()
        self.assertEqual([first, second, fourth],
                         [self.content(one), self.content(two),
                          self.volume()])

    def test_extended(self):
        taken = self.take()
        logical_volumes.tag(self.lv, '%s%d' % (
            logical_volumes.CLONED_TAG, SIZE))
        clones.run('lvextend', '--size', '+%db' % SIZE, self.lv.full_name)
        self.local.grow(self.lv)
        self.assertEqual(2 * SIZE, block.size(self.names.path()))
        self.write(SIZE - 4096, b'5' * clones.MIB)
        other = self.take()
        self.write(SIZE + 4096, b'6' * clones.MIB)
        self.assertEqual(self.data, self.content(taken))
        self.assertEqual(
            self.data[:-4096] + b'5' * clones.MIB,
            self.content(other)[:SIZE - 4096 + clones.MIB])
        self.complete()
        self.assertEqual(self.data, self.content(taken))

    def test_source_does_not_answer(self):
        """The volume's requests do not wait for the snapshot."""
        dmsetup.suspend(self.names.of(SOURCE))
        reader = threading.Thread(target=clones.read, daemon=True, args=(
            self.names.path(), 0, 4096))
        reader.start()
        time.sleep(0.5)
        self.assertRaises(exception.RequestsWait, self.take)
        self.assertFalse(dmsetup.device(self.names.of(HANDLE)).suspended)
        dmsetup.resume(self.names.of(SOURCE))
        reader.join(10)
        self.assertFalse(reader.is_alive())
        self.assertEqual(self.data, self.volume())

    def go_back(self):
        """Follow the page "From Cinder's LVM driver" until LVM has it all."""
        LocalVolume(self.source).remove(EXPORT, HANDLE)
        scripts = [block.script for block in pages.blocks('admin/adoption')
                   if block.section == 'Back, in place' and (
                       'dmsetup remove' in block.script or
                       'lvconvert' in block.script)]
        self.assertEqual(2, len(scripts))
        for script in scripts:
            done = subprocess.run(
                ['bash', '-e', '-u', '-c', 'GROUP=%s\nsystemctl() { :; }\n%s'
                 % (clones.GROUP, script)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertEqual(0, done.returncode, (
                script, done.stdout, done.stderr))
        self.assertEqual([], [name for name in dmsetup.devices()
                              if name.startswith('dmclone')])

    def of_lvm(self, taken):
        """Return the content of a snapshot that LVM knows as its own."""
        lv = logical_volumes.find('_snapshot-' + taken.snapshot_id,
                                  clones.GROUP)
        self.assertEqual(self.names.volume, lv.origin)
        self.assertEqual(65536, logical_volumes.chunk_size(lv))
        self.assertIsNone(lv.taken)
        return clones.read(lv.path, 0, block.size(lv.path))

    def assert_of_lvm(self, data, *snapshots):
        """Check a volume and its snapshots with nothing but LVM.

        :param snapshots: pairs of a snapshot and its content
        """
        self.assertEqual(data, clones.read(self.lv.path, 0, len(data)))
        for taken, content in snapshots:
            self.assertEqual(content, self.of_lvm(taken))

    def reactivate(self):
        """Have LVM activate everything as at a start of the node."""
        clones.run('vgchange', '--activate', 'n', clones.GROUP)
        clones.run('vgchange', '--activate', 'y', clones.GROUP)

    def test_way_back_to_lvm(self):
        """Snapshots of all kinds, taken before, during and after."""
        first = self.write(4096, b'1' * 4096)
        one = self.take()
        second = self.write(clones.MIB - 4096, b'2' * clones.MIB)
        self.local.start_hydration()
        two = self.take()
        self.write(0, b'3' * 3 * clones.MIB)
        self.complete()
        third = self.write(2 * clones.MIB + 512, b'4' * 3 * clones.MIB)
        # As LVM takes them of a complete volume.
        three = Taken(str(uuid.uuid4()), self.names.name_id, SIZE)
        block.flush_buffers(self.names.path())
        logical_volumes.take_snapshot(self.lv, '_snapshot-' +
                                      three.snapshot_id)
        self.addCleanup(self._delete, three, logical_volumes.find(
            '_snapshot-' + three.snapshot_id, clones.GROUP))
        data = self.write(4 * clones.MIB + 8192, b'5' * 8192)
        content = [(one, first), (two, second), (three, third)]
        self.go_back()
        self.assert_of_lvm(data, *content)
        self.reactivate()
        self.assert_of_lvm(data, *content)
        data = clones.pattern(SIZE, 9)
        clones.write(self.lv.path, 0, data)
        self.assert_of_lvm(data, *content)
        self.reactivate()
        self.assert_of_lvm(data, *content)

    def test_way_back_twice_and_here_again(self):
        """What was converted is left alone, and is LVM's to this driver."""
        one = self.take()
        self.complete()
        data = self.write(clones.MIB, b'1' * clones.MIB)
        for _attempt in range(2):
            self.go_back()
            self.assert_of_lvm(data, (one, self.data))
        self.local.ensure_linear(self.lv)
        self.assertEqual('linear', dmsetup.state(self.names.of(HANDLE)))
        data = self.write(clones.MIB - 4096, b'2' * clones.MIB)
        self.assert_of_lvm(data, (one, self.data))

    def test_way_back_and_a_revert(self):
        """LVM merges a snapshot that it did not take."""
        one = self.take()
        self.complete()
        self.write(clones.MIB + 512, b'1' * 2 * clones.MIB)
        self.go_back()
        clones.run('lvconvert', '--merge', '%s/_snapshot-%s' % (
            clones.GROUP, one.snapshot_id))
        self.assert_of_lvm(self.data)

    def test_way_back_of_an_extended_volume(self):
        """Of a snapshot the part counts that the volume had."""
        one = self.take()
        self.complete()
        clones.run('lvextend', '--size', '+%db' % SIZE, self.lv.full_name)
        self.local.grow(self.lv)
        data = self.write(SIZE - 4096, b'5' * clones.MIB)
        self.go_back()
        self.assertEqual(2 * SIZE, block.size(self.lv.path))
        for _attempt in range(2):
            self.assertEqual(data, clones.read(self.lv.path, 0, 2 * SIZE))
            self.assertEqual(self.data, self.of_lvm(one)[:SIZE])
            data = clones.pattern(SIZE, 9) + data[SIZE:]
            clones.write(self.lv.path, 0, data[:SIZE])

    def test_each_is_a_prefix_of_a_writer(self):
        """20 moments while it needs its source, and 20 while it hydrates."""
        self.assert_prefixes(
            self.names.path(), self.take, self.content, self.delete,
            halfway=self.local.start_hydration, moments=40)
