# SPDX-License-Identifier: Apache-2.0
"""Messages to users and operators about volumes in trouble."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import contextlib
from typing import Any

from cinder import context as cinder_context
from cinder.message import api as message_api
from cinder.message import message_field
from cinder import objects
from oslo_log import log as logging
from oslo_utils import excutils

from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import events
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.names import Names
from dmclone_driver.node import thin_pools

LOG = logging.getLogger(__name__)

#: Cinder has no action for a deletion or a revert. It shows it as unknown.
OTHER = ('', '')


def tell_user(resource: objects.Volume | objects.Backup,
              action: tuple[str, str] = message_field.Action.ATTACH_VOLUME,
              detail: tuple[str, str] = message_field.Detail.ATTACH_ERROR
              ) -> None:
    """Create a user message for a volume or a backup.

    Cinder has a fixed list of texts. The reason is in the API's answer and
    in the log, under the same request.
    """
    message_api.API().create(
        backend_module.context_of(resource), action,
        resource_type=message_field.Resource.VOLUME_BACKUP
        if isinstance(resource, objects.Backup)
        else message_field.Resource.VOLUME,
        resource_uuid=resource.id, detail=detail)


@contextlib.contextmanager
def telling(volume: objects.Volume, action: tuple[str, str],
            detail: tuple[str, str] =
            message_field.Detail.VOLUME_INVALID_STATE
            ) -> collections.abc.Iterator[None]:
    """Create a user message if a request fails for which Cinder does not."""
    try:
        yield
    except Exception:
        with excutils.save_and_reraise_exception():
            tell_user(volume, action, detail)


class Troubles:
    """Report each trouble of a clone once."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}

    def forget(self, names: Names) -> None:
        """Forget a clone's trouble; report it again if it recurs."""
        self._reported.pop(names.name_id, None)

    def say(self, context: cinder_context.RequestContext, names: Names,
            trouble: str, text: str, values: dict[str, Any],
            mild: bool = False) -> None:
        """Report a clone's trouble once, in the log and to the user.

        :param trouble: the kind of trouble, reported once until it is
            forgotten
        :param mild: whether it is a warning only
        """
        if self._reported.get(names.name_id) == trouble:
            return
        self._reported[names.name_id] = trouble
        if mild:
            LOG.warning(text, values)
        else:
            LOG.error(text, values)
        volume = lookups.owner_row(context, names.name_id)
        if volume is not None and not placeholders.is_placeholder(volume):
            tell_user(
                volume, detail=message_field.Detail.VOLUME_INVALID_STATE)
            self._tell_listeners(context, names, volume, text % values)

    @staticmethod
    def _tell_listeners(context: cinder_context.RequestContext, names: Names,
                        volume: objects.Volume, text: str) -> None:
        placeholder = lookups.placeholder(context, names.name_id)
        events.tell(events.Event(
            events.Kind.ERROR, volume.id, names.name_id,
            placeholder.host if placeholder else None, volume.host,
            placeholder.snapshot_id if placeholder else None, text))

    def metadata(self, context: cinder_context.RequestContext, names: Names,
                 status: CloneStatus) -> None:
        """Report that a clone's metadata device has failed or is full."""
        self.say(
            context, names, status.mode, 'The metadata device of %(names)s '
            'has failed or is full: dm-clone is in mode %(mode)s. No data is '
            'lost, but writes fail until the device works again and the node '
            'has been restarted.', {'names': names, 'mode': status.mode})

    def room(self, context: cinder_context.RequestContext, names: Names,
             group: str) -> None:
        """Report that a copy waits for room in its thin pool."""
        self.say(
            context, names, 'room', 'The copy of %(names)s waits: of thin '
            'pool %(pool)s, or of its metadata, only the reserve is left, '
            'which the writes of guests need. It goes on by itself when there '
            'is room: extend the pool, or move or delete volumes.',
            {'names': names, 'pool': '%s/%s' % (
                group, thin_pools.name_of(group))}, mild=True)
