# SPDX-License-Identifier: Apache-2.0
"""The commands of the quick start are shell, and their files exist."""

import pathlib
import re
import subprocess

from lab import pages
from tests.unit import base
from tests.unit import test_recipes

TOP = pathlib.Path(__file__).parents[2]
PAGE = 'admin/quickstart'
WHERE = ('each node', 'administrator')


class QuickStartTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.blocks = pages.blocks(PAGE)

    def check(self, script):
        return subprocess.run(['bash', '-n'], input=script, text=True,
                              capture_output=True).stderr

    def test_blocks(self):
        """All are found, in the order of the page, and say where they run."""
        text = (TOP / 'doc/source' / (PAGE + '.rst')).read_text()
        self.assertEqual(text.count('code-block::'), len(self.blocks))
        self.assertEqual(set(WHERE), {each.where for each in self.blocks})
        self.assertIn('apt-get update\n', self.blocks[1].script)
        self.assertIn('END\nsystemctl daemon-reload\n',
                      ''.join(each.script for each in self.blocks))

    def test_syntax(self):
        self.assertNotEqual('', self.check('if true; then\n'))
        for each in self.blocks:
            self.assertEqual('', self.check(each.script), each.script)

    def test_files(self):
        """Files of the checkout that the commands install are there."""
        named = {name for each in self.blocks for name in re.findall(
            r'(?<![\w/.])(?:etc|tools|devstack)/[\w./-]+', each.script)}
        self.assertLess(3, len(named))
        for name in named:
            self.assertTrue((TOP / name).is_file(), name)

    def test_variables(self):
        """A variable is set in an earlier block, or is the reader's."""
        known = {'SERVER'}
        for each in self.blocks:
            self.assertEqual(set(), set(re.findall(
                r'\$\{?([A-Z_]+)', each.script)) - known)
            known.update(re.findall(r'^([A-Z_]+)=', each.script,
                                    re.MULTILINE))

    def test_all_is_run(self):
        """A test of the laboratory follows all but the reader's settings."""
        sections = [each.section for each in self.blocks[1:]]
        tested = test_recipes.followed('maintenance/test_quickstart.py')
        self.assertEqual(set(sections), set(tested))
        for section, parts in tested.items():
            if parts:
                self.assertEqual(set(range(sections.count(section))), parts)

    def test_replaced_programs(self):
        """The laboratory replaces what its nodes do not have."""
        on_node = test_recipes.RecipesTestCase.on_node
        for script, said in (
                ('PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install .',
                 'not here: python3 -m pip install .'),
                ('python3 -c "print(1)"', '1'),
                ('systemctl enable --now iscsid', 'lab-service start iscsid'),
                ('systemctl --quiet is-active multipathd || echo no',
                 'no')):
            code, lines = on_node(self, script)
            self.assertEqual((0, said), (code, lines[0]), script)
        self.assertEqual((0, []), on_node(self, 'systemctl daemon-reload'))
