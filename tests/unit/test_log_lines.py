# SPDX-License-Identifier: Apache-2.0
"""Each line of the log from WARNING on has an entry for operators."""

import ast
import functools
import pathlib
import re

from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
PACKAGE = TOP / 'dmclone_driver'
PAGES = [TOP / 'doc/source/admin' / name
         for name in ('log-lines.rst', 'troubleshooting.rst')]
LEVELS = ('warning', 'error', 'exception', 'critical')
#: Functions that get a line as an argument: {name: its index}.
PASS_ON = {'log': 1, 'log_after_commit': 2, 'say': 3}
#: Where these functions log the line: it is no literal.
PASSED_ON = {'move/messages.py: text'}
_VALUE = re.compile(r'%(\(\w+\))?[-.\d]*[sdrf]')
_ENTRY = re.compile(r'((?:^\.\. code-block:: text\n\n(?:   .+\n)+\n)+)'
                    r'(.*\n.*\n)', re.MULTILINE)
#: A line that a page quotes.
BLOCK = re.compile(r'^\.\. code-block:: text\n\n((?:   .+\n)+)',
                   re.MULTILINE)


def _is_low(call):
    """Whether a call names a level, and only levels below WARNING."""
    text = ast.unparse(call.args[0]) + ast.unparse(call.args[1])
    return bool(re.search(r'\b(DEBUG|INFO)\b', text)) and not re.search(
        r'\b(WARNING|ERROR|CRITICAL)\b', text)


def logged(source):
    """Yield the expressions of all lines from WARNING on."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and
                isinstance(node.func, ast.Attribute)):
            continue
        name = node.func.attr
        of_log = ast.unparse(node.func.value) == 'LOG'
        if of_log and name in LEVELS:
            yield node.args[0]
        elif name in PASS_ON and (of_log or name != 'log') and (
                len(node.args) > PASS_ON[name] and not _is_low(node)):
            yield node.args[PASS_ON[name]]


def normalized(line):
    """Return a line of the code with each value as "*"."""
    return _VALUE.sub('*', line)


@functools.cache
def lines_of_package():
    """Return the normalized lines, and the expressions of the others."""
    lines, others = set(), set()
    for path in PACKAGE.rglob('*.py'):
        for each in logged(path.read_text()):
            if isinstance(each, ast.Constant):
                lines.add(normalized(each.value))
            else:
                others.add('%s: %s' % (path.relative_to(PACKAGE),
                                       ast.unparse(each)))
    return lines, others


def quoted(block):
    """Return a line of the documentation with each value as "*"."""
    return re.sub('<[^>]+>', '*', ' '.join(block.split()))


class LogLinesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.lines, self.others = lines_of_package()
        self.texts = [page.read_text() for page in PAGES]

    def test_all_forms_are_found(self):
        self.assertEqual(['a %s', 'b', 'c', 'd', 'e', 'f'], [
            each.value for each in logged("""
LOG.warning('a %s', 1)
LOG.exception('b')
LOG.info('no')
self._troubles.say(context, names, 'kind', 'c', {})
transactions.log_after_commit(session, logging.WARNING, 'd', {})
transactions.log_after_commit(session, logging.INFO, 'no', {})
LOG.log(logging.ERROR if bad else logging.DEBUG, 'e')
LOG.log(logging.DEBUG if good else logging.INFO, 'no')
LOG.critical('f')
""")])

    def test_each_line_is_a_literal(self):
        self.assertEqual(PASSED_ON, self.others)

    def test_each_line_has_an_entry(self):
        there = {quoted(block) for text in self.texts
                 for block in BLOCK.findall(text)}
        self.assertEqual(set(), self.lines - there)

    def test_each_entry_is_a_line(self):
        """The first page has only these, and each once."""
        there = [quoted(block) for block in BLOCK.findall(self.texts[0])]
        self.assertEqual(set(), set(there) - self.lines)
        self.assertEqual(sorted(set(there)), sorted(there))

    def test_each_entry_says_something(self):
        """Text follows it, not a title or the end of the page."""
        found = _ENTRY.findall(self.texts[0])
        self.assertEqual(len(BLOCK.findall(self.texts[0])), sum(
            blocks.count('code-block::') for blocks, _ in found))
        for blocks, after in found:
            self.assertRegex(after.partition('\n')[0], r'^[A-Z*`]', blocks)
            self.assertNotRegex(after, '^.*\n[=-]{3}', blocks)

    def test_each_line_can_be_found(self):
        """Four words of it, or all between two values, are on one line."""
        for line in self.lines:
            longest = max(line.split('*'), key=len).strip('. ').split()
            self.assertTrue(any(' '.join(longest[at:at + 4]) in text
                                for at in range(max(1, len(longest) - 3))
                                for text in self.texts), line)
