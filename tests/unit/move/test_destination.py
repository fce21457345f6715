# SPDX-License-Identifier: Apache-2.0
"""The new home's side: creating, activating and deleting destinations."""

import contextlib
import types
from unittest import mock
import uuid

from cinder import exception as cinder_exception
import ddt

from dmclone_driver import exception
from dmclone_driver.move import destination
from dmclone_driver.move import peers
from dmclone_driver.move import records
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import cloud
from tests.unit.fakes import storage

CLONE = {'handle': 'clone', 'clone': 'clone', 'gate': 'linear',
         'source': 'linear'}


class DestinationTestCase(base.CloudTestCase):
    """A test with a move that has begun, and is exported, not prepared."""

    def setUp(self):
        super().setUp()
        self.begin()
        self.enter = self.cloud.on(self.b)
        self.enter.__enter__()
        self.addCleanup(self.enter.__exit__, None, None, None)

    def begin(self):
        peer = peers.Peer(self.b.host, self.b.pool, None, 'zone')
        self.placeholder_id = str(uuid.uuid4())
        records.begin(self.context, self.row(), self.placeholder_id, peer,
                      self.b.initiator, self.b.name)
        self.names = Names(self.placeholder_id)
        with self.cloud.on(self.a):
            self.a.source.export(self.context, self.row(), self.b.initiator)

    def prepare(self, size=storage.GIB):
        row = self.row()
        return self.b.destination.prepare(
            self.context, row.id, self.placeholder_id, size,
            row.provider_location, row.provider_auth)

    def start_threads_late(self, ends=True):
        """Have threads begin when they are waited for.

        :param ends: whether they have ended in time then
        """
        def thread(target, **kwargs):
            to_do = [target] if ends else []
            return types.SimpleNamespace(
                start=lambda: None,
                join=lambda timeout: [to_do.pop()() for _ in to_do[:]])

        for module in ('activation', 'threads'):
            self.patch('dmclone_driver.move.%s.threading.Thread' % module,
                       new=thread)

    @staticmethod
    def index(log, *words):
        return next(number for number, step in enumerate(log)
                    if all(word in step for word in words))

    def switch_over(self):
        records.switch_over(self.context, self.volume.id, self.placeholder_id)

    def activate(self):
        self.b.activation.activate(self.context, self.placeholder_id)

    def delete(self):
        return self.b.destination.delete(self.context, self.placeholder_id)

    def device(self, role='handle'):
        return self.b.kernel.get(self.names.path(role))

    def assertNothing(self):
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual({}, self.b.kernel.disks)
        self.assertEqual([], self.b.lvm.names())


@ddt.ddt
class PrepareTestCase(DestinationTestCase):

    def test_describe(self):
        self.assertEqual({'initiator': self.b.initiator, 'free_gb': 100.0,
                          'reserved_percentage': 0, 'capabilities': {
                              'dmclone_metadata_backend': 'lvm',
                              'dmclone_metadata_persistent': True}},
                         self.b.destination.describe())

    @ddt.data((0, 3, 97.0), (10, 3, 87.0), (10, 95, 0))
    @ddt.unpack
    def test_room_as_the_scheduler_sees_it(self, percentage, used, free):
        self.override_config('reserved_percentage', percentage,
                             group=cloud.BACKEND)
        self.b.lvm.add('volumes', 'other', used * storage.GIB)
        self.assertEqual(free, self.b.destination.describe()['free_gb'])

    def test_too_many_at_a_time(self):
        """It is refused before it builds anything, and in time."""
        with mock.patch.object(self.b.destination._turns, 'acquire',
                               return_value=False) as acquire:
            error = self.assertRaises(exception.PeerBusy, self.prepare)
        acquire.assert_called_once_with(timeout=20)
        self.assertIn('it prepares 4 volumes at a time', error.msg)
        self.assertEqual([], self.b.lvm.names())
        self.prepare()

    def test_turns_are_given_back(self):
        with mock.patch.object(self.b.builder, 'build',
                               side_effect=OSError):
            self.assertRaises(OSError, self.prepare)
        for _ in range(destination.PREPARED_AT_ONCE):
            self.assertTrue(self.b.destination._turns.acquire(blocking=False))

    def test_prepare(self):
        self.assertEqual(self.names.path(), self.prepare())
        self.assertEqual(CLONE, self.b.kernel.roles(self.names))
        self.assertTrue(self.device('gate').suspended)
        self.assertFalse(self.device().clone.hydration)
        self.assertEqual(storage.GIB, self.device().size)

    def test_tags(self):
        """LVM's tags, by which recovery finds the volume after a power cut."""
        self.prepare()
        lv = logical_volumes.find('volume-' + self.placeholder_id, 'volumes')
        self.assertEqual('volumes/' + self.names.metadata,
                         lv.tagged(logical_volumes.METADATA_TAG))
        metadata = logical_volumes.find_anywhere(self.names.metadata)
        self.assertEqual('128', metadata.tagged(logical_volumes.REGION_TAG))

    def test_again(self):
        self.prepare()
        before = self.device()
        self.prepare()
        self.assertIs(before, self.device())
        self.assertEqual(2, len(self.b.lvm.names()))

    def test_connects_beside_the_creation(self):
        """Neither waits for the other to begin, and the clone for both."""
        self.cloud.steps.start()
        self.prepare()
        log = self.cloud.steps.log
        self.assertLess(self.index(log, 'log in'), self.index(log, 'lvcreate'))
        self.delete()
        self.begin_again()
        self.start_threads_late()
        self.cloud.steps.start()
        self.prepare()
        log = self.cloud.steps.log
        self.assertLess(self.index(log, 'lvchange'), self.index(log, 'log in'))
        self.assertLess(self.index(log, 'log in'),
                        self.index(log, 'create', '-source'))

    def test_connection_fails_at_any_time(self):
        """The creation has ended before all is removed."""
        for begin in (lambda: None, self.start_threads_late):
            begin()
            with mock.patch.object(self.b.backend.initiator, 'connect',
                                   side_effect=OSError('no route')):
                self.assertRaises(OSError, self.prepare)
            self.assertNothing()
            self.begin_again()

    def test_creation_fails_while_it_connects(self):
        """The session is waited for, and ended."""
        for begin in (lambda: None, self.start_threads_late):
            begin()
            with mock.patch.object(self.b.backend.metadata, 'create',
                                   side_effect=OSError('no room')):
                error = self.assertRaises(OSError, self.prepare)
            self.assertEqual('no room', str(error))
            self.assertNothing()
            self.begin_again()

    def begin_again(self):
        """Begin another move after an aborted one."""
        records.abort(self.context, self.volume.id, self.placeholder_id)
        records.destroy(self.context, self.placeholder_id)
        self.begin()

    def test_again_after_the_metadata_was_left_unzeroed(self):
        """Its tag says nothing; that of the clone's logical volume does."""
        self.b.lvm.add('volumes', self.names.volume, storage.GIB)
        logical_volumes.create('volumes', self.names.metadata, 2 ** 22,
                               logical_volumes.REGION_TAG + '128')
        self.prepare()
        self.assertIsNotNone(self.b.lvm.bitmap('/dev/volumes/' +
                                               self.names.metadata))

    def assertRefused(self, error, *parts, **kwargs):
        caught = self.assertRaises(error, self.prepare, **kwargs)
        for part in parts:
            self.assertIn(part, caught.msg)
        self.assertNothing()

    def test_home_has_given_up(self):
        records.abort(self.context, self.volume.id, self.placeholder_id)
        self.assertRefused(exception.MoveGone, self.placeholder_id)

    def test_home_gives_up_meanwhile(self):
        def give_up():
            if self.device():
                records.abort(self.context, self.volume.id,
                              self.placeholder_id)

        self.cloud.steps.observe = give_up
        self.assertRefused(exception.MoveGone, 'aborted')

    def test_other_extents(self):
        size = storage.GIB - 512

        def grow(lvm=self.b.lvm):
            for volume in lvm.volumes.values():
                if volume['size'] == size:
                    volume['size'] = storage.GIB

        self.cloud.steps.observe = grow
        self.assertRefused(cinder_exception.VolumeDriverException, str(size),
                           str(storage.GIB), 'extent sizes differ', size=size)

    def test_another_disk(self):
        """An imported disk with another size is refused."""
        self.a.kernel.get(self.volume.id)
        export = self.a.kernel.get('dmclone-%s-export' % self.volume.id)
        export.table.pop()
        self.assertRefused(cinder_exception.VolumeDriverException,
                           str(storage.GIB + 2 ** 20),
                           str(storage.GIB + 2 ** 21))

    def test_other_blocks(self):
        sizes = iter((512, 4096))
        self.b.kernel.logical_block_size = lambda path: next(sizes)
        self.assertRefused(cinder_exception.VolumeDriverException,
                           '512 bytes on this node and 4096')

    def test_no_room(self):
        self.b.lvm.groups['volumes'] = storage.GIB
        self.assertRaises(exception.NoRoomForMetadata, self.prepare)
        self.assertNothing()


class ActivateTestCase(DestinationTestCase):

    def test_not_switched(self):
        """A late activate of a move that has not switched over is refused."""
        self.prepare()
        self.assertRaises(exception.MoveGone, self.activate)
        records.abort(self.context, self.volume.id, self.placeholder_id)
        self.assertRaises(exception.MoveGone, self.activate)
        self.assertTrue(self.device('gate').suspended)

    def test_complete(self):
        """An activate of a complete move succeeds without effect."""
        self.prepare()
        self.switch_over()
        self.activate()
        self.b.hydrate()
        with mock.patch.object(self.b.requests, 'release'):
            self.b.look()
        self.assertEqual({'handle': 'linear'},
                         self.b.kernel.roles(self.names))
        self.activate()
        records.release(self.context, self.placeholder_id)
        self.activate()

    def test_discards_are_forbidden_again(self):
        """They are forbidden again after a crash that had prevented it."""
        self.prepare()
        self.switch_over()
        clone = self.device('clone')
        clone.discards = True
        self.activate()
        self.assertFalse(clone.discards)

    def test_switched(self):
        self.prepare()
        self.b.kernel.write(self.names.path())
        self.switch_over()
        for _ in range(2):
            self.activate()
            self.assertFalse(self.device('gate').suspended)
            self.assertTrue(self.device().clone.hydration)
        self.assertEqual(0, self.device().clone.waiting)
        self.assertTrue(self.a.kernel.get(
            'dmclone-' + self.volume.id).sealed)

    def test_volume_has_moved_on(self):
        """A late activate opens the gate; the sealed volume stays sealed."""
        self.prepare()
        self.switch_over()
        LocalVolume(self.names).seal()
        peer = peers.Peer('c@backend', 'c@backend#pool', None, 'zone')
        next_id = str(uuid.uuid4())
        records.begin(self.context, self.row(), next_id, peer, 'iqn.c', 'c')
        records.switch_over(self.context, self.volume.id, next_id)
        self.activate()
        self.assertFalse(self.device('gate').suspended)
        self.assertTrue(self.device().sealed)

    def test_placeholder_is_gone(self):
        self.prepare()
        records.destroy(self.context, self.placeholder_id)
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.activate)
        self.assertTrue(self.device('gate').suspended)

    def test_after_a_power_cut(self):
        """The clone is rebuilt with its metadata."""
        self.prepare()
        self.switch_over()
        self.b.kernel.write(self.names.path())
        self.device().clone.bitmap['hydrated'] = 5
        self.b.kernel.reboot()
        for volume in self.b.lvm.volumes.values():
            volume['active'] = True
        self.activate()
        self.assertEqual(5, self.device().clone.bitmap['hydrated'])
        self.assertEqual(CLONE, self.b.kernel.roles(self.names))
        self.assertFalse(self.device('source').suspended)
        self.assertTrue(self.device().clone.hydration)

    def test_session_is_made_under_the_lock(self):
        """Otherwise a concurrent deletion would leave the session."""
        connect, seen = self.b.backend.initiator.connect, []

        def look(*args):
            seen.extend(self.cloud.locks)
            return connect(*args)

        self.prepare()
        self.b.backend.initiator.connect = look
        self.b.kernel.reboot()
        self.switch_over()
        for volume in self.b.lvm.volumes.values():
            volume['active'] = True
        self.activate()
        lock, = seen
        self.assertIn(self.b.host, lock)
        self.assertIn(self.volume.id, lock)

    def test_metadata_is_lost(self):
        """It is refused with a message, and nothing is deleted."""
        self.prepare()
        self.switch_over()
        self.b.kernel.reboot()
        self.b.lvm.drop('/dev/volumes/' + self.names.metadata)
        error = self.assertRaises(exception.MetadataUnusable, self.activate)
        for part in (self.placeholder_id, 'volumes/volume-',
                     'nothing was deleted'):
            self.assertIn(part, error.msg)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertIn('volume-' + self.placeholder_id, self.b.lvm.names())

    def test_volume_is_being_deleted(self):
        """Then the missing metadata is no fault."""
        self.prepare()
        self.switch_over()
        self.b.kernel.reboot()
        self.b.lvm.drop('/dev/volumes/' + self.names.metadata)
        row = self.row()
        row.status = 'deleting'
        row.save()
        error = self.assertRaises(exception.MoveGone, self.activate)
        self.assertIn('is being deleted', error.msg)

    def test_old_home_does_not_answer(self):
        """The gate opens, and hydration does not begin."""
        self.prepare()
        self.switch_over()
        self.a.stop()
        self.activate()
        self.assertFalse(self.device('gate').suspended)
        self.assertFalse(self.device().clone.hydration)

    def steps_with_a_thread(self, answers=True):
        """Activate; what a thread does happens when it is waited for."""
        self.prepare()
        self.switch_over()
        self.start_threads_late(answers)
        self.cloud.steps.start()
        self.activate()
        return self.cloud.steps.log

    def test_tagged_while_the_old_home_seals(self):
        """The gate opens after both, so that there is one writer."""
        log = self.steps_with_a_thread()
        self.assertLess(self.index(log, self.b.name, 'dmclone.opened='),
                        self.index(log, self.a.name, 'dmclone.sealed='))
        self.assertLess(self.index(log, self.a.name, 'dmclone.sealed='),
                        self.index(log, 'resume', self.names.of('gate')))

    def test_old_home_takes_too_long(self):
        """The gate opens, and hydration does not begin."""
        log = self.steps_with_a_thread(answers=False)
        self.assertEqual([], [step for step in log
                              if 'dmclone.sealed=' in step])
        self.assertFalse(self.device('gate').suspended)
        self.assertFalse(self.device().clone.hydration)

    def test_hydration_is_not_waited_for(self):
        """If the service is killed before it, the watcher starts it."""
        self.prepare()
        self.switch_over()
        with mock.patch.object(self.b.jobs, 'start') as start:
            self.activate()
        self.assertFalse(self.device('gate').suspended)
        self.assertFalse(self.device().clone.hydration)
        self.assertEqual(self.names, start.call_args[0][0])
        self.assertEqual([], self.b.backend.busy)
        self.cloud.watch(hydrate=False)
        self.assertTrue(self.device().clone.hydration)


class DeleteTestCase(DestinationTestCase):

    def setUp(self):
        super().setUp()
        self.prepare()

    def test_delete(self):
        for _ in range(2):
            self.assertTrue(self.delete())
            self.assertNothing()

    def test_another_request_was_faster(self):
        lock = self.b.backend.lock

        @contextlib.contextmanager
        def late(volume_id):
            self.b.backend.lock = lock
            self.assertTrue(self.delete())
            records.destroy(self.context, self.placeholder_id)
            yield
        self.b.backend.lock = late
        self.assertTrue(self.delete())
        self.assertNothing()

    def test_aborted(self):
        """The session's address is read from the aborted placeholder."""
        records.abort(self.context, self.volume.id, self.placeholder_id)
        self.assertTrue(self.delete())
        self.assertNothing()

    def test_aborted_but_written_and_acknowledged(self):
        """It is kept: the database may have lost the switchover."""
        records.abort(self.context, self.volume.id, self.placeholder_id)
        self.device('gate').suspended = False
        self.device().clone.bitmap['hydrated'] = 1
        self.assertKept()

    def test_aborted_and_hydrating(self):
        records.abort(self.context, self.volume.id, self.placeholder_id)
        self.device('gate').suspended = False
        self.device().clone.hydration = True
        self.assertKept()

    def test_aborted_and_cut_off_while_its_writes_failed(self):
        records.abort(self.context, self.volume.id, self.placeholder_id)
        lv = self.b.backend.logical_volume(self.names)
        with self.assertRaisesRegex(RuntimeError, 'cut off'), (
                LocalVolume(self.names).fail_writes(lv.size // 512)):
            raise RuntimeError('cut off')
        self.device('gate').suspended = False
        self.assertTrue(self.delete())
        self.assertNothing()

    def test_a_users_volume(self):
        self.assertTrue(self.b.destination.delete(self.context,
                                                  self.volume.id))
        self.assertEqual([self.volume.name], self.a.lvm.names())

    def assertKept(self):
        self.assertFalse(self.delete())
        self.assertEqual(CLONE, self.b.kernel.roles(self.names))
        self.assertFalse(self.device().sealed)
        self.assertEqual(2, len(self.b.lvm.names()))
        self.assertEqual(1, len(self.b.kernel.disks))

    def test_switched(self):
        self.switch_over()
        self.assertKept()
        records.release(self.context, self.placeholder_id)
        self.assertKept()

    def test_written(self):
        self.b.kernel.write(self.names.path())
        self.assertKept()
        self.assertTrue(self.device('gate').suspended)

    def test_open(self):
        """It fails; the home aborts the move, since nothing was written."""
        self.device().opened = 1
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.delete)
        self.assertEqual(CLONE, self.b.kernel.roles(self.names))
        self.assertFalse(self.device().sealed)

    def test_open_while_the_kernel_looks_idly(self):
        """dm-clone's idle worker counts like a write for a moment."""
        self.device().opened = self.device().clone.waiting = 1

        def end_of_look():
            if 'dm status dm' in self.cloud.steps.log[-1]:
                self.device().clone.waiting = 0
        self.cloud.steps.observe = end_of_look
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.delete)

    def test_closed_after_a_moment(self):
        """An opener such as udev closes the device soon."""
        self.device().opened = 1
        closes = self.cloud.seconds + 2
        self.cloud.steps.observe = lambda: self._close(closes)
        self.assertTrue(self.delete())
        self.assertNothing()

    def _close(self, closes):
        if self.device() and self.cloud.seconds >= closes:
            self.device().opened = 0

    def test_metadata_has_failed(self):
        """It fails, since failed metadata does not show earlier writes."""
        self.device().clone.mode = 'ro'
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.delete)
        self.assertEqual(CLONE, self.b.kernel.roles(self.names))

    def test_only_half_made(self):
        for role in ('handle', 'clone', 'gate'):
            self.b.kernel.devices.pop(self.names.of(role))
        self.assertTrue(self.delete())
        self.assertNothing()
