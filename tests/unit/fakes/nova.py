# SPDX-License-Identifier: Apache-2.0
"""Nova's client, and instances on simulated nodes."""

import types
import uuid

from cinder import exception
from novaclient import exceptions


class Nova:
    """Replaces a client of Nova: instances that have volumes.

    A live migration ends when its instance is read for the second time.
    """

    def __init__(self, cloud):
        self._cloud = cloud
        #: {id: instance}
        self.all = {}
        #: {host: nova-compute}
        self.computes = {}
        #: {id: why its next live migration fails}
        self.faults = {}
        #: The requests to live-migrate: (id, host, block_migration).
        self.requests = []
        #: What is raised instead of an answer.
        self.error = None
        #: The next node that Nova's scheduler chooses.
        self.choice = None
        self._looks = {}
        self.servers = types.SimpleNamespace(
            list=self._list, get=self._get, live_migrate=self._live_migrate)
        self.services = types.SimpleNamespace(
            list=self._list_services, disable_log_reason=self._disable,
            enable=self._enable)
        self.instance_action = types.SimpleNamespace(
            list=self._actions, get=self._action)

    # What tests do

    def boot(self, node, *volumes, status='ACTIVE'):
        """Start an instance that has volumes; return its id."""
        made = types.SimpleNamespace(id=str(uuid.uuid4()), status=status)
        self._put(made, node.name, None)
        self.all[made.id] = made
        for volume in volumes:
            self._cloud.attach(volume, node, server=made.id)
            row = self._cloud.row(volume.id)
            row.status = 'in-use'
            row.save()
        return made.id

    def add(self, *nodes):
        """Add the nova-compute of nodes."""
        for node in nodes:
            self.computes[node.name] = types.SimpleNamespace(
                id=node.name, status='enabled', reason=None)

    # What Nova does

    @staticmethod
    def _put(server, host, task):
        vars(server).update({'OS-EXT-SRV-ATTR:host': host,
                             'OS-EXT-STS:task_state': task})

    def _answer(self):
        if self.error:
            raise self.error

    def _list(self, search_opts, limit):
        self._answer()
        return [each for each in self.all.values() if getattr(
            each, 'OS-EXT-SRV-ATTR:host') == search_opts['host']]

    def _get(self, server_id):
        self._answer()
        if server_id not in self.all:
            raise exceptions.NotFound(404)
        server = self.all[server_id]
        self._looks[server_id] = self._looks.get(server_id, 0) + 1
        if getattr(server, 'OS-EXT-STS:task_state') == 'migrating' and (
                self._looks[server_id] > 1):
            self._end(server)
        return server

    def _live_migrate(self, server, host, block_migration):
        self._answer()
        self.requests.append((server, host, block_migration))
        self._put(self.all[server], getattr(
            self.all[server], 'OS-EXT-SRV-ATTR:host'), 'migrating')
        self._looks[server] = 0
        self.choice = self._cloud.nodes[host] if host else self.choice

    def _end(self, server):
        old = self._cloud.nodes[getattr(server, 'OS-EXT-SRV-ATTR:host')]
        try:
            if server.id not in self.faults:
                self._carry(server, old, self.choice)
                old = self.choice
        except exception.CinderException as error:
            self.faults[server.id] = str(error)
        self._put(server, old.name, None)

    def _carry(self, server, old, new):
        volumes = [row for row in self._cloud.rows() if any(
            each.instance_uuid == server.id
            for each in row.volume_attachment)]
        for volume in volumes:
            self._cloud.attach(volume, new, server=server.id)
        for volume in volumes:
            self._cloud.detach(volume, old)

    def _list_services(self, host, binary):
        self._answer()
        return [self.computes[host]] if host in self.computes else []

    def _disable(self, service_id, reason):
        vars(self.computes[service_id]).update(status='disabled',
                                               reason=reason)

    def _enable(self, service_id):
        self._answer()
        vars(self.computes[service_id]).update(status='enabled', reason=None)

    def _actions(self, server, limit):
        return [types.SimpleNamespace(request_id='req-' + server)]

    def _action(self, server, request_id):
        return types.SimpleNamespace(message='Error', events=[
            {'result': 'Success', 'details': None},
            {'result': 'Error', 'details': self.faults.get(server)}])
