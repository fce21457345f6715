# SPDX-License-Identifier: Apache-2.0
"""Actions of the driver while the session to a source is lost."""

from unittest import mock

import ddt

from dmclone_driver.move import jobs
from dmclone_driver.move import outages
from dmclone_driver.move import records
from dmclone_driver.node.names import Names
from dmclone_driver.node.names import SOURCE
from tests.unit import base

INTERVAL = 10


class OutageTestCase(base.CloudTestCase):

    def look(self, node=None, seconds=0):
        """Run one check; returns its steps."""
        self.cloud.pass_time(seconds)
        self.cloud.steps.start()
        self.interval = (node or self.b).look_at_sessions()
        return list(self.cloud.steps.log)

    def attach(self, volume=None):
        """Attach a volume away; returns the names of its devices there."""
        volume = volume or self.volume
        self.cloud.attach(volume, self.b)
        return Names(self.cloud.row(volume.id).name_id)

    def lose(self, *nodes):
        """Lose the sessions to all sources."""
        self.b.kernel.lost.update(self.b.kernel.disks)

    def source(self, names, node=None):
        return (node or self.b).kernel.get(names.path(SOURCE))

    @staticmethod
    def others(steps):
        """Return the steps without reads of sysfs."""
        return [step for step in steps if 'sysfs' not in step]

    @staticmethod
    def asked(steps):
        return len([step for step in steps if 'export_source' in step])


class CostTestCase(OutageTestCase):

    def test_no_clones(self):
        self.assertEqual([], self.look(self.a))
        self.assertEqual(INTERVAL, self.interval)

    def test_all_is_well(self):
        """Without an outage a check of clones needs no process and no RPC."""
        for _ in range(3):
            self.attach(self.a.create())
        with mock.patch('dmclone_driver.move.outages.lookups', new=None):
            self.assertEqual([], self.others(self.look(seconds=1000)))
        self.assertEqual(outages.INTERVAL, self.interval)


@ddt.ddt
class HoldTestCase(OutageTestCase):

    def setUp(self):
        super().setUp()
        self.names = self.attach()
        self.shim = self.names.of(SOURCE)

    def test_nothing_waits(self):
        self.lose()
        self.look()
        self.assertEqual([], self.b.kernel.held)

    def test_requests_wait(self):
        self.b.kernel.stuck[self.shim] = 3
        self.look()
        self.assertEqual([], self.b.kernel.held)
        self.lose()
        self.look()
        self.assertEqual([self.shim], self.b.kernel.held)

    def test_another_clone_is_not_held(self):
        other = self.attach(self.a.create())
        self.b.kernel.stuck.update({self.shim: 3, other.of(SOURCE): 3})
        self.b.kernel.lost.update(
            disk for disk in self.b.kernel.disks if self.volume.id in disk)
        self.look()
        self.assertEqual([self.shim], self.b.kernel.held)

    @ddt.data(True, False)
    def test_service_was_killed_between_suspend_and_resume(self, lost):
        self.source(self.names).suspended = True
        if lost:
            self.lose()
        self.look()
        self.assertFalse(self.source(self.names).suspended)

    def test_source_that_is_not_connected_yet_waits(self):
        """It is not resumed, since its error target would fail requests."""
        self.a.stop()
        self.b.reboot()
        self.b.start()
        for _ in range(3):
            self.look(seconds=1000)
        self.assertTrue(self.source(self.names).suspended)
        self.assertEqual('error', self.source(self.names).kinds)

    def test_one_that_goes_in_the_middle(self):
        other = self.attach(self.a.create())
        self.lose()
        self.b.kernel.stuck.update({self.shim: 3, other.of(SOURCE): 3})
        in_flight = self.b.kernel._in_flight

        def gone(name):
            if name == self.shim:
                raise FileNotFoundError(name)
            return in_flight(name)

        with mock.patch.object(self.b.kernel, '_in_flight', new=gone):
            self.look()
        self.assertEqual([other.of(SOURCE)], self.b.kernel.held)

    def test_hold_fails(self):
        """It is retried, and the source's node is called all the same."""
        self.lose()
        self.b.kernel.stuck[self.shim] = 3
        with mock.patch.object(self.b.kernel, 'hold', side_effect=OSError):
            self.assertEqual(1, self.asked(self.look()))
        self.look(seconds=1)
        self.assertEqual([self.shim], self.b.kernel.held)


@ddt.ddt
class AskTestCase(OutageTestCase):

    def restart_target(self):
        """Restart the target's service of the source's node."""
        self.a.target.reboot()

    def exported(self):
        return [initiator for path, initiator, auth in
                self.a.target.exports.values()]

    @ddt.data(True, False)
    def test_target_was_restarted(self, switched):
        """The source is exported again, also before the switchover."""
        if not switched:
            self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.restart_target()
        self.assertEqual(1, self.asked(self.look()))
        self.assertEqual([self.b.initiator], self.exported())
        self.assertEqual(0, self.asked(self.look(seconds=1000)))
        self.assertEqual(set(), self.b.outages.lost)

    def test_target_starts_later(self):
        self.attach()
        self.restart_target()
        with mock.patch.object(self.a.target, 'export',
                               side_effect=RuntimeError):
            asked = [second for second in range(60)
                     if self.asked(self.look(seconds=1))]
        gaps = [after - before for before, after in
                zip(asked, asked[1:], strict=False)]
        self.assertEqual([1, 2, 4, 8], gaps[:4])
        self.assertEqual({jobs.RETRY_WAITING}, set(gaps[4:]))
        self.look(seconds=jobs.RETRY_WAITING)
        self.assertEqual([self.b.initiator], self.exported())

    def test_next_outage_begins_with_a_short_pause(self):
        self.attach()
        for _ in range(2):
            self.restart_target()
            self.assertEqual(1, self.asked(self.look(seconds=1)))
            self.look(seconds=1)

    def test_node_that_does_not_answer_is_asked_once(self):
        for _ in range(3):
            self.attach(self.a.create())
        self.restart_target()
        self.a.stop()
        self.assertEqual(1, self.asked(self.look()))

    def test_source_that_cannot_be_served_does_not_hold_up_another(self):
        for _ in range(3):
            self.attach(self.a.create())
        self.restart_target()
        with mock.patch.object(self.a.target, 'export',
                               side_effect=RuntimeError):
            self.assertEqual(3, self.asked(self.look()))

    def test_looks_go_on_while_a_node_is_asked(self):
        self.attach()
        self.restart_target()
        run = self.b.jobs.run
        self.b.jobs.run = mock.Mock()
        for _ in range(3):
            self.assertEqual(0, self.asked(self.look(seconds=100)))
        self.b.jobs.run.assert_called_once()
        with self.cloud.on(self.b):
            run(*self.b.jobs.run.call_args.args)
        self.assertEqual([self.b.initiator], self.exported())

    def test_clone_that_has_gone(self):
        names = self.attach()
        self.lose()
        self.look()
        self.assertEqual({names}, self.b.outages.lost)
        self.cloud.detach(self.volume, self.b)
        self.delete(self.volume)
        self.look()
        self.assertEqual(set(), self.b.outages.lost)
        self.assertEqual({}, self.b.jobs.pauses._next)

    def test_source_that_is_not_needed(self):
        """The node of a released source is not called."""
        names = self.attach()
        records.release(self.context, names.name_id)
        self.lose()
        self.assertEqual(0, self.asked(self.look()))


class HydrationTestCase(OutageTestCase):
    """The watcher during an outage."""

    def setUp(self):
        super().setUp()
        self.names = self.attach()
        self.handle = self.b.kernel.get(self.names.path())

    def watch(self, seconds=1):
        self.cloud.pass_time(seconds)
        self.b.look_at_sessions()
        self.b.look()

    def test_no_copy_begins(self):
        self.handle.clone.hydration = False
        self.lose()
        for _ in range(20):
            self.watch(seconds=100)
        self.assertFalse(self.handle.clone.hydration)
        self.b.kernel.lost.clear()
        self.watch()
        self.assertTrue(self.handle.clone.hydration)

    def test_complete_while_a_read_waits(self):
        """It stays a clone: a suspend would wait for the read."""
        self.handle.clone.bitmap['hydrated'] = self.handle.clone.total
        self.b.kernel.stuck[self.names.of(SOURCE)] = 1
        self.lose()
        self.watch()
        self.assertEqual('clone', self.handle.kinds)
        self.b.kernel.stuck.clear()
        self.watch()
        self.assertEqual('linear', self.handle.kinds)

    def test_complete_while_a_read_is_on_its_way(self):
        """Its session may be lost without a sign of it yet."""
        self.handle.clone.bitmap['hydrated'] = self.handle.clone.total
        self.b.kernel.stuck[self.names.of(SOURCE)] = 1
        self.watch()
        self.assertEqual('clone', self.handle.kinds)
        self.b.kernel.stuck.clear()
        self.watch()
        self.assertEqual('linear', self.handle.kinds)
