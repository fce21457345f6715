# SPDX-License-Identifier: Apache-2.0
"""The deadline of a request: the time that its caller waits."""

import collections.abc
import time
from typing import Self

from oslo_config import cfg

CONF = cfg.CONF

# Seconds of the API's waiting time that are reserved for Cinder itself, before
# and after it calls the driver.
MARGIN = 10


class Deadline:
    """The time by which a request has to end."""

    def __init__(self, seconds: float,
                 clock: collections.abc.Callable[[], float]) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @classmethod
    def of_request(cls) -> Self:
        """Return the deadline of a request for which the API waits."""
        return cls(max(CONF.rpc_response_timeout - MARGIN, 1), time.monotonic)

    def left(self, at_most: float | None = None) -> float:
        """Return the remaining seconds, zero or more."""
        left = max(self._end - self._clock(), 0)
        return left if at_most is None else min(left, at_most)

    @property
    def passed(self) -> bool:
        """Whether the caller may have stopped waiting for an answer."""
        return not self.left()
