# SPDX-License-Identifier: Apache-2.0
"""Each message of an exception has an entry for operators."""

import inspect

from dmclone_driver import exception
from tests.unit import base
from tests.unit import test_log_lines

PAGES = [test_log_lines.TOP / 'doc/source/admin' / name
         for name in ('messages.rst', 'troubleshooting.rst')]


class MessagesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.messages = {
            name: test_log_lines.normalized(found.message)
            for name, found in inspect.getmembers(exception, inspect.isclass)
            if found.__module__ == exception.__name__ and
            'message' in vars(found)}
        self.quoted = [[test_log_lines.quoted(block) for block in
                        test_log_lines.BLOCK.findall(page.read_text())]
                       for page in PAGES]

    def test_each_message_has_an_entry(self):
        """At least the beginning of the message is quoted."""
        self.assertLess(30, len(self.messages))
        there = [line for lines in self.quoted for line in lines]
        self.assertEqual([], [
            name for name, message in self.messages.items()
            if not any(message.startswith(line) for line in there)])

    def test_each_entry_is_a_message(self):
        """The first page has only these, and each once."""
        there = self.quoted[0]
        self.assertEqual([], [line for line in there if not any(
            message.startswith(line) for message in self.messages.values())])
        self.assertEqual(sorted(set(there)), sorted(there))
