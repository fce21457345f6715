# SPDX-License-Identifier: Apache-2.0
"""Numbered writes to a volume, which are compared at the end of a benchmark.

Each fills one MiB of the volume's first part with its number, durably.
"""

import concurrent.futures
import contextlib
import threading

#: MiB that they use, again and again.
PLACES = 16
MIB = 2 ** 20


class Numbered:
    """The writes to one volume, on whichever node it is.

    :param newest: number of the last write to what the volume was made from
    """

    def __init__(self, newest=0):
        self._newest = newest

    def copy(self):
        """Return the writes to a volume that is made from this one now."""
        return Numbered(self._newest)

    @staticmethod
    def content(newest):
        """Return what the places have after a number of writes, as bytes."""
        found = Numbered(newest).expected()
        return b''.join(
            (b'%d\n' % found[at] * MIB)[:MIB] if at in found else bytes(MIB)
            for at in range(PLACES))

    def expected(self):
        """Return {MiB: number of the newest write there}."""
        return {number % PLACES: number for number in range(
            max(1, self._newest - PLACES + 1), self._newest + 1)}

    def write(self, node, path):
        """Write the next number."""
        number = self._newest + 1
        node.run('yes %d | head -c 1M | dd of=%s bs=1M seek=%d '
                 'iflag=fullblock oflag=direct conv=notrunc,fsync '
                 'status=none' % (number, path, number % PLACES))
        self._newest = number

    @contextlib.contextmanager
    def meanwhile(self, node, path, enter=None):
        """Write a number each second, in another thread.

        :param enter: called there first, see Lab.enter()
        """
        over = threading.Event()

        def work():
            while not over.is_set():
                self.write(node, path)
                over.wait(1)
        with concurrent.futures.ThreadPoolExecutor(
                1, initializer=enter) as pool:
            job = pool.submit(work)
            try:
                yield
            finally:
                over.set()
            job.result()

    def compare(self, node, path):
        """Read all places.

        :raises AssertionError: if a number is not the newest one there
        """
        found = self.parse(node.run(
            'for at in $(seq 0 %d); do dd if=%s bs=1M skip=$at count=1 '
            'iflag=direct status=none | uniq | head -c 100 | '
            'LC_ALL=C tr -c "0-9\\n" "?" | tr "\\n" " "; echo; done' % (
                PLACES - 1, path)))
        wrong = {at: found.get(at) for at, number in self.expected().items()
                 if found.get(at) != number}
        assert not wrong, 'expected %s, found %s' % (self.expected(), wrong)

    @staticmethod
    def parse(text):
        """Return {MiB: number} of those that hold one number alone.

        :param text: a line per place, the different lines of its content;
            the last of them may be cut
        """
        found = {}
        for at, line in enumerate(text.splitlines()):
            number, *cut = line.split() or ['']
            if number.isdigit() and len(cut) <= 1 and number.startswith(
                    ''.join(cut)):
                found[at] = int(number)
        return found
