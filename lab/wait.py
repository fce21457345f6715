# SPDX-License-Identifier: Apache-2.0
"""Waiting with a limit, and with a message that says what was waited for."""

import time

from lab import errors


def until(fn, what, timeout, interval=0.5, log=None):
    """Call fn until it returns something true; return that.

    :param what: what is waited for, as it reads after 'waited for'
    :param log: called for extra text when the time is over
    """
    end = time.monotonic() + timeout
    while True:
        result = fn()
        if result:
            return result
        if time.monotonic() >= end:
            text = 'waited %g s for %s, in vain' % (timeout, what)
            extra = log() if log else ''
            raise errors.LabError(text + ('\n%s' % extra if extra else ''))
        time.sleep(interval)
