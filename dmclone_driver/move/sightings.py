# SPDX-License-Identifier: Apache-2.0
"""What the watcher has last seen of the clones, for those who only look.

Who asks costs the kernel nothing: the watcher looks in any case.
"""

import collections.abc
import dataclasses
import time

from dmclone_driver.move.clone_state import CloneState
from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.names import Names

# Seconds over which a rate is measured, at least.
WINDOW = 10


@dataclasses.dataclass(frozen=True)
class Sighting:
    """A clone as the watcher has last seen it.

    :ivar state: None while a request works on it
    :ivar progress: when its number of hydrated regions last changed, or it
        last waited for its turn, in seconds of the clock
    :ivar rate: bytes per second at which it fills, by hydration and by its
        guest's writes; None until that is measured
    """

    status: CloneStatus
    state: CloneState | None
    progress: float
    rate: float | None = None
    #: The begin of the measurement: (hydrated regions, time).
    mark: tuple[int, float] = (0, 0)


class Sightings:
    """The clones that the last check has found.

    Reading is safe in any thread: a check replaces the whole value.
    """

    def __init__(self, clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        self._clock = clock
        #: Time of the last check, None before the first.
        self._at: float | None = None
        self._clones: dict[Names, Sighting] = {}

    @property
    def clones(self) -> dict[Names, Sighting]:
        """The clones of the last check; not to be changed."""
        return self._clones

    @property
    def age(self) -> float | None:
        """Seconds since the last check, None before the first."""
        return None if self._at is None else self._clock() - self._at

    def since(self, moment: float) -> float:
        """Return the seconds since a moment of the clock."""
        return self._clock() - moment

    def replace(self, found: collections.abc.Mapping[
            Names, tuple[CloneStatus, CloneState | None]]) -> None:
        """Remember what a check has found."""
        now = self._clock()
        self._clones = {
            names: _after(self._clones.get(names), status, state, now)
            for names, (status, state) in found.items()}
        self._at = now


def _after(last: Sighting | None, status: CloneStatus,
           state: CloneState | None, now: float) -> Sighting:
    """Return a sighting that follows another one of the same clone."""
    if last is None:
        return Sighting(status, state, now, mark=(status.hydrated, now))
    moved = (status.hydrated != last.status.hydrated or status.paused or
             state == CloneState.QUEUED)
    found = dataclasses.replace(
        last, status=status, state=state,
        progress=now if moved else last.progress)
    hydrated, began = last.mark
    if now - began < WINDOW:
        return found
    copied = (status.hydrated - hydrated) * status.region_bytes
    # A clone that was built again begins with fewer regions.
    return dataclasses.replace(found, rate=max(0, copied / (now - began)),
                               mark=(status.hydrated, now))
