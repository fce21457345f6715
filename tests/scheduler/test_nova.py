# SPDX-License-Identifier: Apache-2.0
"""The filter and the weigher in Nova's own services, loaded by configuration.

API, conductor, scheduler, Placement and databases are real and in this
process; hypervisors are Nova's fake ones. Cinder's answers are simulated, in
the form that tests/unit/scheduler/test_queries.py gets from the real one.
"""

import os
import sys
import types
from urllib import parse
import warnings

from nova.tests import fixtures as nova_fixtures
from nova.tests.functional import integrated_helpers
from oslo_config import cfg
from oslo_utils import timeutils
from sqlalchemy import exc

from dmclone_driver.scheduler import nova
from dmclone_driver.scheduler import opts

HOSTS = ('node1', 'node2', 'node3')
#: A volume that Nova's simulation of Cinder knows, with an image.
VOLUME = nova_fixtures.CinderFixture.IMAGE_BACKED_VOL
MODULE = 'dmclone_driver.scheduler.nova.'


class Cinder:
    """Answers the queries about pools, types and volumes."""

    def __init__(self):
        self.free = dict.fromkeys(HOSTS, 50)
        self.homes = {}
        self.size = 10
        self.lately = []
        self.asked = []
        self.fault = None

    def client(self, context, **kwargs):
        """As nova.volume.cinder.cinderclient."""
        return types.SimpleNamespace(client=self)

    def get(self, path, timeout, connect_retries):
        """As keystoneauth's adapter."""
        self.asked.append(path)
        if self.fault:
            raise self.fault
        name, _, query = path.partition('?')
        return None, getattr(self, name.strip('/').replace('/', '_').replace(
            '-', '_'))(parse.parse_qs(query))

    def scheduler_stats_get_pools(self, query):
        return {'pools': [{
            'name': '%s@dmclone#dmclone' % node, 'capabilities': {
                'vendor_name': 'dmclone_driver', 'total_capacity_gb': 100.0,
                'free_capacity_gb': free, 'reserved_percentage': 0,
                'timestamp': timeutils.utcnow().isoformat()}}
            for node, free in self.free.items()]}

    def types(self, query):
        return {'volume_types': [
            {'id': 'type', 'name': 'dmclone', 'extra_specs': {}}]}

    def volumes_detail(self, query):
        if 'created_at' in query:
            return {'volumes': self.lately}
        return {'volumes': [
            self.volume(name, node) for name, node in self.homes.items()
            if repr(name) in query['id'][0]]}

    def volume(self, name, node, created='2026-01-01T00:00:00.000000',
               **more):
        return dict({
            'id': name, 'size': self.size, 'status': 'reserved',
            'os-vol-host-attr:host': '%s@dmclone#dmclone' % node,
            'created_at': created, 'volume_type_id': 'type',
            'group_id': None, 'migration_status': None}, **more)


class SchedulerTestCase(integrated_helpers.ProviderUsageBaseTestCase):
    """Three nodes, of which node3 has the least memory left."""

    compute_driver = 'fake.MediumFakeDriver'

    def setUp(self):
        self.flags(
            available_filters=['nova.scheduler.filters.all_filters',
                               MODULE + 'VolumeRoomFilter'],
            enabled_filters=['ComputeFilter', 'VolumeRoomFilter'],
            weight_classes=['nova.scheduler.weights.all_weighers',
                            MODULE + 'VolumePlaceWeigher'],
            group='filter_scheduler')
        # Nova's tests expect it in a checkout of Nova.
        self.flags(group='wsgi', api_paste_config=os.path.join(
            sys.prefix, 'etc/nova/api-paste.ini'))
        # With several workers each has its own, too.
        nova.volumes.cache_clear()
        self.addCleanup(nova.volumes.cache_clear)
        super().setUp()
        self.flags(dmclone_cache_time=0, group=opts.GROUP)
        self.cinder = Cinder()
        self.stub_out('nova.volume.cinder.cinderclient', self.cinder.client)
        # Nova's tests take what newer versions of SQLAlchemy deprecate for an
        # error.
        warnings.filterwarnings('ignore', category=exc.SADeprecationWarning)
        self.services = {host: self.start_service('compute', host=host)
                         for host in HOSTS}
        self.small = self.api.get_flavors()[0]['id']

    def server(self, *devices, host=None, count=1, state='ACTIVE'):
        """Create a server with block devices; return it."""
        body = self._build_server(flavor_id=self.small, networks='none')
        if devices:
            del body['imageRef']
            body['block_device_mapping_v2'] = list(devices)
        if host:
            body['host'] = host
        if count > 1:
            body['min_count'] = body['max_count'] = count
        return self._wait_for_state_change(
            self.api.post_server({'server': body}), state)

    def with_volume(self, node, **kwargs):
        """Create a server with a root volume that is on a node."""
        self.cinder.homes[VOLUME] = node
        return self.server({
            'boot_index': 0, 'uuid': VOLUME, 'source_type': 'volume',
            'destination_type': 'volume'}, **kwargs)

    @staticmethod
    def new_device(size):
        return {'boot_index': 0, 'source_type': 'image',
                'uuid': nova_fixtures.GlanceFixture.image1['id'],
                'destination_type': 'volume', 'volume_size': size}

    @staticmethod
    def host(server):
        return server['OS-EXT-SRV-ATTR:host']

    def log(self):
        return self.stdlog.logger.output

    def test_loaded_by_configuration(self):
        manager = self.scheduler_service.manager.host_manager
        self.assertIn(nova.VolumeRoomFilter,
                      [type(each) for each in manager.enabled_filters])
        self.assertIn(nova.VolumePlaceWeigher,
                      [type(each) for each in manager.weighers])
        self.assertEqual(30, cfg.CONF[opts.GROUP].dmclone_weight_multiplier)

    # Creation

    def test_without_volumes(self):
        """Cinder is not asked."""
        self.cinder.fault = OSError('must not be asked')
        self.server()
        self.assertEqual([], self.cinder.asked)

    def test_where_the_volume_is(self):
        for node in HOSTS:
            server = self.with_volume(node)
            self.assertEqual(node, self.host(server))
            self._delete_server(server)

    def test_room_elsewhere(self):
        """If its home has no memory left, a node with room comes next."""
        self.disable('node1')
        self.cinder.free['node2'] = 9
        self.assertEqual('node3', self.host(self.with_volume('node1')))
        self.assertIn('1 of 2 hosts can take instance', self.log())
        self.assertIn('with volume ' + VOLUME, self.log())

    def disable(self, host):
        self.update(host, status='disabled')

    def update(self, host, **fields):
        """Update the service of a hypervisor."""
        service, = (each for each in self.api.get_services(
            binary='nova-compute') if each['host'] == host)
        self.api.put_service(service['id'], fields)

    def test_no_room(self):
        self.disable('node1')
        self.cinder.free.update(node2=9, node3=9)
        self.with_volume('node1', state='ERROR')
        self.assertIn('0 of 2 hosts can take instance', self.log())

    def test_other_drivers(self):
        """Their volumes are none of this filter's business."""
        self.cinder.free = {}
        self.with_volume('node1')

    def test_queries(self):
        """Their number does not depend on the number of hosts."""
        self.with_volume('node1')
        self.assertEqual(
            ['/scheduler-stats/get_pools', '/types', '/volumes/detail',
             '/volumes/detail'],
            sorted(path.partition('?')[0] for path in self.cinder.asked))

    def test_cinder_is_away(self):
        self.cinder.fault = OSError('connection refused')
        server = self.with_volume('node1')
        self.assertIn(
            'Instance %s is placed without regard to its volumes, since they '
            'could not be looked up: connection refused' % server['id'],
            self.log())

    def test_cinder_answers_nonsense(self):
        self.cinder.volumes_detail = lambda query: {'volumes': [{}]}
        self.with_volume('node1')
        self.assertIn('without regard to its volumes', self.log())

    def test_new_volume(self):
        """It has no id yet; what Nova will ask Cinder for is known."""
        self.cinder.free.update(node1=19, node3=19)
        self.assertEqual('node2', self.host(self.server(
            self.new_device(20))))

    def test_many_at_once(self):
        """Those that were placed before have room held for them."""
        for _ in range(2):
            self.server(self.new_device(20), count=3)
        for host in HOSTS:
            self.assertEqual(2, sum(
                self.host(server) == host
                for server in self.api.get_servers()), host)

    def test_holds_of_an_earlier_request(self):
        self.cinder.free.update(node1=0, node2=30, node3=0)
        self.assertEqual('node2', self.host(self.server(
            self.new_device(20))))
        self.server(self.new_device(20), state='ERROR')
        self.assertIn('20.00 GiB are for volumes on their way', self.log())

    def test_moves_under_way(self):
        self.disable('node1')
        self.cinder.lately = [self.cinder.volume(
            'placeholder', 'node2', timeutils.utcnow().isoformat(), size=45,
            migration_status='dmclone:another')]
        self.assertEqual('node3', self.host(self.with_volume('node1')))

    def test_forced_host(self):
        """An administrator's host is tried, too."""
        self.cinder.free['node2'] = 9
        self.with_volume('node1', host='node2', state='ERROR')
        self.assertIn('0 of 1 hosts can take instance', self.log())

    # Moves: the instance is in a cell, and no longer a request

    def test_live_migration(self):
        server = self.with_volume('node1')
        self.cinder.free['node3'] = 9
        self._live_migrate(server)
        self.assertEqual('node2', self.host(self._show_server(server)))

    def test_live_migration_without_room(self):
        server = self.with_volume('node1')
        self.cinder.free.update(node2=9, node3=9)
        self.api.post_server_action(server['id'], {'os-migrateLive': {
            'host': None, 'block_migration': 'auto'}})
        self._wait_for_migration_status(server, ['error'])
        self.assertEqual('node1', self.host(self._show_server(server)))

    def test_cold_migration(self):
        server = self.with_volume('node1')
        self.cinder.free['node2'] = 9
        self._migrate_server(server)
        self.assertEqual('node3', self.host(self._show_server(server)))

    def test_evacuation(self):
        server = self.with_volume('node1')
        self.cinder.free['node2'] = 9
        self.services['node1'].stop()
        self.update('node1', forced_down=True)
        self._evacuate_server(server, expected_state='SHUTOFF')
        self.assertEqual('node3', self.host(self._show_server(server)))

    def test_rebuild(self):
        """It stays where it is, whatever room there is."""
        server = self.server()
        self.cinder.free = dict.fromkeys(HOSTS, 0)
        self._rebuild_server(server,
                             nova_fixtures.GlanceFixture.image2['id'])

    # Options

    def test_multiplier(self):
        weigher = nova.VolumePlaceWeigher()
        host = types.SimpleNamespace(aggregates=[])
        self.flags(dmclone_weight_multiplier=7.5, group=opts.GROUP)
        self.assertEqual(7.5, weigher.weight_multiplier(host))
        host.aggregates = [types.SimpleNamespace(
            metadata={'dmclone_weight_multiplier': '2'})]
        self.assertEqual(2, weigher.weight_multiplier(host))

    def test_old_demands_are_forgotten(self):
        """What the filter has found is kept for its request alone."""
        server = self.with_volume('node1')
        self.assertIn(server['id'], nova.volumes()._found)
        self.stub_out(MODULE + '_ONE_REQUEST', 0)
        self.server()
        self.assertNotIn(server['id'], nova.volumes()._found)
