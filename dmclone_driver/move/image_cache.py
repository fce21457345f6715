# SPDX-License-Identifier: Apache-2.0
"""Images that peers have cached, for the first volumes of them here.

Cinder looks for a cached image on a volume's own node alone. Just before it
does, this driver clones a peer's cached image into the cache of this node,
where it can be used at once and hydrates. Cinder then finds it, and clones
the volume from it, like all later ones.

The row of the new image-volume and its entry in the cache are created in one
transaction, with the record by which Cinder sets the volume to error after a
crash. An entry whose volume is in error is deleted before the next volume is
created from an image here.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import functools
from typing import Any
import uuid

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder.image import cache
from cinder import objects
from cinder import volume as cinder_volume
from cinder.volume import volume_utils
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import timeutils
import sqlalchemy

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.copies import Copies
from dmclone_driver.move.destination import Destination
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.move.source import Source
from dmclone_driver import releases
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models

LOG = logging.getLogger(__name__)


class ImageCache:
    """Clones cached images from peers, and serves those of this node."""

    def __init__(self, backend: Backend, copies: Copies,
                 destination: Destination, source: Source,
                 snapshots: Snapshots,
                 freeze: collections.abc.Callable[[objects.Volume, str], None]
                 ) -> None:
        """Use the other parts of the driver.

        :param freeze: takes a hidden snapshot of a volume on this node, whose
            id is the second argument
        """
        self._backend = backend
        self._copies = copies
        self._destination = destination
        self._source = source
        self._snapshots = snapshots
        self._freeze = freeze

    @functools.cached_property
    def _cache(self) -> cache.ImageVolumeCache:
        """Cinder's own cache, with the limits of this backend."""
        configuration = self._backend.configuration
        return cache.ImageVolumeCache(
            db_api, cinder_volume.API(),
            configuration.image_volume_cache_max_size_gb,
            configuration.image_volume_cache_max_count)

    def fetch(self, volume: objects.Volume,
              image_meta: dict[str, Any]) -> None:
        """Clone a peer's cached image into the cache of this node.

        Does nothing if the image is cached here, or by no peer. A failure is
        only logged: Cinder downloads the image then.

        :param volume: that is about to be created from the image
        """
        context = cinder_context.get_internal_tenant_context()
        if context is None:
            return
        there = None
        try:
            with self._backend.lock(image_meta['id']):
                self._follow_moves(context, image_meta['id'])
                self._remove_incomplete(context, volume.host)
                if self._cache.get_entry(context, volume, image_meta['id'],
                                         image_meta):
                    return
                there = self._find(context, volume, image_meta)
                if there is not None:
                    self._clone(context, volume, image_meta, there)
        except Exception as error:
            LOG.warning('Volume %(volume)s: the cached image %(image)s of '
                        '%(host)s is not used; Cinder downloads the image. '
                        'The reason: %(error)s',
                        {'volume': volume.id, 'image': image_meta['id'],
                         'host': there.host if there else _('a peer'),
                         'error': getattr(error, 'msg', None) or repr(error)})

    def _follow_moves(self, context: cinder_context.RequestContext,
                      image_id: str) -> None:
        """Correct the entries of an image whose volumes have moved.

        Cinder would find such an entry on a node where its volume cannot be
        cloned, and would make no other one there.
        """
        entry_type, row_type = models.ImageVolumeCacheEntry, models.Volume
        with db_api.main_context_manager.writer.using(context):
            for entry, host in context.session.query(
                    entry_type, row_type.host).join(
                        row_type, row_type.id == entry_type.volume_id).filter(
                            entry_type.image_id == image_id,
                            row_type.deleted == sqlalchemy.false(),
                            row_type.host != entry_type.host):
                if self._is_peer(volume_utils.extract_host(host)):
                    entry.host = host

    def _is_peer(self, host: str) -> bool:
        """Whether a backend, ``node@backend``, is this one or a peer."""
        return peers.backend_name(host) == peers.backend_name(
            self._backend.host)

    def _remove_incomplete(self, context: cinder_context.RequestContext,
                           host: str) -> None:
        """Delete the cached images whose creation or recovery has failed.

        :param host: of this node, with the pool
        """
        entry_type, row_type = models.ImageVolumeCacheEntry, models.Volume
        with db_api.main_context_manager.reader.using(context):
            entries = context.session.query(entry_type).filter(
                entry_type.host == host, entry_type.volume_id.in_(
                    context.session.query(row_type.id).filter_by(
                        deleted=False, status='error'))).all()
        for entry in entries:
            releases.delete_cached_volume(
                self._cache, context, entry,
                'Deleting a cached image that is in error')

    def _find(self, context: cinder_context.RequestContext,
              volume: objects.Volume,
              image_meta: dict[str, Any]) -> objects.Volume | None:
        """Return the best cached image of the peers, or None."""
        rows = [lookups.get(context, entry.volume_id) for entry in
                # The one that was used last comes first.
                db_api.image_volume_cache_get_all(context,
                                                  image_id=image_meta['id'])
                if not self._cache._should_update_entry(entry, image_meta)]
        usable = [row for row in rows if row is not None and
                  self._is_usable(context, volume, row)]
        # One that hydrates needs a third node.
        return min(usable, default=None, key=lambda row: lookups.placeholder(
            context, row.name_id) is not None)

    def _is_usable(self, context: cinder_context.RequestContext,
                   volume: objects.Volume, row: objects.Volume) -> bool:
        host = lookups.backend_of(row)
        return (row.project_id == context.project_id and
                row.status == 'available' and row.size <= volume.size and
                host != self._backend.host and self._is_peer(host) and
                self._backend.is_up(context, host))

    def _clone(self, context: cinder_context.RequestContext,
               volume: objects.Volume, image_meta: dict[str, Any],
               there: objects.Volume) -> None:
        """Clone the cached image of a peer into this node's cache.

        :param there: the row of the peer's image-volume
        """
        self._refuse_without_space(volume, there)
        mine = self._begin(context, volume, image_meta, there.size)
        try:
            self._copies.create(context, mine, str(uuid.uuid4()), there.host,
                                '%dg' % mine.size, origin_id=there.id)
        except Exception:
            with excutils.save_and_reraise_exception():
                self._end(mine, status='error')
                self._remove_incomplete(context, mine.host)
        self._end(mine, status='available', launched_at=timeutils.utcnow())
        # It is not the first to be removed from the peer's cache.
        db_api.image_volume_cache_get_and_update_last_used(
            context, image_meta['id'], host=there.host)
        LOG.info('Volume %(mine)s is the cached image %(image)s on this node, '
                 'as a clone of volume %(there)s on %(host)s.',
                 {'mine': mine.id, 'image': image_meta['id'],
                  'there': there.id, 'host': there.host})

    def _refuse_without_space(self, volume: objects.Volume,
                              there: objects.Volume) -> None:
        """Leave the space that is left to the volume itself."""
        # The image, and the blocks of the snapshot that the volume reads.
        needed = volume.size + 2 * there.size
        free = self._destination.describe()['free_gb']
        if free <= needed:
            raise cinder_exception.VolumeDriverException(message=_(
                'it needs %(needed)d GiB here, and only %(free).2f GiB are '
                'free') % {'needed': needed, 'free': free})

    def _begin(self, context: cinder_context.RequestContext,
               volume: objects.Volume, image_meta: dict[str, Any],
               size: int) -> objects.Volume:
        """Create the row of an image-volume, and its entry in the cache.

        Like that of a placeholder, it uses no quota, as a crash would leave
        the quota wrong.
        """
        mine = objects.Volume(
            context=context, size=size, status='creating',
            attach_status='detached', host=volume.host, cluster_name=None,
            service_uuid=volume.service_uuid,
            availability_zone=volume.availability_zone,
            volume_type_id=volume.volume_type_id, user_id=context.user_id,
            project_id=context.project_id, use_quota=False,
            display_name='image-%s' % image_meta['id'],
            admin_metadata={'readonly': 'True'})
        if not self._cache.ensure_space(context, mine):
            raise cinder_exception.VolumeDriverException(message=_(
                'image_volume_cache_max_size_gb is less than its size'))
        with db_api.main_context_manager.writer.using(context):
            mine.create()
            mine.set_worker()
            self._cache.create_cache_entry(context, mine, image_meta['id'],
                                           image_meta)
        return mine

    @staticmethod
    def _end(mine: objects.Volume, **fields: Any) -> None:
        mine.update(fields)
        mine.save()
        mine.unset_worker()

    # The node that has the cached image

    def serve(self, context: cinder_context.RequestContext,
              placeholder_id: str, volume_id: str) -> None:
        """Take the snapshot that a clone's placeholder names, and export it.

        The lock is that of the release, which deletes the snapshot if the
        clone has been given up by then.

        :param volume_id: of the volume here, whose clone it is
        :raises: ReadLagsBehind, NotHere, RequestsWait
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        origin = lookups.get(context, volume_id)
        if placeholder is None or origin is None:
            raise exception.ReadLagsBehind(volume=volume_id)
        with self._backend.lock(placeholder.volume_id):
            row = lookups.source_row(context, placeholder_id)
            if row is not None and (
                    self._snapshots.find(row.snapshot_id) is None):
                self._freeze(origin, row.snapshot_id)
            self._source.export_again(context, placeholder_id)
