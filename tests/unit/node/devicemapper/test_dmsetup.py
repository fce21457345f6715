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
        look = self.look('statuses_by_ending', {
            'one': CLONE + '\n', 'two': '0 64 clone Fail\n',
            'three': '0 64 linear \n', 'four': '',
            'five': '0 8 zero \n8 64 linear \n'})
        found = dmsetup.clones()
        self.assertEqual({'one', 'two'}, set(found))
        self.assertEqual(3, found['one'].hydrated)
        self.assertEqual('Fail', found['two'].mode)
        look.assert_called_once_with('-clone')
        look = self.look('statuses', {'one': '0 64 linear \n'})
        self.assertEqual({}, dmsetup.clones('one'))
        look.assert_called_with('one')

    def test_clone(self):
        look = self.look('statuses', {'one': CLONE + '\n'})
        self.assertEqual(8, dmsetup.clone('one').total)
        look.assert_called_once_with('one')
        self.look('statuses', {'one': '0 64 linear \n'})
        self.assertRaises(ValueError, dmsetup.clone, 'one')

    def test_pool(self):
        look = self.look('statuses', {
            'pool': '0 2048 thin-pool 1 5/100 3/16 - rw discard_passdown '
                    'queue_if_no_space - 1024\n',
            'one': '0 64 thin 0 -\n', 'two': '0 64 linear \n'})
        found, thin = dmsetup.pool('pool', 'one', 'two', 'three')
        self.assertEqual((3, {'one'}), (found.used, thin))
        look.assert_called_once_with('pool', 'one', 'two', 'three')
        self.look('statuses', {'one': '0 64 thin 0 -\n'})
        self.assertEqual((None, {'one'}), dmsetup.pool('pool', 'one'))

    def test_thin(self):
        self.look('statuses', {'one': '0 2048 thin 1024 2047\n'})
        self.assertEqual(1024, dmsetup.thin('one'))
        self.look('statuses', {'one': '0 2048 linear \n'})
        self.assertIsNone(dmsetup.thin('one'))
        self.look('statuses', {})
        self.assertIsNone(dmsetup.thin('one'))

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
        #: What was asked for, a list for each call.
        self.calls = []
        self.patch('dmclone_driver.privsep.device_mapper.change',
                   new=lambda *operations: self.calls.append(
                       list(operations)))

    def test_target_versions(self):
        """dmsetup is run: the start finds out whether there is one."""
        run = self.patch(
            'dmclone_driver.privsep.command.dmsetup',
            return_value='clone            v1.0.0\nlinear           v1.4.0\n')
        self.assertEqual({'clone', 'linear'}, dmsetup.target_versions())
        run.assert_called_once_with((['targets'], None))

    def test_swap(self):
        swap = self.patch('dmclone_driver.privsep.swaps.swap',
                          return_value='0 64 linear')
        self.assertEqual('0 64 linear', dmsetup.swap(
            'one', table.Zero(8), table.Error(1), expected=('linear',)))
        swap.assert_called_once_with({
            'name': 'one', 'table': '0 8 zero\n8 1 error\n',
            'expected': ('linear',), 'clone': None, 'read_only': False,
            'flush': True, 'hold': False, 'limit': None, 'begin': (),
            'lock': 'one'})
        dmsetup.swap('one', table.Zero(8), read_only=True, flush=False,
                     hold=True)
        swap.assert_called_with({
            'name': 'one', 'table': '0 8 zero\n', 'expected': None,
            'clone': None, 'read_only': True, 'flush': False,
            'hold': True, 'limit': None, 'begin': (), 'lock': 'one'})

    def create(self, **options):
        dmsetup.create('one', 'U1', table.Zero(8), table.Error(1), **options)
        operations, = self.calls
        return operations

    def test_create(self):
        self.assertEqual([['dmsetup', ['create', 'one', '--uuid', 'U1'],
                           '0 8 zero\n8 1 error\n']], self.create())

    def test_create_read_only(self):
        self.assertEqual(
            [['dmsetup', ['create', 'one', '--uuid', 'U1', '--readonly'],
              '0 8 zero\n8 1 error\n']], self.create(read_only=True))

    def test_create_together(self):
        dmsetup.create_together(
            table.concise('one', 'U1', table.Zero(8), table.Error(1)),
            table.concise('two', 'U2', table.Zero(8)))
        both = 'one,U1,,rw,0 8 zero,8 1 error;two,U2,,rw,0 8 zero'
        self.assertEqual([[['create', both]]], self.calls)

    def test_create_very_many_together(self):
        """As few arguments as the kernel takes; dmsetup reads no list."""
        devices = [table.concise(
            'dmclone-%036d' % number, 'DMCLONE-handle-%036d' % number,
            table.Linear(2 ** 31, '/dev/group/volume-%036d' % number))
            for number in range(1000)]
        dmsetup.create_together(*devices)
        (one, other), = self.calls
        found = []
        for verb, text in (one, other):
            self.assertEqual('create', verb)
            self.assertLess(len(text), 32 * 4096)
            found += text.split(';')
        self.assertEqual(devices, found)

    def test_create_suspended(self):
        """In one call, so that it is suspended whatever happens here.

        No LVM reads it before udev has linked its name.
        """
        self.assertEqual([['dmsetup', ['create', 'one', '--uuid', 'U1'],
                           '0 9 error\n'],
                          ['suspend', 'one', True],
                          ['load', 'one', '0 8 zero\n8 1 error\n', False],
                          ['resume', 'one'],
                          ['suspend', 'one', True]],
                         self.create(suspended=True))

    def test_create_suspended_without_requests(self):
        dmsetup.create('one', 'U1', table.Error(8), read_only=True,
                       suspended=True)
        self.assertEqual(
            [[['dmsetup', ['create', 'one', '--uuid', 'U1', '--readonly'],
               '0 8 error\n'], ['suspend', 'one', True]]], self.calls)

    def test_create_that_takes_effect_later(self):
        self.assertEqual(
            [['dmsetup', ['create', 'one', '--uuid', 'U1', '--notable'], None],
             ['load', 'one', '0 8 zero\n8 1 error\n', True]],
            self.create(read_only=True, later=True))

    def test_device_without_a_table(self):
        """A device whose creator was killed is removed and created again."""
        busy = processutils.ProcessExecutionError(
            stderr='Device or resource busy')
        for live in (False, True):
            self.patch('dmclone_driver.privsep.device_mapper.devices',
                       return_value=[info('one', live=live)])
            run = self.patch('dmclone_driver.privsep.device_mapper.change',
                             side_effect=[busy, None, None])
            if live:
                self.assertRaises(processutils.ProcessExecutionError,
                                  dmsetup.create, 'one', 'U1', table.Zero(8))
            else:
                dmsetup.create('one', 'U1', table.Zero(8))
                self.assertEqual(['create', 'remove', 'create'], [
                    call.args[0][1][0] for call in run.call_args_list])

    def test_table_of_a_device(self):
        dmsetup.suspend('one')
        dmsetup.load_and_resume('one', table.Zero(8))
        self.assertEqual([[['suspend', 'one', True]],
                          [['load', 'one', '0 8 zero\n', False],
                           ['resume', 'one']]], self.calls)

    def test_suspend_without_waiting(self):
        dmsetup.suspend('one', flush=False)
        self.assertEqual([[['suspend', 'one', False]]], self.calls)

    def test_message_and_remove(self):
        dmsetup.message('one', 'hydration_batch_size 1')
        dmsetup.remove('one')
        dmsetup.remove('two', suspended=True)
        self.assertEqual([
            [['message', 'one', 'hydration_batch_size 1']],
            [['dmsetup', ['remove', '--retry', 'one'], None]],
            [['resume', 'two'],
             ['dmsetup', ['remove', '--retry', 'two'], None]]], self.calls)
