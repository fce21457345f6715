# SPDX-License-Identifier: Apache-2.0
"""What the checks read of this machine."""

import errno
import os
import socket
import threading

import fixtures

from dmclone_driver.checks import host
from tests.unit import base


class HostTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.host = host.Host()

    def test_own_process(self):
        with open('/proc/self/comm') as stream:
            name = stream.read().strip()
        self.assertIn(os.getpid(), self.host.processes(name))

    def test_own_socket(self):
        with socket.socket() as one:
            one.bind(('127.0.0.1', 0))
            one.listen()
            inode = os.fstat(one.fileno()).st_ino
            self.assertEqual(os.getpid(), self.host.owner_of(inode)[0])
            self.host.connect('127.0.0.1', one.getsockname()[1])
        self.assertIsNone(self.host.owner_of(inode))

    def test_addresses(self):
        self.assertTrue(self.host.has_address('127.0.0.1'))
        self.assertFalse(self.host.has_address('192.0.2.1'))

    def test_file_that_does_not_exist(self):
        self.assertIsNone(self.host.read('/proc/version/x'))
        self.assertIsNone(self.host.read('/nowhere'))

    def test_log(self):
        """A record may be overwritten while the log is read."""
        folder = self.useFixture(fixtures.TempDir()).path
        os.mkdir(folder + '/dev')
        with open(folder + '/dev/kmsg', 'w'):
            pass
        self.patch('dmclone_driver.checks.host.os.read', side_effect=[
            b'one\n', OSError(errno.EPIPE, 'overwritten'), b'two\n',
            BlockingIOError()])
        self.assertEqual('one\ntwo\n', host.Host(folder).kernel_log())

    def test_log_that_cannot_be_read(self):
        folder = self.useFixture(fixtures.TempDir()).path
        self.assertRaises(OSError, host.Host(folder).kernel_log)

    def serve(self, answer):
        """Return the address of a server that answers once."""
        server = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(server.close)

        def run():
            connection, _address = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=run)
        thread.start()
        self.addCleanup(thread.join)
        return 'http://127.0.0.1:%d/version' % server.getsockname()[1]

    def test_page(self):
        self.host.get(self.serve(b'HTTP/1.0 200 OK\r\n\r\n{}'))

    def test_page_of_another_program(self):
        url = self.serve(b'nonsense\r\n')
        self.assertRaises(OSError, self.host.get, url)
