# SPDX-License-Identifier: Apache-2.0
"""Leftovers are removed, except for data that may be needed."""

import ddt

from dmclone_driver.move import leftovers
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit import base

ONLY_COPY = 'it may hold the only copy of data'


class LeftoverTestCase(base.PlainTestCase):

    def test_line(self):
        self.assertEqual('target x: can be removed',
                         leftovers.Leftover('target x').line())
        self.assertEqual('target x: removed',
                         leftovers.Leftover('target x').line(True))
        kept = leftovers.Leftover('target x', 'it is in use')
        for removed in (False, True):
            self.assertEqual('target x: kept, it is in use',
                             kept.line(removed))


@ddt.ddt
class ReconcilerTestCase(base.CloudTestCase):

    def reconcile(self, node, remove=False):
        """Return {leftover: why it is kept, or None}."""
        with self.cloud.on(node):
            found = leftovers.Leftovers(node.backend).run(
                self.context, remove=remove)
        return {leftover.what: leftover.kept for leftover in found}

    def forget(self, row_id):
        """Delete a row, and nothing else."""
        db_api.volume_destroy(self.context, row_id)

    def forget_all(self):
        for row in self.cloud.rows():
            self.forget(row.id)

    def picture(self, node):
        return (dict(node.kernel.devices), dict(node.kernel.disks),
                dict(node.target.exports), node.lvm.names())

    def test_nothing(self):
        self.assertEqual({}, self.reconcile(self.a, remove=True))
        self.assertEqual({}, self.reconcile(self.b, remove=True))

    @ddt.data((False, 'clear it and remove it with lvremove'),
              (True, 'remove it with lvremove'))
    @ddt.unpack
    def test_way_out(self, thin, words):
        """Clearing a thin volume would allocate all of it."""
        if thin:
            self.a.lvm.make_thin('volumes')
        self.forget(self.volume.id)
        self.assertTrue(self.reconcile(self.a)[
            'logical volume volumes/volume-' + self.volume.id].endswith(
                'is not needed, ' + words))

    def test_moving_volume_is_somebodys(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        for _ in range(2):
            for node in (self.a, self.b):
                before = self.picture(node)
                self.assertEqual({}, self.reconcile(node, remove=True))
                self.assertEqual(before, self.picture(node))
            # Repeat this after the switchover.
            self.cloud.detach(self.volume, self.a)

    def test_data_stays(self):
        self.forget(self.volume.id)
        found = self.reconcile(self.a, remove=True)
        lv = 'logical volume volumes/volume-%s' % self.volume.id
        self.assertIn(ONLY_COPY, found.pop(lv))
        self.assertEqual(
            {'device dmclone-%s' % self.volume.id: None}, found)
        self.assertEqual({}, self.a.kernel.of_volumes())
        self.assertEqual(['volume-' + self.volume.id], self.a.lvm.names())
        self.assertEqual([lv], list(self.reconcile(self.a, remove=True)))

    def test_dry_run_changes_nothing(self):
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        for node in (self.a, self.b):
            before = self.picture(node)
            self.assertNotEqual({}, self.reconcile(node))
            self.assertEqual(before, self.picture(node))

    def test_open_handle_stays(self):
        self.forget(self.volume.id)
        handle = self.a.kernel.get('dmclone-' + self.volume.id)
        handle.opened = 1
        found = self.reconcile(self.a, remove=True)
        self.assertNotIn(None, found.values())
        self.assertIn(handle, self.a.kernel.devices.values())

    def test_sealed_source_stays(self):
        """A running clone may still read it, whatever the rows say."""
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        before = self.picture(self.a)
        found = self.reconcile(self.a, remove=True)
        self.assertEqual(before, self.picture(self.a))
        name = Names(self.volume.id)
        for what in ('target ' + name.target, 'device ' + name.of('export'),
                     'device ' + name.of('handle')):
            self.assertIn('lvchange --deltag dmclone.sealed=', found[what])

    def test_source_that_nobody_knows(self):
        """Once the operator has removed its seal."""
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        self.a.lvm.at('/dev/volumes/volume-' + self.volume.id)['tags'].clear()
        found = self.reconcile(self.a, remove=True)
        self.assertIn(ONLY_COPY, found.pop(
            'logical volume volumes/volume-' + self.volume.id))
        name = Names(self.volume.id)
        self.assertEqual({'target ' + name.target: None,
                          'device ' + name.of('export'): None,
                          'device ' + name.of('handle'): None}, found)
        self.assertEqual(({}, {}, {}), self.picture(self.a)[:3])

    def test_clone_that_nobody_knows(self):
        """All of it is kept, since only the metadata shows the new blocks."""
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        before = self.picture(self.b)
        found = self.reconcile(self.b, remove=True)
        self.assertEqual(before, self.picture(self.b))
        # Handle, clone, gate and shim, the session, the data and its
        # metadata.
        self.assertEqual(7, len(found))
        self.assertNotIn(None, found.values())

    def test_session_that_nobody_needs(self):
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        self.b.kernel.devices.clear()
        session, = self.b.backend.initiator.targets()
        self.assertIsNone(self.reconcile(self.b, remove=True)[
            'session to ' + session])
        self.assertEqual({}, self.b.kernel.disks)

    def test_bitmap_without_data(self):
        self.cloud.attach(self.volume, self.b)
        self.forget_all()
        self.b.kernel.devices.clear()
        self.b.kernel.disks.clear()
        data, = (path for path in self.b.lvm.volumes if '/volume-' in path)
        self.b.lvm.drop(data)
        bitmap, = self.b.lvm.names()
        self.assertEqual({'logical volume volumes/' + bitmap: None},
                         self.reconcile(self.b, remove=True))
        self.assertEqual([], self.b.lvm.names())

    def told(self, node):
        """Return why the only logical volume of a node is kept."""
        why, = (why for what, why in self.reconcile(node, True).items()
                if what.startswith('logical volume volumes/volume-'))
        return why

    def test_home_by_its_tag(self):
        """Both logical volumes are kept if the database contradicts a tag."""
        before = dict(self.row())
        self.cloud.attach(self.volume, self.b)
        row = self.row()
        old, new = self.volume.id, row.name_id
        row.update({field: before[field] for field in (
            'host', '_name_id', 'provider_id')})
        row.save()
        self.forget(new)
        said = 'the database says that the volume is on %s, in %s' % (
            self.a.host, old)
        for node, found in (
                (self.a, 'volume %s has moved from it to logical volume '
                 '%s, and %s' % (old, new, said)),
                (self.b, 'it is the home of volume %s, and %s '
                 '(see --restore)' % (old, said))):
            names = node.lvm.names()
            self.assertEqual(found, self.told(node))
            self.assertEqual(names, node.lvm.names())

    def test_volume_of_another_node(self):
        """It is kept, as on a lost node that comes back."""
        row = self.row()
        row.host = row.provider_id = self.b.pool
        row.save()
        self.assertEqual('the database says that volume %s is on %s' % (
            self.volume.id, self.b.host), self.told(self.a))

    def test_others_are_let_be(self):
        self.a.lvm.add('volumes', 'root', 1)
        self.a.lvm.add('volumes', 'volume-root', 1)
        self.assertEqual({}, self.reconcile(self.a, remove=True))
