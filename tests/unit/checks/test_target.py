# SPDX-License-Identifier: Apache-2.0
"""The owner of the target's port, with lines of /proc/net/tcp."""

import socket
import types

import ddt
import fixtures

from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks import target
from tests.unit import base
from tests.unit.checks import node

ANY = node.TCP.replace('0: 0B0200C0', '0: 00000000')
LOOPBACK = node.TCP.replace('0: 0B0200C0', '0: 0100007F')
# The wildcard of IPv6, port 3260.
ANY6 = ('  sl  local_address                         remote_address        '
        '                st tx_queue rx_queue tr tm->when retrnsmt   uid  '
        'timeout inode\n'
        '   0: 00000000000000000000000000000000:0CBC '
        '00000000000000000000000000000000:0000 0A 00000000:00000000 '
        '00:00000000 00000000     0        0 4711 1 00000000e44a7e9e 100 0 0 '
        '10 0\n')
LIO = ('/sys/kernel/config/target/iscsi/iqn.2010-10.org.openstack:dmclone-1/'
       'tpgt_1/np/192.0.2.11:3260/iser')


@ddt.ddt
class TargetTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.node = node.Node(self.useFixture(fixtures.TempDir()).path)

    def check(self, helper='tgtadm', address='192.0.2.11'):
        return list(target.check(types.SimpleNamespace(
            config_group='here', target_helper=helper, target_port=3260,
            target_ip_address=address), self.node))

    def port(self, *args):
        return self.check(*args)[1]

    def assertPort(self, outcome, words, *args):
        found = self.port(*args)
        self.assertEqual(outcome, found.outcome)
        self.assertIn(words, found.reason)

    def test_addresses(self):
        self.assertEqual(
            [target.Listener('192.0.2.11', 3260, 4711)],
            target.listeners(node.TCP, socket.AF_INET))
        self.assertEqual([target.Listener('::', 3260, 4711)],
                         target.listeners(ANY6, socket.AF_INET6))

    @ddt.data(node.TCP, ANY)
    def test_tgtd(self, table):
        self.node.write('/proc/net/tcp', table)
        self.assertPort(Outcome.OK, 'tgtd listens at 192.0.2.11 port 3260')

    def test_tgtd_on_all_addresses_of_ipv6(self):
        self.node.remove('/proc/net/tcp')
        self.node.write('/proc/net/tcp6', ANY6)
        self.assertPort(Outcome.OK, 'tgtd listens')

    def test_tgtd_on_a_mapped_address(self):
        self.node.remove('/proc/net/tcp')
        self.node.write('/proc/net/tcp6', ANY6.replace(
            '0: ' + 32 * '0', '0: 0000000000000000FFFF00000B0200C0'))
        self.assertPort(Outcome.OK, 'tgtd listens')

    @ddt.data('', LOOPBACK, node.TCP.replace('0CBC', '0CBD'))
    def test_nobody_listens(self, table):
        self.node.write('/proc/net/tcp', table)
        self.assertPort(Outcome.FAILED, 'start tgtd')
        self.assertPort(Outcome.OK, 'is free', 'lioadm')

    def test_another_program(self):
        self.node.end(300)
        self.node.process(300, 'nginx', 4711)
        self.assertPort(Outcome.FAILED, 'process 300 (nginx) listens')
        self.assertPort(Outcome.FAILED, 'where LIO has to', 'lioadm')

    def test_tgtd_with_lio(self):
        self.assertPort(Outcome.FAILED, 'process 300 (tgtd) listens',
                        'lioadm')

    def test_lio(self):
        self.node.end(300)
        self.node.write(LIO, '0\n')
        self.assertPort(Outcome.OK, 'LIO listens', 'lioadm')
        self.assertPort(Outcome.FAILED, 'LIO listens', 'tgtadm')

    @ddt.data('tgtadm', 'lioadm')
    def test_owner_is_not_visible(self, helper):
        self.node.end(300)
        self.assertPort(Outcome.UNKNOWN, 'as root', helper)

    @ddt.data('127.0.0.1', '0.0.0.0', '192.0.2.99', 'node1')
    def test_wrong_address(self, address):
        found = self.check('tgtadm', address)
        self.assertEqual([Outcome.FAILED, Outcome.NOT_APPLICABLE],
                         [each.outcome for each in found])
        self.assertIn(address, found[0].text)
