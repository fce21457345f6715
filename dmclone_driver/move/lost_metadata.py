# SPDX-License-Identifier: Apache-2.0
"""The status of a volume whose clone has lost its metadata: an error.

It is what it was before once the metadata has been found.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from cinder.objects import fields

from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move import placeholders

STATUS = fields.VolumeStatus
# Prefix of previous_status while a volume has the status error, because the
# metadata of the logical volume that is named here is lost.
_PREVIOUS = 'dmclone:%s:'


def set_error(context: cinder_context.RequestContext,
              row: objects.Volume) -> None:
    """Set a volume whose clone cannot be rebuilt to error.

    Its status is kept in previous_status.

    :param row: its own row, or that of a source which it still needs
    """
    volume = _users_volume(context, row)
    if volume is None or volume.status not in (STATUS.AVAILABLE,
                                               STATUS.IN_USE):
        return
    volume.previous_status = _PREVIOUS % row.name_id + volume.status
    volume.status = STATUS.ERROR
    volume.save()
    messages.tell_user(
        volume, detail=message_field.Detail.VOLUME_INVALID_STATE)


def clear_error(context: cinder_context.RequestContext,
                row: objects.Volume) -> None:
    """Restore the status of a volume whose metadata has been found.

    :param row: as of :func:`set_error`
    """
    volume = _users_volume(context, row)
    mark = _PREVIOUS % row.name_id
    if volume is None or not (volume.previous_status or
                              '').startswith(mark):
        return
    volume.refresh()
    if volume.status == STATUS.ERROR:
        volume.status = volume.previous_status.removeprefix(mark)
    volume.previous_status = None
    volume.save()


def _users_volume(context: cinder_context.RequestContext,
                  row: objects.Volume) -> objects.Volume | None:
    return (lookups.get(context, lookups.guarding_id(row))
            if placeholders.is_placeholder(row) else row)
