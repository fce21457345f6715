# SPDX-License-Identifier: Apache-2.0
"""Requests that time out, and the attachments that they leave."""

from unittest import mock

import ddt

from dmclone_driver import exception
from dmclone_driver.move import deadline
from dmclone_driver.move import home
from dmclone_driver.move.placeholders import State
from dmclone_driver.node.names import Names
from tests.unit import base


class DeadlineTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.now = 100
        self.deadline = deadline.Deadline(50, lambda: self.now)

    def test_left(self):
        self.assertEqual(50, self.deadline.left())
        self.assertEqual(20, self.deadline.left(20))
        self.now += 40
        self.assertEqual(10, self.deadline.left(20))
        self.assertFalse(self.deadline.passed)
        self.now += 10
        self.assertTrue(self.deadline.passed)
        self.now += 10
        self.assertEqual(0, self.deadline.left())

    def test_of_request(self):
        """It ends before the timeout of Cinder's API."""
        self.patch('dmclone_driver.move.deadline.CONF',
                   rpc_response_timeout=60)
        self.assertLess(deadline.Deadline.of_request().left(), 60)
        self.assertGreater(deadline.Deadline.of_request().left(), 40)


class RequestTestCase(base.CloudTestCase):
    """A test with slow steps."""

    def setUp(self):
        super().setUp()
        self.patch('dmclone_driver.move.deadline.CONF',
                   rpc_response_timeout=60)

    def slow(self, what, seconds):
        """Make steps with a text take some seconds."""
        run = self.cloud.steps.run

        def slowly(name, *args, **kwargs):
            if what in name:
                self.cloud.pass_time(seconds)
            return run(name, *args, **kwargs)
        self.cloud.steps.run = slowly

    def assertTakenBack(self):
        self.assertEqual({}, self.a.prepared_moves.known)
        self.cloud.watch(2)
        self.assertIdle(self.a)


@ddt.ddt
class MoveTestCase(RequestTestCase):

    @ddt.data('log in', 'lvchange', 'flush_disk', 'dmsetup create')
    def test_too_late(self, what):
        self.slow(what, 51)
        self.assertRaises(
            (exception.MoveRefused, exception.MoveFailed),
            self.cloud.attach, self.volume, self.b)
        self.assertTakenBack()

    @ddt.data('log in', 'lvchange')
    def test_live_migration_too_late(self, what):
        self.cloud.attach(self.volume, self.a)
        self.slow(what, 51)
        self.assertRaises(
            (exception.MoveRefused, exception.MoveFailed),
            self.cloud.attach, self.volume, self.b)
        self.assertTakenBack()

    def test_just_in_time(self):
        self.slow('log in', 40)
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(self.b.pool, self.row().host)

    def test_peer_has_less_time_the_later_it_is_asked(self):
        given = []

        def prepare(context, host, timeout, **kwargs):
            given.append(timeout)
            raise exception.PeerFailed(host=host, reason='enough')
        self.patch('dmclone_driver.move.rpcapi.PeerClient.prepare',
                   side_effect=prepare)
        self.slow('to describe', 30)
        self.assertRaises(exception.MoveFailed, self.cloud.attach,
                          self.volume, self.b)
        self.assertEqual([50 - 30 - home.TIME_TO_TAKE_BACK], given)

    def test_taking_back_does_not_wait_for_the_peer(self):
        asked = []

        def delete(client, context, host, placeholder_id, timeout=20):
            asked.append(timeout)
            return True
        self.slow('log in', 60)
        with mock.patch('dmclone_driver.move.rpcapi.PeerClient.'
                        'delete_destination', new=delete):
            self.assertRaises(
                (exception.MoveRefused, exception.MoveFailed),
                self.cloud.attach, self.volume, self.b)
        self.assertEqual([], [timeout for timeout in asked if timeout])


@ddt.ddt
class LeakedAttachmentTestCase(RequestTestCase):
    """Attachment records of requests with a late answer, or an error."""

    def leak(self, connector=True, status='attaching'):
        """Attach on the peer, and lose the answer."""
        record = self.cloud.attachment(self.volume, self.b, connected=False)
        record.attach_status = 'reserved'
        record.save()
        if connector is not None:
            row = self.row()
            with self.cloud.on(self.a):
                self.a.driver.create_export(self.context, row,
                                            self.b.connector)
                self.a.driver.initialize_connection(row, self.b.connector)
        if connector:
            record.connector = self.b.connector
            record.attach_status = status
            record.save()

    @ddt.data(*((connector, again) for connector in (True, False, None)
                for again in ('a', 'b', 'c')))
    @ddt.unpack
    def test_next_attempt_works(self, connector, again):
        self.cloud.add('node3')
        node = {'a': self.a, 'b': self.b, 'c': self.cloud.nodes['node3']}[
            again]
        self.cloud.attach(self.volume, self.a)
        self.leak(connector)
        if again != 'a':
            path = self.cloud.attach(self.volume, node, mode='again')
            self.assertIsNotNone(node.kernel.get(path))
            self.cloud.detach(self.volume, self.a)
            self.assertEqual(node.pool, self.row().host)
            self.assertTrue(node.kernel.write(path))
        for record in self.row().volume_attachment:
            record.destroy()
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.leftovers())

    def test_guest_of_a_complete_attachment_keeps_its_move(self):
        self.cloud.attach(self.volume, self.a)
        self.leak(status='attached')
        error = self.assertRaises(exception.MoveRefused,
                                  self.cloud.attach, self.volume, self.b)
        self.assertIn('already prepared', error.msg)

    @ddt.data(True, False)
    def test_is_taken_back_in_the_end(self, connector):
        self.cloud.attach(self.volume, self.a)
        self.leak(connector)
        self.cloud.watch(1)
        self.assertEqual([State.PREPARED], self.cloud.states())
        self.cloud.watch(4)
        self.assertEqual([], self.cloud.states())
        self.assertEqual({}, self.b.kernel.of_volumes())

    def test_orphan_beside_a_leaked_record(self):
        """It is found although there is a record of another attempt."""
        self.cloud.attach(self.volume, self.a)
        self.leak(None)
        self.cloud.attach(self.volume, self.b)
        for record in self.row().volume_attachment:
            if record.connector and record.connector['host'] == 'node2':
                record.destroy()
        self.cloud.watch(6)
        self.assertEqual([], self.cloud.states())


class RunningGuestTestCase(base.CloudTestCase):
    """A running guest keeps its disk when an attachment is deleted."""

    def setUp(self):
        super().setUp()
        self.cloud.attach(self.volume, self.a)
        self.home = self.a.kernel.get(Names(self.volume.id).path())

    def migrate(self):
        self.there = self.cloud.attach(self.volume, self.b)

    def assertGuestRuns(self):
        self.cloud.watch(2)
        self.assertTrue(self.a.kernel.write(Names(self.volume.id).path()))
        self.assertEqual(self.a.pool, self.row().host)

    def test_left_over_record_of_the_home_is_deleted(self):
        self.cloud.attachment(self.volume, self.a, mode='left over')
        self.migrate()
        self.cloud.detach(self.volume, self.a, mode='left over')
        self.assertGuestRuns()

    def test_only_record_of_the_home_is_deleted_while_it_runs(self):
        self.home.opened = 1
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.assertGuestRuns()
        self.home.opened = 0

    def test_guest_that_moves_then(self):
        self.home.opened = 1
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.home.opened = 0
        self.b.kernel.write(self.there)
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)

    def test_guest_that_moves_then_and_only_reads(self):
        self.home.opened = 1
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.home.opened = 0
        self.cloud.watch(3)
        self.assertEqual(self.b.pool, self.row().host)


class ImageTestCase(base.CloudTestCase):
    """A move is refused while an image is copied to the volume."""

    def test_attach_meanwhile(self):
        def fetch(*args, **kwargs):
            error = self.assertRaises(exception.MoveRefused,
                                      self.cloud.attach, self.volume, self.b)
            self.assertIn('still being filled', error.msg)
            self.cloud.attach(self.volume, self.a)
        with self.cloud.on(self.a), mock.patch(
                'cinder.image.image_utils.fetch_to_raw',
                side_effect=fetch) as fetched:
            self.a.driver.copy_image_to_volume(self.context, self.volume,
                                               None, 'image')
        fetched.assert_called_once()
        self.cloud.detach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)

    def test_before_and_after_the_copy(self):
        """It is refused, too, while Cinder creates the volume."""
        with mock.patch('dmclone_driver.move.lookups.is_being_made',
                        return_value=True):
            self.assertRaises(exception.MoveRefused, self.cloud.attach,
                              self.volume, self.b)

    def test_volume_of_a_group(self):
        self.volume.group_id = self.volume.id
        self.volume.save()
        error = self.assertRaises(exception.MoveRefused,
                                  self.cloud.attach, self.volume, self.b)
        self.assertIn('is in group', error.msg)
