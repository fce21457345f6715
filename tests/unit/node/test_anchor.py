# SPDX-License-Identifier: Apache-2.0
"""The tails of clones, and the devices below them."""

from unittest import mock

from oslo_concurrency import processutils

from dmclone_driver.node import anchor
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import names as names_module
from dmclone_driver.node.names import ANCHOR
from dmclone_driver.node.names import ZEROS
from tests.unit import base


class AnchorTestCase(base.MachineTestCase):

    def test_once(self):
        """All clones of a node have one."""
        for _ in range(2):
            self.assertEqual([table.Linear(8, '/dev/mapper/dmclone-anchor')],
                             anchor.tail())
        self.assertEqual({ANCHOR, ZEROS}, set(self.kernel.devices))
        self.assertEqual(2, sum('dmsetup create' in step
                                for step in self.steps.log))
        self.assertEqual(
            ['/dev/mapper/dmclone-zeros', '0', '500',
             '/dev/mapper/dmclone-zeros', '0', '0'],
            self.kernel.devices[ANCHOR].table[0].words)

    def test_killed_in_between(self):
        anchor.tail()
        del self.kernel.devices[ANCHOR]
        self.assertEqual(1, len(anchor.tail()))

    def test_dmsetup_was_killed(self):
        """A device without a table is replaced."""
        anchor.tail()
        self.kernel.devices[ANCHOR].table = []
        self.assertEqual(1, len(anchor.tail()))
        self.assertEqual('delay', self.kernel.devices[ANCHOR].kinds)

    def test_another_backend_is_faster(self):
        create = anchor._create

        def fail():
            create()
            raise processutils.ProcessExecutionError(stderr='exists')

        with mock.patch('dmclone_driver.node.anchor._create', fail):
            self.assertEqual(1, len(anchor.tail()))

    def test_zeros_without_discards(self):
        """As of Linux 6.1: a clone with such a tail would take none."""
        self.kernel.zero_discards = False
        anchor.tail()
        self.assertEqual(
            '/dev/loop0', self.kernel.devices[ANCHOR].table[0].words[0])
        self.assertTrue(self.kernel.devices[ANCHOR].discards)

    def test_without_a_file(self):
        """Clones have a tail, and take no discards."""
        self.kernel.zero_discards = False
        with mock.patch('dmclone_driver.privsep.ram_disks.loop',
                        side_effect=OSError('no loop')):
            self.assertEqual(1, len(anchor.tail()))
        self.assertFalse(self.kernel.devices[ANCHOR].discards)

    def test_kernel_without_the_target(self):
        """Clones are built without a tail."""
        # The looks, the first device, and the second one.
        for number in range(4):
            self.kernel.devices.clear()
            self.steps.start(number)
            with mock.patch('dmclone_driver.node.anchor.LOG.warning') as log:
                self.assertEqual([], anchor.tail())
            self.assertIn('injected', str(log.call_args))

    def test_belongs_to_no_volume(self):
        for name in (ANCHOR, ZEROS):
            self.assertIsNone(names_module.parse(name))
