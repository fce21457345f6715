# SPDX-License-Identifier: Apache-2.0
"""What is asked of the kernel and of dmsetup, and their answers."""

from oslo_concurrency import processutils

from dmclone_driver.node.devicemapper import dmsetup
from dmclone_driver.node.devicemapper import table
from tests.unit import base

CLONE = ('0 64 clone 8 12/1024 8 3/8 0 1 no_discard_passdown 4 '
         'hydration_threshold 64 hydration_batch_size 64 rw')


def info(name, **fields):
    """Return what a look at a device returns."""
    return {'name': name, 'uuid': 'U1', 'open_count': 0, 'suspended': False,
            'live': True, 'read_only': False, **fields}


class LookTestCase(base.PlainTestCase):

    def look(self, function, answer):
        return self.patch('dmclone_driver.privsep.device_mapper.' + function,
                          return_value=answer)

    def test_devices(self):
        look = self.look('devices', [
            info('one'), info('two', open_count=3, suspended=True)])
        found = dmsetup.devices()
        self.assertEqual({'one', 'two'}, set(found))
        self.assertEqual((3, True), (found['two'].open_count,
                                     found['two'].suspended))
        look.assert_called_once_with()

    def test_some_devices(self):
        look = self.look('devices', [info('one')])
        self.assertEqual({'one'}, set(dmsetup.devices('one', 'two')))
        look.assert_called_once_with('one', 'two')

    def test_device(self):
        look = self.look('devices', [info('one', live=False)])
        self.assertEqual('U1', dmsetup.device('one').uuid)
        self.assertFalse(dmsetup.device('one').live)
        look.assert_called_with('one')

    def test_no_such_device(self):
        self.look('devices', [])
        self.assertIsNone(dmsetup.device('one'))

    def test_clones(self):
        look = self.look('statuses', {
            'one': CLONE + '\n', 'two': '0 64 clone Fail\n',
            'three': '0 64 linear \n', 'four': '',
            'five': '0 8 zero \n8 64 linear \n'})
        found = dmsetup.clones()
        self.assertEqual({'one', 'two'}, set(found))
        self.assertEqual(3, found['one'].hydrated)
        self.assertEqual('Fail', found['two'].mode)
        look.assert_called_once_with()
        dmsetup.clones('one')
        look.assert_called_with('one')

    def test_clone(self):
        look = self.look('statuses', {'one': CLONE + '\n'})
        self.assertEqual(8, dmsetup.clone('one').total)
        look.assert_called_once_with('one')
        self.look('statuses', {'one': '0 64 linear \n'})
        self.assertRaises(ValueError, dmsetup.clone, 'one')

    def test_clone_that_is_gone(self):
        self.look('statuses', {})
        self.assertIsNone(dmsetup.clone('one'))

    def test_state(self):
        self.look('statuses', {'one': '0 64 linear \n', 'two': ''})
        self.assertEqual('linear', dmsetup.state('one'))
        self.assertEqual('', dmsetup.state('two'))
        error = self.assertRaises(processutils.ProcessExecutionError,
                                  dmsetup.state, 'three')
        self.assertIn('three', error.stderr)


class ChangeTestCase(base.PlainTestCase):

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
        return self.answer

    def test_device_without_a_table(self):
        """A device whose creator was killed is removed and created again."""
        busy = processutils.ProcessExecutionError(
            stderr='Device or resource busy')
        for live in (False, True):
            self.patch('dmclone_driver.privsep.device_mapper.devices',
                       return_value=[info('one', live=live)])
            run = self.patch('dmclone_driver.privsep.command.dmsetup',
                             side_effect=[busy, '', ''])
            if live:
                self.assertRaises(processutils.ProcessExecutionError,
                                  dmsetup.create, 'one', 'U1', table.Zero(8))
            else:
                dmsetup.create('one', 'U1', table.Zero(8))
                self.assertEqual(['create', 'remove', 'create'], [
                    call.args[0][0][0] for call in run.call_args_list])

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
