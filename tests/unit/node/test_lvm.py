# SPDX-License-Identifier: Apache-2.0
"""LVM's commands: their environment, and their errors."""

import json

import ddt
from oslo_concurrency import processutils

from dmclone_driver.node import lvm
from dmclone_driver.privsep import command
from tests.unit import base


@ddt.ddt
class LVMTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.run_as_root = self.patch('dmclone_driver.privsep.command.lvm')

    def fail(self, code, text):
        self.run_as_root.side_effect = processutils.ProcessExecutionError(
            '', text, code, 'lvm lvs a/b')

    def test_environment(self):
        """LVM's settings in Cinder's command prefix are used."""
        self.patch('cinder.brick.local_dev.lvm.LVM.LVM_CMD_PREFIX', new=[
            'env', 'LC_ALL=C', 'LVM_SYSTEM_DIR=/etc/cinder'])
        lvm.run('lvs', 'a/b')
        self.run_as_root.assert_called_once_with(
            ['lvs', 'a/b'], ['LVM_SYSTEM_DIR=/etc/cinder'], lvm.TIMEOUT)

    @ddt.data((None, []), ('/etc/cinder', ['LVM_SYSTEM_DIR=/etc/cinder']))
    @ddt.unpack
    def test_settings(self, folder, environment):
        """Cinder's prefix does not count: others are asked about, too."""
        self.patch('cinder.brick.local_dev.lvm.LVM.LVM_CMD_PREFIX', new=[
            'env', 'LVM_SYSTEM_DIR=/else'])
        lvm.settings('devices', folder)
        self.run_as_root.assert_called_once_with(
            ['lvmconfig', '--typeconfig', 'full', 'devices'], environment,
            lvm.TIMEOUT)

    # Errors of LVM 2.03.16.
    @ddt.data(
        (5, '  Failed to find logical volume "a/b"\n', lvm.NotFound),
        (5, '  Failed to find physical volume "/dev/x".\n', lvm.NotFound),
        (5, ('  Volume group "a" not found\n'
             '  Cannot process volume group a\n'), lvm.GroupNotFound),
        (5, ('  Logical Volume "b" already exists in volume group "a"\n'),
         lvm.Exists),
        (5, '  Cannot use /dev/x: device not found\n', lvm.LVMError),
        (3, '  Error during parsing of command line.\n', lvm.LVMError),
        (command.TIMED_OUT, 'it has not ended', lvm.TimedOut))
    @ddt.unpack
    def test_errors(self, code, text, kind):
        self.fail(code, text)
        error = self.assertRaises(lvm.LVMError, lvm.run, 'lvs', 'a/b')
        self.assertIs(kind, type(error))
        self.assertEqual((text, code, 'lvm lvs a/b'),
                         (error.stderr, error.exit_code, error.cmd))

    def test_report(self):
        self.run_as_root.return_value = (
            '{"report": [{"vg": [{"vg_name": "a"}]}], "log": []}')
        self.assertEqual([{'vg_name': 'a'}], lvm.report('vgs', '-o', 'x'))

    @ddt.data(('vgs', '  Volume group "a" not found\n', lvm.GroupNotFound),
              ('lvs', '  Failed to find logical volume "a/b"\n',
               lvm.NotFound))
    @ddt.unpack
    def test_errors_of_reports(self, verb, text, kind):
        """LVM 2.03.31 has them in the JSON, unless it is told otherwise."""
        def lvm_2_03_31(arguments, environment, timeout):
            out, err = (
                ('', text) if 'log/report_command_log=0 ' in ' '.join(
                    arguments) else
                (json.dumps({'log': [{'log_message': text.strip()}]}), ''))
            raise processutils.ProcessExecutionError(
                out, err, 5, ' '.join(arguments))
        self.run_as_root.side_effect = lvm_2_03_31
        self.assertRaises(kind, lvm.report, verb, 'a', '-o', 'x')

    def test_words(self):
        self.assertEqual({'a', 'b=1'}, lvm.words('a,b=1'))
        self.assertEqual(frozenset(), lvm.words(''))
