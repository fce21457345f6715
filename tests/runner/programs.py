# SPDX-License-Identifier: Apache-2.0
"""Programs of a run: all end with it, and some have a time limit."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time

from lab import paths

# Seconds between SIGTERM and SIGKILL, as with timeout -k.
PATIENCE = 30


def say(text):
    """Print a line about the run itself."""
    print('== ' + text, flush=True)


def logs_folder():
    """Return the folder of logs after a failure."""
    return pathlib.Path(os.environ.get('DMCLONE_TEST_LOGS')
                        or paths.CHECKOUT / 'test-logs')


@contextlib.contextmanager
def started(argv, stdin=subprocess.DEVNULL, **kwargs):
    """Start a program in its own session; it is ended with the block."""
    process = subprocess.Popen([str(each) for each in argv], stdin=stdin,
                               cwd=paths.CHECKOUT, start_new_session=True,
                               **kwargs)
    try:
        yield process
    finally:
        end(process)


def end(process):
    """End a program and the processes of its session."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            _wait_gone(process)


def _wait_gone(process):
    """Wait for the processes of a session, up to PATIENCE.

    :raises ProcessLookupError: if all have ended
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        process.poll()
        os.killpg(process.pid, 0)
        time.sleep(0.1)


def quietly(argv):
    """Run a program; print its output only if it fails."""
    with started(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                 text=True) as program:
        said, _ = program.communicate()
    if program.returncode:
        print(said, flush=True)


def code_of(process):
    """Return a program's exit code as in a shell."""
    return 128 - process.returncode if process.returncode < 0 else \
        process.returncode
