# SPDX-License-Identifier: Apache-2.0
"""What keeps a backend from starting, and how that is said."""

import types

from cinder import exception as cinder_exception
import ddt
from oslo_concurrency import processutils

from dmclone_driver import exception
from dmclone_driver import setup_check
from tests.unit import base


class Configuration(types.SimpleNamespace):

    def safe_get(self, name):
        return getattr(self, name, None)


def configuration(**options):
    return Configuration(**dict(
        target_helper='tgtadm', lvm_type='default', dmclone_region_size=0,
        volume_driver='the.driver', volume_group='the-group',
        config_group='here', **{}) | options)


@ddt.ddt
class SetupCheckTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.loaded = []
        self.patch('dmclone_driver.privsep.command.modprobe',
                   new=self._modprobe)

    def _modprobe(self, module):
        if module == self.missing:
            raise processutils.ProcessExecutionError(
                stderr='Module %s not found' % module)
        self.loaded.append(module)

    missing = None

    def assertRefused(self, check, *parts):
        error = self.assertRaises(exception.BadConfiguration, check)
        for part in ('[here]',) + parts:
            self.assertIn(part, error.msg)

    @ddt.data({}, {'target_helper': 'lioadm'}, {'dmclone_region_size': 4},
              {'dmclone_region_size': 1048576})
    def test_good_options(self, options):
        setup_check.check_options(configuration(**options))

    @ddt.data(({'target_helper': 'nvmet'}, 'target_helper = nvmet'),
              ({'lvm_type': 'thin'}, 'lvm_type = thin'),
              ({'dmclone_region_size': 100}, 'dmclone_region_size = 100'),
              ({'dmclone_region_size': 2}, 'power of two from 4 to'))
    @ddt.unpack
    def test_bad_options(self, options, words):
        self.assertRefused(lambda: setup_check.check_options(
            configuration(**options)), words)

    def check_kernel(self):
        setup_check.check_kernel(configuration())

    def test_kernel(self):
        self.check_kernel()
        self.assertEqual(['dm-zero'] if 'zero' not in self.kernel.targets
                         else [], self.loaded)

    def test_modules_are_loaded(self):
        self.kernel.targets = {'linear'}
        self.check_kernel()
        self.assertEqual({'dm-clone', 'dm-zero'}, set(self.loaded))

    def test_kernel_without_dm_clone(self):
        self.kernel.targets.discard('clone')
        self.missing = 'dm-clone'
        self.assertRefused(self.check_kernel, 'dm-clone', 'not found',
                           'Linux 5.11')

    def test_no_dmsetup(self):
        self.patch('dmclone_driver.privsep.command.dmsetup',
                   side_effect=FileNotFoundError('no dmsetup'))
        self.assertRefused(self.check_kernel, 'no dmsetup')

    def test_group(self):
        setup_check.check_group(configuration(), lambda: None)

    @ddt.data((cinder_exception.VolumeBackendAPIException(data='no the-vg'),
               'no the-vg'), (StopIteration(), 'no such volume group'))
    @ddt.unpack
    def test_no_group(self, error, words):
        def check():
            raise error

        self.assertRefused(
            lambda: setup_check.check_group(configuration(), check),
            'volume_group = the-group', words)
