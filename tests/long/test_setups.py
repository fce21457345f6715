# SPDX-License-Identifier: Apache-2.0
"""Rarer ways to set a backend up."""

import contextlib

from lab.common import user as user_module
from tests.e2e import base


class SetupTest(base.SetupTest):
    """Other places for what a move needs."""

    def test_metadata_in_another_group(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        options = {'dmclone_metadata_volume_group': 'cinder-metadata',
                   'dmclone_region_size': '4'}
        with self.slow_network(other):
            with (self.configured(options, other),
                  self.attached(volume_id, other) as path):
                self.assertIn('dmclone-metadata', other.run(
                    'lvs --noheadings -o lv_name cinder-metadata'))
                self.assertIn(' 8 ', self.clone_status(other, path))
                self.assertEqual(checksum, self.checksum(other, path))
            # The option is back to its default: what is under way is not
            # confused by that.
            with self.attached(volume_id, other) as path:
                self.assertEqual(checksum, self.checksum(other, path))
        self.hydrated(volume_id)


class BlocksTest(base.SetupTest):
    """Disks whose logical blocks have 4096 bytes."""

    GROUP = 'large-blocks'

    @contextlib.contextmanager
    def large_blocks(self, *nodes, **options):
        """Let nodes keep volumes on such a disk for a while."""
        for node in nodes:
            node.run(
                'lvcreate -qq -y -n large -L 3g cinder-metadata && '
                'vgcreate -qq %s $(losetup -b 4096 --find --show '
                '/dev/cinder-metadata/large)' % self.GROUP)
        try:
            with self.configured(dict(options, volume_group=self.GROUP),
                                 *nodes):
                yield
        finally:
            for node in nodes:
                # udev looks at a disk that changes, and a loop device that is
                # open stays.
                node.run('vgremove -qq %s && udevadm settle && '
                         'losetup --detach-all && udevadm settle && '
                         'lvremove -qq -y cinder-metadata/large' % self.GROUP)

    @staticmethod
    def block_size(node, path):
        return int(node.run('blockdev --getss ' + path))

    def _follows(self):
        """Move a volume between nodes, and delete it."""
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.slow_network(other, mbit=200):
            path = user_module.path(self.user.attach(volume_id, other))
            self.assertIn(' clone ', self.clone_status(other, path))
            self.assertEqual(4096, self.block_size(other, path))
            self.assertEqual(4096, self.block_size(
                other, '/dev/disk/by-path/*-iscsi-*'))
            self.assertEqual(checksum, self.checksum(other, path))
            expected = self.checksum_with(other, path, 20, 'large')
            self.write(other, path, 20, 'large')
        self.hydrated(volume_id)
        self.assertEqual(expected, self.checksum(other, path))
        self.end_volume(volume_id)

    def test_tgt(self):
        with self.large_blocks(*self.lab.nodes.values()):
            self._follows()

    def test_lio(self):
        nodes = list(self.lab.nodes.values())
        for node in nodes:
            node.stop('tgtd')
            node.start_service('lio')
        try:
            with self.large_blocks(*nodes, target_helper='lioadm'):
                self._follows()
        finally:
            for node in nodes:
                node.stop('lio')
                node.start_service('tgtd')

    def test_a_node_with_other_blocks(self):
        """A volume stays, and the reason names both sizes."""
        with self.large_blocks(self.lab.node('node1')):
            volume_id, home, checksum = self.filled_volume()
            other = self.other(home)
            with self.attached(volume_id, home) as path:
                mine = self.block_size(home, path)
            with self.assertRaises(user_module.ApiError) as refused:
                self.user.attach(volume_id, other)
            there, = {512, 4096} - {mine}
            self.assertIn('blocks have %d bytes on this node and %d on the '
                          'source' % (there, mine), refused.exception.text)
            self.user.detach_all(volume_id)
            self.user.settled(volume_id, 'available')
            with self.attached(volume_id, home) as path:
                self.assertEqual(checksum, self.checksum(home, path))
            self.end_volume(volume_id)


class ReconcileTest(base.E2ETest):
    """The program for what no row knows."""

    def reconcile(self, node, *options):
        """Return its exit code, and what it prints."""
        code, lines, err = self.program(node, 'reconcile', *options)
        return code, sorted(lines)

    def test_row_is_deleted_and_comes_back(self):
        volume_id, home, before = self.filled_volume()
        self.assertEqual((0, []), self.reconcile(home))
        row = "UPDATE volumes SET deleted = %d WHERE id = '%s'"
        self.lab.sql(row % (1, volume_id))
        handle = 'device dmclone-%s: ' % volume_id
        data = 'logical volume cinder-volumes/volume-%s: kept' % volume_id
        code, lines = self.reconcile(home)
        self.assertEqual((1, handle + 'can be removed'), (code, lines[0]))
        self.assertIn(data, lines[1])
        code, lines = self.reconcile(home, '--remove')
        self.assertEqual((1, handle + 'removed'), (code, lines[0]))
        self.assertIn(data, lines[1])
        code, lines = self.reconcile(home)
        self.assertEqual(1, len(lines))
        self.lab.sql(row % (0, volume_id))
        home.restart('cinder-volume')
        home.wait_ready()
        with self.attached(volume_id, home) as path:
            self.assertEqual(before, self.checksum(home, path))
        self.assertEqual((0, []), self.reconcile(home))
