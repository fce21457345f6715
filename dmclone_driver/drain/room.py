# SPDX-License-Identifier: Apache-2.0
"""Where there is room for volumes, less what moves under way will take."""

import collections
import collections.abc
import dataclasses
import hashlib
import threading
from typing import Any

from dmclone_driver.drain.facts import Place
from dmclone_driver.drain.facts import Volume
from dmclone_driver.i18n import _
from dmclone_driver.move import preflight


#: A node with this share of the most room is as good as the one that has it.
AS_GOOD = 0.9


class NoRoom(Exception):
    """No node can take the volumes; the message says why, node by node.

    :ivar later: whether one can if the moves under way end otherwise
    """

    def __init__(self, reason: str, later: bool = False) -> None:
        super().__init__(reason)
        self.later = later


@dataclasses.dataclass(eq=False)
class Reservation:
    """Space that a move will take.

    :ivar node: where; None while that is Nova's choice, and any node's
    :ivar size: in GiB
    """

    node: str | None
    size: int


class Room:
    """The nodes that can take volumes; threads may share it.

    :ivar to: the only node that the operator wants, or None
    :ivar lacking: whether volumes have found no room
    """

    def __init__(self, to: str | None = None) -> None:
        self.to = to
        self.lacking = False
        self._lock = threading.Lock()
        self._places: list[Place] = []
        #: {node: why it has not told its free space}
        self._silent: dict[str, str] = {}
        #: Reservations whose space the next answers of the nodes contain.
        self._used: list[Reservation] = []
        #: Their sizes, {node: GiB}; those of None are taken on each node.
        self._taken_later: collections.Counter[str | None] = (
            collections.Counter())
        self._taken_now: collections.Counter[str | None] = (
            collections.Counter())
        #: {node: why it gets no volumes any longer}
        self._excluded: dict[str, str] = {}
        #: {what volumes want: the nodes, and why one does not suit}
        self._suiting: dict[Any, list[tuple[Place, str | None]]] = {}

    def update(self, places: collections.abc.Iterable[Place],
               silent: collections.abc.Mapping[str, str],
               used: collections.abc.Container[Reservation] = ()) -> None:
        """Set the free space that the nodes have told.

        :param silent: {node: why it has not}
        :param used: what :meth:`used` returned before the nodes were asked
        """
        with self._lock:
            self._places = list(places)
            self._silent = dict(silent)
            self._suiting.clear()
            self._used = [each for each in self._used if each not in used]
            self._taken_now.clear()
            for each in self._used:
                self._taken_now[each.node] += each.size

    def used(self) -> list[Reservation]:
        """Return the reservations of moves that have ended."""
        with self._lock:
            return list(self._used)

    def exclude(self, node: str, reason: str) -> None:
        """Choose a node no longer."""
        with self._lock:
            self._excluded[node] = reason
            self._suiting.clear()

    def reserve(self, volumes: collections.abc.Sequence[Volume],
                anywhere: bool = False) -> Reservation:
        """Choose one of the nodes with the most room, and reserve it there.

        The choice among nodes that are equally good depends on the volume:
        drains that run at once have the same answers of the nodes, and do not
        know each other's reservations.

        :param volumes: that go to one node
        :param anywhere: whether Nova chooses the node; then the space is
            reserved on all
        :raises: NoRoom
        """
        size = sum(volume.needed for volume in volumes)
        with self._lock:
            node = self._choose(volumes, size, anywhere)
            return self._add(None if anywhere and not self.to else node, size)

    def hold(self, node: str, size: int) -> Reservation:
        """Reserve space on a node that is the only choice.

        That node is asked whether it has as much.

        :param size: in GiB
        """
        with self._lock:
            return self._add(node, size)

    def _add(self, node: str | None, size: int) -> Reservation:
        made = Reservation(node, size)
        self._taken_later[node] += size
        return made

    def end(self, reservation: Reservation, moved: bool) -> None:
        """End a reservation.

        :param moved: whether the volumes take the space now
        """
        with self._lock:
            self._taken_later[reservation.node] -= reservation.size
            if moved:
                self._used.append(reservation)
                self._taken_now[reservation.node] += reservation.size

    def _choose(self, volumes: collections.abc.Sequence[Volume],
                size: int, anywhere: bool) -> str:
        fits: dict[str, float] = {}
        later = False
        places = self._suit(volumes, anywhere)
        for place, reason in places:
            if reason is None:
                left = self._left(place)
                if left >= size:
                    fits[place.node] = left
                else:
                    later |= self._free(place) >= size
        if not fits:
            self.lacking = True
            raise NoRoom('; '.join(self._reasons(places)) or
                         _('there is no other node'), later)
        enough = AS_GOOD * max(fits.values())
        return max((node for node, left in fits.items() if left >= enough),
                   key=lambda node: _rank(volumes[0], node))

    def _free(self, place: Place) -> float:
        """Return the free space of a node, in GiB."""
        return (place.free - self._taken_now[None] -
                self._taken_now[place.node])

    def _left(self, place: Place) -> float:
        """Return what is not reserved of it, in GiB."""
        return (self._free(place) - self._taken_later[None] -
                self._taken_later[place.node])

    def _reasons(self, places: list[tuple[Place, str | None]]
                 ) -> collections.abc.Iterator[str]:
        """Yield why no node can take volumes."""
        for each in self._silent.items():
            yield '%s: %s' % each
        for place, reason in places:
            yield (_('%(node)s: %(left).2f GiB are free') % {
                'node': place.node, 'left': max(0, self._left(place))}
                if reason is None else '%s: %s' % (place.node, reason))

    def _suit(self, volumes: collections.abc.Sequence[Volume],
              anywhere: bool) -> list[tuple[Place, str | None]]:
        """Return the nodes, and why one does not suit volumes, or None.

        Once for all volumes that want the same.
        """
        key = (anywhere, *((volume.zone, *sorted(volume.extra_specs.items()))
                           for volume in volumes))
        if key not in self._suiting:
            self._suiting[key] = [
                (place, self._excluded.get(place.node) or next(filter(
                    None, (self._unsuitable(volume, place, anywhere)
                           for volume in volumes)), None))
                for place in self._places]
        return self._suiting[key]

    def _unsuitable(self, volume: Volume, place: Place,
                    anywhere: bool) -> str | None:
        """Return why a volume may not go to a node, or None.

        Without the operator's word a volume that is not attached stays in its
        availability zone: Nova may refuse to attach it in another one
        (cross_az_attach of Nova's [cinder]).
        """
        if not anywhere and self.to is None and place.zone != volume.zone:
            return _('it is in another availability zone (%s)') % place.zone
        return preflight.unwanted(dict(volume.extra_specs), place.zone,
                                  dict(place.capabilities))


def _rank(volume: Volume, node: str) -> bytes:
    """Return a rank that is the same in each process, unlike hash().

    Each volume ranks the nodes in another order, and another node that comes
    or goes changes nothing in it.
    """
    return hashlib.sha256(('%s %s' % (volume.id, node)).encode()).digest()
