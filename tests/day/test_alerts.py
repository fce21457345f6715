# SPDX-License-Identifier: Apache-2.0
"""Each alert fires by its cause and goes away with it, on real services.

The causes are those that the rules name. ``NOT_CAUSED`` has the alerts whose
cause cannot be made here; the unit tests fire all.
"""

import concurrent.futures
import contextlib
import re

from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import Names
from lab.common import leftovers
from lab.common import user as user_module
from lab import errors
from lab import wait
from tests.scenarios.lib import alerting
from tests.scenarios.lib import bad_devices
from tests.scenarios.lib import base

#: {alert: why it is not fired here}.
NOT_CAUSED = {
    'DmcloneLocksUnreachable': 'etcd has to keep the locks: see tests/etcd',
    'DmcloneNoRoom': 'its nodes have no thin pool: see tests/unit',
    'DmcloneNotificationsLost':
        'the database would have to fail between a commit and the read that '
        'follows it, or RabbitMQ be away for 1000 events',
    'DmcloneThinPoolMetadataFull':
        'its nodes have no thin pool: see tests/unit'}

#: Offset in MiB of the part that can't be read or written: behind the data
#: that tests compare, and copied last.
BAD = 1000
#: Attempts to reach a peer that does not answer, ten seconds each.
ATTEMPTS = 4

# Not its own shell: the pattern does not match itself.
_SIGNAL = "pkill -%s -f '[p]rivsep-helper.*dmclone_driver'"
_READ = ('(setsid dd if=%s of=/dev/null bs=64k skip=%d count=1 iflag=direct '
         '< /dev/null > /dev/null 2>&1 &)')
# As cinder-volume, and dmclone-reconcile, hold it.
_HOLD_LOCK = """
import fcntl, glob, time
path, = glob.glob("/var/lib/cinder/**/*dmclone-%s@dmclone-%s", recursive=True)
lock = open(path, "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX)
time.sleep(1000)
"""
_IN_BACKGROUND = ('(setsid %s > /run/holder.log 2>&1 & echo $! > '
                  '/run/holder.pid); sleep 3; kill -0 $(cat /run/holder.pid)')


@contextlib.contextmanager
def running(node, command):
    """Run a command on a node in the background, and kill it at the end."""
    node.run(_IN_BACKGROUND % command)
    try:
        yield
    finally:
        node.run('kill $(cat /run/holder.pid)')


class NodeTest(alerting.AlertTest):
    """Alerts about a node, its group and the services around it."""

    def setUp(self):
        super().setUp()
        self.node, self.peer = list(self.lab.nodes.values())[:2]

    @contextlib.contextmanager
    def killed(self, volume_id):
        """Kill the peer's service, and request moves to that node."""
        instance = user_module.uuid4()
        self.peer.kill('cinder-volume')
        try:
            for _ in range(ATTEMPTS):
                with self.assertRaises(user_module.ApiError):
                    self.user.attach(volume_id, self.peer, instance)
            yield
        finally:
            self.peer.start_service('cinder-volume')
            self.peer.wait_ready()

    def test_service(self):
        with self.created_on(self.node):
            volume_id = self.user.create_volume()['id']
        self.assertFires(self.killed(volume_id),
                         DmcloneServiceDown=self.peer,
                         DmclonePeerSilent=self.node)

    @contextlib.contextmanager
    def hanging(self):
        """Stop the process in which the driver is root: its calls hang."""
        self.node.run(_SIGNAL % 'STOP')
        try:
            yield
        finally:
            self.node.run(_SIGNAL % 'CONT')

    def test_check(self):
        self.assertFires(self.hanging(), within=240,
                         DmcloneCheckStuck=self.node)

    @contextlib.contextmanager
    def filled_group(self):
        """Take nearly all space of the volume group."""
        self.node.run('lvcreate -qq -y -Wn -Zn -n filler -l 95%FREE '
                      'cinder-volumes')
        try:
            yield
        finally:
            self.node.run('lvremove -qq -y cinder-volumes/filler')

    def test_space(self):
        self.assertFires(self.filled_group(), within=240, ends=240,
                         DmcloneGroupFull=self.node)


class GateTest(base.TwoAttachmentsTest, alerting.AlertTest):
    """A guest has been live-migrated while the database is away."""

    @contextlib.contextmanager
    def writing_without_database(self):
        """Write as the guest on the new node, where its gate is closed."""
        self.lab.control.stop('mariadb')
        try:
            self.begin('yes one | head -c 1M | dd of=%s bs=1M seek=20 '
                       'iflag=fullblock oflag=direct conv=notrunc,fsync'
                       % self.new_path)
            yield
        finally:
            self.lab.control.start('mariadb')
        self.assertEqual('0', wait.until(
            lambda: self.new.run('cat /run/code 2>/dev/null; true').strip(),
            'the write at the gate to end', 120))

    def test_database(self):
        expected = self.checksum_with(self.old, self.old_path, 20, 'one')
        self.assertFires(self.writing_without_database(), within=240,
                         ends=300, DmcloneDatabaseUnreadable=self.old,
                         DmcloneGuestWaitsAtGate=self.new,
                         DmcloneErrors=self.new)
        self.assertIs(self.new, self.home(self.volume_id))
        self.user.detach(self.first['id'])
        self.hydrated(self.volume_id, 240)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))


class SourceTest(base.HydratingTest, alerting.AlertTest):
    """Alerts about a volume that hydrates, its source and its devices."""

    TO_END = 300

    def setUp(self):
        super().setUp()
        self.slow = contextlib.ExitStack()
        self.addCleanup(self.slow.close)
        self.slow.enter_context(self.slow_network(self.peer, mbit=20))

    @contextlib.contextmanager
    def without_row(self):
        """Hide the row of the source, as in a restored database."""
        placeholder, = self.placeholders(self.volume_id)
        row = "UPDATE volumes SET deleted = %d WHERE id = '%s'"
        self.lab.sql(row % (1, placeholder))
        try:
            yield
        finally:
            self.lab.sql(row % (0, placeholder))

    @contextlib.contextmanager
    def cut_off(self, path):
        """Cut the source's network, and read what is not copied yet."""
        self.node.cut_network()
        try:
            self.peer.run(_READ % (path, BAD * 16))
            yield
        finally:
            self.node.restore_network()

    def test_source_is_unknown_or_away(self):
        path, expected = self.attach_and_write()
        self.assertFires(self.without_row(), DmcloneMoveUnknown=self.peer)
        self.assertFires(self.cut_off(path), DmcloneRequestsHeld=self.peer,
                         DmcloneSourceAway=self.peer)
        self.end_move(path, expected)

    def end_move(self, path, expected):
        """Let the volume become complete, and compare it."""
        self.slow.close()
        self.hydrated(self.volume_id, 400)
        self.assertEqual(expected, self.checksum(self.peer, path))

    @contextlib.contextmanager
    def unreadable(self):
        """Let all be copied but a part that cannot be read."""
        with bad_devices.failing(self.node, Names(self.volume_id).of(EXPORT),
                                 bad_devices.hole(BAD)):
            self.slow.close()
            yield

    def test_source_cannot_be_read(self):
        path, expected = self.attach_and_write()
        self.assertFires(self.unreadable(), within=400, ends=400,
                         DmcloneNoProgress=self.peer,
                         DmcloneMoveFailed=self.peer)
        self.end_move(path, expected)

    @contextlib.contextmanager
    def failing_metadata(self, path):
        """Let writes to the metadata fail; then repair it, and reboot."""
        device = 'cinder--volumes-' + leftovers.metadata(
            self.peer).replace('-', '--')
        with bad_devices.failing(self.peer, device,
                                 bad_devices.REFUSES_WRITES):
            with self.assertRaises(errors.LabError):
                self.write(self.peer, path, BAD, 'two')
            yield
        self.peer.cut_power()
        self.peer.start()
        self.peer.wait_ready()

    def test_metadata(self):
        path, expected = self.attach_and_write()
        self.assertFires(self.failing_metadata(path),
                         DmcloneMetadataFailed=self.peer,
                         DmcloneMoveFailed=self.peer)
        self.end_move(path, expected)

    @contextlib.contextmanager
    def opened(self):
        """Have a process open the logical volume of the source."""
        with running(self.node, 'sleep 1000 < /dev/cinder-volumes/volume-' +
                     self.volume_id):
            self.slow.close()
            yield

    def test_source_is_not_deleted(self):
        path, expected = self.attach_and_write()
        # A job is repeated after five minutes at most.
        self.assertFires(self.opened(), within=300, ends=500,
                         DmcloneSourcesNotDeleted=self.node,
                         DmcloneJobsPending=self.node)
        self.end_move(path, expected)

    @contextlib.contextmanager
    def locked(self):
        """Hold the volume's lock while it is requested to move."""
        command = "python3 -c '%s' < /dev/null" % (
            _HOLD_LOCK % (self.node.name, self.volume_id))
        with concurrent.futures.ThreadPoolExecutor(
                1, initializer=self.lab.enter) as pool:
            with running(self.node, command):
                request = pool.submit(self.attach_away)
                yield
            request.result()

    def attach_away(self):
        """Attach the volume, which its user repeats if it takes too long."""
        user = user_module.User(self.lab)
        try:
            user.attach(self.volume_id, self.peer)
        except user_module.ApiError:
            user.detach_all(self.volume_id)
            user.settled(self.volume_id, 'available')

    def test_lock(self):
        self.assertFires(self.locked(), DmcloneLockWaits=self.node)


class LostSourceTest(base.HydratingTest, alerting.AlertTest):
    """The node of a source is lost for good."""

    @contextlib.contextmanager
    def lost(self):
        """Declare the node lost; then delete the volume, as its user."""
        wait.until(lambda: self.program(self.peer, 'forget_node',
                                        self.node.name)[1],
                   'the service to count as down', 120)
        self.assertEqual(0, self.program(self.peer, 'forget_node',
                                         self.node.name, '--do-it')[0])
        yield
        self.user.detach_all(self.volume_id)
        self.user.settled(self.volume_id, 'available', 'error')
        self.user.delete_volume(self.volume_id)

    def come_back(self):
        """Start the lost node, and remove what it has kept."""
        self.node.start()
        self.node.wait_ready()
        lines = self.program(self.node, 'reconcile', '--remove')[1]
        for line in lines:
            # Another node might read the source; the line says what to do.
            if line.startswith('target '):
                self.node.run(re.search('run "(.*?)"', line)[1])
        self.program(self.node, 'reconcile', '--remove')
        self.node.run('lvremove --yes cinder-volumes; '
                      'iscsiadm -m node -o delete || true')

    def test_node_of_the_source_is_lost(self):
        with self.slow_network(self.peer):
            self.attach_and_write()
            self.node.cut_power()
        try:
            self.assertFires(self.lost(), DmcloneSourceLost=self.peer)
        finally:
            self.come_back()


class LeftBehindTest(alerting.AlertTest):
    """A volume moves from a small group, and its snapshot stays."""

    GROUP = 'small'

    def configure(self):
        self.node, *others = self.lab.nodes.values()
        disk = self.node.run(
            'lvcreate -qq -y -n small -L 5g cinder-metadata && '
            'losetup --find --show /dev/cinder-metadata/small').strip()
        # Last in first out: when the service uses its own group again.
        self.addCleanup(
            self.node.run, 'vgremove -qq -y %s; losetup --detach %s && '
            'udevadm settle && lvremove -qq -y cinder-metadata/small' % (
                self.GROUP, disk))
        self.node.run('vgcreate -qq %s %s' % (self.GROUP, disk))
        self.use(alerting.OPTIONS, *others)
        self.use(dict(alerting.OPTIONS, volume_group=self.GROUP), self.node)
        # While the service still uses the small group.
        self.addCleanup(self.delete_volumes)
        self.addCleanup(self.delete_snapshot)
        self.snapshot = None

    def delete_volumes(self):
        for volume in self.user.request('GET', '/volumes')['volumes']:
            self.end_volume(volume['id'], 120)

    def take_snapshot(self, volume_id):
        self.snapshot = self.user.request('POST', '/snapshots', {
            'snapshot': {'volume_id': volume_id}})['snapshot']['id']
        wait.until(lambda: self.user.request(
            'GET', '/snapshots/' + self.snapshot)['snapshot']['status'] ==
            'available', 'the snapshot', 60)

    def delete_snapshot(self):
        if self.snapshot is None:
            return
        self.user.request('DELETE', '/snapshots/' + self.snapshot)
        self.snapshot = None
        wait.until(lambda: not self.user.request('GET', '/snapshots')[
            'snapshots'], 'the snapshot to be gone', 120)

    @contextlib.contextmanager
    def moved_away(self, volume_id):
        """Move the volume; delete its snapshot at the end."""
        with self.attached(volume_id, self.other(self.node)):
            self.hydrated(volume_id, 300)
        yield
        self.delete_snapshot()

    def test_left_behind(self):
        with self.created_on(self.node):
            volume_id, home, before = self.filled_volume()
        self.assertIs(self.node, home)
        self.take_snapshot(volume_id)
        self.assertFires(self.moved_away(volume_id), within=240, ends=240,
                         DmcloneLeftBehind=self.node)
        with self.attached(volume_id, self.other(self.node)) as path:
            self.assertEqual(before, self.checksum(self.other(self.node),
                                                   path))
