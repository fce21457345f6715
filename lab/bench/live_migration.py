# SPDX-License-Identifier: Apache-2.0
"""What a live migration costs a guest: tools/bench live-migration.

The same guest, with a volume of this driver and with one of Cinder's own LVM
driver over iSCSI, is migrated in turn, in one run and one laboratory
(`tools/lab up --nova --driver both`).
"""

import re

from lab.bench import measurements
from lab import errors
from lab import wait
from tests.live import base
from tests.live import servers as servers_module

PREPARED = re.compile(r'\[instance: (\S+)\].* Took (\S+) seconds for '
                      r'pre_live_migration on destination')
KINDS = ('dmclone', 'lvm')


class Bench(base.LiveTest):
    """The live tests' tools, without a test."""

    def __init__(self):
        super().__init__()
        self.setUp()
        if self.lab.settings.driver != 'both':
            raise errors.LabError('this needs `tools/lab up --nova --driver '
                                  'both`')
        self.servers = servers_module.Servers(self.lab)
        self.results = measurements.Measurements()

    def round(self):
        """Measure both drivers once."""
        for kind in KINDS:
            try:
                self._migrate_once(kind)
            finally:
                self.doCleanups()

    def _migrate_once(self, kind):
        volume_id = self.user.create_volume(volume_type=kind)['id']
        old = self.home(volume_id)
        new = self.other(old)
        self.user.make_bootable(volume_id, self.servers.boot_properties())
        server_id, console = self.boot(old, volume_id)
        self.addCleanup(self._clean_up)
        self.addCleanup(self._delete_servers)
        console.wait_writing(volume_id)
        begin = self.now()
        self.servers.live_migrate(server_id, new)
        self.servers.migration_ended(server_id, 'completed')
        done = self.now()
        console.wait_writing(volume_id, new.name)
        gap, at = console.gap(volume_id, begin)
        arrived = console.acknowledged(volume_id, begin, new.name)[0].at
        for what, seconds in (
                ('preparation on the destination',
                 self._preparation(old, server_id)),
                ('request to end of the migration', done - begin),
                ('request to first record on the new node', arrived - begin),
                ('longest gap between two records', gap)):
            self.results.note('%s, %s' % (what, kind), seconds)
        if kind == 'dmclone':
            self.hydrated(volume_id)

    @staticmethod
    def _preparation(old, server_id):
        """Return what Nova itself measured, in seconds."""
        def found():
            return [seconds for server, seconds in
                    PREPARED.findall(old.log('nova-compute'))
                    if server == server_id]
        return float(wait.until(found, "Nova's time of preparation", 10)[-1])

    def report(self):
        """Print medians, spreads and ratios."""
        self.results.report(
            (what + ', dmclone', what + ', lvm') for what in (
                'preparation on the destination',
                'request to end of the migration',
                'longest gap between two records'))
