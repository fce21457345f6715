# SPDX-License-Identifier: Apache-2.0
"""How long a request may take: no longer than its caller waits."""

import time

from oslo_config import cfg

CONF = cfg.CONF

# Of the seconds that Cinder's API waits, what is left to Cinder itself, before
# and after the driver is called.
MARGIN = 10


class Deadline:
    """The time by which a request has to be over."""

    def __init__(self, seconds, clock=time.monotonic):
        self._clock = clock
        self._end = clock() + seconds

    @classmethod
    def of_request(cls):
        """Return the deadline of a request that the API waits for."""
        return cls(max(CONF.rpc_response_timeout - MARGIN, 1))

    def left(self, at_most=None):
        """Return the seconds that are left, not less than zero."""
        left = max(self._end - self._clock(), 0)
        return left if at_most is None else min(left, at_most)

    @property
    def passed(self):
        """Whether the caller may not wait for an answer any more."""
        return not self.left()
