# SPDX-License-Identifier: Apache-2.0
"""Notifications of moves and copies on Cinder's message bus.

They have the form of Cinder's own events of volumes. They are sent by a thread
of their own: with the default of ``retry`` in
``[oslo_messaging_notifications]`` oslo.messaging waits for a RabbitMQ that is
down without an end (``Connection.ensure`` in
oslo_messaging/_drivers/impl_rabbit.py), and the payload needs the database.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import dataclasses
import datetime
import queue
import threading
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cinder import utils
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log as logging
from oslo_utils import timeutils

from dmclone_driver.move.events import Event

LOG = logging.getLogger(__name__)

CONF = cfg.CONF

# Events that wait for a message bus that does not answer. Further ones are
# lost: a move has about five, so these are those of some two hundred moves.
WAITING = 1000

# The event types are "volume.dmclone_move.start" and so on.
_TYPE = 'dmclone_%s.%s'


@dataclasses.dataclass(frozen=True)
class _Message:
    """An event that has to be sent."""

    event: Event
    #: In UTC.
    time: datetime.datetime
    request_id: str | None

    def payload(self) -> dict[str, Any]:
        """Return what is added to the payload of Cinder's own events."""
        return {'move_id': self.event.move_id,
                'source_host': self.event.source_backend,
                'destination_host': self.event.destination_backend,
                'source_snapshot_id': self.event.snapshot_id,
                'event_time': self.time.isoformat(),
                'reason': self.event.reason}


class Notifications:
    """The notifications of one backend, sent in the order of the events."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._queue: queue.Queue[_Message] = queue.Queue(WAITING)

    def start(self) -> None:
        """Start the thread; it has no stop, as services have no shutdown."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-notifications').start()

    def listen(self, event: Event) -> None:
        """Queue an event; never wait, and never fail."""
        if not utils.notifications_enabled(CONF):
            return
        current = oslo_context.get_current()
        try:
            self._queue.put_nowait(_Message(
                event, timeutils.utcnow(),
                current.request_id if current else None))
        except queue.Full:
            LOG.error('Notification %(type)s of volume %(volume)s is lost: '
                      '%(number)d others wait for the message bus.',
                      {'type': _type(event), 'volume': event.volume_id,
                       'number': WAITING})

    def waiting(self) -> int:
        """Return the number of notifications that are not sent yet."""
        return self._queue.qsize()

    def _run(self) -> None:
        while True:
            self.send(self._queue.get())

    def send_waiting(self) -> None:
        """Send the notifications that wait."""
        while not self._queue.empty():
            self.send(self._queue.get_nowait())

    def send(self, message: _Message) -> None:
        """Send a notification; if that fails it is lost, which is logged."""
        event = message.event
        try:
            context = cinder_context.RequestContext(
                is_admin=True, read_deleted='yes', overwrite=False,
                request_id=message.request_id)
            volume = objects.Volume.get_by_id(context, event.volume_id)
            context.user_id = volume.user_id
            context.project_id = volume.project_id
            volume_utils.notify_about_volume_usage(
                context, volume, _type(event),
                extra_usage_info=message.payload(), host=self._host)
        except Exception:
            LOG.exception('Notification %(type)s of volume %(volume)s is '
                          'lost.', {'type': _type(event),
                                    'volume': event.volume_id})


def _type(event: Event) -> str:
    """Return an event's type in Cinder's form, without "volume."."""
    return _TYPE % (event.flow, event.kind)
