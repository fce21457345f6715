# SPDX-License-Identifier: Apache-2.0
"""What the checks read of a node: files, programs and sockets.

Nothing is changed. The paths of files are below a root, so that tests can
give a node's files.
"""

import collections.abc
import errno
import http.client
import os
import pathlib
import platform
import socket
import time
import urllib.request

from oslo_config import cfg

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node import lvm
from dmclone_driver.privsep import command
from dmclone_driver.privsep import thin

# Seconds that a server on the network has to answer.
TIMEOUT = 5

# The longest record of the kernel's log (CONSOLE_EXT_LOG_MAX in
# include/linux/printk.h).
_RECORD = 8192


class Host:
    """This node."""

    def __init__(self, root: str | pathlib.Path = '/') -> None:
        self._root = pathlib.Path(root)

    # Files

    def path(self, path: str) -> pathlib.Path:
        """Return where a file of the node is."""
        return self._root / path.lstrip('/')

    def read(self, path: str) -> str | None:
        """Return the text of a file, None if there is none.

        :raises: OSError, for example if it may not be read
        """
        try:
            return self.path(path).read_text(errors='replace')
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        return self.path(path).exists()

    def find(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern, sorted."""
        return sorted('/' + str(found.relative_to(self._root)) for found in
                      self._root.glob(pattern.lstrip('/')))

    def processes(self, name: str) -> list[int]:
        """Return the ids of the processes with a name, as of ps -o comm."""
        found = []
        for path in self.find('/proc/[0-9]*/comm'):
            try:
                if (self.read(path) or '').strip() == name:
                    found.append(int(path.split('/')[2]))
            except OSError:
                # The process has just ended.
                continue
        return found

    def owner_of(self, inode: int) -> tuple[int, str] | None:
        """Return (id, name) of a process with a socket, None if unknown.

        Only root sees the sockets of other users' processes, and nobody those
        of another pid namespace or of the kernel.
        """
        for folder in self.find('/proc/[0-9]*/fd'):
            try:
                names = os.listdir(self.path(folder))
            except OSError:
                continue
            for name in names:
                try:
                    target = os.readlink(self.path(folder) / name)
                except OSError:
                    continue
                if target == 'socket:[%d]' % inode:
                    process = folder.split('/')[2]
                    return int(process), (
                        self.read('/proc/%s/comm' % process) or '').strip()
        return None

    def kernel_log(self) -> str:
        """Return the log of the kernel, of which nothing is taken away.

        :raises: OSError
        """
        # Each read returns one record, and none waits for the next one.
        descriptor = os.open(self.path('/dev/kmsg'),
                             os.O_RDONLY | os.O_NONBLOCK)
        records = []
        try:
            while True:
                try:
                    record = os.read(descriptor, _RECORD)
                except BlockingIOError:
                    break
                except OSError as error:
                    # A record was overwritten meanwhile.
                    if error.errno != errno.EPIPE:
                        raise
                    continue
                if not record:
                    break
                records.append(record.decode(errors='replace'))
        finally:
            os.close(descriptor)
        return ''.join(records)

    def options(self, options: collections.abc.Sequence[cfg.Opt],
                *paths: str) -> cfg.ConfigOpts:
        """Return options in [DEFAULT] of another program's files.

        :raises: OSError if a file may not be read; oslo_config.cfg.Error
        """
        for path in paths:
            self.read(path)
        found = cfg.ConfigOpts()
        found.register_opts(options)
        found([], default_config_files=[
            str(self.path(path)) for path in paths if self.exists(path)],
            default_config_dirs=[])
        return found

    # Programs

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    @staticmethod
    def release() -> str:
        return platform.release()

    @staticmethod
    def privileged_user() -> int:
        """Return the user as which privileged code runs.

        :raises: an exception of privsep
        """
        return command.user()

    @staticmethod
    def targets() -> set[str]:
        """Return the loaded targets of the device-mapper.

        :raises: ProcessExecutionError, OSError
        """
        return dmsetup.target_versions()

    @staticmethod
    def find_module(module: str) -> None:
        """Find a kernel module, without loading it.

        :raises: ProcessExecutionError, OSError
        """
        command.modprobe('--dry-run', module)

    @staticmethod
    def thin_dump() -> str:
        """Return what thin_dump calls its version.

        :raises: ProcessExecutionError, also if there is no such program
        """
        return thin.version()

    @staticmethod
    def lvm_settings(folder: str | None) -> str:
        """Return LVM's section "devices".

        :param folder: LVM_SYSTEM_DIR, None for LVM's default
        :raises: LVMError
        """
        return lvm.settings('devices', folder)

    # Network

    @staticmethod
    def name() -> str:
        return socket.gethostname()

    @staticmethod
    def addresses(name: str) -> set[str]:
        """Return the addresses that a name resolves to, if it does."""
        try:
            return {str(found[4][0]) for found in
                    socket.getaddrinfo(name, None)}
        except OSError:
            return set()

    @staticmethod
    def has_address(address: str) -> bool:
        """Whether an address is one of this node's."""
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        try:
            # Of a port that the kernel chooses, for a moment.
            with socket.socket(family, socket.SOCK_DGRAM) as one:
                one.bind((address, 0))
        except OSError:
            return False
        return True

    @staticmethod
    def connect(address: str, port: int) -> None:
        """Open and close a connection.

        :raises: OSError
        """
        socket.create_connection((address, port), TIMEOUT).close()

    @staticmethod
    def get(url: str) -> None:
        """Read a page over HTTP, without a proxy.

        :raises: OSError
        """
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            opener.open(url, timeout=TIMEOUT).read()
        except http.client.HTTPException as error:
            raise OSError(repr(error)) from error

    @staticmethod
    def now() -> float:
        """Return the seconds since 1970."""
        return time.time()
