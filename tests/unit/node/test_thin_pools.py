# SPDX-License-Identifier: Apache-2.0
"""Thin pools."""

import ddt

from dmclone_driver import exception
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node import thin_pools
from tests.unit import base
from tests.unit.fakes import storage

GIB = storage.GIB


@ddt.ddt
class ThinPoolsTestCase(base.MachineTestCase):

    def open(self):
        self.group = storage.Group(self.lvm, 'volumes', 'thin')

    def create(self, name, size, allocated=0, *tags):
        self.group.create_volume(name, '%dg' % size, 'thin')
        self.lvm.volumes['/dev/volumes/' + name].update(
            tags=set(tags), allocated=allocated * GIB)

    def test_find(self):
        self.assertIsNone(thin_pools.find('volumes'))
        self.open()
        self.create('one', 100, 20)
        self.lvm.add('volumes', 'thick', GIB)
        pool = thin_pools.find('volumes')
        self.assertEqual(('volumes/volumes-pool', 1, 95 * GIB, 101 * GIB, 0), (
            pool.full_name, pool.metadata_percent, pool.size,
            pool.provisioned, pool.awaited))
        # LVM prints percentages with two digits.
        self.assertEqual(75.0, round(pool.free / GIB, 1))

    def test_deletion_that_the_pool_does_not_take(self):
        self.open()
        self.create('one', 1)
        pool = self.lvm.volumes['/dev/volumes/volumes-pool']
        for mode, reason in (('rw', None), ('out_of_data_space', None),
                             ('ro', 'mode ro'),
                             ('ro discard_passdown needs_check',
                              'mode ro, needs_check')):
            with self.subTest(mode):
                pool['mode'] = mode
                lv = logical_volumes.find('one', 'volumes')
                if reason is None:
                    thin_pools.refuse_unchangeable(lv)
                    continue
                error = self.assertRaises(exception.PoolTakesNoChanges,
                                          thin_pools.refuse_unchangeable, lv)
                self.assertIn(
                    'Logical volume volumes/one is neither deleted nor '
                    'merged: its thin pool volumes/volumes-pool takes no '
                    'changes (%s).' % reason, error.msg)

    def test_deletion_in_a_pool_that_is_not_active(self):
        """It is not activated, which may check the pool for minutes."""
        self.open()
        self.create('one', 1)
        for path in self.lvm.volumes:
            self.lvm.volumes[path]['active'] = False
        error = self.assertRaises(
            exception.PoolTakesNoChanges, thin_pools.refuse_unchangeable,
            logical_volumes.find('one', 'volumes'))
        self.assertIn('(not active)', error.msg)
        self.assertFalse(logical_volumes.find('one', 'volumes').active)

    def test_deletion_of_a_thick_one(self):
        self.lvm.add('volumes', 'thick', GIB)
        thin_pools.refuse_unchangeable(
            logical_volumes.find('thick', 'volumes'))

    def test_device(self):
        self.assertEqual('cinder--volumes-cinder--volumes--pool-tpool',
                         thin_pools.device_of('cinder-volumes'))

    def test_clones_will_allocate(self):
        """What each has not copied yet; a thick one has its blocks."""
        self.open()
        tag = logical_volumes.METADATA_TAG + 'volumes/dmclone-metadata-1'
        self.create('clone', 10, 4, tag)
        self.create('new', 5, 0, tag)
        self.create('complete', 50, 1, 'dmclone.opened=1')
        self.lvm.add('volumes', 'thick', GIB)
        self.lvm.volumes['/dev/volumes/thick']['tags'] = {tag}
        self.assertEqual(11 * GIB, thin_pools.find('volumes').awaited)

    @ddt.data((2, 0, (), 2), (2, 1, (), 1), (2, 3, (), 0), (2, 0, (8,), 2),
              (2, 0, (0,), 10), (2, 1, (4,), 5))
    @ddt.unpack
    def test_allocated_at_the_source(self, allocated, here, marked, awaited):
        """It counts until it is decided what is marked.

        A preparation that was repeated may have found more, or less.
        """
        self.open()
        self.create(
            'one', 10, here,
            logical_volumes.METADATA_TAG + 'volumes/dmclone-metadata-1',
            *(logical_volumes.ALLOCATED_TAG + str(size * GIB)
              for size in (1, allocated)),
            *(logical_volumes.MARKED_TAG + str(size * GIB)
              for size in marked))
        self.assertEqual(awaited * GIB, thin_pools.find('volumes').awaited)

    def test_allocated(self):
        self.open()
        self.create('one', 10, 4)
        self.lvm.add('volumes', 'thick', GIB)
        self.assertEqual([4 * GIB, None, None], [
            thin_pools.allocated('volumes', name)
            for name in ('one', 'thick', 'other')])

    def test_larger_than_the_clone(self):
        """What is beyond it is not copied, but may be what is allocated."""
        self.open()
        tags = (logical_volumes.METADATA_TAG + 'volumes/dmclone-metadata-1',
                logical_volumes.CLONED_TAG + str(2 * GIB))
        self.create('one', 10, 0, *tags)
        self.create('other', 10, 9, *tags)
        self.assertEqual(3 * GIB, thin_pools.find('volumes').awaited)

    def test_not_active(self):
        """LVM does not know what is free."""
        self.open()
        self.create('one', 100, 20)
        for volume in self.lvm.volumes.values():
            volume.update(active=False, metadata='')
        self.assertEqual(0, thin_pools.find('volumes').free)

    def test_zeroes(self):
        self.open()
        self.assertTrue(thin_pools.find('volumes').zeroes)
        self.lvm.volumes['/dev/volumes/volumes-pool']['zero'] = ''
        self.assertFalse(thin_pools.find('volumes').zeroes)

    def test_several_segments(self):
        """LVM has a row for each."""
        self.open()
        self.create('one', 10, 4)
        report = lvm.report
        self.patch('dmclone_driver.node.lvm.report',
                   new=lambda *args: 2 * report(*args))
        self.assertEqual(10 * GIB, thin_pools.find('volumes').provisioned)

    def test_external_origin(self):
        """What is not allocated is there."""
        self.open()
        self.create('one', 10, 4)
        self.lvm.add('volumes', 'external', GIB)
        self.lvm.volumes['/dev/volumes/one']['origin'] = (
            '/dev/volumes/external')
        self.assertIsNone(thin_pools.allocated('volumes', 'one'))

    def test_are_chosen(self):
        """As Cinder's documentation says of "auto"."""
        self.assertTrue(thin_pools.are_chosen('volumes'))
        self.lvm.add('volumes', 'thick', GIB)
        self.assertFalse(thin_pools.are_chosen('volumes'))
        self.open()
        self.assertTrue(thin_pools.are_chosen('volumes'))
