# SPDX-License-Identifier: Apache-2.0
"""Loads on the disk of a node, and what fio reports of them."""

import dataclasses
import json
import shlex

from lab.bench import numbered
from lab import errors

_COMMAND = ('fio --name=load --filename=%s --direct=1 --ioengine=libaio '
            '--bs=4k --offset=%dm --time_based --runtime=%d '
            '--output-format=json %s')
#: Seconds that fio has to begin and to end.
SPARE = 60


@dataclasses.dataclass(frozen=True)
class Report:
    """What a load has got.

    :ivar rate: requests a second
    :ivar p99: 99th percentile of their latency in ms, the larger one of reads
        and writes
    :ivar longest: latency of the slowest of all in ms, with the time in which
        the kernel did not take it
    """

    rate: float
    p99: float
    longest: float


def parse(text):
    """Return the Report of fio's output.

    :raises LabError: if a request has failed, or none was done
    """
    # fio writes a line before it if it was ended by a signal.
    job = json.loads(text[text.index('{'):])['jobs'][0]
    ways = [job[way] for way in ('read', 'write') if job[way]['iops']]
    if job.get('error') or not ways:
        raise errors.LabError('the load has failed: error %s, %d kinds of '
                              'requests' % (job.get('error'), len(ways)))
    return Report(
        sum(way['iops'] for way in ways),
        max(way['clat_ns']['percentile']['99.000000'] for way in ways) / 1e6,
        max(way['lat_ns']['max'] for way in ways) / 1e6)


def note(results, what, report):
    """Note each value of a Report.

    :param results: Ratios
    """
    for way, value in (('rate', report.rate), ('p99', report.p99),
                       ('longest', report.longest)):
        results.note('%s, %s' % (way, what), value)


def command(path, seconds, options, offset=numbered.PLACES):
    """Return the command that runs a load, and prints fio's report.

    :param offset: MiB that it leaves alone, those of the numbered writes at
        least
    """
    # fio takes a colon for the end of a file name.
    return _COMMAND % (shlex.quote(path.replace(':', r'\:')), offset,
                       seconds, options)


def run(node, path, seconds, options, **more):
    """Run a load; return its Report. The parameters are those of command()."""
    return parse(node.run(command(path, seconds, options, **more),
                          timeout=seconds + SPARE))
