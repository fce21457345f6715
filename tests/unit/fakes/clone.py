# SPDX-License-Identifier: Apache-2.0
"""A simulated clone target, and the time in which it copies.

Its worker has the rules of drivers/md/dm-clone-target.c, and of the patch in
contrib/linux where the kernel has its version. It copies only if a test gives
it a speed; other tests complete a hydration at once.
"""

import errno

from dmclone_driver.node.devicemapper import holds
from dmclone_driver.node.devicemapper import status


class Clone:
    """The state of a live clone; the hydrated regions are in its metadata."""

    def __init__(self, bitmap, segment):
        self.bitmap = bitmap
        #: Of its metadata, its gate and its source.
        self.paths = segment.paths()
        self.region = int(segment.words[3])
        self.total = -(-segment.length // self.region)
        #: The regions that writes of its guest wait for.
        self.waiting = 0
        #: The regions that are copied in the background.
        self.copying = 0
        self.hydration = False
        self.threshold = int(segment.words[-3])
        #: The regions that are copied whatever is under way.
        self.quota = 0
        self.batch = int(segment.words[-1])
        self.mode = 'rw'
        #: Returns the number of the guest's requests under way at a time.
        self.guest = lambda now: 0
        self.in_flight = 0
        #: Whether these end while new ones are held.
        self.drains = True
        #: The regions that are copied in a second.
        self.speed = 0
        self._copied_for = 0

    def discard(self, first, end):
        """Mark regions as present, without a copy."""
        marked = self.bitmap.setdefault('marked', set())
        before = len(marked)
        marked.update(range(first, end))
        self.bitmap['hydrated'] = min(
            self.total, self.bitmap['hydrated'] + len(marked) - before)

    def wake(self):
        """Begin copies, as do_hydration does."""
        if self.hydration and self.mode == 'rw' and self.speed and (
                self.quota or not self.in_flight):
            left = (self.total - self.bitmap['hydrated'] - self.waiting -
                    self.copying)
            room = self.threshold - self.waiting - self.copying
            begun = max(0, min(left, room, *(
                [self.quota] if self.in_flight else [])))
            self.copying += begun
            self.quota -= min(begun, self.quota)

    def pass_time(self, begin, end):
        """Let the guest and the copies go on from one time to another."""
        self.in_flight = self.guest(end)
        if self.copying:
            self._copied_for += end - begin
            if self._copied_for * self.speed >= self.copying:
                # hydration_kcopyd_callback: all regions of a job at once.
                self.bitmap['hydrated'] += self.copying
                self.copying = self._copied_for = 0
                self.wake()
        if int(begin) != int(end):
            # do_waker, once a second.
            self.wake()


class Time:
    """A kernel whose clones copy while the one who paces them sleeps."""

    def __init__(self, kernel, begin):
        self._kernel = kernel
        self._now = begin
        #: All messages that were sent, (time, device, text).
        self.messages = []
        #: The holds, (time, device).
        self.holds = []

    def status(self, name):
        if name not in self._kernel.devices:
            raise OSError(errno.ENXIO, 'no device %s' % name)
        return self._kernel._status_of(name)

    def message(self, name, text):
        self.messages.append((self._now, name, text))
        clone = self._kernel.devices[name].own
        if clone and text.startswith('hydrate '):
            self._must_end(clone, '%s copies, and cannot end' % name)
        self._kernel._message(name, text)

    def hold(self, name, window):
        """Replace the process that holds, see devicemapper.holds."""
        begun = self._kernel.quotas.begin(name, window)
        if begun:
            return begun
        self.holds.append((self._now, name))
        clone = self._kernel.devices[name].own
        self._must_end(clone, '%s is held, and its requests cannot end' % name)
        self.sleep(0.002 if clone.drains else holds.LIMIT)
        if len(self._kernel.devices[name].table) < 2:
            return holds.Result(holds.NO_TAIL)
        if not clone.drains:
            return holds.Result(holds.LATE, holds.LIMIT)
        clone.in_flight = 0
        self.message(name, 'hydration_threshold %d' % window)
        return holds.Result(holds.FULL, 0.002)

    def _must_end(self, clone, violation):
        """Note a violation if requests below a clone wait."""
        if any(below and below.suspended for below in map(
                self._kernel.get, clone.paths[1:])):
            self._kernel.violations.append(violation)

    # For quotas

    def versions(self):
        return self._kernel.versions

    def info(self, name):
        if name not in self._kernel.devices:
            raise OSError(errno.ENXIO, 'no device %s' % name)
        return status.Device(**self._kernel._info(name))

    def answers(self, name):
        return not self._kernel.lost.intersection(
            self._kernel._disks_below(name))

    def now(self):
        return self._now

    def sleep(self, seconds):
        begin, self._now = self._now, self._now + seconds
        for device in self._kernel.devices.values():
            if device.own:
                device.own.pass_time(begin, self._now)
