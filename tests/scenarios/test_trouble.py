# SPDX-License-Identifier: Apache-2.0
"""Refused requests and outages that users and operators can meet."""

import sys
import threading

from lab.common import leftovers
from lab.common import user as user_module
from lab import paths
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib import full_nodes
from tests.scenarios.lib.marks import named
from tests.scenarios.lib.marks import slow

# Reads at COUNT places between 500 and 1000 MiB, then one at 20 MiB.
_READS = (
    'setsid python3 {checkout}/tests/scenarios/lib/{program} {disks} {count} '
    '500 1000 20 > {log} 2>&1 < /dev/null &')


class RefusalTest(base.E2ETest):
    """An attach that cannot succeed is refused with a reason."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.node, self.before = self.filled_volume()
        self.peer = self.other(self.node)

    def assert_refused(self, *words, connector=None, instance=None):
        """Check that an attach is refused, with words and a user message."""
        attachment = self.user.reserve(self.volume_id, instance)
        said = len(self.user.messages(self.volume_id))
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.connect(attachment,
                              connector or self.user.connector(self.peer))
        for word in words:
            self.assertIn(word, refused.exception.text)
        self.assertGreater(len(self.user.messages(self.volume_id)), said)
        self.user.detach(attachment)
        self.assertEqual(self.node, self.home(self.volume_id))
        self.assertEqual([], self.placeholders(self.volume_id))
        self.assertLessEqual({*leftovers.volumes(self.peer)},
                             {full_nodes.FILLER})
        with self.attached(self.volume_id, self.node) as path:
            self.assertEqual(self.before, self.checksum(self.node, path))

    @named
    def test_refusals(self):
        """All refusals with one volume, which must not be changed."""
        for case in (self._peer_is_full,
                     self._peer_service_is_down,
                     self._no_peer,
                     self._host_is_found_by_its_address,
                     self._creation_on_the_peer_fails_half_way):
            with self.subTest(case.__name__):
                case()

    def _peer_is_full(self):
        with full_nodes.full(self.lab, self.peer):
            self.assert_refused(full_nodes.needed(self.lab, 1),
                                self.peer.name)

    def _peer_service_is_down(self):
        self.peer.stop('cinder-volume')
        try:
            self.assert_refused('did not answer', self.peer.name)
        finally:
            self.peer.start_service('cinder-volume')
            self.peer.wait_ready()

    def _no_peer(self):
        self.assert_refused(
            'No backend dmclone', 'no such service',
            connector=self.user.connector(self.peer, host='stranger',
                                          ip='10.77.0.99'))

    def _host_is_found_by_its_address(self):
        attachment = self.user.reserve(self.volume_id)
        found = self.user.connect(attachment, self.user.connector(
            self.node, host='another-name'))
        self.assertEqual(self.before, self.checksum(
            self.node, user_module.path(found)))
        self.user.detach(attachment)
        self.user.settled(self.volume_id, 'available')

    def _creation_on_the_peer_fails_half_way(self):
        # The login fails after both logical volumes have been created.
        self.peer.run('mv /usr/sbin/iscsiadm /usr/sbin/iscsiadm.away')
        try:
            self.assert_refused(self.peer.name, 'could not be moved')
        finally:
            self.peer.run('mv /usr/sbin/iscsiadm.away /usr/sbin/iscsiadm')


class WhilePreparedTest(base.E2ETest):
    """Requests and faults during the preparation of a move."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.node, self.before = self.filled_volume()
        self.peer = self.other(self.node)

    def _connect_later(self, attachment):
        """Send the connector in the background; returns (thread, answers)."""
        answers = []

        def connect():
            user = user_module.User(self.lab)
            try:
                answers.append(user.connect(attachment,
                                            user.connector(self.peer)))
            except user_module.ApiError as error:
                answers.append(error)

        def enter_and_connect():
            self.lab.enter()
            connect()
        thread = threading.Thread(target=enter_and_connect)
        thread.start()
        wait.until(lambda: self.placeholders(self.volume_id),
                   'the move to begin', 30, interval=0.05)
        return thread, answers

    def test_second_attach_request(self):
        first = self.user.reserve(self.volume_id)
        thread, answers = self._connect_later(first)
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.attach(self.volume_id, self.node)
        self.assertIn(refused.exception.status, (400, 409))
        thread.join()
        self.assertEqual(self.before, self.checksum(
            self.peer, user_module.path(answers[0])))

    def test_second_attach_request_of_the_same_instance(self):
        instance = user_module.uuid4()
        first = self.user.reserve(self.volume_id, instance)
        second = self.user.reserve(self.volume_id, instance)
        thread, answers = self._connect_later(first)
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.connect(second, self.user.connector(self.node))
        self.assertIn('has just moved', refused.exception.text)
        thread.join()
        self.assertEqual(self.before, self.checksum(
            self.peer, user_module.path(answers[0])))

    def test_attachment_is_deleted(self):
        attachment = self.user.reserve(self.volume_id)
        thread, answers = self._connect_later(attachment)
        self.user.detach(attachment)
        thread.join()
        self.assertIsInstance(answers[0], user_module.ApiError)
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the move to be aborted', 30)
        self.assertEqual(self.node, self.home(self.volume_id))
        self.assertEqual([], leftovers.volumes(self.peer))
        self.user.settled(self.volume_id, 'available')
        with self.attached(self.volume_id, self.node) as path:
            self.assertEqual(self.before, self.checksum(self.node, path))

    @slow
    def test_home_dies_and_the_attachment_is_deleted(self):
        attachment = self.user.reserve(self.volume_id)
        thread, answers = self._connect_later(attachment)
        self.node.kill('cinder-volume')
        # The record has no connector yet: no RPC is sent.
        self.user.detach(attachment)
        self.node.start_service('cinder-volume')
        self.node.wait_ready()
        wait.until(lambda: not self.placeholders(self.volume_id),
                   'the orphan to be found', 60)
        self.assertEqual(self.node, self.home(self.volume_id))
        self.assertEqual([], leftovers.volumes(self.peer))
        with self.attached(self.volume_id, self.node) as path:
            self.assertEqual(self.before, self.checksum(self.node, path))
        thread.join()


class WhileHydratingTest(base.HydratingTest):
    """Requests and faults during the hydration."""

    def test_volume_is_deleted(self):
        with self.slow_network(self.peer):
            with self.attached(self.volume_id, self.peer):
                self.assertTrue(self.placeholders(self.volume_id))
            self.user.delete_volume(self.volume_id)
        self.nothing_left()

    def test_detach_and_attach_again(self):
        with self.slow_network(self.peer):
            with self.attached(self.volume_id, self.peer) as path:
                expected = self.checksum_with(self.peer, path, 20, 'one')
                self.write(self.peer, path, 20, 'one')
            with self.attached(self.volume_id, self.peer) as path:
                self.assertTrue(self.placeholders(self.volume_id))
                self.assertEqual(expected, self.checksum(self.peer, path))
        self.hydrated(self.volume_id)
        with self.attached(self.volume_id, self.peer) as path:
            self.assertEqual(expected, self.checksum(self.peer, path))

    @slow
    def test_both_nodes_lose_power(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            for node in (self.peer, self.node):
                node.cut_power()
        for node in (self.peer, self.node):
            node.start()
        for node in (self.peer, self.node):
            node.wait_ready()
        self.hydrated(self.volume_id, timeout=240)
        self.assertEqual(expected, self.checksum(self.peer, path))

    @slow
    def test_volume_is_deleted_while_its_source_is_down(self):
        with (self.slow_network(self.peer),
              self.attached(self.volume_id, self.peer)):
            self.assertTrue(self.placeholders(self.volume_id))
            self.node.cut_power()
        self.user.delete_volume(self.volume_id)
        self.assertEqual([], leftovers.volumes(self.peer))
        self.node.start()
        self.node.wait_ready()
        self.nothing_left()

    @slow
    def test_source_is_unreachable_for_a_minute(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            self.node.cut_network()
            try:
                self.peer.run('sleep 60', timeout=90)
                # Hydrated regions can be read meanwhile.
                self.assertIn('one', self.peer.run(
                    'dd if=%s bs=1M skip=20 count=1 iflag=direct '
                    'status=none | head -c 3' % path))
            finally:
                self.node.restore_network()
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.peer, path))

    @slow
    def test_both_services_are_restarted(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            for node in (self.peer, self.node):
                node.kill('cinder-volume')
            for node in (self.peer, self.node):
                node.start_service('cinder-volume')
            for node in (self.peer, self.node):
                node.wait_ready()
            self.assertEqual(expected, self.checksum(self.peer, path))
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.peer, path))


class SourceIsAwayTest(base.HydratingTest):
    """While a source is away only the requests that need it wait."""

    def assert_session(self, state):
        wait.until(lambda: state in self.peer.run(
            'cat /sys/class/iscsi_session/*/state'),
            'the session to be ' + state, 40, interval=0.2)

    def read_many(self, program, disks, count):
        """Read regions that are not hydrated, then a hydrated one.

        :returns: function that returns the output so far
        """
        log = '/run/%s.log' % program
        self.peer.run(_READS.format(
            checkout=paths.CHECKOUT, program=program, disks=disks,
            count=count, log=log))
        return lambda: self.peer.run('cat ' + log)

    @slow
    def test_many_reads_wait(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            self.node.cut_network()
            try:
                self.assert_session('FAILED')
                # More than the default queue of an imported disk holds,
                # and then more than its deepened queue holds.
                guest = self.read_many('qemu_reads.py', path + ' /dev/ubda',
                                       600)
                wait.until(lambda: 'here' in guest(), 'QEMU, its other disk '
                           'and a read of a hydrated region', 40, log=guest)
                reads = self.read_many('many_reads.py', path, 3000)
                wait.until(lambda: 'one' in reads(),
                           'a read of a hydrated region', 10)
                wait.until(lambda: self.peer.run(
                    'pgrep -f "^dmsetup suspend"', check=False),
                    'requests to be held', 10)
                self.assertNotIn('all', guest() + reads())
            finally:
                self.node.restore_network()
        wait.until(lambda: 'all' in guest() and 'all' in reads(),
                   'all reads', 60, log=lambda: guest() + reads())
        self.assertRegex(reads(), '^one .* none\nall .* none$')
        print('A guest, and 3000 reads of one thread:\n%s%s' % (
            guest(), reads()), file=sys.stderr)
        self.hydrated(self.volume_id)
        # Only "dmsetup suspend": the driver may run other commands.
        self.assertEqual('', self.peer.run('pgrep -f "^dmsetup suspend"',
                                           check=False))
        self.assertEqual(expected, self.checksum(self.peer, path))

    def test_target_restarts(self):
        with self.slow_network(self.peer):
            path, expected = self.attach_and_write()
            self.node.kill('tgtd')
            self.assert_session('FAILED')
            said = self.read_many('many_reads.py', path, 600)
            self.node.start_service('tgtd')
            self.assertRegex(wait.until(
                lambda: 'all' in said() and said(), 'the reads', 40),
                'all .* none$')
        self.hydrated(self.volume_id)
        self.assertEqual(expected, self.checksum(self.peer, path))


@slow
class TargetTest(base.E2ETest):
    """A restart of the target's service, which loses its exports."""

    def test_target_is_restarted_while_the_volume_hydrates(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.slow_network(other), self.attached(volume_id, other) as path:
            home.kill('tgtd')
            home.start_service('tgtd')
            # It takes some time until the initiator detects the loss.
            wait.until(lambda: 'dmclone-' in home.run(
                'tgtadm --op show --mode target'),
                'the source to be exported again', 120)
            self.assertEqual(checksum, self.checksum(other, path))
        self.hydrated(volume_id)
