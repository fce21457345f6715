# SPDX-License-Identifier: Apache-2.0
"""A progress bar on a terminal, progress lines in other output."""

import collections
import math
import time

MIB = 1024 * 1024
_WIDTH = 26
_WINDOW = 5         # seconds over which the rate is measured
_PAUSE = 5          # seconds between two lines in other output
_STILL = MIB / 20   # bytes per second below which a copy is stalled


class Bar:
    """The amount of copied data, the rate, and the remaining time."""

    def __init__(self, screen, total):
        self._screen = screen
        self._total = total
        self._samples = collections.deque()
        self._printed = float('-inf')
        self._last = None

    def _rate(self, now, done):
        """Return the current bytes per second, None at the start."""
        self._samples.append((now, done))
        while self._samples[0][0] < now - _WINDOW and \
                len(self._samples) > 2:
            self._samples.popleft()
        then, before = self._samples[0]
        return (done - before) / (now - then) if now > then else None

    def _text(self, done, rate):
        filled = _WIDTH * done // self._total
        if done >= self._total:
            rest = '   complete'
        elif rate is None:
            rest = ''
        elif rate > _STILL:
            rest = '%6.1f MiB/s  %d s left' % (
                rate / MIB, math.ceil((self._total - done) / rate))
        else:
            rest = '   stalled'
        text = '  [%s%s] %3d %% %5d of %d MiB %s' % (
            '#' * filled, '.' * (_WIDTH - filled), 100 * done // self._total,
            done // MIB, self._total // MIB, rest)
        return text.rstrip()

    def show(self, done):
        """Show the number of bytes that are copied."""
        now = time.monotonic()
        self._last = self._text(done, self._rate(now, done))
        if self._screen.tty:
            self._screen.redraw(self._last)
        elif now >= self._printed + _PAUSE:
            self._print(now)

    def _print(self, now):
        self._screen.line(self._last)
        self._printed = now
        self._last = None

    def rest(self):
        """End the bar with its last state, before other lines."""
        if self._last is None:
            return
        if self._screen.tty:
            self._screen.line()
        else:
            self._print(time.monotonic())
        self._last = None

    @property
    def interval(self):
        """The seconds between two updates."""
        return 0.5 if self._screen.tty else 1
