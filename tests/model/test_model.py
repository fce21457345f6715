# SPDX-License-Identifier: Apache-2.0
"""Random histories of a volume on simulated nodes, with random faults."""

import contextlib
import logging
import os
from unittest import mock

import hypothesis
from hypothesis.internal.conjecture import providers
from hypothesis import stateful
from hypothesis import strategies
import testtools

from tests.model import forgetful
from tests.model import hands
from tests.model import history
from tests.model import machine
from tests.model import snapshots

NODES = strategies.integers(0, 2)
ROWS = strategies.integers(0, 5)
BLOCKS = strategies.integers(0, machine.LENGTH - 1)
#: Of the histories, how many hundredths are run.
PERCENT = int(os.environ.get('DMCLONE_MODEL_PERCENT') or 100)
WHICH_ONE = strategies.integers(0, 2)
WHICH = strategies.sampled_from(((0,), (1,), (0, 1)))


def faults(steps):
    """Return the strategy for a fault, in one of so many steps, or None."""
    return strategies.none() | strategies.tuples(
        strategies.integers(0, steps),
        strategies.sampled_from(('kill', 'power')))


FAULTS = faults(60)

SETTINGS = hypothesis.settings(
    max_examples=1750, stateful_step_count=25, deadline=None, database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(hypothesis.HealthCheck))


class Rules(stateful.RuleBasedStateMachine):
    """The actions of which random histories consist."""

    HISTORY = history.History

    def __init__(self):
        super().__init__()
        self._stack = contextlib.ExitStack()
        self.history = self.HISTORY(
            lambda path, new: self._stack.enter_context(
                mock.patch(path, new=new)))
        self.plant(self._stack)

    def plant(self, stack):
        """Patch the driver; used by tests of the model."""

    def teardown(self):
        try:
            self.history.converge()
            self.history.delete()
        finally:
            self._stack.close()

    def node(self, number):
        return self.history.nodes[number]

    # Users

    @stateful.precondition(lambda self: len(self.history.attached) < 2)
    @stateful.rule(number=NODES, fault=FAULTS)
    def attach(self, number, fault):
        if self.node(number) not in self.history.attached:
            self.history.attach(self.node(number), fault)

    @stateful.precondition(lambda self: not self.history.attached)
    @stateful.rule(number=NODES, fault=FAULTS)
    def migrate(self, number, fault):
        self.history.migrate(self.node(number), fault)

    @stateful.precondition(lambda self: self.history.attached)
    @stateful.rule(first=strategies.booleans(), fault=FAULTS)
    def detach(self, first, fault):
        attached = list(self.history.attached)
        self.history.detach(attached[0 if first else -1], fault)

    # The guest

    @stateful.precondition(lambda self: self.history.guest and
                           not self.history.old_guest and
                           not self.history.write and
                           len(self.history.attached) == 2)
    @stateful.rule()
    def move_guest(self):
        old, node = self.history.attached
        # A migration back needs another attachment.
        path = self.history.attached[node].path
        if old is self.history.guest and node.kernel.get(path):
            self.history.move_guest(node)

    @stateful.precondition(lambda self: self.history.old_guest)
    @stateful.rule()
    def close_old(self):
        self.history.close_old()

    @stateful.precondition(lambda self: self.history.guest and
                           not self.history.write)
    @stateful.rule(block=BLOCKS)
    def write(self, block):
        self.history.begin_write(block)

    @stateful.precondition(lambda self: self.history.guest)
    @stateful.rule()
    def flush(self):
        self.history.flush()

    @stateful.precondition(lambda self: self.history.guest)
    @stateful.rule(block=BLOCKS)
    def read(self, block):
        self.history.read(block)

    # The nodes

    @stateful.rule(number=NODES, fault=FAULTS)
    def look(self, number, fault):
        if not self.node(number).down:
            self.history.look(self.node(number), fault)

    @stateful.rule(number=NODES, regions=WHICH)
    def hydrate(self, number, regions):
        for region in regions:
            self.history.hydrate(self.node(number), region)

    @stateful.precondition(lambda self: any(
        node.clones() for node in self.history.nodes))
    @stateful.rule(number=NODES, fails=strategies.booleans(), fault=FAULTS)
    def finish(self, number, fails, fault):
        """Hydrate everything; the metadata disk may fail at that moment."""
        self.hydrate(number, (0, 1))
        self.metadata_disk(number, fails)
        self.look(number, fault)

    @stateful.rule(number=NODES)
    def kill(self, number):
        self.node(number).stop()

    @stateful.rule(number=NODES)
    def cut_power(self, number):
        self.history.cut_power(self.node(number))

    @stateful.rule(number=NODES, fails=strategies.booleans())
    def metadata_disk(self, number, fails):
        self.node(number).kernel.metadata_fails = fails

    @stateful.rule(number=NODES, fault=FAULTS)
    def start(self, number, fault):
        if self.node(number).down:
            self.history.start(self.node(number), fault)


class SnapshotRules(Rules):
    """Additional actions: snapshots, and volumes made from them."""

    HISTORY = snapshots.History

    @stateful.initialize(number=NODES, block=BLOCKS,
                         stays=strategies.booleans())
    def has_snapshot(self, number, block, stays):
        """Begin with a snapshot, of a volume that hydrates or not."""
        node = self.node(number)
        self.history.attach(node)
        self.history.begin_write(block)
        self.history.snapshot(self.history)
        if not stays:
            self.history.detach(node)

    def of(self, which, found):
        """Return one of what was found; the newest is the most frequent."""
        return found[-1 - which % len(found)]

    def readable(self):
        """Return the snapshots that can be read."""
        return [each for each in self.history.snapshots if each.content and
                not each.merged]

    def used(self):
        """Return the copies that can be used."""
        return self.history.usable[1:]

    def idle(self):
        """Return the volumes that are not attached."""
        return [each for each in self.history.usable if not each.attached]

    def reverted(self):
        """Return the volumes that can be reverted to a snapshot."""
        return [each for each in self.idle() if any(
            self.history.snapshots_of(each)[-1:]) and
            self.history.snapshots_of(each)[-1].content]

    def deletable(self):
        """Return the copies that can be deleted."""
        return [each for each in self.history.copies if not (
            each.attached or self.history.snapshots_of(each))]

    def may_create(self):
        return len(self.history.copies) < 2

    @stateful.precondition(lambda self: len(self.history.snapshots) < 2)
    @stateful.rule(which=WHICH_ONE, fault=FAULTS)
    def snapshot(self, which, fault):
        self.history.snapshot(self.of(which, self.history.usable), fault)

    @stateful.precondition(lambda self: self.history.snapshots)
    @stateful.rule(which=WHICH_ONE, fault=FAULTS)
    def delete_snapshot(self, which, fault):
        self.history.delete_snapshot(
            self.of(which, self.history.snapshots), fault)

    @stateful.precondition(lambda self: self.may_create() and self.readable())
    @stateful.rule(which=WHICH_ONE, number=NODES,
                   more=strategies.integers(0, 1), fault=FAULTS)
    def copy(self, which, number, more, fault):
        self.history.copy(self.of(which, self.readable()), self.node(number),
                          more, fault)

    @stateful.precondition(lambda self: self.may_create())
    @stateful.rule(which=WHICH_ONE, more=strategies.integers(0, 1),
                   fault=FAULTS)
    def clone(self, which, more, fault):
        self.history.clone(self.of(which, self.history.usable), more, fault)

    @stateful.precondition(lambda self: self.may_create())
    @stateful.rule(which=WHICH_ONE, number=NODES, fault=FAULTS)
    def clone_of_peer(self, which, number, fault):
        self.history.clone_of_peer(self.of(which, self.history.usable),
                                   self.node(number), fault)

    @stateful.precondition(lambda self: self.deletable())
    @stateful.rule(which=WHICH_ONE, fault=FAULTS)
    def delete_copy(self, which, fault):
        self.history.delete_copy(self.of(which, self.deletable()), fault)

    @stateful.precondition(lambda self: self.reverted())
    @stateful.rule(which=WHICH_ONE, fault=FAULTS,
                   room=strategies.booleans())
    def revert(self, which, fault, room):
        self.history.revert(self.of(which, self.reverted()), fault, room)

    @stateful.precondition(lambda self: self.idle())
    @stateful.rule(which=WHICH_ONE, number=NODES, fault=FAULTS)
    def relocate(self, which, number, fault):
        self.history.relocate(self.of(which, self.idle()), self.node(number),
                              fault)

    @stateful.precondition(lambda self: self.history.snapshots)
    @stateful.rule(which=WHICH_ONE, number=NODES, fault=FAULTS)
    def take_along(self, which, number, fault):
        self.history.take_along(self.of(which, self.history.snapshots),
                                self.node(number), fault)

    @stateful.precondition(lambda self: self.used())
    @stateful.rule(which=WHICH_ONE, number=NODES, fault=FAULTS)
    def attach_copy(self, which, number, fault):
        copy = self.of(which, self.used())
        if not copy.attached:
            copy.attach(self.node(number), fault)

    @stateful.precondition(lambda self: any(
        each.attached for each in self.used()))
    @stateful.rule(fault=FAULTS)
    def detach_copy(self, fault):
        copy = next(each for each in self.used() if each.attached)
        copy.detach(next(iter(copy.attached)), fault)

    @stateful.precondition(lambda self: any(
        each.guest for each in self.used()))
    @stateful.rule(block=BLOCKS, flush=strategies.booleans())
    def use_copy(self, block, flush):
        for copy in self.used():
            if copy.guest:
                copy.read(block)
                if not copy.write:
                    copy.begin_write(block)
                if flush:
                    copy.flush()

    @stateful.rule(number=NODES, fault=FAULTS)
    def look_at_stats(self, number, fault):
        if not self.node(number).down:
            self.history.look_at_stats(self.node(number), fault)


class MovesOnRules(SnapshotRules):
    """The same, but a volume from a snapshot has moved on."""

    @stateful.initialize(first=NODES, second=NODES, block=BLOCKS,
                         writes=strategies.booleans(), fault=FAULTS)
    def has_snapshot(self, first, second, block, writes, fault):
        """Begin with a volume from a snapshot that moves, written or not."""
        self.history.snapshot(self.history)
        self.history.copy(self.history.snapshots[-1], self.node(first), 0)
        copy = self.history.copies[-1]
        if writes:
            copy.attach(self.node(first))
            copy.begin_write(block)
            copy.detach(self.node(first))
        self.history.relocate(copy, self.node(second), fault)


class SparseMovesOnRules(MovesOnRules):
    """The same, but what the snapshot has not allocated is marked."""

    HISTORY = snapshots.SparseHistory

    @stateful.initialize(second=NODES, block=BLOCKS,
                         writes=strategies.booleans(), marked=FAULTS,
                         fault=FAULTS)
    def has_snapshot(self, second, block, writes, marked, fault):
        """Begin with a volume that moves, after its gaps were marked.

        :param marked: the fault meanwhile
        """
        node = self.node(1)
        self.history.snapshot(self.history)
        self.history.copy(self.history.snapshots[-1], node, 0)
        self.history.look(node, marked)
        if node.down:
            self.history.start(node)
        copy = self.history.copies[-1]
        if writes:
            copy.attach(node)
            if copy.guest:
                copy.begin_write(block)
            copy.detach(node)
        self.history.relocate(copy, self.node(second), fault)


class ThinRules(SnapshotRules):
    """The same actions with thin volumes, but on one node."""

    HISTORY = snapshots.ThinHistory

    @stateful.rule(number=NODES, full=strategies.booleans())
    def fill_pool(self, number, full):
        self.history.fill_pool(self.node(number), full)


class RevertRules(SnapshotRules):
    """The same, but a volume that has moved was reverted."""

    @stateful.initialize(
        number=strategies.integers(1, 2), block=BLOCKS,
        back=strategies.booleans(), complete=strategies.booleans(),
        room=strategies.booleans(), fault=strategies.none() | FAULTS)
    def has_snapshot(self, number, block, back, complete, room, fault):
        """Begin with a revert of a volume that hydrates, or has done so.

        :param back: whether it is on the node of its snapshot again
        """
        self.history.snapshot(self.history)
        for node in (number, 0) if back else (number,):
            self.history.relocate(self.history, self.node(node))
            if complete:
                self.history.settle()
        home = self.history.home()
        self.history.attach(home)
        self.history.begin_write(block)
        self.history.flush()
        self.history.detach(home)
        self.history.revert(self.history, fault, room)


class DeletedRules(SnapshotRules):
    """The same, but a clone of the volume is cloned, and then deleted."""

    @stateful.initialize(
        number=NODES, moves=strategies.booleans(), block=BLOCKS,
        writes=strategies.booleans(), stays=strategies.booleans(),
        fault=strategies.none() | FAULTS)
    def has_snapshot(self, number, moves, block, writes, stays, fault):
        """Begin with a clone of a clone; delete that while both hydrate."""
        self.history.clone(self.history, 0)
        first, = self.history.copies
        if moves:
            self.history.relocate(first, self.node(number))
        if writes:
            home = first.home()
            first.attach(home)
            first.begin_write(block)
            first.detach(home)
        self.history.clone(first, 0)
        self.history.delete_copy(first, fault, stays)

    @stateful.precondition(lambda self: self.deletable())
    @stateful.rule(which=WHICH_ONE, fault=FAULTS)
    def delete_in_vain(self, which, fault):
        self.history.delete_copy(self.of(which, self.deletable()), fault,
                                 stays=True)

    @stateful.precondition(lambda self: self.deferred())
    @stateful.rule(which=WHICH_ONE)
    def reset(self, which):
        self.history.reset(self.of(which, self.deferred()))

    def deferred(self):
        """Return the volumes whose data clones still read."""
        return [each for each in self.history.copies
                if self.history.is_deferred(each)]


class SparseRules(Rules):
    """The same actions with thin volumes, which have gaps at first."""

    HISTORY = history.SparseHistory

    @stateful.initialize(number=NODES, block=BLOCKS,
                         writes=strategies.booleans())
    def is_used(self, number, block, writes):
        """Begin with some data on one node, and an attachment to another."""
        if writes:
            home = self.node(0)
            self.history.attach(home)
            self.history.begin_write(block)
            self.history.detach(home)
            self.history.attach(self.node(number))

    @stateful.rule(number=NODES)
    def commit_pools(self, number):
        self.node(number).kernel.commit_pools()
        self.history.check()


class FullRules(SparseRules):
    """The same, and pools fill before a copy or while it is made."""

    @stateful.initialize(number=NODES, block=BLOCKS,
                         before=strategies.booleans())
    def is_used(self, number, block, before):
        """Begin with some data, and a move to a pool that fills."""
        super().is_used(number, block, True)
        for full in (before, True):
            self.fill_pool(number, full)
            self.history.look(self.node(number))

    @stateful.rule(number=NODES, full=strategies.booleans())
    def fill_pool(self, number, full):
        """Fill a pool, perhaps with copies under way, or give it room."""
        self.history.fill_pool(self.node(number), full)
        if full:
            self.hydrate(number, (0, 1))


class HandsRules(Rules):
    """Additional actions: operators, lost answers, lagging databases."""

    HISTORY = hands.History

    @stateful.initialize(number=NODES, leaks=strategies.booleans())
    def is_used(self, number, leaks):
        """Start a guest, perhaps with a second record of its attachment."""
        self.history.attach(self.node(number))
        if leaks:
            self.history.leak(self.node(number), named=True)

    @stateful.rule(row=ROWS, status=strategies.sampled_from(
        ('available', 'error', 'in-use', 'error_deleting')))
    def reset_state(self, row, status):
        self.history.cloud.database.change(self._row(row), status=status)

    @stateful.rule(row=ROWS)
    def reset_migration_status(self, row):
        self.history.cloud.database.change(self._row(row),
                                           migration_status=None)

    def _row(self, number):
        rows = self.history.rows()
        return rows[number % len(rows)]

    @stateful.rule(old=NODES, new=NODES)
    def update_host(self, old, new):
        self.history.update_host(self.node(old), self.node(new))

    @stateful.precondition(lambda self: len(self.history.rows()) > 1)
    @stateful.rule(row=ROWS, fault=FAULTS)
    def delete_placeholder(self, row, fault):
        rows = self.history.rows()[1:]
        self.history.delete_placeholder(rows[row % len(rows)], fault)

    @stateful.rule(fault=FAULTS)
    def extend(self, fault):
        self.history.extend(fault)

    @stateful.precondition(lambda self: self.history.snapshots)
    @stateful.rule(fault=FAULTS)
    def delete_snapshot(self, fault):
        self.history.delete_snapshot(self.history.snapshots[0], fault)

    @stateful.precondition(lambda self: len(self.history.snapshots) < 2)
    @stateful.rule(fault=FAULTS)
    def snapshot(self, fault):
        self.history.snapshot(self.history, fault)

    @stateful.precondition(lambda self: len(self.history.hosts) > 1)
    @stateful.rule(host=ROWS)
    def save_retype(self, host):
        self.history.save_retype(
            self.history.hosts[host % len(self.history.hosts)])

    @stateful.rule(number=NODES, fault=FAULTS)
    def look_at_stats(self, number, fault):
        if not self.node(number).down:
            self.history.look_at_stats(self.node(number), fault)

    @stateful.rule(number=NODES, lags=strategies.booleans())
    def lag(self, number, lags):
        self.history.cloud.database.lagging.pop(self.node(number), None)
        if lags:
            self.history.cloud.database.lag(self.node(number))

    @stateful.precondition(lambda self: len(self.history.leaked) < 2)
    @stateful.rule(number=NODES, named=strategies.booleans(), fault=FAULTS)
    def leak(self, number, named, fault):
        self.history.leak(self.node(number), named, fault)

    @stateful.precondition(lambda self: self.history.leaked)
    @stateful.rule(fault=FAULTS)
    def delete_leaked(self, fault):
        self.history.delete_leaked(fault)


class PacedHistory(snapshots.History):
    """A history whose copies have to wait for each other."""

    COPIES, LOOKS = 1, 12


class PacedRules(SnapshotRules):
    """The same actions: each copy has its turn, whatever happens."""

    HISTORY = PacedHistory


class ForgetfulRules(Rules):
    """Additional actions: the database is restored to an older state."""

    HISTORY = forgetful.History

    @stateful.initialize(number=NODES)
    def has_moved(self, number):
        """Attach the volume, which creates rows that can be lost."""
        self.history.attach(self.node(number))

    @stateful.precondition(lambda self: self.history.newest is None and
                           len(self.history.truth.told) > 0)
    @stateful.rule(back=strategies.integers(1, 8))
    def forget(self, back):
        self.history.forget(back)

    @stateful.precondition(lambda self: self.history.newest is not None and
                           self.history.is_elsewhere())
    @stateful.rule(fault=FAULTS)
    def delete_in_vain(self, fault):
        self.history.delete_in_vain(fault)


class ModelTestCase(testtools.TestCase):
    """A test without the driver's log, which would be long."""

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)


def run(rules, seed, **changes):
    """Run histories that depend on nothing but their rules and a seed.

    Hypothesis also draws numbers that it has found in the files of a project.
    So each edit of any file would change all histories.

    :param changes: to the settings
    :raises Violation: of the first history that has one
    """
    seeded = hypothesis.seed(seed)(type('Seeded', (rules,), {}))
    nothing = providers.Constants()
    with mock.patch.object(providers, '_get_local_constants',
                           new=lambda: nothing):
        stateful.run_state_machine_as_test(
            seeded, settings=hypothesis.settings(SETTINGS, **changes))


class SeedTestCase(ModelTestCase):
    """Histories that only their seed determines."""

    def drawn(self, constants):
        """Return what is drawn in a project with some constants."""
        found = []

        class Draws(stateful.RuleBasedStateMachine):
            @stateful.rule(number=strategies.integers(0, 1000))
            def draw(self, number):
                found.append(number)
        providers.CONSTANTS_CACHE.cache.clear()
        with mock.patch.object(providers, '_get_local_constants',
                               new=lambda: constants):
            run(Draws, 1, max_examples=20)
        return found

    def test_files_of_the_project(self):
        some = providers.Constants()
        some.integers.add(789)
        self.assertEqual(self.drawn(providers.Constants()), self.drawn(some))


class Histories:
    """Run some random histories.

    Several classes of tests can run in parallel. The seeds are fixed, so that
    failures can be reproduced; another seed gives other histories.
    """

    RULES, SEED, NUMBER = Rules, None, SETTINGS.max_examples

    def test_histories(self):
        run(self.RULES, self.SEED, max_examples=self.NUMBER * PERCENT // 100)


class FirstHalfTestCase(Histories, ModelTestCase):
    SEED = 1


class SecondHalfTestCase(Histories, ModelTestCase):
    SEED = 2


class FirstSnapshotsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = SnapshotRules, 5, 600


class SecondSnapshotsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = SnapshotRules, 6, 600


class MovesOnTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = MovesOnRules, 7, 300


class SparseMovesOnTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = SparseMovesOnRules, 10, 200


class ThinTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = ThinRules, 7, 500


class SparseTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = SparseRules, 9, 400


class FullTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = FullRules, 11, 200


class PacedTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = PacedRules, 7, 300


class RevertsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = RevertRules, 8, 400


class DeletedTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = DeletedRules, 12, 300


class HandsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = HandsRules, 3, 900


class ForgetfulTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = ForgetfulRules, 4, 900


def _on_thin_nodes(rules):
    """Return rules for two nodes with thin pools, in which all has room."""
    class History(rules.HISTORY):
        KINDS = ('thin', 'thin', 'default')

    class Rules(rules):
        HISTORY = History
    return Rules


class ThinRevertsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = _on_thin_nodes(RevertRules), 13, 200


class ThinDeletedTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = _on_thin_nodes(DeletedRules), 14, 200


class ThinPacedTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = _on_thin_nodes(PacedRules), 15, 200


class ThinHandsTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = _on_thin_nodes(HandsRules), 16, 300


class ThinForgetfulTestCase(Histories, ModelTestCase):
    RULES, SEED, NUMBER = _on_thin_nodes(ForgetfulRules), 17, 300
