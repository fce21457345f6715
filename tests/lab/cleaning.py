# SPDX-License-Identifier: Apache-2.0
"""Removing a laboratory, whole or half, even after its program crashed."""

import shutil

from tests.lab import control
from tests.lab import errors
from tests.lab import network
from tests.lab import paths
from tests.lab import proc
from tests.lab import settings


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
