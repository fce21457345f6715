# SPDX-License-Identifier: Apache-2.0
"""The commands for operators: their output and exit codes."""

import copy
import subprocess
import sys
import uuid

from cinder.brick.local_dev import lvm
from cinder.db import api as db_api
import ddt
from oslo_config import cfg

from dmclone_driver.cmd import forget_node
from dmclone_driver.cmd import program
from dmclone_driver.cmd import reconcile
from dmclone_driver import driver
from dmclone_driver.move import jobs
from tests.unit import base
from tests.unit.fakes import cloud


class ProgramTestCase(base.PlainTestCase):

    def test_loads_in_an_interpreter_of_its_own(self):
        """The command registers Cinder's objects."""
        out = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             ('from dmclone_driver.cmd import program; '
              'print(program.load_driver()[0].DMCloneVolumeDriver.VERSION)')],
            check=True, capture_output=True, text=True).stdout
        self.assertEqual(driver.DMCloneVolumeDriver.VERSION, out.strip())


class OpenBackendTestCase(base.CloudTestCase):

    def test_no_thin_pool_is_created(self):
        """Cinder creates one in each group if lvm_type stays 'auto'."""
        cfg.CONF.set_override('lvm_type', 'auto', group=cloud.BACKEND)
        self.addCleanup(cfg.CONF.clear_override, 'lvm_type',
                        group=cloud.BACKEND)
        self.patch('cinder.volume.volume_utils.supports_thin_provisioning',
                   return_value=True)
        self.addCleanup(lvm.LVM.reset_mock)
        with self.cloud.on(self.b):
            lvm.LVM.reset_mock()
            driver.DMCloneVolumeDriver(
                configuration=self.b.driver.configuration,
                host=self.b.host).open_backend()
        self.assertEqual(
            ['default'], [call.kwargs['lvm_type'] for call in
                          lvm.LVM.call_args_list if 'lvm_type' in call.kwargs])


@ddt.ddt
class CommandTestCase(base.CloudTestCase):
    """The output and exit codes of the commands."""

    def call(self, module, *arguments):
        """Return (exit code, lines) of a command on the second node."""
        self.patch('sys.argv', ['command', *arguments])
        backend = copy.copy(self.b.backend)
        # A command is a separate process, with its own queue.
        backend.jobs = jobs.Jobs()
        self.patch('dmclone_driver.cmd.program._open_backend',
                   new=lambda name: backend)
        for name in ('setup', 'getLogger'):
            self.patch('dmclone_driver.cmd.program.logging.' + name)
        printed = self.patch('builtins.print')
        config = cfg.ConfigOpts()
        for name in (module, program):
            self.patch(name.__name__ + '.CONF', new=config)
        with self.cloud.on(self.b):
            code = module.main()
        return code, [call.args[0] for call in printed.call_args_list]

    def test_forget_node(self):
        self.a.die()
        for options, word, expected in (
                ([], 'to do', 1), (['--do-it'], 'done', 0)):
            code, (line,) = self.call(forget_node, 'dmclone', 'node1',
                                      *options)
            self.assertEqual((expected, True),
                             (code, line.startswith(word + ': volume')))
        self.assertEqual((0, []), self.call(forget_node, 'dmclone', 'node1'))

    def test_forget_node_that_runs(self):
        code, lines = self.call(forget_node, 'dmclone', 'node1', '--do-it')
        self.assertIn('runs', code)
        self.assertEqual([], lines)

    def test_reconcile(self):
        self.assertEqual((0, []), self.call(reconcile, 'dmclone'))
        self.b.lvm.add('volumes', 'volume-' + str(uuid.uuid4()), 1)
        code, (line,) = self.call(reconcile, 'dmclone', '--remove')
        self.assertEqual(1, code)
        self.assertIn('kept', line)

    def test_jobs(self):
        self.assertEqual((0, []), self.call(reconcile, 'dmclone', '--jobs'))
        self.b.jobs.add('recover', self.volume.id)
        self.assertEqual(
            (1, ['recover: ' + self.volume.id]),
            self.call(reconcile, 'dmclone', '--jobs'))

    def test_jobs_of_a_service_that_is_down(self):
        self.b.server = None
        code, lines = self.call(reconcile, 'dmclone', '--jobs')
        self.assertIn(self.b.host, code)
        self.assertEqual([], lines)

    @ddt.data([], ['--do-it'])
    def test_restore(self, options):
        before = dict(self.row())
        self.cloud.attach(self.volume, self.b)
        row = self.row()
        db_api.volume_destroy(self.context, row.name_id)
        row.update({field: before[field] for field in (
            'host', '_name_id', 'provider_id')})
        row.save()
        code, (line,) = self.call(reconcile, 'dmclone', '--restore', row.id,
                                  *options)
        self.assertEqual((not options, self.b.pool if options else
                          self.a.pool), (bool(code), self.row().host))
        self.assertTrue(line.startswith('done' if options else 'to do'))
