# SPDX-License-Identifier: Apache-2.0
"""Requests to peers, which are repeated until they succeed."""

from dmclone_driver.move import peer_requests
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from tests.unit import base


class PeerRequestsTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.b)
        self.placeholder, = self.cloud.placeholders()
        self.enter = self.cloud.on(self.b)
        self.enter.__enter__()
        self.addCleanup(self.enter.__exit__, None, None, None)

    def assertNothing(self, *nodes):
        for node in nodes:
            self.assertEqual({}, node.kernel.of_volumes())
            self.assertEqual({}, node.kernel.disks)
            self.assertEqual({}, node.target.exports)
            self.assertEqual([], node.lvm.names())

    def release(self):
        self.b.requests.release(self.context, Placeholder(self.placeholder))

    def test_release(self):
        self.release()
        self.cloud.settle()
        self.assertNothing(self.a)
        self.assertEqual({}, self.b.requests.pending)

    def test_nobody_there(self):
        self.a.stop()
        self.release()
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.assertEqual([self.placeholder.id], list(self.b.requests.pending))
        self.b.requests.ask_again(self.context)
        self.a.down = False
        self.b.requests.ask_again(self.context)
        self.cloud.settle()
        self.assertEqual({}, self.b.requests.pending)
        self.assertNothing(self.a)

    def test_one_that_is_gone_does_not_hold_up_another(self):
        """A release does not wait for the node of another volume."""
        self.b.requests.pending['other'] = self.wanted('node1@dmclone')
        self.cloud.steps.start()
        self.release()
        asked = [step for step in self.cloud.steps.log if 'ask' in step]
        self.assertEqual(1, len(asked))

    def wanted(self, host, volume_id='another'):
        return peer_requests.Wanted(host, peer_requests.Request.RELEASE,
                                    volume_id)

    def ask_again(self, *args):
        """Repeat the requests; return the called nodes."""
        self.patch('dmclone_driver.move.lookups.placeholder')
        self.cloud.steps.start()
        self.b.requests.ask_again(self.context, *args)
        return [step.split()[2] for step in self.cloud.steps.log
                if 'ask' in step]

    def test_one_that_is_silent_is_asked_once(self):
        self.a.stop()
        third = self.cloud.add('node3')
        self.b.requests.pending.update({
            'one': self.wanted(self.a.host), 'two': self.wanted(self.a.host),
            'three': self.wanted(third.host)})
        self.assertEqual([self.a.host, third.host], self.ask_again())
        self.assertEqual(['one', 'two'], list(self.b.requests.pending))

    def test_only_what_concerns_a_volume(self):
        self.b.requests.pending['one'] = self.wanted(self.a.host)
        self.assertEqual([], self.ask_again(self.volume.id))
        self.assertEqual([self.a.host], self.ask_again('another'))

    def test_node_was_lost_meanwhile(self):
        """The row that was read before is older."""
        records.lose(self.context, self.placeholder.id)
        self.cloud.steps.start()
        self.release()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual({}, self.b.requests.pending)
        self.assertEqual([], [step for step in self.cloud.steps.log
                              if 'ask' in step])

    def test_placeholder_is_gone(self):
        records.destroy(self.context, self.placeholder.id)
        self.release()
        self.assertEqual({}, self.b.requests.pending)
