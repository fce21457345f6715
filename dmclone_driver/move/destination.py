# SPDX-License-Identifier: Apache-2.0
"""The new home's side of a move: prepare, activate, or delete."""

import collections.abc
import contextlib
import dataclasses
import functools
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
from dmclone_driver.move.bypass import Bypass
from dmclone_driver.move import lookups
from dmclone_driver.move.marks import Marks
from dmclone_driver.move.pacer import Pacer
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import room
from dmclone_driver.move.teardown import Teardown
from dmclone_driver.move import threads
from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm
from dmclone_driver.node.metadata import sizing
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.node.quantities import Sectors
from dmclone_driver.node import thin_pools
from dmclone_driver.privsep import block
from dmclone_driver import steps
from dmclone_driver.steps import Step

LOG = logging.getLogger(__name__)

# Bytes of an imported disk that are not the volume's.
_MARGINS = 2 * devices.MARGIN * table.SECTOR

# Number of checks, one second apart, whether a handle has been closed.
CLOSE_ATTEMPTS = 5

# Number of destinations that are prepared at a time. With more, each takes
# longer, until none is done before its home gives up.
PREPARED_AT_ONCE = 4

# Seconds to wait for the old home to seal its copy before a gate opens.
SEAL_TIMEOUT = 3


class Destination:
    """Destinations on this node; each is named after its placeholder."""

    def __init__(self, backend: Backend, teardown: Teardown,
                 pacer: Pacer, bypass: Bypass, marks: Marks) -> None:
        self._backend = backend
        self._pacer = pacer
        self._teardown = teardown
        self._bypass = bypass
        self._marks = marks
        self._turns = threading.BoundedSemaphore(PREPARED_AT_ONCE)

    def describe(self) -> dict[str, Any]:
        """Return the facts that a home checks before it begins a move.

        :returns: e.g. ``{'initiator': 'iqn.1993-08.org.debian:01:1a2b',
            'free_gb': 93.5, 'reserved_percentage': 0, 'capabilities':
            {'dmclone_metadata_backend': 'lvm', ...}}``
        """
        return {'initiator': self._backend.initiator.name(),
                'free_gb': self._free_gb(),
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

    def _free_gb(self) -> float:
        return room.free_gb(self._backend)

    def prepare(self, context: cinder_context.RequestContext, volume_id: str,
                placeholder_id: str, size: Bytes, location: str,
                auth: str) -> str:
        """Build a passive clone of an exported source.

        :param size: of the source, in bytes
        :param location: provider_location of the source's export
        :param auth: provider_auth of the source's export
        :returns: the handle's path
        :raises: MoveGone if the home has aborted the move meanwhile; PeerBusy
        """
        names_module.belongs_to(placeholder_id, volume_id)
        names = Names(placeholder_id)
        with self._backend.mark_busy(names), self._backend.lock(
                volume_id), self._turn():
            records.check_prepared(context, volume_id, placeholder_id)
            try:
                self._build(names, size, location, auth)
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

    def _build(self, names: Names, size: Bytes, location: str,
               auth: str) -> None:
        # Both take seconds, and neither needs the other.
        with threads.beside(self._backend.initiator.connect, location,
                            auth) as connected:
            lv, before = self._create_logical_volume(names, size)
            if lv.size != size:
                raise self._other_size(lv, size)
            lv, path, region = self._create_metadata(names, lv, before)
            disk = connected()
        steps.reached(Step.CONNECTED, names.name_id)
        self._compare(names, lv, disk)
        self._build_passive(names, lv, path, region, disk)

    def build_copy(self, names: Names, placeholder: Placeholder,
                   size: str | None) -> None:
        """Build a passive clone of a snapshot, which may be smaller.

        :param placeholder: of the exported source
        :param size: of the new volume, as LVM's commands take it; None if it
            is the snapshot's
        """
        location, auth = self._location(placeholder)
        disk = self._backend.initiator.connect(location, auth)
        steps.reached(Step.CONNECTED, names.name_id)
        source = Bytes(block.size(disk) - _MARGINS)
        lv, before = self._create_logical_volume(names, size or source)
        if lv.size < source:
            raise self._other_size(lv, source)
        lv, path, region = self._create_metadata(
            names, lv, before, *([] if lv.size == source else [
                logical_volumes.CLONED_TAG + str(source)]))
        self._compare(names, lv, disk)
        self._build_passive(names, lv, path, region, disk)

    @staticmethod
    def _location(placeholder: Placeholder) -> tuple[str, str]:
        """Return where a source is exported, and how to log in there.

        :raises: ReadLagsBehind
        """
        location = placeholder.provider_location
        auth = placeholder.provider_auth
        if not (location and auth):
            # The node has exported it, and written that to the row.
            raise exception.ReadLagsBehind(volume=placeholder.volume_id)
        return location, auth

    def _create_metadata(self, names: Names,
                         lv: logical_volumes.LogicalVolume,
                         before: logical_volumes.LogicalVolume | None,
                         *tags: str) -> tuple[logical_volumes.LogicalVolume,
                                              str, Sectors]:
        """Create a clone's metadata, and tag the clone in one command.

        What a thin volume has not allocated reads zeros. So regions of which
        the source has nothing, either, need not be copied: see :mod:`marks`.

        :param before: the logical volume as it was found, None if it is new
        :param tags: which the clone needs, too
        :returns: the logical volume with its tags, the path of the metadata,
            and the size of a region
        """
        steps.reached(Step.ALLOCATED, names.name_id)
        lv = dataclasses.replace(lv, tags=lv.tags.union(tags))
        metadata, size = self._backend.metadata, lv.cloned
        region = sizing.region(
            size, self._backend.configuration.dmclone_region_size,
            metadata.smallest_region)
        path, region = metadata.create(names, size, region, before)
        # Only now: the tag says that the metadata is formatted.
        added = [logical_volumes.METADATA_TAG + path.removeprefix('/dev/'),
                 *([logical_volumes.MARKABLE_TAG] if lv.thin else []), *tags]
        logical_volumes.tag(lv, *added)
        if lv.thin:
            room.refuse_overfull(self._backend, names)
        steps.reached(Step.FORMATTED, names.name_id)
        return dataclasses.replace(lv, tags=lv.tags.union(added)), path, region

    def _build_passive(self, names: Names, lv: logical_volumes.LogicalVolume,
                       path: str, region: Sectors, disk: str) -> None:
        LocalVolume(names).build_clone(lv, path, region, self._backend.tuning,
                                       disk=disk, passive=True)
        steps.reached(Step.PASSIVE, names.name_id)

    def _create_logical_volume(
            self, names: Names, size: Bytes | str) -> tuple[
                logical_volumes.LogicalVolume,
                logical_volumes.LogicalVolume | None]:
        """Create a clone's logical volume, or find that of an earlier attempt.

        :param size: is rounded up to whole extents
        :returns: it, and it again if it was there before, or else None
        """
        group, name = self._backend.group.vg_name, names.volume
        pool = thin_pools.name_of(group) if self._backend.thin else ''
        try:
            logical_volumes.create(group, name, size, pool=pool)
        except lvm.Exists:
            # It is looked for only then, since that is one more process.
            found = self._backend.logical_volume(names)
            if found is None:
                raise
            return found, found
        lv = logical_volumes.LogicalVolume(group, name, Bytes(0), active=True,
                                           pool=pool)
        return dataclasses.replace(lv, size=block.size(lv.path)), None

    @staticmethod
    def _other_size(lv: logical_volumes.LogicalVolume, there: Bytes
                    ) -> cinder_exception.VolumeDriverException:
        return cinder_exception.VolumeDriverException(message=_(
            "logical volume %(lv)s has %(here)d bytes, its source "
            "%(there)d: the volume groups' extent sizes differ") % {
                'lv': lv.name, 'here': lv.size, 'there': there})

    @staticmethod
    def _compare(names: Names, lv: logical_volumes.LogicalVolume,
                 disk: str) -> None:
        """Refuse a disk whose size or block size is not the volume's."""
        if block.size(disk) != lv.cloned + _MARGINS:
            raise cinder_exception.VolumeDriverException(message=_(
                'the imported disk of %(names)s has %(disk)d bytes instead of '
                '%(expected)d') % {
                    'names': names, 'disk': block.size(disk),
                    'expected': lv.cloned + _MARGINS})
        here, there = (block.logical_block_size(path)
                       for path in (lv.path, disk))
        if here != there:
            raise cinder_exception.VolumeDriverException(message=_(
                'blocks have %(here)d bytes on this node and %(there)d on '
                'the source') % {'here': here, 'there': there})

    def _undo(self, context: cinder_context.RequestContext, volume_id: str,
              names: Names, location: str, auth: str) -> None:
        try:
            if self._delete_unwritten(context, volume_id, names):
                self._backend.initiator.disconnect(location, auth)
        except Exception:
            LOG.exception('Removing the incomplete destination of %s failed. '
                          'The home will request the removal again.', names)

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

    def activate(self, context: cinder_context.RequestContext,
                 placeholder_id: str, sealed: bool = False) -> None:
        """Open the gate of a destination after the switchover.

        :param sealed: whether the old home has sealed its copy already
        :raises: MoveGone if there was no switchover
        """
        placeholder = lookups.placeholder(context, placeholder_id)
        if placeholder is None:
            raise self._unknown(placeholder_id)
        volume_id, state = placeholder.volume_id, placeholder.state
        if state == State.RELEASED:
            # The volume is complete on this node already.
            return
        if state not in (State.SWITCHED, State.LOST):
            raise exception.MoveGone(
                volume=volume_id, placeholder=placeholder_id, reason=state)
        names = Names(placeholder_id)
        lost = state == State.LOST
        with self._backend.mark_busy(names):
            seal = (None if lost or sealed else
                    self._ask_to_seal(context, placeholder))
            with self._backend.lock(volume_id):
                if placeholder.snapshot_id and placeholders.state_of(
                        lookups.owner_row(context, placeholder_id)) == (
                            State.REVERTING):
                    # It has not taken the place of the volume's data.
                    return
                # With a closed gate: open() decides who may write, and tags
                # the logical volume first.
                self.rebuild(names, passive=True)
                clone = LocalVolume(names).is_clone()
                if clone and sysfs.is_suspended(names.of(GATE)):
                    owner = lookups.owner_row(context, placeholder_id)
                    self.open(names, volume_id, writable=(
                        owner is not None and
                        not placeholders.is_placeholder(owner)), wait=seal)
            answers = not lost and (sealed or seal is None or seal())
        if clone:
            self._in_background(names, self._after_opening, context, names,
                                placeholder, lost, answers)

    def _in_background(self, names: Names,
                       function: collections.abc.Callable[..., None],
                       *args: Any) -> None:
        """Do what no request waits for, as a job of the clone.

        A clone has one job at a time. If it has one, such as the watcher's
        that has called this, it is done before this returns.
        """
        if self._backend.jobs.at_work(names):
            function(*args)
        else:
            self._backend.jobs.start(names, function, *args)

    def _after_opening(self, context: cinder_context.RequestContext,
                       names: Names, placeholder: Placeholder, lost: bool,
                       answers: bool) -> None:
        """Start the hydration; if this is killed, the watcher does it.

        :param answers: whether the old home has sealed the source
        """
        with self._backend.mark_busy(names):
            if lost:
                self.end_source(context, names, placeholder)
            # What is to be marked first would take too long; the watcher has
            # it done.
            elif answers and not self._marks.are_due(names):
                self.hydrate(context, names, placeholder)

    @staticmethod
    def _unknown(
            placeholder_id: str) -> cinder_exception.VolumeDriverException:
        return cinder_exception.VolumeDriverException(message=_(
            'move %s is not in the database that this node reads')
            % placeholder_id)

    def open(self, names: Names, volume_id: str, writable: bool = True,
             tagged: bool = False,
             wait: collections.abc.Callable[[], bool] | None = None) -> None:
        """Tag the logical volume as opened, then open its gate.

        The tag survives a loss of the database. It keeps the driver from
        deleting the logical volume as an unused destination.

        :param writable: False if the volume has moved to another node since
        :param tagged: whether the tag is known to be there
        :param wait: waits, between the two, for the old home, which seals its
            copy meanwhile: a guest may wait, and both need a command of LVM
        """
        if not tagged:
            # LVM has each tag once, so it need not be asked before.
            logical_volumes.tag_by_name(
                self._backend.group.vg_name, names.volume,
                logical_volumes.OPENED_TAG + volume_id)
        if wait is not None:
            wait()
        steps.reached(Step.OPENING, names.name_id)
        LocalVolume(names).open_gate(writable)
        steps.reached(Step.OPENED, names.name_id)
        LOG.info('Volume %(volume)s is open%(how)s on %(host)s.',
                 {'volume': volume_id, 'host': self._backend.host,
                  'how': '' if writable else ' for reading'})

    def _ask_to_seal(self, context: cinder_context.RequestContext,
                     placeholder: Placeholder
                     ) -> collections.abc.Callable[[], bool]:
        """Ask the old home to refuse writes before the gate opens here.

        Best effort: its node may be dead, and a guest waits at the gate. Use
        a thread, because a call to a message bus that is down exceeds its
        timeout.

        :returns: a function that waits for the answer, at most until
            :data:`SEAL_TIMEOUT` is over, and returns whether there was one
        """
        host, until = placeholder.backend, time.monotonic() + SEAL_TIMEOUT
        answers: list[str | None] = []

        def ask() -> None:
            try:
                self._backend.client.seal_source(context, host, placeholder.id,
                                                 timeout=SEAL_TIMEOUT)
                answers.append(None)
            except exception.PeerError as error:
                answers.append(error.msg)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        @functools.cache
        def answered() -> bool:
            thread.join(max(0, until - time.monotonic()))
            error, = answers or ['no answer']
            if error:
                self._warn_unsealed(placeholder, error)
            return not error

        return answered

    @staticmethod
    def _warn_unsealed(placeholder: Placeholder, error: str) -> None:
        LOG.warning('Opening volume %(volume)s although its old home %(host)s '
                    'has not confirmed that it refuses writes: %(error)s. By '
                    'the database this node is the home.',
                    {'volume': placeholder.volume_id,
                     'host': placeholder.backend, 'error': error})

    def rebuild(self, names: Names, passive: bool = False) -> None:
        """Recreate the missing devices of a clone, with its own metadata.

        Existing devices are kept. The hydrated regions are served at once.
        The source is connected later, see :meth:`reconnect`.

        :param passive: whether to keep the gate closed
        :raises: MetadataUnusable
        """
        local = LocalVolume(names)
        if local.exists():
            if local.is_clone():
                # A crash may have prevented the driver from doing so.
                local.forbid_discards()
            return
        lv = self._backend.logical_volume(names)
        if lv is None:
            # The volume's home is lost, and its row is on this node only
            # for the deletion.
            LOG.error('There is no logical volume of %s on this node.', names)
            return
        # Without the tag it was never a clone, or is none any longer.
        found = self._backend.metadata.find(names) if lv.clone else None
        if found is None:
            raise exception.MetadataUnusable(
                names=names, lv=lv.full_name, reason=_('it is missing'))
        path, region = found
        local.build_clone(lv, path, region, self._backend.tuning,
                          passive=passive)

    def ask_for_source(self, context: cinder_context.RequestContext,
                       placeholder: Placeholder) -> None:
        """Ask the old home to export a source, if it does not yet.

        :raises: PeerUnreachable, PeerFailed
        """
        self._backend.client.export_source(
            context, placeholder.backend, placeholder.id)

    def reconnect(self, context: cinder_context.RequestContext, names: Names,
                  placeholder: Placeholder, anew: bool = False) -> None:
        """Connect a clone whose source shim has no disk.

        :param placeholder: which points to the source
        :param anew: whether it may have one, of another source that shows
            the same
        :raises: RequestsWait: then it keeps that
        """
        local = LocalVolume(names)
        self.ask_for_source(context, placeholder)
        # Without the lock a concurrent deletion could leave the session.
        with self._backend.lock_owner(placeholder):
            if local.is_connected() and not anew:
                return
            location, auth = self._location(placeholder)
            disk = self._backend.initiator.connect(location, auth)
            lv = self._backend.logical_volume(names)
            # A clone's gate lies on it.
            assert lv is not None
            self._compare(names, lv, disk)
            local.connect_source(disk, table.sectors(lv.cloned), anew)

    def hydrate(self, context: cinder_context.RequestContext, names: Names,
                placeholder: Placeholder) -> bool:
        """Start the hydration once the old home has sealed the source.

        If it is not its turn, it waits for nothing else afterwards.

        :returns: whether it runs; the watcher tries again if not
        """
        local = LocalVolume(names)
        try:
            if not local.is_connected():
                self.reconnect(context, names, placeholder)
            sealed = self._backend.client.seal_source(
                context, placeholder.backend, placeholder.id)
            snapshot = sealed and self._bypass.begin(context, placeholder)
            if snapshot:
                self.reconnect(context, names, snapshot, anew=True)
                self._bypass.end(context, placeholder)
                # It may be a source on another node now.
                placeholder.refresh()
        except exception.PeerError as error:
            LOG.warning('Hydration of %(names)s waits: %(error)s.',
                        {'names': names, 'error': error.msg})
            self._pacer.give_up(names)
            return False
        if not sealed:
            self._pacer.give_up(names)
            LOG.info('Hydration of %s waits: its source is still open on '
                     'the old home.', names)
            return False
        self._marks.make(context, names, placeholder)
        with self._backend.lock_owner(placeholder):
            # Without the lock this could restart a hydration that a
            # concurrent deletion has just stopped.
            if not self._pacer.take_turn(names, placeholder.backend):
                return False
            local.start_hydration()
            steps.reached(Step.HYDRATING, names.name_id)
            LOG.info('Hydration of %s has started.', names)
        return True

    def is_marking(self, names: Names) -> bool:
        """Whether it is being found out what need not be copied."""
        return names in self._marks.making

    def end_source(self, context: cinder_context.RequestContext, names: Names,
                   placeholder: Placeholder) -> None:
        """Fail all requests that wait for a source whose node is lost.

        Regions that were copied or written here can be read. Reads of the
        others fail.

        :param placeholder: whose volume is also set to error
        """
        local = LocalVolume(names)
        self._pacer.give_up(names)
        with self._backend.lock_owner(placeholder):
            if local.is_clone():
                self._backend.initiator.cut(placeholder.provider_location)
                local.fail_without_source()
                local.stop_hydration()
        records.fail(context, placeholder.volume_id)

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
                raise self._unknown(placeholder_id)
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
