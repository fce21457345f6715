# SPDX-License-Identifier: Apache-2.0
"""A load on a volume for some seconds, on parts that it has not written yet.

A snapshot costs the first write to each of its chunks most.
"""

from lab.bench import load
from lab.bench import numbered

#: Names of what is measured.
UNITS = ('requests a second', 'p99 in ms')
#: GiB of a volume for all loads, and MiB and seconds of one.
SIZE, PART, SECONDS = 1, 256, 6
#: Its options of fio.
_OPTIONS = '--rw=randrw --rwmixread=70 --iodepth=4 --size=%dm' % PART


def _offset(number):
    return numbered.PLACES + number * PART


def command(path, number):
    """Return the command of a load; each number has a part of its own."""
    return load.command(path, SECONDS, _OPTIONS, offset=_offset(number))


def run(node, path, number):
    """Run a load; returns {name of what is measured: value}."""
    found = load.run(node, path, SECONDS, _OPTIONS, offset=_offset(number))
    return dict(zip(UNITS, (found.rate, found.p99), strict=True))
