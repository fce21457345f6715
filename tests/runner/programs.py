# SPDX-License-Identifier: Apache-2.0
"""Programs that a run starts: none outlives it, and some have their time."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from lab import paths

# Seconds that a program has to end when it is asked to, as with timeout -k.
PATIENCE = 30


def say(text):
    """Print a line about the run itself."""
    print('== ' + text, flush=True)


def logs_folder():
    """Return where logs go after a failure."""
    return pathlib.Path(os.environ.get('DMCLONE_TEST_LOGS')
                        or paths.CHECKOUT / 'test-logs')


@contextlib.contextmanager
def started(argv, stdin=subprocess.DEVNULL, **kwargs):
    """Start a program with a session of its own; it ends with the block."""
    process = subprocess.Popen([str(each) for each in argv], stdin=stdin,
                               cwd=paths.CHECKOUT, start_new_session=True,
                               **kwargs)
    try:
        yield process
    finally:
        end(process)


def end(process):
    """End a program that still runs, and what it has started."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            _wait_gone(process)


def _wait_gone(process):
    """Wait for a program and what it has started, but not for long.

    :raises ProcessLookupError: if there is nothing to wait for
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.poll()
        os.killpg(process.pid, 0)
        time.sleep(0.1)


def quietly(argv):
    """Run a program; print what it has said if it fails."""
    with started(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 text=True) as program:
        said, _ = program.communicate()
    if program.returncode:
        print(said, flush=True)


def code_of(process):
    """Return a program's exit code as a shell gives it."""
    return 128 - process.returncode if process.returncode < 0 else \
        process.returncode
