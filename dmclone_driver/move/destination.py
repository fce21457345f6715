# SPDX-License-Identifier: Apache-2.0
"""The new home's side of a move: prepare the destination, or delete it."""

import collections.abc
import contextlib
import threading
import time
from typing import Any

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import timeutils

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import attachments
from dmclone_driver.move.backend import Backend
from dmclone_driver.move.builder import Builder
from dmclone_driver.move import lookups
from dmclone_driver.move.marks import Marks
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import room
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes

LOG = logging.getLogger(__name__)

# Number of checks, one second apart, whether a handle has been closed.
CLOSE_ATTEMPTS = 5

# Number of destinations that are prepared at a time. With more, each takes
# longer, until none is done before its home gives up.
PREPARED_AT_ONCE = 4


class Destination:
    """Destinations on this node; each is named after its placeholder."""

    def __init__(self, backend: Backend, builder: Builder,
                 teardown: Teardown, marks: Marks) -> None:
        self._backend = backend
        self._builder = builder
        self._teardown = teardown
        self._marks = marks
        self._turns = threading.BoundedSemaphore(PREPARED_AT_ONCE)

    def describe(self) -> dict[str, Any]:
        """Return the facts that a home checks before it begins a move.

        :returns: e.g. ``{'initiator': 'iqn.1993-08.org.debian:01:1a2b',
            'free_gb': 93.5, 'reserved_percentage': 0, 'capabilities':
            {'dmclone_metadata_backend': 'lvm', ...}}``; if only what is
            allocated is copied to this node, also ``'virtual_free_gb':
            850.0``, which the sizes of volumes may take, and
            ``'free_blocks_gb': 93.5``, which their data may
        """
        free = self._free()
        return {'initiator': self._backend.initiator.name(),
                'free_gb': free.gb,
                **({'virtual_free_gb': free.virtual_gb,
                    'free_blocks_gb': free.blocks_gb}
                   if free.blocks_gb is not None and self._marks.possible()
                   else {}),
                'reserved_percentage':
                    self._backend.configuration.reserved_percentage,
                'capabilities': self._backend.capabilities()}

    def identify(self) -> dict[str, Any]:
        """Return what dmclone-check on another node compares with its own.

        :returns: e.g. ``{'time': 1767225600.5, 'target_helper': 'tgtadm',
            'target_ip_address': '192.0.2.11', 'target_port': 3260}``, with
            the seconds since 1970
        """
        configuration = self._backend.configuration
        return {'time': timeutils.utcnow_ts(microsecond=True),
                'target_helper': configuration.target_helper,
                'target_ip_address': configuration.target_ip_address,
                'target_port': configuration.target_port}

    def _free(self) -> room.Free:
        return room.free(self._backend)

    def progress(self, placeholder_id: str) -> dict[str, Any] | None:
        """Return the progress of a volume whose source is lost.

        :returns: ``{'complete': False, 'completing': False, 'hydrated': 7,
            'total': 16}``: whether the source is not needed, or soon will
            not be, and counts of regions; None if the logical volume is not
            on this node
        """
        names = Names(placeholder_id)
        lv = self._backend.logical_volume(names)
        if lv is None:
            return None
        status = dmsetup.clone(names.of(CLONE))
        if status:
            status = self._marks.without(names, status)
        return {'complete': lv.complete,
                'completing': not lv.clone or bool(status and
                                                   status.complete),
                'hydrated': status.hydrated if status else 0,
                'total': status.total if status else 0}

    def prepare(self, context: cinder_context.RequestContext, volume_id: str,
                placeholder_id: str, size: Bytes, location: str,
                auth: str, allocated: Bytes | None = None) -> str:
        """Build a passive clone of an exported source.

        :param size: of the source, in bytes
        :param location: provider_location of the source's export
        :param auth: provider_auth of the source's export
        :param allocated: bytes that a thin source has allocated, if only
            these are copied to a thin volume
        :returns: the handle's path
        :raises: MoveGone if the home has aborted the move meanwhile; PeerBusy
        """
        names_module.belongs_to(placeholder_id, volume_id)
        names = Names(placeholder_id)
        with self._backend.mark_busy(names), self._backend.lock(
                volume_id), self._turn():
            records.check_prepared(context, volume_id, placeholder_id)
            try:
                self._builder.build(names, size, location, auth, allocated)
                records.check_prepared(context, volume_id, placeholder_id)
            except Exception:
                with excutils.save_and_reraise_exception():
                    self._undo(context, volume_id, names, location, auth)
        return names.path()

    @contextlib.contextmanager
    def _turn(self) -> collections.abc.Iterator[None]:
        """Wait until few enough other destinations are being prepared.

        :raises: PeerBusy after half of the time for which the home waits: the
            other half is for the preparation
        """
        seconds = self._backend.configuration.dmclone_prepare_timeout / 2
        if not self._turns.acquire(timeout=seconds):
            raise exception.PeerBusy(number=PREPARED_AT_ONCE, seconds=seconds)
        try:
            yield
        finally:
            self._turns.release()

    def _undo(self, context: cinder_context.RequestContext, volume_id: str,
              names: Names, location: str, auth: str) -> None:
        try:
            if self._delete_unwritten(context, volume_id, names):
                self._backend.initiator.disconnect(location, auth)
        except Exception:
            LOG.exception('Removing the incomplete destination of %s failed. '
                          'The home will request the removal again.', names)

    def delete(self, context: cinder_context.RequestContext,
               placeholder_id: str) -> bool:
        """Delete a destination if it is proven that it was not written.

        :returns: False if it was written, or is the volume's home now
        :raises: VolumeDriverException if it is not written but in use: the
            home aborts the move, so that the gate stays closed, and
            repeats this request
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        names = Names(placeholder_id)
        if placeholder is None:
            if self._backend.logical_volume(names) is not None:
                raise lookups.unknown(placeholder_id)
            return True
        volume_id = placeholder.volume_id
        with self._backend.mark_busy(names), self._backend.lock(volume_id):
            self._abort_if_early(context, placeholder, names)
            placeholder = lookups.placeholder(context, placeholder_id)
            if placeholder is None:
                # Another request has just deleted it.
                return True
            if placeholder.state in placeholders.OF_SOURCES:
                return False
            if placeholder.state == State.ABORTED:
                return self._delete_aborted(names, placeholder)
            for _attempt in range(CLOSE_ATTEMPTS):
                if self._delete_unwritten(context, volume_id, names):
                    return True
                if LocalVolume(names).maybe_written():
                    return False
                time.sleep(1)
        raise self._still_open(names)

    def _abort_if_early(self, context: cinder_context.RequestContext,
                        placeholder: Placeholder, names: Names) -> None:
        """Abort a move whose destination was written before its attachment."""
        local = LocalVolume(names)
        volume_id = placeholder.volume_id
        volume = lookups.get(context, volume_id)
        if (volume is not None and attachments.attaching(
                volume, placeholder.node) and
                local.maybe_written() and
                local.never_acknowledged()):
            records.abort(context, volume_id, placeholder.id)

    def _delete_unwritten(self, context: cinder_context.RequestContext,
                          volume_id: str, names: Names) -> bool:
        """Delete a destination if it is proven that it was not written.

        The move is aborted in the database first. After a crash in the
        middle of the removal it can't be switched over.

        :returns: whether the destination is deleted
        """
        local = LocalVolume(names)
        self._teardown.refuse_opened(names, lookups.placeholder(
            context, names.name_id))
        if not local.never_written():
            return False
        if not records.abort(context, volume_id, names.name_id):
            local.allow_writes()
            return False
        placeholder = lookups.placeholder(context, names.name_id)
        if placeholder is not None and placeholder.state != State.ABORTED:
            # Only the newest version of the row has the session's data.
            raise exception.ReadLagsBehind(volume=names.name_id)
        self._teardown.delete_destination(names, placeholder)
        return True

    def _delete_aborted(self, names: Names, placeholder: Placeholder) -> bool:
        """Delete the destination of an aborted move, written or not.

        Its gate was never open, so no write was ever acknowledged. That is
        checked nevertheless, because the database may have been restored.

        :returns: whether the destination is deleted
        """
        local = LocalVolume(names)
        self._teardown.refuse_opened(names, placeholder)
        if not local.never_acknowledged():
            LOG.error('Keeping %(device)s of %(names)s: its move was aborted, '
                      'but it has been written and may hold the only copy of '
                      'data.', {'device': names.path(), 'names': names})
            return False
        self._backend.initiator.cut(placeholder.provider_location)
        lv = self._backend.logical_volume(names)
        with (contextlib.nullcontext() if lv is None else
              local.fail_writes(table.sectors(lv.cloned))):
            for _attempt in range(CLOSE_ATTEMPTS):
                if not local.is_open():
                    self._teardown.delete_destination(names, placeholder)
                    return True
                time.sleep(1)
        raise self._still_open(names)

    @staticmethod
    def _still_open(names: Names) -> cinder_exception.VolumeDriverException:
        return cinder_exception.VolumeDriverException(message=_(
            'device %(path)s of %(names)s cannot be deleted: it is still '
            'open') % {'path': names.path(), 'names': names})
