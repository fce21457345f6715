# SPDX-License-Identifier: Apache-2.0
"""The DevStack plugin, run by the functions of a checkout of DevStack.

``tools/devstack-check`` runs it.
"""

import os

import testtools

from tests.devstack import cases

DEVSTACK_DIR = os.environ.get('DEVSTACK_DIR')


@testtools.skipUnless(DEVSTACK_DIR, 'DEVSTACK_DIR is not set')
class DevStackTestCase(cases.PluginCases, testtools.TestCase):
    """The functions of DevStack itself, instead of the stand-in's."""

    devstack = DEVSTACK_DIR
