# SPDX-License-Identifier: Apache-2.0
"""The answers, clocks and addresses of peers."""

import types
from unittest import mock

import ddt
from oslo_config import cfg
from oslo_config import fixture as config_fixture

from dmclone_driver.checks import peers
from dmclone_driver.checks.result import Outcome
from dmclone_driver import exception
from dmclone_driver.move.peers import Peer
from tests.unit import base

PEER = Peer('node2@dmclone', 'node2@dmclone', 'uuid', 'nova')
ANSWER = {'version': '0.1.0', 'time': 1000.5, 'target_helper': 'tgtadm',
          'target_ip_address': '192.0.2.12', 'target_port': 3260}


@ddt.ddt
class PeersTestCase(base.PlainTestCase):

    def check(self, error=None, times=(1000, 1001), refuses=None, **answer):
        """Return the results for a peer's answer."""
        self.connect = mock.Mock(side_effect=refuses)
        clock = iter(times)
        return list(peers.check(
            None, [PEER], mock.Mock(**{
                'identify.side_effect': error,
                'identify.return_value': dict(ANSWER, **answer)}),
            types.SimpleNamespace(connect=self.connect,
                                  now=lambda: next(clock)), '0.1.0'))

    def outcomes(self, *args, **kwargs):
        found = self.check(*args, **kwargs)
        self.assertEqual(['peer', 'clock', 'network'],
                         [each.check for each in found])
        self.assertEqual({'node2@dmclone'}, {each.subject for each in found})
        return [each.outcome for each in found]

    def test_right(self):
        self.assertEqual(3 * [Outcome.OK], self.outcomes())
        self.connect.assert_called_once_with('192.0.2.12', 3260)

    def test_other_version(self):
        """It works, so that an update can be done node by node."""
        found = self.check(version='0.2.0')[0]
        self.assertEqual(Outcome.OK, found.outcome)
        self.assertIn('version 0.2.0; this node has 0.1.0', found.text)

    def test_older_version(self):
        self.assertEqual(3 * [Outcome.UNKNOWN], self.outcomes(
            exception.PeerTooOld(host='node2@dmclone', call='identify')))

    @ddt.data(exception.PeerUnreachable(host='node2@dmclone', call='identify',
                                        seconds=10),
              exception.PeerFailed(host='node2@dmclone', reason='a bug'))
    def test_no_answer(self, error):
        self.assertEqual([Outcome.FAILED, Outcome.UNKNOWN, Outcome.UNKNOWN],
                         self.outcomes(error))

    # With Cinder's defaults, 60 and 10 seconds, half of the difference is 25.
    @ddt.data((1025, Outcome.OK), (976, Outcome.OK), (1027, Outcome.FAILED),
              (974, Outcome.FAILED))
    @ddt.unpack
    def test_clock(self, time, outcome):
        self.assertEqual([Outcome.OK, outcome, Outcome.OK],
                         self.outcomes(time=time))

    def test_clock_with_other_limits(self):
        self.useFixture(config_fixture.Config(cfg.CONF)).config(
            service_down_time=30, report_interval=20)
        self.assertEqual(Outcome.FAILED, self.outcomes(time=1010)[1])

    def test_slow_answer(self):
        """What cannot be measured is no fault."""
        self.assertEqual(Outcome.OK, self.outcomes(
            times=(1000, 1010), time=1034)[1])

    @ddt.data(('tgtadm', Outcome.FAILED), ('lioadm', Outcome.OK))
    @ddt.unpack
    def test_nobody_listens(self, helper, outcome):
        self.assertEqual(outcome, self.outcomes(
            refuses=ConnectionRefusedError(), target_helper=helper)[2])

    @ddt.data('tgtadm', 'lioadm')
    def test_unreachable(self, helper):
        self.assertEqual(Outcome.FAILED, self.outcomes(
            refuses=TimeoutError('timed out'), target_helper=helper)[2])
