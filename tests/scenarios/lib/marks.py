# SPDX-License-Identifier: Apache-2.0
"""Marks of scenarios: how long a test takes, and what it needs.

They decide when a test runs, and its id shows them: ``[nova,slow]``. So
stestr chooses by them, as with the attributes of Tempest's tests::

    stestr --test-path tests/scenarios list '\\[.*slow'
"""

SLOW = 'slow'


def _mark(word):
    def mark(target):
        target.marks = _marks_of(target) | {word}
        return target
    return mark


def _marks_of(target):
    return getattr(target, 'marks', frozenset())


#: Decorates a test, or a class of tests, that takes minutes.
slow = _mark(SLOW)


def needs(what):
    """Decorate a test, or a class of tests, that needs more than Cinder.

    :param what: 'nova', for a laboratory with instances
    """
    return _mark(what)


class Marked:
    """A mixin for test cases: marks of the class and the test are in the id.

    A class has the marks of its base, too.
    """

    def id(self):
        """Return the test's id, with its marks in brackets if it has any."""
        marks = _marks_of(self) | _marks_of(
            getattr(self, self._testMethodName))
        return super().id() + ('[%s]' % ','.join(sorted(marks))
                               if marks else '')
