# SPDX-License-Identifier: Apache-2.0
"""The pace of a node's copies: its limits as values, and whose turn it is.

There is no side effect here: what is known of all copies of a node goes in,
and who may copy comes out. See :mod:`pacer` for the rest.
"""

import collections.abc
import dataclasses
import enum
import math
import re
from typing import Any

from oslo_utils import strutils
from oslo_utils import units

from dmclone_driver.i18n import _
from dmclone_driver.node.names import Names

# Seconds after which a copy that waits is next, whatever the order says.
PATIENCE = 3600

_SHARE = re.compile(r'(\d{1,3}) ?%')
_NONE = 'none'
# Those in which an amount is printed: the first that it is a multiple of.
_UNITS = (('GB', 10 ** 9), ('GiB', units.Gi), ('MB', 10 ** 6),
          ('MiB', units.Mi), ('kB', 1000), ('KiB', units.Ki), ('B', 1))


class Order(enum.StrEnum):
    """Which of the copies that wait is next, if nothing else decides."""

    #: The one with the fewest bytes left.
    NEARLY_COMPLETE = 'nearly-complete'
    #: The one that has waited for the longest time.
    LONGEST_WAIT = 'longest-wait'


@dataclasses.dataclass(frozen=True)
class Bandwidth:
    """What all copies in one direction may use together.

    :ivar percent: of the link; None if the rest decides
    :ivar rate: bytes per second; None for no limit
    """

    percent: int | None = None
    rate: int | None = None

    @classmethod
    def parse(cls, text: str) -> 'Bandwidth':
        """Return the value of a text: ``90%``, ``200MB``, ``1Gbit``, ``none``.

        :raises: ValueError
        """
        share = _SHARE.fullmatch(text)
        if text == _NONE:
            return cls()
        if share and 1 <= int(share[1]) <= 100:
            return cls(percent=int(share[1]))
        try:
            rate = strutils.string_to_bytes(text, 'mixed', return_int=True)
        except ValueError:
            rate = 0
        if share or rate < 1:
            raise ValueError(_(
                '%r is no bandwidth: give a share of the link, such as 50%%, '
                'or an amount per second, such as 200MB or 1Gbit, or "none"')
                % text)
        return cls(rate=rate)

    def __str__(self) -> str:
        if self.percent is not None:
            return '%d%%' % self.percent
        if self.rate is None:
            return _NONE
        return next('%d%s' % (self.rate // size, unit)
                    for unit, size in _UNITS if not self.rate % size)

    def of(self, link: float | None) -> float | None:
        """Return the bytes per second, None for no limit.

        :param link: its speed in bytes per second; None if that is unknown
        """
        if self.percent is None:
            return self.rate
        return None if link is None else link * self.percent / 100


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one node.

    :ivar copies: how many run at a time, in each direction; 0 stops all
    :ivar bandwidth_in: of the copies that arrive from other nodes
    :ivar bandwidth_out: of the copies that other nodes make from here
    :ivar min_rate: MiB per second that a copy beside a busy guest gets at
        least, see ``dmclone_hydration_min_rate``
    """

    copies: int
    bandwidth_in: Bandwidth
    bandwidth_out: Bandwidth
    min_rate: int
    order: Order = Order.NEARLY_COMPLETE

    @classmethod
    def parse(cls, plain: collections.abc.Mapping[str, Any]) -> 'Limits':
        """Return the limits of what :meth:`as_dict` has returned.

        :raises: ValueError
        """
        copies, min_rate = plain['copies'], plain['min_rate']
        if not _is_number(copies):
            raise ValueError(_('%r is no number of copies') % copies)
        if not _is_number(min_rate):
            raise ValueError(_('%r is no number of MiB per second') % min_rate)
        return cls(copies, Bandwidth.parse(plain['bandwidth_in']),
                   Bandwidth.parse(plain['bandwidth_out']), min_rate,
                   Order(plain['order']))

    def as_dict(self) -> dict[str, Any]:
        """Return them as plain values, for a message or a document."""
        return {'copies': self.copies, 'bandwidth_in': str(self.bandwidth_in),
                'bandwidth_out': str(self.bandwidth_out),
                'min_rate': self.min_rate, 'order': str(self.order)}


def _is_number(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool) and
            value >= 0)


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy to this node that runs, or that could run at once.

    :ivar left: bytes
    :ivar running: whether its hydration is on
    :ivar idle: whether it has had its turn for some time, and has copied next
        to nothing: its guest is busy, or its source gives nothing, or it
        cannot begin. It needs no turn.
    :ivar waited: seconds for which it has waited for its turn
    :ivar first: its place among those that an operator wants first
    :ivar read: whether another copy reads through it
    :ivar draining: whether the node of its source is being emptied
    :ivar vain: whether that was so when it last had its turn
    :ivar local: whether its source is on this node
    :ivar granted: bytes per second that the node of its source allows; 0 for
        nothing yet, infinity for no limit
    :ivar size: bytes of the volume
    :ivar region: bytes of one of its regions
    :ivar room: bytes per second that the thin pool of the volume has room for;
        0 for nothing, infinity for no limit
    """

    names: Names
    left: int
    running: bool = False
    idle: bool = False
    waited: float = 0
    first: int | None = None
    read: bool = False
    draining: bool = False
    vain: bool = False
    local: bool = False
    granted: float = math.inf
    size: float = math.inf
    region: int = 0
    room: float = math.inf

    @property
    def most(self) -> float:
        """Bytes per second that both ends allow."""
        return min(self.granted, self.room)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Who may copy.

    :ivar rates: {who may copy: bytes per second, None for no limit}
    :ivar turns: those of them that count against the number of copies
    :ivar queue: who waits, the next one first
    """

    rates: dict[Names, float | None] = dataclasses.field(default_factory=dict)
    turns: frozenset[Names] = frozenset()
    queue: tuple[Names, ...] = ()


def plan(copies: collections.abc.Iterable[Copy], limits: Limits,
         bandwidth: float | None) -> Plan:
    """Decide who may copy, and how fast.

    A copy that runs keeps its turn, unless one that is more urgent waits, or
    the limits have become smaller. Then it waits, and has lost nothing.

    :param bandwidth: bytes per second that arrive, None for no limit
    """
    turns: list[Copy] = []
    idle: list[Copy] = []
    queue: list[Copy] = []
    for each in sorted(copies, key=lambda copy: _rank(copy, limits.order)):
        if not (limits.copies and each.most):
            queue.append(each)
        elif each.idle:
            idle.append(each)
        elif len(turns) < limits.copies:
            turns.append(each)
        else:
            queue.append(each)
    rates = _rates(turns, bandwidth)
    # They take nothing from the copies that have a turn.
    rates.update(shares(idle, bandwidth, len(turns) + 1))
    return Plan(rates, frozenset(each.names for each in turns),
                tuple(each.names for each in queue))


def _rank(copy: Copy, order: Order) -> tuple[Any, ...]:
    """Return a key by which the most urgent copy is the first."""
    by_order = (copy.left if order == Order.NEARLY_COMPLETE else
                -copy.waited)
    impatient = copy.waited >= PATIENCE
    return (math.inf if copy.first is None else copy.first,
            copy.vain and not impatient, not copy.read, not copy.draining,
            not copy.running, not impatient, by_order, copy.names.name_id)


def _rates(copies: collections.abc.Sequence[Copy], bandwidth: float | None
           ) -> dict[Names, float | None]:
    """Divide a bandwidth equally; what one may not use, others get."""
    caps = {copy.names: copy.most for copy in copies}
    left = math.inf if bandwidth is None else bandwidth
    remote = sorted((copy for copy in copies if not copy.local),
                    key=lambda copy: copy.most)
    for number, copy in enumerate(remote):
        share = min(copy.most, left / (len(remote) - number))
        caps[copy.names] = share
        left -= share if share < math.inf else 0
    return _limits_of(caps)


def shares(copies: collections.abc.Iterable[Copy], bandwidth: float | None,
           parts: int) -> dict[Names, float | None]:
    """Return rates of which each is one of the parts of a bandwidth.

    :returns: {copy: bytes per second, None for no limit}
    """
    share = math.inf if bandwidth is None else bandwidth / parts
    return _limits_of({copy.names: copy.most if copy.local else
                       min(copy.most, share) for copy in copies})


def _limits_of(caps: collections.abc.Mapping[Names, float]
               ) -> dict[Names, float | None]:
    """Return rates with None instead of infinity."""
    return {names: None if cap == math.inf else cap
            for names, cap in caps.items()}
