# SPDX-License-Identifier: Apache-2.0
"""Base of scenarios: the laboratory that is up, its user, the clean-up."""

import contextlib
import time
import unittest

from lab.common import commands
from lab.common import user as user_module
from lab.common import volumes
from lab import lab as lab_module
from lab import wait
from tests.scenarios.lib import marks


class E2ETest(marks.Marked, volumes.Volumes, unittest.TestCase):
    """A test that deletes all volumes at its end, and checks for leftovers."""

    def setUp(self):
        super().setUp()
        self.lab = lab_module.Lab.load()
        self.lab.check()
        for node in self.lab.nodes.values():
            node.wait_ready()
        self.user = user_module.User(self.lab)
        self.addCleanup(self.clean_up)

    def program(self, node, name, *arguments):
        """Run one of the commands for a backend: see :meth:`command`."""
        return self.command(node, name, 'dmclone', *arguments)

    def command(self, node, name, *arguments, timeout=120):
        """Run one of the driver's commands on a node.

        :param timeout: in seconds
        :returns: (exit code, lines of stdout, stderr)
        """
        code, out, err = commands.run(node, name, *arguments,
                                      timeout=timeout)
        self.assertNotIn('Traceback', err)
        return code, out.splitlines(), err


class HydratingTest(E2ETest):
    """A test with a volume that hydrates."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.node, self.before = self.filled_volume(whole=True)
        self.peer = self.other(self.node)

    def attach_and_write(self):
        """Attach the volume away and write to it there.

        :returns: (path, expected checksum)
        """
        path = user_module.path(self.user.attach(self.volume_id, self.peer))
        expected = self.checksum_with(self.peer, path, 20, 'one')
        self.write(self.peer, path, 20, 'one')
        return path, expected


class TwoAttachmentsTest(E2ETest):
    """A test with a volume that one instance has attached on two nodes."""

    def setUp(self):
        super().setUp()
        self.volume_id, self.old, self.before = self.filled_volume()
        self.new = self.other(self.old)
        self.instance = user_module.uuid4()
        self.first = self.user.attach(self.volume_id, self.old, self.instance)
        self.second = self.user.attach(self.volume_id, self.new,
                                       self.instance)
        self.old_path = user_module.path(self.first)
        self.new_path = user_module.path(self.second)

    def assert_passive(self):
        self.assertEqual(self.old, self.home(self.volume_id))
        self.assertIn(' 0/', self.clone_status(self.new, self.new_path))

    def begin(self, command):
        """Start a command on the new node that may have to wait."""
        self.new.run('rm -f /run/code; (%s; echo $? > /run/code) '
                     '> /dev/null 2>&1 &' % command)

    def end(self):
        """Wait for the end of that command; returns its exit code."""
        return wait.until(
            lambda: self.new.run('cat /run/code 2>/dev/null; true').strip(),
            'the command at the gate to end', 30)

    def flush(self):
        """Flush as the guest, before it has written anything."""
        self.begin("python3 -c 'import os; os.fsync(os.open(\"%s\", "
                   "os.O_RDWR))'" % self.new_path)
        time.sleep(3)
        self.assert_passive()


class SetupTest(E2ETest):
    """A test with other options, which are reset at its end."""

    @contextlib.contextmanager
    def configured(self, options, *nodes, mode=None):
        """Run nodes with other options of the backend.

        :param mode: 'eventlet' or 'threads', if not the lab's default
        """
        usual = self.lab.settings.mode
        self._configure({'dmclone': options}, nodes, mode or usual)
        try:
            yield
        finally:
            self._configure({}, nodes, usual)

    def _configure(self, changes, nodes, mode):
        for node in nodes:
            node.stop('cinder-volume')
            node.configure(changes)
            node.use_mode(mode)
            node.start_service('cinder-volume')
        for node in nodes:
            node.wait_ready()
