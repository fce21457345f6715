# SPDX-License-Identifier: Apache-2.0
"""A volume of two nodes is attached on a third one."""

import sys
import time

from dmclone_driver.privsep import block
from lab.common import user as user_module
from tests.scenarios.lib import base
from tests.scenarios.lib import operations

#: Seconds until both copies are complete after the first node has returned.
LATER = 400


class ThirdNodeTest(operations.Operations, base.E2ETest):
    """The second node has part of the data, and serves the third one."""

    TO_END = 180

    def setUp(self):
        super().setUp()
        nodes = list(self.lab.nodes.values())
        self.assertGreaterEqual(len(nodes), 3)
        self.first, self.second, self.third = nodes[:3]

    def test_attached_while_the_first_node_is_down(self):
        volume_id, _, _ = self.make(self.first)
        with self.attached(volume_id, self.first) as path:
            expected = self.checksum_with(self.first, path, 20, 'two')
        with self.slow_network(self.second):
            self.move(volume_id, self.second)
            self.assertNotEqual([], self.placeholders(volume_id))
            with self.power_cut(self.first):
                path = self._attach(volume_id)
                self.assertEqual(str(block.COMMAND_TIMEOUT), self.third.run(
                    'cat /sys/block/sd*/device/timeout').strip())
                # What was written on the second node is read from there.
                self.assertEqual('one', self.third.run(
                    'dd if=%s bs=1M skip=20 count=1 iflag=direct '
                    'status=none | head -c 3' % path))
                self.write(self.third, path, 20, 'two')
                # Longer than the kernel waits for a command.
                time.sleep(90)
                self.assertEqual('two', self.third.run(
                    'dd if=%s bs=1M skip=20 count=1 iflag=direct '
                    'status=none | head -c 3' % path))
                self.assertIn('clone', self.clone_status(self.third, path))
        # It waits for what is not copied yet.
        self.assertEqual(expected, self.checksum(self.third, path,
                                                 timeout=LATER))
        self.hydrated(volume_id, timeout=LATER)
        self.assertEqual(expected, self.checksum(self.third, path))
        self.user.detach_all(volume_id)
        self.user.settled(volume_id, 'available')

    def test_refused_while_a_migration_is_prepared(self):
        """The volume has an attachment on two nodes already."""
        volume_id, _, _ = self.make(self.first)
        instance = user_module.uuid4()
        path = user_module.path(self.user.attach(volume_id, self.first,
                                                 instance))
        self.user.attach(volume_id, self.second, instance)
        prepared = self.placeholders(volume_id)
        before = [each['id'] for each in self.user.attachments(volume_id)]
        # In one request, as Nova does for a migration. If the attachment is
        # reserved before, Cinder itself refuses its connector
        # (API.attachment_update in cinder/volume/api.py).
        with self.assertRaises(user_module.ApiError) as error:
            self.user.attach(volume_id, self.third, instance)
        self.assertIn('already prepared', error.exception.text)
        for each in self.user.attachments(volume_id):
            if each['id'] not in before:
                self.user.detach(each['id'])
        self.assertEqual(prepared, self.placeholders(volume_id))
        self.assertIs(self.first, self.home(volume_id))
        self.write(self.first, path, 20, 'one')

    def _attach(self, volume_id):
        """Attach the volume on the third node; returns its path there."""
        began = time.monotonic()
        path = user_module.path(self.user.attach(volume_id, self.third))
        print('Attached on a third node while that of its source is down, in '
              '%.1f s' % (time.monotonic() - began), file=sys.stderr)
        self.assertIs(self.third, self.home(volume_id))
        self.assertEqual(2, len(self.placeholders(volume_id)))
        return path
