# SPDX-License-Identifier: Apache-2.0
"""Which nodes can take an instance's volumes, without any service."""

import dataclasses
import datetime
import types

from oslo_utils import timeutils

from dmclone_driver.scheduler.answers import Place
from dmclone_driver.scheduler.answers import Pool
from dmclone_driver.scheduler.answers import Volume
from dmclone_driver.scheduler import demand as demand_module
from dmclone_driver.scheduler.demand import New
from dmclone_driver.scheduler import holds as holds_module
from tests.unit import base

NOW = timeutils.utcnow()
LONG_AGO = NOW - datetime.timedelta(days=1)
NODES = ('node1', 'node2', 'node3')


def volume(name, node, size=10, backend='fast', **more):
    return Volume(**dict(
        dict(id=name, size=size, place=Place(node, backend),
             volume_type='type ' + backend, in_group=False, creating=False,
             created=LONG_AGO, moves=None), **more))


class DemandTestCase(base.PlainTestCase):
    """Three nodes with a backend "fast"; only node1 has "slow", too."""

    def setUp(self):
        super().setUp()
        self.free = {Place(node, 'fast'): 50.0 for node in NODES}
        self.free[Place('node1', 'slow')] = 500.0
        self.specs = {'type %s' % name: {'volume_backend_name': name}
                      for name in ('fast', 'slow', 'ceph')}
        self.more = {}
        self.others = []
        self.volumes = []
        self.lately = []
        self.holds = holds_module.Holds()

    def pools(self):
        return self.others + [Pool(place, dict({
            'vendor_name': 'dmclone_driver', 'total_capacity_gb': 100.0,
            'volume_backend_name': place.backend, 'free_capacity_gb': free,
            'reserved_percentage': 0, 'timestamp': NOW.isoformat(),
            'dmclone_metadata_backend': 'lvm'}, **self.more))
            for place, free in self.free.items()]

    def demand(self, *new, instance='instance'):
        rows = {each.id: each for each in self.volumes}
        return demand_module.assemble(
            instance, list(rows), list(new), types.SimpleNamespace(
                volumes=lambda ids: [rows[each] for each in ids],
                pools=self.pools, lately=lambda: self.lately,
                extra_specs=lambda: self.specs), self.holds)

    def fits(self, *new):
        """Return the nodes that can take the volumes, the best first."""
        demand = self.demand(*new)
        verdicts = {node: demand.verdict(node)
                    for node in (*NODES, 'node4')}
        return sorted((node for node, verdict in verdicts.items()
                       if not verdict.reason),
                      key=lambda node: -verdicts[node].weight)

    def reason(self, node):
        return self.demand().verdict(node).reason

    def test_home_comes_first(self):
        self.volumes = [volume('a', 'node2')]
        self.free[Place('node2', 'fast')] = 0.0
        self.free[Place('node3', 'fast')] = 60.0
        self.assertEqual(['node2', 'node3', 'node1'], self.fits())
        self.assertEqual(1, self.demand().verdict('node2').weight)

    def test_home_comes_first_without_its_service(self):
        self.volumes = [volume('a', 'node2')]
        del self.free[Place('node2', 'fast')]
        self.assertEqual('node2', self.fits()[0])

    def test_more_of_the_data(self):
        self.volumes = [volume('a', 'node2'), volume('b', 'node3', 20)]
        self.assertEqual(['node3', 'node2', 'node1'], self.fits())

    def test_no_room(self):
        self.volumes = [volume('a', 'node1', 30), volume('b', 'node1', 20)]
        self.assertIn('node2', self.fits())
        self.free[Place('node2', 'fast')] = 49.9
        self.assertNotIn('node2', self.fits())
        self.assertIn('49.90 GiB free', self.reason('node2'))
        self.assertIn('50 GiB are needed', self.reason('node2'))

    def test_room_only_for_what_is_elsewhere(self):
        self.volumes = [volume('a', 'node1', 30), volume('b', 'node2', 40)]
        self.free[Place('node2', 'fast')] = 30.0
        self.free[Place('node1', 'fast')] = 30.0
        self.assertIn('node2', self.fits())
        self.assertNotIn('node1', self.fits())

    def test_no_backend(self):
        self.volumes = [volume('a', 'node1', backend='slow')]
        self.assertEqual(['node1'], self.fits())
        self.assertIn('no backend for volume a', self.reason('node2'))

    def test_two_backends(self):
        self.volumes = [volume('a', 'node2'),
                        volume('b', 'node1', backend='slow')]
        self.assertEqual(['node1'], self.fits())

    def test_remote_attach(self):
        """A node with the backend is better; one that is full is not."""
        self.volumes = [volume('a', 'node1')]
        self.free[Place('node3', 'fast')] = 1.0
        self.more = {'dmclone_remote_attach': True}
        self.assertEqual(['node1', 'node2', 'node4'], self.fits())
        self.assertEqual(0, self.demand().verdict('node4').weight)

    def test_remote_attach_of_a_new_volume(self):
        self.assertNotIn('node4', self.fits(New(1, None)))
        self.more = {'dmclone_remote_attach': True}
        self.assertEqual('node4', self.fits(New(1, None))[-1])

    def test_remote_attach_without_room(self):
        """A full node comes last; the volumes that fit still move there."""
        self.volumes = [volume('a', 'node1', 30), volume('b', 'node1', 20)]
        self.free[Place('node3', 'fast')] = 35.0
        self.assertEqual(['node1', 'node2'], self.fits())
        self.more = {'dmclone_remote_attach_without_room': True}
        self.assertEqual(['node1', 'node2', 'node3'], self.fits())
        verdict = self.demand().verdict('node3')
        self.assertEqual((0, ((Place('node3', 'fast'), 30, 'a'),)),
                         (verdict.weight, verdict.takes))
        # Its home decides, and a host without the backend is no matter of it.
        self.volumes = [volume('a', 'node2', 60)]
        self.assertEqual(['node2', 'node1', 'node3'], self.fits())
        del self.free[Place('node2', 'fast')]
        self.assertEqual(['node2'], self.fits())

    def test_remote_attach_without_room_of_a_new_volume(self):
        self.free = {Place(node, 'fast'): 50.0 for node in NODES}
        self.free[Place('node2', 'fast')] = 1.0
        self.assertNotIn('node2', self.fits(New(2, None)))
        self.more = {'dmclone_remote_attach_without_room': True}
        self.assertEqual('node2', self.fits(New(2, None))[-1])

    def test_remote_attach_of_a_group_without_room(self):
        self.volumes = [volume('a', 'node3', 60, in_group=True)]
        self.more = {'dmclone_remote_attach_without_room': True}
        self.assertEqual(['node3'], self.fits())

    def test_type_forbids_it(self):
        """As the driver, which compares only what the pool reports."""
        self.volumes = [volume('a', 'node1')]
        self.specs['type fast'].update({
            'dmclone_metadata_backend': 'lvm', 'unknown': 'x',
            'RESKEY:availability_zones': 'nova'})
        self.assertEqual(list(NODES), self.fits())
        self.specs['type fast']['capabilities:dmclone_metadata_backend'] = (
            '<or> device <or> zram')
        self.more = {'dmclone_remote_attach': True}
        self.assertEqual(['node1', 'node4'], self.fits())
        self.assertIn('fits its type', self.reason('node2'))

    def test_type_that_is_gone(self):
        self.volumes = [volume('a', 'node1', volume_type='gone')]
        self.assertEqual(list(NODES), self.fits())

    def test_group(self):
        self.volumes = [volume('a', 'node3', in_group=True)]
        self.assertEqual(['node3'], self.fits())
        self.assertIn('stay together on node3', self.reason('node1'))

    def test_other_drivers(self):
        self.volumes = [volume('a', 'somewhere', backend='ceph')]
        self.assertIsNone(self.demand())

    def test_not_yet_placed(self):
        self.volumes = [volume('a', 'node1', place=None)]
        self.assertIsNone(self.demand())

    def test_only_ours_count(self):
        self.volumes = [volume('a', 'node1'),
                        volume('b', 'elsewhere', 999, backend='ceph')]
        self.assertEqual(list(NODES), self.fits())

    def test_new_volume(self):
        self.free[Place('node2', 'fast')] = 1.0
        self.assertEqual(['node1', 'node3'], self.fits(New(2, 'type fast')))

    def test_new_volume_on_any_backend(self):
        """It needs one of the node's backends, the one with most room."""
        self.assertEqual(['node1'], self.fits(New(60, None)))
        self.assertEqual(['node1'], self.fits(New(60, None), New(40, None)))
        self.assertEqual([], self.fits(New(501, None)))
        self.assertEqual(['node1'], self.fits(New(500, None), New(50, None)))
        self.assertEqual([], self.fits(New(500, None), New(51, None)))

    def test_new_volume_perhaps_elsewhere(self):
        self.others = [Pool(Place('ceph', 'ceph'), {
            'vendor_name': 'Ceph', 'free_capacity_gb': 'unknown',
            'volume_backend_name': 'ceph'})]
        self.assertIsNone(self.demand(New(2, None)))
        self.assertIsNone(self.demand(New(2, 'type ceph')))
        self.assertEqual(list(NODES), self.fits(New(2, 'type fast')))

    def test_new_volume_of_an_impossible_type(self):
        self.specs['type fast']['unknown'] = 'x'
        self.assertIsNone(self.demand(New(2, 'type fast')))

    def test_text(self):
        self.volumes = [volume('a', 'node1')]
        self.assertEqual(
            'instance instance with volume a, a new volume of 2 GiB',
            str(self.demand(New(2, 'type fast'))))

    # Room that others will take

    def test_new_row(self):
        """A pool that has reported before does not know of a volume."""
        self.volumes = [volume('a', 'node1')]
        self.lately = [volume('b', 'node2', 41, created=NOW)]
        self.assertNotIn('node2', self.fits())
        self.assertIn('41.00 GiB are for volumes on their way',
                      self.reason('node2'))
        self.lately = [volume('b', 'node2', 40, created=NOW)]
        self.assertIn('node2', self.fits())

    def test_known_row(self):
        self.volumes = [volume('a', 'node1')]
        known = volume('b', 'node2', 41,
                       created=NOW - datetime.timedelta(minutes=1))
        self.lately = [known]
        self.assertIn('node2', self.fits())
        self.lately = [dataclasses.replace(known, creating=True)]
        self.assertNotIn('node2', self.fits())

    def test_own_rows_do_not_count(self):
        """The instance has its own room, for instance in a second try."""
        self.volumes = [volume('a', 'node1', 50, created=NOW)]
        self.lately = [volume('p', 'node2', 50, created=NOW, moves='a'),
                       self.volumes[0]]
        self.assertIn('node2', self.fits())

    def test_row_without_a_place(self):
        self.volumes = [volume('a', 'node1')]
        self.lately = [volume('b', 'node1', 99, place=None, created=NOW)]
        self.assertIn('node2', self.fits())

    def place(self, instance, node):
        demand_module.hold(self.demand(instance=instance), node, self.holds)

    def test_hold(self):
        """Instances that are placed at once do not get the same room."""
        self.volumes = [volume('a', 'node1', 30)]
        self.place('first', 'node2')
        self.volumes = [volume('b', 'node1', 30)]
        self.assertEqual(['node1', 'node3'], self.fits())
        self.assertIn('30.00 GiB are for volumes on their way',
                      self.reason('node2'))

    def test_own_hold_does_not_count(self):
        self.volumes = [volume('a', 'node1', 30)]
        self.place('instance', 'node2')
        self.assertIn('node2', self.fits())

    def test_hold_of_a_new_volume(self):
        demand_module.hold(self.demand(New(30, 'type fast'), instance='i'),
                           'node2', self.holds)
        self.volumes = [volume('b', 'node1', 30)]
        self.assertNotIn('node2', self.fits())

    def test_no_hold_at_home(self):
        self.volumes = [volume('a', 'node1', 30)]
        self.place('first', 'node1')
        self.volumes = [volume('b', 'node2', 50)]
        self.assertIn('node1', self.fits())

    def test_another_choice_replaces_a_hold(self):
        self.volumes = [volume('a', 'node1', 30)]
        self.place('first', 'node2')
        self.place('first', 'node3')
        self.volumes = [volume('b', 'node1', 30)]
        self.assertEqual(['node1', 'node2'], self.fits())

    def test_row_replaces_a_hold(self):
        """Once the move has begun, its placeholder counts."""
        self.volumes = [volume('a', 'node1', 30)]
        self.place('first', 'node2')
        self.volumes = [volume('b', 'node1', 15)]
        # Of a move before this one.
        self.lately = [volume('p', 'node3', 30, created=LONG_AGO, moves='a')]
        self.assertIn('node2', self.fits())
        self.volumes = [volume('b', 'node1', 30)]
        self.assertNotIn('node2', self.fits())
        self.lately = [volume('p', 'node2', 15, moves='a',
                              created=timeutils.utcnow())]
        self.assertIn('node2', self.fits())

    def test_hold_ends(self):
        self.volumes = [volume('a', 'node1', 30)]
        self.place('first', 'node2')
        self.volumes = [volume('b', 'node1', 30)]
        self.assertNotIn('node2', self.fits())
        later = timeutils.utcnow() + datetime.timedelta(minutes=3)
        self.patch('oslo_utils.timeutils.utcnow', return_value=later)
        self.assertIn('node2', self.fits())
