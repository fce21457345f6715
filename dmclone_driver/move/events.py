# SPDX-License-Identifier: Apache-2.0
"""Events of moves and copies, and their listeners in this process.

An event is told after the transaction, or the step, that it reports. It is
told at most once, and lost if the process ends in between.
"""

import collections.abc
import dataclasses
import enum

from cinder.volume import volume_utils
from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Kind(enum.StrEnum):
    """What has happened to a move or a copy."""

    #: It is in the database.
    START = 'start'
    #: The destination has become the volume's home.
    SWITCHOVER = 'switchover'
    #: All data is at the destination, and the source is not needed.
    END = 'end'
    #: It never becomes the volume's home; a copy is not made.
    ABORT = 'abort'
    #: It has failed, or does not proceed without help.
    ERROR = 'error'


class Flow(enum.StrEnum):
    """What is under way."""

    #: A volume moves to another node.
    MOVE = 'move'
    #: A new volume is filled from a snapshot.
    COPY = 'copy'


#: The kinds of events that each flow has. A copy is the home of its volume
#: from the beginning.
OF_FLOW = {Flow.MOVE: tuple(Kind),
           Flow.COPY: (Kind.START, Kind.END, Kind.ABORT, Kind.ERROR)}


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that has happened to a move or a copy."""

    kind: Kind
    volume_id: str
    #: Id of the placeholder.
    move_id: str
    #: The hosts of the source and of the destination, as their rows have
    #: them; None if not known.
    source: str | None
    destination: str | None
    #: Id of the snapshot that is copied; None for a move.
    snapshot_id: str | None = None
    #: Why it has failed, for operators.
    reason: str | None = None

    @property
    def flow(self) -> Flow:
        """Whether it is a move or a copy."""
        return Flow.COPY if self.snapshot_id else Flow.MOVE

    @property
    def source_backend(self) -> str | None:
        """The backend of the source: ``node@backend``."""
        return self.source and volume_utils.extract_host(self.source)

    @property
    def destination_backend(self) -> str | None:
        """The backend of the destination: ``node@backend``."""
        return self.destination and volume_utils.extract_host(
            self.destination)


Listener = collections.abc.Callable[[Event], None]

# A process has one backend of this driver.
_LISTENERS: list[Listener] = []


def listen(listener: Listener) -> None:
    """Tell a function of each event from now on; it must not wait."""
    _LISTENERS.append(listener)


def tell(event: Event) -> None:
    """Tell all listeners of an event; what they raise is only logged."""
    for listener in list(_LISTENERS):
        try:
            listener(event)
        except Exception:
            LOG.exception('Event %(kind)s of volume %(volume)s was not '
                          'handled.', {'kind': event.kind,
                                       'volume': event.volume_id})
