# SPDX-License-Identifier: Apache-2.0
"""A process that writes records to a volume, as a guest does.

Run on a node: ``python3 -m tests.scenarios.lib.writers DEVICE SERIAL``. It
prints the number of each record when that is durable. Where they are:
lab/common/records.py.
"""

import contextlib
import mmap
import os
import sys
import time

from lab.common import records
from lab.common import volumes
from lab import paths
from lab import wait

_PYTHON = 'PYTHONDONTWRITEBYTECODE=1 {python} -m '
_WRITE = ('(cd {checkout} && exec env ' + _PYTHON +
          'tests.scenarios.lib.writers {path} {serial}) < /dev/null '
          '> {log} 2>{errors} & echo $!')
_CHECK = (
    'cd {checkout} && openssl enc -aes-128-ctr -nosalt -pbkdf2 '
    '-pass pass:first -in /dev/zero 2>/dev/null | head -c {mib}M | ' +
    _PYTHON + 'lab.common.records {path} {serial} {acknowledged}')


def _fill(text, path, volume_id, **values):
    return text.format(
        checkout=paths.CHECKOUT, python=paths.VENV / 'bin/python', path=path,
        serial=volume_id[:20], **values)


class Writer:
    """The process, on a node."""

    def __init__(self, node, path, volume_id, may_fail=False):
        """Start it.

        :param may_fail: whether it may end by itself, at an error
        """
        self._node = node
        self._log = '/run/writer-%s.log' % volume_id
        self._pid = node.run(_fill(_WRITE, path, volume_id,
                                   log=self._log, errors='/dev/null' if
                                   may_fail else '&1')).strip()
        #: Of a process that has ended: what was durable.
        self._end = None

    @property
    def last(self):
        """The number of the newest durable record, 0 if there is none."""
        if self._end is not None:
            return self._end
        lines = self._node.run('cat ' + self._log).splitlines()
        assert all(line.isdigit() for line in lines), lines[-5:]
        return int(lines[-1]) if lines else 0

    def goes_on(self):
        """Wait until three more records are durable; return the last one."""
        before = self.last
        wait.until(lambda: self.last >= before + 3, 'the writer to go on', 60)
        return self.last

    def has_ended(self):
        """Whether it has ended by itself."""
        return self._node.try_run('kill -0 ' + self._pid)[0] != 0

    def end(self):
        """End it, and wait until it has closed the device."""
        self._node.run('kill {0}; while kill -0 {0}; do sleep 0.1; done '
                       '2>/dev/null'.format(self._pid), check=False)
        self._end = self.last


class Writers:
    """A mixin for test cases of :mod:`tests.scenarios.lib.base`."""

    @contextlib.contextmanager
    def writing(self, node, path, volume_id):
        """Have a device written all the time; yields the Writer."""
        writer = Writer(node, path, volume_id)
        try:
            writer.goes_on()
            yield writer
            writer.goes_on()
        finally:
            writer.end()

    def compare(self, node, path, volume_id, acknowledged,
                mib=volumes.DATA):
        """Compare a device with the records of a volume's writer.

        They have to be a prefix of those that were written.

        :param acknowledged: the newest record that has to be there
        :param mib: of the data from before, which is compared, too
        """
        code, out, err = node.try_run(_fill(
            _CHECK, path, volume_id, acknowledged=acknowledged, mib=mib),
            timeout=180)
        self.assertEqual((0, ''), (code, out.strip()), err)


def main():
    path, serial = sys.argv[1:]
    disk = os.open(path, os.O_RDWR | os.O_DIRECT)
    block = mmap.mmap(-1, records.SIZE)
    number = 0
    for slot in range(records.SLOTS):
        os.preadv(disk, [block], records.place(slot))
        number = max(number, records.number_of(block[:], serial, slot) or 0)
    while True:
        number += 1
        block[:] = records.record(serial, number)
        os.pwrite(disk, block, records.place(number))
        os.fsync(disk)
        print(number, flush=True)
        time.sleep(0.02)


if __name__ == '__main__':
    main()
