# SPDX-License-Identifier: Apache-2.0
"""Errors in the logs of the services while a test runs."""

import contextlib
import os
import re

from lab import errors
from lab import paths
from lab import wait

#: The loggers of background jobs, which refuse no request.
BACKGROUND = ' dmclone_driver.move.'
_REQUEST = re.compile(r'\[None (req-[0-9a-f-]+) ')


def request_ids(*lines):
    """Return the ids of the requests that have logged some lines."""
    return [found for line in lines for found in _REQUEST.findall(line)]


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

    def said(self, *ids, since=0, but=()):
        """Return the first line with one of some ids, or ''.

        :param but: texts; lines that have one of them do not count
        """
        return next((line for line in self.lines[since:]
                     if any(each in line for each in ids) and
                     not any(each in line for each in but)), '')

    def wait_for(self, seconds, condition):
        """Read new lines until a condition is true, or for some time."""
        def met():
            self.read()
            return condition()
        with contextlib.suppress(errors.LabError):
            wait.until(met, 'the logs', seconds)
