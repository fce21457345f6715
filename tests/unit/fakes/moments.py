# SPDX-License-Identifier: Apache-2.0
"""The moments at which the end of a process makes a difference.

Only what outlives a process remains when it is killed: the database, locks,
the kernel, LVM, the other processes. If nothing of that changes between two
moments, to be killed at the one or at the other is the same.
"""

import contextlib
import dataclasses
import re

from sqlalchemy import engine
from sqlalchemy import event

# What a step that only reads begins with, after the node's name. The process
# of a swap, which outlives its caller, begins with "dm status_of".
_READS = re.compile(r'\w+: (dm (look|status) |dmsetup targets|lvs|size|sysfs|'
                    r'logical_block_size|vgs)')
_SELECTS = re.compile(r'\s*(SELECT|BEGIN|PRAGMA|SAVEPOINT|RELEASE)\b')


@dataclasses.dataclass(frozen=True)
class Moment:
    """A moment right before a step, or right after it."""

    number: int
    step: str
    #: Whether the step is done.
    done: bool
    #: What outlives that process.
    outside: tuple

    @property
    def node(self):
        """The name of the node whose process runs."""
        return self.step.partition(':')[0]

    def repeats(self, last):
        """Return whether to be killed now is the same as at the last moment.

        A step that does not only read may change another process.
        """
        return (self.node, self.outside) == (last.node, last.outside) and (
            self.number != last.number or bool(_READS.match(self.step)))


class Moments:
    """The moments of an action, in order."""

    def __init__(self, cloud):
        self._cloud = cloud
        self._all = []
        # The changes of the database, and whether one is not committed.
        self._changes, self._open = 0, False

    @contextlib.contextmanager
    def recorded(self):
        """Record the moments of a block of code."""
        listeners = (('before_cursor_execute', self._execute),
                     ('commit', self._commit))
        for listener in listeners:
            event.listen(engine.Engine, *listener)
        self._cloud.steps.witness = self._add
        try:
            yield
        finally:
            self._cloud.steps.witness = lambda number, done: None
            for listener in listeners:
                event.remove(engine.Engine, *listener)

    def _execute(self, connection, cursor, statement, *args):
        if not _SELECTS.match(statement):
            self._changes, self._open = self._changes + 1, True

    def _commit(self, connection):
        if self._open:
            self._changes, self._open = self._changes + 1, False

    def _add(self, number, done):
        self._all.append(Moment(
            number, self._cloud.steps.log[number], done,
            (self._changes, self._cloud.outside())))

    def different(self):
        """Return those that do not repeat the moment before."""
        return [moment for last, moment in zip([None, *self._all], self._all,
                                               strict=False)
                if last is None or not moment.repeats(last)]
