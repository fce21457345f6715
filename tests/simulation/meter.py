# SPDX-License-Identifier: Apache-2.0
"""What a simulated cloud does a second, at a time, and its waits."""

import collections
import statistics


class Meter:
    """Counts by kind, node and second of a clock."""

    def __init__(self, clock):
        self._clock = clock
        self._at_once = collections.Counter()
        self.reset()

    def reset(self):
        """Begin again; what is under way goes on."""
        self._start = self._clock.now
        self._seconds = collections.defaultdict(collections.Counter)
        self._nodes = collections.defaultdict(collections.Counter)
        self._waits = collections.defaultdict(list)
        self._most = collections.Counter(self._at_once)

    def count(self, kind, node=None):
        """Count something that happens now, on a node or elsewhere."""
        self._seconds[kind][int(self._clock.now)] += 1
        if node is not None:
            self._nodes[kind][node] += 1

    def begin(self, kind, number=1):
        """Count something that is there from now on."""
        self._at_once[kind] += number
        self._most[kind] = max(self._most[kind], self._at_once[kind])

    def end(self, kind):
        """Count something that is there no longer."""
        self._at_once[kind] -= 1

    def now(self, kind, number):
        """Note how many are there now."""
        self.begin(kind, number - self._at_once[kind])

    def waited(self, kind, seconds):
        """Note how long somebody has waited."""
        self._waits[kind].append(seconds)

    def has_waited(self, kind):
        """Whether the end of a wait was noted."""
        return bool(self._waits[kind])

    @property
    def duration(self):
        """The seconds since the start."""
        return self._clock.now - self._start

    def total(self, kind):
        """Return the number of a kind since the start."""
        return sum(self._seconds[kind].values())

    def rows(self):
        """Yield what was measured: (what, number)."""
        yield 'seconds', self.duration
        for kind in sorted(self._seconds):
            seconds, nodes = self._seconds[kind], self._nodes[kind]
            yield kind, self.total(kind)
            yield kind + ': a second', self.total(kind) / self.duration
            yield kind + ': most in one second', max(seconds.values())
            if nodes:
                yield (kind + ': a second, at the busiest node',
                       max(nodes.values()) / self.duration)
        for kind in sorted(self._most):
            yield kind + ': most at a time', self._most[kind]
        for kind, found in sorted(self._waits.items()):
            yield kind + ': number', len(found)
            yield kind + ': median, s', statistics.median(found)
            yield kind + ': longest, s', max(found)
