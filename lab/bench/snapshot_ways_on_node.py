# SPDX-License-Identifier: Apache-2.0
"""Snapshot a hydrating volume beside its guest, in one of several ways.

usage: python -m lab.bench.snapshot_ways_on_node WAY

Prints a line of JSON, see :class:`Found`. The guest writes numbered records of
4 KiB, each to another place, without the page cache. The snapshot has to show
those that were acknowledged before it, and no later one without all before.
"""

import contextlib
import dataclasses
import mmap
import os
import random
import sys
import threading
import time
import uuid

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import Taken
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node import snapshot_devices
from dmclone_driver.privsep import block
from lab.bench import on_node
from lab.common import clones

SIZE, REGION, RECORD = 256 * clones.MIB, 128, 4096
#: Bytes that are written or read at a time: a node has little memory.
PIECE = 8 * clones.MIB
#: How many records the guest writes after the snapshot, and how long it rests
#: after each, so that the kernel has moments in which it can copy.
AFTER, REST = 2048, 0.002
#: Regions that are copied at a time.
WINDOW = clones.TUNING.window * 2 // REGION
#: Seconds between two pokes, see node/devicemapper/pokes.py.
POKE = 0.02
#: Seconds after the snapshot in which a write may still be slow by it.
AROUND = 0.5
#: Seconds for all that has to be copied.
LIMIT = 90
NONE, ABOVE, BELOW = 'none', 'above', 'below'
SECOND = 'bench-second'


@dataclasses.dataclass(frozen=True)
class Found:
    """What a snapshot has cost.

    :ivar pause: longest write of the guest around its moment, in ms
    :ivar seconds: that taking it took, with all commands; 0 without one
    :ivar written: bytes that the disk has written for each byte of the guest,
        from then until everything is copied
    :ivar read: the same of what it has read
    :ivar complete: seconds until then
    """

    pause: float
    seconds: float
    written: float
    read: float
    complete: float


def record(number):
    """Return the content of a record."""
    return b'%016d' % number * (RECORD // 16)


def records(data):
    """Return the number of the record at each place, 0 if there is none."""
    found = []
    for at in range(0, len(data), RECORD):
        text = data[at:at + 16]
        number = int(text) if text.isdigit() else 0
        found.append(number if number and data[at:at + RECORD] == record(
            number) else 0)
    return found


def newest(found, places):
    """Return the number of the newest record that a snapshot has.

    :param found: of each place, see :func:`records`
    :param places: of the records, from the first one on
    :raises AssertionError: if an older one is missing
    """
    there = [found[place] == number for number, place in enumerate(places, 1)]
    count = sum(there)
    assert all(there[:count]), 'only %d, and not all of the first' % count
    return count


def pause(writes, begin, end):
    """Return the seconds of the longest write that overlaps a time.

    :param writes: pairs of begin and end
    """
    return max((after - before for before, after in writes
                if after >= begin and before <= end), default=0)


class Guest(threading.Thread):
    """Writes records until it is told to stop."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.places = random.sample(range(SIZE // RECORD), SIZE // RECORD)
        #: (begin, end) of each write.
        self.writes = []
        self.error = None
        self._path, self._over = path, threading.Event()
        self.start()

    def run(self):
        buffer = mmap.mmap(-1, RECORD)
        disk = os.open(self._path, os.O_WRONLY | os.O_DIRECT)
        try:
            for number, place in enumerate(self.places, 1):
                if self._over.is_set():
                    return
                buffer[:] = record(number)
                begin = time.monotonic()
                os.pwrite(disk, buffer, place * RECORD)
                self.writes.append((begin, time.monotonic()))
                time.sleep(REST)
        except OSError as error:
            self.error = error
        finally:
            os.close(disk)

    def wait(self, number):
        """Wait until it has written so many records."""
        clones.wait_until(lambda: self.error or len(self.writes) >= number,
                          'writes of the guest', LIMIT)
        if self.error:
            raise self.error

    def end(self):
        """Have it end after the record that is under way."""
        self._over.set()
        self.join(LIMIT)


class Bench(on_node.Bench):
    """One snapshot; its devices are removed at the end of step()."""

    def measure(self, way):
        """Take a snapshot in a way, and return what it has cost."""
        self.names, lv = self.clone(self._source(), passive=False, size=SIZE,
                                    region=REGION)
        self.local = LocalVolume(self.names)
        self._copied = [self.names.of(CLONE)]
        guest = Guest(self.names.path())
        self.addCleanup(guest.end)
        guest.wait(100)
        self.local.start_hydration()
        with self._poked():
            clones.wait_until(lambda: self._status()[0].hydrated >
                              SIZE // REGION // 512 // 8, 'copies', LIMIT)
            assert not self._complete(), 'it is complete before the snapshot'
            before, begin = self._disk(), time.monotonic()
            known = len(guest.writes)
            content = {NONE: lambda lv: None, ABOVE: self._above,
                       BELOW: self._below}[way](lv)
            end, most = time.monotonic(), len(guest.writes) + 1
            guest.wait(most + AFTER)
            guest.end()
            clones.wait_until(self._complete, 'the end of the copies', LIMIT)
        os.sync()
        complete = time.monotonic() - begin
        read, written = (now - then for now, then in zip(
            self._disk(), before, strict=True))
        if content:
            found = newest([number for at in range(0, SIZE, PIECE)
                            for number in records(clones.read(
                                content, at, PIECE))], guest.places)
            assert known <= found <= most, (known, found, most)
        own = (len(guest.writes) - known) * RECORD
        return Found(1000 * pause(guest.writes, begin, end + AROUND),
                     end - begin if content else 0, written / own, read / own,
                     complete)

    def _source(self):
        """Create an exported volume with data; returns its path."""
        names, _lv = self.linear_volume(SIZE)
        data = clones.pattern(PIECE, 1)
        for at in range(0, SIZE, PIECE):
            clones.write(names.path(), at, data)
        LocalVolume(names).ensure_export(SIZE)
        return names.path(EXPORT)

    @staticmethod
    def _disk():
        """Return the bytes that the disk has read and written."""
        with open('/sys/block/%s/stat' % on_node.DISK) as stream:
            columns = stream.read().split()
        return int(columns[2]) * 512, int(columns[6]) * 512

    def _status(self):
        found = dmsetup.clones(*self._copied)
        return [found[name] for name in self._copied]

    def _complete(self):
        return all(each.complete for each in self._status())

    @contextlib.contextmanager
    def _poked(self):
        """Have the clones use the moments without a request, as they do."""
        over = threading.Event()

        def work():
            while not over.wait(POKE):
                for name in self._copied:
                    dmsetup.message(name, 'hydration_threshold %d' % WINDOW)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    # Both return the path at which the content can be read.

    def _above(self, lv):
        """Take a snapshot as the driver does, see move/snapshots.py."""
        taken = Taken(str(uuid.uuid4()), self.names.name_id, SIZE)
        name = '_snapshot-' + taken.snapshot_id
        logical_volumes.tag(lv, logical_volumes.ORIGIN_TAG)
        logical_volumes.create(lv.group, name,
                               snapshot_devices.store_size(SIZE),
                               logical_volumes.NOT_TAKEN_TAG + str(taken))
        store = logical_volumes.find(name, lv.group)
        self.addCleanup(self._forget, lv, taken, store)
        block.zero_start(store.path, RECORD)
        self.local.take_snapshot(lv, taken, store)
        self.local.make_durable()
        logical_volumes.retag(store, logical_volumes.NOT_TAKEN_TAG,
                              logical_volumes.TAKEN_TAG + str(taken))
        return snapshot_devices.path(taken)

    def _forget(self, lv, taken, store):
        snapshot_devices.remove(taken)
        logical_volumes.remove(store)
        self.local.forget_snapshots(lv)

    def _below(self, lv):
        """Take one of LVM, with a copy of the clone's metadata."""
        metadata, _region = self.metadata.find(self.names)
        snapshot, copy = ('%s-%s' % (kind, self.names.name_id)
                          for kind in ('benchsnapshot', 'benchmetadata'))
        logical_volumes.create(lv.group, copy, block.size(metadata))
        copied = logical_volumes.find(copy, lv.group)
        self.addCleanup(logical_volumes.remove, copied)
        clone = self.names.of(CLONE)
        dmsetup.suspend(self.names.of(clones.HANDLE))
        try:
            # Ends its copies, and commits its metadata.
            dmsetup.suspend(clone)
            try:
                logical_volumes.take_snapshot(lv, snapshot)
                clones.run('dd', 'if=' + metadata, 'of=' + copied.path,
                           'bs=1M', 'iflag=direct', 'oflag=direct',
                           'conv=fsync')
            finally:
                dmsetup.resume(clone)
        finally:
            dmsetup.resume(self.names.of(clones.HANDLE))
        taken = logical_volumes.find(snapshot, lv.group)
        self.addCleanup(logical_volumes.remove, taken)
        dmsetup.create(SECOND, 'DMCLONE-' + SECOND, table.Clone(
            table.sectors(SIZE), copied.path, taken.path,
            self.names.path(SOURCE), REGION, WINDOW, WINDOW))
        self.addCleanup(dmsetup.remove, SECOND)
        dmsetup.message(SECOND, 'enable_hydration')
        self._copied.append(SECOND)
        return '/dev/mapper/' + SECOND


def warm(bench):
    """Write all that is used once: a sparse file is slower at first."""
    _names, lv = bench.logical_volume(4 * SIZE + SIZE // 2)
    clones.run('dd', 'if=/dev/zero', 'of=' + lv.path, 'bs=1M', 'oflag=direct',
               'count=%d' % (lv.size // clones.MIB))


def main():
    bench = Bench()
    with bench.step():
        if sys.argv[1] == 'warm':
            warm(bench)
        else:
            on_node.tell(**dataclasses.asdict(bench.measure(sys.argv[1])))


if __name__ == '__main__':
    main()
