# SPDX-License-Identifier: Apache-2.0
"""Lines that the writers in a server print on its console, with times.

A console is a file on the server's node that the host can read (its format is
in lab/templates/guest-writer). After a migration the console continues in a
file on the new node.
"""

import dataclasses
import re
import threading
import time

from lab import errors
from lab import wait

_LINE = re.compile(r'lab: (?P<serial>\S+) (?P<said>.+)')
_CRASH = re.compile(r'Kernel panic|BUG: |Oops: ')
# Seconds between two reads of the file: the precision of the times.
_INTERVAL = 0.005


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a writer; ``at`` is in seconds, monotonic."""

    at: float
    node: str
    serial: str
    said: str

    @property
    def record(self):
        """The number of the durable record, None for other lines."""
        return int(self.said) if self.said.isdigit() else None


class Console:
    """Follows a server's console on all nodes, until it is closed."""

    def __init__(self, lab, server_id):
        self._files = {name: node.machine.instances / server_id /
                       'console.log' for name, node in lab.nodes.items()}
        self._read = dict.fromkeys(self._files, 0)
        self._rest = dict.fromkeys(self._files, '')
        self.lines = []
        #: The kernel's line about a crash of the guest, None without a crash.
        self.crash = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self):
        """Stop following."""
        self._closed.set()
        self._thread.join()

    def _follow(self):
        while not self._closed.wait(_INTERVAL):
            for name in self._files:
                self._look(name)

    def _look(self, name):
        try:
            size = self._files[name].stat().st_size
            if size < self._read[name]:     # the server has returned
                self._read[name], self._rest[name] = 0, ''
            if size == self._read[name]:
                return
            with open(self._files[name], 'rb') as console:
                console.seek(self._read[name])
                new = console.read()
        except FileNotFoundError:
            self._read[name], self._rest[name] = 0, ''
            return
        self._read[name] += len(new)
        *whole, self._rest[name] = (
            self._rest[name] + new.decode(errors='replace')).split('\n')
        now = time.monotonic()
        for text in whole:
            found = _LINE.search(text.rstrip())
            if _CRASH.search(text) and not self.crash:
                self.crash = text.strip()
            elif found:
                self.lines.append(Line(now, name, *found.groups()))

    def of(self, volume_id, since=0):
        """Return the lines about a volume after a time."""
        # The disk's serial number has 20 characters.
        return [line for line in list(self.lines)
                if line.serial == volume_id[:20] and line.at > since]

    def acknowledged(self, volume_id, since=0, node=None):
        """Return the lines about durable records."""
        return [line for line in self.of(volume_id, since)
                if line.record is not None and node in (None, line.node)]

    def complaints(self, volume_id):
        """Return the lines about failed writes."""
        return [line.said for line in self.of(volume_id)
                if line.record is None and not line.said.startswith('starts')]

    def last(self, volume_id):
        """Return the number of the newest durable record, 0 if none."""
        return max((line.record for line in self.acknowledged(volume_id)),
                   default=0)

    def wait_writing(self, volume_id, node=None, timeout=120):
        """Wait until a writer has made three more records durable.

        :param node: the name of the node whose console is read, None for any
        """
        since = time.monotonic()

        def writes():
            if self.crash:
                # QEMU 7.2 caused this, see lab/image.py.
                raise errors.LabError("the guest's kernel has crashed, not "
                                      'its volume: ' + self.crash)
            return len(self.acknowledged(volume_id, since, node)) >= 3

        wait.until(
            writes, 'the guest to write to %s on %s' % (
                volume_id, node or 'any node'),
            timeout, 0.05, log=lambda: 'its last lines: %s' % [
                line.said for line in self.of(volume_id)[-3:]])

    def gap(self, volume_id, since):
        """Return the longest time between two acknowledged records.

        :param since: start of the interval
        :returns: (seconds, the time when it began)
        """
        times = [since] + [line.at for line in
                           self.acknowledged(volume_id, since)]
        return max((after - before, before)
                   for before, after in zip(times, times[1:]))
