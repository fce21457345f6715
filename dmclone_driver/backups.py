# SPDX-License-Identifier: Apache-2.0
"""Give a volume back to its users if its backup cannot begin.

Cinder does so after every later failure (continue_backup in
cinder/backup/manager.py), but not if the driver returns no device
(VolumeManager.get_backup_device in cinder/volume/manager.py): then the volume
would be "backing-up" and the backup "creating" for ever.
"""

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from cinder.objects import fields
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver.move import messages

LOG = logging.getLogger(__name__)


def fail(context: cinder_context.RequestContext, backup: objects.Backup,
         reason: str) -> None:
    """Set a backup to "error", and its volume or snapshot to what it was."""
    LOG.error('Backup %(backup)s of volume %(volume)s has failed: %(reason)s',
              {'backup': backup.id, 'volume': backup.volume_id,
               'reason': reason})
    if backup.snapshot_id:
        snapshot = objects.Snapshot.get_by_id(context, backup.snapshot_id)
        snapshot.conditional_update(
            {'status': fields.SnapshotStatus.AVAILABLE},
            {'status': fields.SnapshotStatus.BACKING_UP})
    else:
        volume = objects.Volume.get_by_id(context, backup.volume_id)
        volume.conditional_update(
            {'status': volume.previous_status,
             'previous_status': 'error_backing-up'},
            {'status': fields.VolumeStatus.BACKING_UP})
    volume_utils.update_backup_error(backup, reason)
    messages.tell_user(backup, message_field.Action.BACKUP_CREATE,
                       message_field.Detail.BACKUP_CREATE_DEVICE_ERROR)
