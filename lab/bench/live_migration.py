# SPDX-License-Identifier: Apache-2.0
"""Measure a guest's live migration: tools/bench live-migration.

The same guest is migrated with a volume of this driver and with a volume of
Cinder's LVM driver over iSCSI, alternately, in one run and one laboratory
(`tools/lab up --nova --driver both`).
"""

import contextlib
import re
import time

from lab.bench import both_drivers
from lab.bench import ratios
from lab.common import consoles
from lab import wait

PREPARED = re.compile(r'\[instance: (\S+)\].* Took (\S+) seconds for '
                      r'pre_live_migration on destination')
KINDS = ('dmclone', 'lvm')
PATH = 'bench-live-migration.json'


def base_of(name):
    """Return what a measurement is compared with, or None."""
    base = 'lvm, ' + ratios.parts(name)[1]
    return None if name == base else base


class Bench(both_drivers.Bench):
    """Live migrations of a guest with one volume."""

    def round(self):
        """Measure both drivers once."""
        for kind in KINDS:
            with contextlib.ExitStack() as made:
                # Not clean_up(): the other driver keeps its thin pool.
                made.callback(self.end_volumes)
                made.callback(self.servers.delete_all)
                self._migrate_once(kind, made)

    def _migrate_once(self, kind, made):
        volume_id = self.user.create_volume(volume_type=kind)['id']
        old = self.home(volume_id)
        new = self.other(old)
        self.user.make_bootable(volume_id, self.servers.boot_properties())
        server_id = self.servers.boot(old, volume_id)
        console = consoles.Console(self.lab, server_id)
        made.callback(console.close)
        console.wait_writing(volume_id)
        begin = time.monotonic()
        self.servers.live_migrate(server_id, new)
        self.servers.migration_ended(server_id, 'completed')
        done = time.monotonic()
        console.wait_writing(volume_id, new.name)
        gap, at = console.gap(volume_id, begin)
        arrived = console.acknowledged(volume_id, begin, new.name)[0].at
        for what, seconds in (
                ('preparation on the destination',
                 self._preparation(old, server_id)),
                ('request to end of the migration', done - begin),
                ('request to first record on the new node', arrived - begin),
                ('longest gap between two records', gap)):
            self.results.note('%s, %s' % (kind, what), seconds)
        if kind == 'dmclone':
            self.hydrated(volume_id)

    @staticmethod
    def _preparation(old, server_id):
        """Return the time that Nova measured, in seconds."""
        def found():
            return [seconds for server, seconds in
                    PREPARED.findall(old.log('nova-compute'))
                    if server == server_id]
        return float(wait.until(found, "Nova's time of preparation", 10)[-1])

    def report(self):
        """Print medians, spreads and ratios, and save them."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
