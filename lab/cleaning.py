# SPDX-License-Identifier: Apache-2.0
"""Removing a laboratory, whole or half, even after its program crashed."""

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
    """Let only one command at a time build up or take down."""
    paths.STATE.mkdir(parents=True, exist_ok=True)
    with open(paths.STATE / 'lock', 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.LabError('another `tools/lab up` or `down` is at '
                                  'work')
        yield


def clean():
    """Remove whatever of a laboratory is there but its logs, nothing else."""
    for name in proc.names():
        proc.kill(name)
    if network.exists():
        for pid in network.pids():
            errors.say('left alone, it was not started by the laboratory: '
                       'process %d in its namespace' % pid)
    network.destroy()
    shutil.rmtree(paths.NODES, ignore_errors=True)
    shutil.rmtree(paths.RUN, ignore_errors=True)
    control.Control().forget()
    settings.forget()
