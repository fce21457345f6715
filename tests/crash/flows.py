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
          snapshot_cases.VolumeFromSnapshot,
          snapshot_cases.SnapshotWhileItHydrates)

#: Which flows a run has, as a regular expression.
CHOSEN = os.environ.get('DMCLONE_CRASH_FLOWS', '')
#: {flow: its steps}. A migration has those of an attachment on the peer. A
#: volume from a snapshot comes first: later its login would wait on the slow
#: network for the volumes that hydrate.
FLOWS = {snapshot_cases.VolumeFromSnapshot.FLOW: steps.COPY, **steps.FLOWS,
         cases.MigrationAtRest.FLOW: steps.ATTACH_AWAY}


def all_of(user, home, peer):
    """Return a case for each step of each flow, without volumes."""
    of = {case.FLOW: case for case in _CASES}
    return [of[flow](user, home, peer, side, step)
            for flow, points in FLOWS.items() if re.search(CHOSEN, flow)
            for side, step in points]
