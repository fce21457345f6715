# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of `dmclone drain`."""

import json

from lab.common import servers as servers_module
from lab.common import volumes as volumes_module


class Drains:
    """A mixin: the command that drains a node, run on another one."""

    def drain(self, *arguments, code=0, timeout=900):
        """Drain the old node; return the document that describes it."""
        found, lines, err = self.command(
            self.new, 'dmclone', 'drain', self.old.name, '--format', 'json',
            *arguments, timeout=timeout)
        self.assertEqual(code, found, (lines, err))
        return json.loads('\n'.join(lines))

    @staticmethod
    def states(document):
        """Return {id of a volume: (action, state)}."""
        return {volume['id']: (item['action'], item['state'])
                for item in document['items'] for volume in item['volumes']}

    def enable(self, node=None):
        """Let a node have new volumes and instances again.

        :param node: the drained one by default
        """
        node = node or self.old
        self.lab.sql('UPDATE services SET disabled = 0, disabled_reason = '
                     "NULL WHERE host = '%s@dmclone'" % node.name)
        if self.lab.settings.nova:
            self.set_compute(servers_module.Servers(self.lab), node,
                             'enabled')

    def compute(self, servers, node=None):
        """Return the nova-compute of a node, see :meth:`enable`."""
        service, = [each for each in servers.request(
            'GET', '/os-services?binary=nova-compute')['services']
            if each['host'] == (node or self.old).name]
        return service

    def set_compute(self, servers, node, status):
        """Enable or disable the nova-compute of a node."""
        servers.request('PUT', '/os-services/' + self.compute(
            servers, node)['id'], {'status': status})

    def filled_on_old(self, mib=volumes_module.DATA, **attributes):
        """Create a volume with data on the node to drain.

        :param attributes: of the request that creates it
        :returns: (volume id, checksum)
        """
        with self.created_on(self.old):
            volume_id, home, checksum = self.filled_volume(mib, **attributes)
        self.assertIs(self.old, home)
        return volume_id, checksum

    def assert_on_new(self, volume_id, checksum, mib=volumes_module.DATA):
        self.assertIs(self.new, self.home(volume_id))
        with self.attached(volume_id, self.new) as path:
            self.assertEqual(checksum, self.checksum(self.new, path, mib))
