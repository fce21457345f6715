# SPDX-License-Identifier: Apache-2.0
"""Threads in simulated time: greenlets that sleep and wait on one clock.

The code of a greenlet takes no time. Time passes where it sleeps or waits,
and only there another greenlet runs.
"""

import collections
import heapq
import itertools
import queue
import types

import greenlet


class _Wait:
    """A greenlet that is to go on, for the first reason that occurs."""

    def __init__(self):
        self.greenlet = greenlet.getcurrent()
        self.over = False
        self.granted = False


class Clock:
    """The time in seconds, and what is to happen."""

    def __init__(self):
        self.now = 0.0
        self._due = []
        self._numbers = itertools.count()
        #: The greenlet that runs run(); outside of it nothing can wait.
        self._hub = None

    def time(self):
        """Return the seconds since the start."""
        return self.now

    def spawn(self, function, *args):
        """Run a function in a greenlet of its own, from now on."""
        def run(granted):
            try:
                function(*args)
            finally:
                # Eventlet's hub makes itself the parent of what it lets sleep
                # (hubs/hub.py, switch()), and would go on at the end.
                greenlet.getcurrent().parent = self._hub
        wait = _Wait()
        wait.greenlet = greenlet.greenlet(run)
        self._push(0, wait)

    def _push(self, seconds, wait):
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers),
                                   wait))

    def sleep(self, seconds):
        """Let time pass; before run() nothing else happens meanwhile."""
        if self._hub is None:
            self.now += seconds
        else:
            self._push(seconds, _Wait())
            self._hub.switch()

    def wait(self, waiting, timeout=None):
        """Wait at the end of a deque for :meth:`wake`.

        :param timeout: in seconds, None for no limit
        :returns: False if it has not come in time
        """
        if self._hub is None:
            raise AssertionError('nothing can wait before run()')
        wait = _Wait()
        waiting.append(wait)
        if timeout is not None:
            self._push(timeout, wait)
        return self._hub.switch()

    def wake(self, waiting):
        """Let the first of a deque go on; return whether there was one."""
        while waiting:
            wait = waiting.popleft()
            if not wait.over:
                wait.granted = True
                self._push(0, wait)
                return True
        return False

    def run(self, until=lambda: False):
        """Let time pass until a condition is true, or nothing is left."""
        self._hub = greenlet.getcurrent()
        try:
            while self._due and not until():
                self.now, _number, wait = heapq.heappop(self._due)
                if not wait.over:
                    wait.over = True
                    wait.greenlet.parent = self._hub
                    wait.greenlet.switch(wait.granted)
        finally:
            self._hub = None


class Semaphore:
    """Replaces threading.BoundedSemaphore, and with one place Lock."""

    def __init__(self, clock, places=1, waited=lambda seconds: None):
        """Create a semaphore.

        :param waited: is told the seconds that each has waited
        """
        self._clock = clock
        self._free = places
        self._waiting = collections.deque()
        self._waited = waited

    def acquire(self, blocking=True, timeout=None):
        if self._free:
            self._free -= 1
            return True
        if not blocking:
            return False
        start = self._clock.now
        got = self._clock.wait(self._waiting, timeout)
        self._waited(self._clock.now - start)
        return got

    def release(self):
        if not self._clock.wake(self._waiting):
            self._free += 1

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *args):
        self.release()


class Queue:
    """Replaces queue.SimpleQueue."""

    def __init__(self, clock):
        self._clock = clock
        self._items = collections.deque()
        self._waiting = collections.deque()

    def put(self, item):
        self._items.append(item)
        self._clock.wake(self._waiting)

    def get(self, timeout=None):
        while not self._items:
            if not self._clock.wait(self._waiting, timeout):
                break
        return self.get_nowait()

    def get_nowait(self):
        if not self._items:
            raise queue.Empty
        return self._items.popleft()

    def qsize(self):
        return len(self._items)


class Flag:
    """An event that ends one wait, and is kept until there is one."""

    def __init__(self, clock):
        self._clock = clock
        self._raised = False
        self._waiting = collections.deque()

    def set(self):
        self._raised = not self._clock.wake(self._waiting)

    def wait(self, seconds):
        raised, self._raised = self._raised, False
        return raised or self._clock.wait(self._waiting, seconds)


def threads(clock, spawn):
    """Return the replacement of the module threading.

    :param spawn: runs a function in a greenlet
    """
    class Thread:
        def __init__(self, target, args=(), **kwargs):
            self._target, self._args = target, args
            self._alive = False
            self._waiting = collections.deque()

        def start(self):
            self._alive = True
            spawn(self._run)

        def _run(self):
            try:
                self._target(*self._args)
            finally:
                self._alive = False
                clock.wake(self._waiting)

        def join(self, timeout=None):
            if self._alive:
                clock.wait(self._waiting, timeout)

        def is_alive(self):
            return self._alive

    return types.SimpleNamespace(
        Thread=Thread, Lock=lambda: Semaphore(clock),
        BoundedSemaphore=lambda places: Semaphore(clock, places))
