# SPDX-License-Identifier: Apache-2.0
"""A test against the lab that is up: its user, its nodes, its clean-up."""

import concurrent.futures
import contextlib
import subprocess
import time
import unittest

from lab import lab as lab_module
from lab import network
from lab import wait
from tests.e2e import leftovers
from tests.e2e import user as user_module

# How much of a volume, in MiB from its start, tests fill and compare. All of
# it is compared once, in the main job's own test.
DATA = 64


class E2ETest(unittest.TestCase):
    """Afterwards all volumes are deleted, and nothing else may be left."""

    #: Seconds until a volume is deleted, or all that was left is gone.
    TO_END = 60

    def setUp(self):
        super().setUp()
        self.lab = lab_module.Lab.load()
        self.lab.check()
        for node in self.lab.nodes.values():
            node.wait_ready()
        self.user = user_module.User(self.lab)
        self.addCleanup(self._clean_up)

    def _clean_up(self):
        self.lab.check()
        for volume_id, in self.lab.sql(
                "SELECT id FROM volumes WHERE deleted = 0 AND "
                "(migration_status IS NULL OR migration_status NOT LIKE "
                "'dmclone:%')"):
            self.end_volume(volume_id)
        self.nothing_left()

    def end_volume(self, volume_id, timeout=None):
        """Detach a volume from wherever it is, and delete it."""
        try:
            self.user.detach_all(volume_id)
            self.user.delete_volume(volume_id, timeout or self.TO_END)
        except user_module.ApiError as error:
            # Its deletion has just come to its end.
            if error.status != 404:
                raise

    def nothing_left(self, timeout=None):
        """Wait until nothing is left on any node or in the database."""
        wait.until(lambda: not leftovers.find(self.lab),
                   'everything to be gone', timeout or self.TO_END,
                   log=lambda: '\n'.join(leftovers.find(self.lab)))

    def program(self, node, name, *arguments):
        """Run one of the driver's commands on a node.

        :returns: (exit code, the lines that it prints, its error stream)
        """
        code, out, err = node.try_run(
            '. /lab/node.env; PYTHONPATH=$CHECKOUT PYTHONWARNINGS=ignore '
            'PYTHONDONTWRITEBYTECODE=1 PATH=$VENV/bin:$PATH python -m '
            'dmclone_driver.cmd.%s --config-file /etc/cinder/cinder.conf '
            'dmclone %s' % (name, ' '.join(arguments)), timeout=120)
        self.assertNotIn('Traceback', err)
        return code, out.splitlines(), err

    # Where things are

    def home(self, volume_id):
        """Return the node that the database says a volume lives on."""
        row, = self.lab.sql("SELECT host FROM volumes WHERE id = '%s'"
                            % volume_id)
        return self.lab.node(row[0].partition('@')[0])

    def other(self, node):
        """Return another node."""
        return next(n for n in self.lab.nodes.values() if n is not node)

    def placeholders(self, volume_id):
        """Return the ids of a volume's placeholders."""
        return leftovers.placeholders(self.lab, volume_id)

    # Data

    def fill(self, node, path, mib=DATA, seed='first'):
        """Write data that repeats nowhere over the start of a device."""
        node.run('openssl enc -aes-128-ctr -nosalt -pbkdf2 -pass pass:%s '
                 '-in /dev/zero 2>/dev/null | head -c %dM | '
                 'dd of=%s bs=1M iflag=fullblock oflag=direct conv=fsync '
                 'status=none' % (seed, mib, path), timeout=120)

    def write(self, node, path, mib, seed):
        """Write one recognisable MiB at an offset in MiB, durably."""
        node.run('yes %s | head -c 1M | dd of=%s bs=1M seek=%d '
                 'iflag=fullblock oflag=direct conv=notrunc,fsync '
                 'status=none' % (seed, path, mib))

    def checksum(self, node, path, mib=DATA, timeout=120):
        """Return the checksum of a device's start, past the page cache."""
        return node.run('set -o pipefail; dd if=%s bs=1M count=%d '
                        'iflag=direct status=none | sha256sum' % (path, mib),
                        timeout=timeout).split()[0]

    def checksum_with(self, node, path, at, seed, mib=DATA):
        """Return the checksum that a device would have after a write()."""
        return node.run(
            '( dd if={0} bs=1M count={1} iflag=direct status=none; '
            'yes {2} | head -c 1M; dd if={0} bs=1M skip={3} count={4} '
            'iflag=direct status=none ) | sha256sum'.format(
                path, at, seed, at + 1, mib - at - 1),
            timeout=120).split()[0]

    def filled_volume(self, mib=DATA, **attributes):
        """Create a volume with data.

        :returns: (volume id, its home, checksum)
        """
        volume = self.user.create_volume(**attributes)
        home = self.home(volume['id'])
        with self.attached(volume['id'], home) as path:
            self.fill(home, path, mib)
            return volume['id'], home, self.checksum(home, path, mib)

    @contextlib.contextmanager
    def attached(self, volume_id, node):
        """Attach a volume for a while; gives its path on the node."""
        attachment = self.user.attach(volume_id, node)
        try:
            yield user_module.path(attachment)
        finally:
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')

    def at_once(self, functions, at_most):
        """Call functions, some at a time; raises what the first raises."""
        with concurrent.futures.ThreadPoolExecutor(
                at_most, initializer=self.lab.enter) as pool:
            for job in [pool.submit(function) for function in functions]:
                job.result()

    def hydrated(self, volume_id, timeout=120):
        """Wait until a volume is complete and its sources are gone."""
        wait.until(lambda: not self.placeholders(volume_id),
                   'volume %s to be complete' % volume_id, timeout)

    @contextlib.contextmanager
    def slow_network(self, node, mbit=40):
        """Slow down what a node receives, and so its hydration."""
        device = ['dev', network.tap(node.name, 'lab'), 'root']
        subprocess.run(['tc', 'qdisc', 'replace', *device, 'tbf', 'rate',
                        '%dmbit' % mbit, 'burst', '256kb', 'latency',
                        '200ms'], check=True)
        try:
            yield
        finally:
            subprocess.run(['tc', 'qdisc', 'del', *device], check=True)

    def clone_status(self, node, path):
        """Return a handle's status line on a node."""
        return node.run('dmsetup status --noflush ' + path).strip()


class HydratingTest(E2ETest):
    """A test with a volume whose data is still moving."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.node, self.before = self.filled_volume()
        self.peer = self.other(self.node)

    def attach_and_write(self):
        """Attach the volume away and change it there.

        :returns: (path, checksum from now on)
        """
        path = user_module.path(self.user.attach(self.volume_id, self.peer))
        expected = self.checksum_with(self.peer, path, 20, 'one')
        self.write(self.peer, path, 20, 'one')
        return path, expected


class TwoAttachmentsTest(E2ETest):
    """A test with a volume that one instance has attached on two nodes."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.old, self.before = self.filled_volume()
        self.new = self.other(self.old)
        self.instance = user_module.uuid4()
        self.first = self.user.attach(self.volume_id, self.old, self.instance)
        self.second = self.user.attach(self.volume_id, self.new,
                                       self.instance)
        self.old_path = user_module.path(self.first)
        self.new_path = user_module.path(self.second)

    def assert_passive(self):
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertIn(' 0/', self.clone_status(self.new, self.new_path))

    def begin(self, command):
        """Start a command on the new node that may have to wait."""
        self.new.run('rm -f /run/code; (%s; echo $? > /run/code) '
                     '> /dev/null 2>&1 &' % command)

    def end(self):
        """Wait for the end of that command; returns its code."""
        return wait.until(
            lambda: self.new.run('cat /run/code 2>/dev/null; true').strip(),
            'what waits at the gate to end', 30)

    def flush(self):
        """Let the guest flush before it has written anything."""
        self.begin("python3 -c 'import os; os.fsync(os.open(\"%s\", "
                   "os.O_RDWR))'" % self.new_path)
        time.sleep(3)
        self.assert_passive()


class SetupTest(E2ETest):
    """A test with other options, which leaves the lab as it found it."""

    @contextlib.contextmanager
    def configured(self, options, *nodes, mode=None):
        """Run nodes with other options of the backend for a while.

        :param mode: 'eventlet' or 'threads', if not the lab's own
        """
        usual = self.lab.settings.mode
        self._configure({'dmclone': options}, nodes, mode or usual)
        try:
            yield
        finally:
            self._configure({}, nodes, usual)

    def _configure(self, changes, nodes, mode):
        for node in nodes:
            node.stop('cinder-volume')
            node.configure(changes)
            node.use_mode(mode)
            node.start_service('cinder-volume')
        for node in nodes:
            node.wait_ready()
