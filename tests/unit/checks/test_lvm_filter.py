# SPDX-License-Identifier: Apache-2.0
"""LVM's filters, with the output of lvmconfig, and its devices file."""

import types

import ddt
import fixtures

from dmclone_driver.checks import lvm_filter
from dmclone_driver.checks.result import Outcome
from tests.unit import base
from tests.unit.checks import node

GLOBAL = ('global_filter=["r|^/dev/mapper/dmclone-|",'
          '"r|^/dev/disk/by-path/.*-iscsi-.*:dmclone-|"]')
DEVICES = ('VERSION=1.1.7\nIDTYPE=devname IDNAME=/dev/%(name)s '
           'DEVNAME=/dev/%(name)s PVID=abc\n')


@ddt.ddt
class LvmFilterTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.node = node.Node(self.useFixture(fixtures.TempDir()).path)

    def check(self):
        return list(lvm_filter.check(types.SimpleNamespace(
            config_group='here', lvm_conf_file='/etc/cinder/lvm.conf',
            target_prefix='iqn.2010-10.org.openstack:'), self.node))

    def outcome(self, **arrays):
        """Return the result with other filters of LVM."""
        text = node.LVM
        for name, value in arrays.items():
            text = text.replace(
                GLOBAL if name == 'global_filter' else 'filter=["a|.*|"]',
                '%s=%s' % (name, value))
        self.node.lvm = {None: text}
        found, = self.check()
        return found

    @ddt.data('["r|^/dev/mapper/dmclone-|","r|:dmclone-|"]',
              '["a|^/dev/nvme|","r|.*|"]',
              '["r/dmclone-/","a|^/dev/vda$|"]',
              '["a|^/dev/sda[0-9]*$|","r|.*|"]')
    def test_right_filter(self, text):
        self.assertEqual(Outcome.OK, self.outcome(global_filter=text).outcome)

    def test_filter_for_commands_alone(self):
        """A device has to pass both."""
        self.node.lvm = {None: node.LVM.replace(GLOBAL, 'x=1').replace(
            'filter=["a|.*|"]', GLOBAL.partition('_')[2])}
        self.assertEqual([Outcome.OK],
                         [each.outcome for each in self.check()])

    @ddt.data(('["a|.*|"]', 'handles', 'disks'),
              ('["r|^/dev/mapper/dmclone-|"]', 'disks'),
              ('["r|:dmclone-|"]', 'handles'),
              # Another name of the same device is accepted.
              ('["r|^/dev/mapper/dmclone-|","r|:dmclone-|","a|.*|"]',
               'handles', 'disks'),
              ('["a|^/dev/sd|","r|.*|"]', 'disks'),
              ('["a|^/dev/dm-|","r|.*|"]', 'handles'),
              ('[]', 'handles', 'disks'))
    @ddt.unpack
    def test_wrong_filter(self, text, *seen):
        found = self.outcome(global_filter=text)
        self.assertEqual(Outcome.FAILED, found.outcome)
        self.assertEqual(seen, tuple(
            word for word in ('handles', 'disks') if word in found.text))

    def test_one_pattern_that_is_no_array(self):
        self.assertEqual(Outcome.OK, self.outcome(
            global_filter='"r|.*|"').outcome)

    def test_cinder_has_a_folder_of_its_own(self):
        self.node.write('/etc/cinder/lvm.conf', '')
        self.node.lvm = {None: node.LVM, '/etc/cinder': node.LVM_DEFAULT}
        wrong, right = self.check()
        self.assertEqual((Outcome.FAILED, 'here', Outcome.OK, ''),
                         (wrong.outcome, wrong.subject, right.outcome,
                          right.subject))
        for words in 'Cinder and this driver', '/etc/cinder/lvmlocal.conf':
            self.assertIn(words, wrong.reason)
        self.assertIn('other than Cinder', right.text)

    def use_devices_file(self, text):
        """Filters do not count then: see _accept_p in LVM."""
        self.node.lvm = {None: node.LVM_DEFAULT.replace(
            'use_devicesfile=0', 'use_devicesfile=1')}
        if text is not None:
            self.node.write('/etc/lvm/devices/system.devices', text)
        found, = self.check()
        return found.outcome

    @ddt.data(
        (Outcome.OK, DEVICES % {'name': 'nvme0n1p2'}),
        (Outcome.FAILED, DEVICES % {'name': 'mapper/dmclone-1'}),
        # LVM uses all devices if there is no such file.
        (Outcome.FAILED, None))
    @ddt.unpack
    def test_devices_file(self, outcome, text):
        self.assertEqual(outcome, self.use_devices_file(text))
