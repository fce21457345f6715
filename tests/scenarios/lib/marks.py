# SPDX-License-Identifier: Apache-2.0
"""Marks of scenarios: their duration, and their requirements.

The marks are in the id of a test: ``[nova,slow]``. So stestr selects tests by
them, as by the attributes of Tempest's tests::

    stestr --test-path tests/scenarios list '\\[.*slow'
"""

SLOW = 'slow'
NAMED = 'named'


def _mark(word):
    def mark(target):
        target.marks = _marks_of(target) | {word}
        return target
    return mark


def _marks_of(target):
    return getattr(target, 'marks', frozenset())


#: Decorates a test, or a class of tests, which takes minutes.
slow = _mark(SLOW)

#: Decorates a test, or a class of tests, of e2e that runs only if that set is
#: named: tools/test without a set has to end in time.
named = _mark(NAMED)


def needs(what):
    """Decorate a test, or a class of tests, which needs more than Cinder.

    :param what: 'nova', for a laboratory with instances
    """
    return _mark(what)


class Marked:
    """A mixin for test cases: marks of the class and the test are in the id.

    A class inherits the marks of its base.
    """

    def id(self):
        """Return the test's id, with its marks in brackets if it has any."""
        marks = _marks_of(self) | _marks_of(
            getattr(self, self._testMethodName))
        return super().id() + ('[%s]' % ','.join(sorted(marks))
                               if marks else '')
