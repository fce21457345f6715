# SPDX-License-Identifier: Apache-2.0
"""Room that is held for instances which Nova has just placed."""

import collections
import collections.abc
import dataclasses
import datetime
import threading

from oslo_utils import timeutils

from dmclone_driver.scheduler.answers import Place
from dmclone_driver.scheduler.answers import Volume

#: How long room is held: until the move has a row, or never will have one.
#: It must be less than the time for which new rows are asked for.
LASTS = datetime.timedelta(minutes=2)


@dataclasses.dataclass(frozen=True)
class Hold:
    """The room that one volume of an instance will take."""

    instance: str
    place: Place
    #: In GiB.
    size: int
    #: None if it is not yet created.
    volume: str | None
    since: datetime.datetime = dataclasses.field(
        default_factory=timeutils.utcnow)


class Holds:
    """The holds of this process, which no other process knows."""

    def __init__(self) -> None:
        self._holds: list[Hold] = []
        # A scheduler handles several requests at once.
        self._lock = threading.Lock()

    def place(self, instance: str,
              holds: collections.abc.Iterable[Hold]) -> None:
        """Hold room for an instance, instead of what was held for it."""
        with self._lock:
            self._holds = [hold for hold in self._holds
                           if hold.instance != instance] + list(holds)

    def of_others(self, instance: str,
                  lately: collections.abc.Iterable[Volume]
                  ) -> dict[Place, int]:
        """Return the GiB that are held on each place for other instances.

        :param lately: new rows; a move that has one is counted by that
        """
        begun = {row.moves: row.created for row in lately if row.moves}
        oldest = timeutils.utcnow() - LASTS
        sums: dict[Place, int] = collections.Counter()
        with self._lock:
            self._holds = [
                hold for hold in self._holds if hold.since > oldest and not (
                    hold.volume in begun and
                    begun[hold.volume] >= hold.since)]
            for hold in self._holds:
                if hold.instance != instance:
                    sums[hold.place] += hold.size
        return sums
