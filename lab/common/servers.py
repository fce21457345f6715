# SPDX-License-Identifier: Apache-2.0
"""Requests of a user and of an operator to Nova."""

from lab.common import user as user_module
from lab import wait

MICROVERSION = '2.96'
# The states before an expected state; not ERROR.
_ON_THE_WAY = ('BUILD', 'MIGRATING', 'RESIZE', 'VERIFY_RESIZE', 'ACTIVE',
               'REVERT_RESIZE', 'REBUILD', 'SHELVED', 'SHELVED_OFFLOADED',
               'SHUTOFF')


class Servers:
    """The compute service, as an operator sees it in a user's project."""

    def __init__(self, lab):
        self._compute = lab.cloud('operator').compute
        #: {server id: ids of the migrations before the latest request}
        self._earlier = {}
        self._image = lab.cloud('admin').image.find_image('guest')
        self._flavors = {flavor['name']: flavor['id'] for flavor in
                         self.request('GET', '/flavors')['flavors']}

    def request(self, method, path, body=None):
        """Send a request; returns the answer's JSON, None if empty."""
        return user_module.answer(self._compute.request(
            path, method, json=body, raise_exc=False,
            microversion=MICROVERSION))

    def boot_properties(self):
        """Return the image properties that make a volume bootable."""
        properties = dict(self._image.properties or {},
                          kernel_id=self._image.kernel_id,
                          ramdisk_id=self._image.ramdisk_id,
                          os_command_line=self._image.os_command_line)
        return {name: value for name, value in properties.items()
                if isinstance(value, str)}

    def show(self, server_id):
        """Return a server as the API shows it."""
        return self.request('GET', '/servers/' + server_id)['server']

    def all(self):
        """Return the ids of all servers."""
        return [server['id'] for server in
                self.request('GET', '/servers')['servers']]

    def boot(self, node, volume_id=None, delete_volume=False):
        """Start a server on a node; returns its id once it is active.

        :param node: None to let Nova choose
        :param volume_id: to boot from; otherwise it has a local disk
        """
        disk = {'uuid': volume_id or self._image.id, 'boot_index': 0,
                'source_type': 'volume' if volume_id else 'image',
                'destination_type': 'volume' if volume_id else 'local',
                'delete_on_termination': delete_volume or not volume_id}
        body = {'name': 'guest', 'flavorRef': self._flavors['guest'],
                'networks': 'none',
                'block_device_mapping_v2': [disk]}
        if node:
            body['host'] = node.name
        if not volume_id:
            body['imageRef'] = self._image.id
        server_id = self.request('POST', '/servers', {'server': body})[
            'server']['id']
        self.settled(server_id, 'ACTIVE')
        return server_id

    def settled(self, server_id, *expected, timeout=120):
        """Wait until a server is in a state and has no task.

        :raises AssertionError: if it is in error, and that is not expected
        """
        def there():
            server = self.show(server_id)
            if server['OS-EXT-STS:task_state']:
                return None
            assert server['status'] in (*expected, *_ON_THE_WAY), server
            return server['status'] in expected and server
        return wait.until(there, 'server %s to be %s' % (
            server_id, ' or '.join(expected)), timeout)

    def delete(self, server_id, timeout=90):
        """Delete a server and wait until it is gone."""
        self.request('DELETE', '/servers/' + server_id)
        wait.until(lambda: server_id not in self.all(),
                   'server %s to be deleted' % server_id, timeout)

    def delete_all(self):
        """Delete all servers, one after the other."""
        for server_id in self.all():
            self.delete(server_id)

    def action(self, server_id, name, arguments=None):
        """Send a server action."""
        self.request('POST', '/servers/%s/action' % server_id,
                     {name: arguments})

    def node(self, server_id):
        """Return the name of the node that a server is on."""
        return self.show(server_id)['OS-EXT-SRV-ATTR:host']

    # Volumes

    def attach(self, server_id, volume_id):
        """Request that a volume be attached."""
        self.request('POST', '/servers/%s/os-volume_attachments' % server_id,
                     {'volumeAttachment': {'volumeId': volume_id}})

    def detach(self, server_id, volume_id):
        """Request that a volume be detached."""
        self.request('DELETE', '/servers/%s/os-volume_attachments/%s' % (
            server_id, volume_id))

    # Moves

    def live_migrate(self, server_id, node):
        """Request a live migration to a node."""
        self._earlier[server_id] = [each['id'] for each in
                                    self.migrations(server_id)]
        self.action(server_id, 'os-migrateLive', {
            'host': node.name, 'block_migration': 'auto'})

    def resize(self, server_id):
        """Request a resize; Nova chooses another node for it."""
        self.action(server_id, 'resize',
                    {'flavorRef': self._flavors['guest.larger']})

    def force_down(self, node, down):
        """Set whether Nova takes a node's nova-compute for down."""
        service, = [each for each in self.request(
            'GET', '/os-services?binary=nova-compute')['services']
            if each['host'] == node.name]
        self.request('PUT', '/os-services/' + service['id'],
                     {'forced_down': down})

    def migrations(self, server_id):
        """Return a server's migrations, the newest first."""
        found = self.request(
            'GET', '/os-migrations?instance_uuid=' + server_id)['migrations']
        return sorted(found, key=lambda each: each['id'], reverse=True)

    def migration(self, server_id):
        """Return the latest requested migration, None without a record."""
        earlier = self._earlier.get(server_id, ())
        return next((each for each in self.migrations(server_id)
                     if each['id'] not in earlier), None)

    def copied(self, server_id, migration_id):
        """Return the bytes of memory that a live migration has copied."""
        return self.request('GET', '/servers/%s/migrations/%s' % (
            server_id, migration_id))['migration']['memory_processed_bytes']

    def migration_ended(self, server_id, *expected, timeout=120):
        """Wait until the newest migration is over.

        :raises AssertionError: if it ends in none of the expected states
        """
        over = ('completed', 'error', 'failed', 'cancelled', 'finished',
                'confirmed', 'reverted', 'done')

        def ended():
            newest = self.migration(server_id)
            return newest and newest['status'] in over and newest
        newest = wait.until(ended, 'the migration of %s to end' % server_id,
                            timeout)
        assert newest['status'] in expected, newest
        return newest
