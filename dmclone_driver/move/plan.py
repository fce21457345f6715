# SPDX-License-Identifier: Apache-2.0
"""The actions of a command, printed before and after they are done."""

import dataclasses

from dmclone_driver.i18n import _


@dataclasses.dataclass(frozen=True)
class Action:
    """One action of a command.

    :ivar subject: the volume or row that is changed
    :ivar change: what is done to it, and why
    :ivar obstacle: why it is not done; None if it is
    """

    subject: str
    change: str
    obstacle: str | None = None

    def line(self, done: bool = False) -> str:
        """Return the line that is printed for the operator."""
        if self.obstacle:
            form = _('not done: %(subject)s: %(change)s: %(obstacle)s')
        elif done:
            form = _('done: %(subject)s: %(change)s')
        else:
            form = _('to do: %(subject)s: %(change)s')
        return form % dataclasses.asdict(self)


class Refused(Exception):
    """The whole command is refused; the message says why, and what to do."""
