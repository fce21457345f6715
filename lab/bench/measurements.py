# SPDX-License-Identifier: Apache-2.0
"""Measurements by name, printed at once, and summarised at the end."""

import statistics
import time


class Measurements:
    """Repeated measurements, most in seconds, in the order of their names."""

    def __init__(self):
        self.seconds = {}

    def note(self, what, seconds, unit='s'):
        """Keep and print a measurement.

        :param unit: printed after it
        """
        self.seconds.setdefault(what, []).append(seconds)
        print('  %-50s %8.2f %s' % (what, seconds, unit), flush=True)

    def timed(self, what, function, *args):
        """Keep the duration of a call; returns the call's result."""
        start = time.monotonic()
        result = function(*args)
        self.note(what, time.monotonic() - start)
        return result

    def report(self, ratios):
        """Print medians and spreads, and ratios of medians.

        :param ratios: pairs of names
        """
        print('\n%-50s %8s %8s %8s' % ('', 'median', 'least', 'most'))
        for what, values in self.seconds.items():
            print('%-50s %8.2f %8.2f %8.2f' % (
                what, statistics.median(values), min(values), max(values)))
        for one, other in ratios:
            if one in self.seconds and other in self.seconds:
                print('%s : %s = %.2f' % (
                    one, other, statistics.median(self.seconds[one]) /
                    statistics.median(self.seconds[other])))
