# SPDX-License-Identifier: Apache-2.0
"""The sets of tests: what each runs, what it needs, how long it may take."""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing

from lab import paths
from tests.runner import programs

_STYLE = re.compile(r'style: (\d+) passed, (\d+) failed')


def _style(run, chosen):
    """Count the checks of tools/style, which tox runs."""
    passed = failed = 0
    with run.tox('-e', 'pep8', stdout=subprocess.PIPE, text=True,
                 stderr=subprocess.STDOUT, errors='replace') as tox:
        for line in tox.stdout:
            print(line, end='', flush=True)
            counts = _STYLE.match(line)
            if counts:
                passed, failed = map(int, counts.groups())
        tox.wait()
    run.count(passed, failed)
    if not passed + failed:
        run.give_up(chosen.name, 'did not run')
    elif tox.returncode and not failed:
        run.give_up(chosen.name, 'ended with code %d'
                    % programs.code_of(tox))


def _in_tox(run, chosen):
    """Run the tests of a folder without a laboratory, and count them."""
    newest = paths.CHECKOUT / '.stestr/next-stream'

    def stream():
        return newest.read_text() if newest.exists() else None
    before = stream()
    with run.tox('-e', 'py3', env=dict(
            os.environ, OS_TEST_PATH='./tests/' + chosen.folder)) as tox:
        tox.wait()
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder, 'counts')
        if stream() != before:
            with run.counted(
                    [run.tools / 'stestr', 'last', '--subunit'], '--quiet',
                    counts, stderr=subprocess.DEVNULL) as (last, reader):
                reader.wait()
        run.take_counts(chosen.name, counts, programs.code_of(tox))


def _on_node(run, chosen):
    """Run the tests of a folder on a node, without its own service.

    The service would look after the tests' clones, too. The node sees the
    checkout and the environment at the same places.
    """
    there_is_one = run.in_lab(chosen.name, chosen.lab, [
        'tools/lab', 'run', 'node1',
        'cd {0} && lab-service stop cinder-volume && PYTHONPATH={0} '
        'PYTHONDONTWRITEBYTECODE=1 exec {1} -m subunit.run discover -t . '
        'tests/{2}'.format(shlex.quote(str(paths.CHECKOUT)),
                           shlex.quote(str(paths.VENV / 'bin/python')),
                           chosen.folder)], chosen.timeout())
    if there_is_one:
        programs.quietly(['tools/lab', 'start-service', 'cinder-volume',
                          'node1'])


def _scenarios(run, chosen, seconds=None, **more):
    """Run a folder's tests against the services of a laboratory.

    :param seconds: until they are given up, if not as the table says
    :param more: variables of their environment
    """
    run.in_lab(chosen.name, chosen.lab, [
        'tools/lab', 'exec', paths.VENV / 'bin/python', '-m', 'stestr',
        '--test-path', 'tests/' + chosen.folder, 'run', '--serial',
        '--subunit', *chosen.choice], seconds or chosen.timeout(), **more)


def _soak(run, chosen, seconds=None):
    """Run the random lives for some time."""
    seconds = seconds or int(os.environ['DMCLONE_SOAK_SECONDS'])
    _scenarios(run, chosen, seconds + 1800, DMCLONE_SOAK_SECONDS=str(seconds))


def _etcd(run, chosen):
    """Run the stories with etcd, then random lives with it."""
    _scenarios(run, chosen)
    _soak(run, dataclasses.replace(NAMED['soak'], lab=chosen.lab), 120)


def _with_table(run, chosen):
    """Run scenarios that keep what they find, then print a table of it."""
    variable, name = chosen.keeps
    folder = programs.logs_folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    _scenarios(run, chosen, **{variable: str(folder)})
    with programs.started([sys.executable, '-m',
                           'tests.%s.table' % chosen.name, folder]) as table:
        table.wait()


@dataclasses.dataclass(frozen=True)
class Set:
    """One row of the table."""

    name: str
    about: str
    #: Called with the run and the set.
    run: typing.Callable
    #: Runs where no set is named.
    usual: bool = False
    #: The settings of the laboratory that it needs; empty: any will do.
    lab: dict = None
    #: Seconds until it is given up, unless DMCLONE_<NAME>_TIMEOUT says
    #: something else.
    seconds: int = None
    #: Under tests, if its name is another.
    where: str = None
    #: How stestr chooses from that folder.
    choice: tuple = ()
    #: A variable and the folder that it names, for what the set finds.
    keeps: tuple = None

    @property
    def folder(self):
        return self.where or self.name

    @property
    def timeout_name(self):
        return 'DMCLONE_%s_TIMEOUT' % self.name.upper()

    def timeout(self):
        """Return the seconds until the set is given up."""
        return int(os.environ.get(self.timeout_name) or self.seconds)


SETS = (
    Set('style', 'checks of form; each counts as one test', _style,
        usual=True),
    Set('unit', "the driver's code without any device", _in_tox, usual=True),
    Set('model', 'random lives of a volume on a pretended world, cut off\n'
        'anywhere: ten thousand of them', _in_tox, usual=True),
    Set('functional', "the driver's device code on a real kernel, in a node "
        'of\nthe laboratory', _on_node, usual=True, lab={}, seconds=1200),
    Set('e2e', 'real OpenStack services on several nodes of the laboratory',
        _scenarios, usual=True, lab={}, seconds=3900, where='scenarios',
        choice=('--exclude-regex', r'\[.*(nova|slow)')),
    Set('soak', 'random lives of volumes on three nodes whose services and\n'
        'power go at random', _soak, usual=True, lab={'nodes': 3}),
    Set('live', 'real instances there, with Nova, libvirt and QEMU: half an\n'
        'hour', _scenarios, lab={'nova': True}, seconds=3600,
        where='scenarios',
        choice=('--exclude-regex', r'\[.*slow', r'\[.*nova')),
    Set('long', 'what takes minutes each, mostly to wait or to boot',
        _scenarios, lab={'nova': True}, seconds=7200, where='scenarios',
        choice=(r'\[.*slow',)),
    Set('admin', "Cinder's own commands on volumes that are moving, and a\n"
        'database that was put back; ends with a table of the former',
        _with_table, lab={}, seconds=5400,
        keeps=('DMCLONE_ADMIN_OUTCOMES', 'admin-outcomes')),
    Set('etcd', 'stories with etcd as what keeps the locks, away in the\n'
        'middle of moves, and two minutes of soak', _etcd,
        lab={'nodes': 3, 'coordination': 'etcd'}, seconds=2400),
    Set('crash', 'each step of each flow, cut off in eight ways: more than '
        'two\nhours; ends with a table of the seconds until all was well',
        _with_table, lab={}, seconds=10800,
        keeps=('DMCLONE_CRASH_TIMES', 'crash-times')))

NAMED = {each.name: each for each in SETS}


def choose(words):
    """Return the sets that a command line names, None if it is wrong."""
    if not words:
        return [each for each in SETS if each.usual]
    if words == ['--all']:
        return list(SETS)
    if not set(words) <= set(NAMED):
        return None
    return [NAMED[word] for word in words]
