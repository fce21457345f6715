# SPDX-License-Identifier: Apache-2.0
"""Benchmarks with snapshots, and the room that these need."""

from lab.common import user as user_module
from lab.common import volumes
from lab import errors
from lab import lab


class WithSnapshots(volumes.Volumes):
    """Volume operations of a benchmark that takes snapshots.

    It needs a laboratory without volumes.
    """

    TO_END = 240

    def __init__(self):
        self.lab = lab.Lab.load()
        self.lab.check()
        if self.lab.settings.bare or self.lab.settings.driver not in (
                'dmclone', 'both'):
            raise errors.LabError('this benchmark needs a laboratory with '
                                  'this driver')
        for node in self.lab.nodes.values():
            node.wait_ready()
        self.user = user_module.User(self.lab)

    def end_snapshots(self):
        """Delete all snapshots."""
        for snapshot_id, in self.lab.sql(
                'SELECT id FROM snapshots WHERE deleted = 0'):
            self.user.delete_snapshot(snapshot_id, self.TO_END)

    def clean_up(self):
        """Delete all snapshots, too."""
        self.end_snapshots()
        super().clean_up()

    def hydrating(self):
        """Return the number of sources that volumes still read."""
        (number,), = self.lab.sql(
            "SELECT COUNT(*) FROM volumes WHERE deleted = 0 AND "
            "migration_status LIKE 'dmclone:%'")
        return int(number)

    @staticmethod
    def free(node):
        """Return the free GiB of a node's volume group."""
        return float(node.run('vgs --noheadings --units g --nosuffix -o '
                              'vg_free cinder-volumes'))
