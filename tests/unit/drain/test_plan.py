# SPDX-License-Identifier: Apache-2.0
"""What is done with each volume, and the reasons of those that stay."""

import dataclasses

import ddt

from dmclone_driver.drain.facts import Attachment
from dmclone_driver.drain.facts import Picture
from dmclone_driver.drain.facts import Place
from dmclone_driver.drain.facts import Server
from dmclone_driver.drain.facts import Snapshot
from dmclone_driver.drain.facts import Volume
from dmclone_driver.drain import plan
from dmclone_driver.drain.plan import Kind
from dmclone_driver.drain import room
from tests.unit import base

HERE = Attachment('record', 'server', 'a', 'a')
REMOTE = Attachment('other', 'server', 'x', None)
USED = Volume('v', 10, 'in-use', attachments=(HERE,))
ACTIVE = Server('server', 'a')


class PlanTestCase(base.PlainTestCase):

    def plan(self, *volumes, to=None, free=100, servers=(ACTIVE,), **fields):
        made = room.Room(to)
        made.update([Place('b', None, free)], {})
        return plan.make(Picture(
            'a', volumes, {each.id: each for each in servers}, **fields),
            made)

    def stays(self, *volumes, **options):
        """Return the obstacle of the only item."""
        item, = self.plan(*volumes, **options)
        self.assertEqual(Kind.STAY, item.kind)
        return item.obstacle


@ddt.ddt
class AtRestTestCase(PlanTestCase):

    def test_moved(self):
        item, = self.plan(Volume('v', 10))
        self.assertEqual((Kind.MOVE, 'b'), (item.kind, item.node))

    def test_largest_first(self):
        self.assertEqual(['y', 'x', 'z'], [item.key for item in self.plan(
            Volume('x', 5), Volume('y', 7), Volume('z', 5))])

    def test_no_more_than_fits(self):
        first, second = self.plan(Volume('x', 60), Volume('y', 50))
        self.assertEqual((Kind.MOVE, Kind.STAY), (first.kind, second.kind))
        self.assertIn('its 50 GiB: b: 40.00 GiB are free',
                      second.obstacle.reason)
        self.assertIn('--to', second.obstacle.remedy)

    def test_moving(self):
        item, = self.plan(Volume('v', 10, migration_status='migrating',
                                 exported=True, moves_to='b'))
        self.assertEqual((Kind.MOVING, 'b'), (item.kind, item.node))

    @ddt.data(
        (dict(status='error'), 'its status is error', 'delete it'),
        (dict(status='creating'), 'its status is creating', 'wait'),
        (dict(group='g'), 'it is in group g', 'remove it'),
        (dict(lost='x'), 'was on x, which is lost', 'copy what'),
        (dict(really_on='x'), 'its data is on x', 'again'),
        (dict(exported=True), 'in use over iSCSI', 'wait'),
        (dict(migration_status='starting'), 'Cinder migrates it', 'reset'),
        (dict(migration_status='target:x'), 'copies another volume to it',
         'wait'))
    @ddt.unpack
    def test_stays(self, fields, reason, remedy):
        found = self.stays(Volume('v', 10, **fields))
        self.assertIn(reason, found.reason)
        self.assertIn(remedy, found.remedy)

    @ddt.data('error', 'success', None)
    def test_earlier_migration(self, status):
        item, = self.plan(Volume('v', 10, migration_status=status))
        self.assertEqual(Kind.MOVE, item.kind)


@ddt.ddt
class AttachedTestCase(PlanTestCase):

    def test_live_migrated(self):
        """All volumes of an instance are one item."""
        item, = self.plan(USED, dataclasses.replace(USED, id='w'))
        self.assertEqual((Kind.MIGRATE, 'server', None, ['v', 'w']), (
            item.kind, item.server, item.node,
            [volume.id for volume in item.volumes]))

    def test_to_the_operators_node(self):
        item, = self.plan(USED, to='b')
        self.assertEqual((Kind.MIGRATE, 'b'), (item.kind, item.node))

    def test_after_volumes_at_rest(self):
        self.assertEqual(['w', 'server'], [
            item.key for item in self.plan(USED, Volume('w', 1))])

    def test_instances_do_not_take_each_others_room(self):
        """Nova chooses: it is not known which node has to have the room."""
        other = Attachment('record', 'other', 'a', 'a')
        self.assertEqual([Kind.MIGRATE] * 2, [item.kind for item in self.plan(
            USED, dataclasses.replace(USED, id='w', attachments=(other,)),
            free=15, servers=[ACTIVE, Server('other', 'a')])])

    def test_no_room(self):
        self.assertIn('its 10 GiB', self.stays(USED, free=5).reason)

    def test_migrating(self):
        item, = self.plan(dataclasses.replace(
            USED, attachments=(HERE, REMOTE), moves_to='b', exported=True),
            servers=[Server('server', 'a', 'MIGRATING', 'migrating')])
        self.assertEqual((Kind.MIGRATING, 'server'), (item.kind, item.key))

    def test_nova_is_not_asked(self):
        found = self.stays(USED, nova_trouble='no credentials')
        self.assertEqual('no credentials', found.reason)
        self.assertIn('live-migrate instance server', found.remedy)

    @ddt.data(
        ((), 'does not exist', 'delete its attachment'),
        ([Server('server', 'a', 'SHUTOFF')], 'is SHUTOFF', 'start it'),
        ([Server('server', None, 'SHELVED_OFFLOADED')], 'is SHELVED',
         'unshelve'),
        ([Server('server', 'a', 'ERROR')], 'is ERROR', 'make it so'),
        ([Server('server', 'a', task='rebooting')], 'is rebooting', 'wait'),
        ([Server('server', 'x')], 'on a, and its instance is on x',
         'delete its attachment'))
    @ddt.unpack
    def test_instance_stays(self, servers, reason, remedy):
        found = self.stays(USED, servers=servers)
        self.assertIn(reason, found.reason)
        self.assertIn(remedy, found.remedy)

    @ddt.data(
        (dict(status='backing-up'), 'its status is backing-up', 'wait'),
        (dict(group='g'), 'volume v: it is in group g', 'remove it'),
        (dict(exported=True), 'in use over iSCSI', 'wait'),
        (dict(attachments=(REMOTE,)), 'attached on x, and used over iSCSI',
         'detach it'),
        (dict(attachments=(HERE, REMOTE)), 'an earlier migration',
         'delete that attachment: other'),
        (dict(attachments=(Attachment('r', 'server', None, None),)),
         'is being attached', 'no host'),
        (dict(attachments=(Attachment('r', None, 'a', 'a'),)),
         'not to an instance', 'detach it'),
        (dict(attachments=(HERE, Attachment('r', 'x', 'a', 'a'))),
         'several instances: server, x', 'not in use'))
    @ddt.unpack
    def test_volume_stays(self, fields, reason, remedy):
        found = self.stays(dataclasses.replace(USED, **fields))
        self.assertIn(reason, found.reason)
        self.assertIn(remedy, found.remedy)

    def test_one_volume_holds_all_of_its_instance(self):
        item, = self.plan(USED, dataclasses.replace(USED, id='w', group='g'))
        self.assertEqual((Kind.STAY, 2), (item.kind, len(item.volumes)))
        self.assertIn('volume w: it is in group g', item.obstacle.text())


class SnapshotsTestCase(PlanTestCase):
    """Snapshots follow their volumes, or not."""

    HERE = Snapshot('s', 'v', 30)
    LEFT = Snapshot('t', 'w', 30, home='c')

    def staying(self, items, *snapshots, **fields):
        return {each.id: obstacle.text() for each, obstacle in plan.staying(
            Picture('a', snapshots=snapshots, **fields), items)}

    def test_need_space(self):
        found = self.stays(Volume('v', 30, snapshots=(self.HERE,)), free=59)
        self.assertIn('its 60 GiB: b: 59.00 GiB are free', found.reason)
        item, = self.plan(Volume('v', 30, snapshots=(self.HERE,)), free=60)
        self.assertEqual((Kind.MOVE, {'s'}), (item.kind, item.snapshots))
        self.assertEqual({}, self.staying([item], self.HERE,
                                          with_snapshots=True))

    def test_of_a_volume_that_stays(self):
        items = self.plan(Volume('v', 30, 'error', snapshots=(self.HERE,)))
        self.assertEqual({'s': 'its volume stays'}, self.staying(
            items, self.HERE, with_snapshots=True))

    def test_of_a_volume_elsewhere(self):
        item, = self.plan(snapshots=(self.LEFT,), with_snapshots=True)
        self.assertEqual((Kind.FOLLOW, 't', 'c', {'t'}), (
            item.kind, item.key, item.node, item.snapshots))

    def test_nothing_is_asked_for(self):
        self.assertEqual([], self.plan(snapshots=(self.LEFT,)))
        self.assertIn('--with-snapshots', self.staying([], self.LEFT)['t'])

    def test_being_copied(self):
        found = dataclasses.replace(self.LEFT, copied_to='c')
        self.assertEqual([], self.plan(snapshots=(found,),
                                       with_snapshots=True))
        self.assertEqual({}, self.staying([], found))

    def test_not_available(self):
        found = dataclasses.replace(self.LEFT, status='error')
        self.assertEqual([], self.plan(snapshots=(found,),
                                       with_snapshots=True))
        self.assertIn('its status is error', self.staying(
            [], found, with_snapshots=True)['t'])
