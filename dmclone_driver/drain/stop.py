# SPDX-License-Identifier: Apache-2.0
"""The wish to end early, set by a signal and looked at by all threads."""

import collections.abc
import contextlib
import signal
import time
from typing import Any

#: Seconds after which a thread that waits notices a signal.
LOOK = 0.5


class Stop:
    """Whether nothing new is to be begun.

    It has no lock: a signal may interrupt the main thread while that looks,
    and its handler would wait for ever for a lock that this thread has.

    :ivar number: of the signal, 0 without one
    """

    number = 0

    def is_set(self) -> bool:
        """Whether there was a signal."""
        return self.number != 0

    def wait(self, seconds: float) -> bool:
        """Wait, at most until there is a signal; return :meth:`is_set`."""
        end = time.monotonic() + seconds
        while not self.number and time.monotonic() < end:
            time.sleep(min(LOOK, seconds))
        return self.is_set()

    def caught(self, number: int, frame: Any) -> None:
        """Handle the first signal; the next one ends the process."""
        self.number = number
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def by_signals() -> collections.abc.Iterator[Stop]:
    """Stop at Ctrl-C or SIGTERM, instead of ending the process."""
    stop = Stop()
    before = {number: signal.signal(number, stop.caught)
              for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
