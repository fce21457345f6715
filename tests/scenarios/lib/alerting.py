# SPDX-License-Identifier: Apache-2.0
"""Base of tests of alerts: nodes that offer metrics, and their scrapes."""

from lab import wait
from tests.alerts import scrapes
from tests.scenarios.lib import base

PORT = 9750
OPTIONS = {'dmclone_metrics_port': str(PORT),
           'dmclone_metrics_address': '0.0.0.0'}
#: Seconds between two scrapes.
PAUSE = 5


class AlertTest(base.SetupTest):
    """A test of alerts, which fire by a cause and go away with it."""

    def setUp(self):
        super().setUp()
        self.configure()
        self.scrapes = scrapes.Scrapes({
            node.name: node.ip for node in self.lab.nodes.values()}, PORT)
        wait.until(lambda: self.scrapes.answering() == set(self.lab.nodes),
                   'the metrics of all nodes', 60)

    def configure(self):
        """Have all nodes offer metrics, until the end of the test."""
        self.use(OPTIONS, *self.lab.nodes.values())

    def use(self, options, *nodes):
        """Run nodes with other options of the backend, until the end."""
        configured = self.configured(options, *nodes)
        configured.__enter__()
        self.addCleanup(configured.__exit__, None, None, None)

    def assertFires(self, cause, within=120, ends=180, **alerts):
        """Check that alerts fire by a cause, and not before and after it.

        :param cause: context manager
        :param within: seconds until all have fired
        :param ends: seconds until none fires any more
        :param alerts: name=node
        """
        expected = {(name, node.name) for name, node in alerts.items()}
        self.assertEqual(set(), expected & self.scrapes.look())
        seen = set()

        def fired():
            seen.update(self.scrapes.look())
            return expected <= seen
        with cause:
            wait.until(fired, 'alerts %s' % sorted(expected), within, PAUSE,
                       log=lambda: 'there were: %s' % sorted(seen))
        wait.until(lambda: not expected & self.scrapes.look_later(PAUSE),
                   'alerts %s to end' % sorted(expected), ends, PAUSE,
                   log=lambda: 'there are: %s' % sorted(self.scrapes.look()))
