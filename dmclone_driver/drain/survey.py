# SPDX-License-Identifier: Apache-2.0
"""Looks at a node: in the database, at Nova, and at the other nodes.

Nothing is changed, and no lock is taken.
"""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections
import hashlib
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils

from dmclone_driver.drain.compute import Compute
from dmclone_driver.drain.compute import ComputeError
from dmclone_driver.drain import facts
from dmclone_driver.drain import obstacles
from dmclone_driver.drain import threads
from dmclone_driver import exception
from dmclone_driver.i18n import _
from dmclone_driver.move import lookups
from dmclone_driver.move import peers
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import Placeholder
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import preflight
from dmclone_driver.move import rpcapi
from dmclone_driver.move import snapshot_rows

#: Number of nodes that are asked at once.
AT_ONCE = 8
#: Number of nodes that a drain asks for their room. If they lack it, twice as
#: many are asked, and so on. So what a drain costs does not grow with the
#: cloud, and the nodes of a large one are not all asked by each of many
#: drains.
SOME = 32


def backend_on(context: cinder_context.RequestContext,
               client: rpcapi.PeerClient, node: str) -> str:
    """Return the backend of this driver on a node, ``node@backend``.

    :param node: the node's name; or the backend's, if a node has several
    :raises: Refused
    """
    hosts = [service.host for service in _services(context) if node in (
        service.host, volume_utils.extract_host(service.host, 'host'))]
    if len(hosts) > 1:
        hosts = [host for host in hosts if answers(context, client, host)]
    if len(hosts) == 1:
        return hosts[0]
    if hosts:
        raise plan.Refused(_('%(node)s has several backends: name one of '
                             '%(hosts)s') % {
                                 'node': node, 'hosts': ', '.join(hosts)})
    raise plan.Refused(_(
        'no backend of this driver is known, or none answers, on %s; '
        '"openstack volume service list" shows the nodes') % node)


def answers(context: cinder_context.RequestContext,
            client: rpcapi.PeerClient, host: str) -> bool:
    """Whether a backend of this driver runs.

    :param host: ``node@backend``
    """
    try:
        client.describe(context, host)
    except exception.PeerUnreachable:
        return False
    except exception.PeerError:
        pass
    return True


def _services(context: cinder_context.RequestContext
              ) -> list[objects.Service]:
    return list(objects.ServiceList.get_all_by_binary(
        context.elevated(), 'cinder-volume'))


class Survey:
    """What is known of one node, read again at each call."""

    def __init__(self, context: cinder_context.RequestContext,
                 client: rpcapi.PeerClient, host: str,
                 compute: Compute | ComputeError,
                 with_snapshots: bool = False) -> None:
        """Create the survey of a node.

        :param host: the node's backend, ``node@backend``
        :param compute: Nova, or why it can't be asked
        :param with_snapshots: whether snapshots follow their volumes
        """
        self._context = context
        self._client = client
        self.host = host
        self.node = volume_utils.extract_host(host, 'host')
        self.backend = peers.backend_name(host)
        self._compute = compute
        self._with_snapshots = with_snapshots
        self._peers = peers.Peers(host)
        self._some = SOME
        #: Whether there are nodes that have not been asked for their room.
        self._more = False
        #: {(host, address) of a connector: its node}
        self._nodes: dict[tuple[str | None, str | None], str | None] = {}

    def picture(self) -> facts.Picture:
        """Return what the database and Nova show of the node."""
        # They may have changed.
        self._nodes.clear()
        known = {each.id: each for each in
                 lookups.all_placeholders(self._context)}
        snapshots = self._snapshots(known)
        follow: dict[str, list[facts.Snapshot]] = collections.defaultdict(list)
        for each in snapshots if self._with_snapshots else ():
            if not (each.copied_to or obstacles.of_snapshot(each)):
                follow[each.volume].append(each)
        volumes = tuple(
            self._volume(row, known, tuple(follow[row.id]))
            for row in lookups.on_host(self._context, self.host,
                                       attachments=True)
            if not placeholders.is_placeholder(row))
        servers, trouble = self._servers(volumes)
        there = [each for each in known.values()
                 if each.backend == self.host]
        return facts.Picture(
            self.node, volumes, servers, trouble,
            tuple(each.volume_id for each in there
                  if each.state == State.PREPARED),
            tuple(each.snapshot_id for each in there
                  if each.state == State.FOLLOWING and each.snapshot_id),
            snapshots, tuple(self._copies(there)), self._with_snapshots)

    def _volume(self, row: objects.Volume, known: dict[str, Placeholder],
                snapshots: tuple[facts.Snapshot, ...]) -> facts.Volume:
        source = known.get(row.name_id)
        prepared = known.get(lookups.prepared_move(row) or '')
        really_on = lookups.recorded_backend(row)
        return facts.Volume(
            row.id, row.size, row.status, row.migration_status,
            row.availability_zone, preflight.extra_specs(row),
            tuple(self._attachment(row, each)
                  for each in row.volume_attachment),
            row.group_id,
            volume_utils.extract_host(prepared.host, 'host')
            if prepared else None,
            source.host if source and source.state == State.LOST else None,
            None if really_on in (None, self.host) else really_on,
            bool(row.provider_location), snapshots)

    def _attachment(self, row: objects.Volume,
                    found: objects.VolumeAttachment) -> facts.Attachment:
        connector = found.connector or {}
        return facts.Attachment(
            found.id, found.instance_uuid, connector.get('host'),
            self._node_of(row, connector) if connector else None)

    def _node_of(self, row: objects.Volume,
                 connector: dict[str, Any]) -> str | None:
        """Return the node of a connector, which many volumes may share."""
        key = connector.get('host'), connector.get('ip')
        if key not in self._nodes:
            try:
                self._nodes[key] = self._peers.find(
                    self._context, connector, None, row.id).node
            except exception.NoPeer:
                self._nodes[key] = None
        return self._nodes[key]

    def _servers(self, volumes: tuple[facts.Volume, ...]
                 ) -> tuple[dict[str, facts.Server], str | None]:
        """Return the instances that have the volumes, or what prevents it."""
        ids = {each.server for volume in volumes
               for each in volume.attachments if each.server}
        if not ids:
            return {}, None
        if isinstance(self._compute, ComputeError):
            return {}, str(self._compute)
        try:
            return self._compute.servers(ids, self.node), None
        except ComputeError as error:
            return {}, str(error)

    def _snapshots(self, known: dict[str, Placeholder]
                   ) -> tuple[facts.Snapshot, ...]:
        followers = {each.snapshot_id: each.backend for each
                     in known.values() if each.state == State.FOLLOWING}
        rows = [(row, lookups.backend_of(row.volume)) for row
                in snapshot_rows.there(self._context, self.host)]
        rows += [(row, self.host) for row in objects.SnapshotList.get_by_host(
            self._context.elevated(), self.host)
            if snapshot_rows.backend_of(row) == self.host]
        return tuple(facts.Snapshot(
            row.id, row.volume_id, row.volume_size, row.status,
            self._other_node(home), self._other_node(followers.get(row.id)))
            for row, home in rows)

    def _other_node(self, host: str | None) -> str | None:
        """Return the node of a backend, None if that is this one's."""
        return (volume_utils.extract_host(host, 'host')
                if host and host != self.host else None)

    def _copies(self, there: list[Placeholder]) -> list[facts.Copy]:
        """Return the copies there that are not yet deleted."""
        found = []
        for each in there:
            if each.state == State.SWITCHED:
                reader = lookups.owner_row(self._context, each.id)
                found.append(facts.Copy(
                    each.id, each.volume_id,
                    lookups.backend_of(reader) if reader else None,
                    reader.snapshot_id if reader and placeholders.state_of(
                        reader) in placeholders.OF_FOLLOWERS else None))
            elif each.state in (State.RELEASED, State.ABORTED):
                found.append(facts.Copy(each.id, each.volume_id, None))
        return found

    def places(self, wanted: str | None = None
               ) -> tuple[list[facts.Place], dict[str, str]]:
        """Ask some of the other nodes for their free space.

        The same ones each time, until :meth:`widen` is called.

        :param wanted: ask this one alone, even if its service is disabled
        :returns: the nodes that have answered, and {node: trouble} of others
        :raises: Refused if there is no such node
        """
        services = _services(self._context)
        asked = [service for service in services
                 if self._is_other(service) and (
                     volume_utils.extract_host(service.host, 'host') == wanted
                     if wanted else service.is_up and not service.disabled)]
        if wanted and not asked:
            raise plan.Refused(_(
                'no other node %(node)s has a backend %(backend)s; '
                '"openstack volume service list" shows the nodes') % {
                    'node': wanted, 'backend': self.backend})
        self._more = len(asked) > self._some
        if self._more:
            asked = self._first(services, asked)
        found, silent = [], {}
        for service, answer in threads.each(self._describe, asked, AT_ONCE):
            node = volume_utils.extract_host(service.host, 'host')
            if isinstance(answer, exception.PeerError):
                silent[node] = answer.msg
            else:
                found.append(facts.Place(
                    node, service.availability_zone, answer['free_gb'],
                    answer.get('capabilities', {})))
        return sorted(found, key=lambda place: place.node), silent

    def widen(self) -> bool:
        """Ask more nodes from now on, since the others lack room.

        :returns: False if all were asked the last time
        """
        if self._more:
            self._some *= 2
        return self._more

    def _first(self, services: list[objects.Service],
               others: list[objects.Service]) -> list[objects.Service]:
        """Return the nodes that are asked, of all that could be.

        Those of the node's availability zone are first, since volumes stay
        there. Each node has an order of its own, so that drains of several
        nodes ask different ones.
        """
        zone = next((each.availability_zone for each in services
                     if each.host == self.host), None)
        return sorted(others, key=lambda each: (
            each.availability_zone != zone, hashlib.sha256(
                ('%s %s' % (self.host, each.host)).encode()).digest()
        ))[:self._some]

    def _is_other(self, service: objects.Service) -> bool:
        return (service.host != self.host and
                peers.backend_name(service.host) == self.backend)

    def _describe(self, service: objects.Service) -> dict | Exception:
        try:
            return self._client.describe(self._context, service.host)
        except exception.PeerError as error:
            return error

    def hosts(self, picture: facts.Picture) -> list[str]:
        """Return Nova's names of the node, which may differ from Cinder's."""
        return sorted({self.node} | {
            each.host for volume in picture.volumes
            for each in volume.attachments
            if each.host and each.node == self.node})
