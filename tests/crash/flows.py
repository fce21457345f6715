# SPDX-License-Identifier: Apache-2.0
"""The flows of the crash matrix, and the cases of each."""

import os
import re

from dmclone_driver import steps
from tests.crash import cases
from tests.crash import snapshot_cases

_CASES = (cases.AttachAway, cases.Completion, cases.LiveMigration,
          cases.OldAttachmentGoes, cases.RollBack, cases.Deletion,
          cases.DeletionOfClone, cases.Extension, cases.MigrationAtRest,
          snapshot_cases.ReleaseWithSnapshots,
          snapshot_cases.VolumeFromSnapshot, snapshot_cases.Revert,
          snapshot_cases.SnapshotThatFollows,
          snapshot_cases.SnapshotWhileItHydrates,
          snapshot_cases.DeferredDeletion,
          snapshot_cases.DeletionWhileItIsRead)

#: Which flows a run has, as a regular expression.
CHOSEN = os.environ.get('DMCLONE_CRASH_FLOWS', '')
#: {flow: its steps}, of copies and of Cinder's migration, which has the steps
#: of an attachment on the peer. A volume from a snapshot comes first: later
#: its login would wait on the slow network for the volumes that hydrate.
COPIES = {**{case.FLOW: steps.FLOWS[case.FLOW] for case in (
    snapshot_cases.VolumeFromSnapshot, snapshot_cases.Revert,
    snapshot_cases.ReleaseWithSnapshots, snapshot_cases.SnapshotThatFollows,
    snapshot_cases.SnapshotWhileItHydrates, snapshot_cases.DeferredDeletion,
    snapshot_cases.DeletionWhileItIsRead)},
    cases.MigrationAtRest.FLOW: steps.ATTACH_AWAY}
#: {flow: its steps}, of all others. They have a run of their own: with the
#: requests of all flows behind each other, Cinder's users would give up.
MOVES = {flow: points for flow, points in steps.FLOWS.items()
         if flow not in COPIES}


#: A step that thin volumes seldom have: Cinder has removed its own snapshot of
#: a reverted volume before the old content is released.
_RARE = {snapshot_cases.Revert.FLOW: (steps.PEER, steps.Step.KEPT)}


def of_kind(of_flows, thin):
    """Return {flow: its steps} for thick, or for thin volumes."""
    return {flow: tuple(point for point in steps.of_thin(points)
                        if point != _RARE.get(flow))
            for flow, points in of_flows.items()} if thin else of_flows


def all_of(of_flows, user, home, peer):
    """Return a case for each step of each flow, without volumes.

    :param of_flows: MOVES or COPIES, see of_kind()
    """
    of = {case.FLOW: case for case in _CASES}
    return [of[flow](user, home, peer, side, step)
            for flow, points in of_flows.items() if re.search(CHOSEN, flow)
            for side, step in points]
