# SPDX-License-Identifier: Apache-2.0
"""Errors name the volume, the host, the reason and the way out."""

import ddt
from oslo_concurrency import processutils

from dmclone_driver import exception
from tests.unit import base

VALUES = {key: 'the-' + key for key in (
    'volume', 'host', 'reason', 'placeholder', 'backend', 'address',
    'action', 'source', 'destination', 'lv', 'option', 'value', 'section',
    'call', 'seconds', 'path', 'names', 'device', 'expected',
    'status')}


@ddt.ddt
class ExceptionTestCase(base.PlainTestCase):

    @ddt.data(
        (exception.NoPeer, 'backend volume host address reason'),
        (exception.MoveRefused, 'volume host reason'),
        (exception.MoveFailed, 'volume host reason'),
        (exception.MoveGone, 'volume placeholder reason'),
        (exception.PaceRefused, 'host reason'),
        (exception.LockNotAcquired, 'volume reason'),
        (exception.NotWhileMoving, 'action volume source destination'),
        (exception.DataLost, 'action volume host'),
        (exception.RequestsWait, 'device names'),
        (exception.HandleMissing, 'volume host path'),
        (exception.MetadataUnusable, 'names lv reason'),
        (exception.UnexpectedTable, 'device names expected status'),
        (exception.BadConfiguration, 'option value section reason'),
        (exception.PeerUnreachable, 'host call seconds'),
        (exception.PeerFailed, 'host reason'))
    @ddt.unpack
    def test_text(self, error, names):
        values = {name: VALUES[name] for name in names.split()}
        text = error(**values).msg
        for value in values.values():
            self.assertIn(value, text)
        self.assertNotIn('%(', text)

    def test_what_happened_to_the_volume(self):
        self.assertIn('stays where it was', exception.MoveFailed.message)
        self.assertIn('nothing was deleted',
                      exception.MetadataUnusable.message)

    def test_what_to_do(self):
        self.assertIn('Wait until', exception.NotWhileMoving.message)
        self.assertIn('Start cinder-volume', exception.NoPeer.message)


class TextTestCase(base.PlainTestCase):

    def test_text_of(self):
        """Without output the exit code is the reason."""
        run = processutils.ProcessExecutionError
        self.assertEqual('why', exception.text_of(run(stderr='  why\n')))
        self.assertIn('Exit code: 5', exception.text_of(run(exit_code=5)))
        self.assertEqual('gone', exception.text_of(OSError('gone')))
