# SPDX-License-Identifier: Apache-2.0
"""What the reader sees: short lines with a clock, commands, tables."""

import sys
import textwrap
import time

WIDTH = 78
_INDENT = ' ' * 9


class Screen:
    """Standard output, with the seconds since the story began."""

    def __init__(self):
        self.begin = time.monotonic()
        self.tty = sys.stdout.isatty()

    def _print(self, text=''):
        print(text, flush=True)

    def title(self, text):
        """Begin a step of the story."""
        self._print('\n== %s %s' % (text, '=' * (WIDTH - 4 - len(text))))

    def say(self, text):
        """Tell what happens."""
        stamp = '[%5.1fs] ' % (time.monotonic() - self.begin)
        self._print(textwrap.fill(
            text, WIDTH, initial_indent=stamp, subsequent_indent=_INDENT,
            break_long_words=False, break_on_hyphens=False))

    def command(self, where, text):
        """Show a command that is run now."""
        lines = textwrap.wrap(
            '%s %s' % (where, text), WIDTH - 2, initial_indent=_INDENT,
            subsequent_indent=_INDENT + '    ', break_long_words=False,
            break_on_hyphens=False)
        self._print(' \\\n'.join(lines))

    def output(self, text):
        """Show what a command said."""
        for line in text.strip().splitlines() or ['(nothing)']:
            self._print(textwrap.fill(
                line.strip(), WIDTH, initial_indent=_INDENT + '| ',
                subsequent_indent=_INDENT + '|     ', break_long_words=False,
                break_on_hyphens=False, expand_tabs=False))

    def redraw(self, text):
        """Show a line in place of the last one; only for a terminal."""
        sys.stdout.write('\r\033[K' + text)
        sys.stdout.flush()

    def line(self, text=''):
        """Show a line as it is."""
        self._print(text)

    def table(self, rows):
        """Show what took how long: (what, seconds, remark) a row."""
        for what, seconds, remark in rows:
            line = '  %-48s%7.1f s  %s' % (what, seconds, remark)
            self._print(line.rstrip())
