# SPDX-License-Identifier: Apache-2.0
"""What the volumes of an instance need, and whether a node has it."""

import collections
import collections.abc
import dataclasses

from dmclone_driver.scheduler.answers import Place
from dmclone_driver.scheduler.answers import Pool
from dmclone_driver.scheduler.answers import Volume
from dmclone_driver.scheduler.holds import Hold
from dmclone_driver.scheduler.holds import Holds
from dmclone_driver.scheduler.queries import Queries

# Weights from 0 to 1. The steps between them are larger than what free room
# can add, and less than the step to a node that has all volumes.
_FITS = 0.3
_HAS_SOME = 0.6
# Among nodes to which all volumes have to move, the share of free room adds
# this at most: as much as one of Nova's own weighers, with the default
# multiplier.
_ROOM = 0.03


@dataclasses.dataclass(frozen=True)
class New:
    """A volume that Nova will have created for an instance."""

    #: In GiB.
    size: int
    #: By its name or id; None for Cinder's default.
    volume_type: str | None


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether an instance's volumes can go to a node, and how well."""

    #: Why they cannot; empty if they can.
    reason: str = ''
    #: From 0 to 1; of nodes where they can go.
    weight: float = 0
    #: The GiB that they will take there, with the volume's id if it has one.
    takes: tuple[tuple[Place, int, str | None], ...] = ()


@dataclasses.dataclass(frozen=True)
class Homes:
    """Where a volume can be."""

    #: The fitting pools of each node that has the volume's backend, or, for a
    #: new volume, the backends that it could be created on.
    pools: dict[str, list[Pool]]
    #: Whether other nodes can attach the volume.
    remote: bool
    #: Whether nodes of its backend without room can.
    without_room: bool = False

    @classmethod
    def of(cls, pools: collections.abc.Iterable[Pool],
           fits: collections.abc.Callable[[Pool], bool],
           home: Place | None = None) -> 'Homes':
        """Sort pools by their nodes.

        :param home: of a volume that exists: its option decides what happens
            where there is no room
        """
        found: dict[str, list[Pool]] = collections.defaultdict(list)
        remote = without_room = False
        for pool in pools:
            found[pool.place.node] += [pool] if fits(pool) else []
            remote |= pool.remote
            without_room |= pool.remote_without_room and (
                home in (None, pool.place))
        return cls(dict(found), remote, without_room)


class Demand:
    """An instance with volumes of this driver that needs a node."""

    def __init__(self, instance: str, volumes: dict[Volume, Homes],
                 new: list[tuple[New, Homes]],
                 taken: dict[Place, float]) -> None:
        """Keep the facts; none of them changes.

        :param instance: its id
        :param volumes: those of this driver
        :param new: those that will be of this driver
        :param taken: GiB of a pool's free room that other volumes will take
        """
        self.instance = instance
        self.volumes = volumes
        self.new = sorted(new, key=lambda each: each[0].size, reverse=True)
        self._taken = taken

    def __str__(self) -> str:
        return 'instance %s with %s' % (self.instance, ', '.join(
            ['volume %s' % volume.id for volume in self.volumes] +
            ['a new volume of %d GiB' % new.size for new, _ in self.new]))

    def verdict(self, node: str) -> Verdict:
        """Return whether the volumes can go to a node, by Cinder's name."""
        return _Trial(self, node).verdict()

    def taken(self, pool: Pool) -> float:
        """Return the GiB of a pool's room that other volumes will take."""
        return self._taken.get(pool.place, 0)


class _Unfit(Exception):
    """A node cannot take a volume."""


class _Trial:
    """One node's trial, as if the volumes went there one by one."""

    def __init__(self, demand: Demand, node: str) -> None:
        self._demand = demand
        self._node = node
        #: GiB that the volumes need of each pool.
        self._needed: dict[Pool, int] = collections.Counter()
        self._takes: list[tuple[Place, int, str | None]] = []
        self._remote = False

    def verdict(self) -> Verdict:
        try:
            for volume, homes in self._demand.volumes.items():
                if not self._is_here(volume):
                    self._move(volume, homes)
            for new, homes in self._demand.new:
                # Wherever Cinder creates it, it moves to the instance.
                self._take(new.size, homes,
                           'a new volume of %d GiB' % new.size)
            for pool, needed in self._needed.items():
                self._refuse_without_room(pool, needed)
        except _Unfit as unfit:
            return Verdict(reason=str(unfit))
        return Verdict(weight=self._weight(), takes=tuple(self._takes))

    def _is_here(self, volume: Volume) -> bool:
        return volume.place is not None and volume.place.node == self._node

    def _move(self, volume: Volume, homes: Homes) -> None:
        if volume.in_group and volume.place:
            raise _Unfit('volume %s is in a group, whose volumes stay '
                         'together on %s' % (volume.id, volume.place.node))
        self._take(volume.size, homes, 'volume ' + volume.id, volume.id)

    def _take(self, size: int, homes: Homes, what: str,
              volume_id: str | None = None) -> None:
        """Let a volume go to the pool with the most room.

        A node without the backend, or without room, may use it over iSCSI.
        """
        pools = homes.pools.get(self._node)
        if pools:
            pool = max(pools, key=self._left)
            if homes.without_room and self._left(pool) < size:
                self._remote = True
                return
            self._needed[pool] += size
            self._takes.append((pool.place, size, volume_id))
        elif pools is None and homes.remote:
            self._remote = True
        else:
            raise _Unfit('no backend for %s is up there and fits its type'
                         % what)

    def _left(self, pool: Pool) -> float:
        return (pool.free - self._demand.taken(pool) -
                self._needed.get(pool, 0))

    def _refuse_without_room(self, pool: Pool, needed: int) -> None:
        if self._left(pool) < 0:
            raise _Unfit(
                'backend %s there has %.2f GiB free, of which %.2f GiB are '
                'for volumes on their way, and %d GiB are needed' % (
                    pool.place.backend, pool.free,
                    self._demand.taken(pool), needed))

    def _weight(self) -> float:
        if self._remote:
            return 0
        volumes = self._demand.volumes
        here = sum(each.size for each in volumes if self._is_here(each))
        if here:
            total = sum(each.size for each in volumes) + sum(
                new.size for new, _ in self._demand.new)
            return _HAS_SOME + (1 - _HAS_SOME) * here / total
        return _FITS + _ROOM * min((
            self._left(pool) / pool.total for pool in self._needed),
            default=0)


def assemble(instance: str, ids: list[str], new: list[New],
             queries: Queries, holds: Holds) -> Demand | None:
    """Ask Cinder what an instance needs.

    :param ids: of its volumes, of any driver
    :param new: volumes that Nova will have created for it
    :returns: None if none of its volumes are of this driver
    :raises: NoAnswer
    """
    rows, pools = queries.volumes(ids), queries.pools()
    ours: dict[str, list[Pool]] = collections.defaultdict(list)
    for pool in pools:
        if pool.ours:
            ours[pool.place.backend].append(pool)
    volumes = [row for row in rows if row.place and row.place.backend in ours]
    if not ours or not (volumes or new):
        return None
    specs = queries.extra_specs()
    homes = {row: _homes(row, specs, ours[row.place.backend])
             for row in volumes if row.place}
    new_homes = [(each, found) for each, found in (
        (each, _homes_of_new(each, specs, pools)) for each in new) if found]
    if not homes and not new_homes:
        return None
    return Demand(instance, homes, new_homes, _taken(
        instance, {row.id for row in homes},
        {pool.place: pool for some in ours.values() for pool in some},
        queries, holds))


def _homes(volume: Volume, specs: dict[str | None, dict[str, str]],
           pools: list[Pool]) -> Homes:
    """Return where a volume can move, of the pools of its backend."""
    wanted = specs.get(volume.volume_type, {})
    return Homes.of(pools, lambda pool: pool.fits(wanted, new=False),
                    volume.place)


def _homes_of_new(new: New, specs: dict[str | None, dict[str, str]],
                  pools: list[Pool]) -> Homes | None:
    """Return where a volume could be created.

    :returns: None if that could be a pool of another driver, too
    """
    fit = [pool for pool in pools
           if pool.fits(specs.get(new.volume_type, {}), new=True)]
    if not fit or not all(pool.ours for pool in fit):
        return None
    backends = {pool.place.backend for pool in fit}
    return Homes.of((pool for pool in pools if pool.ours and
                     pool.place.backend in backends), set(fit).__contains__)


def _taken(instance: str, mine: set[str], pools: dict[Place, Pool],
           queries: Queries, holds: Holds) -> dict[Place, float]:
    """Return the GiB of pools that other volumes will take."""
    lately = queries.lately()
    taken: dict[Place, float] = collections.defaultdict(
        float, holds.of_others(instance, lately))
    for row in lately:
        pool = pools.get(row.place) if row.place else None
        if pool and not pool.knows(row) and not {row.id, row.moves} & mine:
            taken[pool.place] += row.size
    return taken


def hold(demand: Demand, node: str, holds: Holds) -> None:
    """Hold the room that an instance's volumes will take on its node."""
    holds.place(demand.instance, [
        Hold(demand.instance, place, size, volume_id)
        for place, size, volume_id in demand.verdict(node).takes])
