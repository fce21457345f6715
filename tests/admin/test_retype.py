# SPDX-License-Identifier: Apache-2.0
"""A retype that waits in the queue of a home while the volume moves.

Cinder saves the host that its scheduler has chosen, even if the volume has
moved meanwhile (VolumeManager.retype in cinder/volume/manager.py).
"""

from lab import wait
from tests.admin import types
from tests.scenarios.lib import base

#: Seconds until the saved host is corrected: Cinder requests a backend's
#: capacities each minute.
TO_TAKE_BACK = 120


class RetypeTest(base.TwoAttachmentsTest):
    """The volume's host is corrected, and the volume can be used."""

    def test_types_that_differ(self):
        self.retype(types.OTHER)

    def test_types_of_equal_content(self):
        """Cinder does not call the driver at all."""
        self.retype(types.EQUAL)

    def retype(self, name):
        types.make(self.user)
        expected = self.checksum_with(self.old, self.old_path, 30, 'new')
        self.old.stop('cinder-volume')
        try:
            self.user.request(
                'POST', '/volumes/%s/action' % self.volume_id, {'os-retype': {
                    'new_type': name, 'migration_policy': 'never'}})
            self.assertEqual('retyping', self.status())
            self.write(self.new, self.new_path, 30, 'new')
            self.assertEqual(self.new, self.home(self.volume_id))
            self.assertEqual('retyping', self.status())
        finally:
            self.old.start_service('cinder-volume')
            self.old.wait_ready()
        wait.until(lambda: self.status() == 'in-use', 'the retype', 60)
        self.assertEqual(name, self.user.volume(self.volume_id)[
            'volume_type'])
        wait.until(lambda: self.home(self.volume_id) is self.new,
                   'the host to be corrected', TO_TAKE_BACK)
        self.assertEqual(expected, self.checksum(self.new, self.new_path))
        self.write(self.new, self.new_path, 30, 'new')
        self.user.detach(self.first['id'])
        self.hydrated(self.volume_id)
        self.user.detach(self.second['id'])
        with self.attached(self.volume_id, self.new) as path:
            self.assertEqual(expected, self.checksum(self.new, path))

    def status(self):
        return self.user.volume(self.volume_id)['status']
