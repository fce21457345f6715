# SPDX-License-Identifier: Apache-2.0
"""The command with verbs: its options, its errors and its exit codes."""

import io
from unittest import mock

import ddt
from oslo_config import cfg

from dmclone_driver.cmd import dmclone
from dmclone_driver.cmd import forget_node
from dmclone_driver.cmd import move
from dmclone_driver.cmd import reconcile
from dmclone_driver import driver
from tests.unit import base


@ddt.ddt
class ApplicationTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.out, self.error = io.StringIO(), io.StringIO()
        for name in ('setup', 'getLogger'):
            self.patch('dmclone_driver.cmd.program.logging.' + name)
        self.config = cfg.ConfigOpts()
        for name in ('move', 'program'):
            self.patch('dmclone_driver.cmd.%s.CONF' % name, new=self.config)

    def call(self, *arguments):
        """Return the exit code of a call."""
        with mock.patch('sys.stderr', self.error), mock.patch(
                'sys.stdout', self.out):
            try:
                return dmclone.main(arguments)
            except SystemExit as left:
                return left.code or 0

    def test_version(self):
        self.assertEqual(0, self.call('--version'))
        self.assertEqual(driver.DMCloneVolumeDriver.VERSION,
                         self.out.getvalue().strip())

    def test_help(self):
        self.assertEqual(0, self.call('--help'))
        for verb in dmclone.VERBS:
            self.assertRegex(self.out.getvalue(), r'\n  %s +[A-Z]' % verb)
        self.assertNotIn('Could not', self.out.getvalue())

    def test_help_of_a_verb(self):
        self.assertEqual(0, self.call('move', '--help'))
        text = ' '.join(self.out.getvalue().split())
        for option in move.OPTIONS:
            self.assertIn(' '.join(option.help.split()), text)

    @ddt.data([], ['nothing'], ['move', 'volume'], ['move', '--nothing'])
    def test_wrong_options(self, arguments):
        self.assertEqual(2, self.call(*arguments))

    def test_missing_configuration(self):
        code = self.call('move', 'volume', 'node', '--config-file',
                         '/nothing.conf')
        self.assertEqual(1, code)
        self.assertIn('/nothing.conf', self.error.getvalue())

    @ddt.data(
        ('move volume node --config-file=/a --config-file /b', move,
         ['--config-file=/a', '--config-file=/b', 'volume', 'node']),
        ('--config-dir /d forget dmclone node --do-it', forget_node,
         ['--config-dir=/d', 'dmclone', 'node', '--do-it']),
        ('forget dmclone node', forget_node, ['dmclone', 'node']),
        ('reconcile --restore v dmclone', reconcile,
         ['dmclone', '--restore=v']),
        ('reconcile --left-behind dmclone', reconcile,
         ['dmclone', '--left-behind']))
    @ddt.unpack
    def test_verb_that_is_a_command(self, line, module, expected):
        done = self.patch(module.__name__ + '.main', return_value=1)
        self.assertEqual(1, self.call(*line.split()))
        done.assert_called_once_with(expected)

    def test_arguments_reach_the_command(self):
        found = []
        self.patch('dmclone_driver.cmd.move._move', new=lambda context:
                   found.append((self.config.volume, self.config.node)) or 0)
        self.patch('dmclone_driver.cmd.program.connect')
        self.assertEqual(0, self.call('move', 'some-volume', 'node2'))
        self.assertEqual([('some-volume', 'node2')], found)

    def test_reason_of_a_failure(self):
        self.patch('dmclone_driver.cmd.move.main', return_value='no way')
        self.assertEqual(1, self.call('move', 'volume', 'node'))
        self.assertEqual('no way\n', self.error.getvalue())
