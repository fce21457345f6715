# SPDX-License-Identifier: Apache-2.0
"""Outages of the database in the middle of operations."""

import contextlib

import ddt
from oslo_db import exception as db_exception
import sqlalchemy

from dmclone_driver.releases import db_api
from tests.unit import base


@ddt.ddt
class DatabaseAwayTestCase(base.CloudTestCase):
    """Everything converges afterwards without a restart of a service."""

    def setUp(self):
        super().setUp()
        self.left = None
        engine = db_api.main_context_manager.writer.get_engine()
        sqlalchemy.event.listen(engine, 'before_cursor_execute', self.count)
        self.addCleanup(sqlalchemy.event.remove, engine,
                        'before_cursor_execute', self.count)

    def count(self, *args):
        """Count statements, and fail after the allowed number."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise db_exception.DBConnectionError

    @contextlib.contextmanager
    def away_after(self, statements):
        """Make the database fail after a number of statements."""
        self.left = statements
        try:
            yield
        finally:
            self.went, self.left = self.left < 0, None

    def migrate(self, volume):
        self.cloud.attach(volume, self.a)
        self.cloud.attach(volume, self.b)

    def move(self, volume):
        self.cloud.attach(volume, self.b)

    def open_move(self, volume):
        """Leave an unused clone that hydrates."""
        self.move(volume)
        self.cloud.settle()
        self.cloud.detach(volume, self.b)

    def nothing(self, volume):
        pass

    def attach(self, volume):
        self.cloud.attach(volume, self.b)

    def old_goes(self, volume):
        self.cloud.detach(volume, self.a)

    def new_goes(self, volume):
        self.cloud.detach(volume, self.b)

    def guest_writes(self, volume):
        clone, = self.b.clones()
        self.b.kernel.write(clone)
        self.b.look()

    def complete(self, volume):
        self.b.hydrate()
        self.b.look()

    def remove(self, volume):
        """Delete the volume as Cinder does; repeatable after an error."""
        with self.cloud.on(self.b):
            self.b.driver.delete_volume(self.cloud.row(volume.id))

    @ddt.data(('nothing', 'attach'), ('migrate', 'old_goes'),
              ('migrate', 'new_goes'), ('migrate', 'guest_writes'),
              ('move', 'complete'), ('open_move', 'remove'))
    @ddt.unpack
    def test_away(self, before, act):
        wrong, statements, self.went = {}, 0, True
        while self.went:
            volume = self.a.create()
            getattr(self, before)(volume)
            with self.away_after(statements):
                try:
                    getattr(self, act)(volume)
                    self.cloud.settle()
                except db_exception.DBConnectionError:
                    pass
            self.end(volume, act)
            if self.cloud.leftovers():
                wrong[statements] = self.cloud.leftovers()
                break
            if self.cloud.row(volume.id):
                self.delete(volume)
            statements += 100 // base.PERCENT
        self.assertEqual({}, wrong)
        self.assertGreater(statements, 5)

    def end(self, volume, act):
        """Act as Nova and a user after the outage."""
        if act == 'remove':
            self.remove(volume)
            self.cloud.watch(4)
            self.cloud.row(volume.id).destroy()
            return
        for attachment in self.cloud.row(volume.id).volume_attachment:
            home = self.cloud.by_host[self.cloud.row(
                volume.id).host.partition('#')[0]]
            with self.cloud.on(home):
                home.driver.terminate_connection(
                    self.cloud.row(volume.id), attachment.connector)
            attachment.destroy()
        self.cloud.watch(4)
