# SPDX-License-Identifier: Apache-2.0
"""Run the files of a folder of tests on all nodes of a laboratory at once.

usage: python3 -m tests.runner.nodes FOLDER > STREAM

Each node takes the next file when it is done with one. A node has a kernel and
disks of its own, so that the tests on one do not see those on another. The
output of a file, with its subunit stream, follows when it has ended. The exit
code is that of the last file that has failed, or 0.
"""

from concurrent import futures
import os
import queue
import shlex
import subprocess
import sys
import threading

from lab import paths
from lab import settings

_COMMAND = ('cd {checkout} && lab-service stop cinder-volume && '
            'PYTHONPATH={checkout} PYTHONDONTWRITEBYTECODE=1 '
            'DMCLONE_MOMENTS_PERCENT={percent} '
            'exec {python} -m subunit.run {module}')


def files(folder):
    """Return the names of the modules of a folder of tests, in order."""
    found = sorted((paths.CHECKOUT / 'tests' / folder).glob('test_*.py'))
    return ['tests.%s.%s' % (folder, each.stem) for each in found]


def command(node, module):
    """Return the arguments that run a module's tests on a node.

    The service would handle the tests' clones, too. The node has the checkout
    and the environment at the same paths.
    """
    return [str(paths.CHECKOUT / 'tools/lab'), 'run', node, _COMMAND.format(
        checkout=shlex.quote(str(paths.CHECKOUT)),
        python=shlex.quote(str(paths.VENV / 'bin/python')), module=module,
        percent=int(os.environ.get('DMCLONE_MOMENTS_PERCENT') or 100))]


class Runs:
    """The runs of modules on nodes."""

    def __init__(self, modules, out):
        """Prepare to run modules.

        :param out: a binary file, which gets all output
        """
        #: The exit code.
        self.code = 0
        self._left = queue.SimpleQueue()
        for module in modules:
            self._left.put(module)
        self._out, self._lock = out, threading.Lock()

    def _run_on(self, node):
        """Run modules on a node while there are any."""
        while True:
            try:
                module = self._left.get_nowait()
            except queue.Empty:
                return
            done = subprocess.run(command(node, module), check=False,
                                  stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE)
            with self._lock:
                self.code = done.returncode or self.code
                self._out.write(done.stdout)
                self._out.flush()

    def run(self, nodes):
        """Run all modules.

        :param nodes: their names
        :returns: the exit code
        :raises OSError: if a program could not be started
        """
        with futures.ThreadPoolExecutor(len(nodes)) as pool:
            for job in [pool.submit(self._run_on, node) for node in nodes]:
                job.result()
        return self.code


if __name__ == '__main__':
    sys.exit(Runs(files(sys.argv[1]), sys.stdout.buffer).run(
        settings.Settings.load().names()))
