# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/tempest."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from lab import command
from lab import errors
from lab import lab
from lab import network
from lab import paths
from lab import setup
from lab.tempest import backends
from lab.tempest import conf
from lab.tempest import outcomes
from lab.tempest import report
from lab.tempest import run
from lab.tempest import selection

_ABOUT = """\
Run Tempest's tests of volumes, and those of cinder-tempest-plugin, in the
laboratory that is up. It must have no volumes. cinder-volume is restarted on
all nodes, with a second backend, and at the end again as it was.

The report of the run is kept in tempest-DRIVER.json, with --thin in
tempest-DRIVER-thin.json. What passed with Cinder's LVM driver, when it was
last tested, has to pass with this driver, too.
"""


def parser():
    made = argparse.ArgumentParser(
        prog='tools/tempest', description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument('--driver', choices=list(conf.REPORTED),
                      default='dmclone',
                      help='the driver of the first backend: this one, or '
                      "Cinder's LVM driver with the same volume group")
    made.add_argument('--thin', action='store_true',
                      help='with lvm_type = thin: the first backend has a '
                      'thin pool meanwhile')
    made.add_argument('--short', action='store_true',
                      help='a selection of about ten minutes')
    made.add_argument('--differences', action='store_true',
                      help='run also what this driver is known not to pass')
    made.add_argument('--list', action='store_true',
                      help='only show what would run; needs no laboratory')
    made.add_argument('--concurrency', type=int, default=2, metavar='N',
                      help='tests at the same time (2)')
    made.add_argument('--subunit', action='store_true',
                      help='write a subunit stream, and all else to stderr')
    made.add_argument('regex', nargs='?', metavar='REGEX',
                      help='which tests, instead of all of volumes')
    return made


def _name(driver, args):
    """Return the name of the runs with a driver and the same volumes."""
    return driver + '-thin' if args.thin else driver


def _choose(tempest, args):
    """Return the tests that run, and {test: reason} of those left out."""
    regex = args.regex or (selection.SHORT if args.short else selection.ALL)
    files = selection.UNFIT
    if args.driver == 'dmclone' and not args.differences:
        files += selection.DIFFERENCES
    chosen, left_out = selection.divide(tempest.tests(regex),
                                        selection.rules(files))
    return chosen, {outcomes.name(test): reason
                    for test, reason in left_out.items()}


def _list(args):
    """Show the selected tests, without a laboratory."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tempest = run.Tempest(folder, conf.tempest(
            args.driver, {}, False, 0, folder))
        chosen, left_out = _choose(tempest, args)
    print('\n'.join(map(outcomes.name, chosen)))
    for test, reason in left_out.items():
        print('left out: %s: %s' % (test, reason))
    print('%d tests, %d left out' % (len(chosen), len(left_out)))
    return 0


def _cloud(here):
    """Return the settings of images and flavors."""
    words = ['nova'] if here.settings.nova else []
    return json.loads(command.run(
        [*network.wrapper(), paths.VENV / 'bin/python', '-W', 'ignore', '-m',
         'lab.tempest.cloud', *words], cwd=paths.CHECKOUT, timeout=120,
        env=here.environment()))


def _run(args):
    here = lab.Lab.load()
    backends.must_be_usable(here)
    name = _name(args.driver, args)
    folder = paths.LOGS / ('tempest-' + name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tempest = run.Tempest(folder, conf.tempest(
        args.driver, _cloud(here), here.settings.nova, len(here.nodes),
        folder))
    chosen, left_out = _choose(tempest, args)
    with backends.prepared(here, args.driver, args.thin):
        begin = time.monotonic()
        if args.subunit:
            code, found = tempest.run(chosen, args.concurrency, run.to_stdout)
        else:
            with run.Shown(folder / 'counts') as shown:
                code, found = tempest.run(chosen, args.concurrency, shown)
        took = time.monotonic() - begin
    code = _end(args, code, report.Report(
        name, list(map(outcomes.name, chosen)), left_out, found, took))
    here.check()
    return code


def _end(args, code, made):
    """Keep and print a report; return the exit code."""
    made.save()
    lvm = (report.Report.load(_name('lvm', args)) if args.driver != 'lvm'
           else None)
    problems = made.problems(code, lvm)
    out = sys.stderr if args.subunit else sys.stdout
    print('\n'.join([*made.show(lvm), *problems, made.counts()]), file=out,
          flush=True)
    return int(bool(problems))


def _leave(number, frame):
    sys.exit(128 + number)


def main(arguments=None):
    made = parser()
    args = made.parse_args(arguments)
    if os.geteuid() and not args.list:
        made.error('the laboratory has to be used as root')
    # The services are restored.
    signal.signal(signal.SIGTERM, _leave)
    try:
        setup.tempest()
        return (_list if args.list else _run)(args)
    except errors.LabError as e:
        print('tempest: %s' % e, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('tempest: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
