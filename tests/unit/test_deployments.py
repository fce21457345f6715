# SPDX-License-Identifier: Apache-2.0
"""The examples for deployment tools: their form, and our names in them."""

import configparser
import pathlib
import re
import shutil

import fixtures
from oslo_utils import importutils
import yaml

from tests.deployments import sources
from tests.unit import base
from tests.unit import test_packaging

TOP = pathlib.Path(__file__).parents[2]
DRIVER = 'dmclone_driver.driver.DMCloneVolumeDriver'


class ExamplesTestCase(base.PlainTestCase):

    def settings(self, page):
        """Return the options of a page, as (name, value)."""
        text = sources.text_of(page)
        for block in sources.blocks(text, 'ini'):
            parser = configparser.ConfigParser(
                delimiters=['='], interpolation=None, allow_no_value=True)
            parser.read_string(block)
            for section in (*parser.sections(), 'DEFAULT'):
                yield from parser[section].items()
        pending = [yaml.safe_load(block)
                   for block in sources.blocks(text, 'yaml')]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                yield from value.items()
                pending += value.values()
            elif isinstance(value, list):
                pending += value

    def test_settings(self):
        """They name this driver, and what it needs."""
        for page in sources.SOURCES:
            found = dict(self.settings(page))
            self.assertEqual(DRIVER, found['volume_driver'], page)
            self.assertEqual(
                'True', str(found['volume_service_inithost_offload']), page)
            self.assertIn('tgtadm', found['cinder_target_helper'], page)
        self.assertIsNotNone(importutils.import_class(DRIVER))

    def test_our_files(self):
        """Files of the checkout, and of the wheel below its prefix."""
        listed = test_packaging.project()['tool']['setuptools']['data-files']
        wheel = {'%s/%s' % (folder, name.rpartition('/')[2])
                 for folder, names in listed.items() for name in names}
        for page in sources.SOURCES:
            text = sources.text_of(page)
            ours = re.findall(r'install (?:-D )?-m 0644 (etc/\S+)', text)
            self.assertLess(1, len(ours), page)
            for name in ours:
                self.assertTrue((TOP / name).is_file(), name)
            for name in re.findall(r'/var/lib/kolla/venv/(\S+)', text):
                self.assertIn(name, wheel)

    def test_commits(self):
        """Each page says which sources it is about."""
        for page, names in sources.SOURCES.items():
            self.assertEqual(len(names), len(set(re.findall(
                r'commit ([0-9a-f]{12}) ', ' '.join(
                    sources.text_of(page).split())))), page)


class SourcesTestCase(base.PlainTestCase):
    """What tools/deployments-check finds."""

    PAGE = '''
See ``ansible/roles/x.yml`` and ``templates/cinder.conf.j2``.

.. code-block:: yaml

   cinder_a: "{{ cinder_b }}"
   hosts:
     - volume_group: vg

.. code-block:: jinja

   {% block footer %}

'''

    def checkout(self):
        folder = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('ansible/roles/x.yml', 'templates/cinder.conf.j2'):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text('')
        (folder / 'all.yml').write_text('cinder_a cinder_b hosts footer')
        self.patch('tests.deployments.sources.text_of').return_value = (
            self.PAGE)
        return folder

    def test_all_is_there(self):
        self.assertEqual([], sources.missing('p', [self.checkout()]))

    def test_a_file_and_names_are_missing(self):
        folder = self.checkout()
        shutil.rmtree(folder / 'ansible')
        (folder / 'all.yml').write_text('cinder_a2 cinder_b hosts')
        self.assertEqual(
            ['ansible/roles/x.yml', 'cinder_a', 'footer'],
            sources.missing('p', [folder]))

    def test_pages(self):
        """Both pages name files and variables of their tools."""
        for page in sources.SOURCES:
            text = sources.text_of(page)
            self.assertLess(5, len(sources.files(text)), page)
            self.assertLess(4, len(sources.variables(text)), page)
