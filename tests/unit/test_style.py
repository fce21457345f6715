# SPDX-License-Identifier: Apache-2.0
"""The findings of tools/style, and its line of counts."""

import pathlib
import shutil
import subprocess
import sys

import ddt
import fixtures

from tests.unit import base

STYLE = pathlib.Path(__file__).parents[2] / 'tools/style'


@ddt.ddt
class StyleTestCase(base.PlainTestCase):
    """The checks "names" and "licence", on a tree with one more file."""

    def setUp(self):
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (self.top / 'tools').mkdir()
        shutil.copy(STYLE, self.top / 'tools')

    def style(self, *names):
        done = subprocess.run(
            [sys.executable, str(self.top / 'tools/style'), *names],
            capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    @ddt.data('see https://docs.openstack.org/cinder', 'http://control:8776',
              'a path/home/x in a tree', 'git://' + 'host.example.net')
    def test_public(self, line):
        (self.top / 'a.txt').write_text(line + '\n')
        code, out = self.style('names')
        self.assertEqual((0, 'style: 1 passed, 0 failed'), (code, out[-1]))

    @ddt.data('see %s://build.corp.example.biz/x' % 'http',
              '%s/someone/tree' % '/home')
    def test_private(self, line):
        (self.top / 'a.txt').write_text('one\n%s\n' % line)
        code, out = self.style('names')
        self.assertEqual((1, 'style: 0 passed, 1 failed'), (code, out[-1]))
        self.assertIn('a.txt:2: ', out[1])

    def test_licence(self):
        (self.top / 'a.rst').write_text('text\n')
        self.assertEqual(0, self.style('licence')[0])
        (self.top / 'a.conf').write_text('a = b\n')
        code, out = self.style('licence')
        self.assertEqual((1, 'style: 0 passed, 1 failed'), (code, out[-1]))
        self.assertIn('a.conf: ', out[1])

    def test_tool(self):
        """A check fails if its tool complains, and if it is not installed."""
        (self.top / 'a.py').write_text('def (\n')
        code, out = self.style('names', 'hacking')
        self.assertEqual(1, code)
        self.assertIn('style: 1 passed, 1 failed', out)

    def test_unknown_check(self):
        code, out = self.style('nonsense')
        self.assertEqual(2, code)
        self.assertIn('no such check: nonsense', out[0])
