# SPDX-License-Identifier: Apache-2.0
"""The sets of tests: their commands, laboratories and time limits."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing
from unittest import mock

from lab import network
from lab import paths
from lab import settings
from tests.runner import programs

#: The older releases of OpenStack that the driver supports, as in tox.ini.
OLDER = ('2025.1', '2025.2', '2026.1')

#: Built in the same way as the package, to upgrade from.
_OLD_PACKAGE = '0.0.9'
#: The scenarios for which the Debian package is installed: an attach away
#: with its copy, a live migration's two attachments, completion; and what the
#: package's files do for them.
_MAIN_JOB = (
    r'test_move\.MoveTest\.test_(attach_|others_see)',
    r'test_migration\.TwoAttachmentsTest\.test_(old_attachment|guest_writes)',
    r'test_check\.CheckTest\.test_healthy')

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
    if failed:
        run.failures.append('%s: %d checks' % (chosen.name, failed))
    if not passed + failed:
        run.give_up(chosen.name, 'did not run')
    elif tox.returncode and not failed:
        run.give_up(chosen.name, 'ended with code %d'
                    % programs.code_of(tox))


def _in_tox(run, chosen, environment='py3'):
    """Run and count the tests of a folder, without a laboratory."""
    newest = paths.CHECKOUT / '.stestr/next-stream'

    def stream():
        return newest.read_text() if newest.exists() else None
    before = stream()
    with run.tox('-e', environment, env=dict(
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


def _beside(run, environment):
    """Count whether pip leaves the Cinder of a release as it is."""
    with run.tox('-e', environment) as beside:
        beside.wait()
    if beside.returncode:
        run.give_up(environment, 'ended with code %d'
                    % programs.code_of(beside))
    else:
        run.count(1, 0)


def _releases(run, chosen):
    """Install beside each release, and test with the older ones."""
    _beside(run, 'beside')
    for release in OLDER:
        _beside(run, 'beside-' + release)
        for name in ('unit', 'model'):
            _in_tox(run, NAMED[name], 'py3-' + release)


def _docs(run, chosen):
    """Build the documentation and the release notes, without a warning."""
    for environment in ('docs', 'releasenotes'):
        with run.tox('-e', environment) as build:
            build.wait()
        run.count(int(build.returncode == 0), int(build.returncode != 0))
        if build.returncode:
            run.failures.append('%s: %s' % (chosen.name, environment))


def _in_nova(run, chosen):
    """Run the tests that need Nova's own tests, without a laboratory."""
    _in_tox(run, chosen, 'scheduler')


def _on_nodes(run, chosen):
    """Run the tests of a folder on the nodes, with cinder-volume stopped."""
    there_is_one = run.in_lab(chosen.name, chosen.lab, [
        sys.executable, '-m', 'tests.runner.nodes', chosen.folder],
        chosen.timeout())
    if there_is_one:
        for node in settings.Settings.load().names():
            programs.quietly(['tools/lab', 'start-service', 'cinder-volume',
                              node])


def _scenarios(run, chosen, seconds=None, **more):
    """Run a folder's tests with the services of a laboratory.

    :param seconds: time limit, if not that of the table
    :param more: variables of their environment
    """
    run.in_lab(chosen.name, chosen.lab, [
        'tools/lab', 'exec', paths.VENV / 'bin/python', '-m', 'stestr',
        '--test-path', 'tests/' + chosen.folder, 'run', '--serial',
        '--subunit', *chosen.choice], seconds or chosen.timeout(), **more)


def _oldest(run, chosen, *more, **variables):
    """Run scenarios with the oldest release, in a laboratory of its own.

    :param more: sets with further scenarios in the same laboratory
    :param variables: of their environment
    """
    run.laboratory.end()
    if network.exists():
        run.give_up(chosen.name, 'a laboratory of another release is up: take '
                    'it down with `tools/lab down`')
        return
    with mock.patch.dict(os.environ, DMCLONE_LAB_RELEASE=OLDER[0]):
        try:
            for each in (chosen, *more):
                _scenarios(run, each, **variables)
        finally:
            run.laboratory.end()


def _packages(run, chosen):
    """Try the package in a root of this machine, then on nodes.

    The nodes get an older version, which is upgraded; scenarios follow, and
    the purge.
    """
    with tempfile.TemporaryDirectory(dir='/var/tmp') as folder:
        run.stream(chosen.name, [
            run.tools / 'stestr', '--test-path', 'tests/' + chosen.folder,
            'run', '--serial', '--subunit'], chosen.timeout(),
            DMCLONE_PACKAGES=folder, DMCLONE_OLD_VERSION=_OLD_PACKAGE)
        packages = list(pathlib.Path(folder, _OLD_PACKAGE).glob('*_all.deb'))
        if not packages:
            run.give_up(chosen.name, 'no package was built')
            return
        in_lab = dataclasses.replace(
            chosen, lab={'package': str(packages[0])}, where='installed')
        _oldest(
            run, dataclasses.replace(in_lab, choice=('UpgradeTest',)),
            dataclasses.replace(chosen, lab=in_lab.lab, where='scenarios',
                                choice=_MAIN_JOB),
            dataclasses.replace(in_lab, choice=('PurgeTest',)),
            DMCLONE_PACKAGES=folder, DMCLONE_OLD_VERSION=_OLD_PACKAGE)


def _soak(run, chosen, seconds=None):
    """Run random histories for some time."""
    seconds = seconds or int(os.environ['DMCLONE_SOAK_SECONDS'])
    _scenarios(run, chosen, seconds + 1800, DMCLONE_SOAK_SECONDS=str(seconds))


def _etcd(run, chosen):
    """Run the tests with etcd, then random histories with it."""
    _scenarios(run, chosen)
    _soak(run, dataclasses.replace(NAMED['soak'], lab=chosen.lab), 120)


def _thin(run, chosen):
    """Run scenarios with thin volumes, then random histories."""
    _scenarios(run, chosen)
    soak = NAMED['soak']
    _soak(run, dataclasses.replace(soak, lab={**soak.lab, 'thin': True}), 120)


def _tempest(run, chosen):
    """Run a selection of Tempest's tests of volumes."""
    run.in_lab(chosen.name, chosen.lab, ['tools/tempest', '--short',
                                         '--subunit'], chosen.timeout())


def _keeping(run, chosen):
    """Run scenarios that save results; return the folder of these."""
    variable, name = chosen.keeps
    folder = programs.logs_folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    _scenarios(run, chosen, **{variable: str(folder)})
    return folder


def _with_table(run, chosen):
    """Run scenarios that save results, then print a table of these."""
    folder = _keeping(run, chosen)
    with programs.started([sys.executable, '-m',
                           'tests.%s.table' % chosen.name, folder]) as table:
        table.wait()


def _with_outputs(run, chosen):
    """Run scenarios that save outputs, then say how a page gets them."""
    folder = _keeping(run, chosen)
    if folder.is_dir():
        programs.say("for the documentation's examples: tools/page-outputs %s"
                     % folder)


@dataclasses.dataclass(frozen=True)
class Set:
    """One row of the table."""

    name: str
    about: str
    #: The function that runs the set, called with the run and the set.
    run: typing.Callable
    #: Whether it runs if no set is named.
    usual: bool = False
    #: The settings of the laboratory that it needs; if empty, any.
    lab: dict = None
    #: Time limit in seconds, unless DMCLONE_<NAME>_TIMEOUT is set.
    seconds: int = None
    #: Its folder under tests, if that has another name.
    where: str = None
    #: The arguments with which stestr selects tests of that folder.
    choice: tuple = ()
    #: The same if no set is named, if that selects fewer.
    choice_unnamed: tuple = None
    #: A variable and the folder that it names, for the set's results.
    keeps: tuple = None

    @property
    def folder(self):
        return self.where or self.name

    @property
    def timeout_name(self):
        return 'DMCLONE_%s_TIMEOUT' % self.name.upper()

    def timeout(self):
        """Return the time limit in seconds."""
        return int(os.environ.get(self.timeout_name) or self.seconds)


SETS = (
    Set('style', 'checks of style; each counts as one test', _style,
        usual=True),
    Set('unit', "the driver's code without any device", _in_tox, usual=True),
    Set('model', 'ten thousand random histories of a volume on simulated\n'
        'nodes, with random faults; a tenth if no set is named', _in_tox,
        usual=True),
    Set('functional', "the driver's device code on real kernels, in the nodes "
        'of\nthe laboratory', _on_nodes, usual=True, lab={}, seconds=1800),
    Set('e2e', 'real OpenStack services on several nodes of the laboratory;\n'
        'fewer scenarios if no set is named',
        _scenarios, usual=True, lab={}, seconds=3900, where='scenarios',
        choice=('--exclude-regex', r'\[.*(nova|slow)'),
        choice_unnamed=('--exclude-regex', r'\[.*(nova|slow|named)')),
    Set('soak', 'random histories of volumes on three nodes, with randomly\n'
        'killed services and power cuts', _soak, usual=True, lab={'nodes': 3}),
    Set('releases', 'unit and model with each older release of Cinder; the\n'
        'installation has to leave each release as it is', _releases,
        where='unit'),
    Set('oldest', 'an attach away and live migrations in a laboratory with '
        'the\noldest release of OpenStack', _oldest, lab={'nova': True},
        seconds=3600, where='scenarios', choice=(
            r'test_move\.MoveTest\.test_attach_',
            r'test_live_migration\.LiveMigrationTest\.test_volume_follows',
            r'test_live_migration\.LiveMigrationTest\.test_back_again')),
    Set('docs', 'the documentation and the release notes, built without a '
        'warning', _docs),
    Set('scheduler', "the filter and the weigher for Nova's scheduler in "
        "Nova's own\nservices, with simulated hypervisors", _in_nova),
    Set('live', 'real instances, with Nova, libvirt and QEMU: half an\n'
        'hour', _scenarios, lab={'nova': True}, seconds=3600,
        where='scenarios',
        choice=('--exclude-regex', r'\[.*slow', r'\[.*nova')),
    Set('long', 'tests that take minutes each, mostly to wait or to boot',
        _scenarios, lab={'nova': True}, seconds=16200, where='scenarios',
        choice=(r'\[.*slow',)),
    Set('thin', 'the scenarios of e2e and live, and two minutes of soak, on '
        'nodes\nwith thin volumes: an hour and a half', _thin,
        lab={'nova': True, 'thin': True}, seconds=9000, where='scenarios',
        choice=('--exclude-regex', r'\[.*slow')),
    Set('admin', "Cinder's own commands on volumes that are moving, and a\n"
        'restored database; ends with a table of the former',
        _with_table, lab={}, seconds=5400,
        keeps=('DMCLONE_ADMIN_OUTCOMES', 'admin-outcomes')),
    Set('etcd', 'moves with etcd as the store of the locks, which fails in\n'
        'the middle of moves, and two minutes of soak', _etcd,
        lab={'nodes': 3, 'coordination': 'etcd'}, seconds=2400),
    Set('packages', 'the Debian package: built, installed, used, upgraded '
        'and purged in\na Debian 13, then on nodes that run it', _packages,
        seconds=3600),
    Set('maintenance', 'the commands of the pages for operators: reboots, '
        'upgrades,\ndisks, lost nodes, quick start, adoption', _scenarios,
        lab={'nova': True}, seconds=9000),
    Set('day', 'days of operators on three nodes: a drain in whose middle '
        'a node\ndies, each alert, and the commands of "A day in operations"',
        _with_outputs, lab={'nodes': 3, 'nova': True}, seconds=7200,
        keeps=('DMCLONE_DAY_OUTPUTS', 'day-outputs')),
    Set('tempest', "a selection of Tempest's tests of volumes: some ten "
        'minutes', _tempest, lab={'nodes': 2}, seconds=3600),
    Set('crash', 'each step of each flow, interrupted in eight ways: some '
        'four\nhours; ends with a table of the seconds to converge',
        # The programs that nine flows at a time start on a node need 700 MiB.
        _with_table, lab={'memory': 2048}, seconds=18000,
        keeps=('DMCLONE_CRASH_TIMES', 'crash-times')))

NAMED = {each.name: each for each in SETS}


def choose(words):
    """Return the sets that a command line names, None if it is invalid."""
    if not words:
        return [dataclasses.replace(
            each, choice=each.choice_unnamed or each.choice)
            for each in SETS if each.usual]
    if words == ['--all']:
        return list(SETS)
    if not set(words) <= set(NAMED):
        return None
    return [NAMED[word] for word in words]
