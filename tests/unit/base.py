# SPDX-License-Identifier: Apache-2.0
"""Base classes of unit tests: with a database, and with simulated nodes."""

import os
import re
from unittest import mock
import uuid
import warnings
import zlib

from cinder import objects
from cinder.tests.unit import test
import fixtures
from sqlalchemy import engine
from sqlalchemy import event
import testtools

from dmclone_driver.node import logical_volumes
from dmclone_driver.node import names
from tests.unit.fakes import cloud
from tests.unit.fakes import kernel
from tests.unit.fakes import moments
from tests.unit.fakes import steps
from tests.unit.fakes import storage

READS = re.compile(r': (dm (look|status)|dmsetup targets|lvs|size|sysfs|'
                   r'logical_block_size|vgs)')

#: Of the steps that each fail once, how many hundredths are tried.
PERCENT = int(os.environ.get('DMCLONE_STEPS_PERCENT') or 100)


class PlainTestCase(testtools.TestCase):
    """A test without database and nodes."""

    def setUp(self):
        super().setUp()
        # The log is printed only for a failed test.
        self.log = self.useFixture(fixtures.FakeLogger())

    def patch(self, path, *args, **kwargs):
        """Patch an object until the end of the test."""
        patcher = mock.patch(path, *args, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()


class MachineTestCase(PlainTestCase):
    """A test with one simulated machine, and without database."""

    def setUp(self):
        super().setUp()
        self.steps = steps.Steps()
        self.lvm = storage.Lvm(self.steps, 'node', {
            'volumes': 100 * storage.GIB, 'fast': storage.GIB})
        self.kernel = kernel.Kernel(self.lvm, self.steps, 'node')
        self.lvm.kernel = self.kernel
        for path, name in cloud.KERNEL.items():
            self.patch('dmclone_driver.privsep.' + path,
                       new=getattr(self.kernel, name))
        for name, fake in cloud.SYSFS.items():
            self.patch('dmclone_driver.node.devicemapper.sysfs.' + name,
                       new=self.kernel.sysfs(fake))
        self.patch('dmclone_driver.privsep.command.lvm', new=self.lvm.lvm)
        for name in cloud.BLOCK:
            self.patch('dmclone_driver.privsep.block.' + name,
                       new=self.kernel.block(name))
        self.patch('dmclone_driver.node.copying.time.sleep')

    def tearDown(self):
        self.assertEqual([], self.kernel.violations)
        super().tearDown()

    def logical_volume(self, size=storage.GIB, group='volumes'):
        """Create a volume's logical volume; returns (Names, LogicalVolume)."""
        mine = names.Names(str(uuid.uuid4()))
        self.lvm.add(group, mine.volume, size)
        return mine, logical_volumes.find(mine.volume, group)


class DatabaseTestCase(test.TestCase):
    """A test with Cinder's schema in SQLite."""

    def setUp(self):
        super().setUp()
        # The default. Cinder's tests have one that leaves no time for a move.
        self.messaging_conf.response_timeout = 60
        # A warning in Cinder's code for each row that it reads.
        warnings.filterwarnings('ignore', message='Passing item_cls',
                                category=DeprecationWarning)


class CloudTestCase(DatabaseTestCase):
    """A test with two simulated nodes, and a volume on the first.

    It fails if an action would have hung, or would have destroyed data.
    """

    #: The kinds of volumes on the nodes, as lvm_type.
    KINDS = ('default', 'default')

    def setUp(self):
        super().setUp()
        self.cloud = cloud.Cloud(self)
        self.a, self.b = (
            self.cloud.add(name, lvm_type=kind) for name, kind in zip(
                ('node1', 'node2'), self.KINDS, strict=True))
        self.cloud.settle()
        self.volume = self.a.create()
        self.context = self.cloud.context

    def tearDown(self):
        self.assertEqual([], self.cloud.violations())
        super().tearDown()

    def row(self):
        """Read the volume's row."""
        return self.cloud.row(self.volume.id)

    def snapshot_row(self):
        """Create the row of a snapshot of the volume; return it as read."""
        record = objects.Snapshot(
            self.context, volume_id=self.volume.id, volume_size=1,
            status='available', user_id=self.volume.user_id,
            project_id=self.volume.project_id,
            volume_type_id=self.volume.volume_type_id)
        record.create()
        return objects.Snapshot.get_by_id(self.context, record.id)

    def look_at_order(self, node, gate, home):
        """Run a watcher; check that it seals the home, then opens the gate."""
        seen = set()
        self.cloud.steps.observe = lambda: seen.add((gate.suspended,
                                                     home.sealed))
        node.look()
        self.cloud.steps.observe = lambda: None
        self.assertEqual({(True, False), (True, True), (False, True)}, seen)

    def assertIdle(self, node):
        """Check that the volume's home is a node, without leftovers."""
        self.assertEqual(node.pool, self.row().host)
        self.assertEqual([], self.cloud.leftovers())

    def delete(self, volume):
        """Delete a volume on its home, and its row."""
        volume = self.cloud.row(volume.id)
        home = self.cloud.by_host[volume.host.partition('#')[0]]
        with self.cloud.on(home):
            home.driver.delete_volume(volume)
        self.cloud.settle()
        volume.destroy()

    def each_step(self, act, before=None, **fault):
        """Repeat an action on new volumes; each time another step fails.

        A process is killed before and after each step, unless that is the
        same as to be killed a moment earlier.

        :param act: the action, a function of a volume
        :param before: a preparation without failures, a function of a volume
        :param fault: the kind of failure, as of :meth:`.steps.Steps.start`
        :returns: iterator of (step, volume, exception or None)
        """
        to_do = [None]
        for chosen in to_do:
            volume = self.a.create()
            if before:
                before(volume)
            if chosen:
                step, number, after = chosen
                self.cloud.steps.start(number, **dict(fault, after=after))
                error = self._error_of(act, volume)
                self.cloud.steps.start()
                # The last steps of the first time may not be needed again.
                yield step, volume, error
            else:
                to_do += self._some(self._failures(act, volume, **fault))
            for node in self.cloud.nodes.values():
                self.assertFalse(node.down)
            self.cloud.watch(3)
            for attachment in self.cloud.row(volume.id).volume_attachment:
                attachment.destroy()
            self.delete(volume)
            self.cloud.watch(2)

    def _some(self, failures):
        """Return those that are tried: others in each test."""
        every = 100 // PERCENT
        return failures[zlib.crc32(self.id().encode()) % every::every]

    @staticmethod
    def _error_of(act, volume):
        """Return what an action raises, or None."""
        try:
            act(volume)
        except (Exception, steps.Killed) as caught:
            return caught

    def _failures(self, act, volume, after=False, killed=False, **power):
        """Act without a failure, to see which there can be.

        :returns: list of (step, its number, whether it is done before)
        """
        self.cloud.steps.start()
        seen = moments.Moments(self.cloud)
        with seen.recorded():
            self.assertIsNone(self._error_of(act, volume))
        log = self.cloud.steps.log
        self.cloud.steps.start()
        self.assertNotEqual([], log)
        if killed:
            self.assertFalse(after, 'both are done')
            return [(moment.step, moment.number, moment.done)
                    for moment in seen.different()]
        # After a step that reads it is the same as before.
        return [(step, number, after) for number, step in enumerate(log)
                if not (after and READS.search(step))]


class QueriesTestCase(CloudTestCase):
    """A test that counts the statements for the database, in `queries`."""

    def setUp(self):
        super().setUp()
        self.queries = []
        event.listen(engine.Engine, 'before_cursor_execute', self._query)
        self.addCleanup(event.remove, engine.Engine, 'before_cursor_execute',
                        self._query)

    def _query(self, connection, cursor, statement, *args):
        self.queries.append(statement)
