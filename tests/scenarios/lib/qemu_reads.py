# SPDX-License-Identifier: Apache-2.0
"""Submit reads in a new QEMU, as run by Nova: native I/O, one main loop.

Run on a node: ``python3 qemu_reads.py DEVICE OTHER COUNT FROM TO HERE``.
Submits reads at COUNT places of DEVICE between FROM and TO (MiB). Then prints
one line when the monitor has answered, one when a read of OTHER has ended, one
when a read at HERE (MiB) has ended, and one when all reads have ended.
"""

import json
import random
import socket
import subprocess
import sys
import tempfile
import time

_SIZE = 4096
_DEVICE = '/machine/peripheral/%s/virtio-backend'
_DISK = 'driver=host_device,cache.direct=on,aio=native,read-only=on'


class Monitor:
    """A connection to QEMU's monitor."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        for _attempt in range(100):
            try:
                self._socket.connect(path)
                break
            except OSError:
                time.sleep(0.3)
        self._lines = self._socket.makefile()
        self._lines.readline()
        self.ask('qmp_capabilities')

    def ask(self, command, **arguments):
        """Return the answer to a command."""
        self._socket.sendall(json.dumps({
            'execute': command, 'arguments': arguments}).encode())
        while True:
            answer = json.loads(self._lines.readline())
            if 'event' not in answer:
                return answer['return']

    def io(self, disk, command):
        """Run a command of qemu-io on a disk of the guest."""
        said = self.ask('human-monitor-command', **{
            'command-line': 'qemu-io -d %s "%s"' % (_DEVICE % disk, command)})
        assert 'rror' not in said and 'failed' not in said, said


def main(path, other, count, start, end, here):
    with tempfile.TemporaryDirectory() as folder:
        qemu = subprocess.Popen([
            'qemu-system-x86_64', '-machine', 'q35', '-accel', 'tcg', '-m',
            '64', '-S', '-nodefaults', '-display', 'none', '-qmp',
            'unix:%s/qmp,server=on,wait=off' % folder,
            '-blockdev', '%s,node-name=v,filename=%s' % (_DISK, path),
            '-device', 'virtio-blk-pci,id=dv,drive=v',
            '-blockdev', '%s,node-name=o,filename=%s' % (_DISK, other),
            '-device', 'virtio-blk-pci,id=do,drive=o'],
            stdout=subprocess.DEVNULL)
        try:
            read(Monitor(folder + '/qmp'), int(count),
                 range(int(start) << 20, int(end) << 20, _SIZE),
                 int(here) << 20)
        finally:
            qemu.kill()
            qemu.wait()


def read(monitor, count, places, here):
    begin = time.monotonic()

    def say(what, function, *arguments, **keywords):
        function(*arguments, **keywords)
        print('%s after %.2f s' % (what, time.monotonic() - begin),
              flush=True)

    def many():
        for place in random.sample(places, count):
            monitor.io('dv', 'aio_read -q %d %d' % (place, _SIZE))

    say('asked', many)
    say('monitor', monitor.ask, 'query-status')
    say('other', monitor.io, 'do', 'read -q 0 %d' % _SIZE)
    say('here', monitor.io, 'dv', 'read -q %d %d' % (here, _SIZE))
    say('all', monitor.io, 'dv', 'aio_flush')


if __name__ == '__main__':
    main(*sys.argv[1:])
