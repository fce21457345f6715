# SPDX-License-Identifier: Apache-2.0
"""The udev rule: where it is, what is in it, and its effect."""

import ddt
import fixtures

from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks import udev
from tests.unit import base
from tests.unit.checks import node

ID = '1c01664c--8f99--4942--85c9--2c0c90b2e92b'
RULE = '/etc/udev/rules.d/11-dm-dmclone.rules'
PACKAGED = '/usr/lib/udev/rules.d/11-dm-dmclone.rules'


@ddt.ddt
class UdevTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.node = node.Node(self.useFixture(fixtures.TempDir()).path)

    def assertCheck(self, outcome, words=''):
        found = udev.check(self.node)
        self.assertEqual(outcome, found.outcome)
        self.assertIn(words, found.reason)

    def test_rule(self):
        self.assertCheck(Outcome.OK, RULE)

    def test_rule_of_a_package(self):
        self.node.remove(RULE)
        self.node.copy('udev/rules.d/11-dm-dmclone.rules', PACKAGED)
        self.assertCheck(Outcome.OK, PACKAGED)

    def test_no_rule(self):
        self.node.remove(RULE)
        self.assertCheck(Outcome.FAILED, 'udevadm control --reload')

    @ddt.data('', '# nothing\n',
              'ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"\n')
    def test_rule_that_is_masked(self, text):
        self.node.copy('udev/rules.d/11-dm-dmclone.rules', PACKAGED)
        self.node.write(RULE, text)
        self.assertCheck(Outcome.FAILED, RULE + ' is empty')

    def test_in_a_container(self):
        self.node.remove(RULE)
        self.node.end(200)
        self.assertCheck(Outcome.UNKNOWN, 'on the host itself')

    def test_rule_of_an_earlier_version(self):
        """It knew the handles, and no logical volumes."""
        text = ''.join(line + '\n' for line in self.rule()
                       if 'dm/uuid}!="LVM-' not in line)
        self.node.write(RULE, text)
        self.assertCheck(Outcome.FAILED, 'of another version')

    def rule(self):
        return self.node.read(RULE).splitlines()

    @ddt.data(('dmclone-1', 'DMCLONE-handle-1'),
              ('cinder--volumes-volume--' + ID, 'LVM-abc'),
              ('a-_snapshot--' + ID, 'LVM-abc'),
              # Of Cinder's LVM driver.
              ('a-clone--snap--' + ID, 'LVM-abc'),
              # Below a volume with a snapshot of LVM, and a snapshot's blocks.
              ('a-volume--%s-real' % ID, 'LVM-abc-real'),
              ('a-_snapshot--%s-cow' % ID, 'LVM-abc-cow'))
    @ddt.unpack
    def test_device_that_appeared_before_the_rule(self, name, uuid):
        self.node.device(7, name, uuid, flag=0)
        self.assertCheck(Outcome.FAILED, 'to 1 of the devices, such as %s; '
                         'run udevadm trigger' % name)

    @ddt.data('a-volume--1', 'volume--' + ID, 'a-b' + ID, 'a-' + ID,
              'a-dmclone--metadata--' + ID, 'cinder--volumes-pool-tpool',
              'cinder--volumes-cinder--volumes--pool_tdata')
    def test_other_logical_volumes(self, name):
        self.node.device(7, name, 'LVM-abc', flag=0)
        self.assertCheck(Outcome.OK)

    def test_name_of_a_volume_that_is_none_of_lvm(self):
        """For example a guest's encrypted one: it has another UUID."""
        self.node.device(7, node.VOLUME, 'CRYPT-LUKS2-1', flag=0)
        self.assertCheck(Outcome.OK)

    def test_flag_that_newer_rules_of_lvm_replace(self):
        self.node.write('/run/udev/data/b253:9', node.FLAGS.replace(
            'OTHER_RULES_FLAG=1', 'OTHER_RULES_FLAG='))
        self.assertCheck(Outcome.FAILED, node.VOLUME)

    def test_many_devices(self):
        for minor in range(10, 20):
            self.node.device(minor, 'a-volume--%s_%d' % (ID, minor),
                             'LVM-abc', flag=0)
        self.assertCheck(Outcome.FAILED, 'to 10 of the devices, such as '
                         'a-volume--{0}_10, a-volume--{0}_11, '
                         'a-volume--{0}_12;'.format(ID))

    def test_device_that_udev_does_not_know_yet(self):
        self.node.device(7, 'dmclone-1', 'DMCLONE-handle-1', flag=0)
        self.node.remove('/run/udev/data/b253:7')
        self.assertCheck(Outcome.OK)
