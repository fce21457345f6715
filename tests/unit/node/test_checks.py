# SPDX-License-Identifier: Apache-2.0
"""The checks at the start of a backend, and their error messages."""

import types

from cinder import exception as cinder_exception
import ddt
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_config import fixture as config_fixture

from dmclone_driver import exception
from dmclone_driver.node import checks
from tests.unit import base


class Configuration(types.SimpleNamespace):

    def safe_get(self, name):
        return getattr(self, name, None)


def configuration(**options):
    return Configuration(**dict(
        target_helper='tgtadm', lvm_type='default', lvm_mirrors=0,
        dmclone_region_size=0, volume_driver='the.driver',
        volume_group='volumes', config_group='here') | options)


class Driver:
    pass


class Derived(Driver):
    pass


@ddt.ddt
class SetupCheckTestCase(base.MachineTestCase):

    def setUp(self):
        super().setUp()
        self.loaded = []
        self.conf = self.useFixture(config_fixture.Config(checks.CONF))
        self.release = self.patch('platform.release', return_value='6.1.0')
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
        checks.check_options(configuration(**options))

    @ddt.data(({'target_helper': 'nvmet'}, 'target_helper = nvmet'),
              ({'lvm_type': 'thin'}, 'lvm_type = thin'),
              ({'lvm_mirrors': 1}, 'lvm_mirrors = 1'),
              ({'dmclone_region_size': 100}, 'dmclone_region_size = 100'),
              ({'dmclone_region_size': 2}, 'power of two from 4 to'))
    @ddt.unpack
    def test_bad_options(self, options, words):
        self.assertRefused(lambda: checks.check_options(
            configuration(**options)), words)

    def test_names_of_logical_volumes(self):
        self.conf.config(volume_name_template='cinder-%s')
        error = self.assertRaises(
            exception.BadConfiguration, checks.check_options,
            configuration())
        for part in ('volume_name_template = cinder-%s', '[DEFAULT]',
                     'volume-%s'):
            self.assertIn(part, error.msg)

    def enable(self, **drivers):
        """Enable additional backends, {section: driver}."""
        option = cfg.StrOpt('volume_driver')
        for section, driver in drivers.items():
            self.conf.register_opt(option, group=section)
            self.conf.config(group=section, volume_driver=driver)
        self.conf.config(enabled_backends=['here', *drivers])

    def check_alone(self):
        checks.check_alone(configuration(), Driver)

    @ddt.data({}, {'other': 'cinder.volume.drivers.lvm.LVMVolumeDriver'},
              {'other': 'nowhere.Driver'}, {'other': __name__ + '.ddt'})
    def test_no_other_backend_uses_this_driver(self, drivers):
        self.enable(**drivers)
        self.check_alone()

    def test_no_backend_is_enabled(self):
        """It is allowed: a command may open a backend that is not enabled."""
        self.conf.config(enabled_backends=None)
        self.check_alone()

    @ddt.data('Driver', 'Derived')
    def test_another_backend_uses_this_driver(self, name):
        self.enable(lvm='cinder.volume.drivers.lvm.LVMVolumeDriver',
                    other='%s.%s' % (__name__, name))
        self.assertRefused(self.check_alone, '[other]', '[DEFAULT]',
                           'enabled_backends = here, lvm, other')

    def test_another_backend_uses_the_driver_of_all(self):
        self.enable(other=None)
        self.conf.config(group='backend_defaults',
                         volume_driver=__name__ + '.Driver')
        self.assertRefused(self.check_alone, '[other]')

    def check_kernel(self):
        checks.check_kernel(configuration())

    @ddt.data('5.12.0', '5.12-rc1', '6.1.0-28-amd64', '10.0', 'unknown')
    def test_recent_kernel(self, release):
        self.release.return_value = release
        self.check_kernel()

    @ddt.data('5.11.22', '5.4.0-150-generic', '4.18.0-553.el8.x86_64')
    def test_old_kernel(self, release):
        self.release.return_value = release
        self.assertRefused(self.check_kernel, 'Linux ' + release,
                           'Linux 5.12')

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
                           'Linux 5.12')

    def test_no_dmsetup(self):
        self.patch('dmclone_driver.privsep.command.dmsetup',
                   side_effect=FileNotFoundError('no dmsetup'))
        self.assertRefused(self.check_kernel, 'no dmsetup')

    def test_group(self):
        checks.check_group(configuration(), lambda: None)

    @ddt.data((cinder_exception.VolumeBackendAPIException(data='no the-vg'),
               'no the-vg'), (StopIteration(), 'no such volume group'))
    @ddt.unpack
    def test_no_group(self, error, words):
        def check():
            raise error

        self.assertRefused(
            lambda: checks.check_group(configuration(), check),
            'volume_group = volumes', words)

    def test_group_that_only_cinder_sees(self):
        self.assertRefused(
            lambda: checks.check_group(
                configuration(volume_group='others'), lambda: None),
            'volume_group = others', '[dmclone_privileged]')
