# SPDX-License-Identifier: Apache-2.0
"""What the watcher finds a clone to be."""

import enum


class CloneState(enum.Enum):
    """The state of a clone on this node, found by one check."""

    #: The gate is closed.
    PASSIVE = 'passive'
    #: Its hydration has to be started, or it cannot be completed yet.
    WAITING = 'waiting'
    #: It waits for its turn to be copied.
    QUEUED = 'queued'
    #: Regions are copied.
    HYDRATING = 'hydrating'
    #: All regions are copied, and the source is being removed.
    COMPLETE = 'complete'
    #: It needs an operator, see the log.
    SICK = 'sick'
