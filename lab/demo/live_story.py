# SPDX-License-Identifier: Apache-2.0
"""The demo of a live migration: a volume follows a guest that writes.

Runs inside the laboratory's network, with its environment's Python. All
printed facts were observed in this run; an unexpected one ends the demo.
"""

import sys
import time

from dmclone_driver.node import names as names_module
from lab.common import consoles
from lab.common import leftovers
from lab.common import servers as servers_module
from lab.demo import bar as bar_module
from lab.demo import story
from lab import paths
from lab import wait

_CHECK = ('cd %s && %s -m lab.common.records %s %s %d < /dev/null')


class LiveStory(story.Story):
    """A server and its volume, and their live migration."""

    nova = True
    move = 'live migration'

    def __init__(self, lab, screen):
        super().__init__(lab, screen)
        self.servers = servers_module.Servers(lab)

    def tell(self):
        """Run all chapters."""
        self.introduce()
        self.create()
        self.boot()
        self.write()
        self.migrate()
        self.show_arrival()
        self.hydrate()
        self.prove_source_gone()
        self.check()
        self.delete()
        self.summarise()

    # The chapters

    def boot(self):
        self.screen.title('2. Start a server with it on %s' % self.home.name)
        self.say('Nova starts a guest there, under QEMU; the volume is its '
                 'root disk.')
        self.user.make_bootable(self.volume_id,
                                self.servers.boot_properties())
        with self.timed('start of the server, until its guest writes'):
            self.server_id = self.servers.boot(self.home, self.volume_id)
            self.console = consoles.Console(self.lab, self.server_id)
            self.console.wait_writing(self.volume_id)

    def write(self):
        self.say('The guest writes records of 4 KiB to the volume, flushes '
                 'each to the disk, and says so on its console:')
        time.sleep(2)
        self.screen.output('\n'.join(
            'lab: %s %s' % (line.serial, line.said) for line in
            self.console.of(self.volume_id)[-3:]))
        self.expected_home(self.home)

    def migrate(self):
        self.screen.title('3. Live-migrate it to %s' % self.away.name)
        self.say('The guest continues to write during the migration.')
        self.screen.command('$', 'openstack server migrate --live-migration '
                            '--host %s %s' % (self.away.name,
                                              self.server_id))
        self.moved_at = time.monotonic()
        self.servers.live_migrate(self.server_id, self.away)
        shown = None
        while shown not in ('completed', 'error', 'failed'):
            time.sleep(0.2)
            newest = self.servers.migration(self.server_id)
            if newest and newest['status'] != shown:
                shown = newest['status']
                self.say('%s; the guest is at record %d.' % (
                    shown, self.console.last(self.volume_id)))
        story.expect('the migration', 'completed', shown)
        self.since_move('live migration, from request to end')

    def show_arrival(self):
        self.console.wait_writing(self.volume_id, self.away.name)
        first, *_ = self.console.acknowledged(
            self.volume_id, self.moved_at, self.away.name)
        gap, _ = self.console.gap(self.volume_id, self.moved_at)
        self.times.append(('live migration, until the first write there',
                           first.at - self.moved_at, ''))
        self.times.append(('longest gap between two writes', gap, ''))
        self.say('The guest runs on %s. Its first record there was number '
                 '%d; the longest gap between two records was %.1f s.' % (
                     self.away.name, first.record, gap))
        self.expected_home(self.away)
        attachment, = self.user.attachments(self.volume_id)
        self.attachment = attachment
        placeholder, = leftovers.placeholders(self.lab, self.volume_id)
        self.names = names_module.Names(placeholder)
        self.path = self.names.path()
        self.say('Its volume is a dm-clone on %s: writes go to the disk '
                 'there, blocks that are not copied yet are read from %s.'
                 % (self.away.name, self.home.name))
        self.show(self.away, 'dmsetup status --noflush %s-clone' % self.path)

    def hydrate(self):
        self.screen.title('4. Hydration while the guest runs')
        self.bar = bar_module.Bar(self.screen, story.GIB * story.MIB)
        begin = time.monotonic()
        self.watch(lambda: time.monotonic() > begin + 180)
        if self.bytes_here() < story.GIB * story.MIB:
            raise story.Wrong('the hydration did not end within 180 s')
        self.since_move('live migration, until all is hydrated')
        wait.until(lambda: not self.clone(), 'the clone to become linear',
                   60)
        self.say('Complete. Under the running guest the clone has become a '
                 'plain linear mapping of the logical volume on %s:' %
                 self.away.name)
        shown = self.show(self.away, 'dmsetup table ' + self.path)
        story.expect('the kind of the mapping', 'linear', shown.split()[2])

    def check(self):
        self.console.wait_writing(self.volume_id, self.away.name)
        self.say('The guest continues. Now the server is deleted, and the '
                 'volume is compared with the acknowledged records.')
        with self.timed('delete the server'):
            self.servers.delete(self.server_id)
            self.user.settled(self.volume_id, 'available')
        last = self.console.last(self.volume_id)
        self.attach(self.away)
        self.shell(self.away, _CHECK % (
            paths.CHECKOUT, paths.VENV / 'bin/python', self.path,
            self.volume_id[:20], last))
        story.expect('the list of failed writes of the guest', [],
                     self.console.complaints(self.volume_id))
        self.say('All %d acknowledged records are there, and none is wrong. '
                 'The guest has seen no error.' % last)

    # Checks

    def expected_home(self, node):
        """Check and print the home of the volume."""
        story.expect('the home of the volume', node.name, self.where().name)
        self.say('In Cinder the home of the volume is %s.' % node.name)

    def tidy(self):
        """Delete the server and the volume."""
        for server_id in self.servers.all():
            if server_id == getattr(self, 'server_id', None):
                self.servers.delete(server_id)
        super().tidy()


if __name__ == '__main__':
    sys.exit(story.main(LiveStory))
