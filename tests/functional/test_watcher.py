# SPDX-License-Identifier: Apache-2.0
"""The watcher's detection of stalled clones, on a real kernel."""

import threading
import time
import types

from dmclone_driver.move import hydration
from dmclone_driver.move import jobs
from dmclone_driver.move import messages
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import block
from lab.common import clones
from tests.functional import base

READERS = 8
#: Checks until a clone counts as stalled, and one more.
LOOKS = 2 + hydration.STALLED // 10


class StalledTest(base.FunctionalTest):
    """A clone of a slow source, with a simulated clock of the watcher."""

    def setUp(self):
        super().setUp()
        clones.run('modprobe', 'dm-delay')
        source, path, data = self.exported_source()
        slow = self.raw('0 %d delay %s 0 50' % (block.size(path) // 512,
                                                path))
        self.names, lv = self.clone(slow, passive=False)
        self.batch = self.status().batch
        self.assertEqual(clones.TUNING.in_regions(128)[1], self.batch)
        self.seconds, self.stalled = 0, []
        todo = jobs.Jobs(lambda: self.seconds)
        todo.start = lambda key, *args: self.stalled.append(key)
        self.hydration = hydration.Hydration(types.SimpleNamespace(
            tuning=clones.TUNING, jobs=todo,
            configuration=types.SimpleNamespace(dmclone_check_interval=10)),
            types.SimpleNamespace(is_marking=lambda names: False), None,
            messages.Troubles(),
            types.SimpleNamespace(is_held_back=lambda names, status: False))

    def status(self):
        return dmsetup.clone(self.names.of(CLONE))

    def look(self):
        """Run a check ten seconds later; returns the hydrated regions."""
        self.seconds += 10
        status = self.status()
        self.hydration.look(None, self.names, status)
        return status.hydrated

    def read(self, over):
        while not over.is_set():
            clones.read(self.names.path(), clones.MIB, 4096)

    def test_guest_that_reads_all_the_time(self):
        over = threading.Event()
        readers = [threading.Thread(target=self.read, args=(over,))
                   for _ in range(READERS)]
        for reader in readers:
            reader.start()
        try:
            clones.wait_until(lambda: sysfs.requests(
                self.names.of(HANDLE)) > READERS, 'reads')
            LocalVolume(self.names).start_hydration()
            seen = []
            while len(seen) < LOOKS or len(set(seen[-LOOKS:])) > 1:
                # The clone is only judged when no region has been copied.
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
        clones.wait_until(lambda: self.status().complete, 'complete clone')

    def test_source_that_is_gone(self):
        dmsetup.suspend(self.names.of(SOURCE), flush=False)
        self.addCleanup(dmsetup.resume, self.names.of(SOURCE))
        LocalVolume(self.names).start_hydration()
        for _ in range(LOOKS):
            self.assertEqual(0, self.look())
        self.assertEqual(1, len(self.stalled))

    def test_batches(self):
        LocalVolume(self.names).copy_one_by_one()
        self.assertEqual(1, self.status().batch)
        LocalVolume(self.names).copy_in_batches(self.batch)
        self.assertEqual(self.batch, self.status().batch)
