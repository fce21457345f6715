# SPDX-License-Identifier: Apache-2.0
"""The command reconcile --restore: rows get a lost switchover again."""

import ddt

from dmclone_driver import exception
from dmclone_driver.move import leftovers
from dmclone_driver.move import plan
from dmclone_driver.move import records
from dmclone_driver.move import restorer
from dmclone_driver.releases import db_api
from tests.unit import base

FIELDS = ('host', 'status', 'migration_status', 'replication_driver_data',
          '_name_id', 'provider_id', 'provider_location', 'provider_auth',
          'service_uuid', 'availability_zone', 'cluster_name', 'use_quota',
          'size', 'display_name', 'project_id')


class RestorerTestCase(base.CloudTestCase):

    def picture(self):
        """Return the columns of all rows of volumes."""
        return {row.id: {field: row[field] for field in FIELDS}
                for row in self.cloud.rows()}

    def put_back(self, picture):
        """Restore the rows to a picture."""
        for row in self.cloud.rows():
            if row.id in picture:
                row.update(picture[row.id])
                row.save()
            else:
                db_api.volume_destroy(self.context, row.id)

    def restore(self, node, do_it=True):
        """Run the command; returns its lines."""
        with self.cloud.on(node):
            return [act.line(do_it) for act in restorer.Restorer(
                node.backend).run(self.context, self.volume.id, do_it)]

    def restored(self, node):
        """Run the command as a dry run, then do it; returns its line."""
        before = self.picture()
        said, = self.restore(node, do_it=False)
        self.assertEqual(before, self.picture())
        done, = self.restore(node)
        self.assertEqual(said.replace('to do', 'done', 1), done)
        return done

    def refused(self, node):
        before = self.picture()
        error = self.assertRaises(plan.Refused, self.restore, node)
        self.assertEqual(before, self.picture())
        return str(error)

    def restart(self, node, reboot=False):
        node.reboot() if reboot else node.stop()
        node.start()
        self.cloud.settle()

    def detach_all(self):
        for record in self.row().volume_attachment:
            record.destroy()


@ddt.ddt
class ForgottenTestCase(RestorerTestCase):
    """The rows are from before the volume's move."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.a)
        before = self.picture()
        self.path = self.cloud.attach(self.volume, self.b)
        prepared = self.picture()
        self.cloud.detach(self.volume, self.a)
        self.now = self.picture()
        self.placeholder, = self.cloud.placeholders()
        self.restored_to = {'idle': before, 'prepared': prepared}

    def forget(self, when):
        self.put_back(self.restored_to[when])

    def assertUpToDate(self):
        """Check that the rows are the newest, except for the export."""
        self.assertEqual(*[{row: {
            field: value for field, value in fields.items()
            if not field.startswith('provider_')}
            for row, fields in picture.items()}
            for picture in (self.now, self.picture())])
        self.assertEqual(self.b.pool, self.row().provider_id)
        self.assertEqual(self.a.pool, self.cloud.row(
            self.placeholder.id).provider_id)

    @ddt.data('idle', 'prepared')
    def test_services_run(self, when):
        self.forget(when)
        self.assertIn('on ' + self.b.host, self.restored(self.b))
        self.assertUpToDate()
        self.restart(self.b)
        self.cloud.watch(3)
        self.detach_all()
        # The restored row does not have the session.
        with self.cloud.on(self.b):
            leftovers.Leftovers(self.b.backend).run(self.context, True)
        self.assertIdle(self.b)

    @ddt.data('idle', 'prepared')
    def test_nodes_were_rebooted(self, when):
        """Each node keeps its logical volumes and metadata."""
        self.b.kernel.write(self.path)
        hydrated = self.b.kernel.get(self.path).clone.bitmap['hydrated']
        self.assertNotEqual(0, hydrated)
        self.forget(when)
        self.detach_all()
        for node in (self.a, self.b):
            self.restart(node, reboot=True)
        self.cloud.watch(3)
        self.restored(self.b)
        for node in (self.b, self.a):
            self.restart(node)
        self.assertEqual(hydrated, self.b.kernel.get(
            self.path).clone.bitmap['hydrated'])
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_aborted(self):
        self.forget('prepared')
        with self.cloud.on(self.b):
            records.abort(self.context, self.volume.id,
                          self.placeholder.id)
        self.restored(self.b)
        self.assertUpToDate()

    def test_placeholder_was_deleted(self):
        self.forget('prepared')
        records.abort(self.context, self.volume.id, self.placeholder.id)
        records.destroy(self.context, self.placeholder.id)
        self.restored(self.b)
        self.assertUpToDate()

    def test_complete(self):
        """The service releases the source."""
        self.cloud.watch(2)
        self.forget('idle')
        self.restored(self.b)
        self.restart(self.b)
        self.detach_all()
        self.cloud.watch()
        self.assertIdle(self.b)

    def test_complete_and_old_home_is_gone(self):
        self.cloud.watch(2)
        self.forget('idle')
        self.a.die()
        self.restored(self.b)
        self.assertEqual(self.b.pool, self.row().host)

    def test_old_home_is_silent(self):
        """It is refused, since the source is not known."""
        self.forget('idle')
        self.a.stop()
        self.assertIn('not known', self.refused(self.b))

    def test_already_done(self):
        self.assertIn('already', self.refused(self.b))
        self.forget('idle')
        self.restored(self.b)
        self.assertIn('already', self.refused(self.b))

    def test_not_its_home(self):
        self.forget('idle')
        self.assertIn('no logical volume', self.refused(self.a))

    def test_source_on_record(self):
        """It is refused for a source, which is not sealed yet."""
        volume = self.row()
        self.detach_all()
        self.cloud.attach(volume, self.a)
        self.b.lvm.volumes['/dev/volumes/volume-%s' % self.placeholder.id][
            'tags'] = {'dmclone.opened=' + volume.id}
        self.assertIn('already stands', self.refused(self.b))

    def test_another_move_is_prepared(self):
        """It is refused, as if the old home did not know the move."""
        self.forget('idle')
        row = self.row()
        row.replication_driver_data = 'another'
        row.save()
        self.assertIn('another', self.refused(self.b))

    def test_volume_is_not_in_the_database(self):
        self.forget('idle')
        db_api.volume_destroy(self.context, self.volume.id)
        self.assertIn('not in the database', self.refused(self.b))

    def test_changed_meanwhile(self):
        self.forget('idle')
        restore = records.restore

        def too_late(context, volume, *args):
            row = self.row()
            row.replication_driver_data = 'another'
            row.save()
            return restore(context, volume, *args)

        self.patch('dmclone_driver.move.records.restore', new=too_late)
        line, = self.restore(self.b)
        self.assertIn('not done', line)
        self.assertEqual(self.a.pool, self.row().host)


class ChainTestCase(RestorerTestCase):
    """The rows are from before two moves."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()
        before = self.picture()
        for node in (self.b, self.c):
            self.cloud.attach(self.volume, node)
            self.detach_all()
        self.now = self.picture()
        self.put_back(before)

    def test_in_order(self):
        self.assertIn('first', self.refused(self.c))
        self.assertIn('next', self.restored(self.b))
        self.restored(self.c)
        self.assertEqual(
            *[{row: (fields['host'], fields['_name_id'],
                     fields['replication_driver_data'])
               for row, fields in picture.items()}
              for picture in (self.now, self.picture())])
        for node in (self.a, self.b, self.c):
            self.restart(node, reboot=True)
        self.cloud.watch(6)
        self.assertIdle(self.c)

    def test_halfway(self):
        """After the first restore the sealed volume is not usable."""
        self.restored(self.b)
        self.restart(self.b, reboot=True)
        handle = self.b.kernel.get('dmclone-' + self.row().name_id)
        self.assertTrue(handle.sealed)
        self.assertRaises(exception.MovedAway, self.cloud.attach,
                          self.volume, self.b)
        self.assertIn('was moved to', self.refused(self.b))
