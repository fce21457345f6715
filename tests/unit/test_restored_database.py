# SPDX-License-Identifier: Apache-2.0
"""A database that was restored, or has lost its last transactions.

The nodes keep the data on their disks, with any rows and after any reboots.
"""

import itertools
from unittest import mock

from cinder import exception as cinder_exception
from cinder import objects
from cinder.tests.unit import fake_constants
import ddt

from dmclone_driver import exception
from dmclone_driver.move import records
from dmclone_driver.move import row_fields
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit import base
from tests.unit import test_driver

FIELDS = row_fields.EXCHANGED + (
    'replication_driver_data', 'status', 'migration_status')
#: When the rows were saved, and the state of the volume when they were
#: restored.
SAVED = ('before', 'prepared', 'switched')
REACHED = ('hydrating', 'complete')
REBOOTED = ((), ('a',), ('b',), ('a', 'b'))


@ddt.ddt
class RestoredTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.saved = {}
        self.home = Names(self.volume.id)

    def save(self, when):
        self.saved[when] = {
            row.id: {field: getattr(row, field) for field in FIELDS}
            for row in self.cloud.rows()}

    def live(self, reached):
        """Move the volume by a live migration; its guest writes."""
        self.cloud.attachment(self.volume, self.a)
        self.save('before')
        self.path = self.cloud.attach(self.volume, self.b)
        self.there, = (Names(row.id) for row in self.cloud.placeholders())
        self.save('prepared')
        self.cloud.detach(self.volume, self.a)
        self.save('switched')
        self.assertTrue(self.b.kernel.write(self.path))
        if reached == 'complete':
            self.cloud.watch(3)
            self.assertEqual('linear', self.b.kernel.get(self.path).kinds)

    def opened(self):
        """Return the id that the tag of an opened volume holds, on B."""
        with self.cloud.on(self.b):
            return self.b.backend.logical_volume(self.there).tagged(
                logical_volumes.OPENED_TAG)

    @ddt.data('switched', 'complete')
    def test_peer_has_rebooted_while_prepared(self, reached):
        """Its start builds no devices: the switchover does, with a tag."""
        self.cloud.attachment(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        self.there, = (Names(row.id) for row in self.cloud.placeholders())
        self.save('prepared')
        self.b.reboot()
        self.b.start()
        self.cloud.settle()
        self.cloud.detach(self.volume, self.a)
        self.assertTrue(self.b.kernel.write(path))
        self.assertEqual(self.volume.id, self.opened())
        if reached == 'complete':
            self.cloud.watch(3)
        self.restore('prepared')
        self.restart('b')
        self.assertIn('volume-' + self.there.name_id, self.b.lvm.names())
        self.assertEqual(self.volume.id, self.opened())

    def test_tag_that_was_lost(self):
        """A start sets it before it opens the gate of a written clone."""
        self.live('hydrating')
        self.b.lvm.at('/dev/volumes/volume-' + self.there.name_id)[
            'tags'].discard(logical_volumes.OPENED_TAG + self.volume.id)
        self.assertIsNone(self.opened())
        self.restart('b')
        self.assertEqual(self.volume.id, self.opened())

    def test_old_export_of_a_volume_that_has_moved(self):
        """Its source is not taken for what an old attachment has left."""
        row = self.row()
        row.provider_location = test_driver.Remote.location(row)
        row.save()
        self.save('before')
        row.provider_location = None
        row.save()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(hydrate=False)
        exports = list(self.a.target.exports)
        self.assertNotEqual([], exports)
        self.restore('before')
        for record in self.row().volume_attachment:
            record.destroy()
        self.a.stop()
        self.a.start()
        remote = self.a.parts.connections._target_driver = (
            test_driver.Remote())
        remote.path = self.home.path()
        self.cloud.settle()
        self.assertEqual(exports, list(self.a.target.exports))
        self.assertIsNotNone(remote.path)

    def restore(self, when):
        """Restore the saved rows."""
        rows = self.saved[when]
        for row in self.cloud.rows():
            if row.id not in rows:
                records.destroy(self.context, row.id)
        with db_api.main_context_manager.writer.using(self.context):
            for row_id, fields in rows.items():
                self.context.session.query(models.Volume).filter_by(
                    id=row_id).update(dict(fields, deleted=False,
                                           deleted_at=None))

    def restart(self, rebooted):
        for name in 'ab':
            node = getattr(self, name)
            (node.reboot if name in rebooted else node.stop)()
        for node in (self.a, self.b):
            node.start()
        self.cloud.settle()

    def assertKept(self, reached):
        """Check that the data exists, and that there is no second writer."""
        self.assertIn('volume-' + self.there.name_id, self.b.lvm.names())
        if reached == 'hydrating':
            self.assertIn(self.there.metadata, self.b.lvm.names())
            bitmap, = self.b.lvm.bitmaps.values()
            self.assertEqual(1, bitmap['hydrated'])
            self.assertIn(self.volume.name, self.a.lvm.names())
        handle = self.a.kernel.get(self.home.path())
        if handle:
            self.assertTrue(handle.sealed or handle.read_only)

    @ddt.data(*itertools.product(SAVED, REACHED, REBOOTED))
    @ddt.unpack
    def test_nothing_is_lost(self, saved, reached, rebooted):
        self.live(reached)
        self.restore(saved)
        self.restart(rebooted)
        self.assertKept(reached)
        self.cloud.watch(2, hydrate=False)
        self.assertKept(reached)
        for act in (self.attach_at_the_old_home, self.extend, self.delete,
                    self.detach):
            with self.cloud.on(self.a):
                try:
                    act()
                except cinder_exception.CinderException as error:
                    self.assertNotEqual('', error.msg)
            self.cloud.settle()
            self.assertKept(reached)
        self.restart(rebooted)
        self.cloud.watch(2, hydrate=False)
        self.assertKept(reached)

    def attach_at_the_old_home(self):
        """Attach as Nova does, which starts the old guest again."""
        if self.row().host == self.a.pool:
            self.a.driver.initialize_connection(self.row(), self.a.connector)
            self.assertIsNone(self.a.kernel.get(self.home.path()))

    def extend(self):
        row = self.row()
        if row.host == self.a.pool:
            self.a.driver.extend_volume(row, 2)
            self.fail('extended')

    def delete(self):
        row = self.row()
        if row.host == self.a.pool and (
                self.volume.name in self.a.lvm.names()):
            # Without the logical volume there is nothing to delete.
            self.a.driver.delete_volume(row)
            self.fail('deleted')

    def detach(self):
        """Delete the new attachment, too."""
        row = self.row()
        if row.host == self.a.pool:
            self.a.driver.terminate_connection(row, self.b.connector)

    @ddt.data(*itertools.product((None, fake_constants.GROUP_ID),
                                 ('stopped', 'rebooted', 'down')))
    @ddt.unpack
    def test_home_that_was_never_told(self, group, peer):
        """The home was down when the guest began to write."""
        self.cloud.attachment(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        self.there, = (Names(row.id) for row in self.cloud.placeholders())
        self.save('prepared')
        self.a.stop()
        self.b.kernel.write(path)
        self.cloud.watch(2, hydrate=False)
        self.assertEqual(self.b.pool, self.row().host)
        self.restore('prepared')
        (self.b.reboot if peer == 'rebooted' else self.b.stop)()
        if peer != 'down':
            self.b.start()
        self.a.start()
        row = self.row()
        if row.host == self.a.pool:
            with self.cloud.on(self.a), mock.patch.object(
                    objects.Volume, 'group_id',
                    mock.PropertyMock(return_value=group)):
                error = self.assertRaises(
                    cinder_exception.CinderException,
                    self.a.driver.delete_volume, row)
            # In a group Cinder would destroy the row of a busy volume.
            self.assertEqual(not group, isinstance(
                error, cinder_exception.VolumeIsBusy))
        self.assertIn(self.volume.name, self.a.lvm.names())
        self.assertIn(self.there.metadata, self.b.lvm.names())

    @ddt.data(*REACHED)
    def test_refusal_names_the_volume(self, reached):
        self.live('hydrating')
        self.restore('before')
        for act in (self.attach_at_the_old_home, self.extend):
            with self.cloud.on(self.a):
                error = self.assertRaises(exception.MovedAway, act)
            for part in (self.volume.id, 'dmclone-reconcile'):
                self.assertIn(part, error.msg)

    @ddt.data(*REBOOTED)
    def test_source_that_is_gone_already(self, *rebooted):
        """The rows are from the time of the hydration."""
        self.live('complete')
        self.restore('switched')
        self.restart(rebooted)
        self.cloud.watch(2)
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(self.b.pool, self.row().host)

    def test_source_that_is_gone_already_without_a_restart(self):
        self.live('complete')
        self.restore('switched')
        with self.cloud.on(self.b):
            self.b.driver.extend_volume(self.row(), 2)
        self.assertEqual(2 * 1024 ** 3, self.b.kernel.get(self.path).size)

    def test_newer_rows_come_back(self):
        self.live('hydrating')
        self.save('now')
        self.restore('before')
        self.restart(('a', 'b'))
        self.cloud.watch(1, hydrate=False)
        self.restore('now')
        self.restart(())
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)
        self.assertEqual([], self.cloud.leftovers())
