# SPDX-License-Identifier: Apache-2.0
"""Errors in the logs of the services while a test runs."""

import contextlib
import os

from lab import errors
from lab import paths
from lab import wait

#: The loggers of background jobs, which refuse no request.
BACKGROUND = ' dmclone_driver.move.'


class Logs:
    """The lines with some levels since the beginning of a test."""

    def __init__(self, test, levels=('ERROR',)):
        self._levels = [' %s ' % level for level in levels]
        self.lines = []
        self._files = []
        for path in (test.home.machine.logs / 'cinder-volume.log',
                     test.peer.machine.logs / 'cinder-volume.log',
                     paths.LOGS / 'cinder-scheduler.log'):
            log = open(path, errors='replace')  # noqa: SIM115
            test.addCleanup(log.close)
            log.seek(0, os.SEEK_END)
            self._files.append(log)

    def read(self):
        """Read new lines."""
        for log in self._files:
            self.lines += [line.strip() for line in log if any(
                level in line for level in self._levels)]

    def said(self, *ids, since=0, but=None):
        """Return the first line with one of some ids, or ''.

        :param but: text of lines that do not count
        """
        return next((line for line in self.lines[since:]
                     if any(each in line for each in ids) and
                     not (but and but in line)), '')

    def wait_for(self, seconds, condition):
        """Read new lines until a condition is true, or for some time."""
        def met():
            self.read()
            return condition()
        with contextlib.suppress(errors.LabError):
            wait.until(met, 'the logs', seconds)
