# SPDX-License-Identifier: Apache-2.0
"""Removing a logical volume with its devices, session and export."""

from unittest import mock

from cinder import exception as cinder_exception
import ddt

from dmclone_driver.move import lookups
from dmclone_driver.move.placeholders import State
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import steps


class TeardownTestCase(base.CloudTestCase):

    def remove(self, node, row=None):
        """Remove a row's logical volume on a node."""
        with self.cloud.on(node):
            node.teardown.remove(self.context, row or self.row())

    def assertNothing(self, *nodes):
        for node in nodes:
            self.assertEqual({}, node.kernel.of_volumes())
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
        """It fails, but does not make the volume available again."""
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
        """Its source is released and deleted, too."""
        self.cloud.attach(self.volume, self.b)
        self.remove(self.b)
        self.assertNothing(self.b)
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.cloud.settle()
        self.assertNothing(self.a, self.b)
        self.assertEqual([], self.cloud.states())

    def test_hydrating_from_a_node_that_is_gone(self):
        """The removal does not wait; the source is released later."""
        path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.get(path + '-source').suspended = True
        self.b.kernel.write(path)
        self.a.stop()
        self.remove(self.b)
        self.assertNothing(self.b)
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.a.start()
        self.cloud.watch()
        self.assertNothing(self.a)

    def test_session_that_cannot_be_ended(self):
        """It fails with a hint, without a suspend, which would wait."""
        path = self.cloud.attach(self.volume, self.b)
        # A copy waits for its source, below the suspendable device.
        self.b.kernel.get(path).clone.waiting = 1
        with mock.patch.object(self.b.backend.initiator, 'cut'):
            self.cloud.steps.start()
            error = self.assertRaises(
                cinder_exception.VolumeDriverException, self.remove, self.b)
        # Cinder would make a busy volume available again.
        self.assertNotIsInstance(error, cinder_exception.VolumeIsBusy)
        for part in (self.volume.id, 'dmclone-' + self.volume.name_id,
                     self.a.host, '--logout'):
            self.assertIn(part, error.msg)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'suspend' in step and 'sysfs' not in step])
        self.assertEqual('clone', self.b.kernel.get(path).kinds)
        # Now the session is ended by hand.
        self.remove(self.b)
        self.assertNothing(self.b)

    def test_whole_chain(self):
        """The volume has moved three times, without hydration."""
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

    def test_start_of_the_service_before_the_metadata_is_removed(self):
        """A volume that is partly deleted is not taken for a complete one."""
        self.cloud.attach(self.volume, self.b)
        with mock.patch.object(self.b.teardown, 'forget_metadata',
                               side_effect=steps.Killed):
            self.assertRaises(steps.Killed, self.remove, self.b)
        self.cloud.locks.clear()
        self.b.stop()
        self.b.start()
        self.cloud.watch()
        self.remove(self.b)
        self.cloud.watch()
        self.assertNothing(self.a, self.b)

    @ddt.data({}, {'after': True}, {'killed': True})
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


class DeleteTestCase(TeardownTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.a)
        self.path = self.cloud.attach(self.volume, self.b)
        self.names = Names(lookups.prepared_move(self.row()))

    def delete(self):
        with self.cloud.on(self.b):
            return self.b.teardown.delete_destination(self.names, self.row())

    def test_untouched(self):
        """The deletion does not wait for the gate: see CloudTestCase."""
        for _ in range(2):
            self.delete()
            self.assertNothing(self.b)
        self.assertEqual([self.volume.name], self.a.lvm.names())
