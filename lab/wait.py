# SPDX-License-Identifier: Apache-2.0
"""Wait for a condition with a time limit."""

import time

from lab import errors


def until(fn, what, timeout, interval=0.5, log=None):
    """Call fn until its result is true; return the result.

    :param what: the condition, as it reads after 'waited N s for'
    :param log: called at a timeout for more text of the message
    :raises LabError: at a timeout
    """
    end = time.monotonic() + timeout
    while True:
        result = fn()
        if result:
            return result
        if time.monotonic() >= end:
            text = 'timeout: waited %g s for %s' % (timeout, what)
            extra = log() if log else ''
            raise errors.LabError(text + ('\n%s' % extra if extra else ''))
        time.sleep(interval)
