# SPDX-License-Identifier: Apache-2.0
"""The old home's side: exporting, sealing and deleting a source."""

import contextlib
from unittest import mock

from cinder import exception as cinder_exception
import ddt

from dmclone_driver.move import lookups
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import steps
from tests.unit.fakes import storage


class SourceTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.names = Names(self.volume.id)
        self.source = self.a.source
        self.released = self.a.released_sources
        self.enter = self.cloud.on(self.a)
        self.enter.__enter__()
        self.addCleanup(self.enter.__exit__, None, None, None)

    def move(self):
        """Move the volume away; returns the placeholder."""
        self.path = self.cloud.attach(self.volume, self.b)
        return self.cloud.row(self.row().name_id)

    def exports(self):
        return list(self.a.target.exports.values())


class ExportTestCase(SourceTestCase):

    def test_export(self):
        row = self.row()
        self.source.export(self.context, row, 'iqn.of.node2')
        path, initiator, auth = self.exports()[0]
        self.assertEqual((self.names.path('export'), 'iqn.of.node2'),
                         (path, initiator))
        for found in (row, self.row()):
            self.assertIn(self.names.target, found.provider_location)
            self.assertEqual(auth, found.provider_auth)

    def test_again(self):
        for _ in range(2):
            self.source.export(self.context, self.row(), 'iqn.of.node2')
        self.assertEqual(1, len(self.exports()))
        self.assertEqual(1, self.a.kernel.get(
            self.names.path('export')).opened)

    def test_unexport(self):
        self.source.export(self.context, self.row(), 'iqn.of.node2')
        for _ in range(2):
            self.source.unexport(self.names)
            self.assertEqual([], self.exports())
            self.assertEqual({'handle': 'linear'},
                             self.a.kernel.roles(self.names))

    def test_unexport_fails_and_is_repeated(self):
        self.source.export(self.context, self.row(), 'iqn.of.node2')
        self.cloud.steps.start(0)
        self.source.unexport(self.names)
        self.assertEqual(1, len(self.exports()))
        self.source.unexport_again(self.context)
        self.assertEqual([], self.exports())
        self.cloud.steps.start()
        self.source.unexport_again(self.context)
        self.assertEqual([], self.cloud.steps.log)


class StaleReadTestCase(SourceTestCase):

    def test_release_reads_an_old_row(self):
        """The destination's host is no reason to forget the request."""
        self.cloud.attachment(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        old, = self.cloud.placeholders()
        old = lookups.placeholder(self.context, old.id)
        self.cloud.detach(self.volume, self.a)
        real = lookups.placeholder

        def lag(context, row_id):
            return old if self.cloud.here is self.a and row_id == old.id else (
                real(context, row_id))

        self.b.hydrate()
        with mock.patch.object(lookups, 'placeholder', new=lag):
            with self.cloud.on(self.b):
                self.b.look()
            self.cloud.settle()
        self.assertIn(self.volume.name, self.a.lvm.names())
        self.cloud.watch(3)
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual([], self.cloud.placeholders())


class UnexportAgainTestCase(SourceTestCase):

    def setUp(self):
        super().setUp()
        self.locked = []
        self.held = lambda: None
        self.lock = self.a.backend.lock
        self.a.backend.lock = self.wait

    @contextlib.contextmanager
    def wait(self, volume_id, timeout=None):
        """Acquire a lock after another holder, who runs ``held``."""
        self.held()
        with self.lock(volume_id):
            self.locked.append(volume_id)
            yield

    def again(self, names):
        self.source.to_unexport.add(names)
        self.locked.clear()
        self.source.unexport_again(self.context)
        self.assertEqual({}, self.source.to_unexport)

    def test_move_has_begun_meanwhile(self):
        self.held = lambda: self.source.export(self.context, self.row(),
                                               'iqn.of.node2')
        self.again(self.names)
        self.assertEqual(1, len(self.exports()))

    def test_volume(self):
        self.source.export(self.context, self.row(), 'iqn.of.node2')
        self.again(self.names)
        self.assertEqual([self.volume.id], self.locked)
        self.assertEqual([], self.exports())

    def test_source(self):
        """The lock of the user's volume is taken."""
        self.move()
        self.again(self.names)
        self.assertEqual([self.volume.id], self.locked)
        self.assertEqual([], self.exports())

    def test_row_is_gone(self):
        self.source.export(self.context, self.row(), 'iqn.of.node2')
        self.volume.destroy()
        self.again(self.names)
        self.assertEqual([], self.locked)
        self.assertEqual([], self.exports())


class ExportAgainTestCase(SourceTestCase):

    def test_after_a_reboot(self):
        placeholder = self.move()
        self.a.target.exports.clear()
        self.source.export_again(self.context, placeholder.id)
        (path, initiator, auth), = self.exports()
        self.assertEqual((self.b.initiator, placeholder.provider_auth),
                         (initiator, auth))

    def test_not_here(self):
        placeholder = self.move()
        with self.cloud.on(self.b):
            self.assertRaises(cinder_exception.VolumeDriverException,
                              self.b.source.export_again, self.context,
                              placeholder.id)
        self.assertEqual({}, self.b.target.exports)

    def test_unknown(self):
        for row_id in (self.volume.id, self.names.name_id[::-1]):
            self.assertRaises(cinder_exception.VolumeDriverException,
                              self.source.export_again, self.context, row_id)
        self.assertEqual([], self.exports())

    def test_left_behind_for_another(self):
        """The export is refused if the source's tag names another volume."""
        placeholder = self.move()
        self.a.target.exports.clear()
        self.assertEqual(placeholder.id,
                         self.source.seal_of(self.names.name_id))
        tags = self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['tags']
        tags.clear()
        self.assertEqual('', self.source.seal_of(self.names.name_id))
        tags.add('dmclone.sealed=another')
        error = self.assertRaises(
            cinder_exception.VolumeDriverException,
            self.source.export_again, self.context, placeholder.id)
        self.assertIn('another', error.msg)
        self.assertEqual([], self.exports())
        self.assertIsNone(self.source.seal_of(placeholder.id))

    def test_aborted(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        placeholder_id = lookups.prepared_move(self.row())
        records.abort(self.context, self.volume.id, placeholder_id)
        self.source.unexport(self.names)
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.source.export_again, self.context,
                          placeholder_id)
        self.assertEqual([], self.exports())


class SealTestCase(SourceTestCase):

    def test_prepared(self):
        """A prepared move is not sealed, neither home nor destination."""
        home = self.cloud.attach(self.volume, self.a)
        there = self.cloud.attach(self.volume, self.b)
        placeholder_id = lookups.prepared_move(self.row())
        for node in (self.a, self.b):
            with self.cloud.on(node):
                self.assertFalse(node.source.seal(self.context,
                                                  placeholder_id))
        self.assertTrue(self.a.kernel.write(home))
        self.assertFalse(self.b.kernel.get(there).sealed)

    def test_switched(self):
        placeholder = self.move()
        self.a.kernel.get(self.names.path()).sealed = False
        self.assertTrue(self.source.seal(self.context, placeholder.id))
        self.assertRaises(OSError, self.a.kernel.write, self.names.path())

    def seal_again(self, tags):
        """Seal the source with these tags; return the processes for that."""
        placeholder = self.move()
        self.a.lvm.volumes['/dev/volumes/' + self.volume.name]['tags'] = tags
        self.cloud.steps.start()
        self.source.seal(self.context, placeholder.id)
        return [step.split()[1] for step in self.cloud.steps.log
                if ' lv' in step]

    def test_only_what_a_move_has_read_is_not_read_again(self):
        """It has read that of its own, and that serves once."""
        self.assertEqual(['lvs', 'lvchange'], self.seal_again(set()))

    def test_sealed_for_another(self):
        tags = {'dmclone.sealed=another'}
        self.assertEqual(['lvs'], self.seal_again(tags))
        self.assertEqual({'dmclone.sealed=another'}, tags)

    def test_sealed_for_another_before_a_move(self):
        """What was read when one move began says nothing about another."""
        self.source.begins(self.names, 'another')
        self.assertEqual(['lvs'], self.seal_again({'dmclone.sealed=x'}))

    def test_open(self):
        placeholder = self.move()
        self.a.kernel.get(self.names.path()).opened += 1
        self.assertFalse(self.source.seal(self.context, placeholder.id))

    def test_handle_is_not_there(self):
        placeholder = self.move()
        self.a.kernel.devices.clear()
        self.assertFalse(self.source.seal(self.context, placeholder.id))

    def test_not_here(self):
        """A request to the new home does not seal its volume."""
        placeholder = self.move()
        with self.cloud.on(self.b):
            self.assertFalse(self.b.source.seal(self.context,
                                                placeholder.id))
            self.assertTrue(self.b.kernel.write(self.path))


@ddt.ddt
class ReleaseTestCase(SourceTestCase):

    def setUp(self):
        super().setUp()
        self.placeholder = self.move()

    def test_only_what_is_released(self):
        self.released.release(self.context, self.placeholder.id)
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.assertEqual(1, len(self.exports()))

    def test_released(self):
        records.release(self.context, self.placeholder.id)
        self.released.release(self.context, self.placeholder.id)
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual({}, self.a.kernel.of_volumes())
        self.assertEqual([], self.exports())
        self.assertIsNone(self.cloud.row(self.placeholder.id))
        # A late or repeated request.
        self.released.release(self.context, self.placeholder.id)

    def test_open(self):
        """It is kept, and the error names it."""
        records.release(self.context, self.placeholder.id)
        self.a.kernel.get(self.names.path()).opened += 1
        error = self.assertRaises(
            cinder_exception.VolumeIsBusy, self.released._release,
            self.context, self.placeholder.id)
        self.assertIn(self.names.path(), error.msg)
        self.assertEqual([self.volume.name], self.a.lvm.names())

    def test_two_requests_at_once(self):
        records.release(self.context, self.placeholder.id)
        lock = self.a.backend.lock
        delete = self.a.teardown.delete_data = mock.Mock(
            side_effect=self.a.teardown.delete_data)

        @contextlib.contextmanager
        def wait(volume_id, timeout=None):
            self.a.backend.lock = lock
            self.released.release(self.context, self.placeholder.id)
            with lock(volume_id):
                yield

        self.a.backend.lock = wait
        self.released.release(self.context, self.placeholder.id)
        delete.assert_called_once()

    def test_volume_may_come_back_while_its_source_is_cleared(self):
        """The volume's lock is not held meanwhile, which may take long."""
        records.release(self.context, self.placeholder.id)
        delete, seen = self.a.teardown.delete_data, []

        def look(*args):
            with self.a.backend.lock(self.volume.id):
                seen.extend(self.cloud.locks)
            delete(*args)

        self.a.teardown.delete_data = look
        self.released.release(self.context, self.placeholder.id)
        self.assertEqual(2, len(seen))
        self.assertIsNone(self.cloud.row(self.placeholder.id))

    @ddt.data('stop', 'reboot')
    def test_cleared_from_the_start_after_a_crash(self, crash):
        """It keeps its blocks until all of them are zeroed."""
        records.release(self.context, self.placeholder.id)
        self.a.backend.configuration.volume_clear = 'zero'
        zero = self.a.kernel._zero

        def die(path, start, reached):
            if start:
                raise steps.Killed
            zero(path, start, reached)

        with mock.patch.object(self.a.kernel, '_zero', new=die):
            self.assertRaises(steps.Killed, self.released.release,
                              self.context, self.placeholder.id)
        getattr(self.a, crash)()
        self.a.start()
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.a.backend.configuration.volume_clear = 'zero'
        self.a.kernel.zeroed.clear()
        self.cloud.settle()
        half = storage.GIB // 2
        self.assertEqual([(0, half), (half, storage.GIB)],
                         [tuple(part) for _, *part in self.a.kernel.zeroed])
        self.assertEqual([], self.a.lvm.names())
        self.assertIsNone(self.cloud.row(self.placeholder.id))

    def test_not_here(self):
        records.release(self.context, self.placeholder.id)
        with self.cloud.on(self.b):
            self.b.released_sources.release(self.context, self.placeholder.id)
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.assertIn('clone', self.b.kernel.get(self.path).kinds)

    def test_in_use(self):
        """It is kept with its row, and no exception is raised."""
        records.release(self.context, self.placeholder.id)
        self.a.kernel.get(self.names.path()).opened += 1
        self.released.release(self.context, self.placeholder.id)
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.assertIsNotNone(self.cloud.row(self.placeholder.id))

    def test_answers_before_it_is_done(self):
        records.release(self.context, self.placeholder.id)
        self.released.release_soon(self.context, self.placeholder.id)
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.cloud.settle()
        self.assertEqual([], self.a.lvm.names())


class LostRequestTestCase(SourceTestCase):
    """Nobody repeats the request to delete a source."""

    def setUp(self):
        super().setUp()
        self.move()
        self.server, self.a.server = self.a.server, None

    def come_back(self):
        """The service of the source is reached again; a minute passes."""
        self.a.server = self.server
        self.a.driver.get_volume_stats(refresh=True)
        self.a.look()
        self.cloud.settle()

    def test_caller_is_killed(self):
        self.cloud.watch(3)
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.b.stop()
        self.come_back()
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual([], self.exports())
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({}, self.a.jobs.left())

    def test_caller_is_killed_after_the_deletion_of_the_volume(self):
        """Its start does not find what was left."""
        self.cloud.detach(self.volume, self.b)
        self.delete(self.volume)
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        self.come_back()
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual([], self.cloud.placeholders())

    def test_not_released(self):
        self.come_back()
        self.assertEqual([State.SWITCHED], self.cloud.states())
        self.assertEqual({}, self.a.jobs.left())
        self.assertEqual(1, len(self.exports()))

    def test_source_of_another_node(self):
        self.cloud.watch(3)
        self.b.driver.get_volume_stats(refresh=True)
        self.assertEqual([], self.b.left('delete source'))

    def test_request_arrives_at_the_same_time(self):
        """What is being deleted is not queued once more."""
        self.cloud.watch(3)
        delete = self.a.teardown.delete_data

        def look(*args):
            self.a.driver.get_volume_stats(refresh=True)
            self.assertEqual({}, self.a.jobs.left())
            delete(*args)

        self.a.teardown.delete_data = look
        placeholder, = self.cloud.placeholders()
        self.released.release(self.context, placeholder.id)
        self.assertEqual([], self.a.lvm.names())
