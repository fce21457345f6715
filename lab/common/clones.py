# SPDX-License-Identifier: Apache-2.0
"""Clones on the kernel of a node, created by the driver's code as root.

The volume group is the laboratory's; each user removes the logical volumes
that it creates there.
"""

import hashlib
import mmap
import os
import subprocess
import threading
import time
import types
import uuid

from cinder import objects

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import devices
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.metadata import lvm as lvm_metadata
from dmclone_driver.node.names import ANCHOR
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import EXPORT
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from dmclone_driver.node.names import ZEROS
from dmclone_driver import privsep

GROUP = os.environ.get('DMCLONE_TEST_GROUP', 'cinder-volumes')
MIB = 1024 * 1024
TUNING = devices.Tuning(window=8192)

objects.register_all()


def run(*command):
    """Run a program and return its output."""
    return subprocess.run(command, check=True, capture_output=True,
                          text=True).stdout


class Configuration(types.SimpleNamespace):
    """A backend's options for metadata."""

    volume_group = GROUP
    config_group = 'dmclone'
    dmclone_metadata_volume_group = None
    lvm_conf_file = '/etc/cinder/lvm.conf'
    lvm_suppress_fd_warnings = False

    def safe_get(self, name):
        """Return an option's value, as Cinder's configuration does."""
        return getattr(self, name, None)


class Clones:
    """Volumes and devices that tests and benchmarks create on a node.

    Needs the method `addCleanup` of unittest's test cases.
    """

    #: Of the clones that are built.
    TUNING = TUNING

    def prepare(self):
        """Run the privileged functions in this process, as root."""
        privsep.dmclone_context.set_client_mode(False)
        self.use(lvm_metadata.LogicalVolumeMetadata)

    def use(self, kind, **options):
        """Use metadata of a kind, as at a start of the service."""
        from oslo_concurrency import processutils
        self.metadata = kind(Configuration(**options), processutils.execute)
        self.metadata.check()

    @staticmethod
    def left():
        """Return the names of the existing devices and logical volumes.

        Those below the tails of clones stay until the node goes down.
        """
        return [*(name for name in dmsetup.devices() if 'dmclone' in name and
                  name not in (ANCHOR, ZEROS)),
                *(lv.name for lv in logical_volumes.find_all(GROUP))]

    def logical_volume(self, size=8 * MIB, content=None):
        """Create a logical volume; returns (Names, LogicalVolume)."""
        names = Names(str(uuid.uuid4()))
        run('lvcreate', '--yes', '--wipesignatures', 'n', '--size',
            '%db' % size, '--name', names.volume, GROUP)
        self.addCleanup(run, 'lvremove', '--yes', '%s/%s' % (
            GROUP, names.volume))
        lv = logical_volumes.find(names.volume, GROUP)
        if content is not None:
            write(lv.path, 0, content)
        return names, lv

    def linear_volume(self, size=8 * MIB, content=None):
        """Create a volume with a linear handle; see logical_volume."""
        names, lv = self.logical_volume(size, content)
        LocalVolume(names).ensure_linear(lv)
        self.addCleanup(LocalVolume(names).remove, EXPORT, HANDLE)
        return names, lv

    def clone(self, source, passive=True, size=8 * MIB, region=128,
              content=None):
        """Create a clone of a device; returns (Names, LogicalVolume)."""
        names, lv = self.logical_volume(size, content)
        self.metadata.create(names, size, region)
        self.addCleanup(self.metadata.remove, names)
        self.build(names, lv, source, passive)
        self.addCleanup(LocalVolume(names).remove, EXPORT, HANDLE, CLONE, GATE,
                        SOURCE)
        return names, lv

    def raw(self, table, probed=True):
        """Create a device for the test; returns its path.

        :param probed: whether udev may read it
        """
        name = 'test-%s' % uuid.uuid4()
        run('dmsetup', 'create', name, '--table', table,
            # By that the project's rules know what nobody probes.
            *(() if probed else ('--uuid', 'DMCLONE-' + name)))
        self.addCleanup(run, 'dmsetup', 'remove', name)
        return '/dev/mapper/' + name

    def build(self, names, lv, source, passive=True):
        """Build or rebuild the devices of a clone."""
        path, region = self.metadata.find(names)
        LocalVolume(names).build_clone(lv, path, region, self.TUNING,
                                       disk=source, passive=passive)

    def exported_source(self, size=8 * MIB, seed=1):
        """Create an exported volume; returns (Names, path, data)."""
        data = pattern(size, seed)
        names, lv = self.linear_volume(size, data)
        LocalVolume(names).ensure_export(size)
        return names, names.path(EXPORT), data


def swap(path, table):
    """Replace a device's table; pending requests go to the new table."""
    run('dmsetup', 'suspend', path)
    run('dmsetup', 'load', path, '--table', table)
    run('dmsetup', 'resume', path)


def wait_until(function, what, seconds=60):
    """Call a function until its result is true; return the result."""
    deadline = time.monotonic() + seconds
    while True:
        found = function()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError('no ' + what)
        time.sleep(0.1)


def pattern(size, seed):
    """Return data whose blocks of 4 KiB all differ."""
    out, block = bytearray(), 0
    while len(out) < size:
        digest = hashlib.sha256(b'%d %d' % (seed, block)).digest()
        out += digest * (4096 // len(digest))
        block += 1
    return bytes(out[:size])


def _buffer(data):
    buffer = mmap.mmap(-1, len(data))
    buffer.write(data)
    return buffer


def write(path, offset, data, durably=True):
    """Write without the page cache; flush if durably."""
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    try:
        done = 0
        while done < len(data):
            chunk = data[done:done + MIB]
            os.pwrite(fd, _buffer(chunk), offset + done)
            done += len(chunk)
        if durably:
            os.fsync(fd)
    finally:
        os.close(fd)


def read(path, offset, length):
    """Read without the page cache."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        # New memory is slow on a node: each page of it is a fault.
        parts, done = [], 0
        buffer = mmap.mmap(-1, min(MIB, length))
        while done < length:
            got = os.preadv(fd, [memoryview(buffer)[:length - done]],
                            offset + done)
            parts.append(buffer[:got])
            done += got
        return b''.join(parts)
    finally:
        os.close(fd)


class Background(threading.Thread):
    """A write in a thread, which may have to wait."""

    def __init__(self, path, offset, data):
        super().__init__(daemon=True)
        self._arguments = (path, offset, data)
        #: The error of the write, None if it succeeded.
        self.error = None
        self.start()

    def run(self):
        try:
            write(*self._arguments)
        except OSError as error:
            self.error = error

    def waits(self, seconds=0.5):
        """Return whether the write is still pending after some seconds."""
        self.join(seconds)
        return self.is_alive()
