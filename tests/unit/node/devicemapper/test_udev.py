# SPDX-License-Identifier: Apache-2.0
"""Waiting for udev, with real semaphores."""

import os

from eventlet import patcher
import fixtures

from dmclone_driver.node.devicemapper import udev
from tests.unit import base


# Who waits is a process without eventlet.
threading = patcher.original('threading')


class ResumesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        runs = os.path.join(self.useFixture(fixtures.TempDir()).path, 'udev')
        open(runs, 'w').close()
        self.patch('dmclone_driver.node.devicemapper.udev.RUNS', new=runs)
        self.patch('dmclone_driver.node.devicemapper.ioctl.resume',
                   new=self.resume)
        #: (device, cookie of its event)
        self.resumed = []
        #: Whether the kernel raises an event, or an exception.
        self.event = True

    def resume(self, name, cookie):
        self.resumed.append((name, cookie))
        if isinstance(self.event, Exception):
            raise self.event
        return self.event

    @staticmethod
    def semaphore(cookie):
        """Return the semaphore that udev finds for an event, or None."""
        try:
            return udev._checked(udev._libc.semget(
                0x0d4d0000 | cookie & 0xffff, 1, 0))
        except FileNotFoundError:
            return None

    def complete(self, cookie):
        """Do what "dmsetup udevcomplete" does."""
        udev._checked(udev._libc.semtimedop(
            self.semaphore(cookie), udev._OPERATION.pack(0, -1, 0), 1, None))

    def test_udev_is_waited_for(self):
        over = threading.Event()

        def act():
            with udev.Resumes() as resumes:
                resumes.resume('one')
                resumes.resume('two')
            over.set()

        thread = threading.Thread(target=act)
        thread.start()
        while len(self.resumed) < 2:
            self.assertFalse(over.wait(0.01))
        cookie = self.resumed[0][1]
        self.assertEqual([('one', cookie), ('two', cookie)], self.resumed)
        # Primary source, and no fallback by the library.
        self.assertEqual(0x60, cookie >> 16)
        self.complete(cookie)
        self.assertFalse(over.wait(0.2))
        self.complete(cookie)
        self.assertTrue(over.wait(60))
        thread.join()
        self.assertIsNone(self.semaphore(cookie))

    def test_no_event(self):
        """The device was not suspended, so udev hears nothing of it."""
        self.event = False
        with udev.Resumes() as resumes:
            resumes.resume('one')
            self.assertIsNotNone(self.semaphore(self.resumed[0][1]))
        self.assertIsNone(self.semaphore(self.resumed[0][1]))
        self.assertEqual([], resumes.late)

    def test_resume_fails(self):
        self.event = OSError('injected')

        def resume():
            with udev.Resumes() as resumes:
                resumes.resume('one')
        # That of testtools 2.7 is no context manager.
        self.assertRaises(OSError, resume)
        self.assertIsNone(self.semaphore(self.resumed[0][1]))

    def test_udev_does_not_end(self):
        """It does not hang for ever."""
        self.patch('dmclone_driver.node.devicemapper.udev.TIMEOUT', new=0)
        with udev.Resumes() as resumes:
            resumes.resume('one')
        self.assertIsNone(self.semaphore(self.resumed[0][1]))
        self.assertEqual(['one'], resumes.late)

    def test_limit(self):
        with udev.Resumes(limit=0) as resumes:
            resumes.resume('one')
        self.assertIsNone(self.semaphore(self.resumed[0][1]))
        self.assertEqual(['one'], resumes.late)

    def test_nothing_to_resume(self):
        with udev.Resumes():
            pass
        self.assertEqual([], self.resumed)

    def test_no_udev(self):
        """The event has the flags, which later rules may need."""
        os.remove(udev.RUNS)
        with udev.Resumes() as resumes:
            resumes.resume('one')
        self.assertEqual([('one', 0x600000)], self.resumed)

    def test_no_semaphore(self):
        """That does not prevent the resume."""
        self.patch('dmclone_driver.node.devicemapper.udev._checked',
                   side_effect=OSError('injected'))
        with udev.Resumes() as resumes:
            resumes.resume('one')
        self.assertEqual([('one', 0x600000)], self.resumed)
