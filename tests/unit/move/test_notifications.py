# SPDX-License-Identifier: Apache-2.0
"""The events of moves and copies, and their notifications on Cinder's bus."""

import threading
from unittest import mock

from cinder import exception as cinder_exception
from cinder.tests.unit import utils as cinder_utils
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_db import exception as db_exception
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import orm

from dmclone_driver import exception
from dmclone_driver.move import events
from dmclone_driver.move import hydration
from dmclone_driver.move import notifications
from dmclone_driver.move import row_fields
from dmclone_driver.node.names import Names
from tests.unit import base
from tests.unit.fakes import steps

MOVE = ['volume.dmclone_move.start', 'volume.dmclone_move.switchover',
        'volume.dmclone_move.end']
ABORTED = ['volume.dmclone_move.start', 'volume.dmclone_move.abort']


class NotificationsTestCase(base.CloudTestCase):

    def setUp(self):
        super().setUp()
        self.notifier.notifications.clear()

    def sent(self):
        """Send what waits on the nodes; return the driver's messages."""
        for node in self.cloud.nodes.values():
            with self.cloud.on(node):
                node.notifications.send_waiting()
        return [message for message in self.notifier.notifications
                if message['event_type'].startswith('volume.dmclone_')]

    def types(self):
        return [message['event_type'] for message in self.sent()]

    def fail_to_attach(self):
        return self.assertRaises(
            (exception.MoveRefused, exception.MoveFailed),
            self.cloud.attach, self.volume, self.b)


class MoveTestCase(NotificationsTestCase):

    def test_to_the_end(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.assertEqual(MOVE, self.types())
        for message in self.sent():
            payload = message['payload']
            self.assertEqual(
                (self.a.host, self.b.host),
                (payload['source_host'], payload['destination_host']))
            self.assertEqual(self.row().name_id, payload['move_id'])
            self.assertIsNone(payload['reason'])
            self.assertEqual('INFO', message['priority'])
        # The publisher is the service where it has happened.
        self.assertEqual(
            ['volume.' + self.a.host] * 2 + ['volume.' + self.b.host],
            [message['publisher_id'] for message in self.sent()])

    def test_form(self):
        """All fields of Cinder's own events are there, too."""
        volume_utils.notify_about_volume_usage(self.context, self.row(), 'x')
        own = self.notifier.notifications.pop()
        self.cloud.attach(self.volume, self.b)
        for message in self.sent():
            self.assertEqual(
                {'move_id', 'source_host', 'destination_host',
                 'source_snapshot_id', 'event_time', 'reason'},
                set(message['payload']) - set(own['payload']))
            self.assertEqual(
                set(), set(own['payload']) - set(message['payload']))
            self.assertEqual(self.volume.id, message['payload']['volume_id'])
            self.assertEqual(self.volume.project_id,
                             message['payload']['tenant_id'])

    def test_live_migration(self):
        """The guest's first write on the peer switches over."""
        self.cloud.attach(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        self.assertEqual(MOVE[:1], self.types())
        self.b.kernel.write(path)
        self.b.look()
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(3)
        self.assertEqual(MOVE, self.types())

    def test_aborted(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.assertEqual(ABORTED, self.types())

    def test_each_failure(self):
        """A failed attach is told, with the reason, and so is the abort."""
        aborted = 0
        for step, volume, _error in self.each_step(
                lambda volume: self.cloud.attach(volume, self.b)):
            types = [message['event_type'].rpartition('.')[2]
                     for message in self.sent()
                     if message['payload']['volume_id'] == volume.id]
            begun = types and types[0] == 'start'
            self.assertIn(sorted(types[1:]) if begun else types, (
                [], ['switchover'], ['abort', 'error'], ['abort']), step)
            if 'error' in types:
                aborted += 1
                message, = (each for each in self.sent() if
                            each['event_type'].endswith('.error') and
                            each['payload']['volume_id'] == volume.id)
                self.assertNotIn(message['payload']['reason'],
                                 (None, ''), step)
        self.assertGreater(aborted, 5)

    def test_refused(self):
        """What has never begun is not told."""
        self.b.stop()
        self.fail_to_attach()
        self.assertEqual([], self.types())

    def test_no_progress(self):
        self.cloud.attach(self.volume, self.b)
        self.a.stop()
        for _ in range(2 + hydration.STALLED // 10):
            self.cloud.pass_time(10)
            self.b.look()
        last = self.sent()[-1]
        self.assertEqual('volume.dmclone_move.error', last['event_type'])
        self.assertIn('makes no progress', last['payload']['reason'])
        self.assertIn(self.a.pool, last['payload']['reason'])

    def test_end_is_told_once(self):
        """The node dies at any step of the completion."""
        for step, volume, _error in self.each_step(
                self.complete, killed=True,
                before=lambda volume: self.cloud.attach(volume, self.b)):
            if self.b.down:
                self.b.start()
            self.cloud.watch(4)
            ends = [message for message in self.sent()
                    if message['event_type'] == MOVE[-1] and
                    message['payload']['volume_id'] == volume.id]
            self.assertLess(len(ends), 2, step)

    def complete(self, volume):
        self.b.hydrate()
        try:
            self.b.look()
        except steps.Killed:
            self.b.stop()
            raise

    def test_deleted_meanwhile(self):
        """The fields of a deleted volume can be read."""
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.delete(self.volume)
        self.assertEqual(MOVE[:2], self.types())


class CopyTestCase(NotificationsTestCase):

    def setUp(self):
        super().setUp()
        self.record = cinder_utils.create_snapshot(
            self.context, self.volume.id, status='available', volume_size=1,
            volume_type_id=self.volume.volume_type_id)
        with self.cloud.on(self.a):
            self.record.update(self.a.driver.create_snapshot(self.record))
        self.record.save()
        self.copy = cinder_utils.create_volume(
            self.context, host=self.b.pool, size=1,
            volume_type_id=self.vt['id'], snapshot_id=self.record.id)

    def create(self):
        with self.cloud.on(self.b):
            self.copy.update(self.b.driver.create_volume_from_snapshot(
                self.copy, self.record))
        self.copy.save()

    def test_copy(self):
        self.create()
        self.cloud.watch(3)
        self.assertEqual(['volume.dmclone_copy.start',
                          'volume.dmclone_copy.end'], self.types())
        for message in self.sent():
            payload = message['payload']
            self.assertEqual(
                (self.a.host, self.b.host, self.record.id, self.copy.id),
                tuple(payload[name] for name in (
                    'source_host', 'destination_host', 'source_snapshot_id',
                    'volume_id')))

    def test_failure(self):
        self.a.stop()
        self.assertRaises(cinder_exception.CinderException, self.create)
        self.assertEqual(
            ['volume.dmclone_copy.start', 'volume.dmclone_copy.error',
             'volume.dmclone_copy.abort'], self.types())
        self.assertIn(self.a.host, self.sent()[1]['payload']['reason'])


class BusTestCase(NotificationsTestCase):
    """The message bus does not answer, or refuses."""

    def test_it_hangs(self):
        """Moves go on; what is too much for the queue is lost."""
        end = threading.Event()
        self.addCleanup(end.set)
        self.patch('dmclone_driver.move.notifications.WAITING', 3)
        mine = notifications.Notifications(self.a.host)
        # The database of the test is not there in another thread.
        self.patch('dmclone_driver.move.notifications.objects')
        hangs = self.patch(
            'cinder.volume.volume_utils.notify_about_volume_usage',
            side_effect=lambda *args, **kwargs: end.wait())
        thread = threading.Thread(target=mine._run, daemon=True)
        thread.start()
        log = self.patch('dmclone_driver.move.notifications.LOG.error')
        self.a.listeners[:] = [mine.listen]
        for _ in range(4):
            volume = self.a.create()
            self.cloud.attach(volume, self.b)
            self.assertEqual(self.b.pool, self.cloud.row(volume.id).host)
        self.assertTrue(thread.is_alive())
        self.assertLess(hangs.call_count, 2)
        self.assertGreaterEqual(log.call_count, 4)
        # Let the thread wait for ever, without a message.
        mine._queue.queue.clear()

    def test_it_fails(self):
        """A failure is logged, and the next one is sent."""
        own = volume_utils.notify_about_volume_usage
        log = self.patch('dmclone_driver.move.notifications.LOG.exception')
        self.patch('cinder.volume.volume_utils.notify_about_volume_usage',
                   side_effect=[OSError('no bus'), mock.DEFAULT], wraps=own)
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(MOVE[1:2], self.types())
        self.assertIn(self.volume.id, str(log.call_args))

    def test_disabled(self):
        cfg.CONF.set_override('driver', ['noop'],
                              'oslo_messaging_notifications')
        self.cloud.attach(self.volume, self.b)
        self.assertTrue(self.a.notifications._queue.empty())

    def test_start_is_repeated(self):
        """Cinder starts the driver again if its start has failed."""
        before = list(self.a.listeners)
        with self.cloud.on(self.a), mock.patch.object(
                self.a.parts, 'server', None):
            self.a.driver.check_for_setup_error()
        self.assertIn(self.a.notifications.listen, before)
        self.assertEqual(before, self.a.listeners)


class EventsTestCase(NotificationsTestCase):
    """Events are told after the commit, and only then."""

    def setUp(self):
        super().setUp()
        self.order = []
        self.a.listeners.append(
            lambda event: self.order.append(event.kind))

    def begin(self):
        with self.cloud.on(self.a):
            self.cloud.attach(self.volume, self.b)

    def test_after_the_commit(self):
        for name in ('after_commit', 'after_begin'):
            self.watch_session(name)
        self.begin()
        for kind in (events.Kind.START, events.Kind.SWITCHOVER):
            place = self.order.index(kind)
            self.assertEqual('after_commit', self.order[place - 1])

    def watch_session(self, name):
        def note(*args):
            self.order.append(name)
        sqlalchemy_event.listen(orm.Session, name, note)
        self.addCleanup(sqlalchemy_event.remove, orm.Session, name, note)

    def test_deadlock(self):
        """A repeated transaction is told once."""
        own = row_fields.set_state
        self.patch('dmclone_driver.move.row_fields.set_state', side_effect=[
            db_exception.DBDeadlock(), mock.DEFAULT], wraps=own)
        self.patch('oslo_db.api.time.sleep')
        self.begin()
        self.assertEqual([events.Kind.START, events.Kind.SWITCHOVER],
                         self.order)

    def test_failed_transaction(self):
        self.patch('dmclone_driver.move.row_fields.of_placeholder',
                   side_effect=ZeroDivisionError)
        self.assertRaises(ZeroDivisionError, self.begin)
        self.assertEqual([], self.order)

    def test_listener_fails(self):
        """The others hear of it, and the move goes on."""
        self.a.listeners.insert(0, lambda event: 1 / 0)
        self.begin()
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual([events.Kind.START, events.Kind.SWITCHOVER],
                         self.order)

    def test_backends(self):
        found = events.Event(events.Kind.START, 'v', Names('x').name_id,
                             'node1@dmclone#pool', None)
        self.assertEqual(('node1@dmclone', None),
                         (found.source_backend, found.destination_backend))
