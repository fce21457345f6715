# SPDX-License-Identifier: Apache-2.0
"""The commands for operators: their output and exit codes."""

import copy
import io
import json
import os
import subprocess
import sys
from unittest import mock
import uuid

from cinder.tests.unit import utils as cinder_utils
import ddt
from oslo_config import cfg

from dmclone_driver.checks import result
from dmclone_driver.cmd import check
from dmclone_driver.cmd import forget_node
from dmclone_driver.cmd import move
from dmclone_driver.cmd import program
from dmclone_driver.cmd import reconcile
from dmclone_driver import driver
from dmclone_driver.move import jobs
from dmclone_driver.move import plan
from dmclone_driver.releases import db_api
from tests.unit import base
from tests.unit.fakes import storage


class ProgramTestCase(base.PlainTestCase):

    def test_loads_in_an_interpreter_of_its_own(self):
        """The command registers Cinder's objects."""
        out = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             ('from dmclone_driver.cmd import program; '
              'print(program.load_driver()[0].DMCloneVolumeDriver.VERSION)')],
            check=True, capture_output=True, text=True).stdout
        self.assertEqual(driver.DMCloneVolumeDriver.VERSION, out.strip())

    def become(self, user, owner, state_path='/', error=None):
        """Return the calls that change the user of a command.

        :param user: that runs it
        :param owner: of the service's state
        :param error: of looking up the owner's name
        """
        self.patch('dmclone_driver.cmd.program.CONF', state_path=state_path)
        found = self.patch('dmclone_driver.cmd.program.os')
        found.geteuid.return_value = user
        found.stat.return_value = mock.Mock(st_uid=owner, st_gid=owner + 1)
        found.path.isdir = os.path.isdir
        found.getgrouplist.return_value = [owner + 1, 6]
        names = self.patch('dmclone_driver.cmd.program.pwd.getpwuid')
        names.side_effect = error
        program.become_service_user()
        return [each for each in found.mock_calls if each[0].startswith('set')]

    def test_root_becomes_the_user_of_the_service(self):
        """Groups first: who has given up root cannot change them."""
        self.assertEqual([mock.call.setgroups([65, 6]), mock.call.setgid(65),
                          mock.call.setuid(64)], self.become(0, 64))

    def test_user_without_a_name(self):
        self.assertEqual([mock.call.setgroups([65]), mock.call.setgid(65),
                          mock.call.setuid(64)],
                         self.become(0, 64, error=KeyError))

    def test_user_stays(self):
        self.assertEqual([], self.become(64, 64))
        self.assertEqual([], self.become(7, 64))
        self.assertEqual([], self.become(0, 0))
        self.assertEqual([], self.become(0, 64, state_path='/missing'))


class CheckTestCase(base.PlainTestCase):
    """The lines and exit codes of dmclone-check, for given results."""

    GOOD = (result.ok('kernel', 'Linux 6.1.0'),
            result.not_applicable('multipath', 'it does not run'))
    BAD = result.failed('locks', 'no\n answer of "caf\xe9"', 'start it',
                        'dmclone')
    UNKNOWN = result.unknown('udev rule', 'not visible', 'run it there')

    def check(self, *results, encoding='utf-8', arguments=()):
        """Return (exit code, what is printed)."""
        self.patch('sys.argv', ['command', *arguments])
        config = cfg.ConfigOpts()
        for module in (check, program):
            self.patch(module.__name__ + '.CONF', new=config)
        for name in ('logging.setup', 'logging.getLogger', 'prepare_root'):
            self.patch('dmclone_driver.cmd.program.' + name)
        self.patch('dmclone_driver.checks.backends.using',
                   return_value=['dmclone'])
        self.made = self.patch('dmclone_driver.checks.survey.Survey')
        self.made.return_value.run.return_value = iter(results)
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        with mock.patch('sys.stdout', out):
            code = check.main()
        out.flush()
        return code, out.buffer.getvalue().decode(encoding)

    def sections(self):
        """Return the backends that were checked."""
        (found,), _keywords = self.made.return_value.run.call_args
        return [each.config_group for each in found]

    def test_good(self):
        self.assertEqual(
            (0, ('\N{CHECK MARK} kernel: Linux 6.1.0\n'
                 '- multipath: it does not run\n')), self.check(*self.GOOD))
        self.assertEqual(['dmclone'], self.sections())

    def test_bad(self):
        self.assertEqual(
            (1, ('\N{BALLOT X} [dmclone] locks: no answer of '
                 '"caf\xe9"; start it\n')),
            self.check(self.BAD))

    def test_what_is_unknown_is_not_right(self):
        self.assertEqual((1, '? udev rule: not visible; run it there\n'),
                         self.check(self.UNKNOWN))

    def test_terminal_without_the_signs(self):
        self.assertEqual(
            (1, ('ok kernel: Linux 6.1.0\n'
                 'FAILED [dmclone] locks: no answer of "caf?"; start it\n')),
            self.check(self.GOOD[0], self.BAD, encoding='ascii'))

    def test_json(self):
        code, out = self.check(*self.GOOD, self.BAD, arguments=['--json'])
        self.assertEqual(1, code)
        found = json.loads(out)
        self.assertEqual({'node', 'version', 'results'}, set(found))
        self.assertEqual(
            {'check': 'kernel', 'subject': '', 'outcome': 'ok',
             'text': 'Linux 6.1.0', 'remedy': '', 'start_refused': False},
            found['results'][0])
        self.assertEqual(['ok', 'not applicable', 'failed'],
                         [each['outcome'] for each in found['results']])

    def test_named_backends(self):
        self.check(arguments=['one', 'two'])
        self.assertEqual(['one', 'two'], self.sections())

    def test_no_backend(self):
        self.patch('dmclone_driver.cmd.program.run_plainly',
                   new=lambda options, function, arguments: function(None))
        self.patch('dmclone_driver.checks.backends.using', return_value=[])
        self.patch('dmclone_driver.cmd.check.CONF', backend=[])
        self.assertRaises(plan.Refused, check.main)


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
        self.patch('dmclone_driver.cmd.program.connect')
        for name in ('setup', 'getLogger'):
            self.patch('dmclone_driver.cmd.program.logging.' + name)
        printed = self.patch('builtins.print')
        config = cfg.ConfigOpts()
        for name in (module, program):
            self.patch(name.__name__ + '.CONF', new=config)
        with self.cloud.on(self.b):
            code = module.main()
        return code, [call.args[0] for call in printed.call_args_list]

    def test_version(self):
        """It is that of this package, not Cinder's."""
        for module in (forget_node, move, reconcile):
            printed = self.patch('sys.stdout', new=io.StringIO())
            self.assertRaises(SystemExit, self.call, module, '--version')
            self.assertEqual(driver.DMCloneVolumeDriver.VERSION,
                             printed.getvalue().strip())

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

    def snapshot(self):
        snapshot = cinder_utils.create_snapshot(
            self.context, self.volume.id, status='available', volume_size=1)
        with self.cloud.on(self.a):
            snapshot.update(self.a.driver.create_snapshot(snapshot))
        snapshot.save()
        return snapshot

    def test_move(self):
        self.assertEqual(
            (0, ['volume %s is on %s now, and hydrates there' % (
                self.volume.id, self.b.pool)]),
            self.call(move, self.volume.id, 'node2'))
        self.assertEqual(self.b.pool, self.row().host)

    def test_move_of_a_volume_with_a_snapshot(self):
        snapshot = self.snapshot()
        left = ['the origin of snapshots of volume {0}: 1.00 GiB in '
                'volumes/volume-{0}'.format(self.volume.id),
                'snapshot {0} of volume {1}: 1.00 GiB in '
                'volumes/_snapshot-{0}'.format(snapshot.id, self.volume.id)]
        code, (_, *lines) = self.call(move, self.volume.id, 'node2')
        self.assertEqual((0, ['left behind on %s: %s' % (self.a.host, line)
                              for line in left]), (code, lines))
        self.cloud.watch(3)
        self.b = self.a
        self.assertEqual((0, left),
                         self.call(reconcile, 'dmclone', '--left-behind'))

    def test_nothing_is_left_behind(self):
        self.snapshot()
        self.assertEqual((0, []),
                         self.call(reconcile, 'dmclone', '--left-behind'))

    def test_move_with_snapshots(self):
        ids = [self.snapshot().id for _number in range(2)]
        options = [self.volume.id, 'node2', '--with-snapshots']
        first = ('the snapshots need 2 GiB on %s, which has 99.00 GiB left'
                 % self.b.host)
        lines = ['volume %s: move it to %s' % (self.volume.id, self.b.host)]
        lines += ['snapshot {0}: begin to copy it from {1} to {2}, where it '
                  'takes 1 GiB; it is deleted on {1} when it is complete'
                  .format(each, self.a.host, self.b.host)
                  for each in sorted(ids)]
        self.b.lvm.add('volumes', 'volume-' + str(uuid.uuid4()), storage.GIB)
        code, (total, *found) = self.call(move, *options, '--plan')
        self.assertEqual((1, first, ['to do: ' + line for line in lines]),
                         (code, total, [found[0], *sorted(found[1:])]))
        self.assertEqual(([], self.a.pool), (self.cloud.placeholders(),
                                             self.row().host))
        code, (total, *found) = self.call(move, *options)
        self.assertEqual((0, first, ['done: ' + line for line in lines]),
                         (code, total, [found[0], *sorted(found[1:])]))
        # An option of earlier versions is still accepted.
        code, found = self.call(move, *options, '--do-it')
        self.assertEqual((0, ['snapshot %s is being copied to %s' % (
            each, self.b.host) for each in sorted(ids)]),
            (code, sorted(found)))
        self.cloud.watch(4)
        self.assertEqual((0, []), self.call(move, *options))

    def test_plan_of_a_move(self):
        self.assertEqual((1, ['to do: volume %s: move it to %s' % (
            self.volume.id, self.b.host)]), self.call(
                move, self.volume.id, 'node2', '--plan'))
        self.assertEqual(self.a.pool, self.row().host)

    def test_move_with_snapshots_that_do_not_fit(self):
        """Not even the volume is moved, which would fit."""
        self.snapshot()
        self.b.lvm.groups['volumes'] = 3 * storage.GIB // 2
        options = [self.volume.id, 'node2', '--with-snapshots']
        code, lines = self.call(move, *options)
        self.assertIn('Nothing is done: node2@dmclone has 1.50 GiB left, and '
                      'the snapshots need 1 GiB, the volume 1 GiB.', code)
        self.assertEqual(([], self.a.pool), (self.cloud.placeholders(),
                                             self.row().host))
        self.assertEqual(1, self.call(move, *options, '--plan')[0])
        self.assertEqual(0, self.call(move, self.volume.id, 'node2')[0])

    def test_move_with_a_snapshot_that_stays(self):
        snapshot = self.snapshot()
        snapshot.status = 'error'
        snapshot.save()
        code, found = self.call(move, self.volume.id, 'node2',
                                '--with-snapshots')
        self.assertEqual(1, code)
        self.assertTrue(found[-1].startswith('not done: snapshot'), found)
        self.assertIn('its status is error', found[-1])
        self.assertEqual(self.b.pool, self.row().host)

    def test_move_with_snapshots_to_a_node_that_is_down(self):
        self.snapshot()
        self.b.server = None
        code, lines = self.call(move, self.volume.id, 'node2',
                                '--with-snapshots')
        self.assertIn('did not answer', code)
        self.assertEqual(([], self.a.pool), (lines, self.row().host))

    def test_move_with_snapshots_that_is_refused(self):
        self.snapshot()
        self.cloud.attach(self.volume, self.a)
        code, lines = self.call(move, self.volume.id, 'node2',
                                '--with-snapshots')
        self.assertIn('it is attached', code)
        self.assertEqual([], self.cloud.placeholders())

    def test_move_that_is_refused(self):
        code, lines = self.call(move, self.volume.id, 'node1')
        self.assertIn('it is there already', code)
        self.assertEqual([], lines)

    def test_move_of_an_unknown_volume(self):
        code, lines = self.call(move, 'nobody', 'node1')
        self.assertIn('no volume nobody', code)
        self.assertEqual([], lines)

    def test_move_whose_home_does_not_answer(self):
        self.a.server = None
        code, lines = self.call(move, self.volume.id, 'node2')
        for part in (self.a.host, 'may still succeed'):
            self.assertIn(part, code)
        self.assertEqual([], lines)

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
