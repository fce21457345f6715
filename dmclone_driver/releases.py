# SPDX-License-Identifier: Apache-2.0
"""What differs between the releases of Cinder, from 2025.1 on.

Other modules use the names of the newest release, and import from here what
an older one has elsewhere. Nothing compares versions: a name is looked for.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from typing import TYPE_CHECKING

from cinder import context as cinder_context
from cinder import objects

if TYPE_CHECKING:
    from cinder.image import cache

try:
    from cinder.db import api as db_api
    from cinder.db import models
except ImportError:
    # Before 2026.2.
    from cinder.db.sqlalchemy import api as db_api
    from cinder.db.sqlalchemy import models

try:
    from cinder.scheduler import sched_utils
except ImportError:
    # Before 2026.2.
    from cinder import utils as sched_utils

__all__ = ['as_object', 'db_api', 'delete_cached_volume', 'models',
           'sched_utils']


def delete_cached_volume(image_cache: cache.ImageVolumeCache,
                         context: cinder_context.RequestContext,
                         entry: models.ImageVolumeCacheEntry,
                         reason: str) -> None:
    """Delete a cached image, whose entry Cinder then removes."""
    if hasattr(image_cache, 'delete_cached_volume'):
        image_cache.delete_cached_volume(context, entry, reason)
    else:
        # In 2025.1.
        image_cache._delete_image_volume(context, entry)


def as_object(context: cinder_context.RequestContext,
              volume: objects.Volume | models.Volume) -> objects.Volume:
    """Return Cinder's object of a volume that a driver was given.

    2025.1 passes the database's row of a volume in which Glance has an image
    (CreateVolumeFromSpecTask._clone_image_volume in
    cinder/volume/flows/manager/create_volume.py).
    """
    if isinstance(volume, models.Volume):
        return objects.Volume.get_by_id(context, volume['id'])
    return volume
