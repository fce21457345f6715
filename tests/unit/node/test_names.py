# SPDX-License-Identifier: Apache-2.0
"""Names of devices, and parsing them."""

import uuid

import ddt

from dmclone_driver.node import names
from tests.unit import base

ID = '0e7f4a7c-9a55-4c26-93a4-6b3a7ad8a1b3'


@ddt.ddt
class NamesTestCase(base.PlainTestCase):

    @ddt.data((names.HANDLE, 'dmclone-' + ID),
              (names.GATE, 'dmclone-%s-gate' % ID),
              (names.SOURCE, 'dmclone-%s-source' % ID),
              (names.EXPORT, 'dmclone-%s-export' % ID))
    @ddt.unpack
    def test_there_and_back(self, role, device):
        mine = names.Names(ID)
        self.assertEqual(device, mine.of(role))
        self.assertEqual('/dev/mapper/' + device, mine.path(role))
        self.assertEqual('DMCLONE-%s-%s' % (role, ID), mine.uuid(role))
        self.assertEqual((mine, role), names.parse(device))

    def test_kernel_takes_them(self):
        """DM_NAME_LEN and DM_UUID_LEN include a zero; LVM's limit is 127."""
        mine = names.Names(ID)
        for role in (names.HANDLE, names.GATE, names.SOURCE, names.EXPORT):
            self.assertLess(len(mine.of(role)), 128)
            self.assertLess(len(mine.uuid(role)), 129)
        self.assertLess(len(mine.metadata), 127)

    def test_nothing_collides(self):
        found = set()
        volumes = [names.Names(str(uuid.uuid4())) for _ in range(3)]
        for mine in volumes:
            found.update(map(mine.of, (names.HANDLE, names.GATE,
                                       names.SOURCE, names.EXPORT)))
            found.add(mine.metadata)
        self.assertEqual(15, len(found))
        self.assertEqual(3, len({mine.target for mine in volumes}))

    @ddt.data('', 'dmclone-', 'dmclone-x', 'dmclone-metadata-' + ID,
              'dmclone-%s-other' % ID, 'dmclone-%s-' % ID, 'x-dmclone-' + ID,
              'volumes-volume--' + ID,
              'dmclone-%s-handle' % ID, 'dmclone-' + ID.upper())
    def test_others(self, device):
        self.assertIsNone(names.parse(device))


class LogTextTestCase(base.PlainTestCase):
    """Log lines show the id that users see, as soon as it is known."""

    def setUp(self):
        super().setUp()
        self.patch('dmclone_driver.node.names._volumes', new={})

    def test_text(self):
        self.assertEqual(ID, names.text(ID))
        names.belongs_to(ID, 'the-volume')
        self.assertEqual('volume the-volume (logical volume %s)' % ID,
                         names.text(ID))

    def test_target(self):
        for iqn in ('iqn.x:dmclone-' + ID, 'dmclone-' + ID):
            names._volumes.clear()
            self.assertIn('volume unknown', names.text_of_target(iqn))
            names.belongs_to(ID, 'the-volume')
            self.assertEqual('%s of volume the-volume (logical volume %s)'
                             % (iqn, ID), names.text_of_target(iqn))
        self.assertEqual('iqn.x:other', names.text_of_target('iqn.x:other'))
