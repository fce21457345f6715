# SPDX-License-Identifier: Apache-2.0
"""Failures of etcd, which keeps the locks, in the middle of moves.

An operation that holds its lock completes and reports success, even if the
lock is lost. Without etcd no operation begins, and guests are not affected.
"""

import base64
import concurrent.futures
import contextlib
import os
import shutil
import time

import requests

from dmclone_driver.steps import Step
from lab.common import user as user_module
from lab import etcd
from lab import paths
from lab import wait
from tests.crash import stops
from tests.scenarios.lib import base

#: On the host; mounted on the nodes as stops.ON_NODE.
FOLDER = paths.STATE / 'crash'
#: The driver that stops volumes at steps, with small volumes.
OPTIONS = {'volume_driver': 'tests.crash.driver.StoppingDriver',
           'volume_clear_size': str(stops.MIB)}
#: Maximum of seconds of a request: Nova's default timeout.
PATIENCE = 60
_PREFIX = b'/tooz/locks'
# Drops what a node sends to etcd, but not to the other servers.
_CUT_OFF = """
for device in $(ls /sys/class/net | grep -v lo); do
    tc qdisc add dev $device clsact &&
    tc filter add dev $device egress protocol ip flower \
        ip_proto tcp dst_port %d action drop || exit 1
done
""" % etcd.PORT
_CONNECT = """
for device in $(ls /sys/class/net | grep -v lo); do
    tc qdisc del dev $device clsact
done
"""


def _base64(text):
    return base64.b64encode(text).decode()


def locks():
    """Return the held locks of the driver, as {(name, its revision)}.

    A lock that is acquired again has another revision.
    """
    answer = requests.post(etcd.ADDRESS + '/v3/kv/range', timeout=10, json={
        'key': _base64(_PREFIX), 'range_end': _base64(_PREFIX[:-1] + b't'),
        'keys_only': True})
    found = {
        (base64.b64decode(each['key']).decode(), each['create_revision'])
        for each in answer.json().get('kvs', ())}
    return {lock for lock in found if 'dmclone-' in lock[0]}


# The faults. They begin while volumes are stopped; the volumes continue where
# the context manager yields.

@contextlib.contextmanager
def _killed(control, home):
    """Kill etcd for longer than a lease: locks cannot be released."""
    control.kill('etcd')
    yield
    time.sleep(etcd.LEASE + 5)
    control.start('etcd')


@contextlib.contextmanager
def _restarted(control, home):
    """Restart etcd: the locks are still held."""
    control.restart('etcd')
    yield


@contextlib.contextmanager
def _emptied(control, home):
    """Restart etcd without data: all locks are lost."""
    control.kill('etcd')
    shutil.rmtree(etcd.FOLDER)
    control.start('etcd')
    yield


@contextlib.contextmanager
def _paused(control, home):
    """Stop etcd's process for longer than a lease: it does not answer."""
    etcd.pause()
    try:
        yield
        time.sleep(etcd.LEASE + 5)
    finally:
        etcd.resume()


@contextlib.contextmanager
def _cut_off(control, home):
    """Cut the home off etcd: the home's leases expire."""
    before = locks()
    home.run(_CUT_OFF)
    try:
        # The peer may be waiting for the lock, and acquire it at once.
        wait.until(lambda: before - locks(), 'a lease to expire',
                   etcd.LEASE + 10)
        yield
    finally:
        home.run(_CONNECT)


class EtcdTest(base.SetupTest):
    """A test that checks at its end that no lock is held."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.no_locks_left)

    def no_locks_left(self):
        wait.until(lambda: not locks(), 'all locks to be released',
                   2 * etcd.LEASE, log=lambda: '\n'.join(map(str, locks())))


class AttachTest(EtcdTest):
    """A volume is attached away, and etcd fails in the middle."""

    def setUp(self):
        super().setUp()
        FOLDER.mkdir(exist_ok=True)
        for name in os.listdir(FOLDER):
            (FOLDER / name).unlink()
        nodes = list(self.lab.nodes.values())
        for node in nodes:
            node.run('mkdir -p {0}; mountpoint -q {0} || mount -t hostfs '
                     'none {0} -o {1}'.format(stops.ON_NODE, FOLDER))
        stopping = self.configured(OPTIONS, *nodes)
        stopping.__enter__()
        self.addCleanup(stopping.__exit__, None, None, None)
        # While the driver still creates small volumes.
        self.addCleanup(self.clean_up)
        self.addCleanup(stops.go_on, FOLDER)

    def test_killed(self):
        self.check(_killed, Step.PASSIVE, Step.SWITCHED)

    def test_restarted(self):
        self.check(_restarted, Step.PASSIVE, Step.SWITCHED)

    def test_emptied(self):
        self.check(_emptied, Step.PASSIVE, Step.SWITCHED)

    def test_paused(self):
        self.check(_paused, Step.PASSIVE, Step.SWITCHED)

    def test_home_is_cut_off(self):
        self.check(_cut_off, Step.SWITCHED)

    def check(self, outage, *steps):
        """Attach one volume per step away, and back again."""
        volumes = [self.filled_volume(stops.MIB) for _ in steps]
        with concurrent.futures.ThreadPoolExecutor(
                len(steps), initializer=self.lab.enter) as pool:
            moves = [pool.submit(self.attach_away, *volume[:2], step)
                     for volume, step in zip(volumes, steps)]
            for volume_id, *_ in volumes:
                wait.until(lambda v=volume_id: stops.stopped(FOLDER, v),
                           'volume %s to be at its step' % volume_id, 30)
            try:
                with outage(self.lab.control, volumes[0][1]):
                    stops.go_on(FOLDER)
                    attachments = [move.result(PATIENCE) for move in moves]
            finally:
                stops.go_on(FOLDER)
        for volume, attachment in zip(volumes, attachments):
            self.compare_and_return(*volume, attachment)

    def attach_away(self, volume_id, home, step):
        """Attach a volume, which stops at a step; returns the attachment."""
        peer = self.other(home)
        stops.stop_at(FOLDER, volume_id, step,
                      (home if step is Step.SWITCHED else peer).name)
        return user_module.User(self.lab).attach(volume_id, peer)

    def compare_and_return(self, volume_id, home, before, attachment):
        """Check that the volume has moved, and move it back."""
        peer, path = self.other(home), user_module.path(attachment)
        self.assertEqual(peer, self.home(volume_id))
        self.assertEqual(before, self.checksum(peer, path, stops.MIB))
        expected = self.checksum_with(peer, path, 5, 'one', stops.MIB)
        self.write(peer, path, 5, 'one')
        self.hydrated(volume_id)
        self.assertEqual(expected, self.checksum(peer, path, stops.MIB))
        self.user.detach(attachment['id'])
        with self.attached(volume_id, home) as path:
            self.assertEqual(home, self.home(volume_id))
            self.assertEqual(expected, self.checksum(home, path, stops.MIB))
            self.hydrated(volume_id)


class AwayTest(EtcdTest):
    """Requests that begin while etcd is down."""

    def test_attach_is_refused(self):
        """Another guest and the hydration of its volume continue."""
        volume_id, home, before = self.filled_volume()
        used_id, node, _ = self.filled_volume()
        path = user_module.path(self.user.attach(used_id, self.other(node)))
        node = self.other(node)
        self.lab.control.kill('etcd')
        try:
            attachment = self.user.reserve(volume_id)
            with self.assertRaises(user_module.ApiError):
                # Cinder's API takes another lock for this request.
                self.user.connect(attachment, self.user.connector(
                    self.other(home)))
            self.user.detach(attachment)
            with self.assertRaises(user_module.ApiError) as refused:
                self.user.attach(volume_id, self.other(home))
            self.assertIn('Nothing was done to volume ' + volume_id,
                          refused.exception.text)
            expected = self.checksum_with(node, path, 20, 'one')
            self.write(node, path, 20, 'one')
            self.assertEqual(expected, self.checksum(node, path))
        finally:
            self.lab.control.start('etcd')
        self.assertEqual(home, self.home(volume_id))
        self.assertEqual([], self.placeholders(volume_id))
        self.user.detach_all(volume_id)
        with self.attached(volume_id, self.other(home)) as moved:
            self.assertEqual(before, self.checksum(self.other(home), moved))
        self.hydrated(used_id)
        self.assertEqual(expected, self.checksum(node, path))


class LiveMigrationTest(base.TwoAttachmentsTest, EtcdTest):
    """A live migration ends while etcd is down for longer than a lease."""

    def test_guest_arrives(self):
        expected = self.checksum_with(self.old, self.old_path, 30, 'new')
        self.lab.control.kill('etcd')
        try:
            self.begin('yes new | head -c 1M | dd of=%s bs=1M seek=30 '
                       'iflag=fullblock oflag=direct conv=notrunc,fsync'
                       % self.new_path)
            wait.until(lambda: self.home(self.volume_id) is self.new,
                       'the switchover, which needs no lock', 30)
            with self.assertRaises(user_module.ApiError):
                self.user.detach(self.first['id'])
            # Cinder's API gives no reasons for a failed detachment.
            self.assertIn('Nothing was done to volume ' + self.volume_id,
                          self.new.log('cinder-volume'))
            time.sleep(etcd.LEASE + 5)
        finally:
            self.lab.control.start('etcd')
        self.assertEqual('0', self.end())
        self.user.detach(self.first['id'])
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        self.hydrated(self.volume_id)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
