# SPDX-License-Identifier: Apache-2.0
"""What a guest discards is free again in the thin pool of its node."""

import time

from lab.common import pools
from lab.common import volumes
from lab import wait
from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow

MIB = 1 << 20
#: Where a writer finds the mark, and how much it discards then: see
#: lab/templates/guest-writer.
_MARK = ('printf "dmclone trims" | dd of={path} bs=1M seek=800 '
         'conv=nocreat,notrunc,fsync status=none')
TRIMMED = 8 * MIB


@slow
class DiscardsTest(live.LiveTest):
    """A guest that discards all the time."""

    def end(self):
        self.servers.delete_all()
        self.end_volumes()

    def trimming_server(self, node):
        """Boot a server from a volume whose blocks are all allocated."""
        with self.created_on(node):
            volume_id, _home, _checksum = self.filled_volume()
        with self.attached(volume_id, node) as path:
            self.allocate(node, path, volumes.DATA)
            node.run(_MARK.format(path=path))
        self.user.make_bootable(volume_id, self.servers.boot_properties())
        server_id, console = self.boot(node, volume_id)
        console.wait_writing(volume_id)
        return server_id, console, volume_id

    @staticmethod
    def freed(node):
        """Return how many bytes of the only volume are not allocated."""
        size, = pools.volumes(node).values()
        return 1024 * MIB - size

    def wait_until_freed(self, node):
        wait.until(lambda: self.freed(node) >= TRIMMED - MIB,
                   'what the guest discards to be free', 60)

    def wait_for_discards(self, console, volume_id):
        """Wait until the guest has discarded twice."""
        last = console.last(volume_id)
        wait.until(lambda: console.last(volume_id) >= last + 96,
                   'the guest to write 96 records', 120)

    def test_guest(self):
        """QEMU tries no more after a failure, until it opens the disk again.

        While a volume hydrates, discards fail (handle_aiocb_discard in QEMU's
        block/file-posix.c).
        """
        nodes = list(self.lab.nodes.values())
        with pools.on(nodes, self.end, report_discard_supported='true'):
            old = self.lab.node('node1')
            new = self.other(old)
            server_id, console, volume_id = self.trimming_server(old)
            self.wait_until_freed(old)
            with self.slow_network(new, mbit=100):
                self.migrate(server_id, console, new, volume_id)
                self.wait_for_discards(console, volume_id)
                self.assertNotEqual([], self.placeholders(volume_id))
            self.hydrated(volume_id)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                self.assertLess(self.freed(new), MIB)
            self.servers.action(server_id, 'reboot', {'type': 'HARD'})
            self.servers.settled(server_id, 'ACTIVE')
            self.wait_until_freed(new)
            self.assertEqual([], console.complaints(volume_id))
            self.check_after_delete(server_id, console, volume_id)
