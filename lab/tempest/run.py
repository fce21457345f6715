# SPDX-License-Identifier: Apache-2.0
"""Tempest's program: what it lists, and a run of it."""

import json
import os
import re
import subprocess
import sys

from lab import command
from lab import config
from lab import errors
from lab import network
from lab import paths
from lab.tempest import outcomes
from lab import venv

_TEST = re.compile(r'^(tempest|cinder_tempest_plugin)\.\S+$', re.MULTILINE)


class Tempest:
    """Tempest with its settings, in a folder of its own."""

    def __init__(self, folder, settings):
        """Write the settings.

        :param folder: must exist; gets the log, and stestr's repository,
                without which no test is listed
        """
        self.folder = folder
        self.file = folder / 'tempest.conf'
        config.write(self.file, settings)
        command.run([venv.TEMPEST / 'bin/stestr', 'init'], cwd=folder)

    def _argv(self, *words):
        return [venv.TEMPEST / 'bin/tempest', 'run', '--config-file',
                self.file, *words]

    def _options(self):
        env = {key: value for key, value in os.environ.items()
               if not key.startswith(('OS_', 'PYTHON', 'TEMPEST'))}
        env['PATH'] = '%s:%s' % (venv.TEMPEST / 'bin', env['PATH'])
        return {'env': env, 'cwd': self.folder}

    def tests(self, regex):
        """Return the ids of all tests that match.

        :raises LabError: if there are none
        """
        listed = command.run(self._argv('--list-tests', '--regex', regex),
                             timeout=600, **self._options())
        found = [match[0] for match in _TEST.finditer(listed)]
        if not found:
            raise errors.LabError('no test of Tempest matches %s' % regex)
        return found

    def run(self, tests, concurrency, show):
        """Run tests inside the laboratory's network.

        :param tests: ids
        :param show: called with each piece of the subunit stream
        :returns: (exit code, list of outcomes.Outcome)
        """
        wanted = self.folder / 'tests'
        wanted.write_text('\n'.join(tests) + '\n')
        stream = self.folder / 'stream'
        argv = [*network.wrapper(), *self._argv(
            '--load-list', wanted, '--concurrency', concurrency, '--subunit')]
        with open(stream, 'wb') as kept, subprocess.Popen(
                [str(each) for each in argv], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, **self._options()) as program:
            try:
                for piece in iter(lambda: os.read(
                        program.stdout.fileno(), 1 << 16), b''):
                    kept.write(piece)
                    show(piece)
            except BaseException:
                program.terminate()     # it is waited for
                raise
        return program.returncode, self._outcomes(stream)

    @staticmethod
    def _outcomes(stream):
        said = command.run(
            [venv.TEMPEST / 'bin/python', '-P', '-m', 'lab.tempest.outcomes',
             stream], timeout=600, env=dict(
                 os.environ, PYTHONPATH=str(paths.CHECKOUT)))
        return [outcomes.Outcome(*each) for each in json.loads(said)]


class Shown:
    """A subunit stream, printed test by test; a context manager."""

    def __init__(self, counts):
        """Start tools/results.

        :param counts: a file that it writes
        """
        self._program = subprocess.Popen(
            [str(venv.TEMPEST / 'bin/python'),
             str(paths.CHECKOUT / 'tools/results'), str(counts)],
            stdin=subprocess.PIPE)

    def __call__(self, piece):
        self._program.stdin.write(piece)
        self._program.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self._program.stdin.close()
        self._program.wait()


def to_stdout(piece):
    """Pass a piece of a stream on."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
