# SPDX-License-Identifier: Apache-2.0
"""Where there is room for volumes, less what moves under way will take."""

import collections
import collections.abc
import dataclasses
import hashlib
import threading

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
    """

    def __init__(self, to: str | None = None) -> None:
        self.to = to
        self._lock = threading.Lock()
        self._places: list[Place] = []
        #: {node: why it has not told its free space}
        self._silent: dict[str, str] = {}
        self._reserved: list[Reservation] = []
        #: Reservations whose space the next answers of the nodes contain.
        self._used: list[Reservation] = []
        #: {node: why it gets no volumes any longer}
        self._excluded: dict[str, str] = {}

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
            self._used = [each for each in self._used if each not in used]

    def used(self) -> list[Reservation]:
        """Return the reservations of moves that have ended."""
        with self._lock:
            return list(self._used)

    def exclude(self, node: str, reason: str) -> None:
        """Choose a node no longer."""
        with self._lock:
            self._excluded[node] = reason

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
            made = Reservation(None if anywhere and not self.to else node,
                               size)
            self._reserved.append(made)
            return made

    def hold(self, node: str, size: int) -> Reservation:
        """Reserve space on a node that is the only choice.

        That node is asked whether it has as much.

        :param size: in GiB
        """
        with self._lock:
            made = Reservation(node, size)
            self._reserved.append(made)
            return made

    def end(self, reservation: Reservation, moved: bool) -> None:
        """End a reservation.

        :param moved: whether the volumes take the space now
        """
        with self._lock:
            self._reserved.remove(reservation)
            if moved:
                self._used.append(reservation)

    def _choose(self, volumes: collections.abc.Sequence[Volume],
                size: int, anywhere: bool) -> str:
        fits: dict[str, float] = {}
        later = False
        reasons = ['%s: %s' % each for each in self._silent.items()]
        used, reserved = _taken(self._used), _taken(self._reserved)
        for place in self._places:
            reason = self._excluded.get(place.node) or next(filter(
                None, (self._unsuitable(volume, place, anywhere)
                       for volume in volumes)), None)
            if reason is not None:
                reasons.append('%s: %s' % (place.node, reason))
                continue
            free = place.free - used[None] - used[place.node]
            left = free - reserved[None] - reserved[place.node]
            if left < size:
                later |= free >= size
                reasons.append(_('%(node)s: %(left).2f GiB are free') % {
                    'node': place.node, 'left': max(0, left)})
            else:
                fits[place.node] = left
        if not fits:
            raise NoRoom('; '.join(reasons) or _('there is no other node'),
                         later)
        enough = AS_GOOD * max(fits.values())
        return max((node for node, left in fits.items() if left >= enough),
                   key=lambda node: _rank(volumes[0], node))

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


def _taken(reservations: collections.abc.Iterable[Reservation]
           ) -> collections.Counter[str | None]:
    """Return {node: GiB}; that of None is taken on each node."""
    taken: collections.Counter[str | None] = collections.Counter()
    for each in reservations:
        taken[each.node] += each.size
    return taken
