# SPDX-License-Identifier: Apache-2.0

import pathlib

from cinder.tests.unit import utils

from dmclone_driver.move import rpcapi
from dmclone_driver import steps
from tests.unit import base


class FlowsTestCase(base.CloudTestCase):
    """The steps of flows are reached in the documented order."""

    def setUp(self):
        super().setUp()
        self.seen = {}
        self.patch('dmclone_driver.steps.reached', new=self._reached)

    def _reached(self, step, row_id):
        side = steps.HOME if self.cloud.here is self.a else steps.PEER
        self.seen.setdefault((side, step))

    @staticmethod
    def of(points):
        """Return the steps of a flow for the kind of volumes here."""
        return points

    def assertSteps(self, *expected):
        self.cloud.watch(3)
        self.assertEqual(sum(map(self.of, expected), ()), tuple(self.seen))

    def migrate(self):
        """Attach the volume on both nodes; forget the steps."""
        self.cloud.attach(self.volume, self.a)
        self.cloud.attach(self.volume, self.b)
        self.assertEqual(steps.MIGRATE[:len(steps.PREPARE)], tuple(self.seen))
        self.seen.clear()

    def test_each_step_is_in_a_flow(self):
        self.assertEqual(set(steps.Step), {
            step for flow in steps.FLOWS.values()
            for side, step in steps.of_thin(flow)})

    def test_each_step_is_documented(self):
        page = (pathlib.Path(__file__).parents[2] /
                'doc/source/contributor/steps.rst').read_text()
        for step in steps.Step:
            self.assertRegex(page, r'(?i)(\* - |, |\*)%s\b' % step.value)

    def test_attach_away(self):
        self.cloud.attach(self.volume, self.b)
        self.assertSteps(steps.ATTACH_AWAY, steps.COMPLETE)

    def test_old_attachment_goes(self):
        self.migrate()
        self.cloud.detach(self.volume, self.a)
        self.assertSteps(steps.MOVE, steps.COMPLETE)

    def test_guest_writes(self):
        self.migrate()
        name, = self.b.clones()
        self.b.kernel.write(name)
        self.b.look()
        self.assertSteps(steps.MIGRATE[len(steps.PREPARE):], steps.COMPLETE)

    def test_new_attachment_goes(self):
        self.migrate()
        self.cloud.detach(self.volume, self.b)
        self.assertSteps(steps.ROLL_BACK)

    def test_clone_is_deleted(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        self.seen.clear()
        self.delete(self.volume)
        self.assertSteps(steps.DELETE_CLONE)

    def test_volume_with_a_snapshot(self):
        self.take_snapshot()
        self.cloud.attach(self.volume, self.b)
        self.assertSteps(steps.ATTACH_AWAY, steps.COMPLETE[
            :steps.COMPLETE.index(steps.KEEP[0])], steps.KEEP)

    def snapshot(self):
        return utils.create_snapshot(
            self.cloud.context, self.volume.id, status='available',
            volume_size=1, volume_type_id=self.volume.volume_type_id)

    def take_snapshot(self):
        """Take a snapshot on the first node; forget the steps."""
        taken = self.snapshot()
        with self.cloud.on(self.a):
            taken.update(self.a.driver.create_snapshot(taken))
        self.seen.clear()
        return taken

    def test_volume_from_a_snapshot(self):
        snapshot = self.take_snapshot()
        volume = utils.create_volume(
            self.cloud.context, host=self.b.pool, size=1,
            volume_type_id=self.volume.volume_type_id)
        with self.cloud.on(self.b):
            self.b.driver.create_volume_from_snapshot(volume, snapshot)
        self.cloud.watch(hydrate=False)
        self.assertEqual(self.of(steps.COPY), tuple(self.seen))

    def test_revert(self):
        taken = self.take_snapshot()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.cloud.detach(self.volume, self.b)
        with self.cloud.on(self.b):
            self.b.driver.create_snapshot(self.snapshot())
            self.seen.clear()
            self.b.driver.revert_to_snapshot(self.cloud.context, self.row(),
                                             taken)
        self.cloud.settle()
        self.cloud.watch(hydrate=False)
        self.assertEqual(self.of(steps.REVERT), tuple(self.seen))

    def test_snapshot_that_follows(self):
        snapshot = self.take_snapshot()
        snapshot.save()
        with self.cloud.on(self.b):
            rpcapi.PeerClient().take_along(self.cloud.context, self.b.host,
                                           snapshot.id)
        self.assertSteps(steps.COPY, steps.FOLLOW)

    def test_deferred_deletion(self):
        snapshot = self.take_snapshot()
        snapshot.save()
        self.cloud.attach(self.volume, self.b)
        self.cloud.watch(3)
        self.seen.clear()
        with self.cloud.on(self.b):
            self.b.driver.delete_snapshot(snapshot)
        snapshot.destroy()
        with self.cloud.on(self.a):
            self.a.driver.get_volume_stats(refresh=True)
        self.assertEqual(steps.PURGE, tuple(self.seen)[:2])

    def test_volume_is_deleted_while_it_is_read(self):
        self.cloud.attach(self.volume, self.b)
        self.cloud.detach(self.volume, self.b)
        name, = self.b.clones()
        copy = utils.create_volume(
            self.context, host=self.b.pool, volume_type_id=self.vt['id'])
        with self.cloud.on(self.b):
            copy.update(self.b.driver.create_cloned_volume(copy, self.row()))
        copy.save()
        self.seen.clear()
        self.delete(self.volume)
        self.assertEqual(steps.OUTLIVE[:1], tuple(self.seen))
        # The volume is complete before its clone.
        self.cloud.watch(1, hydrate=False)
        self.b.kernel.hydrate(name)
        self.cloud.watch(3, hydrate=False)
        self.assertEqual(steps.OUTLIVE, tuple(
            step for step in self.seen if step in steps.OUTLIVE))

    def test_volume_is_deleted(self):
        self.delete(self.volume)
        self.assertSteps(steps.DELETE)

    def test_volume_is_extended(self):
        with self.cloud.on(self.a):
            self.a.driver.extend_volume(self.row(), 2)
        self.assertSteps(steps.EXTEND)


class ThinFlowsTestCase(FlowsTestCase):
    """The same with thin volumes, of which only a part is copied."""

    KINDS = ('thin', 'thin')

    @staticmethod
    def of(points):
        if points is not steps.REVERT:
            return steps.of_thin(points)
        # The request for it does not wait for the marks.
        last = (steps.PEER, steps.Step.HYDRATING)
        return (*(point for point in points if point != last), *steps.MARKS,
                last)
