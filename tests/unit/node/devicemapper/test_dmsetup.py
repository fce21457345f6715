# SPDX-License-Identifier: Apache-2.0
"""The arguments and the output of dmsetup."""

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from tests.unit import base

CLONE = ('0 64 clone 8 12/1024 8 3/8 0 1 no_discard_passdown 4 '
         'hydration_threshold 64 hydration_batch_size 64 rw')


class DmsetupTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.answer = ''
        self.run = []
        self.calls = 0
        self.patch('dmclone_driver.privsep.command.dmsetup', new=self._run)

    def _run(self, *commands):
        self.calls += 1
        for arguments, text in commands:
            self.run.append(' '.join(arguments))
            self.text = text
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def fail(self, text):
        self.answer = processutils.ProcessExecutionError(stderr=text)

    def test_devices(self):
        self.answer = 'one|U1|0|L--w\ntwo|U2|3|L-sr\n'
        found = dmsetup.devices()
        self.assertEqual({'one', 'two'}, set(found))
        self.assertEqual((3, True), (found['two'].open_count,
                                     found['two'].suspended))
        self.assertEqual(1, len(self.run))

    def test_device_that_goes_while_all_are_looked_at(self):
        gone = processutils.ProcessExecutionError(
            stdout='one|U1|0|L--w\n',
            stderr='Device does not exist.\nCommand failed.\n')
        for look in (dmsetup.devices, dmsetup.clones):
            run = self.patch('dmclone_driver.privsep.command.dmsetup',
                             side_effect=[gone, gone, ''])
            self.assertEqual({}, look())
            self.assertEqual(3, run.call_count)
            run.side_effect = gone
            self.assertRaises(processutils.ProcessExecutionError, look)

    def test_other_failures_of_a_look_at_all(self):
        self.fail('Permission denied')
        self.assertRaises(processutils.ProcessExecutionError,
                          dmsetup.devices)
        self.assertEqual(1, len(self.run))

    def test_device_without_a_table(self):
        """A device whose creator was killed is removed and created again."""
        self.answer = 'one|U1|0|---w\n'
        self.assertFalse(dmsetup.device('one').live)
        busy = processutils.ProcessExecutionError(
            stderr='Device or resource busy')
        for left, removed in (('one|U1|0|---w', True),
                              ('one|U1|0|-I-w', True),
                              ('one|U1|0|L--w', False)):
            run = self.patch('dmclone_driver.privsep.command.dmsetup',
                             side_effect=[busy, left, '', ''])
            if removed:
                dmsetup.create('one', 'U1', table.Zero(8))
                self.assertEqual(['create', 'info', 'remove', 'create'], [
                    call.args[0][0][0] for call in run.call_args_list])
            else:
                self.assertRaises(processutils.ProcessExecutionError,
                                  dmsetup.create, 'one', 'U1', table.Zero(8))

    def test_no_devices(self):
        self.answer = 'No devices found\n'
        self.assertEqual({}, dmsetup.devices())

    def test_device(self):
        self.answer = 'one|U1|1|L--w\n'
        self.assertEqual('U1', dmsetup.device('one').uuid)
        self.assertTrue(self.run[0].endswith(' one'))

    def test_no_such_device(self):
        for text in ('Device does not exist.\nCommand failed.\n',
                     'Device one not found\n'):
            self.fail(text)
            self.assertIsNone(dmsetup.device('one'))

    def test_other_failures_are_not_taken_for_an_absent_device(self):
        self.fail('Permission denied')
        self.assertRaises(processutils.ProcessExecutionError,
                          dmsetup.device, 'one')

    def test_clones(self):
        """It needs one process, and does not commit metadata."""
        self.answer = 'one: %s\ntwo: 0 64 clone Fail\n' % CLONE
        found = dmsetup.clones()
        self.assertEqual(3, found['one'].hydrated)
        self.assertEqual('Fail', found['two'].mode)
        self.assertEqual(['status --noflush --target clone'], self.run)

    def test_no_clones(self):
        self.answer = 'No devices found\n'
        self.assertEqual({}, dmsetup.clones())

    def test_clone(self):
        self.answer = CLONE + '\n'
        self.assertEqual(8, dmsetup.clone('one').total)
        self.answer = '0 64 linear \n'
        self.assertRaises(ValueError, dmsetup.clone, 'one')
        self.assertEqual(['status --noflush one'] * 2, self.run)

    def test_clone_that_is_gone(self):
        self.fail('Device does not exist.')
        self.assertIsNone(dmsetup.clone('one'))
        self.fail('Permission denied')
        self.assertRaises(processutils.ProcessExecutionError,
                          dmsetup.clone, 'one')

    def test_target_versions(self):
        self.answer = 'clone            v1.0.0\nlinear           v1.4.0\n'
        self.assertEqual({'clone', 'linear'}, dmsetup.target_versions())

    def test_swap(self):
        swap = self.patch('dmclone_driver.privsep.swaps.swap',
                          return_value='0 64 linear')
        self.assertEqual('0 64 linear', dmsetup.swap(
            'one', table.Zero(8), table.Error(1), expected=('linear',)))
        swap.assert_called_once_with({
            'name': 'one', 'table': '0 8 zero\n8 1 error\n',
            'expected': ('linear',), 'clone': None, 'load': [],
            'suspend': [], 'hold': False, 'limit': None, 'begin': (),
            'lock': 'one'})
        dmsetup.swap('one', table.Zero(8), read_only=True, flush=False,
                     hold=True)
        swap.assert_called_with({
            'name': 'one', 'table': '0 8 zero\n', 'expected': None,
            'clone': None,
            'load': ['--readonly'], 'suspend': ['--noflush', '--nolockfs'],
            'hold': True, 'limit': None, 'begin': (), 'lock': 'one'})

    def test_create(self):
        dmsetup.create('one', 'U1', table.Zero(8), table.Error(1))
        self.assertEqual(['create one --uuid U1'], self.run)
        self.assertEqual('0 8 zero\n8 1 error\n', self.text)

    def test_create_read_only(self):
        dmsetup.create('one', 'U1', table.Zero(8), read_only=True)
        self.assertEqual(['create one --uuid U1 --readonly'], self.run)

    def test_create_suspended(self):
        dmsetup.create('one', 'U1', table.Zero(8), suspended=True)
        self.assertEqual((1, ['create one --uuid U1', 'suspend one']),
                         (self.calls, self.run))

    def test_table_of_a_device(self):
        dmsetup.suspend('one')
        dmsetup.load_and_resume('one', table.Zero(8))
        self.assertEqual((2, ['suspend one', 'load one', 'resume one']),
                         (self.calls, self.run))

    def test_suspend_without_waiting(self):
        dmsetup.suspend('one', flush=False)
        self.assertEqual(['suspend --noflush --nolockfs one'], self.run)

    def test_message_and_remove(self):
        dmsetup.message('one', 'enable_hydration')
        dmsetup.remove('one')
        dmsetup.remove('two', suspended=True)
        self.assertEqual(
            (3, ['message one 0 enable_hydration', 'remove --retry one',
                 'resume two', 'remove --retry two']), (self.calls, self.run))
