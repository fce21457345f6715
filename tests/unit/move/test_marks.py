# SPDX-License-Identifier: Apache-2.0
"""Only what is allocated is copied from a thin source to a thin volume."""

from concurrent import futures
import time
from unittest import mock

import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.move import counts
from dmclone_driver.move import maps
from dmclone_driver.move import marks as marks_module
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node import thin_maps
from dmclone_driver.node import thin_pools
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage

MIB = 1024 ** 2
REGION = 65536
TOTAL = storage.GIB // REGION
#: What the source has, and what is marked then.
ALLOCATED = 256 * MIB
MARKED = TOTAL - ALLOCATED // REGION


class MarksTestCase(base.CloudTestCase):

    KINDS = ('thin', 'thin')

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.allocate(ALLOCATED)

    def allocate(self, size, node=None, volume=None):
        node = node or self.a
        row = self.cloud.row((volume or self.volume).id)
        node.lvm.volumes['/dev/volumes/' + row.name]['allocated'] = size

    def names(self, volume=None):
        return Names(self.cloud.row((volume or self.volume).id).name_id)

    def move(self, volume=None):
        """Attach a volume on the other node; it is marked later."""
        self.cloud.attach(volume or self.volume, self.b)

    def device(self, role=CLONE, node=None, volume=None):
        return (node or self.b).kernel.get(self.names(volume).of(role))

    def hydrated(self, volume=None):
        return self.device(volume=volume).own.bitmap['hydrated']

    def lv(self, node=None, volume=None):
        with self.cloud.on(node or self.b):
            return logical_volumes.find(self.names(volume).volume, 'volumes')

    def look(self, times=1):
        for _time in range(times):
            self.cloud.watch(hydrate=False)

    def assertComplete(self):
        """Check that the move ends as any other."""
        self.cloud.watch(4)
        self.assertIdle(self.b)


@ddt.ddt
class MoveTestCase(MarksTestCase):

    def test_marked(self):
        """Before the hydration is on; the rest is copied."""
        self.move()
        self.assertEqual(0, self.hydrated())
        self.assertFalse(self.device().own.hydration)
        self.look()
        self.assertEqual(MARKED, self.hydrated())
        self.assertEqual(set(range(TOTAL - MARKED, TOTAL)),
                         self.device().own.bitmap['marked'])
        self.assertTrue(self.device().own.hydration)
        self.assertEqual(MARKED * REGION, self.lv().marked)
        self.assertFalse(self.device(HANDLE).suspended)
        self.assertComplete()

    def test_first_region_is_copied(self):
        """Of an empty source, too."""
        self.allocate(0)
        self.move()
        self.look()
        self.assertEqual(set(range(1, TOTAL)),
                         self.device().own.bitmap['marked'])
        self.assertComplete()

    def test_all_is_allocated(self):
        self.allocate(storage.GIB)
        self.move()
        self.look()
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.assertComplete()

    def test_source_is_sealed_before(self):
        """What its guest allocates later would be taken for zeros."""
        seen = []
        dump = self.a.lvm.dump
        self.patch('dmclone_driver.privsep.thin.dump', new=lambda *args: (
            seen.append((self.a.kernel.get(
                Names(self.volume.id).of(HANDLE)).sealed,
                self.device().own.hydration)), dump(*args))[1])
        self.move()
        self.look()
        # The map of each node.
        self.assertEqual([(True, False)] * 2, seen)

    def test_tag_is_before_the_marks(self):
        tags = []
        mark = self.b.kernel.mark
        self.patch('dmclone_driver.privsep.marks.run', new=lambda *args: (
            tags.append(self.lv().marked), mark(*args))[1])
        self.move()
        self.look()
        self.assertEqual([MARKED * REGION], tags)

    def test_handle_refuses_discards(self):
        """From its creation until it is linear."""
        self.move()
        handle = self.device(HANDLE)
        self.assertEqual('snapshot-origin', handle.table[0].kind)
        self.assertFalse(handle.discards)
        self.assertTrue(self.device().discards)
        self.look()
        self.assertFalse(handle.discards)
        self.cloud.watch(3)
        self.assertEqual('linear', handle.table[0].kind)
        self.assertIsNone(self.device(ORIGIN))
        self.assertTrue(handle.discards)
        self.assertEqual([], self.cloud.leftovers())

    def test_done_once(self):
        """A clone that waits for its turn is not marked again."""
        self.move()
        asked = self.patch(
            'dmclone_driver.privsep.thin.dump', side_effect=self.a.lvm.dump)
        self.patch('dmclone_driver.move.pacer.Pacer.take_turn',
                   return_value=False)
        self.look(5)
        # The map of each node.
        self.assertEqual((2, MARKED), (asked.call_count, self.hydrated()))

    def test_report(self):
        """Progress is that of what is copied."""
        self.move()
        for hydrated in 0, 8:
            self.look()
            self.device().own.bitmap['hydrated'] = MARKED + hydrated
            self.look()
            with self.cloud.on(self.b):
                move, = self.b.parts.reporter.report(self.context).moves
                lost = self.b.destination.progress(self.names().name_id)
            self.assertEqual(
                (hydrated, TOTAL - MARKED, hydrated * REGION, ALLOCATED),
                (move.hydrated, move.total, move.copied, move.size))
            self.assertEqual((hydrated, TOTAL - MARKED, False), (
                lost['hydrated'], lost['total'], lost['complete']))

    def test_rate(self):
        """The marks are no copied bytes."""
        self.move()
        with self.cloud.on(self.b):
            self.b.watcher.look()
        before = self.copied()
        self.look(2)
        self.assertEqual(before, self.copied())

    @staticmethod
    def copied():
        return counts.COPIED._value.get()

    def test_report_after_a_restart(self):
        self.move()
        self.look()
        self.b.stop()
        self.b.start()
        self.look()
        with self.cloud.on(self.b):
            move, = self.b.parts.reporter.report(self.context).moves
        self.assertEqual((0, TOTAL - MARKED), (move.hydrated, move.total))

    def test_room(self):
        """What is marked is not waited for."""
        free = []
        for step in self.move, self.look:
            step()
            with self.cloud.on(self.b):
                free.append(self.b.destination.describe()['free_gb'])
        self.assertAlmostEqual(95 * 0.98 - 0.25, free[0])
        self.assertAlmostEqual(*free)

    def test_pool_is_full(self):
        """The clone could not record the marks: it waits with the copy."""
        self.move()
        other = self.b.create(95)
        self.allocate(95 * storage.GIB, self.b, other)
        self.look(2)
        self.assertEqual((0, None, False), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.allocate(0, self.b, other)
        self.look()
        self.assertEqual((MARKED, True), (
            self.hydrated(), self.device().own.hydration))

    def test_written_before(self):
        """The region is there already."""
        self.move()
        self.b.kernel.write(self.names().path())
        self.assertEqual(1, self.hydrated())
        self.look()
        self.assertEqual(MARKED + 1, self.hydrated())
        self.assertComplete()

    def test_written_before_a_power_cut(self):
        """The clone has lost its record of what is allocated here.

        The volume shows zeros there since, and has to go on.
        """
        self.move()
        self.allocate(2 * ALLOCATED, self.b)
        self.look()
        self.assertEqual(set(range(2 * ALLOCATED // REGION, TOTAL)),
                         self.device().own.bitmap['marked'])
        self.assertComplete()

    def test_reading_the_map_here_fails(self):
        dump = self.patch('tests.unit.fakes.storage.Lvm._dump')
        dump.side_effect = [
            ('<superblock data_block_size="128"><device dev_id="1" '
             'mapped_blocks="0"/></superblock>'),
            processutils.ProcessExecutionError(stderr='no thin_dump')]
        self.assertAllIsCopied()
        self.assertEqual(2, dump.call_count)

    def test_reading_the_map_takes_long(self):
        """Meanwhile it is not taken for stalled."""
        dump = self.a.lvm.dump

        def slow(*args):
            for _time in range(3):
                self.cloud.pass_time(25)
                self.b.look()
            return dump(*args)

        self.patch('dmclone_driver.privsep.thin.dump', new=slow)
        self.move()
        self.look()
        self.assertEqual(MARKED, self.hydrated())
        self.assertNotIn('makes no progress', self.log.output)
        self.assertEqual([], self.cloud.messages())
        self.assertComplete()

    def test_without_the_guest_a_moment(self):
        """A request that does not end is let go; then all is copied."""
        self.move()
        tries = self.patch('tests.unit.fakes.kernel.Kernel.never_ends',
                           return_value=True)
        self.look()
        self.assertLessEqual(marks_module.VAIN, tries.call_count)
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.assertFalse(self.device(HANDLE).suspended)
        self.assertIn('are copied that its source has not allocated',
                      self.log.output)

    def test_process_is_killed(self):
        """What it has marked stays, and the rest is copied."""
        mark = self.b.kernel.mark

        def fail(name_id, handle, ranges, seconds):
            mark(name_id, handle, [[ranges[0][0], 100]], seconds)
            raise processutils.ProcessExecutionError(stderr='killed')

        self.patch('dmclone_driver.privsep.marks.run', new=fail)
        self.move()
        self.look()
        self.assertEqual((100, 100 * REGION, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.assertComplete()

    def test_session_is_lost(self):
        """It is tried when the source is back."""
        self.move()
        self.b.kernel.lost.update(self.b.kernel.disks)
        with self.cloud.on(self.b):
            self.b.look_at_sessions()
        self.look(1)
        self.assertEqual((0, None), (self.hydrated(), self.lv().marked))
        self.b.kernel.lost.clear()
        self.look(2)
        self.assertEqual(MARKED, self.hydrated())

    def test_session_is_lost_before_the_switchover(self):
        first = self.cloud.attachment(self.volume, self.a)
        self.move()
        self.b.kernel.lost.update(self.b.kernel.disks)
        self.b.look_at_sessions()
        self.cloud.detach(self.volume, self.a)
        self.assertIsNotNone(first)
        self.look(1)
        self.assertEqual((self.b.pool, 0, None, False), (
            self.row().host, self.hydrated(), self.lv().marked,
            self.device().own.hydration))
        self.b.kernel.lost.clear()
        self.look(2)
        self.assertEqual(MARKED, self.hydrated())

    @ddt.data('PeerUnreachable', 'PeerTooOld', 'PeerFailed')
    def test_peer_does_not_answer(self, kind):
        error = {'PeerUnreachable': dict(host='x', call='y', seconds=1),
                 'PeerTooOld': dict(host='x', call='y'),
                 'PeerFailed': dict(host='x', reason='z')}[kind]
        self.patch('dmclone_driver.move.rpcapi.PeerClient.unallocated',
                   side_effect=getattr(exception, kind)(**error))
        self.assertAllIsCopied()

    def assertAllIsCopied(self):
        self.move()
        self.look()
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.assertEqual(1, self.log.output.count('all is copied that is'))
        self.assertIn(self.volume.id, self.log.output)
        self.assertComplete()

    def test_reading_the_map_fails(self):
        self.patch('tests.unit.fakes.storage.Lvm._dump',
                   return_value='<superblock')
        self.assertAllIsCopied()

    def test_another_program_reads_the_pool(self):
        self.a.lvm.volumes['/dev/volumes/volumes-pool']['copied'] = True
        self.assertAllIsCopied()

    def test_external_origin(self):
        """What is not allocated reads that."""
        self.a.lvm.add('volumes', 'external', storage.GIB)
        self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['origin'] = (
            '/dev/volumes/external')
        self.assertAllIsCopiedQuietly()

    def test_external_origin_of_its_origin(self):
        """LVM names only the latter."""
        self.a.lvm.add('volumes', 'external', storage.GIB)
        self.a.lvm.add('volumes', 'origin', storage.GIB,
                       '/dev/volumes/external', '/dev/volumes/volumes-pool')
        self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['origin'] = (
            '/dev/volumes/origin')
        self.assertAllIsCopiedQuietly()

    def test_pool_without_metadata(self):
        """To read the map could take the rest."""
        self.a.lvm.volumes['/dev/volumes/volumes-pool']['metadata'] = '91.00'
        self.assertAllIsCopied()

    def test_pool_does_not_zero(self):
        """A guest's write would show old data beside it."""
        self.b.lvm.volumes['/dev/volumes/volumes-pool']['zero'] = ''
        self.assertAllIsCopied()

    def assertAllIsCopiedQuietly(self):
        self.move()
        self.look()
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))

    def test_clone_takes_no_discards(self):
        """Another version of the driver has forbidden them."""
        self.move()
        self.device().discards = False
        self.look()
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        # The rest of the pool is not offered to others.
        with self.cloud.on(self.b):
            self.assertEqual(storage.GIB, thin_pools.find('volumes').awaited)
        self.assertComplete()

    def test_many_pages(self):
        self.patch('dmclone_driver.move.maps.PAGE', new=1)
        self.patch('dmclone_driver.node.thin_maps.unallocated',
                   return_value=[thin_maps.Range(2 * each, 1)
                                 for each in range(1, 9)])
        self.patch('dmclone_driver.move.marks.RANGES', new=3)
        self.move()
        self.look()
        self.assertEqual({2 * each for each in range(1, 9)},
                         self.device().own.bitmap['marked'])

    def test_back_and_forth(self):
        """A volume that has hydrated is a source that has its own map."""
        self.move()
        self.cloud.watch(4)
        self.assertIdle(self.b)
        for record in self.row().volume_attachment:
            record.destroy()
        self.allocate(128 * MIB, self.b)
        self.cloud.attach(self.volume, self.a)
        self.cloud.watch(hydrate=False)
        self.assertEqual(TOTAL - 2048, self.device(
            node=self.a).own.bitmap['hydrated'])
        self.cloud.watch(4)
        self.assertIdle(self.a)

    def test_after_a_reboot(self):
        """The devices are the same, and nothing is marked again."""
        self.move()
        self.look()
        asked = self.patch('dmclone_driver.privsep.thin.dump')
        self.b.reboot()
        self.b.start()
        self.cloud.settle()
        self.assertEqual('snapshot-origin',
                         self.device(HANDLE).table[0].kind)
        self.assertTrue(self.device().discards)
        self.look()
        self.assertEqual((MARKED, True, 0), (
            self.hydrated(), self.device().own.hydration, asked.call_count))
        self.assertComplete()

    def test_extended(self):
        self.move()
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.row(), 2)
        handle = self.device(HANDLE)
        self.assertEqual((2 * storage.GIB, 'snapshot-origin', False), (
            handle.size, handle.table[0].kind, handle.discards))
        self.look()
        self.assertEqual(MARKED, self.hydrated())
        self.cloud.watch(4)
        self.assertEqual('linear', handle.table[0].kind)

    def test_deleted(self):
        self.move()
        self.look()
        for record in self.row().volume_attachment:
            record.destroy()
        self.delete(self.volume)
        self.cloud.watch(2)
        self.assertEqual([], self.cloud.leftovers())

    def test_rolled_back(self):
        """A destination that was never written leaves nothing."""
        self.cloud.attachment(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.assertEqual('snapshot-origin', self.b.kernel.get(next(
            name for name in self.b.kernel.devices
            if name.startswith('dmclone-') and name.endswith(
                '-clone')).removesuffix('-clone')).table[0].kind)
        self.cloud.detach(self.volume, self.b)
        self.cloud.watch(2)
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual({}, self.b.kernel.of_volumes())


@ddt.ddt
class InterruptedTestCase(MarksTestCase):
    """The service was killed after the tag, before the first mark."""

    def setUp(self):
        super().setUp()
        self.move()
        with mock.patch('dmclone_driver.privsep.marks.run',
                        side_effect=steps.Killed), self.cloud.on(self.b):
            self.assertRaises(steps.Killed, self.b.watcher.look)
        self.assertEqual(MARKED * REGION, self.lv().marked)
        self.b.stop()
        self.cloud.locks.clear()
        self.cloud.pass_time(1000)
        self.b.start()
        self.cloud.settle()

    def assertCopied(self):
        """Check that the copy is seen, of which nothing is marked."""
        self.assertEqual((0, 0, True), (
            self.hydrated(), self.lv().marked, self.device().own.hydration))
        self.device().own.bitmap['hydrated'] = 100
        self.look()
        with self.cloud.on(self.b):
            move, = self.b.parts.reporter.report(self.context).moves
        self.assertEqual((100, TOTAL), (move.hydrated, move.total))
        for _minute in range(4):
            self.cloud.pass_time(61)
            self.device().own.bitmap['hydrated'] += 1
            self.look()
        self.assertTrue(self.device().own.hydration)
        self.assertNotIn('makes no progress', self.log.output)
        self.assertComplete()

    def test_is_done_again(self):
        self.look()
        self.assertEqual((MARKED, MARKED * REGION), (
            self.hydrated(), self.lv().marked))
        self.assertComplete()

    def test_map_cannot_be_read_any_longer(self):
        self.patch('tests.unit.fakes.storage.Lvm._dump',
                   side_effect=processutils.ProcessExecutionError())
        self.look()
        self.assertCopied()

    def test_without_the_guest_a_moment(self):
        with mock.patch('tests.unit.fakes.kernel.Kernel.never_ends',
                        return_value=True):
            self.look()
        self.assertCopied()

    def test_clone_takes_no_discards_any_longer(self):
        """Its node has started with a kernel that has none for its tail."""
        self.device().discards = False
        self.look()
        self.assertCopied()


@ddt.ddt
class MapsTestCase(MarksTestCase):
    """What the node of a source answers."""

    def ask(self, placeholder_id, length=storage.GIB // 512, page=0):
        with self.cloud.on(self.b):
            return self.b.backend.client.unallocated(
                self.context, self.a.host, placeholder_id, length, 128, page,
                60)

    def test_map(self):
        self.move()
        self.assertEqual(
            {'ranges': '%d+%d' % (ALLOCATED // REGION, MARKED), 'pages': 1,
             'why': ''}, self.ask(self.names().name_id))
        self.assertEqual('', self.ask(self.names().name_id, page=1)['ranges'])

    def test_not_switched_over(self):
        """The volume can still be written."""
        self.cloud.attachment(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        placeholder, = self.cloud.placeholders()
        self.assertEqual((0, 'it is not sealed'), (
            self.ask(placeholder.id)['pages'],
            self.ask(placeholder.id)['why']))

    def test_still_open(self):
        """A write may be under way."""
        self.move()
        self.a.kernel.get(Names(self.volume.id).of(HANDLE)).opened = 1
        self.assertEqual('it is not sealed',
                         self.ask(self.names().name_id)['why'])

    def test_another_size(self):
        self.move()
        self.assertEqual('it has another size', self.ask(
            self.names().name_id, storage.GIB // 512 - 8)['why'])

    def test_source_is_a_clone(self):
        """It has moved on before it was complete."""
        self.move()
        self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['tags'].add(
            logical_volumes.METADATA_TAG + 'x/y')
        self.assertEqual('it is not complete itself',
                         self.ask(self.names().name_id)['why'])

    def test_read_once(self):
        dump = self.patch('dmclone_driver.privsep.thin.dump',
                          side_effect=self.a.lvm.dump)
        self.move()
        for page in 0, 1, 0:
            self.ask(self.names().name_id, page=page)
        self.assertEqual(1, dump.call_count)


class TurnsTestCase(base.PlainTestCase):
    """Many volumes move at once, as in a drain."""

    def counted(self, name, result):
        """Replace a privileged call, which lasts for some time.

        :returns: list of how many were under way at a time
        """
        inside, most = [], []

        def call(*args):
            inside.append(None)
            most.append(len(inside))
            time.sleep(0.05)
            inside.pop()
            return result

        self.patch('dmclone_driver.privsep.' + name, new=call)
        return most

    def test_few_are_marked_at_a_time(self):
        most = self.counted('marks.run', {
            'ended': 'done', 'marked': 1, 'left': []})
        self.patch('dmclone_driver.move.marks._may', return_value=True)
        marks = marks_module.Marks(mock.MagicMock(), mock.Mock(lost=()))
        with futures.ThreadPoolExecutor(12) as pool:
            found = list(pool.map(
                lambda number: marks._mark(Names(str(number)), mock.Mock(),
                                           [thin_maps.Range(1, 1)]),
                range(12)))
        self.assertEqual([(1, 0)] * 12, found)
        self.assertLessEqual(max(most), marks_module.CALLS)

    def test_one_reads_at_a_time(self):
        """All that is done as root would wait for the others."""
        most = self.counted('thin.dump', (
            '<superblock data_block_size="128"><device dev_id="1" '
            'mapped_blocks="0"/></superblock>'))
        self.patch('dmclone_driver.node.logical_volumes.thin_id',
                   return_value=1)
        lv = LogicalVolume('volumes', 'volume-1', storage.GIB, True,
                           pool='volumes-pool')
        with futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(maps.read, [lv] * 4))
        self.assertEqual([()] * 4, [each.allocated for each in found])
        self.assertEqual([1] * 4, most)

    def test_others_take_too_long(self):
        self.patch('dmclone_driver.move.maps.TIMEOUT', new=0.01)
        self.patch('dmclone_driver.node.logical_volumes.thin_id',
                   return_value=1)
        dump = self.patch('dmclone_driver.privsep.thin.dump')
        with maps.turn:
            self.assertRaises(thin_maps.UnusableMap, maps.read, mock.Mock())
        dump.assert_not_called()


class ThickDestinationTestCase(base.CloudTestCase):

    KINDS = ('thin', 'default')

    def test_all_is_copied(self):
        self.cloud.attach(self.volume, self.b)
        names = Names(self.row().name_id)
        self.cloud.watch(hydrate=False)
        clone = self.b.kernel.get(names.of(CLONE))
        self.assertEqual((0, False), (clone.own.bitmap['hydrated'],
                                      clone.discards))
        self.assertEqual('linear', self.b.kernel.get(
            names.of(HANDLE)).table[0].kind)


class ThickSourceTestCase(base.CloudTestCase):

    KINDS = ('default', 'thin')

    def test_all_is_copied(self):
        self.cloud.attach(self.volume, self.b)
        names = Names(self.row().name_id)
        self.cloud.watch(hydrate=False)
        clone = self.b.kernel.get(names.of(CLONE))
        self.assertEqual((0, True), (clone.own.bitmap['hydrated'],
                                     clone.own.hydration))
        self.cloud.watch(4)
        self.assertIdle(self.b)


class FaultsTestCase(MarksTestCase):
    """Whatever fails, nobody is held, and the move ends as any other."""

    def before(self, volume):
        self.allocate(ALLOCATED, volume=volume)
        self.move(volume)

    def check(self, step, volume):
        for name, device in self.b.kernel.devices.items():
            if name.startswith('dmclone-') and not device.own:
                self.assertFalse(device.suspended, (step, name))

    def act(self, volume):
        with self.cloud.on(self.b):
            self.b.watcher.look()

    def test_failures(self):
        for step, volume, _error in self.each_step(self.act, self.before):
            self.check(step, volume)

    def test_killed(self):
        """The service is killed; a new one continues."""
        for step, volume, _error in self.each_step(
                self.act, self.before, killed=True):
            node = self.cloud.nodes[step.partition(':')[0]]
            node.stop()
            self.cloud.locks.clear()
            self.cloud.pass_time(1000)
            node.start()
            self.cloud.settle()
            self.check(step, volume)


class StartTestCase(MarksTestCase):

    def test_copy_of_metadata_is_released(self):
        """The service was killed while it read the pool."""
        pool = self.a.lvm.volumes['/dev/volumes/volumes-pool']
        pool['copied'] = True
        self.a.stop()
        self.a.start()
        self.cloud.settle()
        self.assertFalse(pool['copied'])
        self.assertIn('is released', self.log.output)

    def test_copy_of_metadata_of_another_pool_is_released(self):
        """Volumes of others may be in it, too."""
        self.a.lvm.add('volumes', 'other', storage.GIB)
        pool = self.a.lvm.volumes['/dev/volumes/other']
        pool.update(is_pool=True, copied=True)
        self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['pool'] = (
            '/dev/volumes/other')
        self.a.stop()
        self.a.start()
        self.cloud.settle()
        self.assertFalse(pool['copied'])

    def complete_with_an_older_version(self):
        """It does not know the tags, nor why the handle is what it is."""
        untag = logical_volumes.untag
        with mock.patch.object(LogicalVolume, 'markable', new=False), (
                mock.patch.object(logical_volumes, 'untag', new=(
                    lambda lv, *tags: untag(lv, *(
                        tag for tag in tags
                        if not tag.startswith((
                            'dmclone.mark', 'dmclone.allocated'))))))):
            self.cloud.watch(4)
        self.assertEqual('snapshot-origin', self.device(HANDLE).table[0].kind)
        self.assertTrue(self.lv().needed)

    def restart(self):
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        self.look(2)

    def test_completed_by_an_older_version(self):
        """Its tags are removed, and the handle takes discards again."""
        self.move()
        self.look()
        self.complete_with_an_older_version()
        self.restart()
        self.assertEqual('linear', self.device(HANDLE).table[0].kind)
        self.assertIsNone(self.device(ORIGIN))
        self.assertFalse(self.lv().needed)
        self.assertIdle(self.b)

    def test_completed_by_an_older_version_with_a_snapshot(self):
        """Then the handle stays what it is."""
        self.move()
        self.look()
        with self.cloud.on(self.b):
            self.b.driver.create_snapshot(self.snapshot_row())
        self.complete_with_an_older_version()
        self.restart()
        self.assertEqual('snapshot-origin', self.device(HANDLE).table[0].kind)
        self.assertEqual((False, None, True), (
            self.lv().markable, self.lv().marked, self.lv().has_taken))
        self.assertNotIn('dmclone.allocated', str(self.lv().tags))

    def test_tags_of_a_clone_stay(self):
        self.move()
        self.look()
        self.restart()
        self.assertTrue(self.lv().markable)
        self.assertIsNotNone(self.lv().marked)


class SnapshotTestCase(MarksTestCase):
    """The handle of such a clone is one for snapshots already."""

    def test_snapshot_while_it_hydrates(self):
        self.move()
        self.look()
        snapshot = self.snapshot_row()
        with self.cloud.on(self.b):
            self.b.driver.create_snapshot(snapshot)
        self.assertEqual(self.device(HANDLE).table[0].kind, 'snapshot-origin')
        with self.cloud.on(self.b):
            self.b.driver.delete_snapshot(snapshot)
            self.b.parts.snapshots.tidy_origins(self.context)
        # It still refuses discards.
        self.assertEqual(self.device(HANDLE).table[0].kind, 'snapshot-origin')
        self.assertTrue(self.device().discards)
        self.cloud.watch(4)
        self.assertEqual('linear', self.device(HANDLE).table[0].kind)
        self.assertIsNone(self.device(ORIGIN))

    def test_snapshot_that_stays(self):
        self.move()
        snapshot = self.snapshot_row()
        with self.cloud.on(self.b):
            self.b.driver.create_snapshot(snapshot)
        self.cloud.watch(4)
        self.assertEqual('snapshot-origin', self.device(HANDLE).table[0].kind)
        with self.cloud.on(self.b):
            self.b.driver.delete_snapshot(snapshot)
            self.b.parts.snapshots.tidy_origins(self.context)
        self.assertEqual('linear', self.device(HANDLE).table[0].kind)
        self.assertIsNone(self.device(ORIGIN))
