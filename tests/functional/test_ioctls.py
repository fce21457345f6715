# SPDX-License-Identifier: Apache-2.0
"""The ioctls of the driver tell, and do, what dmsetup does."""

import errno
import os
import subprocess
import threading
import time

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import ioctl
from dmclone_driver.node.devicemapper import swap
from dmclone_driver.node.devicemapper import sysfs
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node.devicemapper import udev
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import CLONE
from dmclone_driver.node.names import GATE
from dmclone_driver.node.names import HANDLE
from dmclone_driver.node.names import SOURCE
from lab.common import clones
from tests.functional import base

#: More devices than have room in the first answer.
MANY = 150


def info(name):
    """Return what dmsetup says about a device, as (UUID, ...)."""
    uuid, count, flags = clones.run(
        'dmsetup', 'info', '-c', '--noheadings', '--separator', '|', '-o',
        'uuid,open,attr', name).strip().split('|')
    return uuid, int(count), flags[0] == 'L', flags[2] == 's', flags[3] == 'r'


def status(name):
    return clones.run('dmsetup', 'status', '--noflush', name)


def semaphores():
    """Return the numbers of udev's cookies that are in use."""
    with open('/proc/sysvipc/sem') as stream:
        keys = [int(line.split()[0]) for line in stream.readlines()[1:]]
    return sorted(key & 0xffff for key in keys if key >> 16 == 0x0d4d)


class IoctlTest(base.FunctionalTest):

    def setUp(self):
        super().setUp()
        self.cookies = semaphores()
        self.addCleanup(lambda: self.assertEqual(self.cookies, semaphores()))

    def device(self, name, *segments, **options):
        """Create a device that is no volume's, and that udev ignores."""
        name = 'dmclone-test-' + name
        dmsetup.create(name, 'DMCLONE-' + name, *segments, **options)
        self.addCleanup(clones.run, 'dmsetup', 'remove', '--retry', name)
        return name

    def zeros(self, name, **options):
        return self.device(name, table.Zero(2048), **options)

    def assertSame(self, name):
        """Compare a look with that of dmsetup."""
        found = ioctl.info(name)
        self.assertEqual(info(name), (
            found.uuid, found.open_count, found.live, found.suspended,
            found.read_only))
        # A clone may be writing its metadata.
        clones.wait_until(lambda: status(name) == ioctl.status(name),
                          'equal status of ' + name)


class LookTest(IoctlTest):

    def test_versions(self):
        listed = dict(line.split() for line in clones.run(
            'dmsetup', 'targets').splitlines())
        self.assertEqual(listed, {
            name: 'v%d.%d.%d' % version
            for name, version in ioctl.versions().items()})
        self.assertIn('clone', listed)

    def test_linear(self):
        names, lv = self.linear_volume()
        self.assertSame(names.of(HANDLE))
        with open(names.path(), 'rb'):
            self.assertEqual(1, ioctl.info(names.of(HANDLE)).open_count)
            self.assertSame(names.of(HANDLE))

    def test_segments(self):
        names, lv = self.linear_volume()
        self.assertSame(self.device(
            'segments', table.Zero(64), table.Linear(64, names.path()),
            table.Error(64), read_only=True))

    def test_clone(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        for role in (HANDLE, CLONE, GATE, SOURCE):
            self.assertSame(names.of(role))
        self.assertTrue(ioctl.info(names.of(GATE)).suspended)
        LocalVolume(names).open_gate()
        clones.write(names.path(), 0, b'W' * 65536)
        for role in (HANDLE, CLONE, GATE, SOURCE):
            self.assertSame(names.of(role))
        self.assertEqual(1, dmsetup.clone(names.of(CLONE)).hydrated)

    def test_snapshot_origin(self):
        names, lv = self.linear_volume()
        origin = self.device('origin', table.SnapshotOrigin(
            table.sectors(lv.size), names.path()))
        self.assertSame(origin)
        self.assertEqual('snapshot-origin', dmsetup.state(origin))

    def test_suspended(self):
        name = self.zeros('suspended', suspended=True)
        self.assertSame(name)
        self.assertTrue(sysfs.is_suspended(name))
        self.addCleanup(dmsetup.resume, name)

    def test_lvm_does_not_read_it_before_it_is_linked(self):
        """LVM finds it by the kernel's name, which no filter refuses.

        Its read of a device that is suspended meanwhile would hang.
        """
        _names, lv = self.linear_volume()
        name = 'dmclone-test-gate'
        thread = threading.Thread(target=self.device, args=(
            'gate', table.Linear(table.sectors(lv.size), lv.path)),
            kwargs={'suspended': True})
        clones.run('udevadm', 'control', '--stop-exec-queue')
        try:
            thread.start()
            clones.wait_until(lambda: dmsetup.kinds(name), name)
            disk = '/dev/' + clones.run(
                'dmsetup', 'info', '-c', '--noheadings', '-o', 'blkdevname',
                name).strip()
            said = subprocess.run(
                ['lvs', '-vvvv'], check=True, timeout=60, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
            linked = os.path.exists('/dev/mapper/' + name)
        finally:
            clones.run('udevadm', 'control', '--start-exec-queue')
            thread.join()
        self.addCleanup(dmsetup.resume, name)
        self.assertFalse(linked)
        self.assertIn(disk + ': Skipping unusable device', said)
        self.assertNotIn('Processing data from device %s ' % disk, said)
        self.assertTrue(sysfs.is_suspended(name))
        self.assertEqual('linear', dmsetup.kinds(name))

    def test_inactive_table(self):
        name = self.device('later', table.Zero(2048), later=True)
        found = ioctl.info(name)
        self.assertFalse(found.live)
        self.assertEqual('', ioctl.status(name))
        # It has a link from then on, which udev makes.
        dmsetup.resume(name)
        self.assertTrue(os.path.exists('/dev/mapper/' + name))
        self.assertSame(name)

    def test_no_such_device(self):
        for act in (ioctl.info, ioctl.status, ioctl.suspend, ioctl.resume):
            with self.assertRaises(OSError) as caught:
                act('dmclone-none')
            self.assertEqual(errno.ENXIO, caught.exception.errno)
            self.assertIn('dmclone-none', caught.exception.strerror)
        self.assertIsNone(dmsetup.device('dmclone-none'))
        self.assertIsNone(dmsetup.clone('dmclone-none'))

    def test_many_devices(self):
        names = [self.zeros('%0100d' % number) for number in range(MANY)]
        listed = clones.run('dmsetup', 'info', '-c', '--noheadings', '-o',
                            'name').split()
        self.assertEqual(sorted(listed), sorted(ioctl.names()))
        self.assertLessEqual(set(names), set(dmsetup.devices()))
        # They are more than the first answer has room for.
        self.assertGreater(sum(map(len, names)), ioctl._ROOM)

    def test_many_targets(self):
        name = self.device('targets', *[table.Zero(8), table.Error(8)] * 500)
        self.assertSame(name)
        self.assertGreater(1000 * ioctl._SPEC.size, ioctl._ROOM)

    def test_all_while_devices_come_and_go(self):
        over = threading.Event()

        def act():
            while not over.is_set():
                clones.run('dmsetup', 'create', 'dmclone-test-short',
                           '--table', '0 8 zero')
                clones.run('dmsetup', 'remove', '--retry',
                           'dmclone-test-short')

        thread = threading.Thread(target=act)
        thread.start()
        try:
            name = self.zeros('stays')
            for _look in range(500):
                self.assertIn(name, dmsetup.devices())
                self.assertEqual({}, dmsetup.clones())
        finally:
            over.set()
            thread.join()


class ChangeTest(IoctlTest):

    def test_load_as_dmsetup(self):
        """The tables are the same, and so is whether it refuses writes."""
        names, lv = self.linear_volume()
        segments = [table.Zero(64), table.Linear(64, lv.path, 128),
                    table.Error(1 << 40)]
        for read_only in (False, True):
            with self.subTest(read_only):
                mine, its = (self.zeros('%s%d' % (whose, read_only),
                                        read_only=read_only)
                             for whose in ('mine', 'its'))
                ioctl.load(mine, table.text(*segments), read_only)
                options = ['--readonly'] if read_only else []
                subprocess.run(['dmsetup', 'load', *options, its], check=True,
                               input=table.text(*segments), text=True)
                for query in (['table', '--inactive'],
                              ['info', '-c', '--noheadings', '-o', 'attr']):
                    self.assertEqual(*(clones.run('dmsetup', *query, name)
                                       for name in (its, mine)))
                dmsetup.resume(mine)
                clones.run('dmsetup', 'resume', its)
                self.assertEqual(info(its)[2:], info(mine)[2:])
                self.assertEqual(clones.run('dmsetup', 'table', its),
                                 clones.run('dmsetup', 'table', mine))

    def test_table_that_is_refused(self):
        name = self.zeros('refused')
        with self.assertRaises(OSError) as caught:
            ioctl.load(name, '0 8 linear /dev/none 0\n')
        self.assertIn('reload ioctl on %s failed' % name,
                      caught.exception.strerror)
        self.assertFalse(ioctl.info(name).suspended)
        self.assertEqual('0 2048 zero \n', status(name))

    def test_suspend_and_resume(self):
        """Requests wait in between, and udev keeps the device's link."""
        names, lv = self.linear_volume()
        handle = names.of(HANDLE)
        for flush in (True, False):
            ioctl.suspend(handle, flush)
            ioctl.suspend(handle, flush)
            self.assertSame(handle)
            writer = clones.Background(names.path(), 0, b'W' * 4096)
            self.assertTrue(writer.waits())
            dmsetup.resume(handle)
            self.assertFalse(writer.waits(10))
            dmsetup.resume(handle)
            self.assertSame(handle)
            self.assertTrue(os.path.exists(names.path()))

    def test_udev_sees_what_dmsetup_has_it_see(self):
        """The properties of the event, and so those of its rules."""
        name = self.zeros('udev')

        def events(act):
            monitor = subprocess.Popen(
                ['udevadm', 'monitor', '--udev', '--property',
                 '--subsystem-match=block'], stdout=subprocess.PIPE,
                text=True)
            time.sleep(3)
            act()
            clones.run('udevadm', 'settle')
            time.sleep(1)
            monitor.terminate()
            lines = monitor.communicate()[0].splitlines()
            return sorted(line for line in lines
                          if '=' in line and not line.startswith((
                              'SEQNUM=', 'DM_COOKIE=', 'USEC_')))

        def mine():
            dmsetup.suspend(name)
            dmsetup.resume(name)

        def its():
            clones.run('dmsetup', 'suspend', name)
            clones.run('dmsetup', 'resume', name)

        expected = events(its)
        self.assertIn('DM_UDEV_PRIMARY_SOURCE_FLAG=1', expected)
        self.assertEqual(expected, events(mine))

    def test_udev_is_done(self):
        """As after dmsetup, the link of a device's first table is there."""
        names = [self.device('done%d' % number, table.Zero(8), later=True)
                 for number in range(20)]
        with udev.Resumes() as resumes:
            for name in names:
                resumes.resume(name)
        for name in names:
            self.assertTrue(os.path.exists('/dev/mapper/' + name))

    def listed(self, count):
        """Return names and the list of devices; they are removed later."""
        names = ['dmclone-test-list%d' % number for number in range(count)]
        for name in names:
            self.addCleanup(subprocess.run, [
                'dmsetup', 'remove', '--retry', name],
                stderr=subprocess.DEVNULL)
        return names, [table.concise(name, 'DMCLONE-' + name, table.Zero(8))
                       for name in names]

    def test_many_are_linked(self):
        """By udev; dmsetup would make other nodes of that name."""
        names, devices = self.listed(60)
        dmsetup.create_together(*devices)
        for name in names:
            self.assertTrue(os.path.islink('/dev/mapper/' + name), name)
            self.assertSame(name)

    def test_udev_is_not_waited_for_after_a_failure(self):
        """The device that fails has no event."""
        names, devices = self.listed(3)
        devices[1] = devices[1].replace('zero', 'nonsense')
        begun = time.monotonic()
        self.assertRaises(processutils.ProcessExecutionError,
                          dmsetup.create_together, *devices)
        self.assertLess(time.monotonic() - begun, udev.TIMEOUT)
        self.assertTrue(os.path.islink('/dev/mapper/' + names[0]))
        self.assertNotIn(names[1], sysfs.devices())

    def test_message(self):
        source, path, data = self.exported_source()
        names, lv = self.clone(path, passive=False)
        clone = names.of(CLONE)
        dmsetup.message(clone, 'hydration_batch_size 3')
        self.assertEqual(3, dmsetup.clone(clone).batch)
        for hydrating, text in ((True, 'enable_hydration'),
                                (False, 'disable_hydration')):
            dmsetup.message(clone, text)
            self.assertEqual(hydrating, dmsetup.clone(clone).hydration)
            self.assertSame(clone)
        with self.assertRaises(OSError) as caught:
            ioctl.message(clone, 'nonsense')
        self.assertEqual(errno.EINVAL, caught.exception.errno)
        self.assertIn(clone, caught.exception.strerror)

    def test_suspend_that_is_interrupted(self):
        """Requests do not end in time: the device is as before."""
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        handle = names.of(HANDLE)
        writer = clones.Background(names.path(), 0, b'W' * 4096)
        self.assertTrue(writer.waits())
        begun = time.monotonic()
        with self.assertRaises(swap.Waits):
            swap.Kernel(udev.Resumes()).suspend(handle, True, 0.5)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertSame(handle)
        self.assertFalse(ioctl.info(handle).suspended)
        LocalVolume(names).open_gate()
        self.assertFalse(writer.waits(10))

    def test_other_threads_run(self):
        """A suspend that waits holds up no other look, and no thread."""
        source, path, data = self.exported_source()
        names, lv = self.clone(path)
        writer = clones.Background(names.path(), 0, b'W' * 4096)
        self.assertTrue(writer.waits())
        waiting = threading.Thread(target=dmsetup.suspend,
                                   args=[names.of(HANDLE)])
        waiting.start()
        for _look in range(20):
            self.assertTrue(dmsetup.clone(names.of(CLONE)).written)
            time.sleep(0.01)
        self.assertTrue(waiting.is_alive())
        LocalVolume(names).open_gate()
        waiting.join(10)
        self.assertFalse(waiting.is_alive())
        dmsetup.resume(names.of(HANDLE))
        self.assertFalse(writer.waits(10))
