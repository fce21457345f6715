# SPDX-License-Identifier: Apache-2.0
"""A node's interface for tests: commands, power, network, services."""

import dataclasses
import json

from lab import config
from lab import config_nova
from lab import database
from lab import errors
from lab import machine
from lab import network
from lab import nodefiles
from lab import paths
from lab import ssh
from lab import wait

_STARTED = '=== lab: %s starts at '
_READY = 'Driver post RPC initialization completed successfully'


class Node:
    """One hypervisor of the laboratory."""

    def __init__(self, name, number, settings):
        self.name = name
        self.ip = network.node_ip(number)
        self.machine = machine.Machine(name, number, settings)
        self.settings = settings
        self.shell = ssh.Shell(name, network.node_mgmt_ip(number))
        self._changes = self.machine.share / 'changes.json'

    # Commands

    def run(self, text, timeout=60, check=True, input=None):
        """Run a shell command on the node and return its stdout.

        If it fails a LabError with its output is raised, unless check is
        false. See try_run for the exit code.
        """
        if not check:
            return self.try_run(text, timeout, input)[1]
        self._must_be_on()
        return self.shell.run(text, timeout, input)

    def try_run(self, text, timeout=60, input=None):
        """Run a shell command; return (exit code, stdout, stderr)."""
        self._must_be_on()
        return self.shell.attempt(text, timeout, input)

    def _must_be_on(self):
        if not self.machine.powered():
            raise errors.LabError('%s is off' % self.name)

    # Power and network

    def cut_power(self):
        """Cut the power; data that is not on a disk is lost."""
        self.machine.power_off()
        self.shell.close()

    def power_on(self):
        """Power the node on, without waiting."""
        nodefiles.write(self)
        self._write_settings()
        self.machine.power_on()

    def start(self, timeout=120):
        """Power the node on and wait until it has booted."""
        self.power_on()
        self.wait_booted(timeout)

    def wait_booted(self, timeout=120):
        """Wait until the node has booted and started its services."""
        def booted():
            self.machine.must_live()
            if not self.shell.answers():
                return False
            self.shell.open()
            return self.try_run('test -e /run/lab/ready')[0] == 0
        wait.until(booted, '%s to boot' % self.name, timeout, 0.2,
                   lambda: paths.tail(self.machine.console))

    def cut_network(self):
        """Disconnect the network of everything except the laboratory's ssh."""
        network.cut(self.name)

    def restore_network(self):
        network.restore(self.name)

    # Services

    def _service(self, verb, name, timeout):
        self.run('lab-service %s %s' % (verb, name), timeout=timeout)

    def start_service(self, name, timeout=60):
        """Start a service, now and after every boot until it is stopped."""
        self._service('start', name, timeout)

    def stop(self, name, timeout=60):
        """Stop a service as an operator does; it stays stopped."""
        self._service('stop', name, timeout)

    def restart(self, name, timeout=90):
        self._service('restart', name, timeout)

    def kill(self, name, timeout=30):
        """Kill a service and all its child processes with SIGKILL."""
        self._service('kill', name, timeout)

    def enable(self, *names):
        """Enable services from the next boot on."""
        folder = self.machine.share / 'enabled'
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).touch()

    def enabled(self, name):
        """Return whether a service is enabled."""
        return (self.machine.share / 'enabled' / name).exists()

    def log(self, name):
        """Return the whole log of a service, also from before a power cut."""
        path = self.machine.logs / (name + '.log')
        if not path.exists():
            return ''
        return path.read_text(errors='replace')

    def driver_ready(self):
        """Return whether cinder-volume is ready since its last start.

        Its row in the list of services appears before it is ready, and a row
        from before a power cut can still count as up. So both the log and a
        report that is newer than the start are needed.
        """
        since = self._since_start('cinder-volume')
        return _READY in since and self._found(
            'cinder', "SELECT 1 FROM services WHERE NOT deleted AND "
            "host = '%s@dmclone' AND updated_at > FROM_UNIXTIME(%s)"
            % (self.name, since.split()[0]))

    def compute_ready(self):
        """Return whether nova-compute is ready, and Nova knows its host."""
        since = self._since_start('nova-compute')
        return bool(since) and self._found(
            'nova', "SELECT 1 FROM services s, nova_api.host_mappings m "
            "WHERE NOT s.deleted AND s.binary = 'nova-compute' AND "
            "s.host = '%s' AND m.host = s.host AND "
            "s.updated_at > FROM_UNIXTIME(%s)" % (
                self.name, since.split()[0]))

    def backup_ready(self):
        """Return whether cinder-backup is ready."""
        since = self._since_start('cinder-backup')
        return bool(since) and self._found(
            'cinder', "SELECT 1 FROM services WHERE NOT deleted AND "
            "`binary` = 'cinder-backup' AND host = '%s' AND "
            "updated_at > FROM_UNIXTIME(%s)" % (self.name, since.split()[0]))

    #: {service: method that returns whether it is ready}
    READY = {'cinder-volume': driver_ready, 'nova-compute': compute_ready,
             'cinder-backup': backup_ready}

    def _since_start(self, name):
        """Return the log since a service's last start, from its time on."""
        _, found, since = self.log(name).rpartition(_STARTED % name)
        return since if found else ''

    @staticmethod
    def _found(name, query):
        try:
            return bool(database.execute(query, name))
        except errors.LabError:
            return False        # the database is down

    def wait_ready(self, timeout=180):
        """Wait until ssh and the node's enabled services are ready."""
        self.wait_booted(timeout)
        for name, is_ready in self.READY.items():
            if self.enabled(name):
                self._wait_service(name, is_ready, timeout)

    def _wait_service(self, name, is_ready, timeout):
        log = self.machine.logs / (name + '.log')

        def ready():
            code = self.try_run('lab-service status ' + name)[0]
            if code:
                raise errors.LabError('%s on %s died:\n%s' % (
                    name, self.name, paths.tail(log)))
            return is_ready(self)
        wait.until(ready, '%s on %s to be ready' % (name, self.name), timeout,
                   0.3, lambda: paths.tail(log))

    # Settings

    def _write_settings(self):
        base = config.cinder_node(self.name, self.ip, self.settings)
        changes = json.loads(self._changes.read_text()) \
            if self._changes.exists() else {}
        config.write(self.machine.share / 'cinder.conf',
                     config.merged(base, changes))
        config.write(self.machine.share / 'nova.conf',
                     config_nova.nova_node(self.name, self.ip))

    def configure(self, changes):
        """Replace this node's changes of cinder.conf, for the next start.

        :param changes: {'section': {'option': 'value'}} with all changes; {}
                restores the laboratory's settings
        """
        self._changes.write_text(json.dumps(changes))
        self._write_settings()

    def use_mode(self, mode):
        """Set the threading of cinder-volume, for its next start.

        :param mode: 'eventlet' or 'threads'
        """
        self.settings = dataclasses.replace(self.settings, mode=mode)
        nodefiles.write(self)

    # Health

    def troubles(self):
        """Return one line per hang or crash of the node itself."""
        return self.machine.troubles()

    def check(self):
        """Raise if the node has hung or crashed by itself."""
        troubles = self.troubles()
        if troubles:
            raise errors.LabError('THE LABORATORY FAILED: ' +
                                  ', '.join(troubles))
