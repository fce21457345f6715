# SPDX-License-Identifier: Apache-2.0
"""Remove a complete or partial laboratory, also after a crash."""

import contextlib
import fcntl
import shutil

from lab import control
from lab import errors
from lab import network
from lab import paths
from lab import proc
from lab import settings


@contextlib.contextmanager
def exclusively():
    """Allow one `up` or `down` at a time."""
    paths.STATE.mkdir(parents=True, exist_ok=True)
    with open(paths.STATE / 'lock', 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.LabError('another `tools/lab up` or `down` is '
                                  'running')
        yield


def clean():
    """Remove a laboratory's processes and files, except for its logs."""
    for name in proc.names():
        proc.kill(name)
    if network.exists():
        for pid in network.pids():
            errors.say('process %d in the namespace was not started by the '
                       'laboratory and is not killed' % pid)
    network.destroy()
    shutil.rmtree(paths.NODES, ignore_errors=True)
    shutil.rmtree(paths.RUN, ignore_errors=True)
    control.Control().forget()
    settings.forget()
