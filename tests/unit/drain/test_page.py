# SPDX-License-Identifier: Apache-2.0
"""The page about the command says of drain what its help says."""

import pathlib
import re

from dmclone_driver.cmd import dmclone
from dmclone_driver.cmd import drain
from dmclone_driver.drain import report
from tests.unit import base

PAGE = pathlib.Path(__file__).parents[3] / 'doc/source/cli/dmclone.rst'


class PageTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        text = PAGE.read_text().partition('\nDraining a node\n')[2]
        self.text = text.partition('\nFiles\n')[0]

    def paragraphs(self):
        return {heading: ' '.join(text.split()) for heading, text in
                re.findall(r'^(\S.*)\n((?:    .+\n)+)', self.text, re.M)}

    def test_options(self):
        parser = drain.Drain(dmclone.Application(), None).get_parser('drain')
        found = self.paragraphs()
        for action in parser._actions:
            if action.dest != 'help':
                self.assertEqual(action.help % vars(action),
                                 found[self.heading(action)])

    @staticmethod
    def heading(action):
        if not action.option_strings:
            return action.dest.upper()
        name = action.option_strings[-1]
        if action.nargs == 0:
            return name
        return '%s %s' % (name, action.metavar or action.dest.upper())

    def test_exit_codes(self):
        found = self.paragraphs()
        for code in (report.EMPTY, report.LEFT, report.SNAPSHOTS_LEFT):
            self.assertIn(str(code), found)

    def test_first_words_of_lines(self):
        """Each word is explained, and none that no line begins with."""
        source = pathlib.Path(report.__file__).read_text() + (
            pathlib.Path(report.__file__).with_name(
                'runner.py').read_text())
        self.assertEqual(
            set(re.findall(r"_\('([a-z ]+): ", source)),
            set(re.findall(r'^``([a-z ]+)``$', self.text, re.M)))
