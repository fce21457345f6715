# SPDX-License-Identifier: Apache-2.0
"""A simulated clone target, and the time in which it copies.

Its worker has the rules of drivers/md/dm-clone-target.c. It copies only if a
test gives it a speed; other tests complete a hydration at once.
"""

import errno

from dmclone_driver.node.devicemapper import holds


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
                not self.in_flight):
            left = (self.total - self.bitmap['hydrated'] - self.waiting -
                    self.copying)
            room = self.threshold - self.waiting - self.copying
            self.copying += max(0, min(left, room))

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
        self._kernel._message(name, text)

    def hold(self, name, window):
        """Replace the process that holds, see devicemapper.holds."""
        self.holds.append((self._now, name))
        clone = self._kernel.devices[name].own
        for below in map(self._kernel.get, clone.paths[1:]):
            if below and below.suspended:
                self._kernel.violations.append(
                    '%s is held, and its requests cannot end' % name)
        self.sleep(0.002 if clone.drains else holds.LIMIT)
        if len(self._kernel.devices[name].table) < 2:
            return holds.Result(holds.NO_TAIL)
        if not clone.drains:
            return holds.Result(holds.LATE, holds.LIMIT)
        clone.in_flight = 0
        self.message(name, 'hydration_threshold %d' % window)
        return holds.Result(holds.FULL, 0.002)

    def now(self):
        return self._now

    def sleep(self, seconds):
        begin, self._now = self._now, self._now + seconds
        for device in self._kernel.devices.values():
            if device.own:
                device.own.pass_time(begin, self._now)
