# SPDX-License-Identifier: Apache-2.0
"""The udev rule: where it is, what is in it, and its effect."""

import ddt
import fixtures

from dmclone_driver.checks.result import Outcome
from dmclone_driver.checks import udev
from tests.unit import base
from tests.unit.checks import node

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

    def test_device_that_appeared_before_the_rule(self):
        self.node.device(7, 'dmclone-1', 'DMCLONE-handle-1', flag=0)
        self.assertCheck(Outcome.FAILED, 'to dmclone-1; run udevadm trigger')

    def test_device_that_udev_does_not_know_yet(self):
        self.node.device(7, 'dmclone-1', 'DMCLONE-handle-1', flag=0)
        self.node.remove('/run/udev/data/b253:7')
        self.assertCheck(Outcome.OK)
