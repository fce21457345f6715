# SPDX-License-Identifier: Apache-2.0
"""How long the writes of guests that have arrived wait at closed gates."""

import collections.abc
import time

from dmclone_driver.move import counts
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import Names


class GateWaits:
    """The clones at whose gate a write waits, as the watcher sees them.

    Reading is safe in any thread: a check replaces the whole value.
    """

    def __init__(self, clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        self._clock = clock
        #: Since when, in seconds of the clock.
        self._since: dict[Names, float] = {}

    def look(self, clones: collections.abc.Mapping[Names, CloneStatus]
             ) -> None:
        """Remember which writes wait; count the waits that have ended.

        :param clones: all clones of the node
        """
        now, before = self._clock(), self._since
        self._since = {names: before.get(names, now)
                       for names, status in clones.items()
                       if status.written and _is_shut(names)}
        for names in before.keys() - self._since.keys():
            counts.GATE_WAIT.observe(now - before[names])

    def seconds(self) -> list[float]:
        """Return for how long each write has waited until now."""
        now = self._clock()
        return [now - since for since in self._since.values()]


def _is_shut(names: Names) -> bool:
    try:
        return sysfs.is_suspended(names.of(GATE))
    except OSError:
        # The clone has just been removed.
        return False
