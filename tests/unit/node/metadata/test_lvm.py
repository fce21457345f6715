# SPDX-License-Identifier: Apache-2.0
"""Metadata on logical volumes: zeroed once, and found in any group."""

import dataclasses
import os
from unittest import mock

import ddt
import fixtures
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver.node import logical_volumes
from dmclone_driver.node import lvm as node_lvm
from dmclone_driver.node.metadata import lvm
from dmclone_driver import privsep
from tests.unit import base
from tests.unit.fakes import storage
from tests.unit.node.metadata import stores


class LvmTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.lv = self.logical_volume()
        stores.use_groups(self)
        self.store = self.make(None)

    def make(self, group):
        store = lvm.LogicalVolumeMetadata(stores.configuration(
            dmclone_metadata_volume_group=group), None)
        store.check()
        return store

    def create(self, region=128, before=None):
        return self.store.create(self.names, self.lv.size, region, before)

    def clone(self):
        """Return the logical volume of a clone that may use the metadata."""
        return dataclasses.replace(self.lv, tags=frozenset(
            [logical_volumes.METADATA_TAG + 'volumes/x']))

    def path(self, group='volumes'):
        return '/dev/%s/%s' % (group, self.names.metadata)

    def zeroings(self):
        return sum('zero_start' in step for step in self.steps.log)

    def test_create(self):
        self.create()
        self.assertEqual((self.path(), 128), self.store.find(self.names))
        self.assertEqual({'hydrated': 0}, self.lvm.bitmap(self.path()))
        self.assertEqual(3 * 2 ** 20, self.lvm.volumes[self.path()]['size'])

    def test_create_on_blocks_with_a_signature(self):
        """LVM is told to wipe it, instead of asking."""
        self.lvm.signatures.add('volumes')
        self.create()
        self.assertEqual((self.path(), 128), self.store.find(self.names))

    def test_size_grows_with_the_regions(self):
        self.lv = self.logical_volume(90 * storage.GIB)[1]
        self.create(region=8)
        self.assertGreater(self.lvm.volumes[self.path()]['size'],
                           6528 * 1024 * 90 // 100)

    def test_zeroed_once(self):
        self.create()
        self.lvm.bitmap(self.path())['hydrated'] = 7
        for region in (128, 8):
            self.create(region, self.clone())
        self.assertEqual(1, self.zeroings())
        self.assertEqual({'hydrated': 7}, self.lvm.bitmap(self.path()))
        self.assertEqual((self.path(), 128), self.store.find(self.names))

    def test_cut_off_anywhere_and_repeated(self):
        """Until the clone's logical volume is tagged it is zeroed again."""
        for number, after in ((0, False), (0, True), (1, False), (1, True)):
            self.steps.start(number, after=after)
            self.assertRaises((processutils.ProcessExecutionError, OSError),
                              self.create)
            self.steps.start()
            self.assertEqual((self.path(), 128), self.create(8 if number else
                                                             128, self.lv))
            self.assertEqual(1, self.zeroings())
            self.assertEqual((self.path(), 128), self.store.find(self.names))
            self.assertIsNotNone(self.lvm.bitmap(self.path()))
            self.store.remove(self.names)

    def test_two_commands(self):
        """One creates it with its tag; the first time none looks for it."""
        self.steps.start()
        self.create()
        create, zero = self.steps.log
        self.assertIn('--addtag dmclone.region=128', create)
        self.assertIn('zero_start', zero)

    def removal(self):
        """Remove the metadata; return the steps."""
        self.steps.start()
        self.store.remove(self.names)
        self.assertIsNone(self.store.find(self.names))
        return [step for step in self.steps.log
                if 'zero_out' in step or 'lvremove' in step]

    def test_zeroed_before_its_removal(self):
        """A new volume that gets its blocks is taken for zeros."""
        self.create()
        zero, remove = self.removal()
        self.assertIn('zero_out', zero)
        self.assertIn('lvremove', remove)

    def test_removed_from_a_group_without_volumes(self):
        self.store = self.make('fast')
        self.create()
        self.assertEqual(1, len(self.removal()))

    def test_removed_though_it_cannot_be_zeroed(self):
        self.create()
        with mock.patch('dmclone_driver.privsep.block.zero_out',
                        side_effect=OSError('a bad disk')):
            self.assertEqual(1, len(self.removal()))
        self.assertIn('a bad disk', self.log.output)

    def test_another_one_is_not_taken(self):
        """Without an earlier attempt there cannot be any."""
        self.create()
        self.lvm.bitmap(self.path())['hydrated'] = 7
        self.assertRaises(node_lvm.Exists, self.create)
        self.assertEqual({'hydrated': 7}, self.lvm.bitmap(self.path()))

    def test_without_the_tag_it_is_not_found(self):
        self.lvm.add('volumes', self.names.metadata, 2 ** 22)
        self.assertIsNone(self.store.find(self.names))

    def test_find_activates(self):
        self.create()
        self.lvm.volumes[self.path()]['active'] = False
        self.store.find(self.names)
        self.assertTrue(self.lvm.volumes[self.path()]['active'])

    def test_another_group(self):
        self.store = self.make('fast')
        self.create()
        self.assertEqual((self.path('fast'), 128),
                         self.store.find(self.names))

    def test_group_has_changed_meanwhile(self):
        self.create()
        self.lvm.bitmap(self.path())['hydrated'] = 7
        self.store = self.make('fast')
        self.assertEqual((self.path(), 128), self.store.find(self.names))
        self.create(before=self.clone())
        self.assertEqual(1, self.zeroings())
        self.store.remove(self.names)
        self.assertEqual([self.lv.name], self.lvm.names())

    def test_remove(self):
        self.create()
        for _ in range(2):
            self.store.remove(self.names)
            self.assertEqual([self.lv.name], self.lvm.names())

    def test_no_such_group(self):
        error = self.assertRaises(exception.BadConfiguration, self.make,
                                  'gone')
        for part in ('dmclone_metadata_volume_group', 'gone', '[here]',
                     'no volume group'):
            self.assertIn(part, error.msg)

    def test_no_room(self):
        self.store = self.make('fast')
        self.lvm.add('fast', 'other', storage.GIB - 2 ** 20)
        error = self.assertRaises(exception.NoRoomForMetadata, self.create)
        for part in ('needs 3 MiB', 'volume group fast', '1 MiB are left'):
            self.assertIn(part, error.msg)
        self.assertIsNone(self.store.find(self.names))


@ddt.ddt
class EnvironmentTestCase(base.PlainTestCase):
    """The environment of LVM commands of Cinder and of the driver."""

    def setUp(self):
        super().setUp()
        privsep.dmclone_context.set_client_mode(False)
        self.addCleanup(privsep.dmclone_context.set_client_mode, True)
        self.patch('cinder.brick.local_dev.lvm.LVM.LVM_CMD_PREFIX',
                   new=['env', 'LC_ALL=C'])
        self.patch('oslo_concurrency.processutils.execute',
                   new=self._execute)
        self.folder = self.useFixture(fixtures.TempDir()).path
        self.file = os.path.join(self.folder, 'lvm.conf')
        self.ran = []

    def _execute(self, *command, **kwargs):
        self.ran.append(list(command))
        return {'version': '  LVM version: 2.03.16(2)',
                'volumes': 'volumes'}.get(command[-1], ''), ''

    def environments(self, path, **options):
        """Return the prefixes of commands of a store and of the driver."""
        store = lvm.LogicalVolumeMetadata(
            stores.configuration(lvm_conf_file=path, **options),
            self._execute)
        store.check()
        with mock.patch('subprocess.Popen') as run:
            run.return_value.communicate.return_value = ('', '')
            run.return_value.returncode = 0
            node_lvm.run('lvs')
        self.ran.append(run.call_args.args[0])
        self.assertIn('lvs', self.ran[-1])
        return {tuple(word for word in words
                      if word.partition('=')[0].isupper())
                for words in self.ran}

    def test_file_that_is_there(self):
        open(self.file, 'w').close()
        self.assertEqual({('LC_ALL=C', 'LVM_SYSTEM_DIR=' + self.folder)},
                         self.environments(self.file))

    def test_warnings(self):
        self.assertEqual(
            {('LC_ALL=C', 'LVM_SUPPRESS_FD_WARNINGS=1')},
            self.environments(self.file, lvm_suppress_fd_warnings=True))

    @ddt.data('None', '/nowhere/lvm.conf')
    def test_no_file(self, path):
        self.assertEqual({('LC_ALL=C',)}, self.environments(path))
