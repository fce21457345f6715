# SPDX-License-Identifier: Apache-2.0
"""What Cinder answers: its API, scheduler and database, and the driver."""

import datetime
from unittest import mock

from cinder import objects
from cinder.scheduler import host_manager
from cinder.tests.unit.api import fakes
from cinder.tests.unit import fake_constants
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import volume_types
from oslo_serialization import jsonutils
from oslo_utils import timeutils
import webob

from dmclone_driver.move import row_fields
from dmclone_driver.releases import sched_utils
from dmclone_driver.scheduler import answers
from dmclone_driver.scheduler.answers import Place
from dmclone_driver.scheduler import queries
from tests.unit import base
from tests.unit.fakes import cloud


class QueriesTestCase(base.CloudTestCase):
    """Two nodes with a volume on the first, behind Cinder's API."""

    def setUp(self):
        super().setUp()
        self.scheduler = host_manager.HostManager()
        self.patch('cinder.scheduler.rpcapi.SchedulerAPI.get_pools',
                   new=self.get_pools)
        self.paths = []
        self.cache_time = 0
        self.cloud.report_versions()
        self.application = fakes.wsgi_app(
            fake_auth_context=self.context.elevated())
        self.queries = queries.Queries(self.get, lambda: self.cache_time)
        self.report()

    def get(self, path):
        """As Nova's client of Cinder."""
        self.paths.append(path)
        request = webob.Request.blank('/v3/%s%s' % (
            self.context.project_id, path))
        request.headers['OpenStack-API-Version'] = (
            'volume ' + queries.MICROVERSION)
        response = request.get_response(self.application)
        self.assertEqual(200, response.status_int, response.body)
        return response.json

    def get_pools(self, context, filters):
        return jsonutils.to_primitive(self.scheduler.get_pools(
            context, dict(filters)))

    def report(self, when=None, **changes):
        """Let the nodes report their statistics, as each minute.

        :param when: the time, if it is not now
        :param changes: what they report, too
        """
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                self.scheduler.update_service_capabilities(
                    'volume', node.host,
                    dict(node.driver.get_volume_stats(refresh=True),
                         # Added by VolumeManager.
                         allocated_capacity_gb=0, **changes), None, when)

    # Pools

    def pool(self, name):
        return next(pool for pool in self.queries.pools()
                    if pool.place == Place(name, cloud.BACKEND))

    def test_pools(self):
        self.assertEqual({Place('node1', cloud.BACKEND),
                          Place('node2', cloud.BACKEND)},
                         {pool.place for pool in self.queries.pools()})
        pool = self.pool('node1')
        self.assertEqual((99, 100, False, True), (
            pool.free, pool.total, pool.remote, pool.ours))

    def test_free_is_what_the_driver_would_count(self):
        for reserved in (0, 7, 33, 100):
            with self.cloud.on(self.a):
                self.a.driver.configuration.reserved_percentage = reserved
            self.report()
            self.assertEqual(sched_utils.calculate_virtual_free_capacity(
                100, 99, 1, False, 1, reserved, False),
                self.pool('node1').free)

    def test_remote_attach(self):
        self.b.driver.configuration.dmclone_remote_attach = True
        self.report()
        self.assertEqual([False, True], [
            self.pool(name).remote for name in ('node1', 'node2')])

    def test_remote_attach_without_room(self):
        self.b.driver.configuration.dmclone_remote_attach_without_room = True
        self.report()
        self.assertEqual([False, True], [
            self.pool(name).remote_without_room
            for name in ('node1', 'node2')])

    def test_types(self):
        for name, specs in (('one', {'dmclone_metadata_backend': 'lvm'}),
                            ('two', {'dmclone_metadata_backend': 'brd'}),
                            ('three', {'other': '1'})):
            kind = volume_types.create(self.context.elevated(), name, specs,
                                       is_public=name != 'two')
            found = self.queries.extra_specs()
            self.assertEqual([specs, specs], [found[name], found[kind.id]])
        pool = self.pool('node1')
        self.assertEqual(
            {'one': (True, True), 'two': (False, False),
             'three': (True, False)},
            {name: (pool.fits(found[name], new=False),
                    pool.fits(found[name], new=True))
             for name in ('one', 'two', 'three')})

    def test_service_that_is_disabled(self):
        service = objects.Service.get_by_args(
            self.context.elevated(), self.b.host, 'cinder-volume')
        service.disabled = True
        service.save()
        pool, = self.queries.pools()
        self.assertEqual('node1', pool.place.node)

    def test_other_drivers(self):
        self.report(vendor_name='another')
        self.assertFalse(any(pool.ours for pool in self.queries.pools()))

    # Volumes

    def test_volumes(self):
        second = self.b.create()
        found = {row.id: row for row in self.queries.volumes(
            [self.volume.id, second.id, mock.sentinel.gone.name])}
        self.assertEqual({self.volume.id, second.id}, set(found))
        row = found[second.id]
        self.assertEqual((1, Place('node2', cloud.BACKEND), False, None), (
            row.size, row.place, row.creating, row.moves))
        self.assertEqual(self.row().volume_type_id, row.volume_type)
        self.assertEqual([], self.queries.volumes([]))

    def test_group(self):
        group = cinder_utils.create_group(
            self.context, group_type_id=fake_constants.GROUP_TYPE_ID)
        volume = self.a.create(group_id=group.id)
        row, = self.queries.volumes([volume.id])
        self.assertTrue(row.in_group)

    def test_many_volumes(self):
        self.patch('dmclone_driver.scheduler.queries.AT_ONCE', new=2)
        ids = [self.volume.id] + [self.a.create().id for _ in range(4)]
        self.assertEqual(set(ids), {row.id for row in
                                    self.queries.volumes(ids)})
        self.assertEqual(3, len(self.paths))

    # New rows

    def test_new_volume(self):
        row = self.row()
        row.status = 'creating'
        row.save()
        found, = self.queries.lately()
        self.assertTrue(found.creating)
        self.assertFalse(self.pool('node1').knows(found))
        self.report(timeutils.utcnow() + datetime.timedelta(minutes=1))
        self.assertFalse(self.pool('node1').knows(found))

    def test_volume_that_a_pool_knows(self):
        found, = self.queries.lately()
        self.assertFalse(self.pool('node1').knows(found))
        self.report(timeutils.utcnow() + datetime.timedelta(minutes=1))
        self.assertTrue(self.pool('node1').knows(found))

    def test_old_volume(self):
        self.make_old()
        self.assertEqual([], self.queries.lately())

    def make_old(self):
        row = self.row()
        row.created_at -= datetime.timedelta(minutes=10)
        row.save()

    def test_move(self):
        """Both ends of a new move count, before and after it switches."""
        self.make_old()
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEndsCount()
        self.cloud.detach(self.volume, self.a)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEndsCount()

    def assertEndsCount(self):
        found = self.queries.lately()
        self.assertEqual({'node1', 'node2'},
                         {row.place.node for row in found})
        self.assertEqual({self.volume.id}, {row.moves for row in found})
        self.assertEqual(1, len({row.created for row in found}))

    # How often Cinder is asked

    def test_kept_answers(self):
        self.cache_time = 3600
        for _ in range(3):
            self.queries.pools()
            self.queries.lately()
            self.queries.extra_specs()
        self.assertEqual(3, len(self.paths))

    def test_answers_are_not_kept_for_ever(self):
        self.queries.pools()
        self.queries.pools()
        self.assertEqual(2, len(self.paths))


class FailureTestCase(base.PlainTestCase):
    """Cinder does not answer, or refuses."""

    def test_no_answer(self):
        """A request does not wait if another has just waited in vain."""
        get = mock.Mock(side_effect=OSError('refused'))
        asked = queries.Queries(get, lambda: 3600)
        for _ in range(3):
            error = self.assertRaises(queries.NoAnswer, asked.volumes, ['a'])
            self.assertEqual('refused', str(error))
        self.assertEqual(1, get.call_count)

    def test_asks_again(self):
        get = mock.Mock(side_effect=[OSError, {'volumes': []}])
        asked = queries.Queries(get, lambda: 0)
        error = self.assertRaises(queries.NoAnswer, asked.volumes, ['a'])
        self.assertEqual('OSError', str(error))
        self.assertEqual([], asked.volumes(['a']))

    def test_move_status(self):
        self.assertEqual(row_fields.MIGRATION_STATUS, answers.MOVE_STATUS)
