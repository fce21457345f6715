# SPDX-License-Identifier: Apache-2.0
"""Cells of the page "Support matrix", with thin volumes."""

from tests.unit.move import test_node_down
from tests.unit import test_backups


class Thin:
    """Mixin: both nodes make thin volumes, of which only a part is copied."""

    KINDS = ('thin', 'thin')


class BackupTestCase(Thin, test_backups.BackupTestCase):
    pass


class ExtendTestCase(Thin, test_node_down.ExtendTestCase):
    pass


class RevertTestCase(Thin, test_node_down.RevertTestCase):
    pass


class ImagesTestCase(Thin, test_node_down.ImagesTestCase):
    pass


class ThirdNodeTestCase(Thin, test_node_down.ThirdNodeTestCase):
    pass
