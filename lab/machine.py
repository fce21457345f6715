# SPDX-License-Identifier: Apache-2.0
"""The host's side of a node: its kernel's process, its disks, its ticks."""

import os
import shutil
import time

from lab import errors
from lab import image
from lab import kernel
from lab import network
from lab import paths
from lab import proc
from lab import ticker

# Room for several volumes of 100 GiB with snapshots; the files are sparse.
DATA_BYTES = 800 << 30
METADATA_BYTES = 8 << 30


class Machine:
    """The virtual machine of a node."""

    def __init__(self, name, number, settings):
        self.name = name
        self.number = number
        self.folder = paths.NODES / name
        self.share = self.folder / 'share'
        #: Nova's folder on the host, with the consoles.
        self.instances = self.folder / 'instances'
        self.logs = paths.LOGS / name
        self.console = self.logs / 'console.log'
        self.ticks = self.logs / 'ticks'
        self._settings = settings
        self._process = 'machine-' + name

    def make_disks(self):
        """Create empty sparse disks."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.share.mkdir(parents=True)
        self.instances.mkdir()
        for disk, size in (('data', DATA_BYTES), ('meta', METADATA_BYTES)):
            with open(self.folder / disk, 'wb') as f:
                os.ftruncate(f.fileno(), size)

    def _argv(self, ticks):
        interfaces = [
            'vec%d:transport=tap,ifname=%s,depth=128,gro=1,mac=%s' % (
                i, network.tap(self.name, bridge),
                network.mac(self.number, bridge))
            for i, bridge in enumerate(('lab', 'mgmt'))]
        return [
            kernel.binary(self._settings.kernel),
            'mem=%dM' % self._settings.node_memory,
            'uml_dir=%s' % self.folder, 'umid=uml',
            'ubd0=%s,%s' % (
                self.folder / 'root.cow', image.PACKAGED
                if self._settings.package else image.IMAGE),
            'ubd1=%s' % (self.folder / 'data'),
            'ubd2=%s' % (self.folder / 'meta'),
            # From Linux 6.16 on this replaces ptrace: processes start in
            # 60 % of the time. The nodes' programs are trusted.
            'seccomp=auto',
            'root=/dev/ubda', 'rw', 'init=/sbin/lab-init',
            'LAB_SHARE=%s' % self.share,
            # hostfs has its folder as an option without a name, which mount
            # of Debian 13 would not pass on otherwise. Debian 12 ignores it.
            'LIBMOUNT_FORCE_MOUNT2=always',
            'pty.legacy_count=0',       # 512 devices that udev would handle
            'con=null', 'con0=null,fd:1', 'ssl=null',
            'ssl0=null,fd:%d' % ticks, *interfaces]

    def power_on(self):
        if self.powered():
            raise errors.LabError('%s is on already' % self.name)
        proc.kill(self._process)
        self.logs.mkdir(parents=True, exist_ok=True)
        cpus = sorted(os.sched_getaffinity(0))
        with open(self.ticks, 'ab') as ticks:
            # On an unpinned kernel a system call takes ten times as long.
            proc.start(self._process, self._argv(ticks.fileno()),
                       self.console, wrapper=network.wrapper(),
                       pass_fds=[ticks.fileno()],
                       cpu=cpus[(self.number - 1) % len(cpus)])

    def power_off(self):
        """Kill the kernel's processes with SIGKILL, as in a power cut."""
        proc.kill(self._process)
        with open(self.ticks, 'a') as ticks:
            ticks.write('%s %.6f\n' % (ticker.OFF, time.time()))

    def powered(self):
        return proc.alive(self._process)

    def must_live(self):
        proc.must_live(self._process, self.console)

    def troubles(self):
        """Return one line per failure of this machine."""
        text = self.ticks.read_text(errors='replace') \
            if self.ticks.exists() else ''
        return ['%s %s' % (self.name, trouble) for trouble in
                ticker.troubles(text, time.time(), self.powered())]
