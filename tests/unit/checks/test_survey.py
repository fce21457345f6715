# SPDX-License-Identifier: Apache-2.0
"""All checks on a whole node: each fault turns its own line red."""

import pathlib
import re

from cinder.volume import configuration as cinder_configuration
from cinder.volume import manager
import ddt
import fixtures
from oslo_config import cfg

from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks import survey
from dmclone_driver import driver
from dmclone_driver.move import rpcapi
from dmclone_driver.node import logical_volumes
from tests.unit import base
from tests.unit.checks import node
from tests.unit.fakes import cloud

OTHER = 'cinder.volume.drivers.lvm.LVMVolumeDriver'
OURS = 'dmclone_driver.driver.DMCloneVolumeDriver'
PAGE = pathlib.Path(__file__).parents[3] / 'doc/source/admin/check.rst'

#: {the line that has to turn red: what makes it do so, and words in it}
FAULTS = {
    'root': (lambda test: setattr(test.node, 'error', OSError('no sudo')),
             'no sudo'),
    'kernel': (lambda test: setattr(test.node, 'system', '5.10.0-28-amd64'),
               'Linux 5.10.0-28-amd64'),
    'device-mapper targets': (
        lambda test: test.node.loaded.discard('clone'), 'no dm-clone'),
    'udev rule': (
        lambda test: test.node.remove('/etc/udev/rules.d/11-dm-dmclone.rules'),
        'has no 11-dm-dmclone.rules'),
    'iscsid': (lambda test: test.node.write('/proc/net/unix', ''),
               'does not run'),
    'multipath': (lambda test: test.node.process(400, 'multipathd'),
                  'dmclone.conf'),
    'AppArmor, SELinux': (lambda test: test.deny(), 'AppArmor has denied'),
    'locks': (lambda test: test.set('coordination',
                                    backend_url='etcd3+http://192.0.2.1'),
              'Connection refused'),
    'volume_name_template': (
        lambda test: test.set(volume_name_template='%s'), 'default names'),
    'cluster': (lambda test: test.set(cluster='all'), 'one home'),
    "Nova's host": (
        lambda test: test.node.write('/etc/nova/nova.conf',
                                     '[DEFAULT]\nhost = other\n'
                                     'my_ip = 192.0.2.99\n'),
        'Nova calls this node other'),
    'target_helper': (lambda test: test.set(cloud.BACKEND,
                                            target_helper='nvmet'),
                      'tgtadm and lioadm'),
    'lvm_mirrors': (lambda test: test.set(cloud.BACKEND, lvm_mirrors=1),
                    'mirrors'),
    'dmclone_region_size': (
        lambda test: test.set(cloud.BACKEND, dmclone_region_size=100),
        'power of two'),
    'time-outs': (lambda test: test.set(rpc_response_timeout=30),
                  'leaves 15 seconds'),
    'other backends': (lambda test: test.enable(OTHER),
                       '[other] uses volume group volumes, too'),
    'kernel modules': (lambda test: test.node.modules.discard('iscsi_tcp'),
                       'no iscsi_tcp'),
    'LVM filter': (
        lambda test: test.node.lvm.update({None: node.LVM_DEFAULT}),
        'lvmlocal.conf'),
    'volume group': (lambda test: test.a.lvm.groups.pop('volumes'),
                     'no such volume group'),
    'free space': (
        lambda test: test.a.lvm.add('volumes', 'full', 99 * cloud.GIB - 1),
        'GiB are free'),
    'thin pool': (lambda test: test.make_pool(zero=''),
                  'lvchange --zero y volumes/volumes-pool'),
    'thin_dump': (lambda test: (test.make_pool(),
                                setattr(test.node, 'dump', None)),
                  'install thin-provisioning-tools'),
    'metadata': (
        lambda test: test.set(cloud.BACKEND,
                              dmclone_metadata_volume_group='nowhere'),
        'no volume group nowhere'),
    'target address': (
        lambda test: test.set(cloud.BACKEND, target_ip_address='192.0.2.99'),
        'not on this node'),
    'target port': (lambda test: test.take_port('python3'),
                    'process 300 (python3) listens'),
    'CHAP algorithms': (
        lambda test: test.node.write(
            '/etc/iscsi/iscsid.conf', node.ISCSID +
            'node.session.auth.chap_algs = SHA3-256,SHA256\n'),
        'no login to the target of tgtadm succeeds'),
    'host names': (lambda test: test.node.known.pop('node1'),
                   'cannot resolve node1'),
    'peer': (lambda test: setattr(test.b, 'server', None),
             'node2@dmclone did not answer'),
    'clock': (lambda test: setattr(test.node, 'offset', -600),
              'NTP'),
    'network': (lambda test: test.node.reachable.clear(),
                '192.0.2.12 port 3260'),
}


@ddt.ddt
class SurveyTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.node = node.Node(self.useFixture(fixtures.TempDir()).path)
        self.set(enabled_backends=[cloud.BACKEND])
        self.set(cloud.BACKEND, volume_driver=OURS,
                 target_ip_address='192.0.2.11', target_helper='tgtadm',
                 lvm_conf_file='/etc/cinder/lvm.conf')
        self.set('coordination', backend_url='file:///')
        self.patch('dmclone_driver.checks.survey.node_of',
                   new=lambda configuration: 'node1')
        self.there = self.b.driver.configuration
        self.patch('dmclone_driver.move.destination.Destination.identify',
                   new=lambda part: {
                       'time': self.node.now() - self.node.offset,
                       'target_helper': 'tgtadm', 'target_port': 3260,
                       'target_ip_address': '192.0.2.12'})

    def set(self, group=None, **options):
        """Set options until the end of the test."""
        if 'cluster' in options:
            cfg.CONF.register_opt(survey.CLUSTER)
        for name, value in options.items():
            cfg.CONF.set_override(name, value, group=group)
            self.addCleanup(cfg.CONF.clear_override, name, group=group)

    def make_pool(self, **state):
        """Make a pool; with "auto" volumes are thin then."""
        self.a.lvm.add_pool('volumes', 50 * cloud.GIB)
        self.a.lvm.volumes['/dev/volumes/volumes-pool'].update(state)

    def deny(self):
        self.node.write('/sys/module/apparmor/parameters/enabled', 'Y\n')
        self.node.write('/dev/kmsg', node.DENIAL)

    def enable(self, other):
        """Enable another backend in the same volume group."""
        self.set(enabled_backends=[cloud.BACKEND, 'other'])
        for name, value in (('volume_driver', other),
                            ('volume_group', 'volumes')):
            option = cfg.StrOpt(name)
            cfg.CONF.register_opt(option, group='other')
            self.set('other', **{name: value})

    def take_port(self, name):
        self.node.end(300)
        self.node.process(300, name, 4711)

    def survey(self):
        """Return the results on the first node."""
        options = (manager.volume_backend_opts +
                   driver.DMCloneVolumeDriver.get_driver_options())
        with self.cloud.on(self.a):
            return list(survey.Survey(
                self.context, self.node, driver.DMCloneVolumeDriver,
                driver.DMCloneVolumeDriver.VERSION, rpcapi.PeerClient).run([
                    cinder_configuration.Configuration(
                        options, config_group=cloud.BACKEND)]))

    @staticmethod
    def checks(results, *outcomes):
        return [each.check for each in results if each.outcome in outcomes]

    def test_healthy_node(self):
        results = self.survey()
        self.assertEqual([], [
            each for each in results if each.outcome in (
                Outcome.FAILED, Outcome.UNKNOWN)])
        self.assertEqual(['multipath', 'AppArmor, SELinux', 'thin pool',
                          'thin_dump'],
                         self.checks(results, Outcome.NOT_APPLICABLE))

    def test_each_line_has_a_fault(self):
        """The table below has one for each, but for a backend's name."""
        self.assertEqual(set(FAULTS) | {'volume_driver'},
                         {each.check for each in self.survey()})

    def test_each_line_is_on_the_page(self):
        headings = ', '.join(re.findall(
            r'^(\S.*)\n  \S', PAGE.read_text().partition(
                '\nThe checks\n')[2], re.MULTILINE)).replace('`', '')
        for check in {each.check for each in self.survey()}:
            self.assertIn(check, headings)

    @ddt.data(*FAULTS)
    def test_fault(self, check):
        plant, words = FAULTS[check]
        plant(self)
        found = [each for each in self.survey()
                 if each.outcome == Outcome.FAILED]
        self.assertEqual([check], [each.check for each in found])
        self.assertIn(words, found[0].reason)
        self.assertTrue(bool(found[0].remedy) or found[0].refused, found)

    def result(self, check):
        found, = (each for each in self.survey() if each.check == check)
        return found

    def test_thin_pool(self):
        self.make_pool(metadata='12.5')
        found = self.result('thin pool')
        self.assertEqual(
            (Outcome.OK, 'volumes/volumes-pool, whose metadata is 12 % full'),
            (found.outcome, found.reason))

    def test_thin_dump(self):
        self.make_pool()
        found = self.result('thin_dump')
        self.assertEqual((Outcome.OK, 'thin_dump 1.0.6'),
                         (found.outcome, found.reason))

    @ddt.data('thin', 'default')
    def test_no_thin_dump(self, kind):
        """Volumes in a pool are thin, even if new ones are thick."""
        if kind == 'default':
            self.make_pool()
        self.set(cloud.BACKEND, lvm_type=kind)
        self.node.dump = None
        found = self.result('thin_dump')
        self.assertEqual((Outcome.FAILED, False),
                         (found.outcome, found.refused))
        self.assertIn('No such file', found.text)
        self.assertIn('allocate whole thin volumes', found.text)

    def test_thin_pool_that_does_not_exist_yet(self):
        self.set(cloud.BACKEND, lvm_type='thin')
        self.assertEqual(Outcome.OK, self.result('thin pool').outcome)
        self.assertIn('creates', self.result('thin pool').reason)
        self.assertNotIn('/dev/volumes/volumes-pool', self.a.lvm.volumes)

    @ddt.data(('thin', Outcome.FAILED), ('auto', Outcome.FAILED),
              ('default', Outcome.NOT_APPLICABLE))
    @ddt.unpack
    def test_kernel_without_thin_pools(self, kind, outcome):
        """An empty group gets one with Cinder's default, auto."""
        self.patch('cinder.volume.volume_utils.supports_thin_provisioning',
                   return_value=True)
        self.set(cloud.BACKEND, lvm_type=kind)
        self.a.lvm.volumes.clear()
        self.node.modules.discard('dm_thin_pool')
        found = self.result('thin pool')
        self.assertEqual(outcome, found.outcome)
        self.assertEqual(outcome == Outcome.FAILED,
                         'no dm_thin_pool' in found.reason)

    @ddt.data(('ro', 'in mode ro'), ('Fail', 'in mode Fail'),
              ('out_of_data_space', 'volumes/volumes-pool is full'))
    @ddt.unpack
    def test_thin_pool_that_cannot_be_written(self, mode, words):
        self.make_pool(mode=mode)
        found = self.result('thin pool')
        self.assertEqual(Outcome.FAILED, found.outcome)
        self.assertIn(words, found.reason)

    def test_thin_pool_that_is_not_active(self):
        self.make_pool(active=False)
        found = self.result('thin pool')
        self.assertEqual(Outcome.FAILED, found.outcome)
        self.assertIn('lvchange -ay volumes/volumes-pool', found.remedy)

    def test_thin_pool_without_volumes(self):
        """LVM gives it another device until there has been one."""
        self.make_pool(unused=True)
        self.assertEqual(Outcome.OK, self.result('thin pool').outcome)

    def test_thin_pool_of_old_volumes(self):
        """Volumes in a pool are thin, even if new ones are thick."""
        self.make_pool(mode='ro')
        self.set(cloud.BACKEND, lvm_type='default')
        self.assertEqual(Outcome.FAILED, self.result('thin pool').outcome)

    def test_metadata_of_thin_pool_is_full(self):
        self.make_pool(metadata='80.0')
        self.assertIn('--poolmetadatasize', self.result('thin pool').remedy)

    @ddt.data((None, Outcome.FAILED), ('elsewhere', Outcome.OK))
    @ddt.unpack
    def test_no_room_outside_of_the_thin_pool(self, group, outcome):
        self.make_pool()
        self.set(cloud.BACKEND, dmclone_metadata_volume_group=group)
        self.a.lvm.add('volumes', 'full', 49 * cloud.GIB)
        self.assertEqual(outcome, self.result('thin pool').outcome)

    def test_thin_pool_is_full(self):
        """What a clone in it will allocate is not free."""
        self.make_pool()
        self.a.lvm.add('volumes', 'clone', 50 * cloud.GIB,
                       pool='/dev/volumes/volumes-pool')
        self.assertEqual(Outcome.OK, self.result('free space').outcome)
        self.a.lvm.volumes['/dev/volumes/clone']['tags'].add(
            logical_volumes.METADATA_TAG + 'volumes/x')
        found = self.result('free space')
        self.assertEqual(Outcome.FAILED, found.outcome)
        self.assertIn('extend thin pool volumes/volumes-pool', found.remedy)
        # What copies leave to guests, without reserved_percentage.
        self.assertIn('1.00 GiB are reserved', found.reason)

    def test_two_backends_of_the_driver(self):
        self.enable(OURS)
        found, = (each for each in self.survey()
                  if each.outcome == Outcome.FAILED)
        self.assertIn('[dmclone] and [other] both use this driver',
                      found.reason)
        self.assertTrue(found.refused)

    def test_a_backend_that_is_not_enabled(self):
        self.set(enabled_backends=[])
        self.assertEqual(['volume_driver'],
                         self.checks(self.survey(), Outcome.FAILED))

    def test_without_root(self):
        self.node.error = OSError('no sudo')
        self.assertEqual(
            ['device-mapper targets', 'kernel modules', 'LVM filter',
             'volume group'], self.checks(self.survey(), Outcome.UNKNOWN))

    def test_without_database(self):
        self.patch('dmclone_driver.move.peers.Peers.all',
                   side_effect=OSError('no database'))
        found, = (each for each in self.survey()
                  if each.outcome == Outcome.UNKNOWN)
        self.assertEqual(('peer', '[database]'), (
            found.check, found.remedy.split()[1]))

    def test_a_single_node(self):
        self.b.service.destroy()
        self.assertIn('peer', self.checks(self.survey(),
                                          Outcome.NOT_APPLICABLE))

    def test_a_file_that_may_not_be_read(self):
        """Root may read all, also in tests."""
        read = self.node.read

        def refuse(path):
            if path == '/etc/iscsi/iscsid.conf':
                raise PermissionError(13, 'Permission denied', path)
            return read(path)

        self.node.read = refuse
        found, = (each for each in self.survey()
                  if each.outcome == Outcome.UNKNOWN)
        self.assertEqual(('CHAP algorithms', 'run this command as root'),
                         (found.check, found.remedy))

    def test_nothing_is_changed(self):
        before = sorted(self.node.path('/').rglob('*'))
        self.cloud.steps.start()
        self.survey()
        self.assertEqual(before, sorted(self.node.path('/').rglob('*')))
        self.assertEqual([], [
            step for step in self.cloud.steps.log
            if not base.READS.search(step) and 'identify' not in step])
