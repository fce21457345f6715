# SPDX-License-Identifier: Apache-2.0
"""Finding the backend of a connector's host, with a real database."""

from cinder import context as cinder_context
from cinder import objects
import ddt
from oslo_utils import fixture

from dmclone_driver import exception
from dmclone_driver.move import peers
from tests.unit import base

UUIDS = {'node1@fast': '00000000-0000-4000-8000-000000000001',
         'node2@fast': '00000000-0000-4000-8000-000000000002',
         'node2@slow': '00000000-0000-4000-8000-000000000003'}
OTHER = '00000000-0000-4000-8000-000000000004'
ADDRESSES = {'node1': {'192.0.2.1'}, 'node2': {'192.0.2.2', '2001:db8::2'}}


@ddt.ddt
class PeersTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.context = cinder_context.RequestContext('user', 'project')
        for host in UUIDS:
            self.service(host)
        self.service('node3@fast', binary='cinder-backup')
        self.patch('dmclone_driver.move.peers.addresses',
                   side_effect=lambda node: ADDRESSES.get(node, set()))
        self.peers = peers.Peers('node1@fast')

    def service(self, host, binary='cinder-volume'):
        objects.Service(self.context.elevated(), host=host, binary=binary,
                        topic=binary, availability_zone='zone ' + host,
                        uuid=UUIDS.get(host, OTHER)).create()

    def find(self, host=None, ip=None):
        return self.peers.find(self.context, {'host': host, 'ip': ip}, 'pool',
                               'volume')

    def test_by_name(self):
        self.assertEqual(
            peers.Peer(backend_host='node2@fast', host='node2@fast#pool',
                       service_uuid=UUIDS['node2@fast'],
                       availability_zone='zone node2@fast'),
            self.find('node2', '198.51.100.9'))

    def test_itself(self):
        self.assertEqual('node1', self.find('node1').node)

    @ddt.data('192.0.2.2', '2001:db8::2')
    def test_by_address(self, ip):
        """Nova may have another name for the host."""
        self.assertEqual('node2@fast',
                         self.find('node2.example.org', ip).backend_host)

    def test_name_before_address(self):
        self.assertEqual('node1@fast',
                         self.find('node1', '192.0.2.2').backend_host)

    @ddt.data(('node9', '192.0.2.9'), ('node3', None), (None, None),
              ('node', None), ('node2@fast', None))
    @ddt.unpack
    def test_no_peer(self, host, ip):
        error = self.assertRaises(exception.NoPeer, self.find, host, ip)
        for part in ('fast', str(host), str(ip), 'there is no such service',
                     'dmclone_remote_attach'):
            self.assertIn(part, error.msg)

    def test_heartbeat_is_old(self):
        """The peer is found, as after a restart; a call checks it later."""
        clock = self.useFixture(fixture.TimeFixture())
        clock.advance_time_seconds(1000)
        self.assertEqual('node2@fast', self.find('node2').backend_host)


class AddressesTestCase(base.PlainTestCase):

    def test_numbers(self):
        self.assertEqual({'192.0.2.7'}, peers.addresses('192.0.2.7'))

    def test_unknown(self):
        self.patch('socket.getaddrinfo', side_effect=OSError)
        self.assertEqual(set(), peers.addresses('node.invalid'))
