# SPDX-License-Identifier: Apache-2.0
"""A load on a volume for some seconds, on parts that it has not written yet.

A snapshot costs the first write to each of its chunks most.
"""

import shlex

from lab.bench import hydration
from lab.bench import numbered

#: Names of what is measured.
UNITS = ('requests a second', 'p99 in ms')
#: GiB of a volume for all loads, and MiB and seconds of one.
SIZE, PART, SECONDS = 1, 256, 6
_FIO = ('fio --name=load --filename=%s --direct=1 --ioengine=libaio --bs=4k '
        '--rw=randrw --rwmixread=70 --iodepth=4 --offset=%dm --size=%dm '
        '--time_based --runtime=%d --output-format=json')


def command(path, number):
    """Return the command of a load; each number has a part of its own."""
    # fio takes a colon for the end of a file name.
    name = shlex.quote(path.replace(':', r'\:'))
    return _FIO % (name, numbered.PLACES + number * PART, PART, SECONDS)


def run(node, path, number):
    """Run a load; returns {name of what is measured: value}."""
    return dict(zip(UNITS, hydration.parse_load(
        node.run(command(path, number), timeout=SECONDS + 60)), strict=True))
