# SPDX-License-Identifier: Apache-2.0
"""How much a clone may copy at a time, so that it keeps to a rate.

dm-clone has no rate. It has a threshold: the regions that it copies at a time.
With 0 it begins no copy, and hydration is on nevertheless.
"""

import dataclasses
import math

from dmclone_driver.node.devicemapper.status import CloneStatus
from dmclone_driver.node.devicemapper import table

# Seconds of its rate that a clone may have used too much, or may save up: how
# long it stops at most, and how long it may be faster afterwards.
_DEBT, _SAVINGS = 600, 2


@dataclasses.dataclass(frozen=True)
class Throttle:
    """What a clone may do until the next look.

    :ivar threshold: in regions
    :ivar steady: the threshold that has kept it to its rate so far
    :ivar fast: whether one region at a time is still too much
    :ivar credit: bytes that it has not used; negative if it used too many
    :ivar hydrated: regions at the last look
    :ivar at: time of the last look, in seconds
    """

    threshold: int
    steady: int
    fast: bool
    credit: float
    hydrated: int
    at: float


def begin(status: CloneStatus, allowed: float | None, tuned: int,
          now: float) -> Throttle:
    """Return the first throttle of a clone.

    :param allowed: bytes per second, None for no limit
    :param tuned: the threshold without a limit, in regions
    """
    # What is under way together should not take longer than a moment.
    steady = tuned if allowed is None else _within(
        allowed / 10 / (status.region * table.SECTOR), tuned)
    return Throttle(steady, steady, False, 0, status.hydrated, now)


def after(last: Throttle, status: CloneStatus, allowed: float | None,
          tuned: int, now: float) -> Throttle:
    """Return the throttle that follows another one.

    The threshold follows the rate. What is too fast even with one region at a
    time stops until the average is right. The guest's own writes fill
    regions, too, and count.

    :param allowed: bytes per second, None for no limit
    :param tuned: the threshold without a limit, in regions
    """
    seconds = now - last.at
    copied = (status.hydrated - last.hydrated) * status.region * table.SECTOR
    if allowed is None or copied < 0:
        return begin(status, allowed, tuned, now)
    if seconds <= 0:
        return last
    credit = min(max(last.credit + allowed * seconds - copied,
                     -allowed * _DEBT), allowed * _SAVINGS)
    steady, fast = min(last.steady, tuned), last.fast
    if last.threshold and copied:
        # At most twice as many: a guest that was busy is no measure.
        more = steady * min(allowed * seconds / copied, 2)
        fast = more < 1
        steady = _within(math.ceil(more) if more > steady else more, tuned)
    return Throttle(0 if fast and credit < 0 else steady, steady, fast,
                    credit, status.hydrated, now)


def _within(regions: float, tuned: int) -> int:
    """Return a threshold that is neither too small nor too large."""
    return max(1, min(int(regions), tuned))
