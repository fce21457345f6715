# SPDX-License-Identifier: Apache-2.0
"""Lost nodes: finish, mark or remove the moves and volumes that need them.

Only rows are changed here. A transaction changes nothing if its row is not as
expected. The other nodes are asked to do their part. Everything can be
repeated. Nothing is done on the lost node. If it does return, it keeps its
logical volumes and logs that, and serves only those that a row places there.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
from typing import Any

from cinder import context as cinder_context
from cinder.message import message_field
from cinder import objects
from cinder.volume import volume_utils
from oslo_log import log as logging

from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move.backend import Backend
from dmclone_driver.move import follower_records
from dmclone_driver.move import lookups
from dmclone_driver.move import messages
from dmclone_driver.move.peer_requests import PeerRequests
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import records
from dmclone_driver.move import row_repairs
from dmclone_driver.move import snapshot_rows
from dmclone_driver.node.names import Names

LOG = logging.getLogger(__name__)

_CHANGED = _('it has changed meanwhile; run this command again')


class LostNode:
    """A node whose backend never comes back, seen from a live peer."""

    def __init__(self, backend: Backend, requests: PeerRequests,
                 node: str) -> None:
        """:param node: its name, as its cinder-volume knew it"""
        self._backend = backend
        self._requests = requests
        self._client = backend.client
        self.host = '%s@%s' % (node, peers.backend_name(backend.host))

    def run(self, context: cinder_context.RequestContext,
            do_it: bool = False) -> collections.abc.Iterator[plan.Action]:
        """Finish, mark or remove the volumes and placeholders there.

        :param do_it: otherwise nothing is changed
        :raises: Refused
        """
        rows = lookups.on_host(context, self.host)
        homes = [row for row in rows if not placeholders.is_placeholder(row)]
        known = lookups.all_placeholders(context)
        there = [each for each in known if each.backend == self.host]
        self._check(context, homes + there)
        back = {row.id: old for row in there
                if (old := self._old_copy(context, row, known))}
        for row in there:
            if row.id in back:
                yield self._back(context, row, back[row.id], do_it)
        yield from self._homes(context, homes, known, do_it)
        # A row may be needed to check whether another one can be removed.
        for state, actions in ((State.PREPARED, self._prepared),
                               (State.ABORTED, self._aborted),
                               (State.SWITCHED, self._switched),
                               (State.LOST, self._lost),
                               (State.RELEASED, self._released),
                               (State.FOLLOWING, self._follower),
                               (State.FOLLOWED, self._follower),
                               (State.REVERTING, self._reverting)):
            for row in there:
                if row.state == state and row.id not in back:
                    yield from actions(context, row, do_it)
        yield from self._snapshots(context, do_it, {
            old.snapshot_id for old in back.values()})

    def _check(self, context: cinder_context.RequestContext,
               rows: collections.abc.Collection[objects.Volume | Placeholder]
               ) -> None:
        """Verify that the node may be declared lost.

        :raises: Refused
        """
        if self.host == self._backend.host:
            raise plan.Refused(_(
                '%s is this node: run the command on another one with the '
                'same backend') % self.host)
        known = self._backend.service(context, self.host)
        if known is None and not rows:
            raise plan.Refused(_(
                'no backend %(host)s is known; "openstack volume service '
                'list" shows their names') % {'host': self.host})
        if known is not None and known.is_up or self._answers(context):
            raise plan.Refused(_(
                'cinder-volume of %(host)s runs, or has sent a heartbeat '
                'lately: nothing there is lost. To forget the node anyway, '
                'make sure that it is off and stays off, and run this '
                'command again a minute later') % {'host': self.host})
        if self._here(context) is None:
            raise plan.Refused(_(
                'cinder-volume of %s has never run: run the command on a '
                'node where it has') % self._backend.host)

    def _answers(self, context: cinder_context.RequestContext) -> bool:
        try:
            self._client.describe(context, self.host, timeout=5)
        except exception.PeerUnreachable:
            return False
        except exception.PeerFailed:
            pass
        return True

    def _here(self, context: cinder_context.RequestContext
              ) -> objects.Service | None:
        return self._backend.service(context, self._backend.host)

    def _action(self, do_it: bool, subject: str, change: str,
                function: collections.abc.Callable[..., object]
                ) -> plan.Action:
        """Return an action; do it first if the operator has asked for that.

        :param function: returns False if it could not be done
        """
        done = not do_it or function() is not False
        return plan.Action(subject, change, None if done else _CHANGED)

    # Volumes whose home was the lost node

    def _homes(self, context: cinder_context.RequestContext,
               homes: collections.abc.Iterable[objects.Volume],
               known: collections.abc.Iterable[Placeholder], do_it: bool
               ) -> collections.abc.Iterator[plan.Action]:
        ids = {row.id for row in homes}
        others = [each for each in known if each.volume_id in ids and
                  each.backend != self.host]
        for row in homes:
            if lookups.recorded_backend(row) not in (None, self.host):
                yield self._action(
                    do_it, _('volume %s') % row.id,
                    _('put it back to %s, which has its data')
                    % row.provider_id,
                    lambda row=row: row_repairs.put_back(context, row))
                continue
            mine = [other for other in others
                    if other.volume_id == row.id]
            yield from self._home(context, row, mine, do_it)

    def _home(self, context: cinder_context.RequestContext,
              row: objects.Volume, others: list[Placeholder], do_it: bool
              ) -> collections.abc.Iterator[plan.Action]:
        """Give up a volume whose home was the lost node.

        :param others: its placeholders on other nodes
        """
        prepared = lookups.prepared_move(row)
        subject, waits = _('volume %s') % row.id, False
        for other in others:
            if other.state in (State.PREPARED, State.ABORTED):
                action = self._delete_destination(context, row, other, do_it)
                waits |= action.obstacle is not None
                yield action
            elif other.state == State.RELEASED:
                yield self._action(
                    do_it, self._what(other),
                    _('ask %s to delete the source, which is not needed')
                    % other.backend,
                    lambda other=other: self._requests.release(context,
                                                               other))
        change = self._giving_up([
            other for other in others
            if other.state == State.SWITCHED and not other.snapshot_id])
        if waits:
            # A destination may have newer data than the database knows.
            yield plan.Action(subject, change, _(
                'its destinations have to be deleted first; run this '
                'command again'))
        else:
            yield self._action(do_it, subject, change, lambda: self._give_up(
                context, row.id, prepared))

    def _giving_up(self, sources: collections.abc.Iterable[Placeholder]
                   ) -> str:
        text = _('mark it and its snapshots as error and assign them to '
                 '%(here)s, where they can be deleted: what was written on '
                 '%(host)s is lost') % {
                     'host': self.host, 'here': self._backend.host}
        for other in sources:
            text += _('; until then %(host)s keeps, as %(path)s, the data '
                      'that the volume had when it moved away from there') % {
                          'host': other.backend,
                          'path': Names(other.name_id).path()}
        return text

    def _snapshots(self, context: cinder_context.RequestContext, do_it: bool,
                   but: collections.abc.Container[str | None]
                   ) -> collections.abc.Iterator[plan.Action]:
        """Mark the snapshots there of volumes that are on other nodes.

        :param but: ids of those that are not lost
        """
        for snapshot in snapshot_rows.there(context, self.host):
            if snapshot.status != 'error' and snapshot.id not in but:
                yield self._action(
                    do_it, _('snapshot %(id)s of volume %(volume)s') % {
                        'id': snapshot.id, 'volume': snapshot.volume_id},
                    _('mark it as error: its data was on %s') % self.host,
                    lambda snapshot=snapshot: snapshot_rows.fail(
                        context, snapshot.id))

    def _give_up(self, context: cinder_context.RequestContext,
                 volume_id: str, prepared: str | None) -> bool:
        if prepared and not records.abort(context, volume_id, prepared):
            return False
        row = lookups.get(context, volume_id)
        if row is None or lookups.backend_of(row) != self.host:
            return False
        service = self._here(context)
        # The check has found it.
        assert service is not None
        peer = peers.Peer(
            self._backend.host, volume_utils.append_host(
                self._backend.host, volume_utils.extract_host(
                    row.host, 'pool')),
            service.uuid, service.availability_zone)
        if not records.give_up_home(context, row, peer):
            return False
        LOG.error('Volume %(volume)s is lost, because its home %(host)s is '
                  'lost.',
                  {'volume': volume_id, 'host': self.host})
        self._tell(row)
        return True

    @staticmethod
    def _tell(row: objects.Volume) -> None:
        messages.tell_user(
            row, detail=message_field.Detail.VOLUME_INVALID_STATE)

    def _delete_destination(self, context: cinder_context.RequestContext,
                            row: objects.Volume, other: Placeholder,
                            do_it: bool) -> plan.Action:
        subject = _('destination %(id)s of volume %(volume)s on %(host)s') % {
            'id': other.id, 'volume': row.id,
            'host': other.backend}
        obstacle = do_it and self._do_delete_destination(context, row.id,
                                                         other)
        return plan.Action(
            subject, _('delete it: the volume was never switched over to it'),
            obstacle or None)

    def _do_delete_destination(self, context: cinder_context.RequestContext,
                               volume_id: str,
                               other: Placeholder) -> str | None:
        """Return why a destination was not deleted, None if it was."""
        if not records.abort(context, volume_id, other.id):
            return _CHANGED
        try:
            if not self._client.delete_destination(
                    context, other.backend, other.id):
                return _('it has been written; see the log of cinder-volume '
                         'there')
        except exception.PeerError as error:
            return _('%s. That backend deletes it as soon as it '
                     'can') % error.msg
        records.destroy(context, other.id)
        return None

    # Placeholders on the lost node

    def _what(self, placeholder: Placeholder) -> str:
        return _('placeholder %(id)s of volume %(volume)s') % {
            'id': placeholder.id, 'volume': placeholder.volume_id}

    def _prepared(self, context: cinder_context.RequestContext,
                  placeholder: Placeholder, do_it: bool
                  ) -> collections.abc.Iterator[plan.Action]:
        """Abort a move to the lost node, and delete its row.

        The volume's home notices that the row is gone.
        """
        def remove() -> bool:
            if not records.abort(context, placeholder.volume_id,
                                 placeholder.id):
                return False
            records.destroy(context, placeholder.id)
            return True
        yield self._action(
            do_it, self._what(placeholder),
            _('abort its move to %s and remove the row: the volume '
              'stays where it is') % self.host,
            remove)

    def _aborted(self, context: cinder_context.RequestContext,
                 placeholder: Placeholder, do_it: bool
                 ) -> collections.abc.Iterator[plan.Action]:
        yield self._action(
            do_it, self._what(placeholder),
            _('remove the row: its move to %s was aborted') % self.host,
            lambda: records.destroy(context, placeholder.id))

    def _released(self, context: cinder_context.RequestContext,
                  placeholder: Placeholder, do_it: bool
                  ) -> collections.abc.Iterator[plan.Action]:
        if placeholder.of_deleted and (
                lookups.get(context, placeholder.volume_id) is not None):
            # The source of the volume goes when that is deleted.
            yield self._action(
                do_it, self._what(placeholder),
                _('remove the row: the volume is not deleted'),
                lambda: records.destroy(context, placeholder.id))
            return
        yield self._action(
            do_it, self._what(placeholder),
            _('remove the row: nothing needs the source on %s') % self.host,
            lambda: self._requests.forget_source(context, placeholder))

    def _lost(self, context: cinder_context.RequestContext,
              placeholder: Placeholder, do_it: bool
              ) -> collections.abc.Iterator[plan.Action]:
        """Delete the row of a lost source whose volume is deleted."""
        if lookups.get(context, placeholder.volume_id) is None and (
                lookups.owner_row(context, placeholder.id) is None):
            yield from self._released(context, placeholder, do_it)

    def _old_copy(self, context: cinder_context.RequestContext,
                  follower: Placeholder,
                  known: collections.abc.Iterable[Placeholder]
                  ) -> Placeholder | None:
        """Return a source that is a snapshot before it followed, or None.

        Its node keeps it, perhaps hidden, for as long as the row is there.

        :param follower: on the lost node
        """
        if follower.state != State.FOLLOWED or (
                snapshot_rows.recorded_backend(
                    context, follower.snapshot_id or '') != self.host):
            return None
        found = [each for each in known
                 if each.snapshot_id == follower.snapshot_id and
                 each.backend != self.host and
                 each.state in (State.SWITCHED, State.RELEASED)]
        return min(found, key=lambda each: each.id != follower.name_id,
                   default=None)

    def _back(self, context: cinder_context.RequestContext,
              follower: Placeholder, old: Placeholder, do_it: bool
              ) -> plan.Action:
        """Have a snapshot that has followed be its old copy again."""
        def take_back() -> bool:
            if not follower_records.go_back(context, follower.id, old.id):
                return False
            self._requests.forget_source(context, follower)
            return True
        return self._action(
            do_it, _('follower %s') % follower.id,
            _('remove the row: snapshot %(snapshot)s has followed its volume '
              'to %(host)s, and is taken back to %(old)s, which still has '
              'it') % {'snapshot': follower.snapshot_id, 'host': self.host,
                       'old': old.backend}, take_back)

    def _follower(self, context: cinder_context.RequestContext,
                  placeholder: Placeholder, do_it: bool
                  ) -> collections.abc.Iterator[plan.Action]:
        """Delete the row of a follower on the lost node."""
        text = (_('remove the row: snapshot %(snapshot)s has not followed '
                  'its volume to %(host)s yet, and stays where it is')
                if placeholder.state == State.FOLLOWING else
                _('remove the row: snapshot %(snapshot)s was on %(host)s'))
        yield self._action(
            do_it, _('follower %s') % placeholder.id,
            text % {'snapshot': placeholder.snapshot_id, 'host': self.host},
            lambda: self._requests.forget_source(context, placeholder))

    def _reverting(self, context: cinder_context.RequestContext,
                   placeholder: Placeholder, do_it: bool
                   ) -> collections.abc.Iterator[plan.Action]:
        """Delete the row of a revert that the lost node has not ended."""
        yield self._action(
            do_it, self._what(placeholder),
            _('remove the row: the volume was not reverted on %s yet')
            % self.host,
            lambda: self._requests.forget_source(context, placeholder))

    def _switched(self, context: cinder_context.RequestContext,
                  placeholder: Placeholder, do_it: bool
                  ) -> collections.abc.Iterator[plan.Action]:
        volume = lookups.get(context, placeholder.volume_id)
        reader = lookups.owner_row(context, placeholder.id)
        if reader is None:
            yield from self._released(context, placeholder, do_it)
            return
        if volume is None or not placeholders.is_placeholder(reader):
            # Cinder may have copied the volume to a backend of another
            # driver: then only this row, which is deleted, needs the source.
            # Or the volume is deleted, and clones of it still read it.
            volume = reader
        there, progress = lookups.backend_of(reader), None
        if there != self.host:
            try:
                progress = self._client.progress(context, there,
                                                 placeholder.id)
            except exception.PeerError as error:
                yield plan.Action(self._what(placeholder), _(
                    'check whether the volume is complete'), _(
                    '%s. Run this command again when it answers, or forget '
                    'that node first') % error.msg)
                return
        if progress and progress['complete']:
            yield self._action(
                do_it, self._what(placeholder),
                _('remove the row: the volume is complete on %s') % there,
                lambda: self._release(context, placeholder))
            return
        if progress and progress['completing']:
            yield plan.Action(self._what(placeholder), _('remove the row'), _(
                'all of the volume is on %s, which is still completing it; '
                'run this command again') % there)
            return
        yield self._action(
            do_it, self._what(placeholder),
            self._loss(volume, progress, there),
            lambda: self._lose(context, placeholder, volume, there))

    def _loss(self, volume: objects.Volume, progress: dict[str, Any] | None,
              there: str) -> str:
        text = _('mark it as lost, and volume %(volume)s, which needs it, as '
                 'error as soon as it is not in use: requests for data that '
                 'was only on %(host)s fail from then on')
        if placeholders.is_placeholder(volume):
            text = _('mark it as lost: volume %(volume)s is deleted, but '
                     'clones of it still read it, whose requests for data '
                     'that was only on %(host)s fail from then on')
        text %= {'volume': lookups.guarding_id(volume), 'host': self.host}
        if progress:
            text += _('; %(hydrated)d of %(total)d regions are on %(there)s, '
                      'and stay there until the volume is deleted') % dict(
                          progress, there=there)
        return text

    def _release(self, context: cinder_context.RequestContext,
                 placeholder: Placeholder) -> bool:
        if not records.release(context, placeholder.id):
            return False
        self._requests.forget_source(context, placeholder)
        return True

    def _lose(self, context: cinder_context.RequestContext,
              placeholder: Placeholder, volume: objects.Volume,
              there: str) -> bool:
        if not records.lose(context, placeholder.id):
            return False
        volume_id = lookups.guarding_id(volume)
        if volume_id != placeholder.volume_id:
            row_repairs.take_over(context, volume)
        LOG.error('Volume %(volume)s has lost data: it needs source %(id)s, '
                  'and %(host)s is lost.',
                  {'volume': volume_id, 'id': placeholder.id,
                   'host': self.host})
        records.fail(context, volume_id)
        now = lookups.get(context, volume_id)
        if now is not None:
            self._tell(now)
        if there == self.host:
            return True
        try:
            # The backend also notices that by itself, some minutes later.
            self._client.activate(context, there, placeholder.id, True)
        except exception.PeerError as error:
            LOG.warning('Requests for volume %(volume)s may wait for some '
                        'minutes until they fail: %(error)s.',
                        {'volume': volume_id, 'error': error.msg})
        return True
