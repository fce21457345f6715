# SPDX-License-Identifier: Apache-2.0
"""Measure volumes that are made from others: tools/bench copies.

Volumes from a snapshot, clones, volumes from a cached image, and volumes that
were migrated at rest: how long it takes from the request until such a volume
is attached and has written something durably. Then what a guest pays for
snapshots of its volume. Each is compared with Cinder's LVM driver, which is
each node's second backend meanwhile.
"""

import contextlib
import time

from lab.bench import guest_load
from lab.bench import lvm_beside
from lab.bench import numbered
from lab.bench import ratios
from lab import wait

KINDS = lvm_beside.KINDS
#: Seconds until a volume is copied, or has been migrated.
TO_COPY = 900
SNAPSHOTS = (0, 1, 5)
PATH = 'bench-copies.json'
#: Number of the last of the numbered writes that the image has.
IN_IMAGE = 20


def name_of(way, kind, what):
    """Return the name of a measurement."""
    return '%s, %s, %s' % (way, KINDS[kind], what)


def snapshots_name(count):
    return '1 snapshot' if count == 1 else '%d snapshots' % count


class Bench(lvm_beside.Beside):
    """Copies of volumes, and volumes with snapshots, of both drivers."""

    MINUTES = 12

    def __init__(self, sizes, lvm_sizes):
        """Check the laboratory.

        :param sizes: GiB of the volumes of this driver
        :param lvm_sizes: GiB of those of Cinder's LVM driver
        """
        super().__init__()
        self.node = self.lab.node('node1')
        self.results = ratios.Ratios()
        self._cases = [('lvm', size) for size in lvm_sizes] + [
            ('dmclone', size) for size in self.fitting(self.node, sizes)]
        self._image_id = None

    @contextlib.contextmanager
    def prepared(self):
        """Prepare the second backend, and images that are cached on a node."""
        with self.beside(), contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            self._image_id = self.user.cloud.image.create_image(
                'bench', disk_format='raw', container_format='bare',
                data=numbered.Numbered.content(IN_IMAGE), wait=True).id
            made.callback(self.user.cloud.image.delete_image, self._image_id)
            for kind in KINDS:
                self._cache_image(kind)
            yield

    def _cache_image(self, kind):
        self.wait_room(self.node, kind, 1, lvm_beside.AT_A_TIME)
        with self.created_on(self.node, kind):
            volume_id = self._create(kind, 1, imageRef=self._image_id)
        wait.until(lambda: self.lab.sql(
            "SELECT id FROM image_volume_cache_entries WHERE image_id = '%s' "
            "AND host LIKE '%%@%s#%%'" % (self._image_id, kind)),
            'the cached image of ' + kind, 60)
        wait.until(lambda: not self.hydrating(),
                   'the cached image to be complete', 240)
        self.end_volume(volume_id)

    def round(self):
        """Measure everything once."""
        for kind, size in self._cases:
            self._measure_copies(kind, size)
        for kind in KINDS:
            self._measure_guest(kind)

    # Copies

    def _measure_copies(self, kind, size):
        with contextlib.ExitStack() as made:
            source, writes = self._written(kind, size, made,
                                           lvm_beside.AT_A_TIME)
            snapshot_id = self.user.create_snapshot(source)
            try:
                self._measure('from a snapshot', kind, size, writes,
                              snapshot_id=snapshot_id)
            finally:
                self.user.delete_snapshot(snapshot_id, TO_COPY)
            self._measure('clone of a volume', kind, size, writes,
                          source_volid=source)
            self._measure('from a cached image', kind, size,
                          numbered.Numbered(IN_IMAGE),
                          imageRef=self._image_id)
            self._migrate(kind, size, source, writes)

    def _written(self, kind, size, made, times):
        """Create a volume with numbered writes.

        :param made: a stack that deletes it at the end
        :param times: how often its space is needed
        :returns: (its id, the writes)
        """
        self.wait_room(self.node, kind, size, times)
        with self.created_on(self.node, kind):
            volume_id = self._create(kind, size)
        made.callback(self.end_volume, volume_id)
        writes = numbered.Numbered()
        with self.attached(volume_id, self.node) as path:
            for _number in range(2):
                writes.write(self.node, path)
        return volume_id, writes

    def _create(self, kind, size, **attributes):
        """Create a volume, and wait until it is available; return its id."""
        volume_id = self.user.request('POST', '/volumes', {'volume': dict(
            attributes, size=size, volume_type=kind)})['volume']['id']
        self.user.settled(volume_id, 'available', timeout=TO_COPY)
        return volume_id

    def _measure(self, way, kind, size, writes, **origin):
        """Measure the creation and the first use of a volume.

        :param writes: that its origin has
        :param origin: attributes of the request
        """
        # There may be a hidden snapshot.
        self.wait_room(self.node, kind, size, 1 if 'snapshot_id' in origin
                       else 2)
        with self.created_on(self.node, kind):
            start = time.monotonic()
            volume_id = self._create(kind, size, **origin)
        try:
            self._use(volume_id, self.node, writes.copy(), start,
                      name_of(way, kind, '%d GiB' % size))
        finally:
            self.end_volume(volume_id, timeout=TO_COPY)

    def _migrate(self, kind, size, volume_id, writes):
        """Measure a migration at rest, and the first use after it."""
        target = self.other(self.node)
        self.wait_room(target, kind, size, 1)
        start = time.monotonic()
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id, {
            'os-migrate_volume': {'host': '{0}@{1}#{1}'.format(
                target.name, kind)}})
        wait.until(lambda: self._has_migrated(volume_id, target),
                   'the migration of volume ' + volume_id, TO_COPY)
        self._use(volume_id, target, writes, start,
                  name_of('migration at rest', kind, '%d GiB' % size))

    def _has_migrated(self, volume_id, target):
        volume = self.user.as_admin('GET', '/volumes/' + volume_id)['volume']
        status = volume['os-vol-mig-status-attr:migstat']
        assert status != 'error', volume
        return (status == 'success' and volume['status'] == 'available' and
                self.home(volume_id) is target)

    def _use(self, volume_id, node, writes, start, name):
        """Attach a volume and write to it; compare all of its writes."""
        with self.attached(volume_id, node) as path:
            writes.write(node, path)
            self.results.note(name, time.monotonic() - start)
            writes.compare(node, path)

    # Snapshots

    def _measure_guest(self, kind):
        """Measure a load on a volume with more and more snapshots."""
        with contextlib.ExitStack() as made:
            volume_id, writes = self._written(kind, guest_load.SIZE, made,
                                              1 + SNAPSHOTS[-1])
            with self.attached(volume_id, self.node) as path:
                taken = 0
                for number, count in enumerate(SNAPSHOTS):
                    for _number in range(count - taken):
                        made.callback(
                            self.user.delete_snapshot,
                            self.user.create_snapshot(volume_id), TO_COPY)
                    taken = count
                    writes.write(self.node, path)
                    for what, value in guest_load.run(
                            self.node, path, number).items():
                        self.results.note(name_of(
                            what, kind, snapshots_name(count)), value)
                writes.compare(self.node, path)

    # Report

    def base_of(self, name):
        """Return the measurement to compare one with.

        That is the smallest volume of Cinder's LVM driver made in the same
        way, and the same driver's load without snapshots.
        """
        way, kind, _what = name.split(', ')
        if way in guest_load.UNITS:
            return ', '.join((way, kind, snapshots_name(0)))
        return next(each for each in self.results.values
                    if each.startswith(way + ', '))

    def report(self):
        """Print medians and ratios, and save them for a plot."""
        self.results.report(self.base_of)
        self.results.save(PATH, self.base_of)
