# SPDX-License-Identifier: Apache-2.0
"""The documentation agrees with the code."""

import ast
import configparser
import importlib.metadata
import pathlib
import re
import runpy

from pbr import version as pbr_version

from dmclone_driver import driver
from dmclone_driver.move import rpcapi
from tests.unit import base
from tests.unit import test_refusals

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


class SupportMatrixTestCase(base.PlainTestCase):
    """Each operation that can be refused has a row that says so."""

    ROWS = {
        'accept_transfer': 'transfer',
        'attach_of_cinder': 'volume to image',
        'attach_of_old': 'attach',
        'backup': 'backup of a volume in use',
        'delete_snapshot': 'snapshot delete',
        'delete_snapshot_of_pool': 'snapshot delete',
        'from_snapshot': 'volume from snapshot',
        'migrate': 'migrate to a peer, not in use',
        'migrate_in_use': 'migrate to a peer, in use',
        'reimage': 'image to volume, reimage',
        'retype': 'migrate or retype to another backend, not in use',
        'revert_with_copy': 'revert',
        'snapshot': 'snapshot create',
        'unmanage_snapshot': 'unmanage a snapshot',
        'upload': 'volume to image',
    }
    #: Operations that are refused only on placeholders and broken volumes.
    NEVER = ('accept_transfer', 'attach_of_cinder', 'delete_snapshot',
             'delete_snapshot_of_pool', 'retype', 'upload')

    def test_rows(self):
        page = TOP / 'doc/source/user/support-matrix.rst'
        tables = page.read_text().partition('\nUser messages\n')[0]
        cells = dict(re.findall(r'^   \* - (.+)\n((?:     .+\n)+)', tables,
                                re.MULTILINE))
        for operation in test_refusals.OUTCOMES:
            self.assertEqual(
                operation not in self.NEVER, 'refused' in
                cells[self.ROWS.get(operation, operation)].lower().replace(
                    'refused by cinder', ''), operation)

    def test_node_is_down(self):
        """Each operation has an answer if another node is down."""
        page = TOP / 'doc/source/user/support-matrix.rst'
        rows = re.findall(r'^   \* - (.+)\n((?:     .+\n)+)', page.read_text()
                          .partition('\nUser messages\n')[0], re.MULTILINE)
        for operation, text in rows:
            cells = re.findall(r'^     - (.+)', text, re.MULTILINE)
            self.assertEqual(5, len(cells), operation)
            if operation != 'manage':
                self.assertNotEqual('\\-', cells[-1], operation)


class LimitationsTestCase(base.PlainTestCase):

    def test_each_has_its_place(self):
        """Each says where Cinder, Nova, the kernel or others decide it."""
        text = (TOP / 'doc/source/admin/limitations.rst').read_text()
        bullets = re.findall(r'^\* .+\n(?:  .*\n|\n(?=  ))*', text,
                             re.MULTILINE)
        self.assertLess(30, len(bullets))
        self.assertEqual([], [bullet for bullet in bullets if not re.search(
            r'``[\w./-]+\.(c|py)``|, there\)|``VolumeManager\.', bullet)])


class PagesTestCase(base.PlainTestCase):
    """The form of all pages."""

    def test_literal_blocks(self):
        """A diagram or a command is not coloured as Python."""
        for name in ('doc', 'releasenotes'):
            settings = runpy.run_path(str(TOP / name / 'source/conf.py'))
            self.assertEqual('none', settings['highlight_language'], name)
        for page in (TOP / 'doc/source').rglob('*.rst'):
            text = page.read_text()
            self.assertNotIn('.. highlight::', text, page)
            self.assertNotIn('.. code-block::\n', text, page)

    def test_options(self):
        """Their two dashes do not become one."""
        settings = runpy.run_path(str(TOP / 'doc/source/conf.py'))
        self.assertNotIn('D', settings['smartquotes_action'].upper())

    def test_styles(self):
        """Sphinx does not say that such a file is missing."""
        settings = runpy.run_path(str(TOP / 'doc/source/conf.py'))
        for name in settings['html_css_files']:
            self.assertTrue(any((TOP / 'doc/source' / folder / name).is_file()
                                for folder in settings['html_static_path']))

    def test_rows(self):
        """A simple table has one word in each first cell.

        More could need a second line, and that would be a row of its own.
        """
        border = r'((?:=+ +)+=+)\n'
        for page in (TOP / 'doc/source').rglob('*.rst'):
            for columns, _head, rows in re.findall(
                    border + r'((?:.+\n)+?)' + border.replace('(', '(?:', 1) +
                    r'((?:.+\n)+?)' + border.replace('(', '(?:', 1),
                    page.read_text()):
                width = columns.index(' ')
                for row in rows.splitlines():
                    self.assertLess(len(row[:width].split()), 2, (page, row))


class SecurityTestCase(base.PlainTestCase):
    """What the driver may do as root is on the page."""

    def setUp(self):
        super().setUp()
        page = (TOP / 'doc/source/admin/security.rst').read_text()
        self.section = page.partition('\nWhat the driver does as root\n')[
            2].partition('\nFIPS\n')[0]

    def test_capabilities(self):
        self.assertEqual(
            sorted(re.findall(r'capabilities\.(CAP_\w+)', (
                PACKAGE / 'privsep/__init__.py').read_text())),
            sorted(re.findall(r'``(CAP_\w+)``', self.section)))

    def test_programs(self):
        """The first literal word of each command that is run."""
        programs = set()
        for path in (PACKAGE / 'privsep').glob('*.py'):
            programs.update(re.findall(
                r'(?:execute|_run|words = |Popen)\(?\s*\[?\'(\w+)\'',
                path.read_text()))
        self.assertLess({'dmsetup', 'iscsiadm', 'sh', 'thin_dump'}, programs)
        for name in programs - {'env'} | {'lvm'}:
            self.assertIn('``%s``' % name, self.section)


class LinksTestCase(base.PlainTestCase):
    """What the texts refer to exists."""

    #: Files of other projects, and those that a command makes.
    OTHERS = {
        'doc/build/html', 'doc/source/admin/image-building.rst',
        'doc/source/guides/multinode-lab', 'lab/venv/bin/privsep-helper',
        'tools/discover_hosts.sh', 'tools/dmsetup.c', 'tools/lvconvert.c',
        'tools/lvconvert_poll.c'}
    _FILE = re.compile(
        r'(?<![\w/.<$])((?:contrib|debian|devstack|doc|dmclone_driver|etc|lab|'
        r'releasenotes|tests|tools|\.ci)/[\w./-]*\w)')
    _PAGE = re.compile(r':doc:`(?:[^`<]*<)?([^`<>]+)>?`')

    @staticmethod
    def texts():
        for pattern in ('*.rst', 'doc/source/**/*.rst', 'contrib/**/*.rst',
                        'devstack/*.rst', 'debian/README*'):
            for path in TOP.glob(pattern):
                yield path, path.read_text()

    def test_files(self):
        """A name without its ending is that of several files."""
        seen = set()
        for path, text in self.texts():
            for name in set(self._FILE.findall(text)) - self.OTHERS:
                self.assertTrue(
                    (TOP / name).exists() or list(TOP.glob(name + '.*')),
                    '%s: %s' % (path, name))
                seen.add(name)
        self.assertLess(50, len(seen))

    def test_pages(self):
        seen = set()
        for path, text in self.texts():
            for name in self._PAGE.findall(text):
                page = (TOP / 'doc/source' / name[1:] if name[0] == '/' else
                        path.parent / name)
                self.assertTrue(page.with_name(page.name + '.rst').is_file(),
                                '%s: %s' % (path, name))
                seen.add(page)
        self.assertLess(30, len(seen))


class MessagesTestCase(base.PlainTestCase):
    """The messages that administrators are told to look for exist."""

    @staticmethod
    def messages():
        """Return all texts of the code, each value in them as "*"."""
        for path in PACKAGE.rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(
                        node.value, str):
                    yield re.sub(r'%(\(\w+\))?[-.\d]*[sdrf]', '*', node.value)

    def test_troubleshooting(self):
        page = TOP / 'doc/source/admin/troubleshooting.rst'
        quoted = re.findall(r'^\.\. code-block:: text\n\n((?:   .+\n)+)',
                            page.read_text(), re.MULTILINE)
        self.assertTrue(quoted)
        texts = list(self.messages())
        for block in quoted:
            line = re.sub('<[^>]+>', '*', ' '.join(block.split()))
            self.assertTrue(any(line in text for text in texts), line)


class UpgradeTestCase(base.PlainTestCase):

    def test_calls(self):
        """Each call between peers is in the table of their versions."""
        page = (TOP / 'doc/source/admin/upgrade.rst').read_text()
        calls = {name for name in vars(rpcapi.PeerEndpoint)
                 if name != 'target' and not name.startswith('_')}
        self.assertEqual(set(), calls - set(re.findall(r'``(\w+)``', page)))
        self.assertIn('\n   * - %s\n' % rpcapi.VERSION, page)


class VersionTestCase(base.PlainTestCase):
    """The release has the same number everywhere."""

    VERSION = driver.DMCloneVolumeDriver.VERSION

    def test_package(self):
        parser = configparser.ConfigParser()
        parser.read(TOP / 'setup.cfg')
        self.assertEqual(self.VERSION, parser.get('metadata', 'version'))

    def test_release_notes(self):
        """The newest release of the release notes is this one."""
        introduced = set()
        for note in (TOP / 'releasenotes/notes').glob('*.yaml'):
            introduced.update(re.findall(
                r'^prelude: >\n +dmclone_driver (\d+\.\d+\.\d+) ',
                note.read_text(), re.MULTILINE))
        self.assertEqual(self.VERSION, max(
            introduced, key=lambda text: tuple(map(int, text.split('.')))))

    def test_documentation(self):
        """The documentation shows the version of the installed package."""
        settings = runpy.run_path(str(TOP / 'doc/source/conf.py'))
        installed = pbr_version.SemanticVersion.from_pip_string(
            importlib.metadata.version('dmclone_driver'))
        self.assertEqual(installed.release_string(), settings['release'])
        self.assertEqual(installed.brief_string(), settings['version'])
