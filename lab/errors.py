# SPDX-License-Identifier: Apache-2.0
"""The one exception of the laboratory, and how it says what it is doing."""

import sys
import time

_BEGIN = time.monotonic()


class LabError(Exception):
    """Something in the laboratory did not work; the text says what."""


def say(text):
    """Print a short line with the seconds since the program began."""
    elapsed = time.monotonic() - _BEGIN
    print('[%5.1fs] %s' % (elapsed, text), file=sys.stderr, flush=True)
