# SPDX-License-Identifier: Apache-2.0
"""tools/tempest, without a laboratory and without Tempest."""

import configparser
import contextlib
import datetime
import io
import pathlib
import re
from unittest import mock

import fixtures
import subunit
import yaml

from lab import config
from lab import errors
from lab import settings
from lab.tempest import __main__ as program
from lab.tempest import backends
from lab.tempest import conf
from lab.tempest import outcomes
from lab.tempest import report
from lab.tempest import run
from lab.tempest import selection
from lab import venv
from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
CLOUD = {'image_ref': 'image', 'image_ref_alt': 'image'}
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def stream(*tests):
    """Return a subunit stream of tests: (id, status, reason or None)."""
    written = io.BytesIO()
    out = subunit.StreamResultToBytes(written)
    for number, (test, status, reason) in enumerate(tests):
        begin = BEGIN + datetime.timedelta(minutes=number)
        out.status(test_id=test, test_status='inprogress', timestamp=begin)
        if reason:
            out.status(test_id=test, file_name='reason', eof=True,
                       file_bytes=reason.encode(), timestamp=begin,
                       mime_type='text/plain; charset=utf8')
        out.status(test_id=test, test_status=status,
                   timestamp=begin + datetime.timedelta(seconds=5))
    return written.getvalue()


class TempestTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.patch('lab.paths.CHECKOUT', self.folder)
        self.patch('lab.venv.TEMPEST', self.folder)
        self.script('stestr', '')

    def script(self, name, text):
        """Write a program of Tempest's environment."""
        path = self.folder / 'bin' / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('#!/bin/sh\n' + text)
        path.chmod(0o755)


class SettingsTestCase(TempestTestCase):

    def test_file(self):
        made = run.Tempest(self.folder, conf.tempest(
            'dmclone', CLOUD, False, 2, self.folder))
        parser = configparser.ConfigParser()
        parser.read(made.file)
        self.assertEqual('image', parser['compute']['image_ref'])
        self.assertEqual('dmclone,lvm', parser['volume']['backend_names'])
        self.assertTrue(parser.getboolean('auth', 'use_dynamic_credentials'))
        self.assertFalse(parser.getboolean('service_available', 'nova'))

    def test_drivers_differ_in_what_they_report(self):
        ours, theirs = (conf.tempest(driver, CLOUD, True, 2, self.folder)
                        for driver in ('dmclone', 'lvm'))
        self.assertEqual(
            {('volume', 'vendor_name'), ('volume', 'storage_protocol')},
            {(section, option) for section, options in ours.items()
             for option, value in options.items()
             if theirs[section][option] != value})

    def test_names_are_those_of_the_driver(self):
        text = (TOP / 'devstack/override-defaults').read_text()
        self.assertEqual(conf.REPORTED['dmclone'], tuple(
            re.search(r'TEMPEST_%s:=(\S+)}' % name, text)[1]
            for name in ('VOLUME_VENDOR', 'STORAGE_PROTOCOL')))


class SelectionTestCase(base.PlainTestCase):

    def test_rules(self):
        rules = selection.parse(
            '# About the file.\n\n# Not\n# here.\n^a\\.\n^b\n\n# Nor that.\n'
            '^c\n')
        self.assertEqual([('^a\\.', 'Not here.'), ('^b', 'Not here.'),
                          ('^c', 'Nor that.')],
                         [(rule.pattern, rule.reason) for rule in rules])
        self.assertEqual(
            (['ab', 'd'], {'a.b': 'Not here.', 'c': 'Nor that.'}),
            selection.divide(['a.b', 'ab', 'c', 'd'], rules))

    def test_each_rule_of_the_files_has_a_reason(self):
        for path in (*selection.UNFIT, *selection.DIFFERENCES):
            found = selection.rules([path])
            self.assertNotEqual([], found)
            for rule in found:
                re.compile(rule.pattern)
                self.assertRegex(rule.reason, r'\.$')

    def test_as_in_zuul(self):
        jobs = yaml.safe_load((TOP / '.zuul.yaml').read_text())
        regex, = (each['job']['vars']['tempest_test_regex'] for each in jobs
                  if each.get('job', {}).get('name') ==
                  'dmclone-driver-tempest')
        self.assertEqual(regex, selection.ALL)

    def test_short(self):
        for test, expected in (
                ('tempest.api.volume.test_volumes_clone.A.test_b', True),
                ('tempest.api.volume.admin.test_volume_retype.A.test', True),
                ('cinder_tempest_plugin.api.volume.test_volume_revert.A.b',
                 True),
                ('tempest.api.volume.test_volumes_clone_negative.A.b', False),
                ('tempest.api.volume.admin.test_qos.A.b', False)):
            self.assertEqual(expected, bool(re.search(selection.SHORT, test)),
                             test)
            self.assertTrue(re.search(selection.ALL, test))


class OutcomesTestCase(base.PlainTestCase):

    def test_read(self):
        text = stream(('a.b[id-1,smoke]', 'success', None),
                      ('setUpClass (a.C)', 'skip', 'Nova is\nnot here'),
                      ('a.d[id-2]', 'fail', None),
                      ('a.e', 'inprogress', None), ('a.f', 'exists', None))
        self.assertEqual(
            [('a.b', 'passed', '', 5),
             ('setUpClass (a.C)', 'skipped', 'Nova is\nnot here', 5),
             ('a.d', 'failed', '', 5), ('a.e', 'failed', '')],
            [(each.test, each.kind, each.reason, each.seconds)
             [:3 if each.test == 'a.e' else 4]
             for each in outcomes.read(io.BytesIO(b'a warning\n' + text))])


class ReportTestCase(TempestTestCase):

    def report(self, driver='dmclone', left_out=None, **kinds):
        return report.Report(
            driver, list(kinds), left_out or {},
            [outcomes.Outcome(test, kind, 'for a reason' * (
                kind == 'skipped'), 1) for test, kind in kinds.items()
             if kind], 60.2)

    def test_well(self):
        made = self.report(a='passed', b='skipped', left_out={'z': 'Why.'})
        self.assertEqual([], made.problems(0))
        self.assertEqual(
            'with the driver dmclone: 1 passed, 0 failed, 1 skipped, '
            '1 left out, in 60 s', made.counts())
        self.assertEqual(['skipped, 1: for a reason', '    b',
                          'left out, 1: Why.', '    z'], made.show())

    def test_failed(self):
        self.assertEqual(['FAILED: b'], self.report(
            a='passed', b='failed').problems(1))

    def test_nothing_ran(self):
        for kinds in ({}, {'a': 'skipped'}):
            self.assertEqual(['FAILED: no test ran (code 0)'],
                             self.report(**kinds).problems(0))

    def test_code_without_a_failed_test(self):
        line, = self.report(a='passed').problems(3)
        self.assertIn('ended with code 3', line)

    def test_beside_lvm(self):
        lvm = self.report('lvm', a='passed', b='passed', c='passed',
                          d='skipped', e='passed', not_chosen='passed')
        lvm.save()
        lvm = report.Report.load('lvm')
        mine = self.report(a='passed', b='skipped', c=None, d='skipped',
                           e='failed')
        self.assertEqual(
            ['FAILED: e',
             ('NOT AS WITH LVM: b, which passed there, was skipped here: for '
              'a reason'),
             'NOT AS WITH LVM: c, which passed there, did not run here'],
            mine.problems(1, lvm))
        self.assertEqual("4 of these tests passed with Cinder's LVM driver",
                         mine.show(lvm)[-1])

    def test_no_report_yet(self):
        self.assertIsNone(report.Report.load('lvm'))


class BackendsTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.patch('lab.errors.say')
        self.patch('lab.wait.until')
        self.alive = self.patch('lab.proc.alive', return_value=False)
        self.lab = mock.Mock()
        self.lab.settings = settings.Settings()
        self.nodes = []
        for number in (1, 2):
            node = mock.Mock(ip='10.77.0.1%d' % number)
            node.name = 'node%d' % number
            self.nodes.append(node)
        self.lab.nodes = {node.name: node for node in self.nodes}
        self.lab.node.side_effect = self.lab.nodes.get
        self.lab.sql.return_value = [('node1@lvm',)]

    def test_changes(self):
        node = self.nodes[0]
        before = config.cinder_node(node.name, node.ip, settings.Settings())
        for driver in ('dmclone', 'lvm'):
            made = config.merged(before, backends.changes(
                driver, node, settings.Settings()))
            first, second = (made[name] for name in
                             made['DEFAULT']['enabled_backends'].split(','))
            self.assertEqual(
                (config.DRIVERS[driver], 'cinder-volumes', 'default'),
                (first['volume_driver'], first['volume_group'],
                 first['lvm_type']))
            self.assertEqual(
                (config.DRIVERS['lvm'], 'cinder-metadata', 'default'),
                (second['volume_driver'], second['volume_group'],
                 second['lvm_type']))

    def test_prepared_and_restored(self):
        with contextlib.suppress(KeyError), \
                backends.prepared(self.lab, 'lvm'):
            for node in self.nodes:
                self.assertEqual(
                    config.DRIVERS['lvm'], node.configure.call_args.args[0]
                    ['dmclone']['volume_driver'])
            self.nodes[0].start_service.assert_called_once_with(
                'cinder-backup')
            self.lab.control.start.assert_called_once_with('networks')
            raise KeyError
        for node in self.nodes:
            node.configure.assert_called_with({})
            self.assertEqual(2, node.restart.call_count)
        self.nodes[0].stop.assert_called_once_with('cinder-backup')
        self.lab.control.stop.assert_called_once_with('networks')
        self.lab.control.manage.assert_called_once_with(
            'cinder-manage', 'service', 'remove', 'cinder-volume',
            'node1@lvm')

    def test_thin(self):
        """The first backend only; the pools are removed afterwards."""
        node = self.nodes[0]
        made = backends.changes('lvm', node, settings.Settings(), thin=True)
        self.assertEqual(('thin', 'default'), tuple(
            made[name]['lvm_type'] for name in ('dmclone', 'lvm')))
        for node in self.nodes:
            node.run.return_value = '  volume-a,,1073741824,\n'
        with backends.prepared(self.lab, 'lvm', thin=True):
            self.assertEqual('thin', node.configure.call_args.args[0]
                             ['dmclone']['lvm_type'])
            node.run.assert_not_called()
        for node in self.nodes:
            self.assertIn('lvremove', node.run.call_args.args[0])

    def test_pool_with_volumes_stays(self):
        for node in self.nodes:
            node.run.return_value = '  volume-a,cinder-volumes-pool,4096,1\n'
        with self.assertRaisesRegex(errors.LabError, 'it has volume-a'), \
                backends.prepared(self.lab, 'lvm', thin=True):
            pass
        self.assertNotIn('lvremove', self.nodes[0].run.call_args.args[0])

    def test_what_was_there_stays(self):
        self.alive.return_value = True
        with backends.prepared(self.lab, 'dmclone'):
            pass
        self.lab.control.start.assert_not_called()
        self.lab.control.stop.assert_not_called()

    def test_refused(self):
        self.lab.sql.return_value = [('0',)]
        backends.must_be_usable(self.lab)
        self.lab.sql.return_value = [('2',)]
        self.assertRaises(errors.LabError, backends.must_be_usable, self.lab)
        self.lab.sql.side_effect = AssertionError
        for options in ({'bare': True}, {'driver': 'lvm'}, {'driver': 'both'}):
            self.lab.settings = settings.Settings(**options)
            self.assertRaises(errors.LabError, backends.must_be_usable,
                              self.lab)


class ProgramTestCase(TempestTestCase):
    """A whole run, with a Tempest that a script stands for."""

    LISTED = ('tempest.api.volume.A.test_a[id-1]',
              'tempest.api.volume.A.test_b[id-2,smoke]',
              'tempest.scenario.test_volume.B.test_c[id-3]')

    def setUp(self):
        super().setUp()
        self.patch('lab.paths.LOGS', self.folder)
        self.patch('lab.network.wrapper', return_value=['env', 'IN_LAB=1'])
        self.patch('lab.setup.tempest')
        self.patch('os.geteuid', return_value=0)
        self.patch('signal.signal')
        self.patch('lab.tempest.backends.must_be_usable')
        self.patch('lab.tempest.backends.prepared')
        self.patch('lab.tempest.__main__._cloud', return_value=CLOUD)
        self.lab = self.patch('lab.lab.Lab.load').return_value
        self.lab.nodes = {}
        self.lab.settings.nova = False
        self.patch('lab.tempest.run.Tempest._outcomes', new=staticmethod(
            lambda path: outcomes.read(io.BytesIO(path.read_bytes()))))
        self.shown = io.StringIO()
        self.patch('sys.stderr', new=self.shown)
        self.passed_on = self.patch('lab.tempest.run.to_stdout')

    def tempest(self, code, *tests):
        """Write the program that lists and runs tests."""
        (self.folder / 'recorded').write_bytes(stream(*tests))
        self.script('tempest', (
            'case "$*" in\n*--list-tests*) printf "%%s\\n" "a warning" %s ;;'
            '\n*--load-list*) [ "$IN_LAB" = 1 ] || exit 9\n'
            'echo "$*" > %s/asked; cat %s/recorded; exit %d ;;\nesac\n') % (
                ' '.join("'%s'" % each for each in self.LISTED), self.folder,
                self.folder, code))

    def test_run(self):
        self.tempest(0, (self.LISTED[0], 'success', None),
                     (self.LISTED[1], 'skip', 'why'))
        self.assertEqual(0, program.main(['--subunit', '--concurrency', '3']))
        self.assertEqual('\n'.join(self.LISTED[:2]) + '\n', (
            self.folder / 'tempest-dmclone/tests').read_text())
        self.assertRegex((self.folder / 'asked').read_text(),
                         r'^run --config-file \S+/tempest.conf --load-list '
                         r'\S+/tests --concurrency 3 --subunit$')
        self.assertEqual(
            (self.folder / 'recorded').read_bytes(),
            b''.join(call.args[0] for call in self.passed_on.mock_calls))
        self.assertRegex(self.shown.getvalue(), r'1 passed, 0 failed, '
                         r'1 skipped, 1 left out, in \d+ s\n$')

    def test_failed_and_compared(self):
        self.tempest(0, (self.LISTED[0], 'success', None),
                     (self.LISTED[1], 'success', None))
        self.assertEqual(0, program.main(['--subunit', '--driver', 'lvm']))
        self.tempest(1, (self.LISTED[0], 'fail', None))
        self.assertEqual(1, program.main(['--subunit']))
        said = self.shown.getvalue()
        self.assertIn('FAILED: tempest.api.volume.A.test_a\n', said)
        self.assertIn('NOT AS WITH LVM: tempest.api.volume.A.test_b', said)

    def test_thin_is_compared_with_thin(self):
        prepared = self.patch('lab.tempest.backends.prepared')
        self.tempest(0, (self.LISTED[0], 'success', None))
        self.assertEqual(0, program.main(['--subunit', '--driver', 'lvm']))
        self.tempest(0, (self.LISTED[1], 'success', None))
        arguments = ['--subunit', '--thin']
        self.assertEqual(0, program.main([*arguments, '--driver', 'lvm']))
        prepared.assert_called_with(self.lab, 'lvm', True)
        self.tempest(0, (self.LISTED[0], 'success', None))
        self.assertEqual(1, program.main(arguments))
        said = self.shown.getvalue()
        self.assertIn('NOT AS WITH LVM: tempest.api.volume.A.test_b', said)
        self.assertIn('with the driver dmclone-thin: 1 passed', said)

    def test_interrupted(self):
        self.tempest(0)
        self.script('tempest', (
            'case "$*" in *--list-tests*) echo "%s";; *) echo begun; '
            'exec sleep 60;; esac') % self.LISTED[0])
        self.passed_on.side_effect = KeyboardInterrupt
        self.assertEqual(130, program.main(['--subunit']))
        self.assertIn('tempest: interrupted', self.shown.getvalue())

    def test_hung_node(self):
        self.tempest(0, (self.LISTED[0], 'success', None))
        self.lab.check.side_effect = errors.LabError('node1 hangs')
        self.assertEqual(1, program.main(['--subunit']))
        self.assertIn('tempest: node1 hangs', self.shown.getvalue())

    def test_list(self):
        self.tempest(0)
        out = self.patch('sys.stdout', new=io.StringIO())
        self.assertEqual(0, program.main(['--list']))
        self.assertTrue(out.getvalue().startswith(
            'tempest.api.volume.A.test_a\n'))
        self.assertIn('left out: tempest.scenario.test_volume.B.test_c: They '
                      'log in', out.getvalue())
        self.assertTrue(out.getvalue().endswith('2 tests, 1 left out\n'))

    def test_nothing_matches(self):
        self.tempest(0)
        self.patch('lab.tempest.run._TEST', new=re.compile('nothing'))
        self.assertEqual(1, program.main(['--list', 'a regex']))
        self.assertIn('no test of Tempest matches a regex',
                      self.shown.getvalue())


class EnvironmentTestCase(TempestTestCase):

    def test_built_once_per_list(self):
        make = self.patch('lab.venv._make')
        self.patch('lab.errors.say')
        venv.ensure_tempest()
        venv.ensure_tempest()
        make.assert_called_once()
        listed = self.folder / 'other'
        listed.write_text('tempest==1')
        self.patch('lab.venv._TEMPEST', listed)
        venv.ensure_tempest()
        self.assertEqual(2, make.call_count)

    def test_versions_are_pinned(self):
        for line in venv._TEMPEST.read_text().splitlines():
            self.assertRegex(line, r'^(#.*|[a-z-]+==[\d.]+)$')
