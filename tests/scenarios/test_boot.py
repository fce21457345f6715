# SPDX-License-Identifier: Apache-2.0
"""Servers with volumes of this backend, with the `openstack` command."""

import json
import os
import subprocess

from lab import paths
from tests.scenarios.lib import live


class BootTest(live.LiveTest):
    """Attaching a volume to a server, and booting from a volume."""

    def openstack(self, *words):
        """Run the command as a user; returns its JSON output."""
        env = {name: value for name, value in os.environ.items()
               if not name.startswith('OS_')}
        env.update(OS_CLOUD='operator',
                   OS_CLIENT_CONFIG_FILE=str(paths.STATE / 'clouds.yaml'))
        done = subprocess.run(
            [paths.VENV / 'bin/openstack', *words, '-f', 'json'],
            env=env, capture_output=True, text=True, timeout=300)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def test_attached_volume(self):
        server = self.openstack('server', 'create', '--flavor', 'guest',
                                '--image', 'guest', '--nic', 'none',
                                '--wait', 'guest')
        volume = self.openstack('volume', 'create', '--size', '1', 'data')
        self.user.settled(volume['id'], 'available')
        self.openstack('server', 'add', 'volume', server['id'], volume['id'])
        console = self.console_of(server['id'])
        console.wait_writing(volume['id'])
        node = self.servers.node(server['id'])
        self.assertEqual(node, self.home(volume['id']).name)
        self.servers.delete(server['id'])
        self.check_records(volume['id'], console, mib=0)

    def test_boot_from_volume(self):
        volume = self.openstack('volume', 'create', '--size', '1',
                                '--image', 'guest', 'root')
        self.user.settled(volume['id'], 'available')
        server = self.openstack('server', 'create', '--flavor', 'guest',
                                '--volume', volume['id'], '--nic', 'none',
                                '--wait', 'guest')
        console = self.console_of(server['id'])
        console.wait_writing(volume['id'])
        node = self.servers.node(server['id'])
        self.assertEqual(node, self.home(volume['id']).name)
        self.hydrated(volume['id'])
        # A root disk can move, too.
        other = self.other(self.lab.nodes[node])
        self.migrate(server['id'], console, other, volume['id'])
        self.check_after_delete(server['id'], console)
        self.check_records(volume['id'], console, mib=0)
