# SPDX-License-Identifier: Apache-2.0
"""Lookup of the peer on the host that a connector describes."""

# Cinder's objects do not exist before they are registered.
from __future__ import annotations

import collections.abc
import dataclasses
import socket
from typing import Any

from cinder import context as cinder_context
from cinder import objects
from cinder.volume import volume_utils

from dmclone_driver import exception
from dmclone_driver.i18n import _


@dataclasses.dataclass(frozen=True)
class Peer:
    """The same backend on a node; ``backend_host`` is ``node@backend``."""

    backend_host: str
    #: With the pool, as in a volume's host.
    host: str
    service_uuid: str | None
    availability_zone: str | None

    @property
    def node(self) -> str:
        """The node's name, as its cinder-volume knows it."""
        return volume_utils.extract_host(self.backend_host, 'host')


def backend_name(host: str) -> str:
    """Return the backend's name of ``node@backend``, alike on all nodes."""
    return host.partition('@')[2]


def addresses(node: str) -> set[str]:
    """Return the addresses that a node's name resolves to, if it does."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(node, None)}
    except OSError:
        return set()


def disabled(context: cinder_context.RequestContext) -> frozenset[str]:
    """Return the backends that get no new volumes, as while they are drained.

    :returns: of the form ``node@backend``; found with one query
    """
    return frozenset(service.host for service in
                     objects.ServiceList.get_all_by_binary(
                         context.elevated(), 'cinder-volume', disabled=True))


class Peers:
    """Finds peers of one backend; it is a peer of itself."""

    def __init__(self, backend_host: str) -> None:
        """:param backend_host: ``node@backend`` of this service"""
        self.backend = backend_name(backend_host)

    def find(self, context: cinder_context.RequestContext,
             connector: dict[str, Any], pool: str | None,
             volume_id: str) -> Peer:
        """Return the :class:`Peer` on the connector's host.

        The host's name decides. If no peer has that name, for example because
        nova and cinder name the host differently, its address decides.

        Whether the peer runs is not checked here: its heartbeat is old after
        a restart, too. It has to answer before anything is done.

        :param pool: of the volume; it has the same name on all peers
        :param volume_id: for the message of the exception
        :raises: NoPeer
        """
        services = self._services(context)
        node, address = connector.get('host'), connector.get('ip')
        service = (self._named(services, node) or
                   self._addressed(services, address))
        if service is None:
            raise self._no_peer(connector, volume_id,
                                _('there is no such service'))
        return self._peer(service, pool)

    def on_host(self, context: cinder_context.RequestContext,
                host: str) -> Peer | None:
        """Return the :class:`Peer` of a host, None if it is no peer.

        :param host: with a pool, as in a volume's host
        """
        backend_host = volume_utils.extract_host(host)
        return next((self._peer(service, volume_utils.extract_host(
            host, 'pool')) for service in self._services(context)
            if service.host == backend_host), None)

    def on_node(self, context: cinder_context.RequestContext, node: str,
                pool: str | None) -> Peer | None:
        """Return the :class:`Peer` on a node, None if there is none.

        :param node: its name, as in the peer's host
        :param pool: of the volume; it has the same name on all peers
        """
        service = self._named(self._services(context), node)
        return service and self._peer(service, pool)

    def all(self, context: cinder_context.RequestContext) -> list[Peer]:
        """Return the peers on all nodes, without a pool; this is one, too."""
        return [self._peer(service, None)
                for service in self._services(context)]

    @staticmethod
    def _peer(service: objects.Service, pool: str | None) -> Peer:
        return Peer(backend_host=service.host,
                    host=volume_utils.append_host(service.host, pool),
                    service_uuid=service.uuid,
                    availability_zone=service.availability_zone)

    def _no_peer(self, connector: dict[str, Any], volume_id: str,
                 reason: str) -> exception.NoPeer:
        return exception.NoPeer(
            backend=self.backend, volume=volume_id,
            host=connector.get('host'), address=connector.get('ip'),
            reason=reason)

    def _services(self, context: cinder_context.RequestContext
                  ) -> list[objects.Service]:
        found = objects.ServiceList.get_all_by_binary(context.elevated(),
                                                      'cinder-volume')
        return [service for service in found
                if backend_name(service.host) == self.backend]

    @staticmethod
    def _named(services: collections.abc.Iterable[objects.Service],
               node: str | None) -> objects.Service | None:
        return next((service for service in services
                     if volume_utils.extract_host(service.host, 'host') ==
                     node), None)

    @staticmethod
    def _addressed(services: collections.abc.Iterable[objects.Service],
                   address: str | None) -> objects.Service | None:
        return next((service for service in services if address in
                     addresses(volume_utils.extract_host(service.host,
                                                         'host'))), None)
