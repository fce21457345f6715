# SPDX-License-Identifier: Apache-2.0
"""Nova's scheduler with the filter and the weigher of this package."""

from lab import config
from lab import config_nova
from lab import control
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib import live

_MODULE = 'dmclone_driver.scheduler.nova.'
_SETTINGS = {
    'filter_scheduler': {
        # The option is given once per value.
        'available_filters': 'nova.scheduler.filters.all_filters\n'
                             'available_filters = %sVolumeRoomFilter'
                             % _MODULE,
        'enabled_filters': 'ComputeFilter,VolumeRoomFilter',
        'weight_classes': 'nova.scheduler.weights.all_weighers,'
                          '%sVolumePlaceWeigher' % _MODULE},
    'dmclone_scheduler': {'dmclone_cache_time': '0'}}


class PlacingTest(live.LiveTest, base.SetupTest):
    """Servers for which no one names a node."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.use_scheduler, {})
        # Before that: nova-compute fails to delete a server while the
        # scheduler starts (there is no exchange "scheduler_fanout" then).
        self.addCleanup(self.servers.delete_all)
        self.use_scheduler(_SETTINGS)

    def use_scheduler(self, more):
        """Restart Nova's scheduler with more settings."""
        config.write(control.NOVA, dict(config_nova.nova_control(), **more))
        self.lab.control.restart('nova-scheduler')

    def bootable_volume(self, node):
        with self.created_on(node):
            volume = self.user.create_volume()
        self.user.make_bootable(volume['id'], self.servers.boot_properties())
        return volume['id']

    def test_where_the_volume_is(self):
        for node in self.lab.nodes.values():
            server_id, _ = self.boot(None, self.bootable_volume(node))
            self.assertEqual(node.name, self.servers.node(server_id))

    def test_no_room_elsewhere(self):
        node, *others = self.lab.nodes.values()
        server_id, _ = self.boot(None, self.bootable_volume(node))
        with self.configured({'reserved_percentage': '100'}, *others):
            wait.until(lambda: self.full_nodes() == len(others),
                       'the other nodes to report that they are full', 120)
            self.servers.action(server_id, 'os-migrateLive', {
                'host': None, 'block_migration': 'auto'})
            self.servers.migration_ended(server_id, 'error')
        self.servers.settled(server_id, 'ACTIVE')
        self.assertEqual(node.name, self.servers.node(server_id))
        self.assertIn('0 of %d hosts can take instance %s' % (
            len(others), server_id), self.lab.control.log('nova-scheduler'))

    def full_nodes(self):
        """Return how many nodes report that all room is reserved."""
        pools = self.user.as_admin(
            'GET', '/scheduler-stats/get_pools?detail=true')['pools']
        return sum(pool['capabilities']['reserved_percentage'] == 100
                   for pool in pools)
