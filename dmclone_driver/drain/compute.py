# SPDX-License-Identifier: Apache-2.0
"""Nova, as Cinder's configuration lets it be asked: instances and hosts."""

import collections.abc
import threading
from typing import Any

from cinder.compute import nova
from cinder import context as cinder_context
from oslo_config import cfg
from oslo_log import log as logging

from dmclone_driver.drain.facts import Server
from dmclone_driver.i18n import _

LOG = logging.getLogger(__name__)
CONF = cfg.CONF

#: The first version that shows administrators why an action has failed. With
#: it, too, Nova's scheduler checks the destination of a live migration, and
#: services have UUIDs.
MICROVERSION = '2.84'
#: Seconds that Nova has for an answer.
TIMEOUT = 60

#: What Nova's client raises.
_ERRORS = (nova.nova_exceptions.ClientException, nova.ks_exc.ClientException)


class ComputeError(Exception):
    """Nova does not do, or does not answer, a request."""


class Compute:
    """Requests to Nova with the credentials in Cinder's [nova].

    Threads may share it: it sends one request at a time.
    """

    def __init__(self, context: cinder_context.RequestContext) -> None:
        """:raises: ComputeError without credentials"""
        if not CONF.nova.auth_type:
            raise ComputeError(_(
                'Nova can not be asked: [nova] of the configuration has no '
                'credentials (auth_type)'))
        self._context = context
        self._lock = threading.Lock()
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = nova.novaclient(
                self._context, privileged_user=True, timeout=TIMEOUT,
                api_version=MICROVERSION)
        return self._made

    def _ask(self, function: collections.abc.Callable[[Any], Any]) -> Any:
        """Return the result of a function of Nova's client.

        :raises: ComputeError; ``NotFound`` of Nova's client
        """
        try:
            with self._lock:
                return function(self._client)
        except nova.API.NotFound:
            raise
        except _ERRORS as error:
            raise ComputeError(_('Nova says: %s') % error)

    def servers(self, ids: collections.abc.Iterable[str],
                host: str) -> dict[str, Server]:
        """Return those of some instances that exist.

        :param host: where most of them are: its instances are read at once
        :raises: ComputeError
        """
        wanted = set(ids)
        if not wanted:
            return {}
        found = {each.id: _server(each) for each in self._ask(
            lambda client: client.servers.list(
                search_opts={'all_tenants': 1, 'host': host}, limit=-1))}
        for server_id in wanted - set(found):
            server = self.server(server_id)
            if server is not None:
                found[server_id] = server
        return {server_id: found[server_id]
                for server_id in wanted & set(found)}

    def server(self, server_id: str) -> Server | None:
        """Return an instance, None if there is none with the id.

        :raises: ComputeError
        """
        try:
            return _server(self._ask(
                lambda client: client.servers.get(server_id)))
        except nova.API.NotFound:
            return None

    def live_migrate(self, server_id: str, host: str | None) -> None:
        """Have Nova begin to live-migrate an instance.

        :param host: where to; None if Nova's scheduler chooses
        :raises: ComputeError
        """
        try:
            self._ask(lambda client: client.servers.live_migrate(
                server_id, host, 'auto'))
        except nova.API.NotFound as error:
            raise ComputeError(_('Nova says: %s') % error)

    def failure(self, server_id: str) -> str:
        """Return why the last action on an instance has failed.

        :returns: what Nova tells, or an empty text
        """
        try:
            actions = self._ask(
                lambda client: client.instance_action.list(server_id, limit=1))
            if not actions:
                return ''
            action = self._ask(lambda client: client.instance_action.get(
                server_id, actions[0].request_id))
        except (ComputeError, nova.API.NotFound) as error:
            LOG.warning('The actions on instance %(server)s could not be '
                        'read: %(error)s',
                        {'server': server_id, 'error': error})
            return ''
        texts = [event.get('details') for event in action.events
                 if event.get('result') == 'Error']
        return next(filter(None, texts), action.message or '')

    def gets_instances(self, host: str) -> bool:
        """Whether Nova may put instances on a host.

        :returns: False, too, if Nova does not know it
        :raises: ComputeError
        """
        return any(each.status == 'enabled' for each in self._services(host))

    def disable(self, host: str, reason: str) -> None:
        """Have Nova put no new instances on a host.

        :raises: ComputeError
        """
        for service in self._services(host):
            if service.status == 'enabled':
                self._disable(service.id, reason)

    def _disable(self, service_id: str, reason: str) -> None:
        self._ask(lambda client: client.services.disable_log_reason(
            service_id, reason))

    def enable(self, host: str) -> None:
        """Let Nova put instances on a host again.

        :raises: ComputeError
        """
        for service in self._services(host):
            if service.status != 'enabled':
                self._enable(service.id)

    def _enable(self, service_id: str) -> None:
        self._ask(lambda client: client.services.enable(service_id))

    def _services(self, host: str) -> list[Any]:
        return self._ask(lambda client: client.services.list(
            host=host, binary='nova-compute'))


def _server(found: Any) -> Server:
    """Return an instance of Nova's client as a value."""
    return Server(
        found.id, getattr(found, 'OS-EXT-SRV-ATTR:host', None), found.status,
        getattr(found, 'OS-EXT-STS:task_state', None))
