# SPDX-License-Identifier: Apache-2.0
"""What users and operators are told about volumes in trouble."""

from cinder.message import api as message_api
from cinder.message import message_field
from oslo_log import log as logging

from dmclone_driver.move import backend as backend_module
from dmclone_driver.move import records

LOG = logging.getLogger(__name__)


def tell_user(volume, action=message_field.Action.ATTACH_VOLUME,
              detail=message_field.Detail.ATTACH_ERROR):
    """Leave a message for the volume's user.

    Cinder offers a fixed list of texts; the reason is in the answer of the
    API and in the log, under the same request.
    """
    message_api.API().create(backend_module.context_of(volume), action,
                             resource_uuid=volume.id, detail=detail)


class Troubles:
    """What has been said about clones that do not get on."""

    def __init__(self):
        self._said = {}

    def forget(self, names):
        """Say it again if it comes again."""
        self._said.pop(names.name_id, None)

    def say(self, context, names, trouble, text, values):
        """Say once, in the log and to the user, that a clone is in trouble.

        :param trouble: what is said once, until the clone goes on
        """
        if self._said.get(names.name_id) == trouble:
            return
        self._said[names.name_id] = trouble
        LOG.error(text, values)
        volume = records.owner_row(context, names.name_id)
        if volume is not None and not records.is_placeholder(volume):
            tell_user(
                volume, detail=message_field.Detail.VOLUME_INVALID_STATE)

    def metadata(self, context, names, status):
        """Say that a clone's metadata device has failed or is full."""
        self.say(
            context, names, status.mode, 'The metadata of clone %(name)s is '
            'in mode %(mode)s: its device has failed or is full. Nothing is '
            'lost, but writes fail until it works again and the node has been '
            'restarted.', {'name': names.name_id, 'mode': status.mode})
