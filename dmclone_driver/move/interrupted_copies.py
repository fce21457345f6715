# SPDX-License-Identifier: Apache-2.0
"""Snapshots from which Cinder's LVM driver was copying when it was killed.

Nothing else removes such a snapshot, and its origin could be neither moved nor
deleted (cinder/volume/drivers/lvm.py, create_cloned_volume).
"""

import collections.abc
import re

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver.move.backend import Backend
from dmclone_driver.move.snapshots import Snapshots
from dmclone_driver.node import deletion
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node import names as names_module

LOG = logging.getLogger(__name__)

# The name of the snapshot from which Cinder's LVM driver copies a volume.
_COPY = re.compile('clone-snap-' + names_module.UUID)


class InterruptedCopies:
    """The snapshots that an earlier process of one backend has left."""

    def __init__(self, backend: Backend, snapshots: Snapshots) -> None:
        self._backend = backend
        self._snapshots = snapshots
        #: Snapshots that were being copied when the service ended, by name.
        self._left = backend.jobs.kind('remove snapshot', self.remove)

    def find(self, volumes: collections.abc.Iterable[LogicalVolume]) -> None:
        """Remember those among all logical volumes at a start."""
        self._left.update({lv.name: lv for lv in volumes
                           if _COPY.fullmatch(lv.name)})

    def start_to_remove(self, context: cinder_context.RequestContext) -> None:
        """Remove those that were found, in a job."""
        if self._left:
            self._backend.jobs.start(self._left.name, self.remove, context)

    def remove(self, context: cinder_context.RequestContext) -> None:
        """Remove those that were found, and are not removed yet."""
        for name, lv in list(self._left.items()):
            LOG.warning('Removing snapshot %s: the copy of a volume was '
                        'interrupted.', name)
            self._snapshots.origin_may_go(lv.origin)
            try:
                deletion.delete_snapshot(lv, self._backend.group,
                                         self._backend.configuration)
            except Exception:
                LOG.exception('Removing snapshot %s failed; it is tried '
                              'again.', name)
            else:
                self._left.discard(name)
