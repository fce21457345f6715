# SPDX-License-Identifier: Apache-2.0
"""What this node has still to do: one queue, one clock, one back-off.

The queue is a hint and may be lost: what has to be done is decided by the
kernel, LVM and the database when it is tried, and a start finds it there.
"""

import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

# Seconds before the first and the last repetition of what failed; the pause
# doubles in between.
RETRY_FIRST, RETRY_LAST = 1, 300
# The last while requests may wait that nobody can see: flushes at a gate,
# reads of a source that is not connected.
RETRY_WAITING = 10


class Pauses:
    """When to try something again that failed for a reason elsewhere."""

    def __init__(self, clock=time.monotonic):
        self._clock = clock
        self._next = {}

    def due(self, key, last=RETRY_LAST):
        """Whether the pause of a key is over; starts the next, longer one.

        :param last: the longest, in seconds
        """
        now = self._clock()
        at, pause = self._next.get(key, (0, RETRY_FIRST))
        if now < at:
            return False
        self._next[key] = (now + pause, min(2 * pause, last))
        return True

    def now(self):
        """Return the time in seconds, from any beginning."""
        return self._clock()

    def forget(self, key):
        """Start again with the shortest pause."""
        self._next.pop(key, None)


class Kind(dict):
    """All jobs of one kind: {id of what they are about: details}."""

    def __init__(self, name, run, last):
        super().__init__()
        self.name = name
        self.run = run
        self.last = last

    def add(self, key, details=None):
        """Let something be done; fine if it is there already."""
        self[key] = details

    def discard(self, key):
        """Forget what was done, or has not to be done any more."""
        self.pop(key, None)


class Jobs:
    """Jobs of all kinds, each kind tried in the background by itself."""

    def __init__(self, clock=time.monotonic):
        self.pauses = Pauses(clock)
        self._kinds = {}
        self._working = set()

    def kind(self, name, run, last=RETRY_LAST):
        """Make a kind of jobs known.

        :param run: function of a request context that tries all jobs of the
            kind, and discards those that are done
        :param last: the longest pause between two tries, in seconds
        """
        if name in self._kinds:
            raise ValueError(name)
        self._kinds[name] = Kind(name, run, last)
        return self._kinds[name]

    def add(self, kind, key, details=None):
        """Let something be done of a kind that is known elsewhere."""
        self._kinds[kind].add(key, details)

    def left(self):
        """Return {name of a kind: ids of what its jobs are about}."""
        return {name: [str(key) for key in list(kind)]
                for name, kind in self._kinds.items() if kind}

    def look(self, context):
        """Start what is due of each kind."""
        for kind in self._kinds.values():
            if not kind:
                self.pauses.forget(kind.name)
            elif self.pauses.due(kind.name, kind.last):
                self.start(kind.name, kind.run, context)

    def at_work(self, key):
        """Whether what was started for a key has not ended yet."""
        return key in self._working

    def start(self, key, function, *args):
        """Run what may take long in the background, once at a time a key.

        A peer may not answer, or a volume be cleared: the writes that wait
        at gates do not wait for that.
        """
        if self.at_work(key):
            return
        self._working.add(key)
        try:
            threading.Thread(target=self.run, daemon=True,
                             args=(key, function, *args)).start()
        except RuntimeError:
            self._working.discard(key)
            raise

    def run(self, key, function, *args):
        """Run a job, and let nothing that fails out."""
        try:
            function(*args)
        except Exception:
            LOG.exception('Background job %s failed; it is tried again.', key)
        finally:
            self._working.discard(key)
