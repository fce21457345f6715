# SPDX-License-Identifier: Apache-2.0
"""The checks at the start of a backend, and their error messages."""

import types

from cinder import exception as cinder_exception
import ddt
import fixtures
from oslo_concurrency import processutils
from oslo_config import cfg
from oslo_config import fixture as config_fixture

from dmclone_driver.checks import backends
from dmclone_driver.checks import host
from dmclone_driver.checks import start
from dmclone_driver import exception
from tests.unit import base


class Configuration(types.SimpleNamespace):

    def safe_get(self, name):
        return getattr(self, name, None)


def configuration(**options):
    return Configuration(**dict(
        target_helper='tgtadm', lvm_type='default', lvm_mirrors=0,
        dmclone_region_size=0, dmclone_prepare_timeout=40,
        volume_driver='the.driver',
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
        self.conf = self.useFixture(config_fixture.Config(cfg.CONF))
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
        start.check_options(configuration(**options), Driver)

    @ddt.data(({'target_helper': 'nvmet'}, 'target_helper = nvmet'),
              ({'lvm_mirrors': 1}, 'lvm_mirrors = 1'),
              ({'dmclone_region_size': 100}, 'dmclone_region_size = 100'),
              ({'dmclone_region_size': 2}, 'power of two from 4 to'))
    @ddt.unpack
    def test_bad_options(self, options, words):
        self.assertRefused(lambda: start.check_options(
            configuration(**options), Driver), words)

    @ddt.data(({'volume_name_template': 'cinder-%s'},
               'volume_name_template = cinder-%s', 'volume-%s'),
              ({'volume_name_template': '%s'},
               'volume_name_template = %s in', 'volume-%s'),
              ({'rpc_response_timeout': 19}, 'rpc_response_timeout = 19',
               'set rpc_response_timeout to 55'))
    @ddt.unpack
    def test_bad_options_of_the_service(self, options, *parts):
        self.conf.config(**options)
        error = self.assertRaises(
            exception.BadConfiguration, start.check_options,
            configuration(), Driver)
        for part in ('[DEFAULT]', *parts):
            self.assertIn(part, error.msg)

    @ddt.data(20, 54)
    def test_short_time_out(self, seconds):
        """Some moves succeed with it, so that the backend starts."""
        self.conf.config(rpc_response_timeout=seconds)
        start.check_options(configuration(), Driver)

    def test_another_driver_in_the_group(self):
        """Its backend starts; dmclone-check says so."""
        self.enable(other='cinder.volume.drivers.lvm.LVMVolumeDriver')
        self.conf.register_opt(cfg.StrOpt('volume_group'), group='other')
        self.conf.config(group='other', volume_group='volumes')
        self.check_alone()
        self.assertEqual('failed', backends.check_alone(
            configuration(), Driver).outcome)

    def enable(self, **drivers):
        """Enable additional backends, {section: driver}."""
        option = cfg.StrOpt('volume_driver')
        for section, driver in drivers.items():
            self.conf.register_opt(option, group=section)
            self.conf.config(group=section, volume_driver=driver)
        self.conf.config(enabled_backends=['here', *drivers])

    def check_alone(self):
        start.check_options(configuration(), Driver)

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
        start.check_kernel(configuration())

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
        self.assertEqual({'dm-clone', 'dm-zero', 'dm-snapshot'},
                         set(self.loaded))

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
        start.check_group(configuration(), lambda: None)

    @ddt.data((cinder_exception.VolumeBackendAPIException(data='no the-vg'),
               'no the-vg'), (StopIteration(), 'no such volume group'))
    @ddt.unpack
    def test_no_group(self, error, words):
        def check():
            raise error

        self.assertRefused(
            lambda: start.check_group(configuration(), check),
            'volume_group = volumes', words)

    LVM = ('devices {\n\tglobal_filter=["r|^/dev/mapper/dmclone-|",'
           '"r|:dmclone-|"]\n\tfilter=["a|.*|"]\n}\n')

    def log_faults(self, settings):
        """Return the log of a start with LVM's settings."""
        log = self.useFixture(fixtures.FakeLogger())
        root = self.useFixture(fixtures.TempDir()).path
        self.patch('dmclone_driver.checks.start.Host', new=type(
            'NodeOfTest', (host.Host,), {
                '__init__': lambda each: host.Host.__init__(each, root),
                'lvm_settings': lambda each, folder: settings()}))
        start.log_faults(configuration(
            lvm_conf_file='none', target_prefix='iqn.2010-10.org.x:'))
        return log.output

    def test_faults_of_other_programs_are_logged(self):
        said = self.log_faults(lambda: self.LVM.replace(
            '"r|^/dev/mapper/dmclone-|"', '"a|.*|"'))
        self.assertIn('Check of LVM filter: ', said)
        self.assertIn('lvmlocal.conf', said)
        # Without a udev daemon nothing is known of its rules.
        self.assertNotIn('udev', said)

    def test_no_fault_is_logged(self):
        self.assertEqual('', self.log_faults(lambda: self.LVM))

    def test_a_start_does_not_fail_for_a_check_that_cannot_be_done(self):
        def fail():
            raise processutils.ProcessExecutionError(stderr='no lvm')

        self.assertIn('no lvm', self.log_faults(fail))

    def test_group_that_only_cinder_sees(self):
        self.assertRefused(
            lambda: start.check_group(
                configuration(volume_group='others'), lambda: None),
            'volume_group = others', '[dmclone_privileged]')
