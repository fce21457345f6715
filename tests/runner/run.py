# SPDX-License-Identifier: Apache-2.0
"""A run of sets: counts of tests, and the laboratory that sets share."""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback

from lab import errors
from lab import setup
from lab import venv
from tests.runner import laboratory
from tests.runner import programs


class Run:
    """The counts of a run, and the laboratory of its sets."""

    def __init__(self, tools=venv.TOOLS / 'bin'):
        self.passed = self.failed = self.skipped = 0
        #: What failed, as "SET: TEST" or "SET: REASON".
        self.failures = []
        self.tools = tools
        self.laboratory = laboratory.Laboratory()

    @staticmethod
    def install():
        """Install the programs that run and count tests.

        :returns: whether that succeeded
        """
        try:
            setup.tools()
        except (errors.LabError, OSError) as error:
            programs.say('set-up: %s' % error)
            return False
        return True

    def run(self, chosen):
        """Run sets, one after the other, also after a failure."""
        for each in chosen:
            programs.say(each.name)
            begin = time.monotonic()
            try:
                each.run(self, each)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                self.give_up(each.name, 'its run has failed')
            programs.say('%s took %d s' % (each.name,
                                           time.monotonic() - begin))

    # Counts

    def count(self, passed, failed, skipped=0):
        """Add the counts of a set."""
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def give_up(self, name, why):
        """Count a failure for a set that could not run, or ran no test."""
        programs.say('%s: %s' % (name, why))
        self.failures.append('%s: %s' % (name, why))
        self.count(0, 1)

    def summary(self):
        """Return the last line."""
        text = '%d passed, %d failed' % (self.passed, self.failed)
        return text + (', %d skipped' % self.skipped if self.skipped else '')

    def take_counts(self, name, path, code):
        """Add the counts of tools/results, and check their plausibility."""
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines:
            self.give_up(name, 'did not run (code %d)' % code)
            return
        passed, failed, skipped = map(int, lines[:3])
        self.count(passed, failed, skipped)
        self.failures += ['%s: %s' % (name, each) for each in lines[3:]]
        programs.say('%s: %d passed, %d failed, %d skipped' % (
            name, passed, failed, skipped))
        if not passed + failed:
            self.give_up(name, 'no test ran')
        elif code and not failed:
            self.give_up(name, 'ended with code %d though no test failed'
                         % code)

    # Programs

    def tox(self, *arguments, **kwargs):
        """Start tox; see started()."""
        return programs.started([self.tools / 'tox', 'run', *arguments],
                                **kwargs)

    @contextlib.contextmanager
    def counted(self, argv, *arguments, **kwargs):
        """Start a program, and tools/results for its stream.

        :param arguments: of tools/results
        :returns: context of both processes
        """
        output, stream = os.pipe()
        with programs.started(argv, stdout=stream, **kwargs) as program, \
                programs.started(
                    [self.tools / 'python', 'tools/results', *arguments],
                    stdin=output) as reader:
            # Closed here, so that each process notices the other's end.
            os.close(stream)
            os.close(output)
            yield program, reader

    def stream(self, name, argv, seconds, **more):
        """Run a program that writes a subunit stream; print and count it.

        :param seconds: time limit
        :param more: variables of its environment
        """
        with tempfile.TemporaryDirectory() as folder:
            counts = pathlib.Path(folder, 'counts')
            with self.counted(argv, counts, env=dict(
                    os.environ, **more)) as (tests, reader):
                try:
                    tests.wait(seconds)
                except subprocess.TimeoutExpired:
                    programs.end(tests)
                    self.give_up(name, 'not finished after %d seconds'
                                 % seconds)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    reader.wait(10 * programs.PATIENCE)
            self.take_counts(name, counts, programs.code_of(tests))

    def in_lab(self, name, wanted, argv, seconds, **more):
        """Run stream() in a laboratory; keep its logs after a failure.

        :param wanted: the settings that the laboratory must have
        :returns: whether there is a laboratory
        """
        before = self.failed
        try:
            self.laboratory.need(wanted)
        except errors.LabError as error:
            self.give_up(name, 'there is no laboratory: %s' % error)
            if self.laboratory.ours:
                self.laboratory.keep_logs(programs.logs_folder(), name)
            return False
        self.stream(name, argv, seconds, **more)
        if self.failed > before:
            self.laboratory.keep_logs(programs.logs_folder(), name)
        return True
