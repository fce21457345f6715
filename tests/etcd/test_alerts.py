# SPDX-License-Identifier: Apache-2.0
"""The alert about the store of the locks."""

import contextlib

from lab.common import user as user_module
from tests.scenarios.lib import alerting


class LocksTest(alerting.AlertTest):

    @contextlib.contextmanager
    def without_etcd(self, volume_id, node):
        """Request a move while etcd is down."""
        self.lab.control.kill('etcd')
        try:
            with self.assertRaises(user_module.ApiError):
                self.user.attach(volume_id, node)
            yield
        finally:
            self.lab.control.start('etcd')

    def test_etcd_is_down(self):
        volume_id, home, _before = self.filled_volume()
        self.assertFires(self.without_etcd(volume_id, self.other(home)),
                         ends=240, DmcloneLocksUnreachable=home)
