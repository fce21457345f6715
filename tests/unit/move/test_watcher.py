# SPDX-License-Identifier: Apache-2.0
"""The checks of the watcher: their actions and their cost."""

from unittest import mock

import ddt

from dmclone_driver.move import activation
from dmclone_driver.move import arrival
from dmclone_driver.move import hydration
from dmclone_driver.move import jobs
from dmclone_driver.move import lookups
from dmclone_driver.move import placeholders
from dmclone_driver.move.placeholders import State
from dmclone_driver.move import records
from dmclone_driver.move import watcher
from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.devices import LocalVolume
from dmclone_driver.node.names import Names
from tests.unit import base

INTERVAL = 10


class WatcherTestCase(base.QueriesTestCase):

    def look(self, node=None, seconds=0):
        """Run one check; returns its steps and its queries."""
        self.cloud.pass_time(seconds)
        self.cloud.steps.start()
        self.queries.clear()
        self.interval = (node or self.b).look()
        return self.cloud.steps.log, self.queries

    def migrate(self, volume=None):
        volume = volume or self.volume
        self.cloud.attach(volume, self.a)
        path = self.cloud.attach(volume, self.b)
        return (Names(lookups.prepared_move(self.cloud.row(volume.id))),
                self.b.kernel.get(path), self.b.kernel.get(path + '-gate'))

    def assertOneLook(self, steps):
        self.assertEqual(1, len(steps), steps)
        self.assertIn('dm status', steps[0])


class CostTestCase(WatcherTestCase):

    def test_no_clones(self):
        """A check of any number of volumes needs no process and no query."""
        for _ in range(3):
            self.a.create()
        for seconds in (0, 10, 1000):
            steps, queries = self.look(self.a, seconds)
            self.assertOneLook(steps)
            self.assertEqual([], queries)
            self.assertEqual(INTERVAL, self.interval)

    def test_hydrating(self):
        self.cloud.attach(self.volume, self.b)
        steps, queries = self.look(seconds=1000)
        self.assertEqual([], queries)
        self.assertEqual(INTERVAL, self.interval)
        self.assertOneLook([step for step in steps if 'sysfs' not in step and
                            not step.endswith('lend')])

    def test_passive(self):
        """The database is queried less and less often, the kernel always.

        A flush that waits at the gate is not visible in either.
        """
        self.migrate()
        asked = 0
        for _ in range(100):
            steps, queries = self.look(seconds=1)
            asked += bool(queries)
            self.assertEqual(watcher.GATE_INTERVAL, self.interval)
        self.assertIn(asked, range(10, 15))

    def test_clones_of_others(self):
        self.cloud.attach(self.volume, self.b)
        device, = self.b.clones()
        for name in ('other', device + '-gate2'):
            self.b.kernel.devices[name] = self.b.kernel.devices[device]
        del self.b.kernel.devices[device]
        steps, queries = self.look(seconds=1000)
        self.assertOneLook(steps)
        self.assertEqual([], queries)


class WaitTestCase(WatcherTestCase):
    """The pause between two checks; a guest may wait for the next one."""

    def setUp(self):
        super().setUp()
        self.slept = []
        self.arrives = None
        self.patch('dmclone_driver.move.watcher.time', new=mock.Mock(
            sleep=self.sleep))
        self.events = self.patch('dmclone_driver.move.watcher.events')
        self.names, self.handle, gate = self.migrate()
        self.look()

    def sleep(self, seconds):
        self.slept.append(seconds)
        if len(self.slept) == self.arrives:
            self.b.kernel.write(self.names.path())

    def wait(self):
        watch = self.b.watcher
        with self.cloud.on(self.b):
            before = watch._writes()
            watch._wait(watch.look(), before)

    def test_request_is_under_way(self):
        """Nothing else tells the watcher that a gate is to be watched."""
        with self.b.backend.mark_busy(self.names):
            self.look()
            self.assertEqual(jobs.RETRY_FIRST, self.interval)
        self.look()
        self.assertEqual(watcher.GATE_INTERVAL, self.interval)

    def test_no_write(self):
        self.wait()
        self.assertEqual([watcher.GLANCE] * 10, self.slept)
        self.assertAlmostEqual(watcher.GATE_INTERVAL, sum(self.slept))
        self.events.wait.assert_not_called()

    def test_write(self):
        self.arrives = 3
        self.wait()
        self.assertEqual(3, len(self.slept))

    def test_write_during_the_check(self):
        look = self.b.watcher.look

        def late():
            interval = look()
            self.b.kernel.write(self.names.path())
            return interval

        with mock.patch.object(self.b.watcher, 'look', new=late):
            self.wait()
        self.assertEqual(1, len(self.slept))

    def test_write_that_waits_on(self):
        """It is looked at as often as the rest then."""
        with mock.patch.object(self.b.activation, 'activate'):
            self.b.kernel.write(self.names.path())
            self.wait()
        self.assertEqual(10, len(self.slept))

    def test_clone_is_removed(self):
        self.b.kernel.devices.clear()
        with self.cloud.on(self.b):
            self.assertEqual({}, self.b.watcher._writes())

    def test_without_closed_gates(self):
        with self.cloud.on(self.a):
            self.a.watcher._wait(INTERVAL, {})
        self.assertEqual([1], self.slept)
        self.events.wait.assert_called_once_with(INTERVAL)


class MemoryTestCase(WatcherTestCase):
    """The state about a clone is removed with the clone."""

    def assertForgotten(self, names):
        watch = self.b.watcher
        self.assertEqual([], [key for key in self.b.jobs.pauses._next
                              if names.name_id in str(key)])
        self.assertEqual(({}, {}, {}), (
            watch._hydration._progress, watch._troubles._reported,
            watch.sightings.clones))

    def test_old_attachment_goes(self):
        names, handle, gate = self.migrate()
        self.look()
        self.assertNotEqual({}, self.b.jobs.pauses._next)
        self.cloud.detach(self.volume, self.a)
        self.cloud.watch(4)
        self.assertForgotten(names)

    def test_volume_is_deleted(self):
        self.cloud.attach(self.volume, self.b)
        names = Names(self.row().name_id)
        self.cloud.detach(self.volume, self.b)
        self.look()
        self.assertNotEqual({}, self.b.watcher._hydration._progress)
        self.delete(self.volume)
        self.cloud.watch(2)
        self.assertForgotten(names)


class ResumeLeftTestCase(WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.handle = self.a.kernel.get('dmclone-' + self.volume.id)
        self.handle.suspended = True

    def test_volume_in_one_place(self):
        """It is resumed without a query, as after a killed extension."""
        steps, queries = self.look(self.a)
        self.assertFalse(self.handle.suspended)
        self.assertEqual([], queries)

    def test_complete_clone(self):
        self.handle.suspended = False
        path = self.cloud.attach(self.volume, self.b)
        self.b.kernel.hydrate(path)
        self.b.kernel.get(path).suspended = True
        self.look()
        self.cloud.settle()
        self.assertIdle(self.b)

    def test_cannot_be_resumed(self):
        """The watcher continues, and tries again at each check."""
        self.nobody_was_killed()
        with mock.patch('dmclone_driver.privsep.swaps.resume_left',
                        side_effect=OSError):
            steps, queries = self.look(self.a)
        self.assertOneLook(steps)
        self.look(self.a)
        self.assertFalse(self.handle.suspended)

    def nobody_was_killed(self):
        self.patch('dmclone_driver.privsep.swaps.were_killed',
                   return_value=False)

    def test_suspended_by_others(self):
        """All devices are looked at once in a while only."""
        self.nobody_was_killed()
        with mock.patch('dmclone_driver.node.devices.resume_left',
                        return_value=True) as resume:
            for _ in range(12):
                self.look(self.a, seconds=5)
        resume.assert_called_once_with()
        self.look(self.a, seconds=60)
        self.assertFalse(self.handle.suspended)


class PassiveTestCase(WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.names, self.handle, self.gate = self.migrate()

    def state(self):
        return placeholders.record_of(self.cloud.row(self.names.name_id)).state

    def test_untouched(self):
        self.look(seconds=1000)
        self.assertTrue(self.gate.suspended)
        self.assertEqual(State.PREPARED, self.state())
        self.assertEqual(self.a.pool, self.row().host)

    def test_waiting_write_switches_over_and_opens_the_gate(self):
        self.look()
        self.assertFalse(self.b.kernel.write(self.names.path()))
        self.look(seconds=0.25)
        self.assertEqual(self.b.pool, self.row().host)
        self.assertEqual(State.SWITCHED, self.state())
        self.assertFalse(self.gate.suspended)
        self.assertEqual(0, self.handle.clone.waiting)
        self.assertEqual(1, self.handle.clone.bitmap['hydrated'])

    def test_idle_look_of_the_kernel_is_no_write(self):
        """dm-clone's idle worker counts as a request for a moment."""
        self.handle.clone.waiting = 1
        clone = self.patch('dmclone_driver.node.devicemapper.dmsetup.clone')
        clone.return_value = status.CloneStatus(length=2097152, mode='rw',
                                                total=16384)
        self.look()
        self.assertEqual(State.PREPARED, self.state())
        self.assertTrue(self.gate.suspended)

    def test_waiting_write_is_looked_at_again_and_again(self):
        """It is retried at short intervals, also after a long outage."""
        self.b.kernel.write(self.names.path())
        with mock.patch('dmclone_driver.move.lookups.placeholder',
                        side_effect=OSError):
            for _ in range(100):
                self.look(seconds=1)
        for _ in range(arrival.RETRY_WRITE):
            self.look(seconds=1)
        self.assertFalse(self.gate.suspended)

    def test_old_home_is_sealed_before_the_gate_opens(self):
        """A paused guest on the old home does not prevent it."""
        home = self.a.kernel.get('dmclone-' + self.volume.id)
        home.opened = 1
        self.b.kernel.write(self.names.path())
        self.look_at_order(self.b, self.gate, home)
        self.assertFalse(self.handle.clone.hydration)

    def see_no_answer(self):
        self.b.kernel.write(self.names.path())
        with mock.patch(
                'dmclone_driver.move.activation.LOG.warning') as warning:
            self.look()
        self.assertFalse(self.gate.suspended)
        self.assertEqual(0, self.handle.clone.waiting)
        warning.assert_called_once()
        text = warning.call_args.args[0] % warning.call_args.args[1]
        self.assertIn('has not confirmed that it refuses writes', text)
        self.assertIn(self.a.host, text)

    def test_old_home_is_dead(self):
        self.a.stop()
        self.see_no_answer()
        self.a.start()
        self.cloud.watch(3)
        self.assertIdle(self.b)

    def test_old_home_fails_to_seal(self):
        with mock.patch('dmclone_driver.node.devices.LocalVolume.seal',
                        side_effect=OSError):
            self.see_no_answer()

    def test_message_bus_is_dead(self):
        """The call for the seal hangs; the gate opens after a timeout."""
        thread = self.patch('dmclone_driver.move.activation.threading').Thread
        self.see_no_answer()
        thread.return_value.join.assert_called_once_with(
            activation.SEAL_TIMEOUT)

    def test_gate_stays_closed_while_the_switchover_fails(self):
        """The pending write is kept until the commit succeeds."""
        self.b.kernel.write(self.names.path())
        with mock.patch('dmclone_driver.move.records.switch_over',
                        side_effect=RuntimeError):
            self.look()
        self.assertTrue(self.gate.suspended)
        self.assertEqual(1, self.handle.clone.waiting)
        self.look(seconds=10)
        self.assertFalse(self.gate.suspended)

    def test_switchover_is_found_in_the_database(self):
        self.look()
        records.switch_over(self.context, self.volume.id, self.names.name_id)
        self.cloud.pass_time(1000)
        self.look_at_order(self.b, self.gate, self.a.kernel.get(
            'dmclone-' + self.volume.id))
        self.assertTrue(self.b.kernel.write(self.names.path()))

    def test_switchover_is_found_at_once_when_a_write_waits(self):
        for _ in range(5):
            self.look(seconds=1000)
        records.switch_over(self.context, self.volume.id, self.names.name_id)
        self.b.kernel.write(self.names.path())
        self.look()
        self.assertFalse(self.gate.suspended)

    def test_write_before_the_attachment_is_complete(self):
        """The move is aborted: Nova formats an encrypted volume then.

        dm-clone has read the region from the source for this write.
        """
        self.cloud.set_attach_status(self.volume, self.b, 'attaching')
        self.handle.opened = 1
        self.b.kernel.write(self.names.path())
        self.look()
        self.assertEqual(State.ABORTED, self.state())
        self.assertEqual(0, self.handle.clone.waiting)
        self.cloud.set_attach_status(self.volume, self.b, 'attached')
        self.look(seconds=1000)
        self.assertEqual(State.ABORTED, self.state())
        self.assertTrue(self.a.kernel.write('dmclone-' + self.volume.id))
        self.handle.opened = 0
        self.look(seconds=1000)
        self.look(self.a, seconds=1000)
        self.cloud.detach(self.volume, self.b)
        self.assertIdle(self.a)

    def test_early_write_is_too_late(self):
        """The old home has switched over at the same moment."""
        self.cloud.set_attach_status(self.volume, self.b, 'attaching')
        self.b.kernel.write(self.names.path())
        abort = records.abort

        def too_late(context, volume_id, placeholder_id):
            records.switch_over(context, volume_id, placeholder_id)
            return abort(context, volume_id, placeholder_id)

        with mock.patch('dmclone_driver.move.records.abort', new=too_late):
            self.look()
        self.assertEqual(self.b.pool, self.row().host)
        self.assertFalse(self.gate.suspended)

    def test_write_and_the_attachment_was_deleted_behind_our_back(self):
        for record in self.row().volume_attachment:
            if record.connector['host'] == 'node2':
                record.destroy()
        self.b.kernel.write(self.names.path())
        self.look()
        self.look(self.a, seconds=1000)
        self.assertIdle(self.a)

    def test_aborted_and_written(self):
        """Pending writes fail, and the closed destination is removed."""
        self.handle.opened = 1
        self.b.kernel.write(self.names.path())
        records.abort(self.context, self.volume.id, self.names.name_id)
        self.look(seconds=1000)
        self.assertEqual(State.ABORTED, self.state())
        self.assertEqual(0, self.handle.clone.waiting)
        self.assertEqual(0, self.handle.clone.bitmap['hydrated'])
        self.assertTrue(self.gate.suspended)
        self.handle.opened = 0
        self.look(seconds=1000)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual([], self.b.lvm.names())
        self.assertEqual(self.a.pool, self.row().host)

    def test_aborted(self):
        records.abort(self.context, self.volume.id, self.names.name_id)
        self.look(seconds=1000)
        self.assertEqual({}, self.b.kernel.of_volumes())
        self.assertEqual({}, self.b.kernel.disks)
        self.assertEqual([], self.b.lvm.names())
        self.assertIsNone(self.cloud.row(self.names.name_id))

    def test_orphan_is_deleted_by_its_home(self):
        for record in self.row().volume_attachment:
            record.destroy()
        self.look(self.a, seconds=1000)
        self.assertIdle(self.a)

    def test_orphans_are_looked_for_each_minute(self):
        """The interval does not depend on the age of another move."""
        look = mock.Mock()
        self.a.prepared_moves.known.run = look
        for _ in range(600):
            self.look(self.a, seconds=6)
        self.assertIn(look.call_count, range(60, 70))


@ddt.ddt
class HydratingTestCase(WatcherTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.cloud.attach(self.volume, self.b)
        self.names = Names(self.row().name_id)
        self.handle = self.b.kernel.get(self.path)

    def test_complete(self):
        self.handle.opened += 1
        self.b.kernel.hydrate(self.path)
        self.look()
        self.assertEqual('linear', self.handle.kinds)
        self.assertFalse(self.handle.suspended)
        self.assertEqual(['/dev/volumes/volume-' + self.names.name_id],
                         self.handle.table[0].paths())
        self.assertIn(self.path, self.b.kernel.flushed)
        self.cloud.settle()
        self.assertIdle(self.b)
        self.assertEqual([], self.a.lvm.names())

    def older_source(self, state):
        """Return the source's row in an older state, None for no row."""
        row = self.cloud.row(self.names.name_id)
        if state is None:
            return None
        row.replication_driver_data = placeholders.record_of(
            row).but(state).text()
        return placeholders.Placeholder(row)

    @ddt.data(None, State.PREPARED, State.ABORTED)
    def test_complete_but_the_database_forgot_the_move(self, state):
        """The clone is kept until the row is back; it is logged once."""
        self.b.kernel.hydrate(self.path)
        older = self.older_source(state)
        log = self.patch('dmclone_driver.move.messages.LOG')
        with mock.patch('dmclone_driver.move.lookups.placeholder',
                        return_value=older):
            for _ in range(3):
                self.look(seconds=1000)
        (text, values), _ = log.error.call_args_list[0]
        self.assertEqual(1, log.error.call_count)
        self.assertEqual(self.volume.id, values['volume'])
        self.assertEqual('clone', self.handle.kinds)
        self.assertNotEqual({}, self.b.kernel.disks)
        self.assertIn(self.names.metadata, self.b.lvm.names())
        self.assertIn('volume-' + self.volume.id, self.a.lvm.names())
        self.cloud.watch(2)
        self.assertIdle(self.b)

    @ddt.data(None, State.PREPARED, State.ABORTED)
    def test_linear_but_the_database_forgot_the_move(self, state):
        self.b.kernel.hydrate(self.path)
        older = self.older_source(state)
        with mock.patch('dmclone_driver.privsep.block.flush_disk',
                        side_effect=OSError):
            self.look()
        self.assertEqual('linear', self.handle.kinds)
        with mock.patch('dmclone_driver.move.lookups.placeholder',
                        return_value=older):
            self.look(seconds=1000)
        self.assertNotEqual({}, self.b.kernel.disks)
        self.assertIn(self.names.metadata, self.b.lvm.names())
        self.cloud.watch(2)
        self.assertIdle(self.b)

    def test_incomplete(self):
        self.handle.clone.bitmap['hydrated'] = self.handle.clone.total - 1
        self.look()
        self.assertEqual('clone', self.handle.kinds)
        self.assertEqual([State.SWITCHED], self.cloud.states())

    def test_read_only_metadata(self):
        """After a failed commit the clone only seems to be complete."""
        self.b.kernel.hydrate(self.path)
        self.handle.clone.mode = 'ro'
        self.look()
        self.assertEqual('clone', self.handle.kinds)
        self.assertEqual([State.SWITCHED], self.cloud.states())
        self.assertIn('volume-' + self.volume.id, self.a.lvm.names())

    def test_trouble_is_told_once(self):
        for mode in ('ro', 'ro', 'Fail'):
            self.handle.clone.mode = mode
            self.look(seconds=1000)
        messages = self.cloud.messages()
        self.assertEqual([self.volume.id] * 2,
                         [message['resource_uuid'] for message in messages])
        self.assertEqual({self.volume.project_id},
                         {message['project_id'] for message in messages})

    def test_source_does_not_answer(self):
        """The call is retried less and less often, until it succeeds."""
        self.handle.clone.hydration = False
        self.a.stop()
        asked = 0
        for _ in range(100):
            steps, queries = self.look(seconds=1)
            asked += any('seal_source' in step for step in steps)
            self.assertEqual(1, self.interval)
        self.assertIn(asked, range(5, 9))
        self.assertFalse(self.handle.clone.hydration)
        self.a.start()
        self.look(seconds=1000)
        self.assertTrue(self.handle.clone.hydration)

    def test_longest_chain_is_first(self):
        """After a reboot the volume that needs the most nodes is first."""
        c = self.cloud.add('node3')
        names = {}
        for length, nodes in ((2, [c]), (3, [c, self.a])):
            volume = self.a.create()
            for node in (*nodes, self.b):
                self.cloud.attach(volume, node)
                self.cloud.detach(volume, node)
            names[self.cloud.row(volume.id).name_id] = length
        names[self.row().name_id] = 1
        for name in self.b.clones():
            self.b.kernel.get(name).clone.hydration = False
        steps, queries = self.look(seconds=1000)
        self.assertEqual([3, 2, 1], [
            length for step in steps if 'enable_hydration' in step
            for name_id, length in names.items() if name_id in step])

    def test_source_is_known_to_be_down(self):
        """It is not called; hydration begins at its start."""
        self.look()
        self.a.die()
        for _ in range(3 * hydration.STALLED // 10):
            self.assertEqual([], self.asked())
        self.assertFalse(self.handle.clone.hydration)
        self.a.start()
        self.cloud.settle()
        self.assertTrue(self.handle.clone.hydration)

    def asked(self):
        """Run one check; return the calls of the old home."""
        steps, queries = self.look(seconds=10)
        return [step.split()[-1] for step in steps
                if 'ask' in step and not step.endswith('lend')]

    def test_source_is_served_again_if_nothing_comes(self):
        """Its target may have been restarted: it is exported again."""
        self.look()
        self.a.target.exports.clear()
        asked = sum((self.asked() for _ in range(
            hydration.STALLED // 10)), [])
        self.assertEqual(['export_source'], asked)
        self.assertEqual(1, len(self.a.target.exports))
        # The next checks do not repeat this; hydration begins again.
        self.assertFalse(self.handle.clone.hydration)
        self.assertEqual(['seal_source'], self.asked())
        self.assertTrue(self.handle.clone.hydration)

    def test_source_is_not_asked_for_while_something_comes(self):
        self.look()
        for copied in range(2 * hydration.STALLED // 10):
            self.handle.clone.bitmap['hydrated'] = copied
            self.assertEqual([], self.asked())

    def test_old_home_is_away_and_nothing_comes(self):
        self.look()
        self.a.stop()
        with mock.patch('dmclone_driver.move.messages.LOG.error') as error:
            self.wait_until_stalled()
        self.assertIn(self.a.host, str(error.call_args_list))

    def wait_until_stalled(self, times=1):
        for _ in range(times * (2 + hydration.STALLED // 10)):
            self.look(seconds=10)

    def test_user_is_told_that_nothing_comes(self):
        """There is one message per stall, with hydration on or off."""
        for begun in (True, False):
            self.handle.clone.hydration = begun
            self.handle.clone.bitmap['hydrated'] += 1
            self.look()
            self.a.stop()
            self.wait_until_stalled(3)
            self.assertEqual(
                [self.volume.id] * (1 if begun else 2),
                [row['resource_uuid'] for row in self.cloud.messages()])

    def test_hydration_has_begun_since_the_look(self):
        """Hydration is not started if it is on, or if it has ended."""
        stale = status.CloneStatus(length=2097152, mode='rw', region=128,
                                   total=16384)
        clones = self.patch('dmclone_driver.node.devicemapper.dmsetup.clones')
        clones.return_value = {self.names.of('handle'): stale}
        for end in (False, True):
            if end:
                self.b.kernel.hydrate(self.path)
                with self.cloud.on(self.b):
                    LocalVolume(self.names).make_linear(
                        self.b.backend.logical_volume(self.names))
            steps, _ = self.look(seconds=1000)
            self.assertEqual([], [step for step in steps
                                  if 'message' in step])

    def test_deleted_before_hydration_starts(self):
        """That is no failure, of which the log would have a traceback."""
        self.cloud.detach(self.volume, self.b)
        placeholder = lookups.placeholder(self.context, self.names.name_id)

        def make(*args):
            self.delete(self.volume)
            return True
        with self.cloud.on(self.b), mock.patch.object(
                self.b.activation._marks, 'make', make):
            self.assertTrue(self.b.activation.hydrate(
                self.context, self.names, placeholder))
        self.assertEqual([], self.b.lvm.names())

    def test_broken_clone_does_not_stop_the_others(self):
        other = self.a.create()
        path = self.cloud.attach(other, self.b)
        for clone in (self.path, path):
            self.b.kernel.hydrate(clone)
        broken = min(self.path, path)
        del self.b.kernel.devices[
            broken.removeprefix('/dev/mapper/') + '-gate']
        self.look()
        self.assertEqual('linear', self.b.kernel.get(
            max(self.path, path)).kinds)
        self.assertEqual('clone', self.b.kernel.get(broken).kinds)

    def test_source_is_released_when_its_node_is_back(self):
        self.b.kernel.hydrate(self.path)
        self.a.stop()
        self.look()
        self.assertEqual([State.RELEASED], self.cloud.states())
        self.assertEqual('linear', self.handle.kinds)
        self.a.start()
        self.cloud.watch()
        self.assertIdle(self.b)


class StalledTestCase(WatcherTestCase):
    """The detection of stalled clones, with busy guests."""

    def setUp(self):
        super().setUp()
        path = self.cloud.attach(self.volume, self.b)
        self.handle = self.b.kernel.get(path)
        self.clone = self.handle.clone
        self.batch = self.clone.batch
        self.assertGreater(self.batch, 1)
        self.asked = []

    def pass_time(self, seconds, requests=0, regions=0, copying=()):
        """Run a check every ten seconds.

        :param requests: requests of the guest before each check
        :param regions: hydrated regions before each check
        :param copying: numbers of running copies at the checks, in turn
        """
        for number in range(seconds // 10):
            self.handle.requests += requests
            self.clone.bitmap['hydrated'] += regions
            if copying:
                self.clone.waiting = copying[number % len(copying)]
            steps, _ = self.look(seconds=10)
            self.asked += [step.split()[-1] for step in steps
                           if 'ask' in step and not step.endswith('lend')]

    def assertNotStalled(self):
        self.assertTrue(self.clone.hydration)
        self.assertEqual(self.batch, self.clone.batch)
        self.assertEqual([], self.asked)
        self.assertEqual([], self.cloud.messages())

    def assertStalled(self):
        self.assertEqual(1, len(self.cloud.messages()))
        self.assertIn('export_source', self.asked)

    def test_busy_for_an_hour(self):
        with mock.patch.multiple('dmclone_driver.move.hydration.LOG',
                                 **dict.fromkeys(('info', 'warning', 'error',
                                                  'exception'),
                                                 mock.DEFAULT)) as log:
            self.pass_time(3600, requests=1)
        self.assertEqual([], [call for level in log.values()
                              for call in level.mock_calls])
        self.assertNotStalled()

    def test_busy_now_and_then(self):
        """Copies begin in idle moments, and end before the next check."""
        self.pass_time(600, requests=1, copying=(1, 1, 0))
        self.assertNotStalled()

    def test_request_that_waits(self):
        """A request waits for the source: the clone counts as stalled."""
        self.pass_time(10, requests=1)
        self.pass_time(hydration.STALLED)
        self.assertStalled()

    def test_copies_that_do_not_end(self):
        """The clone counts as stalled, also with a busy guest."""
        self.pass_time(10 + hydration.STALLED, requests=9, copying=(3,))
        self.assertStalled()

    def test_paused(self):
        """Other guests use the node: the copy waits for its turn."""
        self.clone.threshold = 0
        self.pass_time(600)
        self.assertNotStalled()

    def test_paused_with_copies_that_do_not_end(self):
        self.clone.threshold = 0
        self.pass_time(10 + hydration.STALLED, copying=(3,))
        self.assertStalled()

    def test_idle_guest(self):
        self.pass_time(10 + hydration.STALLED)
        self.assertStalled()
        self.assertEqual(1, self.clone.batch)

    def test_busy_guest_and_a_source_that_is_away(self):
        """Hydration is off: only the unreachable source is reported."""
        self.clone.hydration = False
        self.a.stop()
        self.pass_time(10 + hydration.STALLED, requests=1)
        self.assertEqual(1, len(self.cloud.messages()))

    def test_batches_come_back(self):
        """They are used again after copies of single regions."""
        self.test_idle_guest()
        self.pass_time(2 * hydration.STALLED, regions=1)
        self.assertEqual(self.batch, self.clone.batch)
        self.assertTrue(self.clone.hydration)

    def test_batches_do_not_come_back_for_nothing(self):
        self.test_idle_guest()
        self.pass_time(10 * hydration.STALLED)
        self.assertEqual(1, self.clone.batch)

    def test_batches_come_back_after_a_start(self):
        """The watcher reads the present batch size from the kernel."""
        self.test_idle_guest()
        self.b.stop()
        self.b.start()
        self.cloud.settle()
        self.pass_time(10 + hydration.STALLED, regions=1)
        self.assertEqual(self.batch, self.clone.batch)

    def test_batches_stay_if_the_source_does_not_answer(self):
        self.a.stop()
        self.pass_time(10 + hydration.STALLED)
        self.assertFalse(self.clone.hydration)
        self.assertEqual(self.batch, self.clone.batch)

    def test_batches_come_back_after_an_outage(self):
        """They are used again, since the outage was the cause."""
        self.test_idle_guest()
        self.a.stop()
        self.pass_time(10)
        self.a.start()
        self.pass_time(30)
        self.assertTrue(self.clone.hydration)
        self.assertEqual(self.batch, self.clone.batch)


@ddt.ddt
class CompletionFailsTestCase(WatcherTestCase):
    """A completion with a failed step is continued by a later check."""

    def before(self, volume):
        self.path = self.cloud.attach(volume, self.b)
        self.b.kernel.hydrate(self.path)

    def act(self, volume):
        self.b.look()
        self.cloud.settle()

    def check(self, **fault):
        wrong = {}
        for step, volume, _error in self.each_step(self.act, self.before,
                                                   **fault):
            self.cloud.watch(3)
            left = self.cloud.leftovers()
            if left or self.cloud.row(volume.id).host != self.b.pool:
                wrong[step] = left
        self.assertEqual({}, wrong)

    @ddt.data(False, True)
    def test_step_fails(self, after):
        self.check(after=after)
