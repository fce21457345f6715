# SPDX-License-Identifier: Apache-2.0
"""The commands that tests/maintenance runs, as far as a shell tells."""

import ast
import pathlib
import re
import subprocess
from unittest import mock

import fixtures

from dmclone_driver.cmd import dmclone
from lab import page_outputs
from lab import pages
from tests.day import outputs as outputs_module
from tests.maintenance import recipes
from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
#: {page: the tests that follow it}.
PAGES = {'admin/maintenance': 'maintenance/test_maintenance.py',
         'admin/evacuation': 'maintenance/test_evacuation.py',
         'admin/adoption': 'maintenance/test_adoption.py',
         'admin/day': 'day/test_page.py'}
WHERE = {'administrator', 'owner', 'the node', 'another node', 'each node',
         'any host', 'control plane'}
#: The methods whose first argument is a section, and then perhaps parts.
FOLLOW = ('follow', 'maintain', 'of_day', 'adopt')
#: Variables that are no reader's choice.
OF_LOOPS = re.compile(r'\bfor ([A-Z]+) in ')
_PROGRAM = re.compile(r'(?:^|\$\(|; |until |while )\s*'
                      r'(dmclone(?:-[a-z-]+)?|systemctl|openstack)\b'
                      r'((?: |\\\n|[^;|\n])*)', re.MULTILINE)


def followed(name):
    """Return the sections and parts that a file of tests follows.

    :param name: of the file, below tests
    :returns: {section: set of numbers, empty for all}
    """
    found = {}
    tree = ast.parse((TOP / 'tests' / name).read_text())
    constants = {node.targets[0].id: node.value for node in tree.body
                 if isinstance(node, ast.Assign)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(
                node.func, ast.Attribute) and node.args:
            arguments = [constants.get(each.id, each) if isinstance(
                each, ast.Name) else each for each in node.args]
            literals = [each.value for each in arguments
                        if isinstance(each, ast.Constant)]
            if node.func.attr in FOLLOW and literals:
                found.setdefault(literals[0], set()).update(literals[1:])
            elif node.func.attr == 'owner' and literals:
                found.setdefault('Restoring the last backup', set()).update(
                    literals)
            elif node.func.attr == 'replace' and isinstance(
                    node.args[0], ast.Constant):
                found.setdefault(literals[0], set())
    return found


class RecipesTestCase(base.PlainTestCase):

    def setUp(self):
        super().setUp()
        self.settings, self.blocks = {}, {}
        for page in PAGES:
            first, *self.blocks[page] = pages.blocks(page)
            self.assertEqual('settings', first.where)
            self.settings[page] = first.script

    def all_blocks(self):
        return [block for blocks in self.blocks.values() for block in blocks]

    def programs(self):
        """Yield (program, words) of the commands that can be checked."""
        for block in self.all_blocks():
            for name, words in _PROGRAM.findall(block.script):
                yield name, words.replace('\\\n', ' ').split()

    def test_blocks_are_found(self):
        for page, blocks in self.blocks.items():
            text = (TOP / 'doc/source' / (page + '.rst')).read_text()
            self.assertEqual(text.count('code-block:: bash'),
                             len(blocks) + 1)
            self.assertLessEqual({each.where for each in blocks}, WHERE)

    def test_syntax(self):
        for block in self.all_blocks():
            done = subprocess.run(['bash', '-n'], input=block.script,
                                  text=True, capture_output=True)
            self.assertEqual('', done.stderr, block.script)

    def test_variables(self):
        """Each is the reader's, and each of the reader's is used."""
        for page, blocks in self.blocks.items():
            wanted = re.findall(r'^([A-Z_]+)=', self.settings[page],
                                re.MULTILINE)
            used = set()
            for block in blocks:
                used.update(set(re.findall(r'\$\{?([A-Z_]+)', block.script)) -
                            set(OF_LOOPS.findall(block.script)))
            text = (TOP / 'doc/source' / (page + '.rst')).read_text()
            in_text = set(re.findall(r'^     ([A-Z]+)=', text, re.MULTILINE))
            self.assertEqual(used, set(wanted) | in_text, page)

    def test_each_section_is_followed(self):
        for page, name in PAGES.items():
            tested = followed(name)
            sections = [block.section for block in self.blocks[page]]
            self.assertEqual(set(sections), set(tested), page)
            for section, parts in tested.items():
                if parts:
                    self.assertEqual(set(range(sections.count(section))),
                                     parts, section)

    def test_programs_of_the_driver(self):
        """They exist, and have the options."""
        there = re.findall(r'^(dmclone-[a-z-]+) = ', (
            TOP / 'pyproject.toml').read_text(), re.MULTILINE)
        found = [each for each in self.programs()
                 if each[0].startswith('dmclone-')]
        self.assertLess(5, len(found))
        for name, words in found:
            self.assertIn(name, there)
            page = (TOP / 'doc/source/cli' / (name + '.rst')).read_text()
            for word in words:
                if word.startswith('--'):
                    self.assertIn(word, page, name)

    def test_verbs(self):
        """They exist, and have the options."""
        page = (TOP / 'doc/source/cli/dmclone.rst').read_text()
        parser = dmclone.Application().command_manager
        found = [words for name, words in self.programs()
                 if name == 'dmclone']
        self.assertLess(5, len(found))
        for verb, *words in found:
            self.assertIn(verb, dmclone.VERBS)
            known = page + parser.find_command([verb])[0](
                mock.Mock(), None).get_parser('dmclone').format_help()
            for word in words:
                if word.startswith('--'):
                    self.assertIn(word, known, verb)

    def test_services(self):
        """The laboratory has those that are stopped and started."""
        known = {**recipes.ON_NODES, **recipes.ON_CONTROL}
        found = [words for name, words in self.programs()
                 if name == 'systemctl']
        self.assertIn(['reboot'], found)
        for words in found:
            if words != ['reboot']:
                self.assertIn(words[1], known)

    def test_functions_of_the_shell(self):
        """They replace all programs that nodes do not have."""
        for name, _words in self.programs():
            if name != 'openstack':
                self.assertIn('\n%s() {' % name, recipes.ON_NODE)

    def on_node(self, script):
        done = subprocess.run(
            ['bash', '-e', '-u', '-c', recipes.ON_NODE +
             'lab-service() { echo "lab-service $*"; }\n'
             'touch() { echo "touch $*"; }\n' + script],
            text=True, capture_output=True)
        return done.returncode, done.stdout.splitlines()

    def test_systemctl_of_the_laboratory(self):
        self.assertEqual(
            (0, ['lab-service stop tgtd', 'touch /lab/enabled/tgtd']),
            self.on_node('systemctl stop tgt'))
        self.assertEqual((0, ['touch ' + recipes.REBOOT]),
                         self.on_node('sync() { :; }; systemctl reboot'))
        for wrong in ('systemctl stop sshd', 'systemctl poweroff'):
            self.assertEqual((2, []), self.on_node(wrong))
        self.assertEqual((0, []), self.on_node(
            'if systemctl stop sshd; then echo wrong; fi'))

    def test_crudini_of_the_laboratory(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        path.write_text('[DEFAULT]\nmy_ip = 1\nHost = a%b\n')
        self.assertEqual((0, []), self.on_node(
            'crudini --set {0} dmclone volume_driver some.Driver\n'
            'crudini --set {0} DEFAULT my_ip 2'.format(path)))
        self.assertEqual('[DEFAULT]\nmy_ip = 2\nHost = a%b\n\n'
                         '[dmclone]\nvolume_driver = some.Driver\n\n',
                         path.read_text())
        self.assertEqual((2, []), self.on_node('crudini --get x'))

    def test_reader_has_no_node(self):
        """Commands of any host run on a node that the section is not about."""
        class Test(recipes.Recipes):
            lab = mock.Mock(nodes={'a': 1, 'b': 2})
        self.assertEqual(2, Test()._host(1))
        self.assertEqual(1, Test()._host(None))


class OutputsTestCase(base.PlainTestCase):
    """What the laboratory has printed becomes examples on a page."""

    PAGE = (
        '====\nPage\n====\n\nFirst\n=====\n\n'
        '.. code-block:: bash\n   :caption: any host\n\n   one\n\n%s'
        '.. code-block:: bash\n   :caption: any host\n\n   two\n\nText.\n\n'
        'Second\n======\n\n'
        '.. code-block:: bash\n   :caption: any host\n\n   three\n%s')
    EXAMPLE = '.. code-block:: text\n   :caption: example\n\n%s'

    def test_examples(self):
        plain = self.PAGE % ('', '')
        written = self.PAGE % (
            self.EXAMPLE % '   a\n\n     b\n\n',
            '\n' + self.EXAMPLE % '   c\n')
        outputs = {('First', 0): 'a\n\n  b', ('First', 1): '',
                   ('Second', 0): 'c'}
        self.assertEqual(written, pages._with_outputs(plain, outputs))
        self.assertEqual(written, pages._with_outputs(written, outputs))
        self.assertEqual(plain, pages._with_outputs(written, {}))

    def test_long_lines(self):
        self.assertEqual(
            '| %s |\n%s\n  bbb' % ('a' * 90, 'aaa ' * 18 + 'aaa'),
            page_outputs.folded('| %s | \n%sbbb\n\n' % (
                'a' * 90, 'aaa ' * 19)))

    def test_program(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertEqual('there are no outputs',
                         page_outputs.main([str(folder)]))
        self.useFixture(fixtures.EnvironmentVariable(
            outputs_module.VARIABLE, str(folder)))
        kept = outputs_module.Outputs('admin/day')
        kept.add('First', 0, 'a\n')
        kept.add('Second', 0, 'b\n')
        written = self.patch('lab.pages.set_outputs')
        self.patch('builtins.print')
        self.assertEqual(0, page_outputs.main([str(folder)]))
        written.assert_called_once_with('admin/day', {
            ('First', 0): 'a', ('Second', 0): 'b'})
