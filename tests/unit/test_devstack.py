# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, run by a stand-in for DevStack."""

import re

from tests.devstack import cases
from tests.devstack import harness
from tests.unit import base


class StandInTestCase(cases.PluginCases, base.PlainTestCase):
    """The phases that DevStack's documentation promises to plugins."""


class DocumentationTestCase(base.PlainTestCase):
    """The page about DevStack agrees with the files of the plugin."""

    PAGE = (harness.TOP / 'doc/source/contributor/devstack.rst').read_text()

    def test_settings(self):
        """The table has each setting, with its default."""
        settings = (harness.TOP / 'devstack/settings').read_text()
        values = dict(re.findall(r'^: "\$\{(DMCLONE_\w+):=(.*)\}"$', settings,
                                 re.MULTILINE))
        values.update({name: value for value, name in re.findall(
            r'\(trueorfalse (\w+) (DMCLONE_\w+)\)', settings)})
        shown = re.findall(r'^   \* - ``(DMCLONE_\w+)``\n     - (.*)$',
                           self.PAGE, re.MULTILINE)
        self.assertEqual({
            name: value.replace('$VOLUME_GROUP_NAME', 'stack-volumes')
            .lstrip('$') or 'none' for name, value in values.items()},
            {name: value.strip('`') for name, value in shown})

    def test_samples(self):
        shown = re.findall(r'literalinclude:: \S+/devstack/samples/(\S+)',
                           self.PAGE)
        self.assertEqual({path.name for path in harness.SAMPLES.iterdir()},
                         set(shown))
