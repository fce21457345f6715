# SPDX-License-Identifier: Apache-2.0
"""Draining a node: all its volumes move to another node at once."""

import concurrent.futures
import sys
import time

from lab.common import user as user_module
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow

VOLUMES = 20
#: Maximum of attempts of an attachment, as by a user of Nova.
ATTEMPTS = 6


@slow
class DrainTest(base.SetupTest):
    """An attachment that times out does not prevent the next attempt."""

    TO_END = 300

    def setUp(self):
        super().setUp()
        self.old = self.lab.node('node1')
        self.new = self.other(self.old)

    def test_all_volumes_at_once(self):
        # Small volumes, so that the moves are measured, not the hydration.
        with self.configured({
                'volume_driver': 'tests.soak.driver.SmallVolumes'},
                self.old, self.new):
            self.create_volumes()
            self.move_volumes()
            for volume_id in self.volumes:
                self.end_volume(volume_id)

    def create_volumes(self):
        """Create all volumes on the node to drain."""
        service = ("UPDATE services SET disabled = %%d WHERE host = "
                   "'%s@dmclone'" % self.new.name)
        self.lab.sql(service % 1)
        try:
            self.volumes = [self.user.create_volume()['id']
                            for _ in range(VOLUMES)]
        finally:
            self.lab.sql(service % 0)

    def move_volumes(self):
        for volume_id in self.volumes:
            self.fill(self.old, '/dev/mapper/dmclone-' + volume_id, mib=1,
                      seed=volume_id)
        before = self.checksums()
        self.seconds = []
        with concurrent.futures.ThreadPoolExecutor(
                VOLUMES, initializer=self.lab.enter) as pool:
            tries = list(pool.map(self.attach, self.volumes))
        self.say(tries)
        for volume_id in self.volumes:
            self.assertEqual(self.new, self.home(volume_id))
            self.hydrated(volume_id, 600)
        self.assertEqual(before, self.checksums())

    def attach(self, volume_id):
        """Attach until that succeeds; returns the number of attempts.

        Like Nova, leaves the records of failed attempts.
        """
        user, instance = user_module.User(self.lab), user_module.uuid4()
        for attempt in range(1, ATTEMPTS + 1):
            begun = time.monotonic()
            try:
                user.attach(volume_id, self.new, instance)
                return attempt
            except user_module.ApiError as error:
                self.assertIn(error.status, (400, 409, 500, 504), error)
            finally:
                self.seconds.append(time.monotonic() - begun)
        self.fail('volume %s was not attached in %d attempts' % (
            volume_id, ATTEMPTS))

    def say(self, tries):
        """Print the figures, with which a drain can be planned."""
        print('%d volumes to one node at once: attempts %s, seconds per '
              'attempt %.0f to %.0f' % (
                  VOLUMES, sorted(tries), min(self.seconds),
                  max(self.seconds)), file=sys.stderr)

    def checksums(self):
        return [self.checksum(self.home(volume_id), self.path(volume_id), 1)
                for volume_id in self.volumes]

    def path(self, volume_id):
        (name_id,), = self.lab.sql(
            "SELECT COALESCE(_name_id, id) FROM volumes WHERE id = '%s'"
            % volume_id)
        return '/dev/mapper/dmclone-' + name_id
