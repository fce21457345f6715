# SPDX-License-Identifier: Apache-2.0
"""Cinder's own scheduler chooses nodes by what the driver reports."""

import types

from cinder import objects
from cinder.scheduler import filter_scheduler
from oslo_config import cfg

from tests.unit import base
from tests.unit.fakes import cloud

INSTANCE = '00000000-0000-4000-8000-00000000000a'


class SchedulingTestCase(base.CloudTestCase):
    """Three nodes: node3 has the smallest group, and the largest free share.

    The volume of the test is on node1, another one is on node2.
    """

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3', size=20 * cloud.GIB)
        self.cloud.settle()
        self.cloud.report_versions()
        self.a.create(49)
        self.b.create(60)

    def choose(self, weighers=('CapacityWeigher',), **hints):
        """Return the node that Cinder's scheduler chooses, None if none."""
        self.flags(
            scheduler_default_filters=[
                'AvailabilityZoneFilter', 'CapacityFilter',
                'CapabilitiesFilter', 'InstanceLocalityFilter',
                'SameBackendFilter'],
            scheduler_default_weighers=list(weighers))
        scheduler = filter_scheduler.FilterScheduler()
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                stats = node.driver.get_volume_stats(refresh=True)
            # VolumeManager adds the allocated capacity.
            scheduler.host_manager.update_service_capabilities(
                'volume', node.host, dict(stats, allocated_capacity_gb=0),
                None, None)
        found = scheduler._schedule(
            self.context, objects.RequestSpec.from_primitives({
                'volume_properties': {'size': 1, 'project_id': 'project'},
                'volume_type': {'extra_specs': {}}}),
            {'scheduler_hints': hints})
        return found and found.obj.host.partition('@')[0]

    def use_instance_on(self, node):
        """Let Nova tell Cinder where the instance is."""
        self.patch('cinder.compute.nova.API.get_server',
                   return_value=types.SimpleNamespace(
                       **{'OS-EXT-SRV-ATTR:host': node.name}))

    def test_room(self):
        """Without further settings the node with the most room."""
        self.assertEqual('node1', self.choose())

    def test_goodness(self):
        """The largest share of free room, less what is reserved."""
        self.assertEqual('node3', self.choose(['GoodnessWeigher']))
        self.c.driver.configuration.reserved_percentage = 60
        self.assertEqual('node1', self.choose(['GoodnessWeigher']))

    def test_goodness_of_a_full_node(self):
        """Cinder takes a value outside of 0 to 100 for an error."""
        self.c.driver.configuration.reserved_percentage = 100
        self.assertEqual('node1', self.choose(['GoodnessWeigher']))

    def test_goodness_function_of_an_operator(self):
        cfg.CONF.set_override('goodness_function', '7', group=cloud.BACKEND)
        self.assertEqual('7', self.a.driver.get_goodness_function())

    def test_where_the_instance_is(self):
        for node in self.cloud.nodes.values():
            self.use_instance_on(node)
            self.assertEqual(node.name,
                             self.choose(local_to_instance=INSTANCE))

    def test_no_room_where_the_instance_is(self):
        self.c.driver.configuration.reserved_percentage = 100
        self.use_instance_on(self.c)
        self.assertIsNone(self.choose(local_to_instance=INSTANCE))

    def test_beside_another_volume(self):
        """Wherever that has moved to."""
        self.assertEqual('node1', self.choose(same_host=self.volume.id))
        self.cloud.attach(self.volume, self.c)
        self.cloud.settle()
        moved = self.row()
        self.assertEqual(self.c.pool, moved.host)
        self.assertEqual('node3', self.choose(same_host=self.volume.id))
