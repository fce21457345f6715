# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/test."""

import configparser
import os
import signal
import subprocess
import sys

from lab import paths
from tests.runner import programs
from tests.runner import run
from tests.runner import sets

_USAGE = """\
usage: tools/test [--all | SET ...]

Runs the project's tests, also on a new machine: missing programs are installed
first, which needs root and the registries of Debian and Python.

%s
Without a set, the sets marked with * run, in this order; with --all, all sets.
If a set fails the next one runs all the same. The last line is "N passed, N
failed[, N skipped]"; the lines before it name what failed.

Environment:
  DMCLONE_LAB_CACHE   folder of the installed programs
                      (/var/cache/dmclone-lab)
  DMCLONE_TEST_LOGS   folder of the laboratory's logs after a failure
                      (test-logs in the checkout)
  DMCLONE_SOAK_SECONDS, DMCLONE_SOAK_SEED
                      duration of soak (1800, or 120 if it is not named),
                      and seed of its actions (1)
  DMCLONE_STEPS_PERCENT
                      how many of a flow's steps unit lets fail, each in turn
                      (100, or 25 if no set is named)
  DMCLONE_MODEL_PERCENT
                      how many of the model's histories are run (100, or 10
                      if no set is named)
  DMCLONE_MOMENTS_PERCENT
                      how many of the random moments are tried at which
                      functional takes snapshots beside a writer (100, or 10
                      if no set is named)
  DMCLONE_<SET>_TIMEOUT
                      seconds until a set is stopped and counted as failed:
%s
"""


def usage():
    """Return the text of --help."""
    return _USAGE % (
        '\n'.join('%s %-11s %s' % (
            '*' if each.usual else ' ', each.name,
            each.about.replace('\n', '\n' + 14 * ' '))
            for each in sets.SETS),
        '\n'.join('%22s%s (%d)' % ('', each.timeout_name, each.seconds)
                  for each in sets.SETS if each.seconds))


def _version():
    """Return the version for pbr, which cannot find it without git."""
    parser = configparser.ConfigParser()
    parser.read(paths.CHECKOUT / 'setup.cfg')
    return parser.get('metadata', 'version', fallback='0.0.1')


def set_environment(named):
    """Set the environment of the programs of this run.

    :param named: whether the caller has named sets
    """
    os.environ.update(PIP_ROOT_USER_ACTION='ignore',
                      PIP_DISABLE_PIP_VERSION_CHECK='1',
                      DMCLONE_TEST_LOGS=str(programs.logs_folder()))
    # Fails in an archive, or in another user's checkout.
    history = subprocess.run(
        ['git', 'rev-parse', '-q', '--verify', 'HEAD'],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name, value in (
            ('HOME', '/root'),
            ('DMCLONE_SOAK_SECONDS', '1800' if named else '120'),
            ('DMCLONE_STEPS_PERCENT', '100' if named else '25'),
            ('DMCLONE_MODEL_PERCENT', '100' if named else '10'),
            ('DMCLONE_MOMENTS_PERCENT', '100' if named else '10'),
            ('PBR_VERSION', history.returncode and _version())):
        if value and not os.environ.get(name):
            os.environ[name] = value


def _leave(number, frame):
    sys.exit(128 + number)


def listen():
    """Exit with cleanup on signals, except those that the caller ignores."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)


def main(arguments):
    if arguments in (['-h'], ['--help']):
        print(usage(), end='')
        return 0
    chosen = sets.choose(arguments)
    if chosen is None:
        print(usage(), end='', file=sys.stderr)
        return 2
    listen()
    this = run.Run()
    try:
        if this.install():
            set_environment(bool(arguments))
            this.run(chosen)
        else:
            for each in chosen:
                this.give_up(each.name, 'tox could not be installed')
    finally:
        this.laboratory.leave()
    for each in this.failures:
        print('FAILED: ' + each)
    print(this.summary())
    return int(this.failed > 0)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
