# SPDX-License-Identifier: Apache-2.0
"""Every action outside of the process, counted, so that one can fail."""


class Killed(BaseException):
    """The service is killed: no handler runs, as with kill -9."""


class PowerCut(Killed):
    """The node is gone, with all that ran there."""


class Steps:
    """The actions of a test in their order, and the one that goes wrong."""

    def __init__(self):
        self.log = []
        self._fault = None
        #: Called after each step.
        self.observe = lambda: None

    def start(self, number=None, after=False, killed=False, power=False):
        """Count anew; the step of that number, from 0, goes wrong.

        :param after: it is done, but says that it failed
        :param killed: the process is gone at that point
        :param power: ... and all others of its node
        """
        self.log = []
        self._fault = None if number is None else (
            number, after, killed and (PowerCut if power else Killed))

    @property
    def after(self):
        """Whether a step that goes wrong is done."""
        return bool(self._fault and self._fault[1])

    def run(self, what, error, function, *args, **kwargs):
        """Do a step, or fail with an error that belongs to its kind."""
        number, after, killed = self._fault or (-1, False, False)
        now = number == len(self.log)
        self.log.append(what)
        if now and killed:
            error = killed(what)
        if now and not after:
            raise error
        result = function(*args, **kwargs)
        self.observe()
        if now:
            raise error
        return result
