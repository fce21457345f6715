# SPDX-License-Identifier: Apache-2.0

import logging

import fixtures

from tests.unit import base


class MilestonesTestCase(base.CloudTestCase):
    """The log tells the story of a volume's moves by the volume's id."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            'dmclone_driver', level=logging.INFO, format='%(message)s'))

    def assertStory(self, *milestones):
        """Compare the lines with the volume's id, in this order."""
        lines = [line for line in self.log.output.splitlines()
                 if self.volume.id in line]
        self.assertEqual(len(milestones), len(lines), lines)
        for milestone, line in zip(milestones, lines):
            self.assertIn(milestone, line)

    def migrate(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)

    def test_attach_away(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertStory(
            'Moving volume', 'is prepared on', 'is switched over to',
            'is open on', 'Hydration of', 'is complete on',
            'Deleted source')

    def test_migration(self):
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(3)
        self.assertStory(
            'Moving volume', 'is prepared on', 'is switched over to',
            'is open on', 'Hydration of', 'is complete on',
            'Deleted source')

    def test_migration_is_aborted(self):
        self.migrate()
        self.cloud.detach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertStory(
            'Moving volume', 'is prepared on',
            'an attachment was deleted', 'is aborted')

    def test_attachment_is_forgotten(self):
        self.migrate()
        for record in self.row().volume_attachment:
            record.destroy()
        with self.cloud.on(self.a):
            self.a.prepared_moves.abort_orphans(self.context)
        self.assertStory(
            'Moving volume', 'is prepared on', 'its attachment is gone',
            'is aborted')

    def test_volume_is_deleted(self):
        self.migrate()
        for record in self.row().volume_attachment:
            record.destroy()
        self.delete(self.volume)
        self.assertStory(
            'Moving volume', 'is prepared on', 'the volume is deleted',
            'is aborted')

    def test_attachment_is_never_completed(self):
        self.migrate()
        self.cloud.set_attach_status(self.volume, self.b, 'attaching')
        self.cloud.attach(self.volume, self.b)
        self.assertStory(
            'Moving volume', 'is prepared on',
            'its attachment was not completed', 'is aborted',
            'Moving volume', 'is prepared on')
