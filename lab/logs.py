# SPDX-License-Identifier: Apache-2.0
"""Collect the logs of a laboratory that is up or was taken down."""

import pathlib
import shutil

from lab import control
from lab import errors
from lab import paths


def collect(target):
    """Copy all logs and the services' settings into a folder."""
    if not paths.LOGS.is_dir():
        raise errors.LabError('no logs in %s' % paths.LOGS)
    target = pathlib.Path(target)
    shutil.copytree(paths.LOGS, target, dirs_exist_ok=True)
    for settings in paths.NODES.glob('*/share/cinder.conf'):
        shutil.copy(settings, target / settings.parents[1].name)
    if control.ETC.is_dir():
        shutil.copytree(control.ETC, target / 'etc', dirs_exist_ok=True)
