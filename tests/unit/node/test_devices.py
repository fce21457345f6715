# SPDX-License-Identifier: Apache-2.0
"""The devices of a volume, their tables and their changes."""

import dataclasses
import itertools

import ddt
from oslo_concurrency import processutils

from dmclone_driver.node import anchor
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node.names import SOURCE
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage

METADATA = '/dev/volumes/metadata'
DISK = '/dev/disk/by-path/source'
TUNING = devices.Tuning(1024)
SECTORS = storage.GIB // 512


class DevicesTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.lv = self.logical_volume()
        self.lvm.add('volumes', 'metadata', 2 ** 22)
        self.lvm.bitmaps[METADATA] = {'hydrated': 0}
        self.kernel.disks[DISK] = storage.GIB + 4096 * 512

    def build(self, disk=DISK, passive=True):
        LocalVolume(self.names).build_clone(self.lv, METADATA, 128, TUNING,
                                            disk=disk, passive=passive)

    def device(self, role=HANDLE):
        return self.kernel.get(self.names.path(role))


class TailTestCase(DevicesTestCase):
    """Clones whose guests can be held."""

    def setUp(self):
        super().setUp()
        self.tuning = dataclasses.replace(TUNING, held=True)

    def build(self, passive=True):
        LocalVolume(self.names).build_clone(
            self.lv, METADATA, 128, self.tuning, disk=DISK, passive=passive)

    def test_guest_does_not_see_it(self):
        self.build()
        self.assertEqual(self.lv.size + anchor.LENGTH * 512,
                         self.device(CLONE).size)
        self.assertEqual(self.lv.size, self.device().size)

    def test_until_it_is_removed(self):
        self.build(passive=False)
        local = LocalVolume(self.names)
        self.assertTrue(local.is_clone())
        local.start_hydration()
        self.kernel.hydrate(self.names.path())
        self.assertTrue(local.make_linear(self.lv))
        local.remove(HANDLE, CLONE, GATE, SOURCE)
        self.assertEqual({}, self.kernel.of_volumes())
        # The next clone needs them again.
        self.assertEqual(2, len(self.kernel.devices))

    def test_built_again(self):
        for _ in range(2):
            self.build()
        self.assertEqual(2, len(self.device(CLONE).table))


@ddt.ddt
class MarkableTestCase(DevicesTestCase):
    """A clone that takes discards, below a handle that refuses them."""

    def setUp(self):
        super().setUp()
        logical_volumes.tag(self.lv, logical_volumes.MARKABLE_TAG)
        self.lv = logical_volumes.find(self.lv.name, self.lv.group)

    def assertRefuses(self):
        self.assertEqual(
            [('snapshot-origin', False), ('linear', True), (True)],
            [(self.device().table[0].kind, self.device().discards),
             (self.device(ORIGIN).table[0].kind,
              self.device(ORIGIN).discards), self.device(CLONE).discards])

    def test_handle(self):
        self.build()
        self.assertRefuses()
        self.assertTrue(LocalVolume(self.names).refuses_discards())
        self.build()
        LocalVolume(self.names).forbid_discards()
        self.assertRefuses()

    @ddt.data(False, True)
    def test_killed_anywhere(self, after):
        """Whoever continues comes to the same; no guest may discard."""
        for number in itertools.count():
            self.kernel.devices.clear()
            self.steps.start(number, after=after, killed=True)
            try:
                self.build(passive=False)
                break
            except steps.Killed:
                self.steps.start()
                self.build(passive=False)
            self.assertRefuses()
        self.assertLess(5, number)

    def test_linear(self):
        self.build(passive=False)
        LocalVolume(self.names).start_hydration()
        self.kernel.hydrate(self.names.path())
        self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        self.assertEqual(('linear', [self.lv.path, '0'], True), (
            self.device().table[0].kind, self.device().table[0].words,
            self.device().discards))
        for role in ORIGIN, CLONE:
            self.assertIsNone(self.device(role))

    def test_linear_killed_anywhere(self):
        for number in itertools.count():
            self.kernel.devices.clear()
            self.lvm.bitmaps[METADATA] = {'hydrated': 0}
            self.build(passive=False)
            LocalVolume(self.names).start_hydration()
            self.kernel.hydrate(self.names.path())
            self.steps.start(number, killed=True)
            try:
                LocalVolume(self.names).make_linear(self.lv)
                break
            except steps.Killed:
                self.steps.start()
            self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
            self.assertEqual('linear', self.device().table[0].kind)
            for role in ORIGIN, CLONE:
                self.assertIsNone(self.device(role))
        self.assertLess(8, number)

    def test_clone_of_another_version(self):
        """It refuses discards, and its handle is linear: it stays so."""
        LocalVolume(self.names).build_clone(
            dataclasses.replace(self.lv, tags=frozenset()), METADATA, 128,
            TUNING, disk=DISK)
        self.build()
        self.assertEqual(('linear', False), (self.device().table[0].kind,
                                             self.device(CLONE).discards))
        self.assertFalse(LocalVolume(self.names).refuses_discards())


class LinearTestCase(DevicesTestCase):

    def test_ensure_linear(self):
        LocalVolume(self.names).ensure_linear(self.lv)
        segment, = self.device().table
        self.assertEqual((0, SECTORS, 'linear', [self.lv.path, '0']),
                         (segment.start, segment.length, segment.kind,
                          segment.words))
        self.assertEqual('DMCLONE-handle-' + self.names.name_id,
                         self.device().uuid)

    def test_handle_in_use_is_left_alone(self):
        self.build()
        before = self.device()
        LocalVolume(self.names).ensure_linear(self.lv)
        self.assertIs(before, self.device())
        self.assertEqual('clone', before.kinds)

    def test_grow(self):
        LocalVolume(self.names).ensure_linear(self.lv)
        self.device().opened = 1
        self.lvm.volumes[self.lv.path]['size'] *= 2
        LocalVolume(self.names).grow(logical_volumes.find(
            self.lv.name, self.lv.group))
        self.assertEqual(2 * storage.GIB, self.device().size)
        self.assertFalse(self.device().suspended)

    def test_grow_that_fails_lets_go(self):
        LocalVolume(self.names).ensure_linear(self.lv)
        for number in range(6):
            for after in (False, True)[:number + 1]:
                self.steps.start(number, after=after)
                self.assertRaises(processutils.ProcessExecutionError,
                                  LocalVolume(self.names).grow, self.lv)
                self.assertFalse(self.device().suspended)
                self.assertEqual('linear', self.device().kinds)

    def extend(self):
        """Extend the logical volume below a clone."""
        logical_volumes.tag(self.lv, 'dmclone.cloned=%d' % self.lv.size)
        self.lvm.volumes[self.lv.path]['size'] *= 2
        return logical_volumes.find(self.lv.name, self.lv.group)

    def assertExtended(self):
        """Check that the handle goes on beyond the clone."""
        cloned = self.lv.size // 512
        self.assertEqual(
            [(0, cloned, [self.names.path(CLONE), '0']),
             (cloned, cloned, [self.lv.path, str(cloned)])],
            [(segment.start, segment.length, segment.words)
             for segment in self.device().table])
        self.assertEqual(self.lv.size, self.device(CLONE).size)
        self.assertFalse(self.device().suspended)

    def test_grow_above_a_clone(self):
        self.build(passive=False)
        lv = self.extend()
        for _times in range(2):
            LocalVolume(self.names).grow(lv)
            self.assertExtended()

    def test_build_again_after_an_extension(self):
        lv = self.extend()
        LocalVolume(self.names).build_clone(lv, METADATA, 8, TUNING,
                                            disk=DISK)
        self.assertExtended()

    def test_complete_after_an_extension(self):
        self.build(passive=False)
        lv = self.extend()
        LocalVolume(self.names).grow(lv)
        clone = self.device().clone
        clone.bitmap['hydrated'] = clone.total
        self.assertTrue(LocalVolume(self.names).make_linear(lv))
        self.assertEqual('linear', self.device().kinds)
        self.assertEqual(lv.size, self.device().size)
        self.assertIsNone(self.device(CLONE))


@ddt.ddt
class CloneTestCase(DevicesTestCase):

    def test_passive(self):
        self.build()
        self.assertTrue(self.device(GATE).suspended)
        self.assertEqual([METADATA, self.names.path(GATE),
                          self.names.path(SOURCE)],
                         self.device(CLONE).table[0].paths())
        self.assertFalse(self.device().clone.hydration)
        self.assertFalse(self.device(CLONE).discards)
        self.assertTrue(self.device(SOURCE).read_only)
        self.assertEqual([DISK, str(devices.MARGIN)],
                         self.device(SOURCE).table[0].words)
        self.assertEqual([self.lv.path, '0'],
                         self.device(GATE).table[0].words)

    def test_gate_is_closed_before_there_is_a_clone(self):
        open_gates = []

        def look():
            if self.device() and not self.device(GATE).suspended:
                open_gates.append(1)

        self.steps.observe = look
        self.build()
        self.assertEqual([], open_gates)

    def test_tuning(self):
        self.build()
        self.assertEqual('hydration_threshold 16 hydration_batch_size 16',
                         ' '.join(self.device(CLONE).table[0].words[-4:]))

    def test_tuning_in_regions(self):
        self.assertEqual((256, 256), TUNING.in_regions(8))
        self.assertEqual((256, 64), devices.Tuning(1024, 256).in_regions(8))
        # One region is larger than the limit.
        self.assertEqual((1, 1), TUNING.in_regions(8192))

    def test_again(self):
        self.build()
        before = dict(self.kernel.devices)
        self.device(CLONE).discards = True
        self.build()
        self.assertEqual(before, self.kernel.devices)
        self.assertFalse(self.device(CLONE).discards)

    @ddt.data(*itertools.product((True, False), repeat=3))
    @ddt.unpack
    def test_cut_off_anywhere_and_repeated(self, passive, after, killed):
        for number in itertools.count():
            self.kernel.devices.clear()
            self.steps.start(number, after=after, killed=killed)
            try:
                self.build(passive=passive)
                break
            except (processutils.ProcessExecutionError, OSError,
                    steps.Killed):
                self.steps.start()
                self.build(passive=passive)
            self.assertEqual(passive, self.device(GATE).suspended)
            self.assertEqual('linear', self.device(GATE).kinds)
            self.assertFalse(self.device(CLONE).discards)
        self.assertLess(9, number)

    @ddt.data(*itertools.product((True, False), repeat=2))
    @ddt.unpack
    def test_cut_off_anywhere_and_continued_without_the_disk(self, disk,
                                                             after):
        """As by a start of the service: no shim waits for a disk it has."""
        for number in itertools.count():
            self.kernel.devices.clear()
            self.steps.start(number, after=after, killed=True)
            try:
                self.build(DISK if disk else None)
                break
            except steps.Killed:
                self.steps.start()
                self.build(None)
            self.assertIs(not LocalVolume(self.names).is_connected(),
                          self.device(SOURCE).suspended)
        self.assertLess(9, number)

    def test_gate_is_no_use_to_lvm_before_it_is_linked(self):
        """LVM ignores devices that fail requests, and suspended ones."""
        found = []

        def look():
            gate = self.device(GATE)
            if gate:
                found.append((gate.kinds, gate.suspended))

        self.steps.observe = look
        self.build()
        self.assertEqual(('error', False), found[0])
        # For a moment within one call, when udev has linked it.
        self.assertEqual(1, found.count(('linear', False)))
        self.assertEqual(('linear', True), found[-1])

    def test_not_passive(self):
        self.build(passive=False)
        self.assertFalse(self.device(GATE).suspended)

    def test_without_its_source(self):
        """Hydrated regions can be read; other requests wait."""
        self.build(disk=None, passive=False)
        self.assertTrue(self.device(SOURCE).suspended)
        self.assertEqual('error', self.device(SOURCE).kinds)
        self.assertFalse(self.kernel.write(self.names.path()))
        LocalVolume(self.names).connect_source(DISK, SECTORS)
        self.assertEqual('linear', self.device(SOURCE).kinds)
        self.assertFalse(self.device(SOURCE).suspended)
        self.assertEqual(0, self.device().clone.waiting)

    def test_source_that_cannot_be_connected(self):
        """Requests continue to wait, and do not fail."""
        self.build(disk=None, passive=False)
        self.steps.start(1)
        self.assertRaises(processutils.ProcessExecutionError,
                          LocalVolume(self.names).connect_source, DISK,
                          SECTORS)
        self.assertTrue(self.device(SOURCE).suspended)

    def test_open_gate(self):
        self.build()
        self.assertFalse(self.kernel.write(self.names.path()))
        LocalVolume(self.names).open_gate()
        self.assertEqual(0, self.device().clone.waiting)
        self.assertEqual(1, self.device().clone.bitmap['hydrated'])

    def test_hydration(self):
        self.build(passive=False)
        LocalVolume(self.names).start_hydration()
        self.assertTrue(self.device().clone.hydration)
        self.assertTrue(LocalVolume(self.names).stop_hydration())
        self.assertFalse(self.device().clone.hydration)

    def test_hydration_that_does_not_stop(self):
        self.build(disk=None, passive=False)
        self.kernel.write(self.names.path())
        self.assertFalse(LocalVolume(self.names).stop_hydration())

    def test_clone_that_becomes_linear_while_its_hydration_stops(self):
        """It succeeds: the watcher holds no lock."""
        self.build(passive=False)
        self.patch('dmclone_driver.node.devicemapper.dmsetup.clone',
                   return_value=None)
        self.assertTrue(LocalVolume(self.names).stop_hydration())


@ddt.ddt
class MakeLinearTestCase(DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.build(passive=False)
        self.clone = self.device().clone
        self.clone.bitmap['hydrated'] = self.clone.total

    def test_complete(self):
        self.device().opened = 1
        self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        self.assertEqual('linear', self.device().kinds)
        self.assertEqual([self.lv.path], self.device().table[0].paths())
        self.assertFalse(self.device().suspended)

    def refuse(self):
        self.assertFalse(LocalVolume(self.names).make_linear(self.lv))
        self.assertEqual('clone', self.device().kinds)
        self.assertIsNone(self.device().loaded)
        self.assertFalse(self.device().suspended)

    def test_incomplete(self):
        self.clone.bitmap['hydrated'] -= 1
        self.refuse()

    @ddt.data('ro', 'Fail')
    def test_commit_fails_during_the_suspend(self, mode):
        """It is refused: after a failed commit the clone is not complete."""
        def fail():
            if self.device(CLONE).suspended:
                self.clone.mode = mode

        self.steps.observe = fail
        self.refuse()

    def test_load_fails(self):
        """The clone is resumed."""
        self.steps.start(5)
        self.assertRaises(processutils.ProcessExecutionError,
                          LocalVolume(self.names).make_linear, self.lv)
        self.assertEqual('clone', self.device().kinds)
        self.assertFalse(self.device().suspended)
        self.assertFalse(self.device(CLONE).suspended)

    def test_clone_cannot_be_removed(self):
        """It is repeated: the handle is linear already."""
        self.steps.start(8)
        self.assertRaises(processutils.ProcessExecutionError,
                          LocalVolume(self.names).make_linear, self.lv)
        self.assertEqual('linear', self.device().kinds)
        self.assertFalse(self.device(CLONE).suspended)
        self.assertTrue(LocalVolume(self.names).is_clone())
        self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        self.assertIsNone(self.device(CLONE))

    def test_again(self):
        for _ in range(2):
            self.assertTrue(LocalVolume(self.names).make_linear(self.lv))
        self.assertEqual('linear', self.device().kinds)

    @ddt.data(*itertools.product(range(9), (False, True)))
    @ddt.unpack
    def test_caller_is_killed(self, number, after):
        """The swap is completed, unless it was not started."""
        self.steps.start(number, after=after, killed=True)
        self.assertRaises(steps.Killed, LocalVolume(self.names).make_linear,
                          self.lv)
        begun = (number, after) >= (1, True)
        self.assertEqual('linear' if begun else 'clone', self.device().kinds)
        for device in self.kernel.devices.values():
            self.assertFalse(device.suspended)

    def test_power_is_cut(self):
        """The swap ends at that step."""
        for number in range(6):
            self.steps.start(number, killed=True, power=True)
            self.assertRaises(steps.Killed,
                              LocalVolume(self.names).make_linear, self.lv)
            self.assertEqual(number + 1, len(self.steps.log))
            self.assertEqual('clone', self.device().kinds)
            self.assertEqual(number >= 3, self.device().suspended)
            self.assertEqual(number >= 4, self.device(CLONE).suspended)
            self.device().suspended = self.device(CLONE).suspended = False

    def test_abort(self):
        """An incomplete clone can be dropped."""
        self.clone.bitmap['hydrated'] = 0
        LocalVolume(self.names).drop_clone(self.lv)
        self.assertEqual('linear', self.device().kinds)
        self.assertFalse(self.device().suspended)


class ResumeLeftTestCase(DevicesTestCase):
    """Resuming devices after a killed swap."""

    def setUp(self):
        super().setUp()
        self.build()
        self.device().suspended = True
        self.warning = self.patch('dmclone_driver.node.devices.LOG.warning')

    def test_handle(self):
        """Handles and clones are resumed, gates and sources are not."""
        self.device(SOURCE).suspended = self.device(CLONE).suspended = True
        self.kernel.devices['other'] = self.device()
        devices.resume_left()
        self.assertFalse(self.device().suspended)
        self.assertFalse(self.device(CLONE).suspended)
        self.assertTrue(self.device(GATE).suspended)
        self.assertTrue(self.device(SOURCE).suspended)
        self.assertIn(self.names.name_id, str(self.warning.call_args))

    def test_table_that_was_loaded(self):
        """A loaded table is used: it was loaded after the check."""
        LocalVolume(self.names).open_gate()
        self.kernel.change(['load', self.names.of(HANDLE),
                            '0 64 linear %s 0' % self.lv.path, False])
        devices.resume_left()
        self.assertEqual('linear', self.device().kinds)

    def test_swap_is_running(self):
        self.patch('dmclone_driver.privsep.swaps.resume_left',
                   return_value=False)
        devices.resume_left()
        self.assertTrue(self.device().suspended)
        self.warning.assert_not_called()

    def test_one_that_cannot_be_resumed(self):
        other, lv = self.logical_volume()
        LocalVolume(other).ensure_linear(lv)
        second = self.kernel.get(other.path())
        second.suspended = True
        self.steps.start(0)
        devices.resume_left()
        self.assertEqual({True, False}, {self.device().suspended,
                                         second.suspended})
        devices.resume_left()
        self.assertFalse(self.device().suspended or second.suspended)

    def test_none(self):
        """It needs no process."""
        self.device().suspended = False
        self.steps.start()
        devices.resume_left()
        self.assertEqual([], self.steps.log)


class SourceTestCase(DevicesTestCase):

    def test_connected(self):
        """A source counts as connected, whether or not its disk answers."""
        self.build(disk=None)
        self.assertFalse(LocalVolume(self.names).is_connected())
        LocalVolume(self.names).connect_source(DISK, 100)
        for suspended in (False, True):
            self.device(SOURCE).suspended = suspended
            self.assertTrue(LocalVolume(self.names).is_connected())

    def test_fail_without_source(self):
        self.build(disk=None, passive=False)
        self.kernel.write(self.names.path())
        self.assertTrue(LocalVolume(self.names).fail_without_source())
        self.assertFalse(self.device(SOURCE).suspended)

    def test_fail_with_a_source(self):
        self.build(passive=False)
        self.device().clone.waiting = 1
        self.assertFalse(LocalVolume(self.names).fail_without_source())


class EvidenceTestCase(DevicesTestCase):

    def setUp(self):
        super().setUp()
        self.build()

    def test_never_written(self):
        self.assertTrue(LocalVolume(self.names).never_written())
        # Later writes fail.
        self.assertRaises(OSError, self.kernel.write, self.names.path())

    def assertNotProven(self):
        self.assertFalse(LocalVolume(self.names).never_written())
        self.assertFalse(self.device().sealed)

    def test_waiting_write(self):
        self.kernel.write(self.names.path())
        self.assertNotProven()

    def test_written(self):
        self.device().clone.bitmap['hydrated'] = 1
        self.assertNotProven()

    def test_open(self):
        self.device().opened = 1
        self.assertNotProven()

    def test_metadata_cannot_be_read(self):
        for mode in ('ro', 'Fail'):
            self.device().clone.mode = mode
            self.assertNotProven()

    def test_not_a_clone(self):
        LocalVolume(self.names).open_gate()
        LocalVolume(self.names).drop_clone(self.lv)
        self.assertNotProven()

    def test_no_handle(self):
        LocalVolume(self.names).open_gate()
        LocalVolume(self.names).remove(HANDLE)
        self.assertTrue(LocalVolume(self.names).never_written())


class ExportTestCase(DevicesTestCase):

    def setUp(self):
        super().setUp()
        LocalVolume(self.names).ensure_linear(self.lv)

    def export(self):
        LocalVolume(self.names).ensure_export(self.lv.size)

    def test_export(self):
        self.export()
        device = self.device(EXPORT)
        self.assertTrue(device.read_only)
        self.assertEqual('zero linear zero', device.kinds)
        self.assertEqual([(0, 2048), (2048, SECTORS), (2048 + SECTORS, 2048)],
                         [(part.start, part.length) for part in device.table])
        # The export is above the handle: another device has another cache.
        self.assertEqual([self.names.path(), '0'], device.table[1].words)

    def test_buffers_are_flushed_before_every_export(self):
        self.export()
        before = self.device(EXPORT)
        self.export()
        self.assertEqual([self.names.path()] * 2, self.kernel.flushed)
        self.assertIs(before, self.device(EXPORT))

    def test_is_open(self):
        self.assertFalse(LocalVolume(self.names).is_open())
        self.export()
        self.assertFalse(LocalVolume(self.names).is_open())
        self.device().opened = 1
        self.assertTrue(LocalVolume(self.names).is_open())
        LocalVolume(self.names).remove(EXPORT)
        self.assertTrue(LocalVolume(self.names).is_open())

    def test_no_handle_is_not_open(self):
        LocalVolume(self.names).remove(HANDLE)
        self.assertIs(False, LocalVolume(self.names).is_open())

    def test_seal(self):
        self.export()
        self.assertTrue(LocalVolume(self.names).seal())
        self.assertRaises(OSError, self.kernel.write, self.names.path())

    def test_seal_makes_durable_what_was_acknowledged(self):
        """The guest's next flush goes only to the new home."""
        LocalVolume(self.names).seal()
        self.assertIn(self.names.path(), self.kernel.flushed)

    def test_seal_of_a_disk_that_fails(self):
        """It is sealed all the same."""
        self.patch('dmclone_driver.privsep.block.flush_disk',
                   side_effect=OSError)
        self.assertTrue(LocalVolume(self.names).seal())
        self.assertTrue(self.device().sealed)

    def test_seal_at_a_start(self):
        """It does not flush, and so does not wait for a disk."""
        LocalVolume(self.names).seal(flush=False)
        self.assertTrue(self.device().sealed)
        self.assertEqual([], self.kernel.flushed)

    def test_seal_of_a_clone_whose_gate_is_closed(self):
        """It does not flush, which would wait for ever."""
        LocalVolume(self.names).remove(HANDLE)
        self.build(passive=True)
        self.assertTrue(LocalVolume(self.names).seal())
        self.assertNotIn(self.names.path(), self.kernel.flushed)

    def test_seal_of_an_open_device(self):
        """It is sealed, but a request may be in flight."""
        self.export()
        self.device().opened = 1
        self.assertFalse(LocalVolume(self.names).seal())
        self.assertTrue(self.device().sealed)
        self.device().opened = 0
        self.assertTrue(LocalVolume(self.names).seal())

    def test_seal_of_nothing(self):
        """A missing handle does not count as sealed."""
        LocalVolume(self.names).remove(HANDLE)
        self.assertFalse(LocalVolume(self.names).seal())


class RemoveTestCase(DevicesTestCase):

    def test_all_in_their_order(self):
        self.build(passive=False)
        for _times in range(2):
            LocalVolume(self.names).remove(EXPORT, HANDLE, CLONE, GATE,
                                           SOURCE)
            self.assertEqual({}, self.kernel.of_volumes())

    def test_in_use(self):
        self.build(passive=False)
        self.device().opened = 1
        self.assertRaises(processutils.ProcessExecutionError,
                          LocalVolume(self.names).remove, HANDLE, GATE)
        self.assertIsNotNone(self.device(GATE))

    def test_others_stay(self):
        LocalVolume(self.names).ensure_linear(self.lv)
        other, lv = self.logical_volume()
        LocalVolume(other).ensure_linear(lv)
        LocalVolume(self.names).remove(HANDLE)
        self.assertEqual([other.of(HANDLE)], list(self.kernel.devices))
