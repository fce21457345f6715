# SPDX-License-Identifier: Apache-2.0
"""Volumes of the laboratory: their nodes, their data, their deletion."""

import concurrent.futures
import contextlib
import subprocess

from lab.common import leftovers
from lab.common import user as user_module
from lab import network
from lab import wait

# MiB at the start of a volume that tests fill and compare. A whole volume is
# compared in test_move.MoveTest.test_attach_away.
DATA = 64


class Volumes:
    """Volume operations of tests and benchmarks.

    Needs the attributes `lab`, the laboratory that is up, and `user`, a
    user of its cloud.
    """

    #: Seconds until a volume is deleted, or until all leftovers are gone.
    TO_END = 60

    def clean_up(self):
        """Check the laboratory, and delete all volumes."""
        self.lab.check()
        self.end_volumes()
        self.nothing_left()

    def end_volumes(self):
        """Delete all volumes, and their attachments."""
        for volume_id, in self.lab.sql(
                "SELECT id FROM volumes WHERE deleted = 0 AND "
                "(migration_status IS NULL OR migration_status NOT LIKE "
                "'dmclone:%')"):
            self.end_volume(volume_id)

    def end_volume(self, volume_id, timeout=None):
        """Delete all attachments of a volume, and the volume."""
        try:
            self.user.detach_all(volume_id)
            self.user.delete_volume(volume_id, timeout or self.TO_END)
        except user_module.ApiError as error:
            # An earlier deletion has just ended.
            if error.status != 404:
                raise

    def nothing_left(self, timeout=None):
        """Wait until there is no leftover on any node or in the database."""
        wait.until(lambda: not leftovers.find(self.lab),
                   'all leftovers to be gone', timeout or self.TO_END,
                   log=lambda: '\n'.join(leftovers.find(self.lab)))

    # Nodes and placeholders

    def home(self, volume_id):
        """Return the home of a volume, as the database has it."""
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

    def fill(self, node, path, mib=DATA, seed='first', timeout=120):
        """Write random data without repetitions to the start of a device."""
        node.run('openssl enc -aes-128-ctr -nosalt -pbkdf2 -pass pass:%s '
                 '-in /dev/zero 2>/dev/null | head -c %dM | '
                 'dd of=%s bs=1M iflag=fullblock oflag=direct conv=fsync '
                 'status=none' % (seed, mib, path), timeout=timeout)

    def allocate(self, node, path, mib):
        """Write zeros to a device, from an offset in MiB to its end."""
        node.run('dd if=/dev/zero of={0} bs=1M seek={1} oflag=direct '
                 'conv=fsync status=none count=$(($(blockdev --getsize64 {0}) '
                 '/ 1048576 - {1}))'.format(path, mib), timeout=240)

    def write(self, node, path, mib, seed):
        """Write one recognisable MiB at an offset in MiB, durably."""
        node.run('yes %s | head -c 1M | dd of=%s bs=1M seek=%d '
                 'iflag=fullblock oflag=direct conv=notrunc,fsync '
                 'status=none' % (seed, path, mib))

    def checksum(self, node, path, mib=DATA, timeout=120):
        """Return the checksum of a device's start, read without the cache."""
        return node.run('set -o pipefail; dd if=%s bs=1M count=%d '
                        'iflag=direct status=none | sha256sum' % (path, mib),
                        timeout=timeout).split()[0]

    def checksum_with(self, node, path, at, seed, mib=DATA, first=0):
        """Return the checksum that a device would have after a write().

        :param first: the first MiB that counts
        """
        return node.run(
            '( dd if={0} bs=1M skip={first} count={1} iflag=direct '
            'status=none; yes {2} | head -c 1M; dd if={0} bs=1M skip={3} '
            'count={4} iflag=direct status=none ) | sha256sum'.format(
                path, at - first, seed, at + 1, mib - at - 1, first=first),
            timeout=120).split()[0]

    def filled_volume(self, mib=DATA, whole=False, **attributes):
        """Create a volume with data.

        :param whole: have it allocate all of its blocks, too, so that a thin
            one is copied for as long as a thick one
        :returns: (volume id, its home, checksum)
        """
        volume = self.user.create_volume(**attributes)
        home = self.home(volume['id'])
        with self.attached(volume['id'], home) as path:
            self.fill(home, path, mib)
            if whole and self.lab.settings.thin:
                self.allocate(home, path, mib)
            return volume['id'], home, self.checksum(home, path, mib)

    @contextlib.contextmanager
    def created_on(self, node, backend='dmclone'):
        """Have Cinder's scheduler create all volumes on a node meanwhile.

        The scheduler takes a service that has just been restarted for down
        until its first heartbeat, if the start has taken long.
        """
        self.user.service_up('host=%s@%s' % (node.name, backend),
                             'cinder-volume on ' + node.name)
        others = "host LIKE '%@{1}' AND host != '{0}@{1}'".format(
            node.name, backend)
        self.lab.sql('UPDATE services SET disabled = 1 WHERE ' + others)
        try:
            yield
        finally:
            self.lab.sql('UPDATE services SET disabled = 0 WHERE ' + others)

    @contextlib.contextmanager
    def attached(self, volume_id, node):
        """Attach a volume, and detach it at the end; yields its path."""
        attachment = self.user.attach(volume_id, node)
        try:
            yield user_module.path(attachment)
        finally:
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')

    def at_once(self, functions, at_most):
        """Call functions in parallel; raises the first error.

        :param at_most: number of functions that run at a time
        """
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
        """Limit the rate at which a node receives, and so its hydration."""
        device = ['dev', network.tap(node.name, 'lab'), 'root']
        subprocess.run(['tc', 'qdisc', 'replace', *device, 'tbf', 'rate',
                        '%dmbit' % mbit, 'burst', '256kb', 'latency',
                        '200ms'], check=True)
        try:
            yield
        finally:
            subprocess.run(['tc', 'qdisc', 'del', *device], check=True)

    @contextlib.contextmanager
    def slow_storage_network(self, node, mbit=40):
        """Limit the rate at which a node gets data of iSCSI targets.

        As if they had a network of their own: nothing else waits in its queue.
        """
        device = ['dev', network.tap(node.name, 'lab')]
        for words in (
                ['qdisc', 'replace', *device, 'root', 'handle', '1:', 'htb'],
                ['class', 'add', *device, 'classid', '1:1', 'htb', 'rate',
                 '%dmbit' % mbit, 'quantum', '1514'],
                ['qdisc', 'add', *device, 'parent', '1:1', 'bfifo', 'limit',
                 '256kb'],
                ['filter', 'add', *device, 'parent', '1:', 'protocol', 'ip',
                 'u32', 'match', 'ip', 'sport', '3260', '0xffff', 'flowid',
                 '1:1']):
            subprocess.run(['tc', *words], check=True)
        try:
            yield
        finally:
            subprocess.run(['tc', 'qdisc', 'del', *device, 'root'], check=True)

    def clone_status(self, node, path):
        """Return the status line of a handle, or of the clone below it."""
        return node.run('dmsetup status --noflush {0}-clone 2>/dev/null || '
                        'dmsetup status --noflush {0}'.format(path)).strip()
