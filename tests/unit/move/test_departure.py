# SPDX-License-Identifier: Apache-2.0
"""Volumes that Cinder copies to a backend of another driver.

With the code of Cinder's VolumeManager, and of its LVM driver there.
"""

import copy
import functools
import types
from unittest import mock

from cinder.tests.unit import utils as cinder_utils
from cinder.volume.drivers import lvm
from cinder.volume import manager

from dmclone_driver.move import jobs
from dmclone_driver.move import leftovers
from dmclone_driver.move import lost_node
from dmclone_driver.move import peer_requests
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import row_repairs
from dmclone_driver.node.names import Names
from tests.unit import base

#: A backend of Cinder's LVM driver.
THERE = 'node3@lvm#lvm'


class Waits(Exception):
    """A thread waits for a lock that another one has."""


class Rpc:
    """Cinder's calls between its managers."""

    def __init__(self):
        # With the driver of the other backend, which renames.
        self._other = object.__new__(manager.VolumeManager)
        self._other.driver = types.SimpleNamespace(
            vg=mock.Mock(), update_migrated_volume=lambda *args: (
                lvm.LVMVolumeDriver.update_migrated_volume(
                    self._other.driver, *args)))
        self.deleted = []

    @staticmethod
    def create_volume(context, volume, *args, **kwargs):
        volume.status = 'available'
        volume.save()

    def update_migrated_volume(self, context, *args):
        self._other.update_migrated_volume(context, *args)

    def delete_volume(self, context, volume):
        self.deleted.append(volume.id)


class DepartureTestCase(base.CloudTestCase):
    """Volumes leave the driver."""

    def setUp(self):
        super().setUp()
        self.rpc = Rpc()
        self.patch('cinder.volume.manager.volume_rpcapi.VolumeAPI',
                   return_value=self.rpc)

    def leave(self, node):
        """Migrate the volume from a node.

        :returns: the row that Cinder deletes there, with the volume's source
        """
        service = object.__new__(manager.VolumeManager)
        service.driver, service.host = node.driver, node.host
        service._copy_volume_data = mock.Mock()
        service._get_service = lambda host: node.service
        node.driver.set_initialized()
        row = self.row()
        # As Cinder's API does.
        row.previous_status = 'available'
        row.save()
        with self.cloud.on(node):
            service.migrate_volume(self.context, row, {'host': THERE})
        self.assertLeft()
        source = self.cloud.row(self.rpc.deleted.pop())
        self.assertEqual(node.pool, source.host)
        return source

    def assertLeft(self, status='available'):
        """Check the row of the volume, which is on the other backend."""
        row = self.row()
        self.assertEqual((THERE, self.volume.id, status, 'success'), (
            row.host, row.name_id, row.status, row.migration_status))

    def delete_source(self, source, node):
        with self.cloud.on(node):
            node.driver.delete_volume(source)
        source.destroy()
        self.cloud.settle()

    def assertGone(self, source):
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], [text for text in self.cloud.leftovers()
                              if source.name_id in text])


class HydratingTestCase(DepartureTestCase):
    """The volume hydrates on the second node."""

    def migrate(self):
        self.cloud.migrate(self.volume, self.b)

    def test_complete_before_the_deletion(self):
        self.migrate()
        source = self.leave(self.b)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.placeholders())
        self.delete_source(source, self.b)
        self.assertGone(source)
        self.assertLeft()

    def test_deletion_while_it_hydrates(self):
        self.migrate()
        source = self.leave(self.b)
        self.delete_source(source, self.b)
        self.assertGone(source)
        self.assertLeft()

    def in_another_thread(self, at, act):
        """Run a function at a step, as another thread of the service does.

        :param at: the number of the step
        :returns: list that gets the error if the function had to wait
        """
        waits = []

        def run(number, done):
            if number != at or done:
                return
            self.cloud.steps.witness = lambda number, done: None
            with mock.patch.object(self.cloud, 'wait_for_ever',
                                   side_effect=Waits):
                try:
                    act()
                except Waits as error:
                    waits.append(error)

        self.cloud.steps.start()
        self.cloud.steps.witness = run
        return waits

    def complete(self):
        """Do what the watcher does with a clone that is complete."""
        clone, = self.b.clones()
        self.b.kernel.hydrate(clone)
        with self.cloud.on(self.b):
            self.b.watcher._completion.complete(
                self.context, Names(clone.removeprefix('dmclone-')
                                    .removesuffix('-clone')))

    def hydrates(self):
        """Return whether the deletion has not yet ended the copies."""
        return any(self.b.kernel.devices[clone].own.hydration
                   for clone in self.b.clones())

    def at_each_step(self, first, second):
        """Have a thread begin at each step of another one.

        :param first: function of the row that Cinder deletes
        :param second: the same; called again later if it had to wait
        """
        waited, to_do = [], [None]
        for at in to_do:
            self.volume = self.a.create()
            self.migrate()
            source = self.leave(self.b)
            waits = self.in_another_thread(
                at, functools.partial(second, source))
            first(source)
            self.cloud.steps.witness = lambda number, done: None
            if at is None:
                # Before a step that reads it is as before the next one.
                to_do += [number for number, step in enumerate(
                    self.cloud.steps.log) if step.startswith('node2') and
                    not base.READS.search(step)]
            if waits:
                second(source)
            waited += waits
            if self.cloud.row(source.id) is not None:
                self.delete_source(source, self.b)
            self.assertGone(source)
            self.assertLeft()
        self.assertNotEqual([], waited)

    def test_complete_during_the_deletion(self):
        self.at_each_step(lambda source: self.delete_source(source, self.b),
                          lambda source: self.hydrates() and self.complete())

    def test_deletion_during_the_completion(self):
        self.at_each_step(lambda source: self.complete(),
                          lambda source: self.delete_source(source, self.b))

    def test_deletion_fails(self):
        """From then on the source belongs to the row that is deleted."""
        self.migrate()
        source = self.leave(self.b)
        with mock.patch('dmclone_driver.move.teardown.Teardown.remove',
                        side_effect=OSError):
            self.assertRaises(OSError, self.delete_source, source, self.b)
        placeholder, = map(Placeholder, self.cloud.placeholders())
        self.assertEqual((State.SWITCHED, source.id),
                         (placeholder.state, placeholder.volume_id))
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        self.delete_source(source, self.b)
        self.assertGone(source)

    def test_node_of_the_source_is_lost(self):
        """The volume, which does not need it, is not set to error."""
        self.migrate()
        source = self.leave(self.b)
        self.a.die()
        backend = copy.copy(self.b.backend)
        backend.jobs = jobs.Jobs()
        with self.cloud.on(self.b):
            list(lost_node.LostNode(
                backend, peer_requests.PeerRequests(backend),
                self.a.name).run(self.context, do_it=True))
        self.assertEqual([State.LOST], self.cloud.states())
        self.cloud.watch(3)
        self.assertLeft()
        self.delete_source(source, self.b)
        self.assertGone(source)


class MarksTestCase(DepartureTestCase):
    """The volume is thin, and hydrates to a thin one."""

    KINDS = ('thin', 'thin')

    def test_deletion_begins_while_the_maps_are_read(self):
        """What is marked then is excluded from the deletion."""
        self.cloud.migrate(self.volume, self.b)
        source = self.leave(self.b)
        dump, mark, held = self.a.lvm.dump, self.b.kernel.mark, []

        def read(*args):
            with self.cloud.on(self.b):
                row_repairs.take_over(self.context, source)
            return dump(*args)

        self.patch('dmclone_driver.privsep.thin.dump', new=read)
        self.patch('dmclone_driver.privsep.marks.run', new=lambda *args: (
            held.extend(self.cloud.locks), mark(*args))[1])
        self.b.look()
        self.assertIn('dmclone-%s-%s' % (self.b.host, source.id), held)
        self.delete_source(source, self.b)
        self.assertGone(source)


class AtRestTestCase(DepartureTestCase):
    """The volume has always been on the first node.

    On the other backend its logical volume has the same name as here.
    """

    def restart(self):
        self.a.stop()
        self.a.start()
        self.cloud.settle()
        self.assertLeft()

    def test_source_that_is_kept_for_a_clone(self):
        """It is not taken for the volume's data, and is deleted later."""
        clone = cinder_utils.create_volume(
            self.context, host=self.a.pool, size=1,
            service_uuid=self.a.service.uuid, volume_type_id=self.vt['id'])
        with self.cloud.on(self.a):
            clone.update(self.a.driver.create_cloned_volume(
                clone, self.row()))
            clone.save()
        source = self.leave(self.a)
        self.delete_source(source, self.a)
        self.assertIn(source.name, self.a.lvm.names())
        self.restart()
        with self.cloud.on(self.a):
            self.assertEqual([], [str(each) for each in leftovers.Leftovers(
                self.a.backend).run(self.context)])
        self.cloud.watch(3)
        self.assertGone(source)

    def test_source_that_is_not_deleted(self):
        """An administrator has unmanaged it after a failed deletion."""
        source = self.leave(self.a)
        with self.cloud.on(self.a):
            self.a.driver.unmanage(source)
        source.destroy()
        self.restart()
