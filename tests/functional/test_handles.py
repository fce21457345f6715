# SPDX-License-Identifier: Apache-2.0
"""The devices of a move, on a real kernel."""

import dataclasses
import errno
import os
import subprocess
import time

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import handles
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from dmclone_driver.privsep import block
from dmclone_driver.privsep import events
from lab.common import clones
from tests.functional import base

WRITTEN = b'W' * 4096


class GateTest(base.FunctionalTest):
    """A destination is not written before the switchover."""

    def test_passive_clone_reads_the_source_and_copies_nothing(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        self.assertEqual(data, clones.read(names.path(), 0, len(data)))
        self.assertFalse(dmsetup.clone(names.of(CLONE)).written)

    def test_write_waits_at_the_gate_and_goes_on_after_it(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        for offset, content in ((4096, WRITTEN), (clones.MIB, WRITTEN * 16)):
            devices.dmsetup.suspend(names.of(GATE))
            writer = clones.Background(names.path(), offset, content)
            self.assertTrue(writer.waits())
            self.assertTrue(dmsetup.clone(names.of(CLONE)).written)
            LocalVolume(names).open_gate()
            self.assertFalse(writer.waits(10))
            self.assertEqual(content, clones.read(names.path(), offset,
                                                  len(content)))
        self.assertEqual(data, clones.read(source.path(), 0, len(data)))

    def test_discards_are_refused(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        with self.assertRaises(subprocess.CalledProcessError):
            clones.run('blkdiscard', '-l', str(clones.MIB), names.path())
        self.assertFalse(dmsetup.clone(names.of(CLONE)).written)

    def test_source_writes_are_seen_until_the_switchover(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        clones.read(names.path(), 0, clones.MIB)
        clones.write(source.path(), 0, WRITTEN)
        self.assertEqual(WRITTEN, clones.read(names.path(), 0, 4096))


class EvidenceTest(base.FunctionalTest):
    """Only a destination that was never written counts as discardable."""

    def test_untouched_destination(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        self.assertTrue(LocalVolume(names).never_written())

    def test_open_handle(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        with open(names.path(), 'rb'):
            self.assertFalse(LocalVolume(names).never_written())
        # Afterwards it can be opened for writing.
        os.close(os.open(names.path(), os.O_RDWR))

    def test_waiting_write(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        writer = clones.Background(names.path(), 0, WRITTEN)
        self.assertTrue(writer.waits())
        self.assertFalse(LocalVolume(names).never_written())
        LocalVolume(names).open_gate()
        self.assertFalse(writer.waits(10))
        self.assertFalse(LocalVolume(names).never_written())

    def test_waiting_write_is_refused(self):
        """After that the devices can be removed, as the base class does."""
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        writer = clones.Background(names.path(), 0, WRITTEN)
        self.assertTrue(writer.waits())
        with LocalVolume(names).fail_writes(lv.size // 512):
            self.assertFalse(writer.waits(10))
        self.assertEqual(errno.EIO, writer.error.errno)
        self.assertTrue(sysfs.is_suspended(names.of(GATE)))
        self.assertFalse(LocalVolume(names).is_open())
        self.assertNotEqual(WRITTEN, clones.read(lv.path, 0, 4096))


class HydrationTest(base.FunctionalTest):
    """Hydration, and the replacement of a clone by a linear handle."""

    def _hydrated(self, names):
        LocalVolume(names).start_hydration()
        deadline = time.monotonic() + 60
        while not dmsetup.clone(names.of(CLONE)).complete:
            self.assertLess(time.monotonic(), deadline, 'hydration')
            events.wait(1)

    def test_completion(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        LocalVolume(names).open_gate()
        clones.write(names.path(), 4096, WRITTEN)
        self._hydrated(names)
        self.assertTrue(LocalVolume(names).make_linear(lv))
        LocalVolume(names).remove(GATE, SOURCE)
        expected = data[:4096] + WRITTEN + data[8192:]
        self.assertEqual(expected, clones.read(names.path(), 0, len(data)))
        self.assertEqual(expected, clones.read(lv.path, 0, len(data)))
        self.assertEqual(data, clones.read(source.path(), 0, len(data)))

    def test_incomplete_clone_stays_a_clone(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        LocalVolume(names).open_gate()
        clones.write(names.path(), 0, WRITTEN)
        self.assertFalse(LocalVolume(names).make_linear(lv))
        self.assertEqual(1, dmsetup.clone(names.of(CLONE)).hydrated)
        self.assertEqual(WRITTEN + data[4096:],
                         clones.read(names.path(), 0, len(data)))

    def test_rebuilt_clone_keeps_its_metadata(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        LocalVolume(names).open_gate()
        clones.write(names.path(), 0, WRITTEN)
        LocalVolume(names).remove(HANDLE, CLONE, GATE, SOURCE)
        before = dataclasses.replace(lv, tags=frozenset(
            [logical_volumes.METADATA_TAG + 'its/name']))
        self.metadata.create(names, lv.size, 128, before)
        self.build(names, lv, path, passive=False)
        self.assertEqual(1, dmsetup.clone(names.of(CLONE)).hydrated)
        self.assertEqual(WRITTEN + data[4096:],
                         clones.read(names.path(), 0, len(data)))

    def test_clone_without_its_source_serves_what_it_has(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        LocalVolume(names).open_gate()
        clones.write(names.path(), 0, WRITTEN * 16)
        LocalVolume(names).remove(HANDLE, CLONE, GATE, SOURCE)
        self.build(names, lv, None, passive=False)
        self.assertEqual(WRITTEN, clones.read(names.path(), 0, 4096))
        writer = clones.Background(names.path(), clones.MIB, WRITTEN)
        self.assertTrue(writer.waits())
        LocalVolume(names).connect_source(path, lv.size // 512)
        self.assertFalse(writer.waits(10))
        self.assertEqual(data[2 * clones.MIB:],
                         clones.read(names.path(), 2 * clones.MIB,
                                     len(data) - 2 * clones.MIB))

    def test_completion_raises_an_event(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        LocalVolume(names).open_gate()
        while events.wait(0):
            pass
        LocalVolume(names).start_hydration()
        self.assertTrue(events.wait(30))


class StartTest(base.FunctionalTest):
    """The handles of many volumes, created by one process."""

    def test_handles_at_once(self):
        volumes = dict(self.logical_volume() for _ in range(3))
        for names in volumes:
            self.addCleanup(LocalVolume(names).remove, HANDLE)
        handles.create_linear(volumes)
        for number, names in enumerate(volumes):
            clones.write(names.path(), 0, bytes([number]) * clones.MIB)
        for number, (names, lv) in enumerate(volumes.items()):
            self.assertEqual(bytes([number]) * clones.MIB,
                             clones.read(lv.path, 0, clones.MIB))
            found = dmsetup.device(names.of(HANDLE))
            self.assertEqual((names.uuid(HANDLE), False),
                             (found.uuid, found.read_only))

    def test_long_list(self):
        """dmsetup itself would lose what is beyond 64 KiB."""
        names = ['dmclone-long-%d' % number for number in range(3)]
        lines = [table.Zero(8)] * 2500
        devices = [table.concise(each, 'DMCLONE-' + each, *lines)
                   for each in names]
        self.assertLess(65536, len(';'.join(devices)))
        for each in names:
            self.addCleanup(dmsetup.remove, each)
        dmsetup.create_together(*devices)
        for each in names:
            self.assertEqual(8 * len(lines) * 512, block.size(
                '/dev/mapper/' + each))

    def test_one_fails(self):
        """Others are created, or missing; none is left without a table."""
        (one, lv), (two, other), (three, last) = (
            self.logical_volume() for _ in range(3))
        for names in one, two, three:
            self.addCleanup(LocalVolume(names).remove, HANDLE)
        wrong = dataclasses.replace(other, name='volume-of-nobody')
        self.assertRaises(processutils.ProcessExecutionError,
                          handles.create_linear,
                          {one: lv, two: wrong, three: last})
        for names, each in ((one, lv), (two, other), (three, last)):
            LocalVolume(names).ensure_linear(each)
            self.assertTrue(dmsetup.device(names.of(HANDLE)).live)
            clones.write(names.path(), 0, WRITTEN)


class ExportTest(base.FunctionalTest):
    """The exported device of a source."""

    def test_read_only(self):
        source, path, data = self.exported_source()
        with self.assertRaises(OSError):
            clones.write(path, devices.MARGIN * 512, WRITTEN)
        self.assertEqual(data, clones.read(source.path(), 0, len(data)))

    def test_signatures_are_hidden(self):
        names, lv = self.logical_volume()
        LocalVolume(names).ensure_linear(lv)
        self.addCleanup(LocalVolume(names).remove, EXPORT, HANDLE)
        clones.run('mkswap', names.path())
        LocalVolume(names).ensure_export(lv.size)
        self.assertIn('swap', clones.run('blkid', '--probe', names.path()))
        with self.assertRaises(subprocess.CalledProcessError):
            clones.run('blkid', '--probe', names.path(EXPORT))
        margins = 2 * devices.MARGIN * 512
        self.assertEqual(lv.size + margins, block.size(names.path(EXPORT)))

    def test_seal(self):
        source, path, data = self.exported_source()
        self.assertTrue(LocalVolume(source).seal())
        with self.assertRaises(OSError):
            clones.write(source.path(), 0, WRITTEN)
        self.assertEqual(data, clones.read(source.path(), 0, len(data)))

    def test_seal_stops_who_has_it_open(self):
        source, path, data = self.exported_source()
        with open(source.path(), 'r+b', buffering=0) as stream:
            self.assertFalse(LocalVolume(source).seal())
            with self.assertRaises(OSError):
                stream.write(WRITTEN)
