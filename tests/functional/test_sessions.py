# SPDX-License-Identifier: Apache-2.0
"""iSCSI sessions of the driver to a target daemon of the test."""

import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from unittest import mock

from cinder import exception as cinder_exception
from os_brick import exception as brick_exception
from os_brick import privileged
from os_brick.privileged import rootwrap
from oslo_concurrency import lockutils

from dmclone_driver.node import initiator
from dmclone_driver.privsep import iscsi_records
from lab.common import clones
from tests.functional import base

#: Numbers that the laboratory's own daemon does not have.
CONTROL, PORTAL = '99', '127.0.0.1:3299'
IQN = 'iqn.2026-01.org.openstack:test-sessions'
LOCATION = '%s,1 %s 1' % (PORTAL, IQN)
USER, PASSWORD = 'somebody', 'password1234'
# Seconds that a connect may take whose source is lost meanwhile. With the
# default of open-iscsi its scan alone takes more than 120. os-brick tries two
# more logins, for 17 seconds each, and some more scans.
LATE = 110


def tgtadm(mode, verb, *words):
    clones.run('tgtadm', '-C', CONTROL, '--lld', 'iscsi', '--mode', mode,
               '--op', verb, *words)


class SessionsTest(base.FunctionalTest):
    """Connects to a source."""

    def setUp(self):
        super().setUp()
        privileged.default.set_client_mode(False)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lockutils.set_defaults(folder.name)
        _names, path, _data = self.exported_source()
        self.daemon = subprocess.Popen(['tgtd', '-f', '-C', CONTROL, '--iscsi',
                                        'portal=' + PORTAL])
        self.addCleanup(self.daemon.wait)
        self.addCleanup(self.daemon.kill)
        clones.wait_until(self.listens, 'answer of tgtd')
        tgtadm('target', 'new', '--tid', '1', '-T', IQN)
        tgtadm('logicalunit', 'new', '--tid', '1', '--lun', '1', '-b', path)
        tgtadm('account', 'new', '--user', USER, '--password', PASSWORD)
        tgtadm('account', 'bind', '--tid', '1', '--user', USER)
        tgtadm('target', 'bind', '--tid', '1', '-I', 'ALL')
        self.auth = 'CHAP %s %s' % (USER, PASSWORD)
        self.initiator = initiator.Initiator(1, -1)
        self.addCleanup(self.initiator.disconnect, LOCATION, self.auth)

    @staticmethod
    def listens():
        try:
            tgtadm('system', 'show')
        except subprocess.CalledProcessError:
            return False
        return True

    def test_connect(self):
        clones.read(self.initiator.connect(LOCATION, self.auth), 0, 4096)

    @staticmethod
    def records():
        return [path for folder in iscsi_records.FOLDERS
                for path in pathlib.Path(folder, IQN).rglob('*')
                if path.is_file()]

    def empty_record(self):
        """Do what a power cut does to a record that was just written."""
        record, = self.records()
        os.truncate(record, 0)

    def test_connect_with_an_empty_record(self):
        clones.run('iscsiadm', '-m', 'node', '-T', IQN, '-p', PORTAL,
                   '--op', 'new')
        self.empty_record()
        clones.read(self.initiator.connect(LOCATION, self.auth), 0, 4096)

    def test_disconnect_with_an_empty_record(self):
        self.initiator.connect(LOCATION, self.auth)
        self.empty_record()
        self.initiator.disconnect(LOCATION, self.auth)
        self.assertEqual([], self.records())
        self.assertNotIn(IQN, self.initiator.targets())

    def test_lost_during_the_scan(self):
        """Other volumes do not wait for that for long.

        Without a request under way the kernel would not wait: it does not
        scan a session that is lost (drivers/scsi/scsi_transport_iscsi.c).
        """
        execute = rootwrap.execute

        def lose(*words, **options):
            if words[0] == 'tee' and words[-1].endswith('/scan'):
                self.daemon.send_signal(signal.SIGSTOP)
                threading.Timer(1, self.daemon.kill).start()
            return execute(*words, **options)

        began = time.monotonic()
        with mock.patch.object(rootwrap, 'execute', lose):
            self.assertRaises((cinder_exception.CinderException,
                               brick_exception.BrickException, OSError),
                              self.initiator.connect, LOCATION, self.auth)
        self.assertLess(time.monotonic() - began, LATE)
