# SPDX-License-Identifier: Apache-2.0
"""Random histories of volumes on three nodes, with random faults.

The faults are killed services and power cuts, and, if etcd keeps the locks,
killing etcd.

DMCLONE_SOAK_SECONDS sets the duration, DMCLONE_SOAK_SEED the random actions.
"""

import collections
import concurrent.futures
import os
import random
import threading
import time

from lab.common import user as user_module
from tests.scenarios.lib import base
from tests.soak import life

SECONDS = int(os.environ.get('DMCLONE_SOAK_SECONDS') or 1800)
SEED = int(os.environ.get('DMCLONE_SOAK_SEED') or 1)
#: The actions that have to succeed at least once in half an hour. In a shorter
#: run this depends on chance; check_without_faults runs most of them anyway.
WANTED = {'create', 'attach', 'write', 'read', 'migrate', 'detach', 'abort',
          'snapshot', 'extend', 'delete'} if SECONDS >= 1800 else set()
#: The folder of the log of a run.
LOGS = os.environ.get('DMCLONE_TEST_LOGS') or 'test-logs'
#: The number of volumes at a time.
HISTORIES = 4
#: Maximum of seconds between the end of a fault and the next fault.
QUIET = 30
# Clear whole volumes, so that the next volume contains only its own data.
OPTIONS = {'volume_driver': 'tests.soak.driver.SmallVolumes',
           'volume_clear_size': str(life.MIB)}


class SoakTest(base.SetupTest):
    """No data is lost, and there is no leftover."""

    TO_END = life.PATIENCE

    def test_soak(self):
        nodes = list(self.lab.nodes.values())
        self.assertGreaterEqual(len(nodes), 3)
        self.said, self.begun = [], time.monotonic()
        self.over = threading.Event()
        self.etcd = self.lab.settings.coordination == 'etcd'
        with self.configured(OPTIONS, *nodes):
            histories = [
                life.History(self.lab, user_module.User(self.lab),
                             '%d-%d' % (SEED, number), self.say)
                for number in range(HISTORIES)]
            try:
                self.run_histories(histories)
                self.at_once([each.check_without_faults
                              for each in histories], HISTORIES)
                self.say('done: %s' % self.done(histories))
                # While the driver still creates small volumes.
                self.clean_up()
            finally:
                self.write_log()
        self.assertEqual(set(), WANTED - set(self.done(histories)))

    @staticmethod
    def done(histories):
        """Return the number of completed actions per name."""
        return sum((each.done for each in histories), collections.Counter())

    def run_histories(self, histories):
        with concurrent.futures.ThreadPoolExecutor(
                HISTORIES + 1, initializer=self.lab.enter) as pool:
            jobs = [pool.submit(self.act, each) for each in histories]
            jobs.append(pool.submit(self.inject_faults))
            done, _ = concurrent.futures.wait(
                jobs, SECONDS, concurrent.futures.FIRST_EXCEPTION)
            self.over.set()
            for job in jobs:
                job.result()

    def act(self, each):
        while not self.over.is_set():
            each.act()

    def inject_faults(self):
        """Repeatedly kill a service, or cut a node's power."""
        chance = random.Random('%d-trouble' % SEED)
        while not self.over.wait(chance.uniform(QUIET / 3, QUIET)):
            node = chance.choice(list(self.lab.nodes.values()))
            away = chance.uniform(0, 10)
            if self.etcd and chance.random() < 0.4:
                self.say('kill etcd')
                self.lab.control.kill('etcd')
                time.sleep(away)
                self.lab.control.start('etcd')
                continue
            if chance.random() < 0.6:
                self.say('kill', None, node.name)
                node.kill('cinder-volume')
                time.sleep(away)
                node.start_service('cinder-volume')
            else:
                self.say('cut power', None, node.name)
                node.cut_power()
                time.sleep(away)
                node.start()
            node.wait_ready()

    def say(self, what, volume_id=None, node=''):
        self.said.append('%6.1f %s %s %s' % (
            time.monotonic() - self.begun, volume_id or '-', node, what))

    def write_log(self):
        """Write the log of actions and faults."""
        path = os.path.join(LOGS, 'soak-%d.txt' % SEED)
        os.makedirs(LOGS, exist_ok=True)
        with open(path, 'w') as stream:
            stream.write('\n'.join(['seed %d' % SEED, *self.said, '']))
        print('log of the actions: ' + path)
