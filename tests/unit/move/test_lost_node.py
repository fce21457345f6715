# SPDX-License-Identifier: Apache-2.0
"""The command forget_node: each case as a dry run, and then done."""

import copy

from cinder import exception as cinder_exception
from cinder import objects
from cinder.tests.unit import utils as cinder_utils
import ddt

from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import lost_node
from dmclone_driver.move import peer_requests
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import plan
from dmclone_driver.move import records
from dmclone_driver.node.names import Names
from tests.unit import base


class LostNodeTestCase(base.CloudTestCase):
    """A test in which the first node is lost."""

    def setUp(self):
        super().setUp()
        self.c = self.cloud.add('node3')
        self.cloud.settle()

    def forget(self, lost=None, on=None, do_it=True):
        """Run the command; returns its lines."""
        lost, on = lost or self.a, on or self.b
        # The command is a separate process.
        backend = copy.copy(on.backend)
        backend.jobs = jobs.Jobs()
        with self.cloud.on(on):
            return [act.line(do_it) for act in lost_node.LostNode(
                backend, peer_requests.PeerRequests(backend),
                lost.name).run(self.context, do_it)]

    def picture(self):
        """Return the columns of all rows of volumes."""
        return {row.id: {field: row[field] for field in (
            'host', 'status', 'provider_id', 'replication_driver_data',
            '_name_id')} for row in self.cloud.rows()}

    def forgotten(self, lost=None, on=None):
        """Run the command as a dry run, then do it; returns its lines."""
        before = self.picture()
        said = self.forget(lost, on, do_it=False)
        self.assertEqual(before, self.picture())
        done = self.forget(lost, on)
        self.assertEqual([line.replace('to do', 'done', 1)
                          for line in said], done)
        self.assertEqual([], self.forget(lost, on))
        return '\n'.join(done)

    def asked(self, node, act):
        """Return the requests to a node during an action."""
        self.cloud.steps.start()
        act()
        log, self.cloud.steps.log = self.cloud.steps.log, []
        return [step for step in log if 'ask %s' % node.host in step]

    def detach_all(self):
        for record in self.row().volume_attachment:
            record.destroy()


class RefusedTestCase(LostNodeTestCase):

    def refused(self, *args, **kwargs):
        return str(self.assertRaises(plan.Refused, self.forget, *args,
                                     **kwargs))

    def test_node_is_well(self):
        self.assertIn('runs', self.refused())

    def test_heard_of_lately(self):
        self.a.stop()
        self.assertIn('lately', self.refused())

    def test_silent_for_long_but_answers(self):
        """It may have lost its connection to the database."""
        self.a.die()
        self.a.down = False
        self.a.start()
        self.assertIn('nothing there is lost', self.refused())

    def test_this_node(self):
        self.assertIn('another', self.refused(lost=self.b))

    def test_no_such_node(self):
        lost = lost_node.LostNode(self.b.backend, None, 'nobody')
        self.cloud.by_host[lost.host] = self.a
        self.a.die()
        with self.cloud.on(self.b):
            error = self.assertRaises(plan.Refused, list,
                                      lost.run(self.context))
        self.assertIn('known', str(error))


class DestinationTestCase(LostNodeTestCase):
    """The lost node was the destination of a move."""

    def test_prepared(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.die()
        self.assertIn('stays where it is', self.forgotten(self.b, self.c))
        self.assertEqual([], self.cloud.placeholders())
        # The home removes its devices without a request.
        self.assertEqual([], self.asked(self.b, self.cloud.watch))
        self.assertEqual({}, self.a.target.exports)
        self.assertIsNone(self.row().provider_location)
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 2)

    def test_prepared_and_home_off(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.die()
        self.a.reboot()
        self.forgotten(self.b, self.c)
        self.a.start()
        self.assertEqual([], self.asked(self.b, self.cloud.watch))
        self.assertEqual({}, self.a.target.exports)

    def test_switched_meanwhile(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        placeholder, = self.cloud.placeholders()
        self.b.die()
        abort = records.abort

        def too_late(*args):
            records.switch_over(self.context, self.volume.id, placeholder.id)
            return abort(*args)

        self.patch('dmclone_driver.move.records.abort', new=too_late)
        line, = self.forget(self.b, self.c)
        self.assertIn('not done', line)
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_aborted(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.b.die()
        self.cloud.detach(self.volume, self.b)
        self.assertEqual([State.ABORTED], self.cloud.states())
        self.assertIn('was aborted', self.forgotten(self.b, self.c))
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.asked(self.b, self.cloud.watch))
        self.assertEqual({}, self.a.requests.pending)

    def test_comes_back(self):
        self.cloud.attach(self.volume, self.a)
        path = self.cloud.attach(self.volume, self.b)
        names = self.b.lvm.names()
        self.b.die()
        self.forgotten(self.b, self.c)
        self.b.start()
        self.cloud.watch(3)
        self.assertEqual(names, self.b.lvm.names())
        self.assertIsNone(self.b.kernel.get(path))
        self.assertEqual(self.a.pool, self.row().host)


class SourceTestCase(LostNodeTestCase):
    """The lost node had the source of a clone."""

    def setUp(self):
        super().setUp()
        self.path = self.cloud.attach(self.volume, self.b)
        self.placeholder, = self.cloud.placeholders()

    def set_status(self, status):
        row = self.row()
        row.status = status
        row.save()

    def test_released(self):
        self.a.stop()
        self.b.hydrate()
        self.b.look()
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.a.die()
        self.assertIn('nothing needs', self.forgotten())
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual([], self.asked(self.a, self.cloud.watch))
        self.assertEqual({}, self.b.requests.pending)

    def test_complete_and_not_written_down(self):
        """The rows do not show it, as after a restore of the database."""
        self.a.stop()
        self.b.hydrate()
        self.b.look()
        row = self.cloud.row(self.placeholder.id)
        row.replication_driver_data = placeholders.record_of(row).but(
            State.SWITCHED).text()
        row.save()
        self.a.die()
        self.assertIn('is complete on ' + self.b.host,
                      self.forgotten(on=self.c))
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual('available', self.row().status)

    def test_nearly_complete(self):
        self.a.die()
        self.b.hydrate()
        line, = self.forget(on=self.c)
        self.assertIn('not done', line)
        self.assertEqual([State.SWITCHED], self.cloud.states())
        self.cloud.watch()
        self.assertIn('nothing needs', self.forgotten())

    def test_reader_does_not_answer(self):
        self.a.die()
        self.b.stop()
        line, = self.forget(on=self.c)
        self.assertIn('not done', line)
        self.assertIn(self.b.host, line)
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_lost(self):
        self.a.die()
        self.assertIn('mark it as lost', self.forgotten())
        self.assertEqual([State.LOST], self.cloud.states())
        self.assertEqual('error', self.row().status)
        self.assertEqual([self.volume.id], [
            message['resource_uuid'] for message in self.cloud.messages()])
        # Pending requests have failed.
        status = self.b.kernel.get(self.path).clone
        self.assertEqual((0, False), (status.waiting, status.hydration))
        self.assertEqual([], self.asked(
            self.a, lambda: self.cloud.watch(3, hydrate=False)))
        self.assertEqual('clone', self.b.kernel.get(self.path).kinds)

    def test_lost_while_in_use(self):
        """It is set later: Cinder's API detaches no volume in error."""
        self.set_status('in-use')
        self.a.die()
        self.forgotten()
        self.assertEqual('in-use', self.row().status)
        self.cloud.detach(self.volume, self.b)
        self.set_status('available')
        self.cloud.watch(hydrate=False)
        self.assertEqual('error', self.row().status)

    def test_lost_and_then_deleted(self):
        self.a.die()
        self.forgotten()
        self.cloud.detach(self.volume, self.b)
        self.assertEqual([], self.asked(
            self.a, lambda: self.delete(self.volume)))
        self.assertEqual([], self.cloud.rows())
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual({}, self.b.kernel.disks)

    def test_lost_and_all_overwritten(self):
        """Then the volume is complete."""
        self.a.die()
        self.forgotten()
        clone = self.b.kernel.get(self.path).clone
        clone.bitmap['hydrated'] = clone.total
        self.cloud.watch()
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual('linear', self.b.kernel.get(self.path).kinds)

    def test_lost_before_the_gate_was_open(self):
        with self.cloud.on(self.b):
            self.b.kernel.change(['suspend', self.path[12:] + '-gate',
                                  False])
        self.a.die()
        self.forgotten()
        self.assertFalse(self.b.kernel.get(self.path + '-gate').suspended)
        self.assertEqual([], self.asked(self.a, self.b.look))

    def test_watcher_sees_it_alone(self):
        """The watcher reads the state if it could not be called."""
        self.a.die()
        self.b.reboot()
        self.b.start()
        records.lose(self.context, self.placeholder.id)
        self.assertEqual([], self.asked(
            self.a, lambda: self.cloud.watch(3, hydrate=False)))
        source = self.b.kernel.get(self.path + '-source')
        self.assertEqual(('error', False), (source.kinds, source.suspended))
        self.assertFalse(self.b.kernel.get(self.path + '-gate').suspended)
        self.assertEqual('error', self.row().status)

    def test_nothing_else_is_done_with_it(self):
        self.a.die()
        self.forgotten()
        self.set_status('available')
        with self.cloud.on(self.b):
            error = self.assertRaises(
                cinder_exception.InvalidVolume, self.b.driver.extend_volume,
                self.row(), 2)
        self.assertIn('lost', error.msg)
        error = self.assertRaises(
            cinder_exception.VolumeDriverException, self.cloud.attach,
            self.volume, self.c)
        self.assertIn('lost', error.msg)
        # The hydrated regions can be read.
        self.assertEqual(self.path, self.cloud.attach(self.volume, self.b))

    def test_comes_back(self):
        self.a.die()
        self.forgotten()
        self.a.start()
        self.cloud.watch(3, hydrate=False)
        handle = self.a.kernel.get('dmclone-' + self.volume.id)
        self.assertTrue(handle.read_only or handle.sealed)
        self.assertEqual({}, self.a.target.exports)
        self.detach_all()
        self.delete(self.volume)
        self.assertEqual(['volume-' + self.volume.id], self.a.lvm.names())

    def test_comes_back_after_the_deletion(self):
        self.a.die()
        self.forgotten()
        self.detach_all()
        self.delete(self.volume)
        self.a.start()
        self.cloud.watch(3)
        self.assertEqual({}, self.a.kernel.of_volumes())
        self.assertEqual(['volume-' + self.volume.id], self.a.lvm.names())


class ChainTestCase(LostNodeTestCase):
    """The volume has moved from the first node to the second to the third."""

    def setUp(self):
        super().setUp()
        for node in (self.b, self.c):
            self.path = self.cloud.attach(self.volume, node)
            self.detach_all()
        self.placeholders = {lookups.backend_of(row): row.id
                             for row in self.cloud.placeholders()}

    def states(self):
        return {lookups.backend_of(row): placeholders.state_of(row)
                for row in self.cloud.placeholders()}

    def end(self, *nodes):
        """Delete the volume, and check that there is no leftover."""
        self.delete(self.volume)
        self.cloud.watch(3)
        self.assertEqual([], self.cloud.rows())
        for node in nodes:
            self.assertEqual([], node.lvm.names())
            self.assertEqual({}, node.kernel.of_volumes())

    def test_first_is_lost(self):
        self.a.die()
        self.forgotten()
        self.assertEqual({self.a.host: State.LOST,
                          self.b.host: State.SWITCHED}, self.states())
        self.assertEqual('error', self.row().status)
        self.end(self.b, self.c)

    def test_middle_is_lost(self):
        self.b.die()
        self.forgotten(self.b, self.c)
        self.assertEqual({self.a.host: State.SWITCHED,
                          self.b.host: State.LOST}, self.states())
        self.a.stop()
        self.assertEqual([], self.asked(
            self.b, lambda: (self.a.start(), self.cloud.settle())))
        self.end(self.a, self.c)

    def test_middle_is_lost_and_not_needed(self):
        """The source of the lost source is deleted, too."""
        self.b.look()
        self.b.stop()
        self.c.hydrate()
        self.c.look()
        self.assertEqual({self.a.host: State.SWITCHED,
                          self.b.host: State.RELEASED}, self.states())
        self.b.die()
        self.forgotten(self.b, self.c)
        self.cloud.settle()
        self.assertEqual({}, self.states())
        self.assertEqual([], self.a.lvm.names())

    def test_last_is_lost(self):
        """The previous node becomes the home again."""
        self.c.die()
        text = self.forgotten(self.c, self.b)
        self.assertIn('keeps, as ' + Names(self.volume.id).path(), text)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual([], self.asked(
            self.c, lambda: (self.restart(self.a, self.b))))
        self.assertEqual({}, self.a.requests.pending)
        self.assertEqual({}, self.b.requests.pending)
        self.end(self.a, self.b)

    def restart(self, *nodes):
        for node in nodes:
            node.stop()
            node.start()
            self.cloud.watch(hydrate=False)

    def test_two_are_lost(self):
        self.a.die()
        self.c.die()
        d = self.cloud.add('node4')
        line, = self.forget(self.c, d, do_it=False)
        self.assertIn('to do', line)
        self.forgotten(self.c, d)
        self.forgotten(self.a, d)
        self.end(self.b, d)

    def test_there_and_back(self):
        """The lost node had the home and an older source."""
        self.cloud.attach(self.volume, self.a)
        self.detach_all()
        self.a.die()
        self.forgotten()
        self.assertEqual(self.b.pool, self.row().host)
        self.end(self.b, self.c)


@ddt.ddt
class HomeTestCase(LostNodeTestCase):
    """The lost node was the volume's home."""

    def snapshot(self):
        snapshot = cinder_utils.create_snapshot(
            self.cloud.context, self.volume.id, status='available',
            volume_type_id=self.volume.volume_type_id)
        with self.cloud.on(self.a):
            self.a.driver.create_snapshot(snapshot)
        return snapshot

    def test_idle(self):
        self.a.die()
        self.assertIn('what was written on ' + self.a.host,
                      self.forgotten())
        row = self.row()
        self.assertEqual(('error', self.b.pool, self.b.pool),
                         (row.status, row.host, row.provider_id))
        self.assertEqual(self.b.service.uuid, row.service_uuid)
        self.assertEqual([self.volume.id], [
            message['resource_uuid'] for message in self.cloud.messages()])
        with self.cloud.on(self.b):
            self.b.driver.get_volume_stats(refresh=True)
        self.assertEqual(self.b.pool, self.row().host)
        self.delete(self.volume)
        self.assertEqual([], self.cloud.rows())

    @ddt.data('deleting', 'in-use', 'extending', 'error_deleting')
    def test_whatever_was_under_way(self, status):
        row = self.row()
        row.update({'status': status, 'migration_status': 'migrating'})
        row.save()
        self.a.die()
        self.forgotten()
        self.assertEqual(('error', 'error'), (
            self.row().status, self.row().migration_status))

    def test_snapshots(self):
        snapshot = self.snapshot()
        self.a.die()
        self.forgotten()
        snapshot = objects.Snapshot.get_by_id(self.context, snapshot.id)
        self.assertEqual('error', snapshot.status)
        with self.cloud.on(self.b):
            self.b.driver.delete_snapshot(snapshot)
        snapshot.destroy()
        self.delete(self.volume)

    def test_still_attached(self):
        self.cloud.attach(self.volume, self.a)
        self.a.die()
        self.forgotten()
        self.cloud.detach(self.volume, self.a)
        self.delete(self.volume)

    def test_cannot_be_used(self):
        self.a.die()
        self.forgotten()
        for node in (self.b, self.c):
            self.assertRaises(cinder_exception.VolumeDriverException,
                              self.cloud.attach, self.volume, node)
        self.assertEqual([], self.cloud.placeholders())

    def test_prepared_elsewhere(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.a.die()
        self.assertIn('delete it', self.forgotten())
        self.assertEqual([], self.cloud.placeholders())
        self.assertEqual(({}, {}, []), (
            self.b.kernel.of_volumes(), self.b.kernel.disks,
            self.b.lvm.names()))

    def test_prepared_on_a_node_that_is_off(self):
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.a.die()
        self.b.reboot()
        lines = self.forget(on=self.c)
        self.assertEqual(2, len(lines))
        self.assertEqual([True, True], ['not done' in line
                                        for line in lines])
        self.assertEqual(self.a.pool, self.row().host)
        self.b.start()
        self.cloud.settle()
        self.assertEqual([], self.b.lvm.names())
        self.forgotten(on=self.c)
        self.assertEqual(self.c.pool, self.row().host)

    def test_was_in_use_elsewhere(self):
        """If the database lost the switchover nothing is given up."""
        self.cloud.attach(self.volume, self.b)
        placeholder, = self.cloud.placeholders()
        row = self.row()
        row.update({'host': self.a.pool, 'provider_id': self.a.pool,
                    '_name_id': None,
                    'replication_driver_data': placeholder.id})
        row.save()
        placeholder.update({
            'host': self.b.pool, 'provider_id': self.b.pool,
            '_name_id': None,
            'replication_driver_data': placeholders.record_of(placeholder).but(
                State.PREPARED).text()})
        placeholder.save()
        names = self.b.lvm.names()
        self.a.die()
        self.forget()
        self.assertEqual(self.a.pool, self.row().host)
        self.assertEqual(names, self.b.lvm.names())

    def test_altered_host(self):
        """The host of a volume on another node is corrected."""
        other = self.c.create()
        other.host = self.a.pool
        other.save()
        self.a.die()
        self.assertIn('put it back to ' + self.c.pool, self.forgotten())
        self.assertEqual(self.c.pool, self.cloud.row(other.id).host)
        self.assertEqual('available', self.cloud.row(other.id).status)

    def test_comes_back(self):
        """It keeps the data, without devices and exports."""
        self.a.die()
        self.forgotten()
        self.a.start()
        self.cloud.watch(3)
        self.assertNothingServed()
        self.assertEqual(self.b.pool, self.row().host)
        self.assertRaises(cinder_exception.VolumeDriverException,
                          self.cloud.attach, self.volume, self.a)
        self.delete(self.volume)
        self.a.reboot()
        self.a.start()
        self.cloud.watch(3)
        self.assertNothingServed()

    def assertNothingServed(self):
        self.assertEqual(({}, {}), (self.a.kernel.devices,
                                    self.a.target.exports))
        self.assertEqual(['volume-' + self.volume.id], self.a.lvm.names())
