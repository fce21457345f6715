# SPDX-License-Identifier: Apache-2.0
"""The driver's queries use the indexes of Cinder's tables."""

import pathlib
import re

from cinder import context as cinder_context
from sqlalchemy import engine
from sqlalchemy import event

from dmclone_driver.move import lookups
from dmclone_driver.move import report_rows
from dmclone_driver.move import row_repairs
from dmclone_driver.move import snapshot_rows
from tests.unit import base

PACKAGE = pathlib.Path(__file__).parents[2] / 'dmclone_driver'
HOST = 'node1@dmclone'
#: MariaDB uses no index for "deleted IS false", and reads all rows of the
#: table: of 200,000 volumes in 0.1 to 0.3 s, instead of the 200 of a node in
#: some ms. For "deleted = false" it uses the indexes that begin with this
#: column.
WITHOUT_INDEX = re.compile(r'deleted IS (NOT )?[01]|NOT \w+\.deleted')


class IndexesTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.context = cinder_context.get_admin_context()
        self.queries = []
        event.listen(engine.Engine, 'before_cursor_execute', self._query)
        self.addCleanup(event.remove, engine.Engine, 'before_cursor_execute',
                        self._query)

    def _query(self, connection, cursor, statement, *args):
        if statement != 'BEGIN':
            self.queries.append(statement)

    def test_queries_that_are_repeated(self):
        """Those of each minute, of a report, and of a drain."""
        for read in (row_repairs.altered, lookups.moves_from,
                     lookups.exported_on, snapshot_rows.to_delete,
                     snapshot_rows.there):
            read(self.context, HOST)
        report_rows.of_backend(self.context, HOST, ['id'])
        report_rows.moves(self.context)
        report_rows.volumes(self.context)
        self.assertEqual(10, len(self.queries))
        for each in self.queries:
            self.assertRegex(each, r'\.deleted = [01]')
            self.assertNotRegex(each, WITHOUT_INDEX)

    def test_all_modules(self):
        found = [str(path.relative_to(PACKAGE))
                 for path in PACKAGE.rglob('*.py')
                 if re.search(r'\.deleted\.is_', path.read_text())]
        self.assertEqual([], found)
