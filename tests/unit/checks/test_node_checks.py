# SPDX-License-Identifier: Apache-2.0
"""Checks of other programs on a node: open-iscsi, multipath, Nova, locks."""

import types

import ddt
import fixtures
from oslo_config import cfg
from oslo_config import fixture as config_fixture

from dmclone_driver.checks import coordination
from dmclone_driver.checks import host_names
from dmclone_driver.checks import initiator
from dmclone_driver.checks import kernel
from dmclone_driver.checks import lsm
from dmclone_driver.checks import multipath
from dmclone_driver.checks import privileges
from dmclone_driver.checks.result import Outcome
from tests.unit import base
from tests.unit.checks import node


class NodeTestCase(base.PlainTestCase):
    """A check of a node, which is healthy before faults are planted."""

    def setUp(self):
        super().setUp()
        self.node = node.Node(self.useFixture(fixtures.TempDir()).path)

    def assertFound(self, outcome, words, found):
        self.assertEqual(outcome, found.outcome, found.reason)
        self.assertIn(words, found.reason)


@ddt.ddt
class InitiatorTestCase(NodeTestCase):

    def chap(self, line='', helper='tgtadm'):
        self.node.write('/etc/iscsi/iscsid.conf', node.ISCSID + line)
        return initiator.check_chap(types.SimpleNamespace(
            config_group='here', target_helper=helper), self.node)

    @ddt.data('', 'MD5', 'sha1 , md5', 'SHA3-256,SHA1,MD5', 'MD5,SHA256')
    def test_tgt(self, value):
        self.assertFound(Outcome.OK, 'MD5', self.chap(
            value and 'node.session.auth.chap_algs = %s\n' % value))

    @ddt.data('SHA1', 'SHA256', 'SHA3-256,SHA256',
              # The line that open-iscsi's file has as a comment: tgt mistakes
              # SHA256 for its own SHA1.
              'SHA3-256,SHA256,SHA1,MD5')
    def test_what_only_lio_knows(self, value):
        line = '  node.session.auth.chap_algs=%s \n' % value
        self.assertFound(Outcome.FAILED, 'put MD5 first', self.chap(line))
        self.assertFound(Outcome.OK, value.partition(',')[0],
                         self.chap(line, 'lioadm'))

    def test_the_last_line_counts(self):
        line = 'node.session.auth.chap_algs = %s\n'
        self.assertFound(Outcome.FAILED, 'offers SHA256', self.chap(
            line % 'MD5' + line % 'SHA256'))

    def test_fips(self):
        self.node.write('/proc/sys/crypto/fips_enabled', '1\n')
        for helper, remedy in (('tgtadm', 'lioadm on all nodes'),
                               ('lioadm', 'put SHA1 or SHA256 or SHA3-256')):
            self.assertFound(Outcome.FAILED, remedy, self.chap('', helper))

    def test_no_configuration(self):
        self.chap()
        self.node.remove('/etc/iscsi/iscsid.conf')
        self.assertFound(
            Outcome.UNKNOWN, 'mount the file', initiator.check_chap(
                types.SimpleNamespace(config_group='here',
                                      target_helper='tgtadm'), self.node))

    def test_service(self):
        self.assertFound(Outcome.OK, 'iqn.1993-08.org.debian:01:1',
                         initiator.check_service(self.node))

    @ddt.data('', '#InitiatorName=iqn.x\n')
    def test_no_name(self, text):
        self.node.write('/etc/iscsi/initiatorname.iscsi', text)
        self.assertFound(Outcome.FAILED, 'iscsi-iname',
                         initiator.check_service(self.node))


@ddt.ddt
class MultipathTestCase(NodeTestCase):

    def check(self, **files):
        self.node.process(400, 'multipathd')
        for name, text in files.items():
            self.node.write('/etc/multipath/conf.d/%s.conf' % name, text)
        return multipath.check(self.node)

    def test_not_running(self):
        self.assertFound(Outcome.NOT_APPLICABLE, 'not run',
                         multipath.check(self.node))

    def test_file_of_the_driver(self):
        self.node.copy('multipath/conf.d/dmclone.conf',
                       '/etc/multipath/conf.d/dmclone.conf')
        self.assertFound(Outcome.OK, 'dmclone.conf', self.check())

    def test_in_another_file(self):
        self.node.write('/etc/multipath.conf', 'defaults {\n}\nblacklist {\n'
                        '    property "DMCLONE"\n}\n')
        self.assertFound(Outcome.OK, '/etc/multipath.conf', self.check())

    @ddt.data('', 'defaults {\n}\n',
              '# blacklist { property "^DMCLONE_SOURCE$" }\n',
              'blacklist {\n  property "^SCSI_IDENT_.*"\n}\n',
              'blacklist_exceptions {\n  property "^DMCLONE_SOURCE$"\n}\n')
    def test_not_excluded(self, text):
        self.assertFound(Outcome.FAILED, 'multipathd reconfigure',
                         self.check(other=text))


@ddt.ddt
class LsmTestCase(NodeTestCase):

    def setUp(self):
        super().setUp()
        self.node.write('/sys/module/apparmor/parameters/enabled', 'Y\n')

    def test_no_denial(self):
        self.node.write('/dev/kmsg', node.DENIAL.replace(
            '/dev/dm-4', '/run/shm/lttng-ust-wait-5'))
        self.assertFound(Outcome.OK, 'AppArmor', lsm.check(self.node))

    def test_denial(self):
        self.node.write('/dev/kmsg', node.DENIAL)
        self.assertFound(Outcome.FAILED, 'libvirt-1c01664c',
                         lsm.check(self.node))

    def test_denial_in_the_log_of_auditd(self):
        self.node.process(400, 'auditd')
        self.node.remove('/sys/module/apparmor/parameters/enabled')
        self.node.write('/sys/fs/selinux/enforce', '1')
        self.node.write(
            '/var/log/audit/audit.log', 'type=AVC msg=audit(1438180376.667:1):'
            ' avc:  denied  { read } for  pid=9 comm="tgtd" name="dmclone-1" '
            'scontext=system_u:system_r:tgtd_t:s0 tclass=blk_file\n')
        self.assertFound(Outcome.FAILED, 'SELinux has denied',
                         lsm.check(self.node))

    @ddt.data(('N\n', None), ('N\n', '0'), (None, '0'), (None, None))
    @ddt.unpack
    def test_not_active(self, apparmor, selinux):
        self.node.remove('/sys/module/apparmor/parameters/enabled')
        for path, text in (
                ('/sys/module/apparmor/parameters/enabled', apparmor),
                ('/sys/fs/selinux/enforce', selinux)):
            if text:
                self.node.write(path, text)
        self.assertFound(Outcome.NOT_APPLICABLE, '', lsm.check(self.node))

    def test_log_that_may_not_be_read(self):
        self.node.remove('/dev/kmsg')
        self.assertFound(Outcome.UNKNOWN, 'as root', lsm.check(self.node))


@ddt.ddt
class HostNamesTestCase(NodeTestCase):

    def nova(self, text, name='node1'):
        self.node.write('/etc/nova/nova.conf', '[DEFAULT]\n' + text)
        return host_names.check_nova(name, self.node)

    def test_same_name(self):
        self.assertFound(Outcome.OK, 'node1', self.nova('host = node1\n'))

    def test_default_name(self):
        self.assertFound(Outcome.OK, 'name-of-the-system', self.nova(
            'debug = true\n', 'name-of-the-system'))

    def test_name_in_a_second_file(self):
        self.node.write('/etc/nova/nova-compute.conf',
                        '[DEFAULT]\nhost = node2\n')
        self.assertFound(Outcome.OK, 'node2', self.nova('host = node1\n',
                                                        'node2'))

    @ddt.data('my_ip = 192.0.2.11\n',
              'my_ip = 192.0.2.99\nmy_block_storage_ip = 192.0.2.11\n')
    def test_found_by_its_address(self, text):
        self.assertFound(Outcome.OK, 'by its address 192.0.2.11',
                         self.nova('host = node1.example.com\n' + text))

    @ddt.data('my_ip = 192.0.2.12\n',
              'my_ip = 192.0.2.11\nmy_block_storage_ip = 192.0.2.99\n')
    def test_not_found(self, text):
        self.assertFound(Outcome.FAILED, 'no volume moves to it',
                         self.nova('host = node1.example.com\n' + text))

    def test_no_nova(self):
        self.node.remove('/etc/nova/nova.conf')
        self.assertFound(Outcome.NOT_APPLICABLE, '',
                         host_names.check_nova('node1', self.node))

    def test_file_that_cannot_be_parsed(self):
        self.assertFound(Outcome.UNKNOWN, 'nova.conf',
                         self.nova('one\n  two = [\n'))

    def test_names(self):
        self.assertFound(Outcome.OK, 'node1, node2 resolve',
                         host_names.check_names(['node1', 'node2'],
                                                self.node))
        self.assertFound(Outcome.FAILED, 'cannot resolve node3',
                         host_names.check_names(['node1', 'node3'],
                                                self.node))


@ddt.ddt
class CoordinationTestCase(NodeTestCase):

    def check(self, url):
        self.useFixture(config_fixture.Config(cfg.CONF)).config(
            backend_url=url, group='coordination')
        return coordination.check(self.node)

    def test_folder(self):
        self.node.path('/var/lib').mkdir(parents=True)
        self.assertFound(Outcome.OK, '/var/lib/cinder',
                         self.check('file:///var/lib/cinder'))

    def test_folder_that_is_a_file(self):
        self.node.write('/var/lib/cinder', '')
        self.assertFound(Outcome.FAILED, 'cannot write in /var/lib/cinder',
                         self.check('file:///var/lib/cinder'))

    @ddt.data('etcd3+http://192.0.2.12:3260', 'etcd3+http://user:x@node3:1',
              'redis://:secret@192.0.2.12:3260?db=1',
              'zookeeper://192.0.2.99:1,192.0.2.12:3260')
    def test_service(self, url):
        self.node.reachable.update({('192.0.2.12', '3260'), ('node3', '1')})
        found = self.check(url)
        self.assertFound(Outcome.OK, url.partition(':')[0], found)
        self.assertNotIn('secret', found.text)

    def test_default_port(self):
        self.node.reachable = {('192.0.2.12', 6379)}
        self.assertFound(Outcome.OK, '', self.check('redis://192.0.2.12'))

    def test_no_answer(self):
        found = self.check('redis://:secret@192.0.2.12')
        self.assertFound(Outcome.FAILED, 'refused', found)
        self.assertNotIn('secret', found.reason)

    def test_unknown_port(self):
        self.assertFound(Outcome.UNKNOWN, 'backend_url',
                         self.check('other://192.0.2.12'))


@ddt.ddt
class KernelModulesTestCase(NodeTestCase):

    def check(self, **options):
        made = types.SimpleNamespace(config_group='here')
        made.safe_get = options.get
        return kernel.check_modules(made, self.node)

    def test_loaded(self):
        self.node.modules.clear()
        self.node.write('/sys/module/iscsi_tcp/refcnt', '0')
        self.assertFound(Outcome.OK, 'iscsi_tcp', self.check())

    @ddt.data(({'target_helper': 'lioadm'}, 'iscsi_target_mod'),
              ({'dmclone_metadata_backend': 'zram'}, 'zram'))
    @ddt.unpack
    def test_options_need_more(self, options, module):
        self.assertFound(Outcome.FAILED, module, self.check(**options))

    def test_minimum_rate(self):
        self.node.modules.discard('dm_delay')
        found = self.check(dmclone_hydration_min_rate=16)
        self.assertFound(Outcome.FAILED, 'dm_delay', found)
        # Copies are slower then, but all works.
        self.assertFalse(found.refused)
        self.assertFound(Outcome.OK, 'iscsi_tcp',
                         self.check(dmclone_hydration_min_rate=0))


class PrivilegesTestCase(NodeTestCase):

    def test_root(self):
        self.assertFound(Outcome.OK, 'cinder-rootwrap',
                         privileges.check(self.node))

    def test_another_user(self):
        self.node.user = 1000
        self.assertFound(Outcome.FAILED, 'runs as user 1000',
                         privileges.check(self.node))

    def test_rootwrap(self):
        self.node.error = Exception('privsep helper command exited')
        self.assertFound(Outcome.FAILED, 'dmclone.filters',
                         privileges.check(self.node))

    def test_helper(self):
        self.useFixture(config_fixture.Config(cfg.CONF)).config(
            helper_command='nohelper x', group='dmclone_privileged')
        self.node.error = FileNotFoundError('nohelper')
        found = privileges.check(self.node)
        self.assertFound(Outcome.FAILED, 'nohelper x ...', found)
        self.assertIn('helper_command', found.remedy)
