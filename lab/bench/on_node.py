# SPDX-License-Identifier: Apache-2.0
"""Run a disk benchmark on a node, and print a line of JSON per result.

usage: python -m lab.bench.on_node metadata|metadata-fast [SOURCE ...]
       python -m lab.bench.on_node barriers
       python -m lab.bench.on_node ram KIND | give-back KIND
       python -m lab.bench.on_node mix PATH

A SOURCE is the imported disk of a volume on another node; "ram" creates a
logical volume in memory, and "mix" reads and writes a disk.
"""

import contextlib
import json
import sys

from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.metadata import brd
from dmclone_driver.node.metadata import lvm
from dmclone_driver.node.metadata import tmpfs
from dmclone_driver.node.metadata import zram
from lab.bench import slow_disks
from lab.common import clones

SIZE = 2048 * clones.MIB
# Each measurement uses a part of the clone that is not hydrated yet.
PART = SIZE // 4
# The disk of a node's volume group.
DISK = 'ubdb'
SECONDS = 3
# MiB per volume in memory.
RAM = 256
#: {what: (kind, options)}
STORES = {
    'disk of the data': (lvm.LogicalVolumeMetadata, {}),
    'disk of its own': (lvm.LogicalVolumeMetadata, {
        'dmclone_metadata_volume_group': slow_disks.METADATA}),
    'fast disk': (lvm.LogicalVolumeMetadata, {
        'dmclone_metadata_volume_group': 'cinder-metadata'}),
    'brd': (brd.BrdMetadata, {}),
    'zram': (zram.ZramMetadata, {}),
    'tmpfs': (tmpfs.TmpfsMetadata, {})}


def fio(path, *options):
    """Run fio for some seconds; returns the report of its job."""
    # fio takes a colon for the end of a file name.
    name = path.replace(':', r'\:')
    out = clones.run('fio', '--name=bench', '--filename=' + name,
                     '--ioengine=psync', '--direct=1', '--bs=4k',
                     '--time_based', '--runtime=%d' % SECONDS,
                     '--invalidate=1', '--output-format=json', *options)
    return json.loads(out)['jobs'][0]


def tell(**what):
    """Print a measurement as JSON."""
    print(json.dumps(what), flush=True)


class Bench(clones.Clones):
    """Measurements, each of which removes the devices that it creates."""

    def __init__(self):
        self.prepare()

    @contextlib.contextmanager
    def step(self):
        """Remove at the end the devices created within."""
        with contextlib.ExitStack() as made:
            self.addCleanup = made.callback
            yield

    def use_any(self, kind, memory=32, **options):
        """Use metadata of a kind, with the given memory in MiB."""
        self.use(kind, dmclone_volatile_metadata=True,
                 dmclone_metadata_memory=memory, **options)

    # Cost of a clone's metadata

    def metadata_costs(self, *sources, stores=tuple(STORES)):
        """Measure each kind of metadata once."""
        with self.step():
            names, lv = self.logical_volume(SIZE)
            self._measure_random('logical volume', '', lv.path)
            LocalVolume(names).ensure_linear(lv)
            self.addCleanup(LocalVolume(names).remove, clones.HANDLE)
            self._measure_random('linear handle', '', names.path())
        for store in stores:
            for where, source in [('local', None), *(
                    ('remote', path) for path in sources)]:
                for region in (8, 128):
                    with self.step():
                        self._measure_clone(store, where, source, region)

    def metadata_costs_of_some(self, *sources):
        """Measure two kinds of metadata."""
        self.metadata_costs(*sources, stores=('disk of the data', 'zram'))

    def _measure_clone(self, store, where, source, region):
        kind, options = STORES[store]
        self.use_any(kind, **options)
        self.addCleanup(self.metadata.give_back)
        if source is None:
            source = self._local_source()
        names, lv = self.clone(source, passive=False, size=SIZE,
                               region=region)
        self._measure_random('clone, %d KiB regions, %s source' % (
            region // 2, where), store, names.path())

    def _local_source(self):
        names, lv = self.linear_volume(SIZE)
        LocalVolume(names).ensure_export(SIZE)
        return names.path(clones.EXPORT)

    @staticmethod
    def _measure_random(what, store, path):
        for number, rw in enumerate(('randwrite', 'write', 'randread')):
            report = fio(path, '--rw=' + rw, '--sync=1',
                         '--offset=%d' % (number * PART), '--size=%d' % PART)
            tell(what=what, store=store, rw=rw,
                 iops=report[rw.removeprefix('rand')]['iops'])

    # Flushes

    def barriers(self):
        """Write with QEMU in each cache mode; count the disk's flushes."""
        with self.step():
            source = self._local_source()
            names, lv = self.linear_volume(SIZE)
            clone, destination = self.clone(source, passive=False, size=SIZE)
            for what, path in (('logical volume', lv.path),
                               ('linear handle', names.path()),
                               ('clone', clone.path())):
                for mode in ('none', 'writeback', 'writethrough'):
                    for flush in (0, 1):
                        self._measure_qemu(what, path, mode, flush)

    def _measure_qemu(self, what, path, mode, flush, count=300):
        before = self._flushes()
        out = clones.run(
            'qemu-img', 'bench', '-f', 'raw', '-w', '-t', mode, '-d', '1',
            '-s', '4096', '-S', '65536', '-c', str(count),
            *(['--flush-interval=1'] if flush else []), path)
        seconds = float(out.split('Run completed in ')[1].split()[0])
        tell(what=what, mode=mode, flush=bool(flush), iops=count / seconds,
             flushes=(self._flushes() - before) / count)

    @staticmethod
    def _flushes():
        """Return the number of flushes that the data disk has completed.

        The 16th field of the kernel's admin-guide/iostats.rst.
        """
        with open('/sys/block/%s/stat' % DISK) as stream:
            return int(stream.read().split()[15])

    # Volumes in memory

    def ram(self, kind):
        """Create a logical volume in memory, and print its path."""
        self.use_any(STORES[kind][0], RAM)
        group = self.metadata.group_name
        clones.run('lvcreate', '--yes', '--wipesignatures', 'n', '--extents',
                   '100%FREE', '--name', 'bench', group)
        tell(path='/dev/%s/bench' % group)

    def give_back(self, kind):
        """Remove the logical volume of ram(), and free the memory."""
        self.use_any(STORES[kind][0], RAM)
        clones.run('lvremove', '--yes', self.metadata.group_name + '/bench')
        self.metadata.give_back()

    @staticmethod
    def mix(path):
        """Run 80 % reads and 20 % writes, 80 % of them at random."""
        for depth in (1, 16):
            report = fio(path, '--rw=randrw', '--rwmixread=80',
                         '--percentage_random=80', '--ioengine=libaio',
                         '--iodepth=%d' % depth, '--size=%dm' % (RAM - 2))
            for way in ('read', 'write'):
                tell(depth=depth, way=way, iops=report[way]['iops'],
                     latency=report[way]['clat_ns']['mean'] / 1000)


def main():
    what, *arguments = sys.argv[1:]
    bench = Bench()
    commands = {'metadata': bench.metadata_costs,
                'metadata-fast': bench.metadata_costs_of_some,
                'barriers': bench.barriers, 'ram': bench.ram,
                'give-back': bench.give_back, 'mix': bench.mix}
    commands[what](*arguments)


if __name__ == '__main__':
    main()
