# SPDX-License-Identifier: Apache-2.0
"""Nodes at rest, the status of all, and many that are drained at once.

The commands, the services and Cinder's database are the real ones; see
:mod:`tests.simulation.cloud` for what is simulated.
"""

import types
import uuid

from oslo_utils import timeutils

from dmclone_driver.cmd import drain
from dmclone_driver.cmd import reading
from dmclone_driver.drain import stop
from dmclone_driver.move import gathering
from dmclone_driver.move import lookups
from dmclone_driver.move import rpcapi
from dmclone_driver.releases import db_api
from dmclone_driver.releases import models
from tests.unit.fakes import cloud as fake_cloud

#: Seconds between two reports of a backend (backend_stats_polling_interval).
REPORT = 60
#: GiB of a volume.
SIZE = 10
ZONE = 'nova'
#: Number of volumes for which there is room on a node, or more.
ROOM = 50
#: Times that an operator repeats the command for what is left.
TRIES = 20


class Drains:
    """Some nodes that are drained, and others."""

    def __init__(self, cloud, nodes, volumes, drained, moving):
        """Create the nodes and their volumes.

        :param nodes: number of nodes
        :param volumes: number of volumes on a node
        :param drained: number of nodes that are drained
        :param moving: number of volumes on each of these: each moves
        """
        self.cloud, self.meter = cloud, cloud.meter
        for number in range(nodes):
            # Some have more room than others.
            node = cloud.add('node%04d' % number, size=(
                ROOM + number * 7 % ROOM) * SIZE * 2 ** 30)
            node.service.availability_zone = ZONE
            node.service.save()
        everyone = list(cloud.nodes.values())
        # Spread over all names.
        self.drained = everyone[::nodes // drained][:drained]
        # The starts read no volumes: that is not what is simulated.
        self.rest(1)
        self._insert([row for node in everyone if node not in self.drained
                      for row in self._rows(node, volumes)])
        self._together(self._create, moving)
        for number, node in enumerate(everyone):
            cloud.spawn(self._report, node, number % REPORT)

    def _report(self, node, pause):
        """Do what Cinder's manager has a driver do once a minute."""
        self.cloud.here = node
        while True:
            self.cloud.pause(pause)
            node.driver.get_volume_stats(refresh=True)
            pause = REPORT

    def _together(self, function, *args):
        """Call a function for each of the nodes that are drained."""
        left = list(self.drained)

        def work(node):
            function(node, *args)
            left.remove(node)
        for node in self.drained:
            self.cloud.spawn(work, node)
        self.cloud.clock.run(lambda: not left)

    @staticmethod
    def _create(node, number):
        for _number in range(number):
            node.create(SIZE)

    def _rows(self, node, number):
        """Return the rows of volumes at rest."""
        return [{
            'id': str(uuid.uuid4()), 'host': node.pool, 'size': SIZE,
            'provider_id': node.pool, 'status': 'available',
            'attach_status': 'detached', 'deleted': False,
            'user_id': self.cloud.context.user_id,
            'project_id': self.cloud.context.project_id,
            'created_at': timeutils.utcnow(), 'use_quota': True,
            'service_uuid': node.service.uuid, 'availability_zone': ZONE,
            'volume_type_id': self.cloud.test.vt['id']}
            for _ in range(number)]

    def _insert(self, rows):
        with db_api.main_context_manager.writer.using(self.cloud.context):
            self.cloud.context.session.execute(
                models.Volume.__table__.insert(), rows)

    def rest(self, seconds):
        """Let the services run for some time; nobody uses them."""
        end = self.cloud.clock.now + seconds
        self.cloud.spawn(self.cloud.clock.sleep, seconds)
        self.cloud.clock.run(lambda: self.cloud.clock.now >= end)

    def status(self):
        """Ask all nodes for their reports, as "dmclone status" does.

        :returns: the backends that have not answered
        """
        found = []

        def look():
            start = self.cloud.clock.now
            found.extend(gathering.gather(
                self.cloud.context.elevated(), rpcapi.PeerClient(),
                [fake_cloud.BACKEND], reading.LIMIT).nodes)
            # The time of the last queries, too.
            self.cloud.pause(0)
            self.meter.waited('the answer', self.cloud.clock.now - start)
        self.cloud.spawn(look)
        self.cloud.clock.run(lambda: self.meter.has_waited('the answer'))
        return [node.backend for node in found if node.report is None]

    def run(self):
        """Drain the nodes at once, until no volume needs them."""
        self.cloud.start_copying()
        self._together(self._empty)

    def _empty(self, node):
        """Run the command until nothing is left, as an operator does."""
        start = self.cloud.clock.now
        options = types.SimpleNamespace(node=node.name, to=None,
                                        parallel=drain.PARALLEL,
                                        with_snapshots=False)
        context = self.cloud.context.elevated()
        for _try in range(TRIES):
            parts = drain._Parts(context, options, stop.Stop(),
                                 lambda line: None)
            parts.make_ready(disable=True)
            result = parts.runner.run(wait=True)
            self.meter.count('commands')
            for outcome in result.outcomes:
                self.meter.count('volumes moved' if outcome.done else
                                 'volumes refused, and tried again')
            if not result.items:
                break
        self.meter.waited('a drain, until the node is empty',
                          self.cloud.clock.now - start)

    def wrong(self):
        """Return what is wrong at the end: volumes that have not moved."""
        context = self.cloud.context
        return [*self.cloud.violations(), *(
            'volume %s is still on %s' % (row.id, node.name)
            for node in self.drained
            for row in lookups.on_host(context, node.host))]
