# SPDX-License-Identifier: Apache-2.0
"""The output: short lines with times, commands, tables."""

import sys
import textwrap
import time

WIDTH = 78
_INDENT = ' ' * 9


class Screen:
    """Standard output, with the seconds since the start."""

    def __init__(self):
        self.begin = time.monotonic()
        self.tty = sys.stdout.isatty()

    def _print(self, text=''):
        print(text, flush=True)

    def title(self, text):
        """Print the title of a chapter."""
        self._print('\n== %s %s' % (text, '=' * (WIDTH - 4 - len(text))))

    def say(self, text):
        """Print a text with the time."""
        stamp = '[%5.1fs] ' % (time.monotonic() - self.begin)
        self._print(textwrap.fill(
            text, WIDTH, initial_indent=stamp, subsequent_indent=_INDENT,
            break_long_words=False, break_on_hyphens=False))

    def command(self, where, text):
        """Print a command."""
        lines = textwrap.wrap(
            '%s %s' % (where, text), WIDTH - 2, initial_indent=_INDENT,
            subsequent_indent=_INDENT + '    ', break_long_words=False,
            break_on_hyphens=False)
        self._print(' \\\n'.join(lines))

    def output(self, text):
        """Print the output of a command."""
        for line in text.strip().splitlines() or ['(nothing)']:
            self._print(textwrap.fill(
                line.strip(), WIDTH, initial_indent=_INDENT + '| ',
                subsequent_indent=_INDENT + '|     ', break_long_words=False,
                break_on_hyphens=False, expand_tabs=False))

    def redraw(self, text):
        """Replace the last line; only on a terminal."""
        sys.stdout.write('\r\033[K' + text)
        sys.stdout.flush()

    def line(self, text=''):
        """Print a line unchanged."""
        self._print(text)

    def table(self, rows):
        """Print a table of durations, with rows (what, seconds, remark)."""
        for what, seconds, remark in rows:
            line = '  %-48s%7.1f s  %s' % (what, seconds, remark)
            self._print(line.rstrip())
