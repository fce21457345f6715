# SPDX-License-Identifier: Apache-2.0
"""Random lives on three nodes, whose services and power go at random.

Where etcd keeps the locks it goes, too.

DMCLONE_SOAK_SECONDS says how long, DMCLONE_SOAK_SEED repeats what was tried.
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
#: What has to be done at least once in half an hour. In less, chance and the
#: machine decide; in peace a bit of all is done in any case.
WANTED = {'create', 'attach', 'write', 'read', 'migrate', 'detach', 'abort',
          'snapshot', 'extend', 'delete'} if SECONDS >= 1800 else set()
#: Where the story of a run goes.
STORIES = os.environ.get('DMCLONE_TEST_LOGS') or 'test-logs'
#: Volumes that live at a time.
LIVES = 4
#: Seconds between the end of one trouble and the next, at most.
QUIET = 30
# All that is written is cleared, so that the next shows only its own data.
OPTIONS = {'volume_driver': 'tests.soak.driver.SmallVolumes',
           'volume_clear_size': str(life.MIB)}


class SoakTest(base.SetupTest):
    """Nothing is lost, and nothing is left."""

    TO_END = life.PATIENCE

    def test_soak(self):
        nodes = list(self.lab.nodes.values())
        self.assertGreaterEqual(len(nodes), 3)
        self.said, self.begun = [], time.monotonic()
        self.over = threading.Event()
        self.etcd = self.lab.settings.coordination == 'etcd'
        with self.configured(OPTIONS, *nodes):
            lives = [life.Life(self.lab, user_module.User(self.lab),
                               '%d-%d' % (SEED, number), self.say)
                     for number in range(LIVES)]
            try:
                self.live(lives)
                self.at_once([each.live_in_peace for each in lives], LIVES)
                self.say('done: %s' % self.done(lives))
                # While volumes are still small.
                self.clean_up()
            finally:
                self.keep_story()
        self.assertEqual(set(), WANTED - set(self.done(lives)))

    @staticmethod
    def done(lives):
        """Return how often each thing has been done."""
        return sum((each.done for each in lives), collections.Counter())

    def live(self, lives):
        with concurrent.futures.ThreadPoolExecutor(
                LIVES + 1, initializer=self.lab.enter) as pool:
            jobs = [pool.submit(self.go_on, each) for each in lives]
            jobs.append(pool.submit(self.make_trouble))
            done, _ = concurrent.futures.wait(
                jobs, SECONDS, concurrent.futures.FIRST_EXCEPTION)
            self.over.set()
            for job in jobs:
                job.result()

    def go_on(self, each):
        while not self.over.is_set():
            each.go_on()

    def make_trouble(self):
        """Kill a service, or cut a node's power, again and again."""
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

    def keep_story(self):
        """Write down what has happened."""
        path = os.path.join(STORIES, 'soak-%d.txt' % SEED)
        os.makedirs(STORIES, exist_ok=True)
        with open(path, 'w') as stream:
            stream.write('\n'.join(['seed %d' % SEED, *self.said, '']))
        print('what was done: ' + path)
