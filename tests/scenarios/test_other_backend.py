# SPDX-License-Identifier: Apache-2.0
"""Volumes of instances that get a type of another backend.

Cinder creates a volume there, and has Nova copy the data while the guest
writes. The driver is not asked.
"""

import time

from lab import wait
from tests.scenarios.lib import live
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations

# Seconds until a guest's volume is copied, as QEMU does.
TO_COPY = 420


@slow
class InUseTest(operations.Operations, live.LiveTest):
    """A guest writes to three volumes, which leave the driver one by one.

    One of them comes back.
    """

    TO_END = 180

    def test_retyped(self):
        server_id, console, volume_ids = self.writing_server(more=2)
        old = self.home(volume_ids[0])
        new = self.other(old)
        self.second_backend(new)
        self.addCleanup(self.servers.delete_all)
        without_source, hydrating, at_rest = volume_ids
        # With it a migration takes long enough.
        with self.slow_network(new, mbit=40):
            self._refused_while_prepared(server_id, console, at_rest, new)
            for volume_id in volume_ids:
                self.assertNotEqual([], self.placeholders(volume_id))
            with self.power_cut(old):
                self._begin(without_source)
                time.sleep(operations.AWAY)
                self.assertEqual('migrating',
                                 self.migration_status(without_source))
            self._begin(hydrating)
            self.assertNotEqual([], self.placeholders(hydrating))
        for volume_id in without_source, hydrating:
            self._done(volume_id, console, new)
        self.hydrated(at_rest)
        self._begin(at_rest)
        self._done(at_rest, console, new)
        self._returns(at_rest, console, new)
        for volume_id in volume_ids:
            self.assertEqual([], console.complaints(volume_id))
        self.servers.delete(server_id)
        self.check_records(at_rest, console)
        for volume_id in without_source, hydrating:
            wait.until(lambda volume_id=volume_id: self.user.volume(
                volume_id)['status'] == 'available',
                'volume %s to be detached' % volume_id, 60)
            self.compare(*self.lvm_disk(volume_id), volume_id,
                         console.last(volume_id))

    def _refused_while_prepared(self, server_id, console, volume_id, new):
        """Check that Nova refuses it, and that the migration goes on."""
        self.begin_migration(server_id, new)
        self.assertEqual(2, len(self.user.attachments(volume_id)))
        self.retype(volume_id, operations.LVM, 'on-demand')
        self.retyped(volume_id, 'dmclone', status='in-use',
                     migration='error', timeout=120)
        self.servers.migration_ended(server_id, 'completed', timeout=600)
        self.servers.settled(server_id, 'ACTIVE')
        console.wait_writing(volume_id, new.name)
        self.assertIs(new, self.home(volume_id))
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM volumes WHERE NOT deleted AND host LIKE "
            "'%@lvm#%'"), 'the copy that was given up to be deleted', 60)

    def _begin(self, volume_id):
        """Request another type, and wait until Cinder copies."""
        self.retype(volume_id, operations.LVM, 'on-demand')
        wait.until(lambda: self.migration_status(volume_id) != 'starting' and
                   self.lab.sql("SELECT id FROM volumes WHERE NOT deleted AND "
                                "migration_status = 'target:%s' AND status "
                                "NOT IN ('creating', 'available')"
                                % volume_id),
                   'Nova to copy volume %s' % volume_id, 120,
                   log=lambda: '%s' % self.lab.sql(
                       'SELECT id, status, migration_status FROM volumes '
                       'WHERE NOT deleted'))

    def _done(self, volume_id, console, node):
        self.retyped(volume_id, operations.LVM, status='in-use',
                     migration='success', timeout=TO_COPY)
        self.assertIs(node, self.home(volume_id))
        console.wait_writing(volume_id, node.name)
        # What the volume was on this driver is deleted, with its source.
        self.hydrated(volume_id)

    def _returns(self, volume_id, console, node):
        """Retype a volume of the other backend to this driver, in use."""
        self.retype(volume_id, 'dmclone', 'on-demand')
        self.retyped(volume_id, 'dmclone', status='in-use',
                     migration='success', timeout=TO_COPY)
        # Cinder may have created it on any node.
        self.assertIs(node, self.home(volume_id))
        console.wait_writing(volume_id, node.name)
        self.hydrated(volume_id)
