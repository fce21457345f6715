# SPDX-License-Identifier: Apache-2.0
"""What a command for operators does, said before and after it is done."""

import dataclasses

from dmclone_driver.i18n import _


@dataclasses.dataclass(frozen=True)
class Act:
    """One thing to do.

    :ivar what: the thing that it is done to
    :ivar deed: what is done to it, and why
    :ivar kept: why it is not done; None if it is
    """

    what: str
    deed: str
    kept: str = None

    def line(self, done=False):
        """Print it as an operator reads it."""
        if self.kept:
            form = _('not done: %(what)s: %(deed)s: %(kept)s')
        elif done:
            form = _('done: %(what)s: %(deed)s')
        else:
            form = _('to do: %(what)s: %(deed)s')
        return form % dataclasses.asdict(self)


class Refused(Exception):
    """Nothing is done at all; the message says why, and the way out."""
