# SPDX-License-Identifier: Apache-2.0
"""Random lives of a volume, cut off anywhere, on a pretended world."""

import contextlib
import logging
from unittest import mock

import hypothesis
from hypothesis import stateful
from hypothesis import strategies
import testtools

from tests.model import history
from tests.model import machine

NODES = strategies.integers(0, 2)
BLOCKS = strategies.integers(0, machine.LENGTH - 1)
WHICH = strategies.sampled_from(((0,), (1,), (0, 1)))
FAULTS = strategies.none() | strategies.tuples(
    strategies.integers(0, 60), strategies.sampled_from(('kill', 'power')))

SETTINGS = hypothesis.settings(
    max_examples=5000, stateful_step_count=25, deadline=None, database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(hypothesis.HealthCheck))


class Life(stateful.RuleBasedStateMachine):
    """What can happen to a volume."""

    def __init__(self):
        super().__init__()
        self._stack = contextlib.ExitStack()
        self.history = history.History(
            lambda path, new: self._stack.enter_context(
                mock.patch(path, new=new)))
        self.plant(self._stack)

    def plant(self, stack):
        """Patch the driver; for tests of the model itself."""

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
        # A migration back would be an attachment of its own.
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
        """All is copied; perhaps the bitmap's disk fails just then."""
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


class ModelTestCase(testtools.TestCase):
    """A test in which the driver has much to complain of."""

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)


class Lives:
    """Half of the lives: a class of tests is what can run beside another.

    The seeds are fixed: what fails in one place fails in all. Others find
    other lives.
    """

    SEED = None

    def test_lives(self):
        seeded = hypothesis.seed(self.SEED)(type('Life', (Life,), {}))
        stateful.run_state_machine_as_test(seeded, settings=SETTINGS)


class FirstHalfTestCase(Lives, ModelTestCase):
    SEED = 1


class SecondHalfTestCase(Lives, ModelTestCase):
    SEED = 2
