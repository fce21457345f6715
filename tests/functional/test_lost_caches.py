# SPDX-License-Identifier: Apache-2.0
"""Power cuts with disks that lose all unflushed writes.

A guest writes and flushes while its volume hydrates and becomes linear. The
volume is rebuilt from the durable content of the disks at several moments, and
has to contain all acknowledged writes.
"""

import functools
import random
import threading
from unittest import mock

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import udev
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import swaps
from lab.common import clones
from tests.functional import base
from tests.functional import log_writes

SIZE = 4 * clones.MIB
REGION = 16
BLOCK = 4096
#: A slow hydration, so that there is time for writes.
SLOW = devices.Tuning(window=1)
WRITES = 24
LOOKS = 12


class _Disk:
    """A logical volume with a log of its durable content."""

    def __init__(self, test, size, content=None):
        names, self.lv = test.logical_volume(size, content)
        self._log = test.logical_volume(64 * clones.MIB)[1].path
        self.sectors = size // 512
        self.before = clones.read(self.lv.path, 0, size)
        self.path = test.raw(log_writes.table(self.sectors, self.lv.path,
                                              self._log))

    def mark(self, text):
        log_writes.mark(self.path, text)

    def states(self, marks):
        """End the log; return {mark: content}."""
        clones.swap(self.path, '0 %d linear %s 0' % (self.sectors,
                                                     self.lv.path))
        return log_writes.states(self._log, self.before, marks)


class LostCachesTest(base.FunctionalTest):

    def setUp(self):
        super().setUp()
        clones.run('modprobe', 'dm-log-writes')
        self.source, self.disk, self.data = self.exported_source(SIZE)
        self.names = Names(self.id_of_a_volume())
        #: The writes that the guest has begun, (block, content), in order.
        self.begun = []
        #: The number of acknowledged writes.
        self.acknowledged = 0
        #: {mark: (writes acknowledged before it, writes begun after it)}
        self.moments = {}
        #: The marks of the steps from the clone to the linear handle.
        self.switch = []
        #: The mark after which the source may be deleted.
        self.complete = None
        self.looking = threading.Lock()

    def id_of_a_volume(self):
        return self.logical_volume(SIZE)[0].name_id

    def test_metadata_on_the_same_disk(self):
        disk = _Disk(self, 2 * SIZE, clones.pattern(SIZE, 2) + bytes(SIZE))
        data = self.raw('0 %d linear %s 0' % (SIZE // 512, disk.path))
        bitmap = self.raw('0 %d linear %s %d' % (
            SIZE // 512, disk.path, SIZE // 512))
        self.live(data, bitmap, [disk])
        states = disk.states(self.chosen())
        self.expect_all({mark: (state[:SIZE], state[SIZE:])
                         for mark, state in states.items()})

    def test_metadata_on_another_disk(self):
        data = _Disk(self, SIZE, clones.pattern(SIZE, 2))
        bitmap = _Disk(self, SIZE, bytes(SIZE))
        # The metadata first: the data may be newer than the metadata.
        self.live(data.path, bitmap.path, [bitmap, data])
        chosen = self.chosen()
        states, bitmaps = data.states(chosen), bitmap.states(chosen)
        self.expect_all({mark: (states[mark], bitmaps[mark])
                         for mark in chosen})

    def live(self, data, bitmap, disks):
        """Write as a guest, while its volume hydrates and afterwards."""
        lv = logical_volumes.LogicalVolume(
            'mapper', data.rpartition('/')[2], SIZE, active=True)
        self.addCleanup(LocalVolume(self.names).remove, HANDLE, CLONE, GATE,
                        SOURCE)
        LocalVolume(self.names).build_clone(lv, bitmap, REGION, SLOW,
                                            disk=self.disk)
        over = threading.Event()
        cuts = threading.Thread(target=self.look_often, args=(disks, over))
        cuts.start()
        try:
            chance = random.Random(1)
            self.write(chance, WRITES // 4)
            LocalVolume(self.names).start_hydration()
            self.write(chance, WRITES // 2)
            clones.wait_until(lambda: dmsetup.clone(
                self.names.of(CLONE)).complete, 'complete clone')
            self.become_linear(disks, lv, chance)
            # As Completion.finish does before it releases the source.
            LocalVolume(self.names).make_durable()
            self.complete = self.look(disks)
            self.write(chance, WRITES // 4)
        finally:
            over.set()
            cuts.join()
        LocalVolume(self.names).remove(HANDLE, CLONE, GATE, SOURCE)

    def mark(self, disks):
        """Take a look at the disks between two steps of the switch."""
        self.switch.append(self.look(disks))

    def become_linear(self, disks, lv, chance):
        """Make the clone linear, with a mark after each step."""
        mark = functools.partial(self.mark, disks)

        class Kernel(swap.Kernel):
            def suspend(self, *args):
                super().suspend(*args)
                mark()

            def load(self, *args):
                super().load(*args)
                mark()

            def resume(self, *args):
                super().resume(*args)
                mark()

        def perform(request):
            del request['lock']
            with udev.Resumes() as resumes:
                return swap.perform(Kernel(resumes), **request)

        guest = threading.Thread(target=self.write, args=(chance, 3))
        with mock.patch.object(swaps, 'swap', perform):
            guest.start()
            self.assertTrue(LocalVolume(self.names).make_linear(lv))
        guest.join()

    def test_source_that_is_sealed(self):
        """The seal makes acknowledged writes durable, also unflushed ones.

        The guest's next flush goes to the new home only.
        """
        disk = _Disk(self, SIZE, self.data)
        lv = logical_volumes.LogicalVolume(
            'mapper', disk.path.rpartition('/')[2], SIZE, active=True)
        LocalVolume(self.names).ensure_linear(lv)
        self.addCleanup(LocalVolume(self.names).remove, HANDLE)
        content = clones.pattern(BLOCK, 3)
        clones.write(self.names.path(), BLOCK, content, durably=False)
        disk.mark('written')
        self.assertTrue(LocalVolume(self.names).seal())
        disk.mark('sealed')
        LocalVolume(self.names).remove(HANDLE)
        states = disk.states({'written', 'sealed'})
        self.assertEqual(self.data[BLOCK:2 * BLOCK],
                         states['written'][BLOCK:2 * BLOCK])
        self.assertEqual(content, states['sealed'][BLOCK:2 * BLOCK])

    def write(self, chance, times):
        """Write and flush some random blocks."""
        for _ in range(times):
            number = len(self.begun) + 1
            block = chance.randrange(SIZE // BLOCK)
            content = b'%08d' % number * (BLOCK // 8)
            self.begun.append((block, content))
            clones.write(self.names.path(), block * BLOCK, content)
            self.acknowledged = number

    def look_often(self, disks, over):
        """Mark moments of possible power cuts."""
        while not over.is_set():
            self.look(disks)
        self.look(disks)

    def look(self, disks):
        """Mark this moment of a possible power cut; returns the mark."""
        with self.looking:
            text = 'moment-%d' % len(self.moments)
            acknowledged = self.acknowledged
            for disk in disks:
                disk.mark(text)
            self.moments[text] = acknowledged, len(self.begun)
            return text

    def chosen(self):
        """Return the marks to check; a check takes a second."""
        self.assertGreater(len(self.moments), 5)
        # Two are suspended, one is loaded, two are resumed.
        self.assertEqual(5, len(self.switch))
        every = -(-len(self.moments) // LOOKS)
        return {*list(reversed(self.moments))[::every], *self.switch,
                self.complete}

    def expect_all(self, states):
        """Rebuild and check the volume of each moment.

        When the source may be deleted only the data disk is checked.
        """
        gone = False
        names, lv = self.logical_volume(SIZE)
        bitmap = self.logical_volume(SIZE)[1].path
        for mark, (acknowledged, begun) in self.moments.items():
            gone |= mark == self.complete
            if mark not in states:
                continue
            if gone:
                self.expect(mark, states[mark][0], acknowledged, begun)
                continue
            clones.write(lv.path, 0, states[mark][0])
            clones.write(bitmap, 0, states[mark][1])
            try:
                LocalVolume(names).build_clone(lv, bitmap, REGION, SLOW,
                                               disk=self.disk)
                found = clones.read(names.path(), 0, SIZE)
            finally:
                LocalVolume(names).remove(HANDLE, CLONE, GATE, SOURCE)
            self.expect(mark, found, acknowledged, begun)

    def expect(self, mark, found, acknowledged, begun):
        allowed = {}
        for block, content in self.begun[:acknowledged]:
            allowed[block] = [content]
        for block, content in self.begun[acknowledged:begun]:
            allowed.setdefault(block, [self.original(block)]).append(content)
        for block in range(SIZE // BLOCK):
            at = block * BLOCK
            self.assertIn(
                found[at:at + BLOCK],
                allowed.get(block, [self.original(block)]),
                '%s: block %d, after %d of %d writes' % (
                    mark, block, acknowledged, begun))

    def original(self, block):
        return self.data[block * BLOCK:(block + 1) * BLOCK]
