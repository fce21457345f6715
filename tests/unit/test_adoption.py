# SPDX-License-Identifier: Apache-2.0
"""Volumes of Cinder's LVM driver, as doc/source/admin/adoption.rst says."""

from cinder import objects

from dmclone_driver import exception
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit import test_driver


class AdoptionTestCase(base.CloudTestCase):
    """The first node had Cinder's LVM driver until now."""

    def setUp(self):
        super().setUp()
        self.names = Names(self.volume.id)
        with self.cloud.on(self.a):
            self.a.driver.unmanage(self.row())
        row = self.row()
        row.provider_id = None
        row.save()
        self.a.stop()
        self.remote = test_driver.Remote()

    def adopt(self):
        self.a.start()
        self.a.parts.connections._target_driver = self.remote
        self.cloud.settle()

    def handle(self, node):
        return node.kernel.get(Names(self.row().name_id).path())

    def test_device(self):
        self.assertIsNone(self.handle(self.a))
        self.adopt()
        self.assertIsNotNone(self.handle(self.a))
        self.assertEqual(self.names.path(),
                         self.cloud.attach(self.volume, self.a))

    def test_moves(self):
        self.adopt()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_snapshot_stays(self):
        """A snapshot that Cinder's LVM driver took is found after a move."""
        record = self.snapshot_row()
        self.adopt()
        with self.cloud.on(self.a):
            logical_volumes.take_snapshot(
                self.a.backend.logical_volume(self.names),
                '_snapshot-' + record.id)
        self.cloud.attach(self.volume, self.b)
        found = objects.Snapshot.get_by_id(self.context, record.id)
        self.assertEqual(self.a.pool, snapshot_rows.host_of(found))

    def was_attached(self):
        """Leave what Cinder leaves of an attachment over iSCSI."""
        row = self.row()
        export = self.remote.create_export(self.context, row,
                                           self.names.path())
        row.provider_location = export['location']
        row.provider_auth = export['auth']
        row.save()

    def test_was_attached(self):
        self.was_attached()
        self.adopt()
        self.assertIsNone(self.row().provider_location)
        self.assertIsNone(self.row().provider_auth)
        self.assertIsNone(self.remote.path)
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def keeps_export(self):
        self.was_attached()
        self.adopt()
        self.assertIsNotNone(self.row().provider_location)
        self.assertIsNotNone(self.remote.path)
        error = self.assertRaises(exception.MoveRefused, self.cloud.attach,
                                  self.volume, self.b)
        self.assertIn('it is in use over iSCSI', error.msg)

    def test_is_being_copied(self):
        """The export of a task that goes on in another service is kept."""
        row = self.row()
        row.status = 'backing-up'
        row.save()
        self.keeps_export()

    def test_is_migrating(self):
        row = self.row()
        row.migration_status = 'migrating'
        row.save()
        self.keeps_export()
