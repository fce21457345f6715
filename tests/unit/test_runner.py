# SPDX-License-Identifier: Apache-2.0
"""tools/test, without a laboratory and without tox."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import unittest
from unittest import mock

import fixtures

from lab import errors
from lab import settings
from tests.runner import __main__ as program
from tests.runner import laboratory
from tests.runner import nodes
from tests.runner import programs
from tests.runner import run
from tests.runner import sets
from tests.unit import base

_SCENARIOS = pathlib.Path(__file__).parents[1] / 'scenarios'
# Prints a subunit stream with one test per status.
_STREAM = """
import subunit, sys
out = subunit.StreamResultToBytes(sys.stdout.buffer)
for status in %r:
    out.status(test_id=status, test_status='inprogress')
    out.status(test_id=status, test_status=status)
sys.stdout.flush()
%s
"""


class ChoiceTestCase(base.PlainTestCase):
    """The chosen sets, and the scenarios in each set."""

    def names(self, *words):
        return [each.name for each in sets.choose(list(words))]

    def test_without_a_name(self):
        self.assertEqual(['style', 'unit', 'model', 'functional', 'e2e',
                          'soak'], self.names())

    def test_fewer_scenarios_without_a_name(self):
        usual, named = (
            {test.id() for test in self.scenarios()
             if self.is_chosen(each.choice, test.id())}
            for words in ([], ['e2e'])
            for each in sets.choose(words) if each.name == 'e2e')
        self.assertLess(usual, named)
        self.assertEqual(named - usual, {
            each for each in named if re.search(r'\[.*named', each)})

    def test_all(self):
        self.assertEqual(['style', 'unit', 'model', 'functional', 'e2e',
                          'soak', 'releases', 'oldest', 'docs', 'scheduler',
                          'live', 'long', 'thin', 'admin', 'etcd', 'packages',
                          'maintenance', 'day', 'tempest', 'crash'],
                         self.names('--all'))

    def test_named(self):
        self.assertEqual(['live', 'style'], self.names('live', 'style'))

    def test_wrong(self):
        for words in (['none'], ['style', '--all'], ['--']):
            self.assertIsNone(sets.choose(words))

    def test_timeout(self):
        for said, expected in (('', 3900), ('7', 7)):
            self.useFixture(fixtures.EnvironmentVariable(
                'DMCLONE_E2E_TIMEOUT', said))
            self.assertEqual(expected, sets.NAMED['e2e'].timeout())

    def test_folders_are_there(self):
        for each in sets.SETS[1:]:
            # One is a package of its own, one no tests.
            if each.name in ('tempest', 'docs'):
                continue
            self.assertTrue((_SCENARIOS.parent / each.folder).is_dir())

    def test_documentation_has_the_same_sets(self):
        text = (_SCENARIOS.parents[1] /
                'doc/source/contributor/testing.rst').read_text()
        listed = re.findall(r'^(\w+)\n  ', text.partition('Where')[0], re.M)
        self.assertEqual([each.name for each in sets.SETS], listed)

    def test_each_scenario_is_in_one_set(self):
        of_scenarios = [each for each in sets.SETS
                        if each.folder == 'scenarios' and
                        # They run some once more.
                        each.name not in ('oldest', 'thin')]
        self.assertEqual(3, len(of_scenarios))
        for test in self.scenarios():
            self.assertEqual(1, sum(self.is_chosen(each.choice, test.id())
                                    for each in of_scenarios), test.id())

    def test_thin_volumes(self):
        """All that e2e and live run is run with them, too."""
        for test in self.scenarios():
            usual = any(self.is_chosen(sets.NAMED[name].choice, test.id())
                        for name in ('e2e', 'live'))
            thin = self.is_chosen(sets.NAMED['thin'].choice, test.id())
            self.assertIs(usual, thin, test.id())

    @staticmethod
    def is_chosen(choice, test_id):
        """Return whether stestr selects a test."""
        choice = list(choice)
        if choice[:1] == ['--exclude-regex']:
            if re.search(choice[1], test_id):
                return False
            del choice[:2]
        return not choice or any(re.search(each, test_id) for each in choice)

    @staticmethod
    def scenarios():
        loader = unittest.TestLoader()
        found = [loader.loadTestsFromName('tests.scenarios.' + path.stem)
                 for path in sorted(_SCENARIOS.glob('test_*.py'))]
        assert not loader.errors, loader.errors
        while found:
            each = found.pop()
            if isinstance(each, unittest.TestCase):
                yield each
            else:
                found.extend(each)


class CountsTestCase(base.PlainTestCase):
    """The counts in the last line."""

    def setUp(self):
        super().setUp()
        # An interpreter whose output is not mixed with that of these tests.
        self.tools = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.interpreter_runs('exec %s "$@" > %s' % (
            sys.executable, self.tools / 'output'))
        self.counts = run.Run(self.tools)
        self.said = self.patch('builtins.print')

    def interpreter_runs(self, command):
        (self.tools / 'python').write_text('#!/bin/sh\n%s\n' % command)
        (self.tools / 'python').chmod(0o755)

    def stream(self, statuses, then='', seconds=60):
        self.counts.stream('a set', [sys.executable, '-c', _STREAM % (
            statuses, then)], seconds)
        return self.counts.summary()

    def test_passed(self):
        self.assertEqual('1 passed, 0 failed', self.stream(['success']))

    def test_failed_and_skipped(self):
        self.assertEqual('1 passed, 1 failed, 1 skipped', self.stream(
            ['success', 'fail', 'skip'], 'sys.exit(1)'))
        self.assertEqual(['a set: fail'], self.counts.failures)

    def test_no_test_ran(self):
        self.assertEqual('0 passed, 1 failed', self.stream([]))
        self.assertEqual(['a set: no test ran'], self.counts.failures)

    def test_code_though_no_test_failed(self):
        self.assertEqual('1 passed, 1 failed',
                         self.stream(['success'], 'sys.exit(3)'))

    def test_not_in_time(self):
        self.patch('tests.runner.programs.PATIENCE', 0.5)
        self.stream(['success'], 'import signal, time\nsignal.signal('
                    'signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(60)', 1)
        self.assertGreater(self.counts.failed, 0)
        self.said.assert_any_call('== a set: not finished after 1 seconds',
                                  flush=True)

    def test_results_cannot_be_read(self):
        self.interpreter_runs('exit 1')
        self.assertEqual('0 passed, 1 failed', self.stream(['success']))

    def test_a_set_that_breaks_stops_no_other(self):
        def breaks(run, chosen):
            raise ValueError

        def passes(run, chosen):
            run.count(2, 0)
        self.patch('traceback.print_exc')
        self.counts.run([sets.Set('one', '', breaks),
                         sets.Set('two', '', passes)])
        self.assertEqual('2 passed, 1 failed', self.counts.summary())


class StyleTestCase(base.PlainTestCase):
    """Each check of style counts as a test."""

    def style(self, text, code=0):
        self.patch('builtins.print')
        this = run.Run()
        this.tox = lambda *arguments, **kwargs: programs.started(
            [sys.executable, '-c', 'print(%r); exit(%d)' % (text, code)],
            **kwargs)
        this.run([sets.NAMED['style']])
        return this.summary()

    def test_counts(self):
        for text, code, expected in (
                ('style: 14 passed, 0 failed\n  congratulations', 0,
                 '14 passed, 0 failed'),
                ('style: 12 passed, 2 failed', 1, '12 passed, 2 failed'),
                ('style: 14 passed, 0 failed', 1, '14 passed, 1 failed'),
                ('no such environment', 1, '0 passed, 1 failed')):
            self.assertEqual(expected, self.style(text, code))


class ReleasesTestCase(base.PlainTestCase):
    """Each release is tested with environments of its own."""

    def test_all_are_run(self):
        self.patch('builtins.print')
        counted = self.patch('tests.runner.sets._in_tox')
        this = run.Run()
        code, asked = iter([0, 0, 1, 0]), []
        this.tox = lambda *words: asked.append(words[-1]) or programs.started(
            [sys.executable, '-c', 'exit(%d)' % next(code)])
        this.run([sets.NAMED['releases']])
        self.assertEqual(
            ['beside', *('beside-' + each for each in sets.OLDER)], asked)
        self.assertEqual(
            [(name, 'py3-' + each) for each in sets.OLDER
             for name in ('unit', 'model')],
            [(call.args[1].name, call.args[2])
             for call in counted.call_args_list])
        self.assertEqual('3 passed, 1 failed', this.summary())
        self.assertEqual(['beside-%s: ended with code 1' % sets.OLDER[1]],
                         this.failures)

    def test_environments_exist(self):
        """tox and the lists of versions have the same releases."""
        top = _SCENARIOS.parents[1]
        listed = {path.stem.removeprefix('constraints-')
                  for path in (top / 'lab').glob('constraints-*.txt')}
        self.assertEqual(listed, set(sets.OLDER))
        text = (top / 'tox.ini').read_text()
        self.assertIn('}-{%s}]' % ','.join(sets.OLDER), text)
        self.assertIn('beside{,-%s}]' % ',-'.join(sets.OLDER), text)
        self.assertEqual(sorted(sets.OLDER), sorted(re.findall(
            r'^  (\S+): {toxinidir}/lab/constraints-\1\.txt$', text, re.M)))


class OldestTestCase(base.PlainTestCase):
    """A set with a laboratory of an older release."""

    def setUp(self):
        super().setUp()
        self.chosen = sets.NAMED['oldest']
        self.exists = self.patch('tests.runner.sets.network.exists')
        self.exists.return_value = False
        self.said = self.patch('builtins.print')
        self.this = run.Run()
        self.this.laboratory = mock.Mock()

    def test_release(self):
        """The laboratory is brought up, and taken down, with the variable."""
        seen = []

        def note(*args, **kwargs):
            seen.append(os.environ.get('DMCLONE_LAB_RELEASE'))
        self.this.laboratory.end.side_effect = note
        self.this.in_lab = note
        self.this.run([self.chosen])
        self.assertEqual([None, '2025.1', '2025.1'], seen)
        self.assertNotIn('DMCLONE_LAB_RELEASE', os.environ)

    def test_another_laboratory(self):
        self.exists.return_value = True
        self.this.in_lab = mock.Mock()
        self.this.run([self.chosen])
        self.this.in_lab.assert_not_called()
        self.assertEqual('0 passed, 1 failed', self.this.summary())

    def test_choice(self):
        """It names scenarios that there are: two attachments, and others."""
        names = [test.id() for test in ChoiceTestCase.scenarios()]
        for each in self.chosen.choice:
            self.assertTrue(any(re.search(each, name) for name in names))
        self.assertEqual(4, sum(
            ChoiceTestCase.is_chosen(self.chosen.choice, name)
            for name in names))


class PackagesTestCase(base.PlainTestCase):
    """A set on this machine, and then in a laboratory of its own."""

    def setUp(self):
        super().setUp()
        self.exists = self.patch('tests.runner.sets.network.exists')
        self.exists.return_value = False
        self.patch('builtins.print')
        self.this = run.Run()
        self.this.laboratory = mock.Mock()
        self.this.stream = self.stream
        self.this.in_lab = self.in_lab
        self.built = True
        self.seen = []

    def stream(self, name, argv, seconds, **more):
        self.assertEqual(('packages', 3600), (name, seconds))
        self.seen.append(' '.join(map(str, argv[1:])))
        if self.built:
            folder = pathlib.Path(more['DMCLONE_PACKAGES'],
                                  more['DMCLONE_OLD_VERSION'])
            folder.mkdir()
            (folder / 'python3-driver_1_all.deb').touch()

    def in_lab(self, name, wanted, argv, seconds, **more):
        self.assertEqual('2025.1', os.environ['DMCLONE_LAB_RELEASE'])
        package = pathlib.Path(wanted.pop('package'))
        self.assertTrue(package.is_file())
        self.assertEqual(more, {
            'DMCLONE_OLD_VERSION': package.parent.name,
            'DMCLONE_PACKAGES': str(package.parents[1])})
        self.seen.append(' '.join(map(str, argv[5:])))
        wanted['package'] = str(package)

    def run_it(self):
        self.this.run([sets.NAMED['packages']])
        return self.seen

    def test_all(self):
        on_host, upgrade, main_job, purge = self.run_it()
        self.assertEqual('--test-path tests/packages run --serial --subunit',
                         on_host)
        self.assertEqual('--test-path tests/installed run --serial --subunit '
                         'UpgradeTest', upgrade)
        self.assertIn('--test-path tests/scenarios ', main_job)
        self.assertEqual(upgrade.replace('Upgrade', 'Purge'), purge)
        self.this.laboratory.end.assert_called_with()
        self.assertEqual('0 passed, 0 failed', self.this.summary())

    def test_nothing_was_built(self):
        self.built = False
        self.assertEqual(1, len(self.run_it()))
        self.assertEqual('0 passed, 1 failed', self.this.summary())

    def test_another_laboratory(self):
        self.exists.return_value = True
        self.assertEqual(1, len(self.run_it()))
        self.assertEqual('0 passed, 1 failed', self.this.summary())

    def test_choice(self):
        """It names scenarios that there are; none needs instances."""
        names = [test.id() for test in ChoiceTestCase.scenarios()]
        for each in sets._MAIN_JOB:
            self.assertTrue(any(re.search(each, name) for name in names))
        chosen = [name for name in names
                  if ChoiceTestCase.is_chosen(sets._MAIN_JOB, name)]
        self.assertEqual(6, len(chosen), chosen)
        self.assertFalse([name for name in chosen
                          if re.search(r'\[.*(nova|slow)', name)])

    def test_all_of_the_folder_is_run(self):
        text = (_SCENARIOS.parent /
                'installed/test_installed.py').read_text()
        self.assertEqual(
            ['UpgradeTest', 'PurgeTest'],
            re.findall(r'^class (\w+).*\n(?:(?!class).*\n)*?    def test_',
                       text, re.M))


class DocsTestCase(base.PlainTestCase):

    def test_both_are_built(self):
        self.patch('builtins.print')
        this = run.Run()
        code, asked = iter([1, 0]), []
        this.tox = lambda *words: asked.append(words[-1]) or programs.started(
            [sys.executable, '-c', 'exit(%d)' % next(code)])
        this.run([sets.NAMED['docs']])
        self.assertEqual(['docs', 'releasenotes'], asked)
        self.assertEqual('1 passed, 1 failed', this.summary())
        self.assertEqual(['docs: docs'], this.failures)

    def test_environments_exist(self):
        text = (_SCENARIOS.parents[1] / 'tox.ini').read_text()
        for name in ('docs', 'releasenotes'):
            found = text.partition('\n[testenv:%s]\n' % name)[2]
            self.assertIn(' -W ', found.partition('\n[')[0], name)


class CommandsTestCase(base.PlainTestCase):
    """The commands of the sets, their laboratories and time limits."""

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(fixtures.TempDir()).path
        for name, value in (('DMCLONE_SOAK_SECONDS', '50'),
                            ('DMCLONE_TEST_LOGS', self.logs),
                            ('DMCLONE_ETCD_TIMEOUT', None)):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.programs = self.patch('tests.runner.programs.started')
        self.patch('tests.runner.programs.quietly')
        self.patch('builtins.print')

    def asked(self, name):
        """Return the arguments of a set: (lab, command, seconds, more)."""
        this = run.Run()
        this.in_lab = mock.Mock()
        this.run([sets.NAMED[name]])
        for call in this.in_lab.call_args_list:
            of, lab, argv, seconds = call.args
            yield lab, ' '.join(map(str, argv)), seconds, call.kwargs

    def test_scenarios(self):
        (lab, command, seconds, more), = self.asked('live')
        self.assertEqual(({'nova': True}, 3600, {}), (lab, seconds, more))
        self.assertRegex(command, r'^tools/lab exec \S+/venv/bin/python -m '
                         r'stestr --test-path tests/scenarios run --serial '
                         r'--subunit --exclude-regex .*slow \S+nova$')

    def test_on_the_nodes(self):
        self.patch('lab.settings.Settings.load',
                   return_value=settings.Settings(nodes=3))
        (lab, command, seconds, more), = self.asked('functional')
        self.assertEqual(({}, 1800, {}), (lab, seconds, more))
        self.assertRegex(command, r' -m tests\.runner\.nodes functional$')
        # As it was before.
        self.assertEqual(
            ['tools/lab start-service cinder-volume node%d' % number
             for number in (1, 2, 3)],
            [' '.join(call.args[0])
             for call in programs.quietly.call_args_list])

    def test_soak(self):
        (lab, command, seconds, more), = self.asked('soak')
        self.assertEqual(({'nodes': 3}, 1850,
                          {'DMCLONE_SOAK_SECONDS': '50'}),
                         (lab, seconds, more))
        self.assertIn(' tests/soak ', command)

    def test_etcd_ends_with_a_short_soak(self):
        first, second = self.asked('etcd')
        wanted = {'nodes': 3, 'coordination': 'etcd'}
        self.assertEqual((wanted, 2400, {}), (first[0], *first[2:]))
        self.assertIn(' tests/etcd ', first[1])
        self.assertEqual((wanted, 1920, {'DMCLONE_SOAK_SECONDS': '120'}),
                         (second[0], *second[2:]))
        self.assertIn(' tests/soak ', second[1])

    def test_thin_ends_with_a_short_soak(self):
        first, second = self.asked('thin')
        self.assertEqual(({'nova': True, 'thin': True}, 9000, {}),
                         (first[0], *first[2:]))
        self.assertIn(' tests/scenarios ', first[1])
        # Random histories need three nodes.
        self.assertEqual(({'nodes': 3, 'thin': True}, 1920,
                          {'DMCLONE_SOAK_SECONDS': '120'}),
                         (second[0], *second[2:]))

    def test_tempest(self):
        self.assertEqual(
            [({'nodes': 2}, 'tools/tempest --short --subunit', 3600, {})],
            list(self.asked('tempest')))

    def test_table(self):
        (lab, command, seconds, more), = self.asked('crash')
        times = os.path.join(self.logs, 'crash-times')
        self.assertEqual(
            ({'memory': 2048}, 18000, {'DMCLONE_CRASH_TIMES': times}),
            (lab, seconds, more))
        self.assertEqual(
            ['-m', 'tests.crash.table', pathlib.Path(times)],
            self.programs.call_args.args[0][1:])


class NodesTestCase(base.PlainTestCase):
    """Files of tests that are run on several nodes at once."""

    def setUp(self):
        super().setUp()
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.patch('tests.runner.nodes.command', self.command)
        #: {module: what runs instead of its tests}
        self.does = {}
        self.ran = {}

    def command(self, node, module):
        self.ran[module] = node
        return ['sh', '-c', self.does.get(module, 'echo %s' % module)]

    def run_on(self, modules, *on):
        """Run modules on nodes; return the exit code and the output."""
        path = os.path.join(self.folder, 'out')
        with open(path, 'wb') as out:
            code = nodes.Runs(modules, out).run(on)
        return code, pathlib.Path(path).read_text()

    def test_each_once(self):
        modules = ['module%02d' % number for number in range(20)]
        code, text = self.run_on(modules, 'node1', 'node2')
        self.assertEqual((0, modules), (code, sorted(text.split())))

    def test_at_once(self):
        """Each of two waits for the other one."""
        for name, other in ('ab', 'ba'):
            self.does[name] = (
                'cd %s; touch %s; until [ -e %s ]; do sleep 0.02; done' % (
                    self.folder, name, other))
        self.run_on(['a', 'b'], 'node1', 'node2')
        self.assertEqual({'node1', 'node2'}, set(self.ran.values()))

    def test_one_that_takes_long(self):
        """The other node runs the rest."""
        self.does['a'] = 'until [ -e %s/end ]; do sleep 0.02; done' % (
            self.folder)
        self.does['d'] = 'touch %s/end' % self.folder
        self.run_on(['a', 'b', 'c', 'd'], 'node1', 'node2')
        rest = {self.ran[module] for module in 'bcd'}
        self.assertEqual({'node1', 'node2'}, rest | {self.ran['a']})
        self.assertEqual(1, len(rest))

    def test_output_is_not_mixed(self):
        for name in 'ab':
            self.does[name] = (
                'for _ in 1 2 3 4 5 6 7 8; do echo %s; sleep 0.01; done' %
                name)
        _code, text = self.run_on(['a', 'b'], 'node1', 'node2')
        self.assertIn(''.join(text.split()), (8 * 'a' + 8 * 'b',
                                              8 * 'b' + 8 * 'a'))

    def test_failure(self):
        """The others are run all the same."""
        self.does['a'] = 'exit 3'
        self.assertEqual((3, 'b\nc\n'), self.run_on(['a', 'b', 'c'], 'node1'))

    def test_program_is_not_there(self):
        """A module that was not run is no success."""
        self.patch('tests.runner.nodes.command', new=lambda node, module: [
            '/nonexistent/lab'])
        self.assertRaises(OSError, self.run_on, ['a', 'b'], 'node1', 'node2')


class NodeCommandTestCase(base.PlainTestCase):

    def test_command(self):
        top, run_it, node, command = nodes.command('node2', 'tests.some')
        self.assertTrue(pathlib.Path(top).is_file())
        self.assertEqual(('run', 'node2'), (run_it, node))
        self.assertRegex(command, r'^cd \S+ && lab-service stop cinder-volume '
                         r'&& .* exec \S+python -m subunit.run tests\.some$')

    def test_moments(self):
        """The node's environment is not that of this machine."""
        for said, expected in ((None, 100), ('', 100), ('25', 25)):
            self.useFixture(fixtures.EnvironmentVariable(
                'DMCLONE_MOMENTS_PERCENT', said))
            self.assertIn(' DMCLONE_MOMENTS_PERCENT=%d exec ' % expected,
                          nodes.command('node1', 'tests.some')[-1])

    def test_each_file_is_run(self):
        folder = _SCENARIOS.parent / 'functional'
        self.assertEqual(
            {path.stem for path in folder.glob('*.py')
             if re.search(r'^class \w+Test\((base\.FunctionalTest|test_)',
                          path.read_text(), re.MULTILINE)},
            {each.rpartition('.')[2] for each in nodes.files('functional')})


class LaboratoryTestCase(base.PlainTestCase):
    """A laboratory that is up is used; ours is replaced if necessary."""

    def setUp(self):
        super().setUp()
        self.up = self.patch('lab.network.exists', return_value=False)
        self.settings = self.patch(
            'lab.settings.Settings.load').return_value
        self.settings.configure_mock(nodes=2, nova=False, thin=False,
                                     coordination='file', node_memory=1024)
        self.well = self.patch(
            'tests.runner.laboratory.Laboratory._is_well', return_value=True)
        self.alive = self.patch('lab.proc.alive', return_value=True)
        self.patch('lab.proc.names', return_value=['mariadb', 'node1'])
        self.started = []
        self.code = 0
        self.patch('tests.runner.programs.started', self.start)
        self.patch('tests.runner.programs.quietly', self.quietly)
        self.patch('builtins.print')
        self.patch('signal.signal')
        self.laboratory = laboratory.Laboratory()

    @contextlib.contextmanager
    def start(self, argv, **kwargs):
        self.quietly(argv)
        yield mock.Mock(returncode=self.code)

    def quietly(self, argv):
        path, *words = argv
        self.started.append(' '.join(words))
        self.up.return_value = words[0] == 'up'

    def test_of_ours(self):
        self.laboratory.need({})
        self.laboratory.need({})
        self.laboratory.need({'nodes': 3})
        # A set without settings uses any.
        self.laboratory.need({})
        self.laboratory.need({'nova': True})
        self.laboratory.leave()
        self.assertEqual(['up', 'down', 'up --nodes 3', 'down', 'up --nova',
                          'down'], self.started)

    def test_one_that_was_up_is_left_up(self):
        self.up.return_value = True
        self.laboratory.need({'nodes': 2})
        self.laboratory.leave()
        self.assertEqual([], self.started)

    def test_one_that_was_up_is_too_small(self):
        self.up.return_value = True
        self.assertRaisesRegex(errors.LabError, 'has 2 nodes, and 3',
                               self.laboratory.need, {'nodes': 3})
        self.assertRaisesRegex(errors.LabError, '1024 MiB, and need 2048',
                               self.laboratory.need, {'memory': 2048})
        self.laboratory.leave()
        self.assertEqual([], self.started)

    def test_one_that_was_up_lacks_something(self):
        self.up.return_value = True
        for wanted, what in (({'nova': True}, 'instances'),
                             ({'thin': True}, 'thin volumes'),
                             ({'nodes': 2, 'coordination': 'etcd'}, 'etcd')):
            self.assertRaisesRegex(errors.LabError, 'has no ' + what,
                                   self.laboratory.need, wanted)
        self.laboratory.leave()
        self.assertEqual([], self.started)

    def test_one_that_is_not_well(self):
        self.up.return_value = True
        self.well.return_value = False
        self.assertRaisesRegex(errors.LabError, 'not healthy',
                               self.laboratory.need, {})
        self.laboratory.leave()
        self.assertEqual([], self.started)

    def test_one_of_which_nothing_runs_is_replaced(self):
        self.up.return_value = True
        self.well.return_value = False
        self.alive.return_value = False
        self.laboratory.need({'nodes': 3})
        self.laboratory.leave()
        self.assertEqual(['down', 'up --nodes 3', 'down'], self.started)

    def test_half_of_one_is_taken_down(self):
        self.code = 1
        self.assertRaises(errors.LabError, self.laboratory.need, {})
        self.laboratory.leave()
        self.assertEqual(['up', 'down'], self.started)

    def in_lab(self):
        """Run a test that fails; return where its logs were put."""
        this = run.Run()
        this.laboratory = self.laboratory
        kept = self.patch('lab.logs.collect')
        this.stream = lambda *arguments: this.count(0, 1)
        this.in_lab('a set', {}, ['true'], 1)
        self.assertEqual('0 passed, 1 failed', this.summary())
        return kept

    def test_logs_are_kept_after_a_failure(self):
        place, = self.in_lab().call_args.args
        self.assertTrue(place.name.startswith('a set-'))

    def test_set_without_a_laboratory_has_failed(self):
        self.code = 1
        self.in_lab().assert_called_once()

    def test_logs_of_others_are_not_kept_if_they_are_of_no_use(self):
        self.up.return_value = True
        self.well.return_value = False
        self.in_lab().assert_not_called()


class MainTestCase(base.PlainTestCase):
    """The last lines and the exit code."""

    def setUp(self):
        super().setUp()
        self.print = self.patch('builtins.print')
        self.signal = self.patch('signal.signal')
        mock.patch.dict('os.environ').start()
        self.addCleanup(mock.patch.stopall)
        self.install = self.patch('tests.runner.run.Run.install',
                                  return_value=True)
        self.left = self.patch('tests.runner.laboratory.Laboratory.leave')

    def main(self, *words, counts=(3, 0)):
        self.patch('tests.runner.run.Run.run',
                   lambda this, chosen: this.count(*counts))
        code = program.main(list(words))
        return code, self.print.call_args.args[0]

    def test_all_is_well(self):
        self.assertEqual((0, '3 passed, 0 failed'), self.main('style'))
        self.left.assert_called_once_with()

    def test_failure(self):
        self.assertEqual((1, '3 passed, 1 failed'),
                         self.main(counts=(3, 1)))

    def test_nothing_could_be_installed(self):
        self.install.return_value = False
        self.assertEqual((1, '0 passed, 2 failed'), self.main('unit', 'e2e'))
        self.assertIn(mock.call('FAILED: e2e: tox could not be installed'),
                      self.print.call_args_list)

    def test_unknown_set(self):
        code, text = self.main('none')
        self.assertEqual(2, code)
        for each in sets.SETS:
            self.assertIn(' %s ' % each.name, text)

    def test_less_is_done_where_no_set_is_named(self):
        names = ('DMCLONE_SOAK_SECONDS', 'DMCLONE_STEPS_PERCENT',
                 'DMCLONE_MODEL_PERCENT', 'DMCLONE_MOMENTS_PERCENT')
        for words, *expected in (([], '120', '25', '10', '10'),
                                 (['soak'], '1800', '100', '100', '100')):
            for name in names:
                os.environ.pop(name, None)
            self.main(*words)
            self.assertEqual(expected, [os.environ[name] for name in names])

    def test_signals_that_nohup_ignores(self):
        found = self.patch('signal.getsignal')
        for handler, expected in ((signal.SIG_IGN, 0), (signal.SIG_DFL, 3)):
            found.return_value = handler
            program.listen()
            self.assertEqual(expected, self.signal.call_count)

    def test_interrupted(self):
        self.patch('tests.runner.run.Run.run', side_effect=SystemExit(130))
        self.assertRaises(SystemExit, program.main, ['style'])
        self.left.assert_called_once_with()
