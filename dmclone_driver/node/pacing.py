# SPDX-License-Identifier: Apache-2.0
"""The pace at which the clones of this node copy."""

import collections.abc
import dataclasses
import enum
import math
import threading
import time
from typing import Any

from oslo_log import log as logging

from dmclone_driver.node.devicemapper import pokes
from dmclone_driver.node.devicemapper import status
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

# While a guest uses this node, a clone copies this part of a window at a time.
PART = 8

# The most holds of a clone in a second, and the most seconds without one after
# they have not helped.
HOLDS, REST = 5, 60


class Guests(enum.Enum):
    """Whose guests use this node while clones copy.

    Their requests wait behind copies, and share processors with them.
    """

    NONE = 'none'
    #: Only those of volumes that are copied, which are done the sooner.
    OWN = 'own'
    #: Others, too, which have nothing of the copies.
    OTHERS = 'others'

    @property
    def share(self) -> float:
        """The share of the time in which all clones together may copy."""
        return {Guests.NONE: 1, Guests.OWN: 0.27, Guests.OTHERS: 0.02}[self]

    def promise(self, floor: float, clones: int) -> float:
        """Return the bytes per second that each clone gets at least.

        :param floor: the minimum rate beside the clone's own guest
        :param clones: how many copy
        """
        return floor / 4 / clones if self == Guests.OTHERS else floor


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast a clone copies.

    :ivar volume_id: the volume, for log lines
    :ivar device: the clone's name in device-mapper
    :ivar window: regions that it copies at a time
    :ivar rate: bytes per second; None for as fast as it can, 0 for not at all
    :ivar guests: who uses this node
    """

    volume_id: str
    device: str
    window: int
    rate: float | None = None
    guests: Guests = Guests.NONE

    @property
    def part(self) -> int | None:
        """The regions at a time while a guest uses the node, None if not."""
        return (None if self.guests == Guests.NONE else
                max(1, self.window // PART))


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
    :ivar owed: bytes that it has copied too few, by the minimum rate
    :ivar missed: how many attempts to hold its requests have not helped, in
        succession
    :ivar rest: when the next one may be made
    :ivar held: whether its requests were ever held
    :ivar beside: whether it has ever had copies begin beside them
    """

    at: float
    filled: Bytes
    region: Bytes
    credit: float = 0
    owed: float = 0
    missed: int = 0
    rest: float = 0
    held: bool = False
    beside: bool = False

    def budget(self, rate: float | None) -> int | None:
        """Return the regions that may begin, see :class:`pokes.Request`."""
        if rate is None:
            return None
        # The rest of a region would never become a whole one by itself.
        return max(0, -int(-self.credit // self.region)) if rate else 0

    def holds(self, now: float, window: int) -> int:
        """Return how often a window may begin whatever its guest does.

        That is in the next second.
        """
        if now < self.rest:
            return 0
        return min(HOLDS, int(self.owed // (window * self.region)))

    def after(self, now: float, outcome: pokes.Outcome, pace: Pace,
              floor: float) -> 'Account':
        """Return the account at a later time.

        :param floor: the minimum rate, in bytes per second
        """
        found = status.clone(outcome.text)
        fresh = opened(now, found)
        # A clone that was built again has fewer regions.
        copied = max(0, fresh.filled - self.filled)
        floor = min(floor, math.inf if pace.rate is None else pace.rate)
        owed = self.owed + floor * (now - self.at) - copied
        # What is paid is whole windows, however low the rate is.
        most = floor and max(floor * MEMORY, 2 * pace.window * self.region)
        return dataclasses.replace(
            fresh, credit=self._credit(now, copied, pace),
            owed=max(0, min(most, owed)),
            held=self.held or bool(outcome.held),
            beside=self.beside or bool(outcome.beside),
            **self._rest(now, outcome))

    def _credit(self, now: float, copied: int, pace: Pace) -> float:
        if pace.rate is None:
            return 0
        window = pace.window * self.region
        most = max(pace.rate * BEAT, window)
        # A low rate takes long to pay for a window, and one more may begin
        # before it is seen.
        least = -max(pace.rate * MEMORY, 2 * window)
        credit = self.credit + pace.rate * (now - self.at) - copied
        return min(most, max(least, credit))

    def _rest(self, now: float, outcome: pokes.Outcome) -> dict[str, Any]:
        """Return for how long no hold is tried, longer after each miss."""
        if outcome.missed:
            pause = min(REST, 2 ** min(self.missed, REST))
            return {'missed': self.missed + 1, 'rest': now + pause}
        helped = outcome.held or outcome.beside
        return {'missed': 0 if helped else self.missed, 'rest': self.rest}


def opened(now: float, found: status.CloneStatus) -> Account:
    """Return the account of a clone that was not paced before."""
    region = found.region_bytes
    return Account(now, Bytes(found.hydrated * region), region)


class Pacemaker:
    """A thread that keeps all clones of this node to their paces.

    What it remembers is only how a clone has kept its pace. After a restart
    that begins anew.
    """

    def __init__(self, paces: Paces,
                 floor: collections.abc.Callable[[], int],
                 clock: collections.abc.Callable[[], float] =
                 time.monotonic) -> None:
        """Remember whom to ask.

        :param paces: called once a second
        :param floor: returns the bytes per second that each clone copies at
            least, unless its own rate is less; its guest is held for that. A
            quarter of it is for all clones together while guests of other
            volumes use the node. 0 for none.
        """
        self._paces = paces
        self._floor = floor
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
        begun = self._clock()
        answers = pacing.run([dataclasses.asdict(self._request(pace, begun))
                              for pace in paces.values()], BEAT)
        self._accounts = {
            name: account for name, fields in answers.items() if (
                account := self._account(paces[name], pokes.Outcome(**fields),
                                         len(paces)))}

    def _account(self, pace: Pace, outcome: pokes.Outcome,
                 clones: int) -> Account | None:
        """Return a clone's account after a call; None if it has failed.

        :param clones: the number of clones that copy
        """
        now = self._clock()
        found = status.clone(outcome.text)
        if not found.region:
            return None
        last = self._accounts.get(pace.device)
        if last is None:
            return opened(now, found)
        self._tell(pace, last, outcome)
        return last.after(now, outcome, pace,
                          pace.guests.promise(self._floor(), clones))

    @staticmethod
    def _tell(pace: Pace, last: Account, outcome: pokes.Outcome) -> None:
        """Log how a busy guest's clone gets its minimum rate."""
        if outcome.beside and not last.beside:
            LOG.info('The guest of volume %s leaves its copy no time. The '
                     'kernel copies beside its requests.', pace.volume_id)
        if outcome.held and not last.held:
            LOG.info('The guest of volume %(volume)s leaves its copy no time. '
                     'Its requests are held for moments, %(seconds).3f '
                     'seconds at most so far.',
                     {'volume': pace.volume_id, 'seconds': outcome.seconds})
        elif outcome.missed:
            LOG.debug('Holding the requests to volume %(volume)s did not '
                      'help: %(why)s (%(seconds).3f seconds).',
                      {'volume': pace.volume_id, 'why': outcome.missed,
                       'seconds': outcome.seconds})

    def _request(self, pace: Pace, now: float) -> pokes.Request:
        account = self._accounts.get(pace.device)
        if account is None:
            # The size of its regions is not known yet.
            return pokes.Request(pace.device, pace.window,
                                 None if pace.rate is None else
                                 pace.window if pace.rate else 0,
                                 part=pace.part, share=pace.guests.share)
        return pokes.Request(
            pace.device, pace.window, account.budget(pace.rate),
            holds=account.holds(now, pace.window), part=pace.part,
            share=pace.guests.share)
