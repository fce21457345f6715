# SPDX-License-Identifier: Apache-2.0
"""All refusals, through Cinder's own VolumeManager: what its users learn.

Each row of ROWS is a request in a situation in which the driver refuses it.
The reason is in the API's answer where the API waits for the manager. Else
Cinder or the driver creates the user message that fits best. One log line has
the request, the volume, the reason, and what to do.
"""

import collections
import inspect
import logging
from unittest import mock

from cinder import context as cinder_context
from cinder import exception as cinder_exception
from cinder.message import message_field
from cinder import objects
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import manager
import ddt
from oslo_config import cfg
from oslo_log import formatters
import tooz

from dmclone_driver import exception
from dmclone_driver.move import lost_node
from dmclone_driver.move import messages
from dmclone_driver.move import records
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.releases import db_api
from tests.unit.fakes import cloud
from tests.unit.fakes import storage
from tests.unit.move import test_snapshots

Action, Detail = message_field.Action, message_field.Detail

#: What a user learns: the status of the resource afterwards, and the message.
#: Without a message the API answers with the reason.
Outcome = collections.namedtuple('Outcome', 'status action detail')
ANSWER = Outcome(None, None, None)
OUTCOMES = {
    'attach': ANSWER,
    'attach_of_old': ANSWER,
    'attach_of_cinder': ANSWER,
    'accept_transfer': ANSWER,
    'extend': Outcome('error_extending', Action.EXTEND_VOLUME,
                      Detail.DRIVER_FAILED_EXTEND),
    'snapshot': Outcome('error', Action.SNAPSHOT_CREATE,
                        Detail.SNAPSHOT_CREATE_ERROR),
    'delete_snapshot': Outcome('error_deleting', Action.SNAPSHOT_DELETE,
                               Detail.SNAPSHOT_DELETE_ERROR),
    'delete_snapshot_of_pool': Outcome('available', Action.SNAPSHOT_DELETE,
                                       Detail.SNAPSHOT_IS_BUSY),
    'unmanage_snapshot': Outcome('available', Action.SNAPSHOT_DELETE,
                                 Detail.SNAPSHOT_IS_BUSY),
    'delete': Outcome('available', messages.OTHER,
                      Detail.VOLUME_INVALID_STATE),
    'revert': Outcome('error', messages.OTHER, Detail.VOLUME_INVALID_STATE),
    'revert_with_copy': Outcome('error', Action.SNAPSHOT_CREATE,
                                Detail.SNAPSHOT_CREATE_ERROR),
    'unmanage': Outcome('error_unmanaging', Action.UNMANAGE_VOLUME,
                        Detail.VOLUME_INVALID_STATE),
    'manage': Outcome('error_managing', Action.CREATE_VOLUME_FROM_BACKEND,
                      Detail.DRIVER_FAILED_CREATE),
    'from_snapshot': Outcome('error', Action.CREATE_VOLUME_FROM_BACKEND,
                             Detail.DRIVER_FAILED_CREATE),
    'clone': Outcome('error', Action.CREATE_VOLUME_FROM_BACKEND,
                     Detail.DRIVER_FAILED_CREATE),
    'migrate': Outcome('available', Action.SCHEDULE_ALLOCATE_VOLUME,
                       Detail.VOLUME_INVALID_STATE),
    'retype': Outcome('available', Action.SCHEDULE_ALLOCATE_VOLUME,
                      Detail.VOLUME_INVALID_STATE),
    'migrate_in_use': Outcome('in-use', Action.SCHEDULE_ALLOCATE_VOLUME,
                              Detail.VOLUME_INVALID_STATE),
    'upload': Outcome('available', Action.COPY_VOLUME_TO_IMAGE,
                      Detail.FAILED_TO_UPLOAD_VOLUME),
    'reimage': Outcome('error', Action.COPY_IMAGE_TO_VOLUME,
                       Detail.VOLUME_INVALID_STATE),
    'backup': Outcome('error', Action.BACKUP_CREATE,
                      Detail.BACKUP_CREATE_DEVICE_ERROR),
}

#: (operation, situation, exception, part of the reason, what to do)
ROWS = (
    ('attach', 'unknown_host', exception.NoPeer,
     'no such service', 'Start cinder-volume'),
    ('attach', 'peer_down', exception.MoveRefused,
     'did not answer describe', 'ask the operator'),
    ('attach', 'peer_busy', exception.MoveRefused,
     '2 volumes at a time', 'try again'),
    ('attach', 'peer_slow', exception.MoveRefused,
     'has taken longer', 'try again'),
    ('attach', 'peer_of_long_name', exception.MoveRefused,
     'too long together', 'ask the operator to shorten'),
    ('attach', 'peer_full', exception.NoRoomOnPeer,
     'has only 0.50 GiB left', 'choose another host'),
    ('attach', 'peer_of_another_type', exception.MoveRefused,
     'wants dmclone_metadata_backend zram', 'retype it'),
    ('attach', 'peer_in_another_zone', exception.MoveRefused,
     'availability zones', 'retype it'),
    ('attach', 'peer_fails', exception.MoveFailed,
     'no disk', 'Try again'),
    ('attach', 'peer_has_aborted', exception.MoveRefused,
     'aborted move', 'try again when cinder-volume runs'),
    ('attach', 'prepared_elsewhere', exception.MoveRefused,
     'already prepared', 'finish or abort the migration'),
    ('attach', 'grouped', exception.MoveRefused,
     'it is in group', 'remove it from the group'),
    ('attach', 'being_filled', exception.MoveRefused,
     'still being filled', 'wait for that to end'),
    ('attach', 'exported', exception.MoveRefused,
     'in use over iSCSI', 'wait for that to end'),
    ('attach', 'used_remotely', exception.MoveRefused,
     'in use over iSCSI on laptop', 'live-migrate its instance to node1'),
    ('attach', 'migrating', exception.MoveRefused,
     'it is being migrated', 'wait for that to end'),
    ('attach', 'opened', exception.MoveRefused,
     'still open', 'ask the operator'),
    ('attach', 'disk_fails', exception.MoveRefused,
     'no such disk', 'ask the operator'),
    ('attach', 'metadata_fails', exception.MoveRefused,
     'metadata of its clone has failed', 'repair the metadata device'),
    ('attach', 'source_lost', exception.MoveRefused,
     'which is lost', 'copy what can be read'),
    ('attach', 'chain_too_long', exception.MoveRefused,
     'node2 <- node1', 'wait until a copy is complete'),
    ('attach', 'encrypted', exception.EncryptionRefused,
     'only luks', 'Retype it'),
    ('attach', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('attach', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('attach', 'partly_deleted', exception.PartlyDeleted,
     'deletion has begun', 'Delete it again'),
    ('attach', 'no_locks', exception.LockNotAcquired,
     'could not be acquired', 'Try again later'),
    ('attach', 'just_moved', exception.NotHere,
     'it has just moved', 'Try again'),
    ('attach', 'attachment_goes', exception.MoveRefused,
     'deleted meanwhile', 'attach the volume again'),
    ('attach', 'at_home_without_handle', exception.HandleMissing,
     'could not be created', 'Try again later'),
    ('attach_of_old', 'peer_down', exception.MoveRefused,
     'did not answer describe', 'ask the operator'),
    ('attach_of_old', 'prepared_elsewhere', exception.MoveRefused,
     'already prepared', 'finish or abort the migration'),
    ('attach_of_old', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('attach_of_cinder', 'prepared_unused', exception.NotWhileMoving,
     'its data is moving', 'Wait until the move'),
    ('accept_transfer', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),

    ('extend', 'prepared', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('extend', 'source_waits', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('extend', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('extend', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('extend', 'not_on_node', exception.NotOnNode,
     'there is no logical volume', 'ask the operator'),
    ('extend', 'clone_forgotten', exception.StillClone,
     'does not have all of its data', 'Ask the operator'),
    ('extend', 'read_by_clones', exception.ClonesRead,
     'are not complete yet', 'Wait until they are'),
    ('extend', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('extend', 'partly_deleted', exception.PartlyDeleted,
     'deletion has begun', 'Delete it again'),
    ('extend', 'just_moved', exception.NotHere,
     'it has just moved', 'Try again'),
    ('extend', 'no_locks', exception.LockNotAcquired,
     'could not be acquired', 'Try again later'),

    ('snapshot', 'source_waits', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('snapshot', 'gate_closed', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('snapshot', 'written_meanwhile', exception.NotHere,
     'it has just moved', 'Try again'),
    ('snapshot', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('snapshot', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('snapshot', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('delete_snapshot_of_pool', 'snapshot_in_read_only_pool',
     exception.PoolTakesNoChanges,
     'takes no changes (mode ro)', 'Ask the operator to repair'),
    ('delete_snapshot', 'snapshot_and_no_locks', exception.LockNotAcquired,
     'could not be acquired', 'Try again later'),
    ('unmanage_snapshot', 'snapshot_above_clone',
     exception.SnapshotAboveClone,
     'only this driver', 'Create a volume from it'),
    ('unmanage_snapshot', 'snapshot_left_behind',
     exception.SnapshotElsewhere,
     'it is on node1', 'Create a volume from it'),
    ('unmanage_snapshot', 'snapshot_that_has_followed',
     exception.SnapshotFollowed,
     'a copy of all data', 'Create a volume from it'),

    ('clone', 'source_waits', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('clone', 'gate_closed', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('clone', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('clone', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('clone', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('from_snapshot', 'snapshot_node_down', exception.SnapshotNotServed,
     'did not answer', 'create it again'),
    ('from_snapshot', 'snapshot_node_cut_off', exception.SnapshotNotServed,
     'cannot be reached', 'create it again'),
    ('from_snapshot', 'snapshot_gone', exception.SnapshotNotServed,
     'is not on node1', 'ask the operator'),
    ('from_snapshot', 'snapshot_node_removed',
     exception.SnapshotUnavailable, 'is not on node1', 'ask the operator'),

    ('revert', 'prepared', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('revert', 'snapshot_node_down', exception.RevertNotServed,
     'did not answer', 'Delete the snapshot that Cinder took'),
    ('revert', 'snapshot_node_cut_off', exception.RevertNotServed,
     'cannot be reached', 'Delete the snapshot that Cinder took'),
    ('revert', 'snapshot_of_cinder_read', exception.SnapshotWouldOverflow,
     'has no room', 'Delete that snapshot'),
    ('revert_with_copy', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('revert_with_copy', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),

    ('unmanage', 'prepared_unused', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('unmanage', 'hydrating', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('unmanage', 'read_by_clones', exception.ClonesRead,
     'are not complete yet', 'Wait until they are'),
    ('unmanage', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('manage', 'at_rest',
     cinder_exception.ManageExistingInvalidReference,
     'this driver uses', 'dmclone-reconcile says for what'),

    ('delete', 'placeholder', exception.DeletionRefused,
     'it stands for data', 'use volume'),
    ('delete', 'forgotten', exception.DeletionRefused,
     'the database does not know', 'Ask the operator'),
    ('delete', 'just_moved_away', exception.DeletionRefused,
     'it has just moved', 'Try again'),
    ('delete', 'with_snapshot', exception.DeletionRefused,
     'it has snapshots', 'delete them first'),
    ('delete', 'with_unknown_snapshot', exception.DeletionRefused,
     'Cinder does not know', 'ask the operator'),
    ('delete', 'in_read_only_pool', exception.PoolTakesNoChanges,
     'takes no changes (mode ro)', 'Ask the operator to repair'),
    ('delete', 'opened', exception.DeletionRefused,
     'still open', 'ask the operator'),
    ('delete', 'prepared_and_written', exception.DeletionRefused,
     'it has just moved', 'try again'),
    ('delete', 'prepared_and_peer_down', exception.DeletionRefused,
     'has not answered', 'cinder-volume runs'),

    ('migrate', 'peer_down', exception.MigrationRefused,
     'did not answer describe', 'ask the operator'),
    ('migrate', 'peer_full', exception.MigrationRefused,
     'has only 0.50 GiB left', 'choose another host'),
    ('migrate', 'peer_fails', exception.MoveFailed,
     'no disk', 'Try again'),
    ('migrate', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('migrate', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('migrate', 'attached_meanwhile', exception.MigrationRefused,
     'attached meanwhile', 'live-migrate'),
    ('retype', 'prepared_unused', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('retype', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('migrate_in_use', 'in_use', exception.MigrationRefused,
     'an instance uses it', 'live-migrate the instance'),

    ('upload', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('upload', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
    ('upload', 'partly_deleted', exception.PartlyDeleted,
     'deletion has begun', 'Delete it again'),
    ('reimage', 'prepared_unused', exception.NotWhileMoving,
     'from node1 to node2', 'Wait until the move'),
    ('reimage', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('reimage', 'placeholder', exception.IsPlaceholder,
     'it stands for data', 'use volume'),
    ('backup', 'source_waits', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('backup', 'gate_closed', exception.RequestsWait,
     'requests wait', 'Try again'),
    ('backup', 'source_lost', exception.DataLost,
     'which is lost', 'Copy what can be read'),
    ('backup', 'forgotten', exception.MovedAway,
     'the database does not know', 'Ask the operator'),
)

#: Exceptions that are no refusals of a request, {name: reason}.
OTHERS = {
    'BadConfiguration': 'of the start of a service',
    'DatabaseBehind': 'of a job, for the operator: nothing was requested',
    'FollowerNotServed': "of an operator's command: see test_followers",
    'GroupRefused': 'of a request about a group: see test_groups',
    'MemberElsewhere': 'the reason in GroupRefused',
    'MetadataUnusable': 'a fault of a clone, found at a start of a service',
    'MoveGone': 'between peers: the home answers its user MoveFailed',
    'NoRoomForMetadata': 'between peers: the reason in MoveFailed',
    'NoRoomForSnapshots': 'the reason in GroupRefused',
    'NoRoomInPool': 'the reason in MoveFailed; of a revert: see test_thin',
    'OriginNotRebuilt': 'between peers: the reason in SnapshotNotServed',
    'PaceRefused': "of an operator's command: see cmd/test_pace",
    'PeerBusy': 'between peers: the reason in MoveRefused or MoveFailed',
    'PeerError': 'the base class of the next ones',
    'PeerFailed': 'the reason in MoveFailed, or SnapshotNotServed',
    'PeerTooOld': 'the reason in SnapshotNotServed, or of a command',
    'PeerUnreachable': 'the reason in MoveRefused, or SnapshotNotServed',
    'ReadLagsBehind': 'needs several database servers: see test_home',
    'SnapshotStays': "of an operator's command: see test_followers",
    'SourceUnreachable': 'the reason in MoveFailed, or SnapshotNotServed',
    'UnexpectedTable': 'a fault: somebody has changed a device',
}


class Lines(logging.Handler):
    """What the service of a node logs, as in Cinder's log files."""

    def __init__(self, node):
        super().__init__(logging.WARNING)
        self.setFormatter(formatters.ContextFormatter(config=cfg.CONF))
        self.node = node
        self.all, self.ours = [], []

    def emit(self, record):
        if self.node.cloud.here is not self.node:
            return
        line = self.format(record)
        self.all.append(line)
        if record.name.startswith('dmclone_driver'):
            self.ours.append(line)


class Situations(test_snapshots.SnapshotsTestCase):
    """Brings the volume into a situation.

    ``self.id`` is the volume of the request, ``self.node`` the node that gets
    it.
    """

    def setUp(self):
        super().setUp()
        self.id, self.node = self.volume.id, self.a
        self.peer, self.connector = self.b, self.b.connector
        self.stale = self.taken = None

    def change(self, **columns):
        db_api.volume_update(self.context, self.id, columns)

    def at_rest(self):
        pass

    def unknown_host(self):
        self.connector = dict(self.connector, host='laptop',
                              ip='198.51.100.1')

    def peer_down(self):
        self.b.stop()

    def peer_busy(self):
        self.a.home_side._turns[self.b.host] = mock.Mock(
            acquire=lambda timeout: False)

    def peer_slow(self):
        def build(*args):
            self.cloud.pass_time(100)
            return build_at_once(*args)
        build_at_once, self.b.builder.build = self.b.builder.build, build

    def peer_of_long_name(self):
        self.b.initiator = 'iqn.' + 'x' * 160

    def peer_full(self):
        self.b.lvm.groups['volumes'] = storage.GIB // 2

    def _give_type(self, **extra_specs):
        self.change(volume_type_id=db_api.volume_type_create(
            self.context, {'name': 'picky', 'extra_specs': extra_specs}).id)

    def peer_of_another_type(self):
        self._give_type(dmclone_metadata_backend='zram')

    def peer_in_another_zone(self):
        self._give_type(**{'RESKEY:availability_zones': 'zone-node1'})

    def peer_fails(self):
        self.patch('dmclone_driver.move.builder.Builder.build',
                   side_effect=OSError('no disk'))

    def peer_has_aborted(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.patch('dmclone_driver.move.teardown.Teardown.'
                   'delete_destination', side_effect=OSError('busy'))
        self.cloud.detach(self.volume, self.b)

    def prepared(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.taken = self.snapshot()

    def prepared_unused(self):
        """Nova has removed its attachments, but ended no connection."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        for record in self.row().volume_attachment:
            record.destroy()

    def prepared_and_written(self):
        path = self._prepare_unused()
        self.b.kernel.write(path)

    def prepared_and_peer_down(self):
        self._prepare_unused()
        self.b.stop()

    def _prepare_unused(self):
        self.cloud.attach(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        for record in self.row().volume_attachment:
            record.destroy()
        return path

    def prepared_elsewhere(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.peer = self.cloud.add('node3')
        self.connector = self.peer.connector

    def grouped(self):
        self.change(group_id=self.id)

    def being_filled(self):
        self.a.preflight.staying.add(self.id)

    def exported(self):
        records.set_export(self.context, self.row(), 'somewhere', 'x')

    def used_remotely(self):
        self.exported()
        self.cloud.attachment(self.volume, self.b, host='laptop')

    def migrating(self):
        self.change(migration_status='migrating')

    def opened(self):
        self.a.kernel.get(Names(self.id).path()).opened += 1

    def disk_fails(self):
        self.patch('dmclone_driver.privsep.block.size',
                   side_effect=OSError('no such disk'))

    def metadata_fails(self):
        self.hydrating()
        name, = self.b.clones()
        self.b.kernel.get(name).clone.mode = 'ro'
        self.peer, self.connector = self.a, self.a.connector

    def hydrating(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.node = self.b

    def source_waits(self):
        self.hydrating()
        path = Names(self.row().name_id).path()
        self.b.kernel.get(path + '-source').suspended = True
        self.b.kernel.get(path).clone.waiting = 1

    def gate_closed(self):
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.activate'):
            self.cloud.attach(self.volume, self.b)
        self.node = self.b

    def chain_too_long(self):
        self.b.driver.configuration.dmclone_chain_limit = 1
        self.hydrating()
        self.peer = self.cloud.add('node3')
        self.connector = self.peer.connector

    def source_lost(self):
        self.hydrating()
        self.taken = self.snapshot()
        self.a.die()
        with self.cloud.on(self.b):
            list(lost_node.LostNode(self.b.backend, self.b.requests,
                                    'node1').run(self.context, do_it=True))
        self.peer = self.cloud.add('node3')
        self.connector = self.peer.connector

    def encrypted(self):
        self.change(encryption_key_id=self.id)
        self.patch('cinder.volume.volume_types.get_volume_type_encryption',
                   return_value={'provider': 'plain'})

    def placeholder(self):
        self.cloud.attach(self.volume, self.b)
        self.taken = self.snapshot()
        self.id = self.cloud.placeholders()[0].id

    def forgotten(self):
        """The database was restored: the volume has moved away before."""
        with self.cloud.on(self.a):
            logical_volumes.tag(
                self.a.backend.logical_volume(Names(self.id)),
                logical_volumes.SEALED_TAG + 'x')

    def partly_deleted(self):
        with self.cloud.on(self.a), mock.patch.object(
                self.a.teardown, 'delete_data', side_effect=KeyError):
            self.assertRaises(KeyError, self.a.driver.delete_volume,
                              self.row())

    def no_locks(self):
        get_lock = self.cloud._get_lock
        self.patch('cinder.coordination.Coordinator.get_lock',
                   side_effect=lambda name: get_lock(name)
                   if not name.startswith('dmclone')
                   else mock.Mock(acquire=self._no_lock))

    @staticmethod
    def _no_lock(blocking):
        raise tooz.coordination.ToozConnectionError('away')

    def just_moved(self):
        """The request has waited in the queue of the old home."""
        self.stale = self.row()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)

    def just_moved_away(self):
        """Another request moves it after Cinder has read its row."""
        self.patch(
            'dmclone_driver.connections.Connections.end_export',
            side_effect=lambda *args: self.cloud.attach(self.volume, self.b))

    def attachment_goes(self):
        def prepare(*args):
            for record in self.row().volume_attachment:
                record.destroy()
            return build(*args)
        build, self.b.builder.build = self.b.builder.build, prepare

    def attached_meanwhile(self):
        def prepare(*args):
            self.cloud.attachment(self.volume, self.a)
            return build(*args)
        build, self.b.builder.build = self.b.builder.build, prepare

    def at_home_without_handle(self):
        with self.cloud.on(self.a):
            LocalVolume(Names(self.id)).remove(HANDLE)
        self.connector = self.a.connector

    def in_use(self):
        self.cloud.attach(self.volume, self.a)
        self.change(status='in-use')

    def not_on_node(self):
        self.a.lvm.volumes.clear()

    def clone_forgotten(self):
        self.hydrating()
        records.destroy(self.context, self.row().name_id)

    def read_by_clones(self):
        self.snapshot()
        copy = self.new(self.a)
        with self.cloud.on(self.a):
            copy.update(self.a.driver.create_cloned_volume(copy,
                                                           self.row()))
        copy.status = 'available'
        copy.save()

    def written_meanwhile(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        placeholder, = self.cloud.placeholders()
        self.patch('dmclone_driver.node.logical_volumes.take_snapshot',
                   side_effect=lambda *args: records.switch_over(
                       self.context, self.id, placeholder.id))

    def with_snapshot(self):
        self.taken = self.snapshot()

    def with_unknown_snapshot(self):
        self.snapshot().destroy()

    def in_read_only_pool(self):
        self.a.lvm.make_thin('volumes')['mode'] = 'ro'

    def snapshot_in_read_only_pool(self):
        self.taken = self.snapshot()
        self.in_read_only_pool()

    def snapshot_and_no_locks(self):
        self.taken = self.snapshot()
        self.no_locks()

    def snapshot_above_clone(self):
        self.hydrating()
        self.taken = self.snapshot()

    def snapshot_left_behind(self):
        self.taken = self.snapshot()
        self.move()
        self.cloud.detach(self.volume, self.b)
        self.node = self.b

    def snapshot_that_has_followed(self):
        self.snapshot_left_behind()
        with self.cloud.on(self.b):
            self.b.parts.followers.take_along(self.context, self.taken.id)
        self.cloud.watch(4)

    def snapshot_node_down(self):
        self.snapshot_left_behind()
        self.a.stop()

    def snapshot_node_cut_off(self):
        """Its service answers, but not its iSCSI portal."""
        self.snapshot_left_behind()
        self.patch('tests.unit.fakes.network.Initiator._connect',
                   side_effect=exception.SourceUnreachable(
                       portal='192.0.2.1:3260', error='timed out'))

    def snapshot_node_removed(self):
        self.snapshot_node_down()
        self.a.service.destroy()

    def snapshot_of_cinder_read(self):
        self.taken = self.snapshot()
        found = self.a.lvm.volumes['/dev/volumes/_' + self.taken.name]
        found.update(store=found['size'], chunk=4096)
        self.copy(self.taken, self.b)
        self.patch('dmclone_driver.reverts.Reverts._has_room',
                   return_value=False)

    def snapshot_gone(self):
        self.snapshot_left_behind()
        with self.cloud.on(self.a):
            self.a.parts.snapshots._delete(self.taken.id)


class Operations(Situations):
    """Sends requests to the manager, as the API and the scheduler do.

    Each operation returns the row whose status Cinder changes, the method of
    the manager, and its arguments.
    """

    def setUp(self):
        super().setUp()
        self.managers = {node: self._manager(node)
                         for node in (self.a, self.b)}

    @staticmethod
    def _manager(node):
        with mock.patch.object(manager, 'importutils') as loader:
            loader.import_object.return_value = node.driver
            made = manager.VolumeManager(host=node.host, volume_driver='x',
                                         service_name=cloud.BACKEND)
        node.driver.set_initialized()
        made.stats['pools'] = {}
        return made

    def target(self, **columns):
        """Read the row of the request as the API has changed it."""
        if columns:
            self.change(**columns)
        return self.stale or objects.Volume.get_by_id(self.request, self.id)

    def attach(self):
        row = self.target()
        record = self.cloud.attachment(row, self.peer, connected=False)
        return row, 'attachment_update', (
            self.target(), dict(self.connector), record.id)

    def attach_of_old(self):
        """Attach as before Cinder had attachment records of its own API."""
        self.attach()
        row = self.target()
        return row, 'initialize_connection', (row, dict(self.connector))

    def attach_of_cinder(self):
        """Attach for an upload, a backup or a migration."""
        row = self.target()
        return row, 'initialize_connection', (row, {
            'host': 'backup', 'initiator': 'iqn.backup', 'ip': '192.0.2.9'})

    def accept_transfer(self):
        return self.target(), 'accept_transfer', (self.id, 'user', 'project')

    def extend(self):
        row = self.target(status='extending')
        return row, 'extend_volume', (row, 2, [])

    def snapshot_row(self, **columns):
        taken = cinder_utils.create_snapshot(
            self.request, self.id, volume_size=1,
            volume_type_id=self.volume.volume_type_id, **columns)
        return objects.Snapshot.get_by_id(self.request, taken.id)

    def snapshot_of_request(self, status):
        if self.taken is None:
            return self.snapshot_row(status=status)
        taken = objects.Snapshot.get_by_id(self.request, self.taken.id)
        taken.status = status
        taken.save()
        return taken

    def take_snapshot(self):
        taken = self.snapshot_row(status='creating')
        return taken, 'create_snapshot', (taken,)

    def delete_snapshot_of(self, **options):
        taken = self.snapshot_of_request('deleting')
        return taken, 'delete_snapshot', (taken,)

    def unmanage_snapshot(self):
        taken = self.snapshot_of_request('unmanaging')
        return taken, 'delete_snapshot', (taken, True)

    def revert(self):
        row = self.target(status='reverting')
        taken = self.snapshot_of_request('restoring')
        return row, 'revert_to_snapshot', (row, taken)

    def revert_with_copy(self):
        """Revert a volume of which Cinder cannot take a snapshot before."""
        return self.revert()

    def delete_it(self):
        row = self.target(status='deleting', attach_status='detached')
        return row, 'delete_volume', (row,)

    def unmanage(self):
        row = self.target(status='unmanaging', attach_status='detached')
        return row, 'delete_volume', (row, True)

    def _new(self, **columns):
        row = self.new(self.node)
        for field, value in columns.items():
            row[field] = value
        row.save()
        return objects.Volume.get_by_id(self.request, row.id)

    def _create(self, **source):
        row = self._new(**source)
        # The last attempt: Cinder does not ask the scheduler again.
        return row, 'create_volume', (row, objects.RequestSpec(
            volume_id=row.id, volume=row, **source), {}, False)

    def from_snapshot(self):
        return self._create(snapshot_id=self.taken.id)

    def clone(self):
        return self._create(source_volid=self.id)

    def manage(self):
        row = self._new(status='managing')
        self.reference = {'source-name': self.volume.name}
        return row, 'manage_existing', (row, self.reference)

    def migrate(self):
        row = self.target(status='available', migration_status='starting')
        return row, 'migrate_volume', (row, {'host': self.b.pool})

    def retype(self):
        row = self.target(status='retyping', previous_status='available')
        new = db_api.volume_type_create(self.context, {
            'name': 'other', 'extra_specs': {'volume_backend_name': 'lvm'}})
        return row, 'retype', (row, new.id, {
            'host': 'node2@lvm#lvm', 'cluster_name': None,
            'capabilities': {}}, 'on-demand')

    def migrate_in_use(self):
        """Cinder copies it to a new volume on the other node."""
        self.node = self.b
        copy = self.new(self.b)
        copy.migration_status = 'target:' + self.id
        copy.save()
        copy = objects.Volume.get_by_id(self.request, copy.id)
        return self.target(), 'create_volume', (copy, None, None, False)

    def upload(self):
        row = self.target(status='uploading')
        self.patch('cinder.image.glance.get_remote_image_service',
                   return_value=(mock.MagicMock(), 'image'))
        return row, 'copy_volume_to_image', (row.id, {'id': 'image'})

    def reimage(self):
        row = self.target(status='downloading', previous_status='available')
        self.patch('cinder.image.glance.get_remote_image_service',
                   return_value=(mock.MagicMock(), 'image'))
        return row, 'reimage', (row, {'id': 'image'})

    def backup(self):
        self.target(status='backing-up', previous_status='in-use')
        backup = objects.Backup(
            self.request, volume_id=self.id, user_id='user',
            project_id='project', status='creating')
        backup.create()
        return backup, 'get_backup_device', (backup, True, True)

    #: Those whose names are taken by the base class.
    METHODS = {'snapshot': take_snapshot, 'delete': delete_it,
               'delete_snapshot': delete_snapshot_of,
               'delete_snapshot_of_pool': delete_snapshot_of}


def _named(row):
    return type('Row', (tuple,), {'__name__': '_'.join(row[:2])})(row)


@ddt.ddt
class RefusalTestCase(Operations):

    def ask(self, operation):
        """Send a request; returns the changed row and the exception."""
        self.request = cinder_context.RequestContext(
            self.volume.user_id, self.volume.project_id, is_admin=True)
        method = self.METHODS.get(operation)
        row, name, arguments = (method(self) if method
                                else getattr(self, operation)())
        self.before = {each['id'] for each in self.cloud.messages()}
        self.lines, error = Lines(self.node), None
        logging.getLogger().addHandler(self.lines)
        with self.cloud.on(self.node):
            try:
                getattr(self.managers[self.node], name)(self.request,
                                                        *arguments)
            except Exception as caught:
                error = caught
                # As _process_incoming in oslo_messaging/rpc/server.py.
                logging.getLogger('oslo_messaging.rpc.server').exception(
                    'Exception during message handling')
            finally:
                logging.getLogger().removeHandler(self.lines)
        return row, error

    @ddt.data(*map(_named, ROWS))
    def test_row(self, row):
        operation, situation, error_class, reason, remedy = row
        getattr(self, situation)()
        raised = self._watch(error_class)
        changed, error = self.ask(operation)
        self.assertIn(error_class, list(map(type, raised())))
        outcome = OUTCOMES[operation]
        if outcome is ANSWER:
            for part in (self.id, reason, remedy):
                self.assertIn(part, str(error))
        else:
            changed = changed.get_by_id(self.context, changed.id)
            self.assertEqual(outcome.status, changed.status)
            if operation == 'revert_with_copy':
                changed, = (each for each in objects.SnapshotList.get_all(
                    self.context, {}) if each.id != self.taken.id)
            self.assertTold(changed, outcome)
        if operation in ('migrate', 'retype'):
            self.assertEqual('error', changed.migration_status)
        self.assertLogged(self.id_in_log(operation, changed), reason, remedy)

    def id_in_log(self, operation, changed):
        """Return the id of what the request is about."""
        return (changed.id if operation in ('from_snapshot', 'manage',
                                            'delete_snapshot',
                                            'delete_snapshot_of_pool',
                                            'unmanage_snapshot')
                else self.id)

    def _watch(self, error_class):
        """Return a function that says whether an exception was raised."""
        made, init = [], error_class.__init__

        def remember(error, *args, **kwargs):
            made.append(error)
            init(error, *args, **kwargs)

        self.patch('%s.%s.__init__' % (error_class.__module__,
                                       error_class.__name__),
                   new=remember)
        return lambda: made

    def assertTold(self, changed, outcome):
        """Check that its user gets one message under the request's id."""
        told = [each for each in self.cloud.messages()
                if each['id'] not in self.before and
                each['resource_uuid'] == changed.id]
        self.assertEqual(
            [(self.request.request_id, outcome.action[0], outcome.detail[0])],
            [(each['request_id'], each['action_id'], each['detail_id'])
             for each in told])

    def assertLogged(self, resource_id, reason, remedy):
        """Check that one line of ours has all, or else one of Cinder."""
        parts = (self.request.request_id, resource_id, reason, remedy)
        said = [line for line in self.lines.all
                if all(part in line for part in parts)]
        self.assertNotEqual([], said, 'not in one line: %s\n%s' % (
            parts, '\n'.join(self.lines.all)))
        ours = [line for line in said if line in self.lines.ours]
        self.assertLessEqual(len(ours), 1, ours)


class CompletenessTestCase(test_snapshots.base.PlainTestCase):

    def test_each_exception_has_a_row(self):
        all_classes = {
            name for name, each in inspect.getmembers(exception,
                                                      inspect.isclass)
            if each.__module__ == exception.__name__}
        self.assertEqual(all_classes - set(OTHERS),
                         {row[2].__name__ for row in ROWS} & all_classes)
        self.assertEqual(set(), set(OTHERS) - all_classes)

    def test_each_operation_has_a_row(self):
        self.assertEqual(set(OUTCOMES), {row[0] for row in ROWS})
