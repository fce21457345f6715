# SPDX-License-Identifier: Apache-2.0
"""How the watcher judges a clone by what a real kernel says of it."""

import threading
import time
import types

from dmclone_driver.devicemapper import dmsetup
from dmclone_driver.devicemapper import sysfs
from dmclone_driver import handles
from dmclone_driver import hydration
from dmclone_driver.names import HANDLE
from dmclone_driver.names import SOURCE
from dmclone_driver.privsep import block
from tests.functional import base

READERS = 8
#: Looks until a clone is stalled, and one more.
LOOKS = 2 + hydration.STALLED // 10


class StalledTest(base.FunctionalTest):
    """A clone of a slow source; the watcher's clock is the test's."""

    def setUp(self):
        super().setUp()
        base.run('modprobe', 'dm-delay')
        source, path, data = self.exported_source()
        slow = self.raw('0 %d delay %s 0 50' % (block.size(path) // 512,
                                                path))
        self.names, lv = self.clone(slow, passive=False)
        self.batch = self.status().batch
        self.assertEqual(base.TUNING.in_regions(128)[1], self.batch)
        self.seconds, self.stalled = 0, []
        self.watcher = hydration.Watcher(types.SimpleNamespace(
            tuning=base.TUNING, configuration=types.SimpleNamespace(
                dmclone_check_interval=10)), None, None, None, None, None)
        self.watcher._pauses = hydration.Pauses(lambda: self.seconds)
        self.watcher._in_background = (
            lambda key, *args: self.stalled.append(key))

    def status(self):
        return dmsetup.clone(self.names.of(HANDLE))

    def look(self):
        """Look as after ten seconds; returns the regions that are there."""
        self.seconds += 10
        status = self.status()
        self.watcher._see_progress(None, self.names, status)
        return status.hydrated

    def read(self, over):
        while not over.is_set():
            base.read(self.names.path(), base.MIB, 4096)

    def test_guest_that_reads_all_the_time(self):
        over = threading.Event()
        readers = [threading.Thread(target=self.read, args=(over,))
                   for _ in range(READERS)]
        for reader in readers:
            reader.start()
        try:
            base.wait_until(lambda: sysfs.requests(
                self.names.of(HANDLE)) > READERS, 'reads')
            handles.start_hydration(self.names)
            seen = []
            while len(seen) < LOOKS or len(set(seen[-LOOKS:])) > 1:
                # For as long as anything is copied nothing is judged.
                time.sleep(0.1)
                seen.append(self.look())
            status = self.status()
        finally:
            over.set()
            for reader in readers:
                reader.join()
        self.assertEqual([], self.stalled)
        self.assertTrue(status.hydration)
        self.assertEqual(self.batch, status.batch)
        self.assertFalse(status.complete)
        base.wait_until(lambda: self.status().complete, 'complete clone')

    def test_source_that_is_gone(self):
        dmsetup.suspend(self.names.of(SOURCE), flush=False)
        self.addCleanup(dmsetup.resume, self.names.of(SOURCE))
        handles.start_hydration(self.names)
        for _ in range(LOOKS):
            self.assertEqual(0, self.look())
        self.assertEqual(1, len(self.stalled))

    def test_batches(self):
        handles.copy_one_by_one(self.names)
        self.assertEqual(1, self.status().batch)
        handles.copy_in_batches(self.names, self.batch)
        self.assertEqual(self.batch, self.status().batch)
