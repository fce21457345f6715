# SPDX-License-Identifier: Apache-2.0
"""A simulated clone target, and the time in which it copies.

Its worker has the rules of drivers/md/dm-clone-target.c. It copies only if a
test gives it a speed; other tests complete a hydration at once.
"""

import errno


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
        #: The regions that are copied in a second.
        self.speed = 0
        self._copied_for = 0

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

    def status(self, name):
        if name not in self._kernel.devices:
            raise OSError(errno.ENXIO, 'no device %s' % name)
        return self._kernel._status_of(name)

    def message(self, name, text):
        self.messages.append((self._now, name, text))
        self._kernel._message(name, text)

    def now(self):
        return self._now

    def sleep(self, seconds):
        begin, self._now = self._now, self._now + seconds
        for device in self._kernel.devices.values():
            if device.own:
                device.own.pass_time(begin, self._now)
