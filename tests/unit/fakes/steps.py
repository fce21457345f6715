# SPDX-License-Identifier: Apache-2.0
"""All actions outside of the process as steps, each of which can fail."""


class Killed(BaseException):
    """The service is killed: no exception handler runs."""


class PowerCut(Killed):
    """The node's power is cut: all its processes are killed."""


class Steps:
    """The steps of a test in order, and the step that fails."""

    def __init__(self):
        self.log = []
        self._fault = None
        #: Called after each step that may change something.
        self.observe = lambda: None
        #: Called before and after each step, with its number and whether it is
        #: done.
        self.witness = lambda number, done: None

    def start(self, number=None, after=False, killed=False, power=False):
        """Restart the count; the step with this number, from 0, fails.

        :param after: the step is done, and then reports a failure
        :param killed: the process is killed at the step
        :param power: the power of the process's node is cut
        """
        self.log = []
        self._fault = None if number is None else (
            number, after, killed and (PowerCut if power else Killed))

    @property
    def after(self):
        """Return whether the failing step is done."""
        return bool(self._fault and self._fault[1])

    @staticmethod
    def reads(what):
        """Return whether a step only reads, and need not be observed."""
        return False

    def run(self, what, error, function, *args, **kwargs):
        """Do a step, or fail with the error of its kind."""
        number, after, killed = self._fault or (-1, False, False)
        this = len(self.log)
        now = number == this
        self.log.append(what)
        self.witness(this, False)
        if now and killed:
            error = killed(what)
        if now and not after:
            raise error
        result = function(*args, **kwargs)
        if not self.reads(what):
            self.observe()
        self.witness(this, True)
        if now:
            raise error
        return result
