# SPDX-License-Identifier: Apache-2.0
"""Count the flushes that handles pass on: tools/bench barriers.

QEMU's block layer writes 4 KiB at a time with each of the host's cache modes,
without and with a flush after each write. The flushes that the disk below has
completed are counted.
"""

from lab.bench import metadata


class Bench(metadata.Bench):
    """Writes and flushes through QEMU."""

    WHAT = 'barriers'

    def _round(self):
        self.measure('barriers')

    def note(self, found):
        """Keep the rate of writes, and the number of flushes per write."""
        name = '%s, cache %s, %s' % (
            found['what'], found['mode'],
            'a flush each' if found['flush'] else 'no flush')
        self.results.note(name, found['iops'])
        self.results.note(name + ': flushes a write', found['flushes'])

    @staticmethod
    def base_of(name):
        """Return the plain logical volume's rate to compare a rate with."""
        if 'flushes a write' in name:
            return None
        return 'logical volume,' + name.partition(',')[2]
