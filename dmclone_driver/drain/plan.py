# SPDX-License-Identifier: Apache-2.0
"""What a drain does with each volume, and which volumes stay, and why."""

import collections
import collections.abc
import dataclasses
import enum

from dmclone_driver.drain.facts import Picture
from dmclone_driver.drain.facts import Snapshot
from dmclone_driver.drain.facts import Volume
from dmclone_driver.drain import obstacles
from dmclone_driver.drain.obstacles import Obstacle
from dmclone_driver.drain.room import NoRoom
from dmclone_driver.drain.room import Room
from dmclone_driver.i18n import _


class Kind(enum.StrEnum):
    """What happens to volumes."""

    #: This command moves a volume that is not attached.
    MOVE = 'move'
    #: Nova live-migrates the instance that has the volumes.
    MIGRATE = 'live-migrate'
    #: It is under way: another request has begun it.
    MOVING = 'moving'
    MIGRATING = 'live-migrating'
    #: This command has a snapshot copied to the node of its volume.
    FOLLOW = 'follow'
    #: Nothing: see the obstacle.
    STAY = 'stay'


#: The kinds that are work for this command; it also waits for those that
#: others have begun.
WORK = (Kind.MOVE, Kind.MIGRATE, Kind.MOVING, Kind.MIGRATING, Kind.FOLLOW)


@dataclasses.dataclass(frozen=True)
class Item:
    """What happens to one volume, the volumes of an instance, or a snapshot.

    A snapshot has an item of its own if its volume is on another node.
    """

    kind: Kind
    volumes: tuple[Volume, ...]
    #: Id of the instance.
    server: str | None = None
    #: Where they go; None if Nova chooses that.
    node: str | None = None
    #: Why they stay.
    obstacle: Obstacle | None = None
    snapshot: Snapshot | None = None

    @property
    def key(self) -> str:
        """What is handled: the id of the instance, volume or snapshot."""
        return self.server or (self.snapshot or self.volumes[0]).id

    @property
    def snapshots(self) -> set[str]:
        """The ids of the snapshots that leave the node."""
        return ({self.snapshot.id} if self.snapshot else
                {each.id for volume in self.volumes
                 for each in volume.snapshots})


def make(picture: Picture, room: Room) -> list[Item]:
    """Return what a drain does, in the order in which it does it.

    Volumes that are not attached are first, since their moves take seconds,
    and the largest of them is the first of all, as it has the least choice.
    Snapshots whose volumes are on other nodes already are last.

    :param room: of this plan alone: the space of all moves is reserved there
    """
    volumes = sorted(picture.volumes,
                     key=lambda volume: (-volume.needed, volume.id))
    return [
        *(_at_rest(picture, room, volume) for volume in volumes
          if not volume.attachments),
        *_attached(picture, room, [volume for volume in volumes
                                   if volume.attachments]),
        *_following(picture)]


def _following(picture: Picture) -> collections.abc.Iterator[Item]:
    for each in picture.snapshots:
        if picture.with_snapshots and each.home and not (
                each.copied_to or obstacles.of_snapshot(each)):
            yield Item(Kind.FOLLOW, (), node=each.home, snapshot=each)


def staying(picture: Picture, items: collections.abc.Iterable[Item]
            ) -> collections.abc.Iterator[tuple[Snapshot, Obstacle]]:
    """Yield the snapshots that stay on the node, and why.

    :param items: which are done with the volumes
    """
    leave = set().union(*(item.snapshots for item in items
                          if item.kind in WORK))
    for each in picture.snapshots:
        if each.copied_to or each.id in leave:
            continue
        if picture.with_snapshots:
            yield each, obstacles.of_snapshot(each) or Obstacle(
                _('its volume stays'))
        else:
            yield each, Obstacle(
                _('snapshots stay on their node'),
                _('have it follow its volume (--with-snapshots), or delete '
                  'it'))


def _at_rest(picture: Picture, room: Room, volume: Volume) -> Item:
    if volume.moves_to:
        return Item(Kind.MOVING, (volume,), node=volume.moves_to)
    obstacle = obstacles.of_volume_at_rest(volume)
    if obstacle is None:
        try:
            return Item(Kind.MOVE, (volume,),
                        node=room.reserve([volume]).node)
        except NoRoom as error:
            obstacle = no_room([volume], error)
    return Item(Kind.STAY, (volume,), obstacle=obstacle)


def _attached(picture: Picture, room: Room, volumes: list[Volume]
              ) -> collections.abc.Iterator[Item]:
    """Yield what happens to each instance, and to what else is attached."""
    by_server: dict[str, list[Volume]] = collections.defaultdict(list)
    for volume in volumes:
        server = obstacles.only_server(volume)
        if server is None:
            yield Item(Kind.STAY, (volume,),
                       obstacle=obstacles.of_users(volume))
        else:
            by_server[server].append(volume)
    for server, mine in by_server.items():
        yield _of_server(picture, room, server, tuple(mine))


def _of_server(picture: Picture, room: Room, server_id: str,
               volumes: tuple[Volume, ...]) -> Item:
    server = picture.servers.get(server_id)
    if server is not None and server.task == 'migrating':
        return Item(Kind.MIGRATING, volumes, server_id)
    obstacle = obstacles.of_server(picture, server_id, volumes)
    if obstacle is None:
        try:
            reservation = room.reserve(volumes, anywhere=True)
        except NoRoom as error:
            obstacle = no_room(volumes, error)
        else:
            if reservation.node is None:
                # It would take the space of all nodes.
                room.end(reservation, moved=False)
            return Item(Kind.MIGRATE, volumes, server_id, reservation.node)
    return Item(Kind.STAY, volumes, server_id, obstacle=obstacle)


def no_room(volumes: collections.abc.Sequence[Volume],
            error: NoRoom) -> Obstacle:
    """Return the obstacle that no node can take volumes."""
    return Obstacle(
        _('no node can take its %(size)d GiB: %(reason)s') % {
            'size': sum(volume.needed for volume in volumes),
            'reason': error},
        _('make room there, or name another node with --to'))
