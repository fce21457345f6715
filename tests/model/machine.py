# SPDX-License-Identifier: Apache-2.0
"""A simulated kernel whose disks and clones have content, and can lose it.

A volume has two regions of two blocks each. A disk has its present content
and its content after a power cut, and so has the metadata of a clone, which
records the hydrated regions. As in dm-clone, a region's bit is set after its
copy, and a commit makes the data safe before the metadata.
"""

import contextlib
import errno

from tests.unit.fakes import clone as clone_module
from tests.unit.fakes import kernel

REGIONS, BLOCKS = 2, 2
LENGTH = REGIONS * BLOCKS


class Disk:
    """The blocks of a logical volume."""

    def __init__(self, content):
        self.now = list(content)
        self.safe = list(content)

    def flush(self):
        self.safe = list(self.now)

    def cut_power(self):
        self.now = list(self.safe)


class Bitmap(dict):
    """The hydrated regions, and the count that the base class uses."""

    def __init__(self):
        super().__init__(hydrated=0)
        self.now, self.safe = set(), set()

    def add(self, region):
        self.now.add(region)
        self['hydrated'] = len(self.now)

    def flush(self):
        self.safe = set(self.now)

    def cut_power(self):
        self.now = set(self.safe)
        self['hydrated'] = len(self.now)


class Write:
    """A write of a guest, which may have to wait."""

    def __init__(self, path, block, value):
        self.path, self.block, self.value = path, block, value
        self.done = self.failed = False
        #: The region's content when it was copied for this write.
        self.copied = None


class Clone(clone_module.Clone):
    """A clone that counts its pending writes."""

    def __init__(self, *args):
        self.writes = []
        #: Parts of regions that are marked as present.
        self._discarded = set()
        super().__init__(*args)

    @property
    def waiting(self):
        return len([write for write in self.writes
                    if write.block // BLOCKS not in self.bitmap.now])

    @waiting.setter
    def waiting(self, number):
        for write in self.writes:
            write.failed = True
        self.writes.clear()

    def discard(self, first, end):
        """Mark the regions that are covered as a whole, in any pieces."""
        self._discarded.update(range(first, end))
        size = self.total // REGIONS
        for region in range(REGIONS):
            if self._discarded.issuperset(range(region * size,
                                                (region + 1) * size)):
                self.bitmap.add(region)


class NoSpace(OSError):
    """A write that needs a block of a full pool."""


class Wait(Exception):
    """A request that would have to wait."""


def _io_error(why):
    return OSError(errno.EIO, why)


class Kernel(kernel.Kernel):
    """The kernel of one node."""

    CLONE = Clone

    cloud = None

    def __init__(self, *args):
        super().__init__(*args)
        #: Whether commits of changed metadata fail silently.
        self.metadata_fails = False
        #: Called after unflushed metadata was lost.
        self.forgotten = lambda: None
        self._junk = 0

    def writable(self, path):
        """Return whether a write to a handle would be acknowledged."""
        device = self.get(path)
        if device is None or device.sealed or device.read_only or (
                not device.table):
            return False
        gate = device.clone and self.get(device.clone.paths[1])
        # The gate of an aborted move has a table of errors.
        return not gate or gate.kinds == 'linear' and not gate.suspended

    def sick(self):
        """Return whether the metadata of a clone has failed."""
        return any(device.own and device.own.mode != 'rw'
                   for device in self.devices.values())

    # Content

    def disk(self, path):
        """Return a logical volume's disk.

        A new one has arbitrary content, and zeros if it is thin.
        """
        volume = self.lvm.volumes[path]
        if volume.get('pool'):
            volume.setdefault('disk', Disk(['zero 0'] * LENGTH))
        if 'disk' not in volume:
            self._junk += 1
            volume['disk'] = Disk(['junk %s%d' % (self.node, self._junk)] *
                                  LENGTH)
        return volume['disk']

    def mapped(self, path):
        """Return the blocks of a thin volume: those of whole regions."""
        size = (self.lvm.volumes[path]['size'] >> 16) // REGIONS
        disk = self.disk(path)
        return [(region * size, size) for region in range(REGIONS)
                if any(block != 'zero 0'
                       for block in disk.now[region * BLOCKS:
                                             (region + 1) * BLOCKS])]

    def copy_disk(self, path, copy):
        """Copy the present content of an origin to its snapshot."""
        disk = self.lvm.volumes[copy]['disk'] = Disk(self.disk(path).now)
        if self.lvm.volumes[copy].get('pool'):
            # It shares blocks that may not be safe yet.
            disk.safe = list(self.disk(path).safe)

    def bottom(self, device):
        """Return the path of the disk under a linear device."""
        return next(segment.words[0] for segment in device.table
                    if segment.kind in ('linear', 'snapshot-origin'))

    def read(self, path, block):
        """Read a block through the devices below.

        :raises: Wait, OSError
        """
        device = self.get(path)
        if path in self.disks:
            return self.cloud.read_remote(path, block)
        if device is None:
            if path not in self.lvm.volumes:
                raise _io_error('a session that has ended')
            return self.disk(path).now[block]
        if device.suspended:
            raise Wait
        if not device.table:
            raise _io_error('no table')
        if device.own:
            if device.own.mode == 'Fail':
                raise _io_error('clone failed')
            metadata, gate, source = device.own.paths
            return self.read(gate if block // BLOCKS in
                             device.own.bitmap.now else source, block)
        if device.kinds == 'error':
            raise _io_error('error target')
        segment = device.table[0]
        if segment.kind == 'snapshot':
            origin, store = segment.paths()
            if self.lvm.volumes[store].get('invalid'):
                raise _io_error('invalid snapshot')
            saved = self.lvm.volumes[store].get('saved', {})
            region = saved.get(block // BLOCKS)
            return region[block] if region else self.read(origin, block)
        return self.read(self.bottom(device), block)

    def begin_write(self, path, block, value):
        """Write a block; returns a :class:`Write`, done or not."""
        write = Write(path, block, value)
        device = self.get(path)
        if (device is None or not device.table or device.sealed or
                device.read_only):
            write.failed = True
            return write
        device.parked.append(write)
        self._let_go()
        return write

    def copy_region(self, source, target, region):
        """Copy a region like dd, which is killed if it would wait.

        :raises: ProcessExecutionError
        """
        try:
            blocks = self._region(source, region)
            # A write reads what it saves for snapshots, or does not replace.
            self._region(target, region)
        except (Wait, OSError) as why:
            raise kernel.error('dd: %s' % why)
        if not self.writable(target):
            raise kernel.error('dd: %s cannot be written' % target)
        for block, value in blocks.items():
            write = self.begin_write(target, block, value)
            if write.failed:
                raise kernel.error('dd: %s cannot be written' % target)
            if not write.done:
                raise AssertionError('a write waits')

    def merge_disk(self, path, snapshot):
        """Copy the content of a snapshot of LVM back to its origin."""
        if self.lvm.volumes[path].get('pool'):
            # The snapshot takes its place.
            self.lvm.volumes[path]['disk'] = self.disk(snapshot)
            return
        disk = self.disk(path)
        disk.now = list(self.disk(snapshot).now)
        disk.flush()

    def _put(self, path, blocks):
        """Write to the disk below a chain of linear devices."""
        device = self.get(path)
        while device is not None:
            if device.suspended:
                raise Wait
            if device.kinds not in ('linear', 'snapshot-origin'):
                raise _io_error('error target')
            path = self.bottom(device)
            device = self.get(path)
        for block in blocks:
            self._refuse_without_space(path, block // BLOCKS)
        for block, value in blocks.items():
            self.disk(path).now[block] = value

    def _refuse_without_space(self, path, region):
        """Refuse a write to what a full pool has not allocated.

        :raises: NoSpace
        """
        volumes = self.lvm.volumes
        pool = volumes[path].get('pool')
        if pool and volumes[pool].get('full') and all(
                block == 'zero 0' for block in self.disk(path).now[
                    region * BLOCKS:(region + 1) * BLOCKS]):
            raise NoSpace(errno.ENOSPC, 'the pool is full')

    def _let_go(self):
        for device in self.devices.values():
            if device.suspended or not device.table:
                continue
            for write in list(device.parked):
                try:
                    self._save_old(device, write)
                except Wait:
                    continue
                device.parked.remove(write)
                if device.clone:
                    device.clone.writes.append(write)
                    continue
                try:
                    self._put(write.path, {write.block: write.value})
                    write.done = True
                except NoSpace:
                    write.failed = True
        for device in self.devices.values():
            if device.suspended or not device.own:
                continue
            for write in list(device.own.writes):
                try:
                    self._apply(device.own, write)
                except Wait:
                    pass
                except OSError:
                    write.failed = True
                    device.own.writes.remove(write)

    def _save_old(self, device, write):
        """Save what a write will overwrite, for the snapshots of its device.

        As in the kernel, what is saved is safe before the write.
        """
        segment, region = device.table[0], write.block // BLOCKS
        if segment.kind != 'snapshot-origin':
            return
        for other in self.devices.values():
            if other.table and other.table[0].kind == 'snapshot' and (
                    other.table[0].words[0] == segment.words[0]):
                store = self.lvm.volumes[other.table[0].words[1]]
                saved = store.setdefault('saved', {})
                try:
                    if region not in saved:
                        saved[region] = self._region(segment.words[0], region)
                except OSError:
                    store['invalid'] = True

    def _apply(self, clone, write):
        """Do a write on a clone, with the copy that it needs."""
        if clone.mode != 'rw':
            raise _io_error('metadata')
        metadata, gate, source = clone.paths
        region = write.block // BLOCKS
        blocks = {write.block: write.value}
        if region not in clone.bitmap.now:
            if write.copied is None:
                write.copied = self._region(source, region)
            blocks = {**write.copied, **blocks}
        try:
            self._put(gate, blocks)
        except NoSpace:
            # Its region is not there then; the clone goes on
            # (hydration_update_metadata in drivers/md/dm-clone-target.c).
            raise
        except OSError:
            clone.mode = 'ro'
            raise
        clone.bitmap.add(region)
        write.done = True
        clone.writes.remove(write)

    def _region(self, path, region):
        return {block: self.read(path, block) for block in
                range(region * BLOCKS, (region + 1) * BLOCKS)}

    def copy(self, name, region):
        """Hydrate one region of a clone."""
        clone = self.devices[name].own
        metadata, gate, source = clone.paths
        if region in clone.bitmap.now or clone.mode != 'rw':
            return
        self._put(gate, self._region(source, region))
        clone.bitmap.add(region)

    def commit(self, clone):
        """Commit a clone's changes: the data, then the metadata."""
        bitmap, gate = clone.bitmap, clone.paths[1]
        if bitmap.now == bitmap.safe and clone.mode == 'rw':
            self._flush(gate)
        elif self.metadata_fails or clone.mode != 'rw':
            # dm-clone reads the metadata from its disk again
            # (__abort_transaction in drivers/md/dm-clone-target.c).
            clone.mode = 'ro'
            bitmap.cut_power()
            self.forgotten()
            raise _io_error('commit')
        else:
            try:
                self._flush(gate)
            except NoSpace:
                self.violations.append('%s is read-only in a full pool' % gate)
                raise
            bitmap.flush()

    def flush(self, path):
        """Flush a device, as a guest does.

        :raises: Wait, OSError
        """
        device = self.get(path)
        if device.suspended:
            raise Wait
        if device.clone:
            self.commit(device.clone)
        else:
            self._flush(path)

    def _flush(self, path):
        device = self.get(path)
        while device is not None:
            if device.suspended:
                raise Wait
            if device.kinds not in ('linear', 'snapshot-origin'):
                raise _io_error('error target')
            path = self.bottom(device)
            device = self.get(path)
        if not self.lvm.volumes[path].get('first'):
            # The kernel sends flushes to the first block.
            self._refuse_without_space(path, 0)
        self.disk(path).flush()
        pool = self.lvm.volumes[path].get('pool')
        for volume in self.lvm.volumes.values():
            # They share blocks, and the disk.
            if pool and volume.get('pool') == pool and 'disk' in volume:
                volume['disk'].flush()

    def commit_pools(self):
        """Have thin pools commit, which they do each second by themselves.

        The clones above do not commit (COMMIT_PERIOD in drivers/md/dm-thin.c).
        """
        for volume in self.lvm.volumes.values():
            if volume.get('pool') and 'disk' in volume:
                volume['disk'].flush()

    # Overrides of the kernel without content

    def never_ends(self, name):
        """Return whether a suspend would wait, also for a remote source."""
        device = self._named(name)
        return super().never_ends(name) or bool(
            device.clone and device.clone.writes or
            device.parked and not device.suspended)

    def zero_start(self, path, length):
        super().zero_start(path, length)
        if not self.lvm.volumes.get(path, {}).get('pool'):
            self.lvm.bitmaps[path] = Bitmap()

    def zero_out(self, path):
        super().zero_out(path)
        self.lvm.bitmaps[path] = Bitmap()

    def flush_disk(self, path):
        super().flush_disk(path)
        self.flush(path)
        device = self.get(path)
        device.flushed = True
        if device.table[0].kind == 'snapshot-origin':
            self.get(device.table[0].words[0]).flushed = True

    def fail_waiting(self):
        for device in self.devices.values():
            if device.own:
                device.own.waiting = 0

    def reboot(self):
        for device in self.devices.values():
            for write in getattr(device, 'parked', []):
                write.failed = True
            if device.own:
                device.own.waiting = 0
        super().reboot()
        for volume in self.lvm.volumes.values():
            if 'disk' in volume:
                volume['disk'].cut_power()
        for bitmap in self.lvm.bitmaps.values():
            bitmap.cut_power()

    def _switch(self, device, segments):
        device.switched = bool(device.clone)
        device.flushed = False
        # Requests to a suspended device go to its next table.
        device.parked = getattr(device, 'parked', [])
        super()._switch(device, segments)

    def _load(self, name, table, read_only=False):
        device = self._named(name)
        if device.clone and not device.suspended:
            self.violations.append('%s: loaded over a live clone' % name)
        super()._load(name, table, read_only)

    def _drain(self, name, device):
        super()._drain(name, device)
        if device.own:
            # silently, as in the kernel
            with contextlib.suppress(OSError, Wait):
                self.commit(device.own)

    def _status_of(self, name):
        clone = self._named(name).own
        if clone and len(clone.bitmap.now) == REGIONS:
            clone.bitmap['hydrated'] = clone.total
        return super()._status_of(name)
