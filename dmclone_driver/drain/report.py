# SPDX-License-Identifier: Apache-2.0
"""The lines, the JSON and the exit code of a drain."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any
from typing import TYPE_CHECKING

from oslo_utils import units

from dmclone_driver.drain.facts import Copy
from dmclone_driver.drain.facts import Snapshot
from dmclone_driver.drain.obstacles import Obstacle
from dmclone_driver.drain import plan
from dmclone_driver.drain.plan import Item
from dmclone_driver.drain.plan import Kind
from dmclone_driver.i18n import _

if TYPE_CHECKING:
    from dmclone_driver.drain.guard import Ready
    from dmclone_driver.drain.mover import Outcome
    from dmclone_driver.drain.runner import Result

#: The exit codes; 128 and the number of a signal if that has ended it.
EMPTY, LEFT, SNAPSHOTS_LEFT = 0, 1, 3
_ARRIVES = Obstacle(_('it is being moved here'),
                    _('run this command again when that has ended'))
_FOLLOWS = Obstacle(_('it is being copied here'),
                    _('run this command again when that has ended'))


def _of_item(item: Item) -> str:
    """Return what an item is about: its volumes, and their instance."""
    if item.snapshot:
        return _('snapshot %(id)s of volume %(volume)s (%(size)d GiB)') % {
            'id': item.snapshot.id, 'volume': item.snapshot.volume,
            'size': item.snapshot.size}
    text = ', '.join(_('%(id)s (%(size)d GiB)') % {
        'id': volume.id, 'size': volume.size} for volume in item.volumes)
    if item.server:
        return _('instance %(server)s with volume %(volumes)s') % {
            'server': item.server, 'volumes': text}
    return _('volume %s') % text


def _to_do(item: Item) -> str:
    """Return the line of the plan about an item."""
    subject = _of_item(item)
    if item.obstacle is not None:
        return _('stays: %(subject)s: %(obstacle)s') % {
            'subject': subject, 'obstacle': item.obstacle.text()}
    values = {'subject': subject, 'along': _along(item), 'node': item.node or
              _('a node that Nova chooses')}
    if item.kind is Kind.MOVE:
        return _('to do: %(subject)s: move it to %(node)s%(along)s') % values
    if item.kind is Kind.MIGRATE:
        return _('to do: %(subject)s: live-migrate it to %(node)s%(along)s'
                 ) % values
    if item.kind is Kind.FOLLOW:
        return _('to do: %(subject)s: copy it to %(node)s') % values
    return under_way(item)


def _along(item: Item) -> str:
    """Return what follows the volumes of an item, and its space."""
    sizes = [each.size for volume in item.volumes
             for each in volume.snapshots]
    return _(', and copy %(number)d snapshots, which take %(size)d GiB '
             'there') % {'number': len(sizes), 'size': sum(sizes)
                         } if sizes else ''


def under_way(item: Item) -> str:
    """Return the line about an item that goes on by itself."""
    if item.snapshot:
        return _being_copied(item.snapshot, item.node)
    if item.server:
        return _('under way: %s: Nova live-migrates it') % _of_item(item)
    return _('under way: %s: it is being moved') % _of_item(item)


def of_outcome(outcome: Outcome) -> collections.abc.Iterator[str]:
    """Yield the lines about an item that was handled."""
    subject = _of_item(outcome.item)
    if outcome.obstacle is not None:
        yield _('not done: %(subject)s: %(obstacle)s') % {
            'subject': subject, 'obstacle': outcome.obstacle.text()}
    elif outcome.node is None:
        yield _('done: %s: it was deleted') % subject
    elif outcome.item.snapshot:
        yield _('done: %(subject)s: it is being copied to %(node)s') % {
            'subject': subject, 'node': outcome.node}
    else:
        yield _('done: %(subject)s: on %(node)s now, and hydrates there') % {
            'subject': subject, 'node': outcome.node}
    for line in outcome.left_behind:
        yield _('left behind: %s') % line


def of_copy(copy: Copy, progress: str = '') -> str:
    """Return the line about a copy that is not yet deleted.

    :param progress: see :func:`percentage`
    """
    if copy.reader is None:
        return _('to delete: copy %(id)s of volume %(volume)s, which nothing '
                 'needs; the node does that') % {
                     'id': copy.id, 'volume': copy.volume}
    if copy.snapshot is not None:
        return _('needed: snapshot %(snapshot)s, by its copy on %(reader)s'
                 '%(more)s') % {
                     'snapshot': copy.snapshot, 'reader': copy.reader,
                     'more': progress and ', ' + progress}
    return _('needed: copy %(id)s, by volume %(volume)s on %(reader)s%(more)s'
             ) % {'id': copy.id, 'volume': copy.volume,
                  'reader': copy.reader,
                  'more': progress and ', ' + progress}


def percentage(answer: dict[str, Any] | None) -> str:
    """Return the progress that the home of a volume has told."""
    if answer is None:
        return _('which does not have it')
    if answer['complete'] or answer['completing']:
        return _('which is completing it')
    if not answer['total']:
        return _('which has not begun')
    return _('which has %d %% of it') % (
        100 * answer['hydrated'] // answer['total'])


def of_snapshot(snapshot: Snapshot, obstacle: Obstacle) -> str:
    """Return the line about a snapshot that stays."""
    return _('stays: snapshot %(id)s of volume %(volume)s (%(size)d GiB): '
             '%(obstacle)s') % {
                 'id': snapshot.id, 'volume': snapshot.volume,
                 'size': snapshot.size, 'obstacle': obstacle.text()}


def _being_copied(snapshot: Snapshot, node: str | None) -> str:
    return _('under way: snapshot %(id)s of volume %(volume)s (%(size)d GiB): '
             'it is being copied to %(node)s') % {
                 'id': snapshot.id, 'volume': snapshot.volume,
                 'size': snapshot.size, 'node': node}


def of_guard(ready: Ready) -> collections.abc.Iterator[str]:
    """Yield the lines about what prevents a drain."""
    for obstacle in ready.obstacles:
        yield _('first: %s') % obstacle.text()
    for obstacle in ready.unknown:
        yield _('unknown: %s') % obstacle.text()


def of_plan(result: Result) -> collections.abc.Iterator[str]:
    """Yield the lines of a plan."""
    for item in result.items:
        yield _to_do(item)
    yield from _of_rest(result)


def of_end(result: Result) -> collections.abc.Iterator[str]:
    """Yield the lines about what is left after a run."""
    tried = {outcome.item.key for outcome in result.outcomes}
    begun = {item.key for item in result.under_way}
    for item in result.under_way:
        yield under_way(item)
    for item in result.items:
        # The others have had their lines.
        if item.key not in tried | begun:
            yield _to_do(item)
    yield from _of_rest(result)


def _of_rest(result: Result) -> collections.abc.Iterator[str]:
    for volume in result.picture.arriving:
        yield _('stays: volume %(id)s: %(obstacle)s') % {
            'id': volume, 'obstacle': _ARRIVES.text()}
    for follower in result.picture.following:
        yield _('stays: snapshot %(id)s: %(obstacle)s') % {
            'id': follower, 'obstacle': _FOLLOWS.text()}
    for snapshot in result.picture.snapshots:
        if snapshot.copied_to:
            yield _being_copied(snapshot, snapshot.copied_to)
    for snapshot, obstacle in plan.staying(result.picture, result.items):
        yield of_snapshot(snapshot, obstacle)
    for copy in result.picture.copies:
        yield of_copy(copy)


def _arrives(result: Result) -> bool:
    """Whether the node will have a volume or snapshot that it has not yet."""
    return bool(result.picture.arriving or result.picture.following)


def code_of_plan(result: Result, ready: Ready) -> int:
    """Return the exit code: whether a drain would empty the node."""
    if ready.obstacles or _arrives(result) or any(
            item.obstacle for item in result.items):
        return LEFT
    return (SNAPSHOTS_LEFT if any(plan.staying(result.picture, result.items))
            else EMPTY)


def code_of_end(result: Result) -> int:
    """Return the exit code of a run that was not stopped."""
    if _arrives(result) or any(not item.snapshot for item in result.items):
        return LEFT
    # What is being copied is needed only for some time, as by volumes.
    return (SNAPSHOTS_LEFT if any(plan.staying(result.picture, ()))
            else EMPTY)


def document(result: Result, ready: Ready, planned: bool) -> dict[str, Any]:
    """Return all of it for JSON, with sizes in bytes.

    :param planned: whether nothing was to be done
    """
    outcomes = {outcome.item.key: outcome for outcome in result.outcomes}
    begun = {item.key for item in result.under_way}
    items = {item.key: item for item in result.items}
    items.update((key, outcome.item) for key, outcome in outcomes.items())
    picture = result.picture
    stay = {snapshot.id: obstacle for snapshot, obstacle
            in plan.staying(picture, result.items)}
    return {
        'node': picture.node,
        'plan': planned,
        'first': [_obstacle(each) for each in ready.obstacles],
        'unknown': [_obstacle(each) for each in ready.unknown],
        'items': [_json_item(item, outcomes.get(key), key in begun)
                  for key, item in items.items()],
        'arriving': [{'volume': volume, **_obstacle(_ARRIVES)}
                     for volume in picture.arriving],
        'following': [{'snapshot': snapshot, **_obstacle(_FOLLOWS)}
                      for snapshot in picture.following],
        'snapshots': [{'id': each.id, 'volume': each.volume,
                       'size': each.size * units.Gi,
                       'copied_to': each.copied_to,
                       **_obstacle(stay.get(each.id))}
                      for each in picture.snapshots],
        'copies': [{'id': each.id, 'volume': each.volume,
                    'snapshot': each.snapshot, 'needed_by': each.reader}
                   for each in picture.copies]}


def _obstacle(obstacle: Obstacle | None) -> dict[str, str | None]:
    return {'reason': obstacle.reason if obstacle else None,
            'remedy': obstacle.remedy if obstacle else None}


def _json_item(item: Item, outcome: Outcome | None,
               begun: bool) -> dict[str, Any]:
    obstacle = outcome.obstacle if outcome else item.obstacle
    if outcome:
        state = 'done' if outcome.done else 'failed'
    elif begun or item.kind in (Kind.MOVING, Kind.MIGRATING):
        state = 'under way'
    else:
        state = 'stays' if item.obstacle else 'to do'
    return {
        'action': str(item.kind), 'state': state, 'instance': item.server,
        'volumes': [{'id': volume.id, 'size': volume.size * units.Gi}
                    for volume in item.volumes],
        'snapshots': sorted(item.snapshots),
        'node': outcome.node if outcome else item.node,
        'left_behind': list(outcome.left_behind) if outcome else [],
        **_obstacle(obstacle)}
