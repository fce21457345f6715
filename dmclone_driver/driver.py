# SPDX-License-Identifier: Apache-2.0
"""The volume driver class that Cinder loads and calls.

Cinder's LVM driver handles the logical volumes of one node. This driver adds
the handles that users of a volume open, and the moves between nodes.
"""

import collections.abc
import contextlib
import functools
from typing import Any
import uuid

from cinder import context as cinder_context
from cinder import coordination
from cinder import exception as cinder_exception
from cinder import interface
from cinder.message import message_field
from cinder import objects
from cinder.volume.drivers import lvm
from cinder.volume import volume_utils
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import excutils
from oslo_utils import importutils
from oslo_utils import units

import dmclone_driver
from dmclone_driver import backups
from dmclone_driver.checks import options
from dmclone_driver.checks import start
from dmclone_driver import connections
from dmclone_driver import exception
from dmclone_driver import groups
from dmclone_driver.i18n import _
from dmclone_driver import manageable
from dmclone_driver.move import arrival
from dmclone_driver.move import backend as backend_module
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import bypass
from dmclone_driver.move import completion
from dmclone_driver.move import copies
from dmclone_driver.move import counts
from dmclone_driver.move.deadline import Deadline
from dmclone_driver.move import deletion_records
from dmclone_driver.move import destination
from dmclone_driver.move import events
from dmclone_driver.move import followers
from dmclone_driver.move import home
from dmclone_driver.move import hydration
from dmclone_driver.move import image_cache
from dmclone_driver.move import lookups
from dmclone_driver.move import maps
from dmclone_driver.move import marks
from dmclone_driver.move import messages
from dmclone_driver.move import metrics
from dmclone_driver.move import metrics_endpoint
from dmclone_driver.move import new_content
from dmclone_driver.move import notifications
from dmclone_driver.move import outages
from dmclone_driver.move import outgoing
from dmclone_driver.move import pace_requests
from dmclone_driver.move import pace_settings
from dmclone_driver.move import pacer
from dmclone_driver.move import peer_requests
from dmclone_driver.move import peers
from dmclone_driver.move import preflight
from dmclone_driver.move import recovery
from dmclone_driver.move import relocation
from dmclone_driver.move import remotes
from dmclone_driver.move import reporter
from dmclone_driver.move import room
from dmclone_driver.move import row_repairs
from dmclone_driver.move import rpcapi
from dmclone_driver.move import snapshot_rows
from dmclone_driver.move import snapshots as snapshots_module
from dmclone_driver.move import source
from dmclone_driver.move import teardown
from dmclone_driver.move import watcher
from dmclone_driver.node import deletion
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import initiator
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.logical_volumes import LogicalVolume
from dmclone_driver.node.metadata import stores
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import ORIGIN
from dmclone_driver.node import pacing
from dmclone_driver.node import snapshot_devices
from dmclone_driver.node import thin_pools
from dmclone_driver import opts
from dmclone_driver.privsep import block
from dmclone_driver import releases
from dmclone_driver.releases import models
from dmclone_driver import reverts
from dmclone_driver import steps
from dmclone_driver.steps import Step
from dmclone_driver import thin_clones

LOG = logging.getLogger(__name__)

# Fields about exports and moves that are cleared in a new row. Cinder copies
# them from the volume that it migrates, or clones for images
# (cinder/volume/manager.py, _migrate_volume_generic, _clone_image_volume).
_CLEARED_EXPORT_FIELDS = ('provider_location', 'provider_auth',
                          'replication_driver_data')

# A method of the driver whose first argument is a volume.
_Method = collections.abc.Callable[..., Any]


def _names(volume: objects.Volume) -> Names:
    return Names(volume.name_id)


def _in_one_place(action: str, hydrating: bool = False,
                  prepared: bool = False
                  ) -> collections.abc.Callable[[_Method], _Method]:
    """Refuse an operation while its volume (first argument) is moving.

    :param hydrating: whether the volume may be hydrating
    :param prepared: whether it may also have a prepared move
    """
    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def run(self: 'DMCloneVolumeDriver', volume: objects.Volume,
                *args: Any, **kwargs: Any) -> Any:
            context = backend_module.context_of(volume)
            with self._backend.lock(volume.id):
                self._preflight.refuse_if_gone(context, volume, action)
                (self._preflight.refuse_unless_here if prepared else
                 self._preflight.refuse_while_prepared if hydrating else
                 self._preflight.refuse_while_moving)(
                     context, volume, action)
                return method(self, volume, *args, **kwargs)
        return run
    return decorate


@interface.volumedriver
class DMCloneVolumeDriver(lvm.LVMVolumeDriver):
    """LVM volumes that move to the nodes of the instances that use them."""

    VERSION = dmclone_driver.__version__
    CI_WIKI_NAME = 'dmclone_driver_CI'
    # Cinder's object of the volume group.
    vg: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.configuration.append_config_values(opts.MOVE_OPTS)
        self.protocol = 'local'
        # As configured: a start replaces "auto".
        self._lvm_type = self.configuration.lvm_type
        # Nothing uses it before check_for_setup_error() has opened it.
        self._backend: Backend = None  # type: ignore[assignment]
        self._server: Any = None
        self._notifications: notifications.Notifications = (
            None)  # type: ignore[assignment]

    @classmethod
    def get_driver_options(cls) -> list[cfg.Opt]:
        """Return the options of this driver and of its base classes."""
        return opts.MOVE_OPTS + super().get_driver_options()

    # Start-up

    def check_for_setup_error(self) -> None:
        """Verify the configuration, rebuild handles, start to serve peers.

        Cinder calls this again if it fails.

        :raises: BadConfiguration
        """
        # Before any check that can fail: guests wait for these handles.
        devices.resume_left()
        start.check_kernel(self.configuration)
        backend = self.open_backend(serves=True)
        if self._server is None:
            start.log_faults(self.configuration)
            self._backend = backend
            self._assemble()

    def open_backend(self, serves: bool = False) -> Backend:
        """Open this node's backend, without recovery and without peers.

        :param serves: whether this is cinder-volume, which may create the
            thin pool; a command only looks at the node
        :returns: :class:`dmclone_driver.move.backend.Backend`
        :raises: BadConfiguration
        """
        start.check_options(self.configuration, DMCloneVolumeDriver)
        # A repeated start has it, as other parts do.
        if self._backend is None:
            self._open_group(serves)
        target = importutils.import_object(
            options.ISCSI_TARGETS[self.configuration.target_helper],
            configuration=self.configuration, executor=self._execute)
        return backend_module.Backend(
            self.host, self.configuration, self.vg,
            stores.open_store(self.configuration, self._execute), target,
            initiator.Initiator(
                self.configuration.num_volume_device_scan_tries,
                self.configuration.dmclone_source_timeout),
            rpcapi.PeerClient())

    def _open_group(self, serves: bool) -> None:
        """Open the volume group as Cinder does, with thick or thin volumes.

        Cinder creates a thin pool in any group that has none, if volumes are
        thin, and with "auto" (cinder/brick/local_dev/lvm.py, LVM.__init__).

        :raises: BadConfiguration
        """
        look = super().check_for_setup_error
        # Cinder opens it once.
        self.vg = None
        self.configuration.lvm_type = self._lvm_type
        if self._lvm_type == 'auto' or not serves:
            self.configuration.lvm_type = 'default'
            start.check_group(self.configuration, look)
            if not self._are_thin(serves):
                return
            self.configuration.lvm_type = 'thin'
            self.vg = None
        start.check_group(self.configuration, look)
        if self._lvm_type == 'auto':
            LOG.info('Volumes are thin: group %s was empty, or had a thin '
                     'pool for them.', self.vg.vg_name)

    def _are_thin(self, serves: bool) -> bool:
        """Return whether volumes are thin in the group that is open."""
        group = self.vg.vg_name
        if self._lvm_type == 'auto' and not (
                volume_utils.supports_thin_provisioning() and
                thin_pools.are_chosen(group)):
            return False
        return self._lvm_type != 'default' and (
            serves or thin_pools.find(group) is not None)

    def _assemble(self) -> None:
        """Create the parts, run the recovery, then start to answer peers."""
        self._listen()
        self._requests = peer_requests.PeerRequests(self._backend)
        self._teardown = teardown.Teardown(self._backend, self._requests)
        self._snapshots = snapshots_module.Snapshots(self._backend)
        self._thin_clones = thin_clones.ThinClones(self._backend,
                                                   self._snapshots)
        self._source = source.Source(self._backend, self._teardown,
                                     self._snapshots)
        sessions = outages.Outages(self._backend)
        settings = pace_settings.PaceSettings(self.host, self.configuration)
        turns = pacer.Pacer(self._backend, settings, sessions)
        marked = marks.Marks(self._backend, sessions)
        self._destination = destination.Destination(
            self._backend, self._teardown, turns,
            bypass.Bypass(self._backend, self._requests), marked)
        self._copies = copies.Copies(self._backend, self._destination,
                                     self._teardown, self._requests)
        self._reverts = reverts.Reverts(
            self._backend, self._snapshots, new_content.NewContent(
                self._backend, self._destination, self._copies,
                self._source, self._teardown))
        self._image_cache = image_cache.ImageCache(
            self._backend, self._copies, self._destination, self._source,
            self._snapshots, self._snapshot_to_clone)
        self._preflight = preflight.Preflight(self._backend, self._requests)
        self._followers = followers.Followers(
            self._backend, self._destination, self._copies, self._snapshots,
            self._teardown, self._requests)
        self._home = home.Home(self._backend, self._source, self._requests,
                               self._preflight)
        self._peers = peers.Peers(self.host)
        self._remotes = remotes.Remotes(self._backend, self._peers)
        self._connections = connections.Connections(
            self._backend, self._home, self._preflight, self._peers,
            self._remotes, self.target_driver)
        troubles = messages.Troubles()
        complete = completion.Completion(self._backend, self._teardown,
                                         self._requests, troubles)
        hydrate = hydration.Hydration(self._backend, self._destination,
                                      sessions, troubles, turns)
        watch = watcher.Watcher(
            self._backend, self._destination, sessions,
            arrival.Arrival(self._backend, self._destination, self._requests,
                            troubles),
            hydrate, complete, troubles, turns, marked)
        mapped = maps.Maps(self._backend, self._source)
        recover = recovery.Recovery(
            self._backend, self._source, self._destination, self._home,
            self._snapshots, self._requests, complete, marked, mapped,
            self._connections.end_export)
        self._reporter = reporter.Reporter(
            self._backend, watch.sightings, sessions, turns, self._remotes,
            self.VERSION)
        lent = outgoing.Outgoing(settings, self._backend.jobs.pauses.now)
        context = cinder_context.get_admin_context()
        recover.run(context)
        self._built = recover.built
        sessions.start()
        watch.start()
        pacing.Pacemaker(
            hydrate.paces,
            self.configuration.dmclone_hydration_min_rate * units.Mi,
            self._backend.jobs.pauses.now).start()
        self._server = rpcapi.serve(self.host, rpcapi.PeerEndpoint(
            self._destination, self._source, self._image_cache,
            self._backend.jobs,
            relocation.Relocation(self._backend, self._home, self._preflight,
                                  self._peers), self._followers,
            self._reporter, pace_requests.PaceRequests(
                self._backend, settings, turns, lent), lent, mapped,
            self.VERSION))
        recover.start_peer_sync(context)
        metrics_endpoint.start(self.configuration, metrics.Collector(
            self._reporter, watch.gate_waits, sessions, self._backend.jobs,
            self._notifications))

    def _listen(self) -> None:
        """Listen to events and errors; once, if the start is repeated."""
        if self._notifications is None:
            self._notifications = notifications.Notifications(self.host)
            self._notifications.start()
            events.listen(self._notifications.listen)
            events.listen(counts.listen)
            counts.watch_log()

    def _update_volume_stats(self) -> None:
        """Report LVM's capacities and this driver's capabilities.

        Cinder calls this each minute. It also reverts changes that Cinder's
        commands made to rows, and finds in the database what this service
        has not heard of: prepared moves, and sources to delete. Nor do
        sources stay where a boot would restore them.
        """
        super()._update_volume_stats()
        context = cinder_context.get_admin_context()
        self._backend.correct_all(context)
        moves = lookups.moves_from(context, self._backend.host)
        self._home.watch(moves.prepared)
        self._source.find_released(moves.released)
        self._backend.jobs.start('delete snapshots',
                                 self._snapshots.delete_later_ones, context)
        self._backend.jobs.start('list left behind', self._reporter.refresh)
        self._backend.jobs.start('look for room', self._remotes.look, context)
        self._backend.jobs.start('forget saved sources',
                                 self._backend.target.forget_saved)
        self._stats.update(vendor_name='dmclone_driver',
                           driver_version=self.VERSION,
                           storage_protocol=self.protocol,
                           shared_targets=False)
        for pool in self._stats['pools']:
            # A thick copy takes its room at once.
            pool['free_capacity_gb'] = max(0, round(
                pool['free_capacity_gb'] - room.awaited_gb(self._backend), 2))
            pool.update(multiattach=False, online_extend_support=False,
                        thin_provisioning_support=self._backend.thin,
                        thick_provisioning_support=not self._backend.thin,
                        **self._backend.capabilities(),
                        # For Nova's scheduler (scheduler/answers.py).
                        dmclone_remote_attach=(
                            self.configuration.dmclone_remote_attach),
                        dmclone_remote_attach_without_room=(
                            self.configuration
                            .dmclone_remote_attach_without_room),
                        location_info='DMCloneVolumeDriver:%s:%s' % (
                            self.host, self.vg.vg_name))

    def get_default_goodness_function(self) -> str:
        """Return how good the node is for volumes: its share of free space.

        From 0 to 100, less what is reserved. Cinder uses it if the operator
        enables GoodnessWeigher, and has set no goodness_function. It is a
        number and no formula: with pyparsing 3.3.3 Cinder cannot evaluate
        names in it (cinder/scheduler/evaluator/evaluator.py).
        """
        free, total = self._backend.capacity()
        return str(max(0, round(
            100 * free / total - self.configuration.reserved_percentage)))

    # Volumes

    def create_volume(self, volume: objects.Volume) -> dict[str, Any]:
        """Create an empty volume; return the update of its row.

        :raises: MigrationRefused if a volume in use would be copied to it
            in vain
        """
        self._preflight.refuse_copy_in_vain(
            backend_module.context_of(volume), volume)
        super().create_volume(volume)
        return self._model_update(volume)

    def create_volume_from_snapshot(
            self, volume: objects.Volume,
            snapshot: objects.Snapshot) -> dict[str, Any]:
        """Create a volume as a clone of a snapshot, which may be elsewhere.

        It shares the blocks of a thin snapshot that is here.

        :returns: the update of its row
        :raises: SnapshotNotServed
        """
        with self._telling_of_creation(volume):
            host = snapshot_rows.host_of(snapshot)
            try:
                self._copy_snapshot(volume, snapshot, host)
            except exception.SnapshotNotServed:
                # It may have followed its volume since it was read.
                now = snapshot_rows.read_host(
                    backend_module.context_of(volume), snapshot)
                if now == host:
                    raise
                self._copy_snapshot(volume, snapshot, now)
        return self._model_update(volume)

    def _copy_snapshot(self, volume: objects.Volume,
                       snapshot: objects.Snapshot, host: str) -> None:
        if volume_utils.extract_host(host) == self.host and (
                self._thin_clones.of_snapshot(volume, snapshot.id)):
            return
        self._copies.create(
            backend_module.context_of(volume), volume, snapshot.id, host,
            self._sizestr(volume.size))

    @staticmethod
    def _telling_of_creation(volume: objects.Volume
                             ) -> contextlib.AbstractContextManager[None]:
        """Create a user message if a creation fails.

        Of the temporary volume of a backup its user knows nothing.
        """
        return messages.telling(
            volume, message_field.Action.CREATE_VOLUME_FROM_BACKEND,
            message_field.Detail.DRIVER_FAILED_CREATE
        ) if volume.use_quota else contextlib.nullcontext()

    def _model_update(self, volume: objects.Volume) -> dict[str, Any]:
        """Return the fields that Cinder has to change in a new row.

        Unchanged fields are left out: Cinder saves the update again after it
        has copied an image, when a move may already have begun.
        """
        update = {field: None for field in _CLEARED_EXPORT_FIELDS
                  if volume[field]}
        return dict(update, provider_id=self._here(volume))

    def _here(self, volume: objects.Volume) -> str:
        """Return this host, with the pool, ``node@backend#pool``."""
        return volume_utils.append_host(self.host, self.get_pool(volume))

    def local_path(self, volume: objects.Volume | objects.Snapshot,
                   vg: str | None = None) -> str:
        """Return the handle of a volume, or the device of a snapshot.

        Only the handle is ever opened. To the kernel the logical volume below
        it is another device, with another cache.
        """
        if isinstance(volume, objects.Volume):
            return _names(volume).path()
        return super().local_path(volume, vg)

    def _ensure_handle(self, names: Names) -> None:
        lv = self._backend.logical_volume(names)
        # It was created or renamed a moment ago.
        assert lv is not None
        # A thin snapshot that becomes a volume need not be active.
        logical_volumes.activate(lv)
        LocalVolume(names).ensure_linear(lv)

    def _create_volume(self, name: str, size: str, lvm_type: str,
                       mirror_count: int, vg: Any = None) -> None:
        """Create a logical volume and its handle; all creations use this."""
        super()._create_volume(name, size, lvm_type, mirror_count, vg)
        self._ensure_handle(Names(
            volume_utils.extract_id_from_volume_name(name)))

    def _delete_volume(self, volume: objects.Volume | objects.Snapshot,
                       is_snapshot: bool = False) -> None:
        """Clear and delete a logical volume; all deletions use this."""
        if is_snapshot:
            super()._delete_volume(volume, is_snapshot)
        else:
            deletion.delete_volume(_names(volume), self.vg,
                                   self.configuration)

    def delete_volume(self, volume: objects.Volume) -> None:
        """Delete a volume, hydrated or not; succeed if it is already gone.

        :raises: VolumeIsBusy, after which Cinder keeps the row; InvalidVolume
            for a volume in a group, whose row Cinder would not keep after
            VolumeIsBusy (VolumeManager._delete_group_generic in
            cinder/volume/manager.py)
        """
        try:
            self._delete_if_here(backend_module.context_of(volume), volume)
        except Exception as error:
            if volume.host:
                # Otherwise Cinder sends an unfinished creation elsewhere.
                messages.tell_user(volume, messages.OTHER,
                                   message_field.Detail.VOLUME_INVALID_STATE)
            if not isinstance(error, cinder_exception.VolumeIsBusy):
                raise
            # Cinder's own line has the reason only in oslo.log's summary.
            LOG.error('Volume %(volume)s is not deleted: %(reason)s',
                      {'volume': volume.id, 'reason': error.msg})
            if volume.group_id:
                raise cinder_exception.InvalidVolume(reason=error.msg)
            raise

    def _delete_if_here(self, context: cinder_context.RequestContext,
                        volume: objects.Volume) -> None:
        with self._backend.lock(volume.id):
            self._take_over(context, volume,
                            self._refuse_deletion(context, volume))
            if not self._home.roll_back(context, volume,
                                        'the volume is deleted',
                                        deleting=True):
                raise self._not_rolled_back(volume)
            if not self._keep_for_snapshots(context, volume):
                self._teardown.remove(context, volume)

    def _take_over(self, context: cinder_context.RequestContext,
                   volume: objects.Volume, lv: LogicalVolume | None) -> None:
        """Exclude work on a clone that Cinder has copied elsewhere.

        Cinder deletes it with a row of another id. What the watcher does with
        a clone is excluded by the lock of the volume that it was.

        :param lv: the volume's logical volume here, or None
        """
        before = lv and lv.tagged(logical_volumes.OPENED_TAG)
        if before and before != volume.id:
            # What has begun ends first.
            with self._backend.lock(before):
                row_repairs.take_over(context, volume)

    def _keep_for_snapshots(self, context: cinder_context.RequestContext,
                            volume: objects.Volume) -> bool:
        """Keep a deleted volume's data while others read its snapshots.

        :returns: False if it has no snapshot
        :raises: DeletionRefused if it has one that is not deleted
        """
        lv = self._backend.logical_volume(_names(volume))
        if lv is None or not self._snapshots.of(lv, deleted=True):
            return False
        self._snapshots.delete_later_ones(context)
        left = self._snapshots.of(lv, deleted=True)
        if not all(each.readers or each.hidden or each.deleted
                   for each in left):
            raise exception.DeletionRefused(volume=volume.id, reason=_(
                'it has snapshots; delete them first'))
        if left and lv.in_parts:
            self._source.keep_later(context, volume, lv)
        elif left:
            self._teardown.keep(context, volume, lv)
        return bool(left)

    def _refuse_deletion(self, context: cinder_context.RequestContext,
                         volume: objects.Volume) -> LogicalVolume | None:
        """Refuse all but a user's volume whose data is on this node.

        :returns: its logical volume, or None
        :raises: DeletionRefused
        """
        lv = self._backend.logical_volume(_names(volume))
        try:
            self._preflight.refuse_if_gone(context, volume, _('delete'))
            self._preflight.refuse_if_moved_away(
                volume, _('delete'),
                self._backend.logical_volume(_names(volume)))
        except exception.NotHere as error:
            # Otherwise Cinder has sent an unfinished creation to another node.
            if volume.launched_at is not None or not lv or lv.of_move:
                raise exception.DeletionRefused(error.msg)
        except (exception.IsPlaceholder, exception.MovedAway) as error:
            raise exception.DeletionRefused(error.msg)
        return lv

    def _not_rolled_back(self, volume: objects.Volume
                         ) -> exception.DeletionRefused:
        return exception.DeletionRefused(volume=volume.id, reason=_(
            'the node to which it was to move has not answered, or has its '
            'data already; try again when cinder-volume runs there')
            if self._backend.holds(volume) else
            _('it has just moved to %s; try again') % volume.host)

    @_in_one_place(_('extend'), hydrating=True)
    def extend_volume(self, volume: objects.Volume, new_size: int) -> None:
        """Extend a volume without a prepared move; it may be hydrating."""
        names = _names(volume)
        local = LocalVolume(names)
        before = self._backend.logical_volume(names)
        if before is not None:
            self._refuse_while_requests_wait(local, before)
            self._remember_size_of_clone(before)
        if self.vg.lv_has_snapshot(volume.name):
            # LVM has to deactivate the origin of a snapshot to extend it.
            self._refuse_while_read(volume, _('extend'))
            local.remove(HANDLE, ORIGIN)
        try:
            self.vg.extend_volume(volume.name, self._sizestr(new_size))
        except processutils.ProcessExecutionError as error:
            # An interrupted extension has already set this size.
            if 'matches existing size' not in error.stderr:
                raise
        finally:
            # Cinder leaves the origin inactive if the extension fails.
            lv = self._backend.logical_volume(names)
            # Otherwise the operation was refused (NotOnNode).
            assert lv is not None
            logical_volumes.activate(lv)
            local.ensure_linear(lv)
        steps.reached(Step.EXTENDED, names.name_id)
        local.grow(lv)
        steps.reached(Step.SHOWN, names.name_id)

    @staticmethod
    def _refuse_while_requests_wait(local: LocalVolume,
                                    lv: LogicalVolume) -> None:
        """Refuse to extend a clone before LVM does, if it can't be shown.

        Its handle gets the table that it has.

        :raises: RequestsWait
        """
        if local.is_clone() and local.exists():
            local.grow(lv)

    def _refuse_while_read(self, volume: objects.Volume, action: str) -> None:
        """Refuse what needs a volume without snapshots above its clone.

        :raises: ClonesRead
        """
        lv = self._backend.logical_volume(_names(volume))
        if lv is not None and snapshot_devices.taken_of(lv):
            raise exception.ClonesRead(action=action, volume=volume.id)

    @staticmethod
    def _remember_size_of_clone(lv: LogicalVolume) -> None:
        if lv.clone and lv.tagged(logical_volumes.CLONED_TAG) is None:
            logical_volumes.tag(
                lv, logical_volumes.CLONED_TAG + str(lv.size))

    def create_cloned_volume(self, volume: objects.Volume,
                             src_vref: objects.Volume | models.Volume
                             ) -> dict[str, Any]:
        """Create a volume as a clone of a volume on this node.

        It shares the blocks of a thin volume that is complete.

        :returns: the update of its row
        :raises: NotHere, RequestsWait, SnapshotNotServed
        """
        with self._telling_of_creation(volume):
            self._clone(volume, releases.as_object(
                backend_module.context_of(volume), src_vref))
        return self._model_update(volume)

    def _clone(self, volume: objects.Volume,
               src_vref: objects.Volume) -> None:
        if self._share(src_vref, volume):
            LOG.info('Volume %(clone)s shares the blocks of volume '
                     '%(volume)s.',
                     {'clone': volume.id, 'volume': src_vref.id})
            return
        snapshot_id = str(uuid.uuid4())
        LOG.info('Volume %(clone)s becomes a clone of volume %(volume)s, from '
                 'hidden snapshot %(snapshot)s.',
                 {'clone': volume.id, 'volume': src_vref.id,
                  'snapshot': snapshot_id})
        self._snapshot_to_clone(src_vref, snapshot_id)
        try:
            self._copies.create(
                backend_module.context_of(volume), volume, snapshot_id,
                self._here(volume), self._sizestr(volume.size))
        except Exception:
            with excutils.save_and_reraise_exception():
                self._snapshots.delete_unread(snapshot_id)

    def clone_image(self, context: cinder_context.RequestContext,
                    volume: objects.Volume,
                    image_location: tuple[str | None, Any] | None,
                    image_meta: dict[str, Any],
                    image_service: Any) -> tuple[None, bool]:
        """Have an image in this node's cache if a peer has it.

        Cinder looks there next, and clones the volume from it.

        :returns: ``(None, False)``: the volume is not created yet
        """
        if self.configuration.image_volume_cache_enabled:
            self._image_cache.fetch(volume, image_meta)
        return None, False

    def create_snapshot(self,
                        snapshot: objects.Snapshot) -> dict[str, str]:
        """Create a snapshot of a volume, which may be moving.

        :returns: the update of its row
        """
        self._snapshot_of(snapshot.volume, snapshot)
        return {'provider_id': self._here(snapshot.volume)}

    def create_group_snapshot(
            self, context: cinder_context.RequestContext,
            group_snapshot: objects.GroupSnapshot,
            snapshots: list[objects.Snapshot]) -> groups.Updates:
        """Create a snapshot of each member of a group, or of none.

        :raises: GroupRefused
        """
        groups.refuse_common_moment(group_snapshot)
        return groups.make_all(
            group_snapshot, snapshots,
            lambda: self._check_snapshots(snapshots), self.create_snapshot,
            lambda snapshot: self._snapshots.delete_unread(snapshot.id))

    def _check_snapshots(self, snapshots: list[objects.Snapshot]) -> None:
        """Refuse snapshots of which any could not be created.

        Cinder's scheduler checks the space for single snapshots only.

        :raises: NoRoomForSnapshots, and others of single snapshots
        """
        self._check_members(each.volume for each in snapshots)
        # A thin snapshot shares all blocks; others are not in the pool.
        needed = sum(each.volume_size for each in snapshots
                     if not self._is_thin(each.volume))
        free = room.of_group(self._backend)
        if free < needed:
            raise exception.NoRoomForSnapshots(needed=needed, free=free)

    def _is_thin(self, volume: objects.Volume) -> bool:
        lv = self._backend.logical_volume(_names(volume))
        return lv is not None and lv.thin

    def _check_members(
            self, volumes: collections.abc.Iterable[objects.Volume]) -> None:
        for volume in volumes:
            try:
                self._check_member(volume)
            except exception.NotHere:
                raise exception.MemberElsewhere(volume=volume.id,
                                                host=volume.host)

    @_in_one_place(_('snapshot'), prepared=True)
    def _check_member(self, volume: objects.Volume) -> None:
        """Refuse a volume of a group that cannot be snapshotted now."""
        LocalVolume(_names(volume)).refuse_closed_gate()

    def create_group_from_src(
            self, context: cinder_context.RequestContext,
            group: objects.Group, volumes: list[objects.Volume],
            group_snapshot: objects.GroupSnapshot | None = None,
            snapshots: list[objects.Snapshot] | None = None,
            source_group: objects.Group | None = None,
            source_vols: list[objects.Volume] | None = None
    ) -> groups.Updates:
        """Create the volumes of a group from another one, or none of them.

        :param snapshots: of the group snapshot, in the order of the volumes
        :param source_vols: of the source group, in the order of the volumes
        :raises: GroupRefused
        """
        sources = {volume.id: source for volume, source in zip(
            volumes, snapshots or source_vols or [], strict=True)}
        if snapshots:
            return groups.make_all(
                group, volumes,
                lambda: self._snapshots.refuse_missing(context, sources),
                lambda volume: self.create_volume_from_snapshot(
                    volume, sources[volume.id]),
                self.delete_volume)
        groups.refuse_common_moment(group)
        return groups.make_all(
            group, volumes,
            lambda: self._check_members(sources.values()),
            lambda volume: self.create_cloned_volume(
                volume, sources[volume.id]),
            self.delete_volume)

    def delete_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Delete a snapshot, whichever node it is on."""
        self._snapshots.delete(cinder_context.get_admin_context(), snapshot)

    def unmanage_snapshot(self, snapshot: objects.Snapshot) -> None:
        """Keep a snapshot of LVM's own.

        :raises: SnapshotIsBusy, see SnapshotAboveClone, SnapshotElsewhere,
            SnapshotFollowed
        """
        lv = self._snapshots.find(snapshot.id)
        mine = _names(snapshot.volume).volume
        error: cinder_exception.SnapshotIsBusy
        if lv is not None and lv.followed:
            error = exception.SnapshotFollowed(snapshot_name=snapshot.id)
        elif lv is None or lv.not_taken or (lv.snapshot_of or mine) != mine:
            error = exception.SnapshotElsewhere(
                snapshot_name=snapshot.id,
                host=snapshot_rows.backend_of(snapshot))
        elif lv.taken:
            error = exception.SnapshotAboveClone(snapshot_name=snapshot.id)
        else:
            snapshot_rows.keep(cinder_context.get_admin_context(), snapshot)
            return
        # Cinder does not log it. Its user message needs this very class
        # (translate_detail_id in cinder/message/message_field.py).
        LOG.error('Snapshot %(snapshot)s of volume %(volume)s is not '
                  'unmanaged: %(reason)s',
                  {'snapshot': snapshot.id, 'volume': snapshot.volume_id,
                   'reason': error.msg})
        raise cinder_exception.SnapshotIsBusy(error.msg)

    @_in_one_place(_('snapshot'), prepared=True)
    def _snapshot_of(self, volume: objects.Volume,
                     snapshot: objects.Snapshot) -> None:
        lv = self._backend.logical_volume(_names(volume))
        # Otherwise the operation was refused (NotOnNode).
        assert lv is not None
        block.flush_buffers(_names(volume).path())
        if lv.clone or lv.has_taken or lv.thin:
            self._snapshots.take(_names(volume), lv, snapshot.id)
        else:
            logical_volumes.take_snapshot(
                lv, names_module.of_snapshot(snapshot.name))
        self._refuse_if_moved_meanwhile(
            volume, _('snapshot'),
            lambda: self._snapshots.delete_unread(snapshot.id))

    @_in_one_place(_('clone'), prepared=True)
    def _snapshot_to_clone(self, volume: objects.Volume,
                           snapshot_id: str) -> None:
        lv = self._backend.logical_volume(_names(volume))
        assert lv is not None
        block.flush_buffers(_names(volume).path())
        self._snapshots.take(_names(volume), lv, snapshot_id, hidden=True)
        self._refuse_if_moved_meanwhile(
            volume, _('clone'),
            lambda: self._snapshots.delete_unread(snapshot_id))

    @_in_one_place(_('clone'), prepared=True)
    def _share(self, source: objects.Volume, volume: objects.Volume) -> bool:
        """Create a clone of a volume that shares its blocks, if possible.

        :returns: False if nothing was done
        """
        lv = self._backend.logical_volume(_names(source))
        if lv is None or not self._thin_clones.can_share(lv):
            return False
        block.flush_buffers(_names(source).path())
        self._thin_clones.create(volume, lv)
        self._refuse_if_moved_meanwhile(
            source, _('clone'), lambda: self._thin_clones.remove(volume))
        return True

    def _refuse_if_moved_meanwhile(
            self, volume: objects.Volume, action: str,
            undo: collections.abc.Callable[[], None]) -> None:
        """Refuse a snapshot that may lack writes on the volume's new home.

        The new home switches over by itself when its guest writes, without
        the volume's lock on this node.

        :param undo: function that removes the snapshot, or the clone
        :raises: NotHere, ReadLagsBehind
        """
        context = backend_module.context_of(volume)
        try:
            if lookups.has_moved(context, volume):
                self._preflight.refuse_if_gone(context, volume, action)
                raise exception.ReadLagsBehind(volume=volume.id)
        except Exception:
            with excutils.save_and_reraise_exception():
                undo()

    @_in_one_place(_('revert'), hydrating=True)
    def _revert(self, volume: objects.Volume,
                snapshot: objects.Snapshot) -> str | None:
        return self._reverts.revert(volume, snapshot)

    def revert_to_snapshot(self, context: cinder_context.RequestContext,
                           volume: objects.Volume,
                           snapshot: objects.Snapshot) -> None:
        """Revert a volume that is not in use; it may be hydrating.

        :raises: NotImplementedError if the snapshot is on another node, and
            there is no room to copy it behind: Cinder copies it then
            (VolumeManager._revert_to_snapshot_generic in
            cinder/volume/manager.py)
        """
        with messages.telling(volume, messages.OTHER):
            revert_id = self._revert(volume, snapshot)
        if revert_id is None:
            raise NotImplementedError
        self._reverts.start(volume, revert_id)

    def manage_existing(self, volume: objects.Volume | dict[str, str],
                        existing_ref: dict[str, str]) -> dict[str, Any] | None:
        """Take over a logical volume; return the update of its row.

        :raises: ManageExistingInvalidReference if it is part of a move,
            or has a handle
        """
        if not isinstance(volume, objects.Volume):
            # Of a snapshot Cinder's LVM driver passes the name only.
            self._manage(volume, existing_ref)
            return None
        with self._telling_of_creation(volume):
            self._manage(volume, existing_ref)
        self._ensure_handle(_names(volume))
        return self._model_update(volume)

    def _manage(self, volume: objects.Volume | dict[str, str],
                existing_ref: dict[str, str]) -> None:
        name = existing_ref.get('source-name', '')
        # An operator's text need not be a name that LVM can look for.
        if name in manageable.used(self.vg.vg_name):
            raise cinder_exception.ManageExistingInvalidReference(
                existing_ref=existing_ref,
                reason=_('%(new)s is not created, since this driver uses '
                         'logical volume %(name)s; dmclone-reconcile says '
                         'for what') % {'new': volume['name'], 'name': name})
        super().manage_existing(volume, existing_ref)

    def get_manageable_volumes(
            self, cinder_volumes: list[objects.Volume], marker: Any,
            limit: int | None, offset: int | None, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, Any]]:
        """Return the logical volumes that can be managed, and the others.

        :returns: e.g. ``[{'reference': {'source-name': 'volume-1'}, 'size':
            1, 'cinder_id': None, 'safe_to_manage': True, 'reason_not_safe':
            None, 'extra_info': None}]``
        """
        entries = manageable.read(
            super().get_manageable_volumes, cinder_volumes, marker, limit,
            offset, sort_keys, sort_dirs)
        return manageable.without_used(self.vg.vg_name, entries)

    def get_manageable_snapshots(
            self, cinder_snapshots: list[objects.Snapshot], marker: Any,
            limit: int | None, offset: int | None, sort_keys: list[str],
            sort_dirs: list[str]) -> list[dict[str, Any]]:
        """Return the snapshots that can be managed, and the others.

        :returns: as of :meth:`get_manageable_volumes`
        """
        entries = manageable.read(
            super().get_manageable_snapshots, cinder_snapshots, marker, limit,
            offset, sort_keys, sort_dirs)
        group = self.vg.vg_name
        return manageable.without_used(
            group, manageable.with_sizes(group, entries))

    def manage_existing_snapshot_get_size(
            self, snapshot: objects.Snapshot,
            existing_ref: dict[str, str]) -> int:
        """Return the size of a snapshot's content, in GiB."""
        size = super().manage_existing_snapshot_get_size(snapshot,
                                                         existing_ref)
        return manageable.content_gb(self.vg.vg_name,
                                     existing_ref['source-name']) or size

    def unmanage(self, volume: objects.Volume) -> None:
        """Remove the handle, and keep the logical volume.

        :raises: ClonesRead
        """
        with messages.telling(volume, message_field.Action.UNMANAGE_VOLUME):
            self._unmanage(volume)

    @_in_one_place(_('unmanage'))
    def _unmanage(self, volume: objects.Volume) -> None:
        self._refuse_while_read(volume, _('unmanage'))
        # Its row goes, and the logical volume stays.
        deletion_records.withdraw(backend_module.context_of(volume), volume)
        LocalVolume(_names(volume)).remove(HANDLE, ORIGIN)

    def migrate_volume(self, context: cinder_context.RequestContext,
                       volume: objects.Volume,
                       host: dict[str, Any]
                       ) -> tuple[bool, dict[str, str] | None]:
        """Move a volume to a peer; leave others to Cinder's generic copy.

        Cinder calls this for a volume without attachments only.

        :returns: ``(True, {'host': 'node2@dmclone#dmclone'})``, or
            ``(False, None)`` if Cinder has to copy the volume
        :raises: MigrationRefused, MoveFailed
        """
        with messages.telling(
                volume, message_field.Action.SCHEDULE_ALLOCATE_VOLUME):
            return self._migrate(context, volume, host)

    def _migrate(self, context: cinder_context.RequestContext,
                 volume: objects.Volume, host: dict[str, Any]
                 ) -> tuple[bool, dict[str, str] | None]:
        deadline = Deadline.of_request()
        peer = self._peers.on_host(context, host['host'])
        with self._backend.lock(volume.id, deadline.left()):
            self._preflight.refuse_if_gone(context, volume, _('migrate'))
            if peer is None:
                self._preflight.refuse_while_prepared(context, volume,
                                                      _('migrate'))
                return False, None
            self._preflight.refuse_by_tags(
                volume, _('migrate'),
                self._backend.logical_volume(_names(volume)))
            # The row's host may have been altered: it is here already.
            if peer.backend_host != self.host:
                self._home.migrate(context, volume, peer, deadline)
        return True, {'host': volume.host}

    def retype(self, context: cinder_context.RequestContext,
               volume: objects.Volume, new_type: objects.VolumeType,
               diff: dict[str, Any],
               host: dict[str, Any]) -> tuple[bool, dict[str, str]]:
        """Change a volume's type, and return the host that it is on now.

        Cinder saves the scheduler's host, which may be outdated, unless the
        driver returns another one. An error would make Cinder copy the
        volume, if that is allowed (VolumeManager.retype in
        cinder/volume/manager.py).
        """
        volume.refresh()
        self._backend.correct(context, volume)
        return True, {'host': volume.host}

    def accept_transfer(self, context: cinder_context.RequestContext,
                        volume: models.Volume, new_user: str,
                        new_project: str) -> None:
        """Refuse to give a placeholder to another project.

        :param volume: the database's own row
        :raises: IsPlaceholder
        """
        self._preflight.refuse_placeholder(volume, _('transfer'))

    def copy_image_to_volume(self, context: cinder_context.RequestContext,
                             volume: objects.Volume, image_service: Any,
                             image_id: str,
                             disable_sparse: bool = False) -> None:
        """Copy an image to a volume, which must not move meanwhile."""
        with self._staying(context, volume):
            super().copy_image_to_volume(context, volume, image_service,
                                         image_id, disable_sparse)

    def copy_image_to_encrypted_volume(
            self, context: cinder_context.RequestContext,
            volume: objects.Volume, image_service: Any, image_id: str,
            disable_sparse: bool = False) -> None:
        """Copy an image to an encrypted volume, which must not move."""
        with self._staying(context, volume):
            super().copy_image_to_encrypted_volume(
                context, volume, image_service, image_id, disable_sparse)

    def copy_volume_to_image(self, context: cinder_context.RequestContext,
                             volume: objects.Volume, image_service: Any,
                             image_meta: dict[str, Any]) -> None:
        """Copy a volume to an image without moving the volume.

        :raises: NotHere, IsPlaceholder, PartlyDeleted, MovedAway
        """
        self._preflight.refuse_if_gone(context, volume, _('upload'))
        self._preflight.refuse_by_tags(
            volume, _('upload'), self._backend.logical_volume(_names(volume)))
        super().copy_volume_to_image(context, volume, image_service,
                                     image_meta)

    def backup_use_temp_snapshot(self) -> bool:
        """Return False: backups read a clone, which any node can attach.

        Cinder's LVM driver cannot export a snapshot itself.
        """
        return False

    def get_backup_device(self, context: cinder_context.RequestContext,
                          backup: objects.Backup
                          ) -> tuple[objects.Volume, bool]:
        """Return the volume that a backup reads, a clone of one in use."""
        try:
            return super().get_backup_device(context, backup)
        except Exception as error:
            backups.fail(context, backup, str(error))
            raise

    @contextlib.contextmanager
    def _staying(self, context: cinder_context.RequestContext,
                 volume: objects.Volume) -> collections.abc.Iterator[None]:
        """Refuse to move a volume while this node writes to it.

        Cinder allows a volume to be attached while an image is copied to it.
        """
        with (messages.telling(volume,
                               message_field.Action.COPY_IMAGE_TO_VOLUME),
              self._backend.lock(volume.id)):
            self._preflight.refuse_if_gone(context, volume,
                                           _('copy an image to'))
            self._preflight.refuse_while_prepared(context, volume,
                                                  _('copy an image to'))
            self._preflight.staying.add(volume.id)
        try:
            yield
        finally:
            self._preflight.staying.discard(volume.id)

    def update_migrated_volume(
            self, context: cinder_context.RequestContext,
            volume: objects.Volume, new_volume: objects.Volume,
            original_volume_status: str) -> dict[str, str | None]:
        """Keep the names of both logical volumes after a migration."""
        # Cinder's objects may be hours old, and Cinder uses them afterwards.
        volume.refresh()
        new_volume.refresh()
        row_repairs.exchange_owners(context, volume, new_volume)
        # A prepared move is aborted now, and its export is not in the row.
        new_volume.refresh()
        lv = self._backend.logical_volume(_names(new_volume))
        if lv is not None and lv.tagged(logical_volumes.OPENED_TAG) == (
                new_volume.id):
            # The tag has to name the volume that stays.
            logical_volumes.retag(lv, logical_volumes.OPENED_TAG,
                                  logical_volumes.OPENED_TAG + volume.id)
        # Without provider_id, which Cinder itself exchanges, once.
        return {'_name_id': new_volume.name_id,
                'provider_location': new_volume.provider_location}

    # Connections

    def validate_connector(self, connector: dict[str, Any]) -> bool:
        """Verify that a connector has a host and an initiator.

        Its peer is looked up in :meth:`create_export`, where the volume is
        known, too, so that the volume's user gets a message.
        """
        for key in ('host', 'initiator'):
            if not connector.get(key):
                raise cinder_exception.InvalidConnectorException(missing=key)
        return True

    def create_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume, connector: dict[str, Any],
                      vg: str | None = None) -> None:
        """Verify that a peer can serve a connector; export nothing.

        :raises: NoPeer
        """
        self._connections.find_server(context, volume, connector)

    @classmethod
    def clean_volume_file_locks(cls, volume_id: str) -> None:
        """Remove the files of a lock that is no longer needed."""
        coordination.synchronized_remove('dmclone-*-%s' % volume_id)

    def ensure_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume) -> None:
        """Export a volume again that guests of other nodes use remotely.

        :mod:`recovery` has rebuilt all handles. If it had to, the target of
        before has no device.
        """
        if volume.provider_location:
            self._connections.restore(context, volume,
                                      volume.id in self._built)

    def remove_export(self, context: cinder_context.RequestContext,
                      volume: objects.Volume) -> None:
        """Remove an export without connections; keep the export of a move.

        Cinder also calls this when another attachment failed.
        """
        self._connections.end_export(context, volume)

    def initialize_connection(self, volume: objects.Volume,
                              connector: dict[str, Any]) -> dict[str, Any]:
        """Make a volume usable on the connector's host.

        :returns: for an instance ``{'driver_volume_type': 'local', 'data':
            {'device_path': '/dev/mapper/dmclone-...', 'volume_id': ...}}``
        :raises: NoPeer, MoveRefused, MoveFailed, HandleMissing,
            EncryptionRefused
        """
        return self._connections.begin(volume, connector)

    def terminate_connection(self, volume: objects.Volume,
                             connector: dict[str, Any] | None,
                             **kwargs: Any) -> bool:
        """End a connection, and continue a move that waited for its end.

        :returns: whether the volume's export, if any, is still needed
        """
        return self._connections.end(volume, connector)
