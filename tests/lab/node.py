# SPDX-License-Identifier: Apache-2.0
"""A node as tests use it: commands, power, network, services, settings."""

import shutil

from tests.lab import errors
from tests.lab import machine
from tests.lab import network
from tests.lab import nodefiles
from tests.lab import paths
from tests.lab import ssh
from tests.lab import wait

SERVICES = ('cinder-volume', 'tgtd', 'iscsid')


class Node:
    """One hypervisor of the laboratory."""

    def __init__(self, name, number, settings):
        self.name = name
        self.ip = network.node_ip(number)
        self.machine = machine.Machine(name, number, settings)
        self.settings = settings
        self.shell = ssh.Shell(name, network.node_mgmt_ip(number))

    def run(self, text, timeout=60, check=True, input=None):
        """Run a shell command on the node and return its stdout.

        A LabError with all it said follows when it fails, unless check is
        false. See try_run for the exit code.
        """
        if check:
            return self.shell.run(text, timeout, input)
        return self.shell.attempt(text, timeout, input)[1]

    def try_run(self, text, timeout=60, input=None):
        """Run a shell command; return (exit code, stdout, stderr)."""
        return self.shell.attempt(text, timeout, input)

    def cut_power(self):
        """Pull the plug: what no disk got is lost."""
        self.machine.power_off()
        self.shell.close()

    def power_on(self):
        """Press the button; wait for nothing."""
        nodefiles.write(self)
        self.machine.power_on()

    def start(self, timeout=60):
        """Switch the node on and wait until it has booted."""
        self.power_on()
        self.wait_booted(timeout)

    def wait_booted(self, timeout=60):
        def booted():
            self.machine.must_live()
            if not self.shell.answers():
                return False
            self.shell.open()
            return self.try_run('test -e /run/lab/ready')[0] == 0
        wait.until(booted, '%s to boot' % self.name, timeout, 0.2,
                   lambda: paths.tail(self.machine.console))

    def cut_network(self):
        """Pull the cable that carries all but the ssh of the laboratory."""
        network.cut(self.name)

    def restore_network(self):
        network.restore(self.name)

    def gaps(self):
        """The times for which the node stood still; see check_gaps."""
        return self.machine.gaps()

    def check_gaps(self):
        """Raise when the node stood still for more than 5 s."""
        gaps = self.gaps()
        if gaps:
            raise errors.LabError('THE LABORATORY FAILED: ' + ', '.join(
                '%s stood still for %.1f s at %.0f' % (self.name, gap, at)
                for at, gap in gaps))

    def forget(self):
        """Remove the disks."""
        shutil.rmtree(self.machine.folder, ignore_errors=True)
