# SPDX-License-Identifier: Apache-2.0
"""This node's backend: the objects that the parts of the driver share."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import contextlib
from typing import Any
from typing import TYPE_CHECKING

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder import objects
from cinder.volume import volume_utils
from oslo_context import context as oslo_context
from oslo_log import log as logging

from dmclone_driver.move import jobs
from dmclone_driver.move import locks
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move import row_repairs
from dmclone_driver.node import devices
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names

if TYPE_CHECKING:
    from cinder.brick.local_dev import lvm
    from cinder.volume import configuration as cinder_configuration

    from dmclone_driver.move.rpcapi import PeerClient
    from dmclone_driver.node.initiator import Initiator
    from dmclone_driver.node.metadata.base import MetadataStore
    from dmclone_driver.node.targets.base import SourceTarget
    from dmclone_driver.node import thin_pools

LOG = logging.getLogger(__name__)


class Backend:
    """One backend on one node.

    :ivar host: ``node@backend``
    :ivar group: Cinder's LVM object of the data volume group
    """

    def __init__(self, host: str,
                 configuration: cinder_configuration.Configuration,
                 group: lvm.LVM, metadata: MetadataStore,
                 target: SourceTarget, initiator: Initiator,
                 client: PeerClient) -> None:
        self.host = host
        self.configuration = configuration
        self.group = group
        self.metadata = metadata
        self.target = target
        self.initiator = initiator
        self.client = client
        self.jobs = jobs.Jobs()
        self.locks = locks.Locks(host, self.jobs)
        #: Names of clones in use by requests, once per request. The watcher
        #: leaves these clones alone.
        self.busy: list[Names] = []
        #: The pool of thin volumes as Cinder's last statistics found it; None
        #: if new volumes are thick, or if that is not known.
        self.pool: thin_pools.ThinPool | None = None

    @property
    def node(self) -> str:
        """The node's name, as in the host of its cinder-volume."""
        return volume_utils.extract_host(self.host, 'host')

    @property
    def thin(self) -> bool:
        """Whether new volumes are thin. Those that exist may differ."""
        return bool(self.configuration.lvm_type == 'thin')

    def capacity(self) -> tuple[float, float]:
        """Return what is free for volumes, and the size of all, in GiB.

        That of the pool if volumes are thin. Cinder updates it each minute.
        """
        if self.thin:
            return (float(self.group.vg_thin_pool_free_space),
                    float(self.group.vg_thin_pool_size))
        return float(self.group.vg_free_space), float(self.group.vg_size)

    def capabilities(self) -> dict[str, Any]:
        """Return the driver's own capabilities for volume types."""
        return {'dmclone_metadata_backend': self.metadata.kind,
                'dmclone_metadata_persistent': self.metadata.persistent}

    @property
    def tuning(self) -> devices.Tuning:
        """The hydration settings for clones of this backend."""
        return devices.Tuning(
            self.configuration.dmclone_hydration_window,
            self.configuration.dmclone_hydration_batch_size,
            held=self.configuration.dmclone_hydration_min_rate > 0)

    def holds(self, row: objects.Volume) -> bool:
        """Whether a row's logical volume is on this backend."""
        return lookups.backend_of(row) == self.host

    def is_foreign(self, row: objects.Volume) -> bool:
        """Whether a row is on a backend with another name than this one.

        Cinder has probably copied its volume there. If that is a backend of
        another driver, ``provider_id`` is still that of the source, and the
        name may be that of a logical volume here (_migrate_volume_generic in
        cinder/volume/manager.py, update_migrated_volume in
        cinder/volume/drivers/lvm.py).
        """
        there = lookups.backend_of(row)
        return bool(there) and (
            peers.backend_name(there) != peers.backend_name(self.host))

    def correct(self, context: cinder_context.RequestContext,
                row: objects.Volume) -> None:
        """Correct a row whose host was changed by another program.

        An operator's command, or Cinder after it has waited for an answer,
        may have changed the host of a volume that this driver has moved
        meanwhile. A logical volume on this node outranks the row.
        """
        there = lookups.recorded_backend(row)
        if not (row.host and there and row_repairs.is_altered(row)) or (
                lookups.is_being_made(context, row.id)):
            return
        if there != volume_utils.extract_host(row.host) == self.host and (
                self.logical_volume(Names(row.name_id)) is not None):
            # The node was renamed.
            row_repairs.set_owner(context, row)
        elif placeholders.is_placeholder(row) or not (
                self.is_foreign(row) or self.service(context, there) is None):
            row_repairs.put_back(context, row)
        row.refresh()

    def correct_all(self, context: cinder_context.RequestContext) -> None:
        """Correct all altered rows of this backend; find them in one query."""
        for row_id in row_repairs.altered(context, self.host):
            try:
                row = lookups.get(context, row_id)
                if row is not None:
                    self.correct(context, row)
            except Exception:
                LOG.exception('Correcting the row of volume %s failed; it is '
                              'tried again.', row_id)

    def is_up(self, context: cinder_context.RequestContext,
              host: str) -> bool:
        """Whether the service of a backend has reported recently."""
        service = self.service(context, host)
        return service is not None and service.is_up

    @staticmethod
    def service(context: cinder_context.RequestContext,
                host: str) -> objects.Service | None:
        """Return the service of a backend, running or not, or None."""
        try:
            return objects.Service.get_by_args(context.elevated(), host,
                                               'cinder-volume')
        except cinder_exception.ServiceNotFound:
            return None

    def logical_volume(
            self, names: Names) -> logical_volumes.LogicalVolume | None:
        """Return a volume's logical volume, or None."""
        return logical_volumes.find(names.volume, self.group.vg_name)

    def warm_up(self) -> None:
        """Start the privileged daemons of Cinder and os-brick.

        They need seconds to start, and the first request would wait.
        """
        try:
            self.initiator.name()
            self.target.unexport('dmclone-warm-up')
        except Exception:
            LOG.exception('Starting the iSCSI tools in advance failed; the '
                          'first move starts them.')

    @contextlib.contextmanager
    def mark_busy(self, names: Names) -> collections.abc.Iterator[None]:
        """Have the watcher leave a clone alone for some time."""
        self.busy.append(names)
        try:
            yield
        finally:
            self.busy.remove(names)

    def lock(self, volume_id: str, timeout: float | None = None
             ) -> contextlib.AbstractContextManager[None]:
        """Serialise this node's operations on a volume.

        Between nodes the database decides, see :mod:`records`. The holder of
        this lock may call a peer, which takes the peer's own lock. The
        handler of a peer's call that takes this lock must not call the peer.

        :param timeout: seconds to wait; a coordination service that does not
            answer can take longer, by its own timeout (30 seconds with etcd)
        :returns: context manager, which raises LockNotAcquired before its
            body runs, and no exception of its own afterwards
        """
        return self.locks.hold(volume_id, timeout)

    @contextlib.contextmanager
    def lock_owner(self, source: placeholders.Placeholder
                   ) -> collections.abc.Iterator[None]:
        """Hold the lock of the volume to which a source belongs.

        If Cinder copies the volume to another backend, the source belongs to
        the row that is deleted then, see :func:`row_repairs.take_over`.

        :param source: is read again under the lock, unless it is gone
        """
        while True:
            volume_id = source.volume_id
            with self.lock(volume_id):
                with contextlib.suppress(cinder_exception.VolumeNotFound):
                    source.refresh()
                if source.volume_id == volume_id:
                    yield
                    return


def context_of(volume: objects.Volume | objects.Backup
               ) -> cinder_context.RequestContext:
    """Return an administrator's context in the project of a volume.

    It has the id of the thread's request, which user messages and the logs of
    peers show.
    """
    current = oslo_context.get_current()
    return cinder_context.RequestContext(
        user_id=volume.user_id, project_id=volume.project_id, is_admin=True,
        request_id=current.request_id if current else None, overwrite=False)
