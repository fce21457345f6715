# SPDX-License-Identifier: Apache-2.0
"""A guest that is busy all the time is held for moments, and never longer.

The source is slow, so that a read of the guest is under way at any time.
"""

import contextlib
import dataclasses
import os
import random
import signal
import threading
import time
from unittest import mock

from dmclone_driver.node import anchor
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import ANCHOR
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import ZEROS
from dmclone_driver.node import pacing as node_pacing
from dmclone_driver.privsep import block
from dmclone_driver.privsep import pacing
from lab.common import clones
from tests.functional import base

#: Regions of 64 KiB.
WINDOW = 64
READERS = 8
#: Milliseconds that a read of the source takes.
SLOW = 10
HOLDS = 10
#: Seconds in which a guest that is let go gets an answer. What a hold really
#: takes is measured by a benchmark: here other programs may use the processors
#: for longer than that.
PATIENCE = 5

#: Nobody but a signal ends the hold.
ENDLESS = holds.PROGRAM.replace(
    'holds.main()', 'holds.LIMIT = 99; '
    'holds._Poker.run = lambda poker: None; holds.main()')


class Guest:
    """Threads that read all the time."""

    def __init__(self, path):
        self._path, self._size = path, block.size(path)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._read, daemon=True)
                         for _ in range(READERS)]
        #: The number of reads, and the seconds of the longest one.
        self.reads, self.longest = 0, 0

    def _read(self):
        while not self._over.is_set():
            began = time.monotonic()
            clones.read(self._path,
                        random.randrange(self._size // 4096) * 4096, 4096)
            self.longest = max(self.longest, time.monotonic() - began)
            self.reads += 1

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        clones.wait_until(lambda: self.reads > READERS, 'reads')
        return self

    def __exit__(self, *_arguments):
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def goes_on(self, seconds):
        """Return whether a read ends within some seconds."""
        before, end = self.reads, time.monotonic() + seconds
        # Those of this moment may just be ending.
        while self.reads <= before + READERS:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True


class HoldsTest(base.FunctionalTest):

    SIZE = 16 * clones.MIB
    TUNING = dataclasses.replace(clones.TUNING, held=True)

    def setUp(self):
        super().setUp()
        clones.run('modprobe', 'dm-delay')
        source, path, self.data = self.exported_source(self.SIZE)
        self.slow = self.raw('0 %d delay %s 0 %d' % (
            block.size(path) // 512, path, SLOW))
        self.holder = pacing.Holder()
        self.addCleanup(self.end_process)

    def end_process(self):
        process = self.holder._process
        if process:
            process.kill()
            process.wait(60)
            process.stdin.close()
            process.stdout.close()

    def hydrating(self, passive=False):
        """Build a clone that may copy, but does not begin by itself."""
        self.names, self.lv = self.clone(self.slow, passive=passive,
                                         size=self.SIZE)
        self.device = self.names.of(CLONE)
        self.threshold(0)
        if not passive:
            LocalVolume(self.names).start_hydration()

    def threshold(self, regions):
        dmsetup.message(self.device, 'hydration_threshold %d' % regions)

    def status(self):
        return dmsetup.clone(self.device)

    def hold(self):
        return self.holder.hold(self.device, WINDOW)

    def wait_for_copies(self):
        clones.wait_until(lambda: self.status().hydrating <= 1,
                          'end of the copies')

    def assertIntact(self):
        """Check that the clone becomes complete, and has the data."""
        self.assertFalse(sysfs.is_suspended(self.device))
        self.threshold(WINDOW)
        clones.wait_until(lambda: self.status().complete, 'complete clone')
        self.assertEqual(self.data, clones.read(self.names.path(), 0,
                                                self.SIZE))


class WindowsTest(HoldsTest):

    SIZE = 64 * clones.MIB

    def setUp(self):
        super().setUp()
        self.hydrating()

    def assertBegun(self, before):
        """Check that a window has been copied since.

        A region less may have begun, see holds, and the status counts one
        twice while its copy ends.
        """
        window = min(WINDOW, before.total - before.hydrated)
        self.assertGreaterEqual(self.status().hydrated - before.hydrated,
                                window - 2)

    def test_windows_are_filled(self):
        filled, ends = 0, []
        with Guest(self.names.path()) as guest:
            # Where processors are slow a hold lasts for several windows, and
            # the clone is complete after fewer of them.
            while filled < HOLDS and not self.status().complete:
                before = self.status()
                ends.append(self.hold().ended)
                # Without a free processor a hold may end before.
                self.assertLess(len(ends), 5 * HOLDS, ends)
                self.threshold(0)
                self.wait_for_copies()
                if ends[-1] in (holds.FULL, holds.SLOW):
                    filled += 1
                    self.assertBegun(before)
            self.assertTrue(guest.goes_on(PATIENCE))
        self.assertLess(guest.longest, PATIENCE)
        self.assertIntact()

    def test_minimum_rate(self):
        """The guest is held as often as it is needed."""
        rate = 8 * clones.MIB
        pacemaker = node_pacing.Pacemaker(lambda: [node_pacing.Pace(
            'the volume', self.device, WINDOW)], lambda: rate)
        with Guest(self.names.path()) as guest:
            began = time.monotonic()
            while not self.status().complete:
                self.assertLess(time.monotonic() - began,
                                3 * self.SIZE / rate)
                pacemaker.beat()
        self.assertLess(guest.longest, PATIENCE)
        self.assertIntact()

    def test_swap_afterwards(self):
        """It does not wait for the read of the tail for long."""
        with Guest(self.names.path()) as guest:
            self.threshold(WINDOW)
            for _ in range(2 * (self.SIZE // 65536) // WINDOW):
                self.hold()
                if self.status().complete:
                    break
                self.wait_for_copies()
            clones.wait_until(lambda: self.status().complete, 'complete clone')
            lv = logical_volumes.find(self.lv.name, self.lv.group)
            began = time.monotonic()
            self.assertTrue(LocalVolume(self.names).make_linear(lv))
            self.assertLess(time.monotonic() - began, 10)
            self.assertTrue(guest.goes_on(PATIENCE))
        self.assertLess(guest.longest, PATIENCE + anchor.DELAY / 1000)
        self.assertEqual(self.data, clones.read(self.names.path(), 0,
                                                self.SIZE))

    def test_end_of_the_read(self):
        """The clone is really suspended then, and resumed at once."""
        with mock.patch.object(holds, 'PROGRAM', ENDLESS), Guest(
                self.names.path()) as guest:
            self.assertEqual(holds.SUSPENDED, self.hold().ended)
            self.assertTrue(guest.goes_on(PATIENCE))
        self.assertTrue(self.status().hydration)
        self.assertIntact()

    def test_timer(self):
        """It ends a hold in which no copies begin."""
        program = ENDLESS.replace('99', str(holds.LIMIT))
        with mock.patch.object(holds, 'PROGRAM', program), Guest(
                self.names.path()) as guest:
            for _ in range(HOLDS):
                self.assertEqual(holds.LATE, self.hold().ended)
        self.assertLess(guest.longest, PATIENCE)
        self.assertIntact()


class EndTest(HoldsTest):
    """The process ends, or stops, while it holds a guest."""

    def setUp(self):
        super().setUp()
        self.hydrating()
        # So that it is not the end of the read that lets the guest go.
        self.read_takes(20 * anchor.DELAY)
        self.addCleanup(self.read_takes, anchor.DELAY)

    @staticmethod
    def read_takes(milliseconds):
        clones.swap('/dev/mapper/' + ANCHOR, '0 8 %s' % table.Delay(
            anchor.LENGTH, '/dev/mapper/' + ZEROS, milliseconds))

    @contextlib.contextmanager
    def held(self):
        """Hold a guest until the process gets a signal."""
        with mock.patch.object(holds, 'PROGRAM', ENDLESS), Guest(
                self.names.path()) as guest:
            process = self.holder._running()
            process.stdin.write(b'["%s", %d]\n' % (self.device.encode(),
                                                   WINDOW))
            process.stdin.flush()
            clones.wait_until(lambda: not guest.goes_on(0.3), 'hold')
            yield guest, process

    def assertLetGo(self, number):
        with self.held() as (guest, process):
            os.kill(process.pid, number)
            self.assertTrue(guest.goes_on(PATIENCE))
            self.assertFalse(ioctl.info(self.device).suspended)
            process.kill()
        self.read_takes(anchor.DELAY)
        self.assertIntact()

    def test_killed(self):
        self.assertLetGo(signal.SIGKILL)

    def test_asked_to_end(self):
        self.assertLetGo(signal.SIGTERM)

    def test_stopped(self):
        self.assertLetGo(signal.SIGSTOP)


class RefusedTest(HoldsTest):

    def test_closed_gate(self):
        """A write waits there, and so would the hold."""
        self.hydrating(passive=True)
        write = clones.Background(self.names.path(), 0, b'W' * 4096)
        self.assertTrue(write.waits())
        self.assertEqual(holds.REFUSED, self.hold().ended)
        self.assertTrue(write.waits())
        LocalVolume(self.names).open_gate()
        write.join(60)
        self.assertIsNone(write.error)

    def test_source_is_suspended(self):
        self.hydrating()
        source = self.names.of('source')
        dmsetup.suspend(source, flush=False)
        try:
            self.assertEqual(holds.REFUSED, self.hold().ended)
        finally:
            dmsetup.resume(source)
        self.assertIntact()

    def test_no_tail(self):
        """A clone that was built without a minimum rate."""
        self.TUNING = clones.TUNING
        self.hydrating()
        self.assertEqual(holds.NO_TAIL, self.hold().ended)
        self.assertIntact()


class TailTest(HoldsTest):

    def test_guest_does_not_see_it(self):
        self.hydrating()
        self.assertEqual(self.SIZE, block.size(self.names.path(HANDLE)))
        self.assertEqual(self.SIZE + anchor.LENGTH * 512,
                         block.size(self.names.path(CLONE)))
        self.assertEqual('clone', dmsetup.state(self.device))
