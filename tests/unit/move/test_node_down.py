# SPDX-License-Identifier: Apache-2.0
"""Requests while the node of a source, or of a snapshot, is down."""

from unittest import mock

from cinder import objects
from cinder.volume.drivers import lvm
import ddt

from dmclone_driver import exception
from dmclone_driver.move import lookups
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block
from tests.unit.fakes import storage
from tests.unit.move import test_new_content
from tests.unit.move import test_snapshots


class NodeDownTestCase(test_new_content.NewContentTestCase):

    def settle_down(self):
        """Start the first node, and let everything end."""
        self.a.start()
        self.minutes()
        self.assertEqual([], self.cloud.placeholders())

    def assertSize(self, volume, size):
        row = self.cloud.row(volume.id)
        with self.cloud.on(self.b):
            self.assertEqual(size * storage.GIB, block.size(
                Names(row.name_id).path()))
        self.assertEqual(size * storage.GIB, self.lv(self.b, row.name).size)


@ddt.ddt
class ExtendTestCase(NodeDownTestCase):
    """A volume of the second node is extended."""

    def extend(self, volume):
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.cloud.row(volume.id), 2)
        self.assertSize(volume, 2)

    def assertExtended(self, volume):
        """Check that it is extended, and completes later."""
        self.extend(volume)
        self.assertIn('clone', self.roles(volume, self.b))
        self.cloud.watch(2, hydrate=False)
        self.settle_down()
        self.assertEqual({'handle': 'linear'}, self.roles(volume, self.b))
        self.assertSize(volume, 2)

    @ddt.data(False, True)
    def test_hydrates(self, rebooted):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.a.die()
        if rebooted:
            self.b.reboot()
            self.b.start()
            self.cloud.watch(1, hydrate=False)
        self.assertExtended(self.volume)

    def test_made_from_a_snapshot(self):
        copy = self.copy(self.snapshot(), self.b)
        self.a.die()
        self.assertExtended(copy)

    def test_just_reverted(self):
        self.bring_to('away', self.volume)
        self.revert(self.volume)
        self.a.die()
        self.assertExtended(self.volume)

    def test_complete(self):
        """The snapshot is left as it is."""
        taken = self.bring_to('away', self.volume)
        size = self.snapshot_lv(taken).size
        self.a.die()
        self.extend(self.volume)
        self.settle_down()
        self.assertEqual(size, self.snapshot_lv(taken).size)


@ddt.ddt
class RevertTestCase(NodeDownTestCase):
    """A volume of the second node, to a snapshot of the first one."""

    def setUp(self):
        super().setUp()
        self.taken = self.bring_to('away', self.volume)

    @ddt.data('die', 'stop')
    def test_again_when_the_node_is_back(self, how):
        before = self.row().name_id
        getattr(self.a, how)()
        for _attempt in range(2):
            self.assertRaises(exception.SnapshotNotServed, self.revert,
                              self.volume)
            self.assertEqual(before, self.row().name_id)
            self.assertEqual({'handle': 'linear'},
                             self.roles(self.volume, self.b))
        self.a.start()
        # At once: what was given up may be there still.
        self.revert(self.volume)
        self.assertNotEqual(before, self.row().name_id)
        self.assertConverged(self.volume, self.taken)

    def test_with_the_snapshot_of_cinder(self):
        """The user deletes it, and reverts again."""
        newer = self.snapshot()
        self.a.die()
        self.assertRaises(exception.SnapshotNotServed, self.revert,
                          self.volume, self.taken)
        self.delete_snapshot(newer)
        # The volume is used meanwhile.
        path = self.cloud.attach(self.volume, self.b)
        self.assertTrue(self.b.kernel.write(path))
        self.cloud.detach(self.volume, self.b)
        self.a.start()
        self.revert(self.volume)
        self.assertConverged(self.volume, self.taken)

    def test_node_goes_down_afterwards(self):
        """It is used on its node, and completes later."""
        self.revert(self.volume)
        self.a.die()
        self.cloud.watch(2, hydrate=False)
        path = self.cloud.attach(self.volume, self.b)
        self.assertTrue(self.b.kernel.write(path))
        self.cloud.detach(self.volume, self.b)
        self.a.start()
        self.assertConverged(self.volume, self.taken)


@ddt.ddt
class ImagesTestCase(NodeDownTestCase):
    """Images of, and to, a volume whose snapshot is on another node."""

    @ddt.data(*((place, down) for place in test_new_content.PLACES
                for down in (False, True)))
    @ddt.unpack
    def test_handle_is_used(self, place, down):
        taken = self.bring_to(place, self.volume)
        node, row = self.node_of(self.volume), self.row()
        if down and node is self.b:
            self.a.die()
        used = []

        def use(driver, context, volume, *args):
            # The volume stays, also if it is attached meanwhile.
            used.append((driver.local_path(volume), self.node_of(volume)))

        for name in 'copy_volume_to_image', 'copy_image_to_volume':
            with mock.patch.object(lvm.LVMVolumeDriver, name, autospec=True,
                                   side_effect=use), self.cloud.on(node):
                getattr(node.driver, name)(self.context, self.row(), None,
                                           {})
        self.assertEqual([(Names(row.name_id).path(), node)] * 2, used)
        if self.a.down:
            self.a.start()
        self.assertConverged(self.volume, taken)
        self.assertEqual([taken.id], [
            each.id for each in objects.SnapshotList.get_all_for_volume(
                self.context, self.volume.id)])


@ddt.ddt
class CopiesTestCase(NodeDownTestCase, test_snapshots.ClonesTestCase):
    """A volume hydrates on the second node, and the first one is down."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.a.die()
        self.cloud.watch(2, hydrate=False)

    def assertSettled(self, *copies):
        """Check that all is complete, and nothing but the volumes is left."""
        self.settle_down()
        for volume in (self.volume, *copies):
            self.assertEqual({'handle': 'linear'},
                             self.roles(volume, self.b))
        self.assertEqual([], self.a.lvm.names())
        self.assertEqual(1 + len(copies), len(self.b.lvm.names()))

    @ddt.data(1, 2)
    def test_volume_from_a_snapshot(self, size):
        taken = self.snapshot()
        copy = self.copy(taken, self.b, size)
        self.assertTrue(self.b.kernel.write(Names(copy.name_id).path()))
        self.delete_snapshot(taken)
        self.cloud.watch(2, hydrate=False)
        self.assertSettled(copy)

    @ddt.data(1, 2)
    def test_clone(self, size):
        copy = self.clone(size=size)
        self.assertTrue(self.b.kernel.write(Names(copy.name_id).path()))
        self.cloud.watch(2, hydrate=False)
        self.assertSettled(copy)

    def test_deleted_while_it_is_read(self):
        copy = self.clone()
        volume, self.volume = self.volume, copy
        self.delete(volume)
        self.assertIsNone(self.cloud.row(volume.id))
        self.cloud.watch(2, hydrate=False)
        self.assertSettled()

    def test_deleted(self):
        self.delete(self.volume)
        self.assertEqual([], self.b.lvm.names())
        self.settle_down()
        self.assertEqual([], self.a.lvm.names())


class ThirdNodeTestCase(NodeDownTestCase):
    """A volume that hydrates on the second node moves to a third one."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()

    def attach(self):
        """Attach the volume on the third node; returns its path."""
        path = self.cloud.attach(self.volume, self.c)
        self.assertEqual(self.c.pool, self.row().host)
        self.assertIn('clone', self.roles(self.volume, self.c))
        self.assertEqual([self.b.host, self.a.host], [
            each.backend for each in lookups.chain(
                self.context, lookups.placeholder(self.context,
                                                  self.row().name_id))])
        return path

    def test_while_the_first_is_down(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.a.die()
        self.cloud.watch(2, hydrate=False)
        path = self.attach()
        self.assertTrue(self.c.kernel.write(path))
        self.cloud.watch(2, hydrate=False)
        self.cloud.detach(self.volume, self.c)
        self.a.start()
        self.cloud.watch(6)
        self.assertIdle(self.c)

    def test_migrated_while_the_first_is_down(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.a.die()
        self.cloud.watch(2, hydrate=False)
        moved, update = self.cloud.migrate(self.volume, self.c)
        self.assertEqual((True, self.c.pool), (moved, update['host']))
        self.cloud.watch(2, hydrate=False)
        self.a.start()
        self.cloud.watch(6)
        self.assertIdle(self.c)

    def test_second_boots_while_the_first_is_down(self):
        """Its clone has no session; requests of the third wait there."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.a.die()
        self.b.reboot()
        self.b.start()
        self.cloud.watch(2, hydrate=False)
        self.attach()
        self.cloud.detach(self.volume, self.c)
        self.a.start()
        self.cloud.watch(6)
        self.assertIdle(self.c)
