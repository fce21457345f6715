# SPDX-License-Identifier: Apache-2.0
"""What packages are made from: metadata, files, man pages, requirements."""

import ast
import importlib
import importlib.metadata
import pathlib
import re
import runpy
import subprocess
import sys
import tomllib

from pbr import version as pbr_version

import dmclone_driver
from dmclone_driver.cmd import dmclone
from dmclone_driver.cmd import show
from dmclone_driver.cmd import status
from tests.unit import base

TOP = pathlib.Path(__file__).parents[2]
PAGES = TOP / 'doc/source/cli'


def project():
    """Return the content of pyproject.toml."""
    return tomllib.loads((TOP / 'pyproject.toml').read_text())


class VersionTestCase(base.PlainTestCase):

    def test_installed(self):
        """The installed package, and the documentation made with it."""
        installed = pbr_version.SemanticVersion.from_pip_string(
            importlib.metadata.version('dmclone_driver'))
        settings = runpy.run_path(str(TOP / 'doc/source/conf.py'))
        self.assertEqual([dmclone_driver.__version__] * 2,
                         [installed.brief_string(), settings['version']])

    def test_debian(self):
        newest = (TOP / 'debian/changelog').read_text().split('\n', 1)[0]
        self.assertEqual(dmclone_driver.__version__,
                         re.search(r'\((\S+)-\d+\)', newest).group(1))


class ManPagesTestCase(base.PlainTestCase):
    """Each command has a page, which agrees with --help."""

    def pages(self):
        """Yield the name, the module and the page of each command."""
        for name, where in project()['project']['scripts'].items():
            yield (name, importlib.import_module(where.partition(':')[0]),
                   (PAGES / (name + '.rst')).read_text())

    def test_all_are_listed(self):
        listed = re.findall(r'^   (dmclone\S*)$',
                            (PAGES / 'index.rst').read_text(), re.M)
        self.assertEqual(sorted(project()['project']['scripts']), listed)
        self.assertEqual(listed, sorted(
            page.stem for page in PAGES.glob('dmclone*.rst')))

    def test_name(self):
        """The first line is that of the command's module."""
        write = runpy.run_path(str(TOP / 'tools/man_pages.py'))
        for name, module, page in self.pages():
            lines = write['source_of'](page).splitlines()
            self.assertEqual(
                module.__doc__.partition('\n')[0].rstrip('.'),
                '%s: %s' % (lines[1], lines[5]), name)

    def test_options(self):
        for name, module, page in self.pages():
            if module is dmclone:
                continue
            self.assertEqual(
                {self.heading(option): option.help
                 for option in module.OPTIONS}, self.options(page), name)

    def test_general_options_of_verbs(self):
        application = dmclone.Application()
        self.assertEqual(
            {' '.join([action.option_strings[-1],
                       *([action.metavar] if action.metavar else [])]):
             action.help for action in application.parser._actions},
            self.options(self.parts()[0]))

    @staticmethod
    def parts():
        """Return the page of the verbs, before and after their options."""
        return (PAGES / 'dmclone.rst').read_text().split(
            '\nOptions of status, watch and show\n')

    def test_options_of_reading_verbs(self):
        paragraphs = self.options('\nOptions\n' + self.parts()[1])
        shown = set()
        for verb in (show.Show, status.Status, status.Watch):
            parser = verb(dmclone.Application(), None).get_parser('x')
            for action in parser._actions:
                name = ' '.join(filter(None, (*action.option_strings[-1:],
                                              action.metavar)))
                if name in paragraphs:
                    shown.add(name)
                    self.assertTrue(paragraphs[name].endswith(
                        action.help % {'default': action.default}), name)
        self.assertEqual(set(paragraphs), shown)

    def test_verbs(self):
        """Each verb has a paragraph that begins as its help does."""
        page = (PAGES / 'dmclone.rst').read_text()
        section = page.partition('\nVerbs\n')[2].partition('\nOptions\n')[0]
        paragraphs = dict(re.findall(r'^(\w+).*\n    (.+)$', section, re.M))
        self.assertEqual({*dmclone.VERBS, 'complete'}, set(paragraphs))
        for name, entry in dmclone.Verbs():
            if name in dmclone.VERBS:
                verb = entry.load()(dmclone.Application(), None)
                self.assertTrue(paragraphs[name].startswith(
                    verb.get_description().partition('\n')[0][:60]), name)

    @staticmethod
    def heading(option):
        if option.positional:
            return option.name
        value = ' %s' % option.metavar if option.metavar else ''
        return '--%s%s' % (option.name, value)

    @staticmethod
    def options(page):
        section = page.partition('\nOptions\n')[2].partition('\n====\n')[0]
        return {heading: ' '.join(text.split()) for heading, text in
                re.findall(r'^(\S.*)\n((?:    .+\n)+)',
                           section.partition('\nExit status\n')[0], re.M)}


class FilesTestCase(base.PlainTestCase):

    def test_all_are_in_the_wheel(self):
        listed = [name for names in
                  project()['tool']['setuptools']['data-files'].values()
                  for name in names if not name.endswith('*.8')]
        self.assertEqual(
            sorted(str(path.relative_to(TOP))
                   for path in (TOP / 'etc').rglob('*') if path.is_file()),
            sorted(listed))


class RequirementsTestCase(base.PlainTestCase):
    """What is imported is required, and nothing else but pbr.

    It is OpenStack's custom to name pbr, which builds the package; Cinder
    requires it, too.
    """

    @staticmethod
    def imported(folder='.'):
        found = set()
        for path in (TOP / 'dmclone_driver' / folder).rglob('*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found.update(alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    found.add(node.module)
        return ({name.partition('.')[0] for name in found} -
                sys.stdlib_module_names - {'dmclone_driver'})

    @staticmethod
    def required():
        lines = (TOP / 'requirements.txt').read_text().splitlines()
        return {re.match(r'[\w.-]+', line).group().lower().replace(
            '.', '_').replace('-', '_')
            for line in lines if line and line[0] != '#'}

    def test_requirements(self):
        # Only Nova's scheduler loads the code that imports Nova.
        self.assertEqual(self.imported() - {'nova'} | {'pbr'},
                         self.required())

    def test_without_cinder(self):
        """What Nova's scheduler loads needs only what Nova requires, too."""
        self.assertEqual({'nova', 'oslo_config', 'oslo_log', 'oslo_utils'},
                         self.imported('scheduler'))


class PatchTestCase(base.PlainTestCase):
    """The patch for Linux, which no tool may reformat."""

    FOLDER = TOP / 'contrib/linux'

    def test_complete(self):
        """The numbers of its lines, and the cover letter's, are right."""
        patch, = self.FOLDER.glob('0001-*.patch')
        counted = subprocess.run(
            ['git', 'apply', '--numstat', patch], check=True,
            capture_output=True, text=True).stdout.split('\n')
        found = [sum(int(line.split()[column]) for line in counted if line)
                 for column in (0, 1)]
        for text in (patch.read_text(),
                     (self.FOLDER / '0000-cover-letter.patch').read_text()):
            told = re.search(r'(\d+) insertions\(\+\), (\d+) deletions',
                             text)
            self.assertEqual(found, list(map(int, told.groups())))
