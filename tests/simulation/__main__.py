# SPDX-License-Identifier: Apache-2.0
"""The command line of the simulation: tools/bench simulation."""

import argparse
import csv
import dataclasses
import logging
import os
import sys
import time
import unittest

# A greenlet of the simulation need not switch to eventlet's. Cinder 28 and
# older ignore this; see Clock.spawn.
os.environ['OS_CINDER_DISABLE_EVENTLET_PATCHING'] = 'True'

# This one before other modules of Cinder.
from tests import unit  # noqa: E402, F401
from tests.simulation import cloud as cloud_module  # noqa: E402, H306
from tests.simulation import drain  # noqa: E402
from tests.unit import base  # noqa: E402

#: Seconds in which the services come to rest, and are then looked at.
SETTLE, REST = 120, 300
#: What all simulated processes together took of this machine.
PROCESSOR = 'processor time of the simulation, s'


def parse(arguments):
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog='tools/bench simulation', description='Drain nodes of a '
        "simulated cloud at once, with the driver's own code.")
    for name, number, text in (
            ('nodes', 1000, 'nodes in the cloud'),
            ('volumes', 200, 'volumes on a node that is not drained'),
            ('drained', 50, 'nodes that are drained at once'),
            ('moving', 8, 'volumes on each of these')):
        parser.add_argument('--' + name, type=int, default=number,
                            help=text + '; default: %(default)s')
    for field in dataclasses.fields(cloud_module.Costs):
        parser.add_argument(
            '--' + field.name, type=field.type, default=field.default,
            help='assumed, see cloud.Costs; default: %(default)s')
    parser.add_argument('--save', metavar='FILE',
                        help='also write the table as CSV')
    return parser.parse_args(arguments)


def table(phases):
    """Return the lines of a table, a column per phase.

    :param phases: {name: {what: number}}
    """
    names = list(dict.fromkeys(what for found in phases.values()
                               for what in found))
    return [['', *phases], *(
        [what, *(_text(found.get(what)) for found in phases.values())]
        for what in names)]


def _text(number):
    if number is None:
        return ''
    return '%d' % number if number == int(number) else '%.2f' % number


class Simulation(base.DatabaseTestCase):
    """One run, with the database of Cinder's tests."""

    patch = base.PlainTestCase.patch

    def __init__(self, options, name='simulate'):
        super().__init__(name)
        self.options = options

    def simulate(self):
        """Look at services at rest, ask them all, and drain some nodes."""
        logging.disable(logging.WARNING)
        self.addCleanup(logging.disable, logging.NOTSET)
        options, phases = self.options, {}
        cloud = cloud_module.Cloud(self, cloud_module.Costs(**{
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(cloud_module.Costs)}))
        drains = drain.Drains(cloud, options.nodes, options.volumes,
                              options.drained, options.moving)
        drains.rest(SETTLE)
        for name, act in (('at rest', lambda: drains.rest(REST)),
                          ('status', lambda: self.assertEqual(
                              [], drains.status())),
                          ('during the drains', drains.run)):
            cloud.meter.reset()
            begin = time.process_time()
            act()
            phases[name] = {PROCESSOR: time.process_time() - begin,
                            **dict(cloud.meter.rows())}
        self.assertEqual([], drains.wrong())
        self.show(table(phases))

    def show(self, lines):
        """Print the table, and save it if that is wanted."""
        for line in lines:
            print('%-64s %14s %14s %18s' % tuple(line))
        if self.options.save:
            with open(self.options.save, 'w') as stream:
                csv.writer(stream, lineterminator='\n').writerows(lines)


def main():
    case = Simulation(parse(sys.argv[1:]))
    return not unittest.TextTestRunner().run(case).wasSuccessful()


if __name__ == '__main__':
    sys.exit(main())
