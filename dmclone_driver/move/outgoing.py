# SPDX-License-Identifier: Apache-2.0
"""The copies that other nodes make from this one: which run, and how fast.

Their nodes ask, and ask again while the copies run or wait. So what is
remembered here may be lost: after some time it is complete again.
"""

import collections.abc
import dataclasses
import threading

from dmclone_driver.move.pace_settings import PaceSettings

# Seconds after which a copy is forgotten that its node does not name again.
LEASE = 150


@dataclasses.dataclass(frozen=True)
class _Asked:
    """A copy that another node makes, or wants to make.

    :ivar reader: backend of that node
    :ivar first: when it was first named, in seconds
    :ivar last: when it was last named
    """

    reader: str
    first: float
    last: float


class Outgoing:
    """The copies from this node; the first that have come have their turn."""

    def __init__(self, settings: PaceSettings,
                 clock: collections.abc.Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._asked: dict[str, _Asked] = {}
        # Several nodes ask at a time.
        self._lock = threading.Lock()

    def lend(self, reader: str, wanted: collections.abc.Iterable[str]
             ) -> dict[str, float | None]:
        """Tell a node which of its copies from here may run, and how fast.

        :param reader: its backend, ``node@backend``
        :param wanted: ids of the placeholders of all copies from here that it
            makes, or would make next
        :returns: {id: bytes per second, None for no limit, 0 for not yet}
        """
        now = self._clock()
        wanted = list(wanted)
        with self._lock:
            known = self._asked
            self._asked = {
                each: asked for each, asked in known.items()
                if asked.reader != reader and now - asked.last < LEASE}
            for each in wanted:
                self._asked[each] = _Asked(
                    reader, known[each].first if each in known else now, now)
            running = self._running()
        share = self._share(len(running))
        return {each: share if each in running else 0 for each in wanted}

    def forget(self, placeholder_id: str) -> None:
        """Give the turn of a copy that is complete to another one."""
        with self._lock:
            self._asked.pop(placeholder_id, None)

    def counts(self) -> tuple[int, int]:
        """Return how many copies run, and how many wait for their turn."""
        now = self._clock()
        with self._lock:
            left = sum(now - asked.last < LEASE
                       for asked in self._asked.values())
        running = min(left, self._settings.limits.copies)
        return running, left - running

    def _running(self) -> set[str]:
        """Return those that have their turn; under the lock."""
        in_order = sorted(self._asked, key=lambda each: (
            self._asked[each].first, each))
        return set(in_order[:self._settings.limits.copies])

    def _share(self, number: int) -> float | None:
        limit = self._settings.bandwidth_out
        return None if limit is None else limit / max(1, number)
