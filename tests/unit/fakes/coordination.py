# SPDX-License-Identifier: Apache-2.0
"""The locks: simulated semaphores of processes, and tooz with etcd."""

import tooz

from tests.unit.fakes import steps


class Semaphore:
    """A semaphore that raises where a real one would wait for ever."""

    def __init__(self, cloud, name):
        self._cloud, self.name = cloud, name

    def acquire(self, timeout=None):
        if self.name in self._cloud.semaphores:
            if timeout is None:
                self._cloud.wait_for_ever(self.name)
            return False
        self._cloud.semaphores.add(self.name)
        return True

    def release(self):
        self._cloud.semaphores.remove(self.name)


class Lock:
    """A lock of all nodes, as with etcd.

    It remains held when its release fails, since tooz renews its lease then.
    After a failed acquisition it is not renewed, whether or not etcd has done
    the acquisition.
    """

    def __init__(self, cloud, name):
        self._cloud, self.name = cloud, name
        self._acquired = False

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *args):
        self.release()

    def _step(self, what, function):
        return self._cloud.steps.run(
            '%s: %s' % (self._cloud.here.name, what),
            tooz.coordination.ToozConnectionError('injected'), function)

    def acquire(self, blocking=True):
        before = self.name in self._cloud.locks
        try:
            return self._step('lock', lambda: self._acquire(blocking))
        except (tooz.ToozError, steps.Killed):
            if not before:
                self._cloud.locks.discard(self.name)
            raise

    def _acquire(self, blocking):
        if self.name in self._cloud.locks:
            if blocking is True:
                self._cloud.wait_for_ever(self.name)
            return False
        self._cloud.locks.add(self.name)
        self._acquired = True
        return True

    def release(self):
        try:
            return self._step('unlock', self._release)
        except steps.Killed:
            # It is not renewed any longer.
            self._release()
            raise

    def _release(self):
        held, self._acquired = self._acquired, False
        if held:
            self._cloud.locks.discard(self.name)
        return held
