# SPDX-License-Identifier: Apache-2.0
"""Commands on a node over one persistent ssh connection."""

import subprocess

from lab import command
from lab import errors
from lab import network
from lab import paths
from lab import proc

_OPTIONS = {
    'StrictHostKeyChecking': 'no',
    'UserKnownHostsFile': '/dev/null',
    'LogLevel': 'ERROR',
    'BatchMode': 'yes',
    'ConnectTimeout': '5',
    # With shorter intervals a busy node would count as dead.
    'ServerAliveInterval': '5',
    'ServerAliveCountMax': '6',
}


class Shell:
    """Runs commands on one node."""

    def __init__(self, name, address):
        self.name = name
        self._address = address
        self._master = 'ssh-' + name
        self._socket = paths.RUN / ('%s.ssh' % name)

    def argv(self, *options):
        """Return a command line of ssh to the node, without a command."""
        settings = dict(_OPTIONS, IdentityFile=paths.SSH_KEY,
                        ControlPath=self._socket)
        args = [a for key, value in settings.items()
                for a in ('-o', '%s=%s' % (key, value))]
        return [*network.quick_wrapper(), 'ssh', '-F', '/dev/null', *args,
                *options, 'root@' + self._address]

    def open(self):
        """Open the persistent connection unless it is open."""
        if proc.alive(self._master) and self._socket.exists():
            return
        self.close()
        # Not ControlPersist: its process would keep our pipes open.
        proc.start(self._master, self.argv('-M', '-N'),
                   paths.LOGS / 'ssh.log')

    def close(self):
        """Kill the connection, without a message to the node."""
        proc.kill(self._master)
        self._socket.unlink(missing_ok=True)

    def attempt(self, text, timeout=60, input=None):
        """Run a shell command; return (exit code, stdout, stderr)."""
        return command.attempt([*self.argv(), text], timeout=timeout,
                               input=input,
                               label='(on %s) %s' % (self.name, text))

    def run(self, text, timeout=60, input=None):
        """Run a shell command; return stdout.

        :raises LabError: if it fails
        """
        code, out, err = self.attempt(text, timeout, input)
        if code:
            raise errors.LabError('exit code %d on %s from: %s\n%s%s' % (
                code, self.name, text, out[-4000:], err[-4000:]))
        return out

    def answers(self):
        """Return whether the node runs a command within 8 s."""
        try:
            return self.attempt('true', timeout=8)[0] == 0
        except errors.LabError:
            return False

    def interactive(self, words=()):
        """Run a command, or a shell, on the caller's terminal."""
        argv = self.argv('-t') if not words else self.argv()
        return subprocess.call([str(a) for a in [*argv, *words]])
