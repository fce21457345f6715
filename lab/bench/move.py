# SPDX-License-Identifier: Apache-2.0
"""Measure the duration of a move: tools/bench move.

Volumes of two sizes and both settings of hydration are measured alternately
in one run, so that a slow machine slows all of them. Only the ratios are
meaningful: in the laboratory starting a process takes about ten times as long
as on a real machine.
"""

import time

from lab.bench import measurements
from lab.common import user as user_module
from lab.common import volumes
from lab import lab

SMALL, LARGE = 1, 100


class Bench(volumes.Volumes):
    """Moves of idle volumes."""

    def __init__(self):
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = measurements.Measurements()
        self._rounds = 0

    def attach(self, volume_id, node):
        """Attach and read the first block, as a guest would."""
        attachment = self.user.attach(volume_id, node)
        node.run('dd if=%s of=/dev/null bs=4k count=1 iflag=direct '
                 'status=none' % user_module.path(attachment))
        return attachment

    def detach(self, volume_id, attachment):
        self.user.detach(attachment['id'])
        self.user.settled(volume_id, 'available')

    def round(self):
        """Measure everything once; hydration with each setting in turn."""
        defaults = self._rounds % 2 == 0
        self._rounds += 1
        for size in (SMALL, LARGE):
            volume_id = self.user.create_volume(size)['id']
            home = self.home(volume_id)
            self.detach(volume_id, self.results.timed(
                'attach at home, %d GiB' % size, self.attach, volume_id,
                home))
            other = self.other(home)
            attachment = self.results.timed(
                'attach away, %d GiB' % size, self.attach, volume_id, other)
            if size == SMALL:
                self.hydration(volume_id, other, attachment, defaults)
            self.detach(volume_id, attachment)
            self.user.delete_volume(volume_id, timeout=120)
            self.nothing_left()
        self.first_write()

    def first_write(self):
        """Measure a migrated guest's first write.

        The old attachment still exists: the peer switches over by itself.
        """
        volume_id = self.user.create_volume(SMALL)['id']
        home, instance = self.home(volume_id), user_module.uuid4()
        other = self.other(home)
        first = self.user.attach(volume_id, home, instance)
        second = self.results.timed(
            'attach away, passive, 1 GiB', self.user.attach, volume_id,
            other, instance)
        path = user_module.path(second)
        for what in ('first write, at the closed gate', 'second write'):
            seconds = other.run(
                "python3 -c 'import os,mmap,time;m=mmap.mmap(-1,4096);"
                "f=os.open(\"%s\",os.O_RDWR|os.O_DIRECT);t=time.time();"
                "os.pwrite(f,m,0);os.fsync(f);print(time.time()-t)'" % path)
            self.results.note(what, float(seconds))
        for attachment in (first, second):
            self.user.detach(attachment['id'])
        self.user.settled(volume_id, 'available')
        self.user.delete_volume(volume_id, timeout=120)
        self.nothing_left()

    def hydration(self, volume_id, node, attachment, defaults):
        """Measure the hydration of an idle volume."""
        what = 'hydration of 1 GiB, %s' % (
            'defaults' if defaults else "the kernel's 1/1")
        path = user_module.path(attachment)
        if not defaults:
            for name in ('hydration_threshold', 'hydration_batch_size'):
                node.run('dmsetup message %s 0 %s 1' % (path, name))
        start, first = time.monotonic(), self._regions(node, path)
        while True:
            now = self._regions(node, path)
            if now is None or now[0] == now[1]:
                break
            time.sleep(0.2)
        share = 1 - (first[0] / first[1] if first else 0)
        self.results.note(what, (time.monotonic() - start) / (share or 1))
        self.hydrated(volume_id, timeout=300)

    def _regions(self, node, path):
        words = self.clone_status(node, path).split()
        if words[2] != 'clone':
            return None
        return tuple(int(count) for count in words[6].split('/'))

    def report(self):
        """Print medians, spreads and ratios."""
        self.results.report((
            ('attach away, 100 GiB', 'attach away, 1 GiB'),
            ('attach away, 1 GiB', 'attach at home, 1 GiB'),
            ("hydration of 1 GiB, the kernel's 1/1",
             'hydration of 1 GiB, defaults')))
