# SPDX-License-Identifier: Apache-2.0
"""Attachment records: the nodes and instances that use a volume."""

import types

import ddt

from dmclone_driver.move import attachments
from tests.unit import base


def _volume(*records):
    return types.SimpleNamespace(volume_attachment=[
        types.SimpleNamespace(connector=host and {'host': host},
                              attach_status=status)
        for host, status in records])


@ddt.ddt
class AttachmentsTestCase(base.PlainTestCase):

    @ddt.data(({'host': 'one'}, 'one', True), ({'host': 'one'}, 'two', False),
              (None, 'one', False), ({}, None, False), ({}, 'one', False))
    @ddt.unpack
    def test_attached_on(self, connector, node, expected):
        self.assertIs(expected, attachments.attached_on(connector, node))

    def test_who(self):
        volume = _volume(('one', 'attached'), (None, 'reserved'),
                         ('two', 'attaching'))
        one, none, two = volume.volume_attachment
        self.assertEqual([one], attachments.on_node(volume, 'one'))
        self.assertEqual([one, none], attachments.live(volume, 'one'))
        self.assertEqual([two], attachments.elsewhere(volume, 'one'))
        self.assertFalse(attachments.is_internal(volume))
        self.assertTrue(attachments.is_internal(_volume()))

    @ddt.data(((), False),
              ((('two', 'attaching'),), True),
              ((('one', 'attached'), ('two', 'attaching')), True),
              ((('one', 'attached'), ('two', 'attached')), False),
              # Nova's record of an earlier request.
              ((('two', 'attached'), ('two', 'attaching')), False),
              # An instance that runs there is being detached.
              ((('one', 'attached'), ('two', 'error_detaching')), False),
              # The second attachment was deleted without calling the driver.
              ((('one', 'attached'),), True))
    @ddt.unpack
    def test_attaching(self, records, expected):
        self.assertIs(expected,
                      attachments.attaching(_volume(*records), 'two'))
