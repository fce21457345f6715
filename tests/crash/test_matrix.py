# SPDX-License-Identifier: Apache-2.0
"""Faults of each kind at each step of each flow, on real nodes.

A reboot takes a minute. So a fault is injected once per kind, with one volume
stopped at each step.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import threading
import time

from dmclone_driver.node.devicemapper import status
from dmclone_driver.node.names import Names
from dmclone_driver.steps import Step
from lab import errors
from lab import paths
from lab import wait
from tests.crash import base
from tests.crash import cases
from tests.crash import cuts
from tests.crash import flows
from tests.crash import stops
from tests.crash import table

#: The folder of the results, with one file per kind of fault.
TIMES = pathlib.Path(os.environ.get('DMCLONE_CRASH_TIMES') or
                     paths.STATE / 'crash-times')

#: Maximum of flows that begin at a time.
AT_ONCE = 4
#: Seconds until volumes have to be at their steps.
TO_STOP = 120
#: Mbit/s that the peer receives while some volumes hydrate.
SLOW = 2
#: Seconds from a fault until all volumes have to converge: a minute without
#: network, the pauses between retries at that time, and the timeout of a
#: preparation without an answer.
TO_CONVERGE = 420
#: The faults after which Cinder cannot continue by itself: an operator may
#: have to reset a volume that is being deleted, as with other drivers.
CINDER_STUMBLES = ('home off the network', 'rabbitmq', 'mariadb')


class MatrixTest(base.StoppingTest):
    """All volumes converge, and no data is lost."""

    #: {flow: its steps}
    FLOWS = flows.MOVES
    #: What is added to the name of a cut in the results.
    SUFFIX = ''

    def setUp(self):
        super().setUp()
        TIMES.mkdir(parents=True, exist_ok=True)
        self.cut_over = threading.Event()

    def test_home_killed(self):
        self.cut('home killed')

    def test_peer_killed(self):
        self.cut('peer killed')

    def test_home_off(self):
        self.cut('home off')

    def test_peer_off(self):
        self.cut('peer off')

    def test_no_network_between(self):
        self.cut('no network between')

    def test_home_off_the_network(self):
        self.cut('home off the network')

    def test_rabbitmq(self):
        self.cut('rabbitmq')

    def test_mariadb(self):
        self.cut('mariadb')

    def cut(self, kind):
        """Inject a fault with one volume at each step; check all volumes."""
        all_cases = flows.all_of(
            flows.of_kind(self.FLOWS, self.lab.settings.thin), self.user,
            self.home, self.peer)
        if not all_cases:
            self.skipTest('no flow of this test is chosen')
        self.create(all_cases)
        originals = self.fill(all_cases)
        self.at_once((case.before for case in all_cases), AT_ONCE)
        with concurrent.futures.ThreadPoolExecutor(
                len(all_cases), initializer=self.lab.enter) as pool:
            try:
                with contextlib.ExitStack() as cut:
                    with contextlib.ExitStack() as slow:
                        self.stop(all_cases, pool, slow)
                        begun = time.monotonic()
                        cut.enter_context(cuts.CUTS[kind](
                            self.lab, self.home, self.peer))
                    stops.go_on(base.FOLDER)
            finally:
                stops.go_on(base.FOLDER)
                self.cut_over.set()
            self.converge(kind, all_cases, begun)
        try:
            self.compare(kind, all_cases, originals)
            self.at_rest()
        finally:
            self.write_down(kind, all_cases)
        self.at_once((case.leave for case in all_cases), AT_ONCE)
        # Before a start of the services, which could remove leftovers.
        self.nothing_left(base.TO_PREPARE)

    def stop(self, all_cases, pool, slow):
        """Begin all flows, and wait until each volume is at its step.

        :param slow: exit stack for the time in which volumes hydrate
        """
        for case in all_cases:
            stops.stop_at(base.FOLDER, case.volume_id, case.step,
                          case.node.name)
        for stage in cases.Stage:
            if stage is cases.Stage.PREPARES:
                preparing = time.monotonic()
            elif stage is cases.Stage.COPIES:
                slow.enter_context(self.slow_network(self.peer, SLOW))
            self.begin([case for case in all_cases if case.stage is stage],
                       pool)
        with self.subTest('all volumes are at their steps'):
            for case in all_cases:
                case.proven = self.is_at_its_step(case)
                if not case.proven:
                    self.say(case, 'is not at its step')
            self.assertEqual([], [case.name for case in all_cases
                                  if not case.proven])
            self.assertLess(time.monotonic() - preparing, base.TO_PREPARE)

    def begin(self, some_cases, pool):
        """Begin flows, some at a time, and wait until they are stopped."""
        begun = []

        def on_their_way():
            return [case for case in begun
                    if not stops.stopped(base.FOLDER, case.volume_id)]
        try:
            for case in some_cases:
                begun.append(case)
                pool.submit(self.go_through, case)
                wait.until(lambda: len(on_their_way()) < AT_ONCE, 'steps',
                           TO_STOP)
            wait.until(lambda: not on_their_way(), 'steps', TO_STOP)
        except errors.LabError as error:
            for case in on_their_way():
                self.say(case, error)

    def is_at_its_step(self, case):
        """Return whether a volume is at its step, and not beyond.

        A hydration must not have ended. The guest's write to a complete volume
        has to be on the disk. A clone that is deleted must not have been
        complete.
        """
        if not stops.stopped(base.FOLDER, case.volume_id):
            return False
        if isinstance(case, cases.DeletionOfClone):
            return case.was_clone
        if case.step is Step.HYDRATING:
            path = Names(self.name_ids()[case.volume_ids[-1]]).path()
            clone = status.clone(self.clone_status(self.peer, path))
            return clone.hydration and clone.hydrated < clone.total
        return (not case.WRITTEN or
                stops.durable(base.FOLDER, case.volume_id))

    def name_ids(self):
        """Return {volume id: name id}."""
        return dict(self.lab.sql("SELECT id, COALESCE(_name_id, id) FROM "
                                 "volumes WHERE deleted = 0"))

    def go_through(self, case):
        """Run a case as Nova and the user do."""
        try:
            case.act()
            case.answered = True
        except Exception as error:
            self.say(case, error)
        self.cut_over.wait()
        end = time.monotonic() + TO_CONVERGE
        while not case.over and time.monotonic() < end:
            try:
                case.afterwards()
                case.over = True
            except Exception as error:
                self.say(case, repr(error))
                time.sleep(5)

    def say(self, case, *words):
        """Log details that explain a failure."""
        name = '.'.join(self.id().split('.')[-2:])
        with open(TIMES / (name + '.log'), 'a') as f:
            print('%.1f' % time.monotonic(), case.name, case.volume_id,
                  *words, file=f)

    def converge(self, kind, all_cases, begun):
        """Wait until each volume is in one place, and record the times.

        A write that the guest has begun has to be acknowledged, unless the
        guest's node was off.
        """
        def converged():
            states = self.states()
            for case in all_cases:
                if (case.took is None and case.over and
                        self.is_well(case, states) and
                        (kind == 'peer off' or not case.wrote or
                         stops.durable(base.FOLDER, case.volume_id))):
                    case.took = time.monotonic() - begun
            return all(case.took for case in all_cases)
        try:
            wait.until(converged, 'all volumes to converge',
                       begun + TO_CONVERGE - time.monotonic())
        except errors.LabError:
            for case in all_cases:
                if case.took is None:
                    self.say(case, self.states().get(case.volume_id))

    @staticmethod
    def is_well(case, states):
        if case.GOES and states.get(case.volume_id):
            return False
        return all(
            [(row[1] in ('available', 'in-use'), row[3] or None)
             for row in states.get(volume_id, [])] == [(True, None)]
            for volume_id in case.volume_ids)

    def compare(self, kind, all_cases, originals):
        """Check that each case converged, and that all data is there."""
        acknowledged = {case for case in all_cases if
                        stops.durable(base.FOLDER, case.volume_id)}
        now = self.parts()
        checks = self.checks_of(all_cases, originals)
        for case in all_cases:
            with self.subTest(case.name):
                # False until all checks have passed.
                cut_off, case.proven = case.proven, False
                self.assertIsNotNone(case.took, 'has not converged')
                self.assertFalse(case.by_hand and not case.stumbles(kind) and
                                 kind not in CINDER_STUMBLES)
                if not case.GOES:
                    self.compare_parts(originals[case.volume_id],
                                       now[case.volume_id],
                                       self.written(case.volume_id),
                                       case in acknowledged)
                checks[case].result()
                case.proven = cut_off

    def checks_of(self, all_cases, originals):
        """Return {case: the future of its own check}, when all have ended.

        Many create a volume from a snapshot.
        """
        with concurrent.futures.ThreadPoolExecutor(
                AT_ONCE, initializer=self.lab.enter) as pool:
            return {case: pool.submit(case.check, self,
                                      originals[case.volume_id])
                    for case in all_cases}

    def write_down(self, kind, all_cases):
        (TIMES / (kind + self.SUFFIX + '.json')).write_text(json.dumps({
            case.name: (case.proven and case.took and round(case.took),
                        case.by_hand)
            for case in all_cases}))


class CopiesTest(MatrixTest):
    """The same for volumes with snapshots, copies and Cinder's migration."""

    FLOWS = flows.COPIES
    SUFFIX = table.COPIES
