# SPDX-License-Identifier: Apache-2.0
"""Evaluate those expressions of PromQL that the alert rules use.

The Prometheus client for Python has no such part. The expressions are parsed
by promql-parser; this does what the documentation of Prometheus says of the
results, and refuses what it does not know.
"""

import operator
import re

import promql_parser
from promql_parser import AggModifierType
from promql_parser import AggregateExpr
from promql_parser import BinaryExpr
from promql_parser import Call
from promql_parser import MatchOp
from promql_parser import MatrixSelector
from promql_parser import NumberLiteral
from promql_parser import ParenExpr
from promql_parser import VectorSelector

_COMPARE = {'>': operator.gt, '<': operator.lt, '==': operator.eq,
            '>=': operator.ge, '<=': operator.le, '!=': operator.ne}
_MATCH = ((MatchOp.Equal, operator.eq), (MatchOp.NotEqual, operator.ne),
          (MatchOp.Re, lambda have, want: bool(re.fullmatch(want, have))),
          (MatchOp.NotRe, lambda have, want: not re.fullmatch(want, have)))


def children(node):
    """Return the parts of an expression."""
    if isinstance(node, BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, Call):
        return node.args
    if isinstance(node, MatrixSelector):
        return [node.vector_selector]
    return [node.expr] if isinstance(node, (AggregateExpr, ParenExpr)) else []


def selectors(node):
    """Yield all selectors in an expression, or in its text."""
    if isinstance(node, str):
        node = promql_parser.parse(node)
    if isinstance(node, VectorSelector):
        yield node
    for child in children(node):
        yield from selectors(child)


def matches(selector, labels, ignored=()):
    """Return whether the labels of a series meet a selector's.

    :param ignored: names of labels that may be different
    """
    return all(any(matcher.op == op and test(labels.get(matcher.name, ''),
                                             matcher.value)
                   for op, test in _MATCH)
               for matcher in selector.matchers.matchers
               if matcher.name not in ignored)


class History:
    """Scrapes in the order of their times."""

    def __init__(self):
        #: [(seconds, {(name, labels): value})]
        self.scrapes = []

    def add(self, seconds, samples):
        """Add a scrape: {(name, ((label, value), ...)): value}."""
        self.scrapes.append((seconds, samples))

    def evaluate(self, text):
        """Return the vector of an expression now: {labels: value}."""
        return self._vector(promql_parser.parse(text))

    def _vector(self, node):
        if isinstance(node, ParenExpr):
            return self._vector(node.expr)
        if isinstance(node, VectorSelector):
            return self._select(node, self.scrapes[-1][1])
        if isinstance(node, Call) and node.func.name == 'increase':
            return self._increase(node.args[0])
        if isinstance(node, AggregateExpr) and str(node.op) == 'sum' and (
                node.modifier.type == AggModifierType.Without):
            return self._sum(self._vector(node.expr), node.modifier.labels)
        if isinstance(node, BinaryExpr) and node.modifier is None:
            return self._binary(node)
        raise NotImplementedError(node.prettify())

    @staticmethod
    def _select(node, samples):
        return {labels: value for (name, labels), value in samples.items()
                if name == node.name and matches(node, dict(labels))}

    def _increase(self, node):
        """Return by how much counters have grown, without extrapolation."""
        begin = self.scrapes[-1][0] - node.range.total_seconds()
        window = [self._select(node.vector_selector, samples)
                  for seconds, samples in self.scrapes if seconds > begin]
        return {labels: value - window[0][labels]
                for labels, value in window[-1].items()
                if len(window) > 1 and labels in window[0]}

    @staticmethod
    def _sum(vector, without):
        found = {}
        for labels, value in vector.items():
            left = tuple(each for each in labels if each[0] not in without)
            found[left] = found.get(left, 0) + value
        return found

    def _binary(self, node):
        left = self._vector(node.lhs)
        if isinstance(node.rhs, NumberLiteral):
            compare = _COMPARE[str(node.op)]
            return {labels: value for labels, value in left.items()
                    if compare(value, node.rhs.val)}
        if str(node.op) != '/':
            raise NotImplementedError(node.prettify())
        right = self._vector(node.rhs)
        return {labels: left[labels] / right[labels]
                for labels in left.keys() & right.keys()}
