# SPDX-License-Identifier: Apache-2.0
"""Measure an attach away through Nova: tools/bench transfer.

A volume is attached to a server on the other node, from the request to Nova
until the volume is in use. Volumes of this driver, small and large, and of
Cinder's LVM driver over iSCSI are measured in turn, in one run and one
laboratory (`tools/lab up --nova --driver both`). So are a first move, and one
that begins while the volume hydrates.
"""

import contextlib
import itertools
import os
import time

from lab.bench import both_drivers
from lab import wait

#: (volume type, GiB). Their order changes: what one has left to do may slow
#: down the next one.
KINDS = (('dmclone', 1), ('lvm', 1), ('dmclone', 100))
_ATTACH = '%s, attach away, %d GiB'
_FIRST = 'dmclone, a first move'
_ON = 'dmclone, a move while it hydrates'
PATH = 'bench-transfer.json'


def base_of(name):
    """Return what a measurement is compared with, or None."""
    base = _FIRST if name == _ON else _ATTACH % ('lvm', 1)
    return None if name in (base, _FIRST) else base


class Bench(both_drivers.Bench):
    """Attachments of volumes that lie on another node."""

    TO_END = 120

    def __init__(self):
        super().__init__()
        self._source, self._target = list(self.lab.nodes.values())[:2]
        self._server = None
        self._orders = itertools.cycle(itertools.permutations(KINDS))

    @contextlib.contextmanager
    def prepared(self):
        """Have a server on the target meanwhile, with a disk of its own."""
        self._server = self.servers.boot(self._target)
        try:
            yield
        finally:
            self.servers.delete_all()
            self.end_volumes()

    def round(self):
        """Attach a volume of each kind, and move one twice."""
        for kind, size in next(self._orders):
            with self._volume(kind, size) as volume_id:
                begin = time.monotonic()
                self.servers.attach(self._server, volume_id)
                self._becomes(volume_id, 'in-use')
                self.results.note(_ATTACH % (kind, size),
                                  time.monotonic() - begin)
                self.servers.detach(self._server, volume_id)
                self._becomes(volume_id, 'available')
        self._move_on()

    @contextlib.contextmanager
    def _volume(self, kind, size):
        with self.created_on(self._source, kind):
            volume_id = self.user.create_volume(size, volume_type=kind)['id']
        # The disks of the nodes are files in this machine's page cache: LVM
        # would wait for what the copy before has written.
        os.sync()
        yield volume_id
        self.end_volume(volume_id)
        # Not nothing_left(): the other driver keeps its thin pool.
        self.hydrated(volume_id, self.TO_END)

    def _becomes(self, volume_id, status):
        wait.until(
            lambda: self.user.volume(volume_id)['status'] == status,
            'volume %s to be %s' % (volume_id, status), self.TO_END, 0.1)

    def _move_on(self):
        """Move a volume away, and back before its copy is complete."""
        with self._volume('dmclone', 1) as volume_id, \
                self.slow_storage_network(self._target):
            for what, node in ((_FIRST, self._target), (_ON, self._source)):
                begin = time.monotonic()
                attachment = self.user.attach(volume_id, node)
                self.results.note(what, time.monotonic() - begin)
                if what == _FIRST:
                    assert self.placeholders(volume_id), 'it is complete'
                self.user.detach(attachment['id'])
                self._becomes(volume_id, 'available')

    def report(self):
        """Print medians, spreads and ratios, and save them."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
