# SPDX-License-Identifier: Apache-2.0
"""The releases of Cinder that the driver runs with."""

import ast
import importlib.metadata
import pathlib
import re

import ddt
from packaging import requirements
from packaging import utils
from packaging import version

from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
#: Cinder's major version in each release, and the list of its versions.
RELEASES = {26: 'constraints-2025.1.txt', 27: 'constraints-2025.2.txt',
            28: 'constraints-2026.1.txt', 29: 'constraints.txt'}
#: Modules of Cinder that one of the releases does not have.
DIFFERENT = re.compile(
    r'cinder\.(db\.(api|models|sqlalchemy)|scheduler\.sched_utils)\b')


def imports(path):
    """Yield the full names of what a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ('%s.%s' % (node.module, each.name)
                        for each in node.names)


def contexts(path):
    """Return the names of the methods whose results a file enters."""
    return {node.context_expr.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.withitem) and
            isinstance(node.context_expr, ast.Call) and
            isinstance(node.context_expr.func, ast.Attribute)}


class OnePlaceTestCase(base.PlainTestCase):

    def test_imports(self):
        """Only one module knows where each release has its modules."""
        found = {str(path.relative_to(TOP))
                 for folder in ('dmclone_driver', 'lab', 'tests')
                 for path in (TOP / folder).rglob('*.py')
                 if any(map(DIFFERENT.match, imports(path)))}
        self.assertEqual({'dmclone_driver/releases.py'}, found)

    def test_assertions(self):
        """Older versions of testtools have no context of assertRaises."""
        found = {str(path.relative_to(TOP))
                 for folder in ('unit', 'model', 'simulation')
                 for path in (TOP / 'tests' / folder).rglob('*.py')
                 if 'assertRaises' in contexts(path)}
        self.assertEqual(set(), found)


@ddt.ddt
class ConstraintsTestCase(base.PlainTestCase):
    """The versions that tests run with are complete, and of the release."""

    def listed(self, name):
        """Return {name: version} of a list of exact versions."""
        return {utils.canonicalize_name(name): version.Version(number)
                for name, number in re.findall(
                    r'^([\w.-]+)==(\S+)$', (TOP / 'lab' / name).read_text(),
                    re.MULTILINE)}

    def wanted(self):
        for name in ('requirements.txt', 'test-requirements.txt',
                     'lab/requirements.txt'):
            for line in (TOP / name).read_text().splitlines():
                if line.partition('#')[0].strip():
                    yield requirements.Requirement(line.partition('#')[0])

    @ddt.data(*RELEASES.items())
    @ddt.unpack
    def test_list(self, major, name):
        listed = self.listed(name)
        self.assertEqual(major, listed['cinder'].major)
        for each in self.wanted():
            found = listed.get(utils.canonicalize_name(each.name))
            self.assertIsNotNone(found, each.name)
            self.assertTrue(each.specifier.contains(found), each)

    def test_lower_bounds(self):
        """Cinder needs no less than this package: pip changes nothing."""
        own = {each.name.lower(): each for each in self.wanted()}
        for text in importlib.metadata.requires('cinder'):
            needed = requirements.Requirement(text)
            mine = own.get(needed.name.lower())
            if mine and not needed.extras and needed.marker is None:
                for bound in needed.specifier:
                    self.assertTrue(mine.specifier.contains(bound.version),
                                    '%s, but Cinder has %s' % (mine, needed))
