# SPDX-License-Identifier: Apache-2.0
"""Cached images: used by Cinder's own code, and taken from peers."""

import contextlib
import datetime
import types
from unittest import mock

from cinder.image import cache
from cinder.objects import base as objects_base
from cinder import rpc
from cinder import volume as cinder_volume
from cinder.volume.flows.manager import create_volume
from cinder.volume import rpcapi as volume_rpcapi
import ddt

from dmclone_driver import exception
from dmclone_driver.move import placeholders
from dmclone_driver.move import room
from dmclone_driver.node.names import Names
from dmclone_driver.privsep import block
from dmclone_driver import releases
from dmclone_driver.releases import db_api
from tests.unit.fakes import cloud
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots

GIB = storage.GIB
FAULTS = test_snapshots.FAULTS
MODULE = 'cinder.volume.flows.manager.create_volume.'
FLOW = MODULE + 'CreateVolumeFromSpecTask.'


class ImageCacheTestCase(test_snapshots.SnapshotsTestCase):
    """Volumes are created from an image by Cinder's own code."""

    # Cinder's own tests replace what a start finds after a crash.
    MOCK_WORKER = False

    def setUp(self):
        super().setUp()
        # The services of the simulated nodes do not report them.
        rpc.LAST_RPC_VERSIONS['cinder-volume'] = (
            volume_rpcapi.VolumeAPI.RPC_API_VERSION)
        rpc.LAST_OBJ_VERSIONS['cinder-volume'] = (
            objects_base.OBJ_VERSIONS.get_current())
        self.patch(MODULE + 'image_utils.check_available_space')
        self.patch(MODULE + 'image_utils.TemporaryImages.fetch',
                   new=lambda *args: contextlib.nullcontext('image'))
        self.patch(MODULE + 'image_utils.qemu_img_info',
                   return_value=types.SimpleNamespace(virtual_size=GIB))
        self.download = self.patch(
            MODULE + 'volume_utils.copy_image_to_volume')
        self.patch(FLOW + '_handle_bootable_volume_glance_meta')
        self.patch('cinder.volume.rpcapi.VolumeAPI.delete_volume',
                   new=self.cinder_deletes)
        self.override_config('image_volume_cache_enabled', True,
                             group=cloud.BACKEND)
        self.override_config('verify_glance_signatures', 'disabled')
        self.override_config('cinder_internal_tenant_project_id', 'internal')
        self.override_config('cinder_internal_tenant_user_id', 'cinder')
        self.image = {'id': 'e2f3d4c5-0000-4000-8000-000000000001',
                      'size': GIB, 'updated_at': datetime.datetime(
                          2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)}

    def cinder_deletes(self, context, volume, *args):
        """Delete a volume as its node does when Cinder's API asks it to."""
        self.delete(volume)

    def cache(self):
        return cache.ImageVolumeCache(db_api, cinder_volume.API())

    def make_entry(self, node, internal, volume, image_id, image_meta):
        """Cache a volume's image as Cinder's manager does."""
        mine = self.new(node, volume.size)
        mine.project_id = 'internal'
        mine.save()
        with self.cloud.on(node):
            mine.update(node.driver.create_cloned_volume(mine, volume))
        mine.status = 'available'
        mine.save()
        self.cache().create_cache_entry(internal, mine, image_id, image_meta)

    def create(self, node, size=2, url='url'):
        """Create a volume from the image as Cinder does.

        :param url: where Glance has the image
        """
        volume = self.new(node, size)
        manager = types.SimpleNamespace(
            _create_image_cache_volume_entry=lambda *args: self.make_entry(
                node, *args))
        with self.cloud.on(node):
            flow = create_volume.CreateVolumeFromSpecTask(
                manager, db_api, node.driver, self.cache())
            volume.update(flow._create_from_image(
                self.context, volume, (url, None), self.image['id'],
                self.image, None))
        volume.status = 'available'
        volume.save()
        return self.cloud.row(volume.id)

    def entries(self, node=None):
        """Return the rows of the image-volumes in the cache."""
        found = db_api.image_volume_cache_get_all(
            self.context, **({'host': node.pool} if node else {}))
        return [self.cloud.row(entry.volume_id) for entry in found]

    def evict(self, node=None):
        """Remove images from the cache, as Cinder does without space."""
        for entry in db_api.image_volume_cache_get_all(
                self.context, **({'host': node.pool} if node else {})):
            releases.delete_cached_volume(self.cache(), self.context, entry,
                                          '')

    def assertUsable(self, volume, node, size=2):
        """Check that a volume is on a node and can be used."""
        self.assertEqual(node.pool, volume.host)
        path = Names(self.cloud.row(volume.id).name_id).path()
        with self.cloud.on(node):
            self.assertEqual(size * GIB, block.size(path))
        self.assertTrue(node.kernel.write(path))

    def assertClean(self, *volumes):
        """Check that nothing is left after all volumes are deleted."""
        self.cloud.watch(5)
        for volume in volumes:
            self.delete(volume)
        self.evict()
        self.minute()
        self.assertIdle(self.a)


@ddt.ddt
class LocalTestCase(ImageCacheTestCase):
    """The image is cached on the volume's own node, or on none."""

    def test_first_use(self):
        """The volume is made small, cloned into the cache, and extended."""
        volume = self.create(self.a, size=3)
        self.download.assert_called_once()
        mine, = self.entries(self.a)
        self.assertEqual(1, mine.size)
        self.assertEqual(3, volume.size)
        for each in (volume, mine):
            self.assertUsable(each, self.a, each.size)
        self.assertClean(volume)

    def test_second_use(self):
        first, second = self.create(self.a), self.create(self.a)
        self.download.assert_called_once()
        self.assertEqual(1, len(self.entries()))
        self.assertUsable(second, self.a)
        self.assertClean(first, second)

    def test_image_was_changed(self):
        first = self.create(self.a)
        self.cloud.watch(3)
        self.image['updated_at'] += datetime.timedelta(1)
        second = self.create(self.a)
        self.assertEqual(2, self.download.call_count)
        self.assertEqual(1, len(self.entries()))
        self.assertClean(first, second)

    def test_glance_has_it_in_a_volume(self):
        """Glance stores images in volumes, and one is on this node."""
        self.override_config('allowed_direct_url_schemes', ['cinder'])
        stored = self.a.create()
        self.image.update(container_format='bare', disk_format='raw',
                          owner=stored.project_id)
        volume = self.create(self.a, url='cinder://' + stored.id)
        self.download.assert_not_called()
        self.assertEqual('clone', self.roles(volume, self.a)['handle'])
        self.assertUsable(volume, self.a)
        self.assertClean(volume, stored)


@ddt.ddt
class PeerTestCase(ImageCacheTestCase):
    """The image is cached on a peer."""

    def setUp(self):
        super().setUp()
        self.first = self.create(self.a)
        self.there, = self.entries()
        self.cloud.watch(3)
        self.download.reset_mock()

    def assertDownloaded(self):
        """Check that a volume is still created, and Cinder caches it."""
        volume = self.create(self.b)
        self.download.assert_called_once()
        self.assertUsable(volume, self.b)
        mine, = self.entries(self.b)
        self.assertEqual('available', mine.status)
        self.assertClean(self.first, volume)

    @ddt.data(1, 3)
    def test_usable_at_once(self, size):
        volume = self.create(self.b, size)
        self.download.assert_not_called()
        self.assertUsable(volume, self.b, size)
        mine, = self.entries(self.b)
        self.assertEqual(
            ('available', 'internal', False, 1),
            (mine.status, mine.project_id, mine.use_quota, mine.size))
        self.assertEqual({'readonly': 'True'}, mine.admin_metadata)
        self.assertEqual('clone', self.roles(mine, self.b)['handle'])
        self.assertClean(self.first, volume)

    def test_only_the_first_needs_the_peer(self):
        first = self.create(self.b)
        self.cloud.watch(5)
        mine, = self.entries(self.b)
        self.assertEqual({'handle': 'linear'}, self.roles(mine, self.b))
        self.assertEqual([], [name for name in self.a.lvm.names()
                              if name.startswith('_')])
        self.a.die()
        second = self.create(self.b)
        self.download.assert_not_called()
        self.assertEqual([mine.id], [row.id for row in self.entries(self.b)])
        self.assertUsable(second, self.b)
        self.a.start()
        self.assertClean(self.first, first, second)

    def test_cached_image_is_deleted_meanwhile(self):
        volume = self.create(self.b)
        self.evict(self.a)
        self.assertUsable(volume, self.b)
        self.cloud.watch(5)
        self.assertEqual(2, len(self.a.lvm.names()))
        self.assertClean(self.first, volume)

    def test_image_of_this_node_is_deleted_while_it_hydrates(self):
        """Its first volume reads it, and it reads that of the peer."""
        volume = self.create(self.b)
        self.evict(self.b)
        self.assertEqual([], self.entries(self.b))
        self.assertUsable(volume, self.b)
        again = self.create(self.b)
        self.download.assert_not_called()
        self.assertUsable(again, self.b)
        self.assertClean(self.first, volume, again)

    def test_cached_image_has_moved(self):
        """Each node finds it where it is now."""
        self.cloud.migrate(self.there, self.b)
        self.there = self.cloud.row(self.there.id)
        self.cloud.watch(5)
        first = self.create(self.b)
        self.assertEqual([self.there.id],
                         [row.id for row in self.entries(self.b)])
        self.assertEqual([], self.entries(self.a))
        second = self.create(self.a)
        self.assertEqual(1, len(self.entries(self.a)))
        self.download.assert_not_called()
        self.assertUsable(second, self.a)
        self.assertClean(self.first, first, second)

    def test_peer_that_needs_no_other_is_preferred(self):
        # Its entry is the one that was used last.
        first, second = self.create(self.b), self.create(self.b)
        c = self.cloud.add('node3')
        third = self.create(c)
        mine, = self.entries(c)
        self.assertEqual(self.a.pool, self.cloud.row(mine.name_id).host)
        self.assertClean(self.first, first, second, third)

    def test_disabled(self):
        self.override_config('image_volume_cache_enabled', False,
                             group=cloud.BACKEND)
        self.fetch()
        self.assertEqual([], self.entries(self.b))

    def test_no_internal_project(self):
        self.override_config('cinder_internal_tenant_user_id', None)
        volume = self.create(self.b)
        self.download.assert_called_once()
        self.assertEqual([], self.entries(self.b))
        self.assertClean(self.first, volume)

    @ddt.data({'status': 'deleting'}, {'size': 3},
              {'project_id': 'somebody'}, {'host': 'node1@lvm#lvm'})
    def test_unusable(self, fields):
        before = {name: self.there[name] for name in fields}
        self.there.update(fields)
        self.there.save()
        with mock.patch.object(self.b.backend, 'correct'):
            volume = self.create(self.b)
        self.download.assert_called_once()
        self.there.update(before)
        self.there.save()
        self.assertClean(self.first, volume)

    def test_image_was_changed(self):
        self.image['updated_at'] += datetime.timedelta(1)
        self.assertDownloaded()

    def test_peer_is_down(self):
        self.a.die()
        self.cloud.steps.start()
        volume = self.create(self.b)
        self.assertNotIn('node1@dmclone', str(self.cloud.steps.log))
        self.download.assert_called_once()
        self.a.start()
        self.assertClean(self.first, volume)

    def test_no_space(self):
        with mock.patch.object(self.b.destination, '_free',
                               return_value=room.Free(4)):
            self.assertDownloaded()

    def test_cache_is_too_small(self):
        self.override_config('image_volume_cache_max_size_gb', 1,
                             group=cloud.BACKEND)
        self.there.size = 2
        self.there.save()
        self.assertDownloaded()

    def test_warning(self):
        with mock.patch.object(self.a.parts.image_cache, '_freeze',
                               side_effect=exception.RequestsWait(
                                   volume='x', seconds=5)), (
                self.assertLogs('dmclone_driver.move.image_cache',
                                'WARNING')) as logs:
            self.assertDownloaded()
        for text in (self.image['id'], self.a.pool, 'node1@dmclone says'):
            self.assertIn(text, logs.output[0])

    def test_peer_of_an_older_version(self):
        with mock.patch.object(self.a.server.endpoint, 'export_clone',
                               side_effect=AttributeError):
            self.assertDownloaded()

    def test_released_before_the_snapshot(self):
        """A request that is answered too late leaves nothing."""
        def late(volume, snapshot_id):
            self.b.requests.release(self.context, placeholders.Placeholder(
                self.cloud.placeholders()[0]))
            freeze(volume, snapshot_id)

        freeze = self.a.parts.image_cache._freeze
        with mock.patch.object(self.a.parts.image_cache, '_freeze', late):
            self.assertDownloaded()

    def test_repeated(self):
        export = self.a.server.endpoint.export_clone

        def twice(*args, **kwargs):
            export(*args, **kwargs)
            export(*args, **kwargs)

        with mock.patch.object(self.a.server.endpoint, 'export_clone', twice):
            volume = self.create(self.b)
        self.download.assert_not_called()
        self.assertClean(self.first, volume)

    def clean_up(self):
        """Set volumes to error like a start of Cinder after a crash."""
        for worker in db_api.worker_get_all(self.context):
            volume = self.cloud.row(worker.resource_id)
            if volume is not None and volume.status == worker.status:
                volume.status = 'error'
                volume.save()
            db_api.worker_destroy(self.context, id=worker.id)

    def fetch(self, *args):
        """Do what Cinder asks the driver to do first."""
        volume = self.new(self.b)
        with self.cloud.on(self.b):
            self.assertEqual((None, False), self.b.driver.clone_image(
                self.context, volume, None, self.image, None))
        volume.destroy()

    @ddt.data(FAULTS[0], FAULTS[2])
    def test_each_step(self, fault):
        """Each step fails; the next volume finds the image in the cache."""
        tags = self.lv(self.a, self.there.name).tags
        for step, _volume, error in self.each_step(self.fetch, **fault):
            if not fault:
                self.assertIsNone(error, step)
            for node in self.cloud.nodes.values():
                if node.down or fault:
                    node.stop()
                    node.start()
            self.clean_up()
            self.cloud.watch(2)
            self.assertNotIn('creating', [
                row.status for row in self.entries()], step)
            self.fetch()
            mine, = self.entries(self.b)
            self.assertEqual('available', mine.status, step)
            self.assertUsable(mine, self.b, 1)
            self.evict(self.b)
            self.minute()
            self.assertEqual([], self.cloud.placeholders(), step)
            self.assertEqual([], self.b.lvm.names(), step)
            self.assertEqual([], [name for name in self.a.lvm.names()
                                  if name.startswith('_')], step)
            self.assertEqual(tags, self.lv(self.a, self.there.name).tags,
                             step)
