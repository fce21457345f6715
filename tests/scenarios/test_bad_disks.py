# SPDX-License-Identifier: Apache-2.0
"""Disks that fail while a volume hydrates."""

import contextlib

from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from lab.common import leftovers
from lab.common import user as user_module
from lab import errors
from lab import wait
from tests.scenarios.lib import bad_devices
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow

#: Offset in MiB of the unreadable part of the source.
BAD = 30


@slow
class BadDisksTest(base.E2ETest):
    """The user gets a message; the move continues with a repaired disk."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.home_node, before = self.filled_volume()
        self.node = self.other(self.home_node)
        with contextlib.ExitStack() as stack:
            self.slow = stack.enter_context(contextlib.ExitStack())
            self.slow.enter_context(self.slow_network(self.node))
            self.addCleanup(stack.pop_all().close)
            self.path = user_module.path(
                self.user.attach(self.volume_id, self.node))
            self.expected = self.checksum_with(self.node, self.path, 20,
                                               'one')
            self.write(self.node, self.path, 20, 'one')

    def is_told(self):
        """Check that the stalled hydration is logged and reported."""
        self.slow.close()
        wait.until(lambda: self.user.messages(self.volume_id), 'a message',
                   180)
        self.node.run('grep "Volume %s makes no progress" '
                      '/var/log/lab/cinder-volume.log' % self.volume_id)
        self.assertTrue(self.placeholders(self.volume_id))

    def read_one(self):
        """Return a command that reads an earlier write."""
        return ('set -o pipefail; dd if=%s bs=4096 skip=%d count=1 '
                'iflag=direct status=none | head -c 3' % (
                    self.path, 20 << 8))

    def assert_fails(self, command):
        with self.assertRaises(errors.LabError):
            self.node.run(command)

    def test_source_cannot_be_read(self):
        device = Names(self.volume_id).of(EXPORT)
        with bad_devices.failing(self.home_node, device,
                                 bad_devices.hole(BAD)):
            self.is_told()
            self.assert_fails('dd if=%s of=/dev/null bs=64k skip=%d count=1 '
                              'iflag=direct' % (self.path, BAD * 16))
            self.node.run('dd if=%s of=/dev/null bs=64k skip=%d count=1 '
                          'iflag=direct' % (self.path, BAD * 16 + 1))
        self.hydrated(self.volume_id, timeout=400)
        self.assertEqual(self.expected, self.checksum(self.node, self.path))

    def test_destination_refuses_writes(self):
        device = self.path.rpartition('/')[2] + '-' + GATE
        with bad_devices.failing(self.node, device,
                                 bad_devices.REFUSES_WRITES):
            self.assert_fails('dd if=/dev/zero of=%s bs=64k seek=%d count=1 '
                              'oflag=direct conv=nocreat,notrunc' % (
                                  self.path, BAD * 16))
            self.is_told()
            self.assertEqual('one', self.node.run(self.read_one()))
        self.hydrated(self.volume_id, timeout=400)
        self.assertEqual(self.expected, self.checksum(self.node, self.path))

    @contextlib.contextmanager
    def failing_metadata(self, how):
        """Make the metadata device fail; then repair it, and reboot the node.

        Yields the clone's status.
        """
        device = 'cinder--volumes-' + leftovers.metadata(
            self.node).replace('-', '--')
        expected = self.checksum_with(self.node, self.path, 40, 'two')
        with bad_devices.failing(self.node, device, how):
            with self.assertRaises(errors.LabError):
                self.write(self.node, self.path, 40, 'two')
            wait.until(lambda: self.user.messages(self.volume_id),
                       'a message', 60)
            self.node.run('grep "metadata device of volume %s .* has failed" '
                          '/var/log/lab/cinder-volume.log' % self.volume_id)
            yield self.clone_status(self.node, self.path)
        self.node.cut_power()
        self.node.start()
        self.node.wait_ready()
        # The failed write may have reached the disk: repeat it.
        self.write(self.node, self.path, 40, 'two')
        self.slow.close()
        self.hydrated(self.volume_id, timeout=180)
        self.assertEqual(expected, self.checksum(self.node, self.path))

    def test_metadata_refuses_writes(self):
        with self.failing_metadata(bad_devices.REFUSES_WRITES) as clone:
            self.assertIn(' ro', clone)
            self.assertEqual('one', self.node.run(self.read_one()))

    def test_metadata_fails(self):
        with self.failing_metadata(bad_devices.FAILS) as clone:
            self.assertIn(' Fail', clone)
            self.assert_fails(self.read_one())
