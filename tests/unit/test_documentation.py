# SPDX-License-Identifier: Apache-2.0
"""The documentation's map of the code is that of the code."""

import ast
import pathlib
import re

from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
PACKAGE = TOP / 'dmclone_driver'


class MapTestCase(base.PlainTestCase):

    def listed(self):
        text = (TOP / 'doc/source/contributor/code.rst').read_text()
        return {name: ' '.join(line.split()) for name, line in re.findall(
            r'^``([\w/]+\.py)``\n((?:  .+\n)+)', text, re.MULTILINE)}

    def test_each_file_has_its_line(self):
        lines = {}
        for path in PACKAGE.rglob('*.py'):
            if path.name != '__init__.py':
                docstring = ast.get_docstring(ast.parse(path.read_text()))
                lines[str(path.relative_to(PACKAGE))] = re.sub(
                    r':mod:`(\w+)`', r'``\1``',
                    docstring.partition('\n')[0].rstrip('.'))
        self.assertEqual(lines, self.listed())
