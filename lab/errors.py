# SPDX-License-Identifier: Apache-2.0
"""The exception of the laboratory, and its progress messages."""

import sys
import time

_BEGIN = time.monotonic()


class LabError(Exception):
    """An operation of the laboratory failed; see its text."""


def say(text):
    """Print a short line with the seconds since the program began."""
    elapsed = time.monotonic() - _BEGIN
    print('[%5.1fs] %s' % (elapsed, text), file=sys.stderr, flush=True)
