# SPDX-License-Identifier: Apache-2.0
"""Measure what a copy on the host costs a guest: tools/bench host-copies.

A load runs on a volume at its home, alone and while a process of the same node
writes a large file to a file system in the same volume group: through the page
cache with the kernel's limits, with small ones, in a cgroup with a limit, and
past the cache.
"""

import contextlib
import dataclasses
import time

from lab.bench import load
from lab.bench import numbered
from lab.bench import ratios
from lab.common import user as user_module
from lab.common import volumes
from lab import lab

GROUP, NAME = 'cinder-volumes', 'bench-host'
#: Of the file in MiB, half of a node's memory: far above the kernel's limits
#: of dirty pages there.
FILE = 512
#: Of the volume in GiB.
SIZE = 1
LOAD = '--rw=randrw --rwmixread=70 --iodepth=4 --size=256m'
PATH = 'bench-host-copies.json'
ALONE = 'alone'
#: MiB of dirty pages from which the kernel writes behind, and from which it
#: slows down the writer.
BEHIND, AT_MOST = 4, 16
#: Bytes a second in the cgroup.
LIMIT = 16 * 2 ** 20

#: The disk is a sparse file of the host, whose first writes last longer: all
#: of it is written, and stays so. ext4 would initialise the rest of its
#: tables during the first load.
_MAKE = r"""
set -e
lvcreate -qq --yes --wipesignatures y --size {0}m --name {1} {2}
dd if=/dev/zero of=/dev/{2}/{1} bs=1M count={0} oflag=direct status=none
mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 \
    /dev/{2}/{1}
mkdir -p /run/{1}
mount /dev/{2}/{1} /run/{1}
""".format(2 * FILE, NAME, GROUP)
_REMOVE = r"""
! mountpoint -q /run/{0} || umount /run/{0}
! lvs {1}/{0} > /dev/null 2>&1 || lvremove -qq --yes {1}/{0}
""".format(NAME, GROUP)
#: The process group of the copy, which is written again and again.
_BEGIN = r"""
setsid bash -c '{0}
while dd if=/dev/zero of=/run/{1}/file bs=1M count={2} conv=fsync,notrunc \
    {3} status=none; do :; done' > /dev/null 2>&1 < /dev/null &
echo $!
"""
#: Its last dd waits for the disk, and has the file open until then.
_END = """
kill -- -{0} 2> /dev/null
while fuser -s /run/{1}/file 2> /dev/null; do sleep 0.1; done
rm -f /run/{1}/file
sync
"""
_WRITTEN = ("awk '{print $7}' /sys/class/block/$(basename $(readlink -f "
            "/dev/%s/%s))/stat" % (GROUP, NAME))
_CGROUP = '/sys/fs/cgroup/' + NAME


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to copy on the host.

    :ivar name: in the table
    :ivar flags: further words of dd
    :ivar needs: a shell command that fails on a node that cannot do it
    :ivar before: shell commands of root before it, and those that take them
        back
    :ivar inside: shell commands in the process that copies
    """

    name: str
    flags: str = ''
    needs: str = 'true'
    before: str = ''
    after: str = ''
    inside: str = ''


WAYS = (
    Way('page cache'),
    Way('page cache, small limits', before=(
        'cd /proc/sys/vm && echo %d > dirty_background_bytes && '
        'echo %d > dirty_bytes' % (BEHIND << 20, AT_MOST << 20)),
        # The ratio of each is 0 since then; these are the kernel's defaults.
        after='cd /proc/sys/vm && echo 10 > dirty_background_ratio && '
        'echo 20 > dirty_ratio'),
    Way('page cache, io.max', needs=(
        'grep -w io /sys/fs/cgroup/cgroup.controllers | grep -qw memory'),
        before='''
set -e
echo "+io +memory" > /sys/fs/cgroup/cgroup.subtree_control
mkdir {0}
for disk in $(pvs --noheadings -o pv_name -S vg_name={1}); do
    device=/sys/class/block/$(basename "$(readlink -f "$disk")")
    echo "$(cat "$device/dev") wbps={2}" > {0}/io.max
done
'''.format(_CGROUP, GROUP, LIMIT), after='''
rmdir {0}
echo "-io -memory" > /sys/fs/cgroup/cgroup.subtree_control
'''.format(_CGROUP), inside='echo 0 > %s/cgroup.procs' % _CGROUP),
    Way('direct', flags='oflag=direct'))


def base_of(name):
    """Return the measurement that one is compared with, or None."""
    way, what = ratios.parts(name)
    return (None if what == ALONE or way.startswith('copied') else
            '%s, %s' % (way, ALONE))


class Bench(volumes.Volumes):
    """A load beside copies on its host."""

    ROUNDS, MINUTES = 3, 15

    def __init__(self, seconds):
        """Remember the options.

        :param seconds: of a load
        """
        self.lab = lab.Lab.load()
        self.user = user_module.User(self.lab)
        self.results = ratios.Ratios()
        self.node = next(iter(self.lab.nodes.values()))
        self._seconds = seconds

    def round(self):
        """Measure each way once."""
        with contextlib.ExitStack() as made:
            made.callback(self.clean_up)
            with self.created_on(self.node):
                used = self.user.create_volume(SIZE)['id']
            made.callback(self.node.run, _REMOVE)
            self.node.run(_MAKE, timeout=300)
            writes = numbered.Numbered()
            with self.attached(used, self.node) as path:
                writes.write(self.node, path)
                # The first writes to a sparse file last longer.
                load.run(self.node, path, self._seconds, LOAD)
                self._load(path, writes, ALONE)
                for way in filter(self.possible, WAYS):
                    self._beside(way, path, writes)
                writes.compare(self.node, path)

    def possible(self, way):
        """Return whether the node can copy that way; say so if not."""
        possible = not self.node.try_run(way.needs)[0]
        if not possible:
            print('  left out, as this kernel cannot do it: ' + way.name)
        return possible

    def _beside(self, way, path, writes):
        """Measure the load beside a copy."""
        with self.copying(way):
            begin, sectors = time.monotonic(), self._written()
            self._load(path, writes, way.name)
            took = time.monotonic() - begin
            self.results.note('copied, %s: MiB/s' % way.name,
                              (self._written() - sectors) / 2048 / took)

    @contextlib.contextmanager
    def copying(self, way):
        """Copy on the host meanwhile."""
        with contextlib.ExitStack() as made:
            if way.before:
                made.callback(self.node.run, way.after)
                self.node.run(way.before)
            process = int(self.node.run(_BEGIN.format(
                way.inside, NAME, FILE, way.flags)))
            made.callback(self.node.run, _END.format(process, NAME),
                          timeout=300)
            yield

    def _written(self):
        """Return the sectors that the copies have written to the disk."""
        return int(self.node.run(_WRITTEN))

    def _load(self, path, writes, what):
        with writes.meanwhile(self.node, path, self.lab.enter):
            found = load.run(self.node, path, self._seconds, LOAD)
        load.note(self.results, what, found)

    def report(self):
        """Print medians and ratios, and save the results."""
        self.results.report(base_of)
        self.results.save(PATH, base_of)
        print()
