# SPDX-License-Identifier: Apache-2.0
"""Background jobs of this node, repeated with a back-off until done.

The queue is a hint and may be lost. When a job is tried, the kernel, LVM and
the database decide what has to be done. A start of the service finds the jobs
there.
"""

import collections.abc
import threading
import time
from typing import Any
from typing import TypeVar

from cinder import context as cinder_context
from oslo_log import log as logging

from dmclone_driver.node import names

LOG = logging.getLogger(__name__)

Key = TypeVar('Key')
Details = TypeVar('Details')

# Seconds before the first repetition of a failed job, and the longest pause;
# the pause doubles in between.
RETRY_FIRST, RETRY_LAST = 1, 300
# The longest pause while requests may wait that the driver can't detect:
# flushes at a gate, reads of a source that is not connected.
RETRY_WAITING = 10

#: The kind of jobs of :mod:`followers`, which other parts add.
SETTLE_FOLLOWER = 'settle follower'
#: The same for those that only have to hydrate.
WATCH_FOLLOWER = 'watch follower'
#: Of deleted volumes whose data clones still read.
WATCH_DELETED = 'watch deleted volume'
#: Those of :mod:`new_content`.
GIVE_UP_REVERT = 'give up revert'


class Pauses:
    """When to try again what failed."""

    def __init__(self, clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        self._clock = clock
        self._next: dict[Any, tuple[float, float]] = {}

    def due(self, key: Any, last: float = RETRY_LAST) -> bool:
        """Whether the pause of a key is over; if so, start a longer one.

        :param last: the longest pause, in seconds
        """
        now = self._clock()
        at, pause = self._next.get(key, (0, RETRY_FIRST))
        if now < at:
            return False
        self._next[key] = (now + pause, min(2 * pause, last))
        return True

    def now(self) -> float:
        """Return a monotonic time in seconds."""
        return self._clock()

    def forget(self, key: Any) -> None:
        """Reset a key to the shortest pause."""
        self._next.pop(key, None)


class Kind(dict[Key, Details]):
    """All jobs of one kind: {id of the job's object: details}."""

    def __init__(self, name: str,
                 run: collections.abc.Callable[..., Any],
                 last: float) -> None:
        super().__init__()
        self.name = name
        self.run = run
        self.last = last
        #: Keys of jobs that are to be tried before the pause is over.
        self.hurried: set[Key] = set()

    def add(self, key: Key, details: Any = None) -> None:
        """Add a job; one with the same key is replaced."""
        self[key] = details

    def discard(self, key: Key) -> None:
        """Remove a job that is done or obsolete."""
        self.pop(key, None)

    def take_hurried(self) -> set[Key]:
        """Return the keys that are to be tried soon, and forget that."""
        # Others add some meanwhile.
        return {self.hurried.pop() for _ in range(len(self.hurried))}


class Jobs:
    """Jobs of all kinds; each kind has its own background thread."""

    def __init__(self, clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        self.pauses = Pauses(clock)
        self._kinds: dict[str, Kind[Any, Any]] = {}
        self._working: set[Any] = set()

    def kind(self, name: str, run: collections.abc.Callable[..., Any],
             last: float = RETRY_LAST) -> Kind[Any, Any]:
        """Register a kind of jobs.

        :param run: function that takes a request context, tries all jobs of
            the kind, and discards those that are done
        :param last: the longest pause between two tries, in seconds
        """
        if name in self._kinds:
            raise ValueError(name)
        self._kinds[name] = Kind(name, run, last)
        return self._kinds[name]

    def add(self, kind: str, key: Any, details: Any = None) -> None:
        """Add a job of a kind that another class has registered."""
        self._kinds[kind].add(key, details)

    def hurry(self, kind: str, key: Any) -> None:
        """Have one job of a kind tried soon, if there is it, and no other.

        :param kind: one whose function takes the keys of these, too
        """
        if key in self._kinds[kind]:
            self._kinds[kind].hurried.add(key)

    def left(self) -> dict[str, list[str]]:
        """Return the pending jobs, {name of a kind: [text of an object]}."""
        return {name: [names.text(str(key)) for key in list(kind)]
                for name, kind in self._kinds.items() if kind}

    def numbers(self) -> dict[str, float]:
        """Return the numbers of pending jobs, {name of a kind: number}."""
        return {name: len(kind) for name, kind in list(self._kinds.items())}

    def look(self, context: cinder_context.RequestContext) -> None:
        """Start each kind that has jobs and is due."""
        for kind in self._kinds.values():
            if not kind:
                self.pauses.forget(kind.name)
            elif self.pauses.due(kind.name, kind.last):
                self.start(kind.name, kind.run, context)
            elif kind.hurried and not self.at_work(kind.name):
                self.start(kind.name, kind.run, context, kind.take_hurried())

    def at_work(self, key: Any) -> bool:
        """Whether a function that was started for a key still runs."""
        return key in self._working

    def start(self, key: Any, function: collections.abc.Callable[..., Any],
              *args: Any) -> None:
        """Run a function in the background, one at a time per key.

        It may wait for a peer or clear a volume. The caller's thread stays
        free to handle writes that wait at gates.

        :param key: the Names of a clone, or words and Names, for log lines
        """
        if self.at_work(key):
            return
        self._working.add(key)
        try:
            threading.Thread(target=self.run, daemon=True,
                             args=(key, function, *args)).start()
        except RuntimeError:
            self._working.discard(key)
            raise

    def run(self, key: Any, function: collections.abc.Callable[..., Any],
            *args: Any) -> None:
        """Run a job, and log all exceptions."""
        try:
            function(*args)
        except Exception:
            LOG.exception('Background job "%s" failed; it is tried again.',
                          ' '.join(map(str, key)) if isinstance(key, tuple)
                          else key)
        finally:
            self._working.discard(key)
