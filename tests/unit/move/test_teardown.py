# SPDX-License-Identifier: Apache-2.0
"""Removing a logical volume with all that was built around it."""

from unittest import mock

from cinder import exception as cinder_exception
import ddt

from dmclone_driver.move import records
from dmclone_driver.move import teardown
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import steps


class TeardownTestCase(base.CloudTestCase):

    def remove(self, node, row=None):
        """Remove a row's data on a node."""
        with self.cloud.on(node):
            node.teardown.remove(self.context, row or self.row())

    def assertNothing(self, *nodes):
        for node in nodes:
            self.assertEqual({}, node.kernel.devices)
            self.assertEqual({}, node.kernel.disks)
            self.assertEqual({}, node.target.exports)
            self.assertEqual([], node.lvm.names())


@ddt.ddt
class RemoveTestCase(TeardownTestCase):

    def test_idle(self):
        self.remove(self.a)
        self.assertNothing(self.a)

    def test_again(self):
        for _ in range(2):
            self.remove(self.a)
        self.assertNothing(self.a)

    def test_in_use(self):
        handle = self.a.kernel.get('dmclone-' + self.volume.id)
        handle.opened = 1
        self.assertRaises(cinder_exception.VolumeIsBusy, self.remove, self.a)
        self.assertEqual([self.volume.name], self.a.lvm.names())
        self.assertEqual('linear', handle.kinds)

    def test_still_being_cleared(self):
        """By a program that has outlived the service: not made available."""
        self.remove_but_for_the_data()
        self.a.kernel.get('dmclone-' + self.volume.id).opened = 1
        error = self.assertRaises(cinder_exception.VolumeDriverException,
                                  self.remove, self.a)
        self.assertNotIsInstance(error, cinder_exception.VolumeIsBusy)
        self.assertIn('still being cleared', error.msg)

    def remove_but_for_the_data(self):
        with mock.patch.object(self.a.teardown, 'delete_data'):
            self.remove(self.a)

    def test_hydrating(self):
        """Its source goes too."""
        self.cloud.attach(self.volume, self.b)
        self.remove(self.b)
        self.assertNothing(self.b)
        self.assertEqual([records.RELEASED], self.cloud.states())
        self.cloud.settle()
        self.assertNothing(self.a, self.b)
        self.assertEqual([], self.cloud.states())

    def test_hydrating_from_a_node_that_is_gone(self):
        """Nothing waits for it, and it is told later."""
        path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.get(path + '-source').suspended = True
        self.b.kernel.write(path)
        self.a.stop()
        self.remove(self.b)
        self.assertNothing(self.b)
        self.assertEqual([records.RELEASED], self.cloud.states())
        self.a.start()
        self.cloud.watch()
        self.assertNothing(self.a)

    def test_session_that_cannot_be_ended(self):
        """A suspend would wait for it, and hold the volume's lock."""
        path = self.cloud.attach(self.volume, self.b)
        # A copy waits for its source, below what can be suspended.
        self.b.kernel.get(path).clone.waiting = 1
        with mock.patch.object(self.b.backend.initiator, 'cut'):
            self.cloud.steps.start()
            error = self.assertRaises(
                cinder_exception.VolumeDriverException, self.remove, self.b)
        # Cinder makes a busy volume available again.
        self.assertNotIsInstance(error, cinder_exception.VolumeIsBusy)
        for part in (self.volume.id, 'dmclone-' + self.volume.name_id,
                     self.a.host, '--logout'):
            self.assertIn(part, error.msg)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'suspend' in step and 'sysfs' not in step])
        self.assertEqual('clone', self.b.kernel.get(path).kinds)
        # It has been ended by hand.
        self.remove(self.b)
        self.assertNothing(self.b)

    def test_whole_chain(self):
        """Away and back, twice, and nothing has been copied."""
        for node in (self.b, self.a, self.b):
            self.cloud.attach(self.volume, node)
            self.cloud.detach(self.volume, node)
        self.assertEqual(3, len(self.cloud.placeholders()))
        self.remove(self.b)
        self.cloud.watch(4, hydrate=False)
        self.assertNothing(self.a, self.b)
        self.assertEqual([], self.cloud.states())

    def test_source_that_is_sealed(self):
        self.cloud.attach(self.volume, self.b)
        placeholder, = self.cloud.placeholders()
        self.assertTrue(self.a.kernel.get('dmclone-' + self.volume.id).sealed)
        self.remove(self.a, placeholder)
        self.assertNothing(self.a)

    @ddt.data({}, {'after': True}, {'killed': True},
              {'killed': True, 'after': True})
    def test_cut_off_anywhere_and_repeated(self, fault):
        def before(volume):
            self.cloud.attach(volume, self.b)
            for record in self.cloud.row(volume.id).volume_attachment:
                record.destroy()

        def act(volume):
            self.remove(self.b, self.cloud.row(volume.id))

        wrong = {}
        for step, volume, error in self.each_step(act, before,
                                                  **fault):
            if isinstance(error, steps.Killed):
                self.cloud.locks.clear()
                node = self.cloud.nodes[step.partition(':')[0]]
                node.stop()
                node.start()
            if error is not None:
                act(volume)
            self.cloud.watch(2)
            devices = [names for names in self.b.kernel.devices
                       if self.cloud.row(volume.id).name_id in names]
            if devices or self.cloud.states() or self.b.kernel.disks:
                wrong[step] = devices, self.cloud.states()
        self.assertEqual({}, wrong)


class AskTestCase(TeardownTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.b)
        self.placeholder, = self.cloud.placeholders()
        self.enter = self.cloud.on(self.b)
        self.enter.__enter__()
        self.addCleanup(self.enter.__exit__, None, None, None)

    def release(self):
        self.b.teardown.release(self.context, self.placeholder)

    def test_release(self):
        self.release()
        self.cloud.settle()
        self.assertNothing(self.a)
        self.assertEqual({}, self.b.teardown.pending)

    def test_nobody_there(self):
        self.a.stop()
        self.release()
        self.assertEqual([records.RELEASED], self.cloud.states())
        self.assertEqual([self.placeholder.id], list(self.b.teardown.pending))
        self.b.teardown.ask_again(self.context)
        self.a.down = False
        self.b.teardown.ask_again(self.context)
        self.cloud.settle()
        self.assertEqual({}, self.b.teardown.pending)
        self.assertNothing(self.a)

    def test_one_that_is_gone_does_not_hold_up_another(self):
        """Who releases a source does not wait for the node of another."""
        self.b.teardown.pending['other'] = self.wanted('node1@dmclone')
        self.cloud.steps.start()
        self.release()
        asked = [step for step in self.cloud.steps.log if 'ask' in step]
        self.assertEqual(1, len(asked))

    def wanted(self, host, volume_id='another'):
        return teardown.Wanted(host, teardown.RELEASE, volume_id)

    def ask_again(self, *args):
        """Return who was asked about rows that are there."""
        self.patch('dmclone_driver.move.records.get')
        self.cloud.steps.start()
        self.b.teardown.ask_again(self.context, *args)
        return [step.split()[2] for step in self.cloud.steps.log
                if 'ask' in step]

    def test_one_that_is_silent_is_asked_once(self):
        self.a.stop()
        third = self.cloud.add('node3')
        self.b.teardown.pending.update({
            'one': self.wanted(self.a.host), 'two': self.wanted(self.a.host),
            'three': self.wanted(third.host)})
        self.assertEqual([self.a.host, third.host], self.ask_again())
        self.assertEqual(['one', 'two'], list(self.b.teardown.pending))

    def test_only_what_concerns_a_volume(self):
        self.b.teardown.pending['one'] = self.wanted(self.a.host)
        self.assertEqual([], self.ask_again(self.volume.id))
        self.assertEqual([self.a.host], self.ask_again('another'))

    def test_node_was_lost_meanwhile(self):
        """What was read before still says that it is needed."""
        records.lose(self.context, self.placeholder.id)
        self.cloud.steps.start()
        self.release()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({}, self.b.teardown.pending)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'ask' in step])

    def test_placeholder_is_gone(self):
        records.destroy(self.context, self.placeholder.id)
        self.release()
        self.assertEqual({}, self.b.teardown.pending)


class DeleteTestCase(TeardownTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.a)
        self.path = self.cloud.attach(self.volume, self.b)
        self.names = Names(records.prepared_move(self.row()))

    def discard(self):
        with self.cloud.on(self.b):
            return self.b.teardown.delete_destination(self.names, self.row())

    def test_untouched(self):
        """Nothing waits for the gate: see CloudTestCase."""
        for _ in range(2):
            self.discard()
            self.assertNothing(self.b)
        self.assertEqual([self.volume.name], self.a.lvm.names())
