# SPDX-License-Identifier: Apache-2.0
"""The pace at which the clones of this node copy."""

import collections.abc
import dataclasses
import threading
import time

from oslo_log import log as logging

from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.quantities import Bytes
from dmclone_driver.privsep import pacing

LOG = logging.getLogger(__name__)

# Seconds that one privileged call lasts. A new pace has an effect after that.
BEAT = 1

# Seconds until the next try after a failure.
RETRY = 10

# Seconds of a rate that a clone may be behind or ahead of it; two windows if
# that is more.
MEMORY = 5


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast a clone copies.

    :ivar volume_id: the volume, for log lines
    :ivar device: the clone's name in device-mapper
    :ivar window: regions that it copies at a time
    :ivar rate: bytes per second; None for as fast as it can, 0 for not at all
    """

    volume_id: str
    device: str
    window: int
    rate: float | None = None


#: Returns the pace of each clone that copies.
Paces = collections.abc.Callable[[], collections.abc.Iterable[Pace]]


@dataclasses.dataclass(frozen=True)
class Account:
    """What a clone has copied, compared with its pace.

    :ivar at: seconds of the clock
    :ivar filled: the bytes that it had then
    :ivar region: bytes of a region
    :ivar credit: bytes that it may copy, by its rate; negative if it has
        copied too many
    """

    at: float
    filled: Bytes
    region: Bytes
    credit: float = 0

    def budget(self, rate: float | None) -> int | None:
        """Return the regions that may begin, see :class:`pokes.Request`."""
        if rate is None:
            return None
        # The rest of a region would never become a whole one by itself.
        return max(0, -int(-self.credit // self.region)) if rate else 0

    def after(self, now: float, found: status.CloneStatus,
              pace: Pace) -> 'Account':
        """Return the account at a later time."""
        fresh = opened(now, found)
        if pace.rate is None:
            return fresh
        # A clone that was built again has fewer regions.
        copied = max(0, fresh.filled - self.filled)
        window = pace.window * fresh.region
        most = max(pace.rate * BEAT, window)
        # A low rate takes long to pay for a window, and one more may begin
        # before it is seen.
        least = -max(pace.rate * MEMORY, 2 * window)
        credit = self.credit + pace.rate * (now - self.at) - copied
        return dataclasses.replace(fresh, credit=min(most, max(least,
                                                               credit)))


def opened(now: float, found: status.CloneStatus) -> Account:
    """Return the account of a clone that was not paced before."""
    region = Bytes(found.region * table.SECTOR)
    return Account(now, Bytes(found.hydrated * region), region)


class Pacemaker:
    """A thread that keeps all clones of this node to their paces.

    What it remembers is only how a clone has kept its pace. After a restart
    that begins anew.
    """

    def __init__(self, paces: Paces,
                 clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        """Remember whom to ask.

        :param paces: called once a second
        """
        self._paces = paces
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    def start(self) -> None:
        """Start the thread; it has no stop, as services have no shutdown."""
        threading.Thread(target=self._run, daemon=True,
                         name='dmclone-pacemaker').start()

    def _run(self) -> None:
        while True:
            began = self._clock()
            pause: float = BEAT
            try:
                self.beat()
            except Exception:
                pause = RETRY
                LOG.exception('Pacing the copies of clones failed; the next '
                              'try is in %d seconds. They continue as the '
                              'kernel does it by itself.', pause)
            # The call has waited already, unless nothing copies.
            time.sleep(max(0, began + pause - self._clock()))

    def beat(self) -> None:
        """Pace all clones once; without one nothing is called."""
        paces = {pace.device: pace for pace in self._paces()}
        if not paces:
            self._accounts.clear()
            return
        answers = pacing.run([dataclasses.asdict(self._request(pace))
                              for pace in paces.values()], BEAT)
        now = self._clock()
        found = {name: status.clone(text) for name, text in answers.items()}
        self._accounts = {
            name: self._accounts[name].after(now, clone, paces[name])
            if name in self._accounts else opened(now, clone)
            for name, clone in found.items() if clone.region}

    def _request(self, pace: Pace) -> pokes.Request:
        account = self._accounts.get(pace.device)
        if account:
            budget = account.budget(pace.rate)
        else:
            # The size of its regions is not known yet.
            budget = (None if pace.rate is None else
                      pace.window if pace.rate else 0)
        return pokes.Request(pace.device, pace.window, budget)
