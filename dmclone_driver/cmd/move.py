# SPDX-License-Identifier: Apache-2.0
"""dmclone-move: move a volume that is not attached to another node."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import sys
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from oslo_config import cfg

from dmclone_driver.cmd import program
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import rpcapi
from dmclone_driver.move import snapshot_rows

CONF = cfg.CONF

OPTIONS = [
    cfg.StrOpt('volume', positional=True, required=True,
               help='Id of the volume. It may have snapshots, which stay '
                    'where they are, unless --with-snapshots is given.'),
    cfg.StrOpt('node', positional=True, required=True,
               help='Name of the node to move it to: the part before the @ in '
                    '"openstack volume service list".'),
    cfg.BoolOpt('with-snapshots', default=False,
                help='Have the snapshots of the volume follow it, or follow '
                     'to the node that it is on already. Each becomes a copy '
                     'of the whole volume. If they do not fit there, nothing '
                     'is done.'),
    cfg.BoolOpt('plan', default=False,
                help='Only print what would be done, and the space that '
                     'snapshots need. Nothing is changed.'),
    cfg.BoolOpt('do-it', default=False,
                help='Has no effect: the command acts unless --plan is '
                     'given.'),
]


def _move(context: cinder_context.RequestContext) -> int:
    volume = lookups.get(context, CONF.volume)
    if volume is None or not volume.host:
        raise plan.Refused(_('There is no volume %s on any node.')
                           % CONF.volume)
    home = lookups.backend_of(volume)
    there = '%s@%s' % (CONF.node, peers.backend_name(home))
    if CONF.with_snapshots:
        return program.tell(_with_snapshots(context, volume, there),
                            not CONF.plan)
    if CONF.plan:
        return program.tell([] if home == there else
                            [_to_move(volume, there)], False)
    answer = _ask_to_move(context, volume)
    print(_('volume %(volume)s is on %(host)s now, and hydrates there') % {
        'volume': volume.id, 'host': answer['host']})
    for line in answer['left_behind']:
        print(_('left behind on %(host)s: %(line)s') % {'host': home,
                                                        'line': line})
    return 0


def _ask_to_move(context: cinder_context.RequestContext,
                 volume: objects.Volume) -> dict[str, Any]:
    """Have a volume's home move it; return its answer."""
    try:
        return rpcapi.PeerClient().move(context, lookups.backend_of(volume),
                                        volume.id, CONF.node)
    except exception.PeerUnreachable as error:
        raise plan.Refused(_(
            '%s. If the service runs, the move may still succeed: see the '
            'host in "openstack volume show".') % error.msg)


def _to_move(volume: objects.Volume, there: str) -> plan.Action:
    return plan.Action(_('volume %s') % volume.id,
                       _('move it to %s') % there)


def _with_snapshots(context: cinder_context.RequestContext,
                    volume: objects.Volume, there: str
                    ) -> collections.abc.Iterator[plan.Action]:
    """Move a volume, and have its snapshots follow, as far as not done.

    :param there: the backend where they go, ``node@backend``
    :raises: PeerError, also for the volume: its snapshots stay, too;
        Refused
    """
    client = rpcapi.PeerClient()
    following = {each.snapshot_id for each in lookups.all_placeholders(context)
                 if (each.state, each.backend) == (State.FOLLOWING, there)}
    snapshots = [each for each in snapshot_rows.of_volume(context, volume.id)
                 if snapshot_rows.backend_of(each) != there]
    wanted = [each for each in snapshots if each.id not in following]
    for each in snapshots:
        if each.id in following:
            print(_('snapshot %(snapshot)s is being copied to %(host)s') % {
                'snapshot': each.id, 'host': there})
    moves = lookups.backend_of(volume) != there
    if wanted:
        _look_for_room(client.describe(context, there)['free_gb'], there,
                       sum(each.volume_size for each in wanted),
                       volume.size if moves else 0)
    if moves:
        if not CONF.plan:
            _ask_to_move(context, volume)
        yield _to_move(volume, there)
    for each in wanted:
        yield _follow(context, client, each, there)


def _look_for_room(free: float, there: str, snapshots: int,
                   volume: int) -> None:
    """Print how much space snapshots need; refuse to move what does not fit.

    :param snapshots: the GiB that they need
    :param volume: the GiB that their volume needs, 0 if it is there
    :raises: Refused
    """
    values = {'size': snapshots, 'volume': volume, 'host': there,
              'free': free}
    print(_('the snapshots need %(size)d GiB on %(host)s, which has '
            '%(free).2f GiB left') % values)
    # A backend itself refuses each snapshot for which it has no room.
    if volume and free < snapshots + volume and not CONF.plan:
        raise plan.Refused(_(
            'Nothing is done: %(host)s has %(free).2f GiB left, and the '
            'snapshots need %(size)d GiB, the volume %(volume)d GiB. Delete '
            'snapshots, choose another node, or move the volume without '
            'them.') % values)


def _follow(context: cinder_context.RequestContext,
            client: rpcapi.PeerClient, snapshot: objects.Snapshot,
            there: str) -> plan.Action:
    """Have a snapshot follow its volume, unless only a plan is wanted."""
    obstacle = None
    if not CONF.plan:
        try:
            client.take_along(context, there, snapshot.id)
        except exception.PeerError as error:
            obstacle = error.msg
    return plan.Action(
        _('snapshot %s') % snapshot.id,
        _('begin to copy it from %(here)s to %(there)s, where it takes '
          '%(size)d GiB; it is deleted on %(here)s when it is complete') % {
              'here': snapshot_rows.backend_of(snapshot), 'there': there,
              'size': snapshot.volume_size}, obstacle)


def main(arguments: list[str] | None = None) -> int | str:
    """Print where the volume is, and what has stayed or follows."""
    return program.run_without_backend(OPTIONS, _move, arguments)


if __name__ == '__main__':
    sys.exit(main())
