# SPDX-License-Identifier: Apache-2.0
"""The demo: a volume follows its user from one node to another.

Runs inside the laboratory's network, with its environment's Python. All
printed facts were observed in this run; an unexpected one ends the demo.
"""

import concurrent.futures
import contextlib
from importlib import metadata
import os
import subprocess
import sys
import time
import traceback
import uuid

from dmclone_driver.node.devicemapper import status as status_module
from dmclone_driver.node.devicemapper import table
from dmclone_driver.node import names as names_module
from lab.common import leftovers
from lab.common import user as user_module
from lab.demo import bar as bar_module
from lab.demo import data as data_module
from lab.demo import screen as screen_module
from lab import errors
from lab import lab as lab_module
from lab import wait

GIB = 1024
MIB = data_module.MIB
_LATER = 1000       # MiB: near the end, which is copied last
_TIMEOUT = 180      # seconds to read or write the whole volume


class Wrong(Exception):
    """An observation differs from the expected one; see its text."""


def expect(what, expected, found):
    """Raise Wrong unless both values are equal."""
    if expected != found:
        raise Wrong('%s differs: expected %s, found %s' % (
            what, expected, found))


class Story:
    """A volume and its move."""

    #: Whether it needs instances.
    nova = False
    #: The operation that moves the volume to the other node.
    move = 'attach away'

    def __init__(self, lab, screen):
        self.lab = lab
        self.screen, self.say = screen, screen.say
        self.user = user_module.User(lab)
        self.operator = user_module.User(lab, 'admin')
        self.name = 'demo-%s' % str(uuid.uuid4())[:8]
        self.data = data_module.Data(GIB, _LATER)
        self.times = []

    def tell(self):
        """Run all chapters."""
        self.introduce()
        self.create()
        self.attach_at_home()
        self.write()
        self.detach_at_home()
        self.attach_away()
        self.show_clone()
        self.use_while_it_hydrates()
        self.hydrate()
        self.prove_source_gone()
        self.check_complete()
        self.delete()
        self.summarise()

    # The chapters

    def introduce(self):
        self.screen.title('A move with dmclone_driver')
        kernels = {n.run('uname -r').strip() for n in self.nodes}
        self.say('The nodes: %s, virtual machines with a real kernel (%s) '
                 'and a disk each. Cinder %s runs with this driver on each, '
                 'and there is no shared storage.' % (
                     ' and '.join(n.name for n in self.nodes),
                     ', '.join(kernels), metadata.version('cinder')))
        self.before = set(leftovers.find(self.lab))
        if self.before:
            self.say('The laboratory already has %d volumes, devices or rows '
                     'of others; they are not touched.' % len(self.before))
        self.expected = self.data.checksums()

    @property
    def nodes(self):
        return list(self.lab.nodes.values())

    def create(self):
        self.screen.title('1. Create a volume')
        with self.timed('create (with the start of the client)'):
            self.client('create', '--size', '1', self.name)
            self.volume_id, = self.ids()
            self.user.settled(self.volume_id, 'available')
        self.home = self.where()
        self.away = next(n for n in self.nodes if n is not self.home)
        self.say('Cinder\'s scheduler chose %s: the volume is a logical '
                 'volume on that node\'s disk. %s is its home.' % (
                     self.home.name, self.home.name))

    def attach_at_home(self):
        self.screen.title('2. Use it on %s' % self.home.name)
        self.say('An instance starts on %s; Nova asks Cinder to attach the '
                 'volume there.' % self.home.name)
        with self.timed('attach at home'):
            self.attach(self.home)
        self.home_names = self.names
        self.say('It is a local disk, without export and network.')

    def write(self):
        self.say('The instance writes %d MiB of random data.' % GIB)
        with self.timed('write 1 GiB at home', GIB):
            self.shell(self.home, self.data.write(self.path))
        with self.timed('checksum 1 GiB at home', GIB):
            self.read(self.home, self.expected[0])
        self.say('The checksum is the one that this program computed.')

    def detach_at_home(self):
        self.say('The instance stops, and Nova detaches the volume.')
        with self.timed('detach'):
            self.detach()

    def attach_away(self):
        self.screen.title('3. Use it on %s' % self.away.name)
        self.say('The instance starts again, on %s this time. The data is '
                 'on %s\'s disk.' % (self.away.name, self.home.name))
        self.moved_at = time.monotonic()
        with self.timed('attach away, until the first block is read'):
            self.attach(self.away)
            answered = time.monotonic()
            self.shell(self.away, 'dd if=%s of=/dev/null bs=4096 count=1 '
                       'iflag=direct status=none' % self.path)
        usable = time.monotonic() - self.moved_at
        self.say('The volume is usable on %s after %.1f seconds, %.1f of '
                 'them for Cinder\'s answer. No data had to be copied for '
                 'that, whatever the size of the volume.' % (
                     self.away.name, usable, answered - self.moved_at))
        if self.where() is not self.away:
            raise Wrong('the volume\'s home is still %s' % self.home.name)
        self.say('In Cinder its home is now %s.' % self.away.name)

    def show_clone(self):
        self.say('The instance\'s disk is a dm-clone: writes go to a new '
                 'logical volume on %s, blocks that are not copied yet '
                 'are read from %s.' % (self.away.name, self.home.name))
        for verb in ('table', 'status --noflush'):
            self.show(self.away, 'dmsetup %s %s' % (verb, self.path))
        self.say('%s exports its copy to %s only, read-only (1 is yes):' % (
            self.home.name, self.away.name))
        shown = self.show(self.home, 'blockdev --getro %s' %
                          self.home_names.path(names_module.EXPORT))
        status = self.clone()
        if status:      # otherwise the clone is complete, the export removed
            expect('"read-only" of the export', '1', shown.strip())
        self.bar = bar_module.Bar(self.screen, GIB * MIB)

    def use_while_it_hydrates(self):
        self.screen.title('4. Use it during the hydration')
        self.say('The instance reads everything and computes the checksum. '
                 'dm-clone copies only while the volume is idle: the bar '
                 'hardly moves until the instance has read everything.')
        first = self.here()
        with self.timed('checksum 1 GiB away, while it hydrates', GIB):
            self.read(self.away, self.expected[0], meanwhile=self.watch)
        self.say('The same checksum as on %s. %s when the reading began, '
                 '%s when it ended.' % (self.home.name, first, self.here()))
        self.say('The instance writes one MiB at %d MiB, near the end, '
                 'which is copied last.' % _LATER)
        with self.timed('write 1 MiB away, durably'):
            self.shell(self.away, self.data.overwrite(self.path))
        self.say('It was written to %s\'s disk. The hydration does not '
                 'overwrite it.' % self.away.name)

    def hydrate(self):
        self.say('Now the volume is idle, and the hydration continues:')
        begin = time.monotonic()
        mib = GIB - self.bytes_here() / MIB
        self.watch(lambda: time.monotonic() > begin + _TIMEOUT)
        seconds = time.monotonic() - begin
        if self.bytes_here() < GIB * MIB:
            raise Wrong('the hydration did not end within %d s' % _TIMEOUT)
        self.times.append(('hydration of the last %d MiB, idle' % mib,
                           seconds, rate(mib, seconds)))
        self.since_move('attach away, until all is hydrated')
        wait.until(lambda: not self.clone(), 'the clone to become linear',
                   60)
        self.since_move('attach away, until it is a plain disk')
        self.say('Complete. The clone has become a plain linear mapping of '
                 'the logical volume on %s:' % self.away.name)
        shown = self.show(self.away, 'dmsetup table ' + self.path)
        expect('the kind of the mapping', 'linear', shown.split()[2])

    def prove_source_gone(self):
        self.screen.title('5. Nothing is left on %s' % self.home.name)
        self.say('%s logs out and releases the source; %s '
                 'wipes and deletes it.' % (self.away.name, self.home.name))
        self.until_none(self.surplus)
        self.since_move(self.move + ', until the source is gone')
        self.say('The source is gone, with its export, its session and all '
                 'helper devices. %s:' % self.home.name)
        exports = 'ls /sys/kernel/config/target/iscsi'
        if self.lab.settings.target == 'tgt':
            exports = 'tgtadm --op show --mode target'
        for text in ('lvs --noheadings', 'dmsetup ls', exports):
            self.show(self.home, text)
        self.say('%s:' % self.away.name)
        for text in ('lvs --noheadings -o lv_name,lv_size', 'dmsetup ls',
                     'iscsiadm -m session'):
            self.show(self.away, text)
        self.say('What the nodes and Cinder\'s database have of the volume:')
        self.screen.output('\n'.join(self.ours()))

    def check_complete(self):
        self.say('The data, from %s\'s disk only, with the MiB that was '
                 'written during the hydration:' % self.away.name)
        with self.timed('checksum 1 GiB, complete', GIB):
            self.read(self.away, self.expected[1])
        self.say('Again it is the checksum that this program computed.')

    def delete(self):
        self.screen.title('6. Delete it')
        self.detach()
        with self.timed('delete (with the start of the client)'):
            self.client('delete', self.volume_id)
            self.user.wait_gone(self.volume_id)
        self.until_none(self.ours)
        self.lab.check()
        self.say('All nodes and the database were checked for logical '
                 'volumes, mappings, iSCSI targets, sessions and disks, '
                 'loop devices, files and rows. There is no leftover.')

    def summarise(self):
        self.screen.title('Durations in this run')
        self.screen.table(self.times)
        self.screen.table([('the whole demo', time.monotonic() -
                            self.screen.begin, '')])

    # Requests of users and operators

    def client(self, *arguments):
        """Run and print a command of the client, as the user."""
        argv = ['openstack', 'volume', *arguments]
        self.screen.command('$', ' '.join(argv))
        done = subprocess.run(argv, env=self.lab.environment('demo'),
                              capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise Wrong('%s: %s' % (' '.join(argv), done.stderr.strip()))

    def ids(self):
        """Return the ids of the user's volumes with the demo's name."""
        found = self.user.request('GET', '/volumes?name=' + self.name)
        return [volume['id'] for volume in found['volumes']]

    def where(self):
        """Return the home of the volume, as Cinder has it."""
        volume = self.operator.volume(self.volume_id)
        host = volume['os-vol-host-attr:host']
        return self.lab.node(host.partition('@')[0])

    def attach(self, node):
        """Attach the volume as Nova does, and print the device path."""
        self.screen.command('nova>', 'POST /v3/attachments: this volume, '
                            'for an instance on %s' % node.name)
        self.attachment = self.user.attach(self.volume_id, node)
        self.path = user_module.path(self.attachment)
        self.names, _ = names_module.parse(os.path.basename(self.path))
        self.screen.output('path: ' + self.path)

    def detach(self):
        """Detach the volume as Nova does."""
        self.screen.command('nova>', 'DELETE /v3/attachments/' +
                            self.attachment['id'])
        self.user.detach(self.attachment['id'])
        self.user.settled(self.volume_id, 'available')

    # Commands on nodes

    def shell(self, node, text):
        """Print and run a command on a node; it has to succeed."""
        self.screen.command(node.name + '#', text)
        return node.run(text, timeout=_TIMEOUT)

    def show(self, node, text):
        """Print and run a command on a node, and print its output."""
        self.screen.command(node.name + '#', text)
        _, out, err = node.try_run(text)
        self.screen.output(out or err)
        return out

    def read(self, node, expected, meanwhile=None):
        """Check the checksum of the whole volume on a node.

        :param meanwhile: called meanwhile with a function that returns whether
            the command has ended
        """
        text = self.data.read(self.path)
        self.screen.command(node.name + '#', text)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            job = pool.submit(node.run, 'set -o pipefail; ' + text, _TIMEOUT)
            if meanwhile:
                meanwhile(job.done)
            out = job.result()
        self.screen.output(out)
        expect('the checksum on %s' % node.name, expected, out.split()[0])

    # Progress

    def clone(self):
        """Return the status of the clone, None when it is linear."""
        text = self.away.run('dmsetup status --noflush %s-clone 2>/dev/null '
                             '|| true' % self.path)
        if not text:
            return None
        status = status_module.clone(text)
        if not status.healthy:
            raise Wrong('the clone is not healthy: ' + text)
        return status

    def bytes_here(self):
        """Return the number of hydrated bytes."""
        status = self.clone()
        if not status:
            return GIB * MIB
        return status.hydrated * status.region * table.SECTOR

    def here(self):
        """Return the hydrated amount as text."""
        return '%d of %d MiB were hydrated' % (self.bytes_here() / MIB, GIB)

    def watch(self, enough):
        """Show the progress until the clone is complete, or enough()."""
        while True:
            done = self.bytes_here()
            self.bar.show(done)
            if done == GIB * MIB or enough():
                break
            time.sleep(self.bar.interval)
        self.bar.rest()

    # Objects on nodes and in the database

    def ours(self):
        """Return the lines of leftovers.find() that were not there before."""
        return [line for line in leftovers.find(self.lab)
                if line not in self.before]

    def surplus(self):
        """Return the lines that are not the volume's at its new home."""
        wanted = (
            '%s: mapping %s\t' % (self.away.name,
                                  self.names.of(names_module.HANDLE)),
            '%s: mapping cinder--volumes-volume--%s\t' % (
                self.away.name, self.names.name_id.replace('-', '--')),
            '%s: volume cinder-volumes volume-%s' % (self.away.name,
                                                     self.names.name_id),
            "volume row: ('%s'" % self.volume_id,
            "attachment row: ('%s'" % self.attachment['id'])
        return [line for line in self.ours() if not line.startswith(wanted)]

    @staticmethod
    def until_none(find):
        """Wait until a list is empty; checks are rare since they cost time."""
        wait.until(lambda: not find(), 'these things to be gone', 60, 2,
                   log=lambda: '\n'.join(find()))

    # Durations

    @contextlib.contextmanager
    def timed(self, what, mib=None):
        """Record and print the duration and the rate of a block."""
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        speed = rate(mib, seconds)
        self.times.append((what, seconds, speed))
        self.say('-> %.1f s%s' % (seconds, speed and ', ' + speed))

    def since_move(self, what):
        """Record the time since the move began."""
        self.times.append((what, time.monotonic() - self.moved_at, ''))

    # Cleaning up after a failure

    def tidy(self):
        """Delete the volume after a failure of the demo."""
        for volume_id in self.ids():
            self.say('Deleting the volume, once the last command on it has '
                     'ended.')
            wait.until(lambda: not self.is_open(), 'the volume to be closed',
                       _TIMEOUT)
            self.user.detach_all(volume_id)
            self.user.settled(volume_id, 'available')
            self.user.delete_volume(volume_id)
            self.until_none(self.ours)

    def is_open(self):
        """Return whether a command on a node still uses the volume."""
        counts = [n.run('dmsetup info -c --noheadings -o open %s '
                        '2>/dev/null || true' % self.path).strip()
                  for n in self.nodes if hasattr(self, 'path')]
        return any(count not in ('', '0') for count in counts)


def rate(mib, seconds):
    """Return MiB per second, as text."""
    return '%.0f MiB/s' % (mib / seconds) if mib else ''


def _load(kind):
    """Return the laboratory, if it is suitable for a kind of demo."""
    lab = lab_module.Lab.load()
    settings = lab.settings
    if (settings.bare or settings.driver == 'lvm' or settings.nodes < 2 or
            kind.nova > settings.nova):
        raise errors.LabError('the laboratory that is up lacks this driver, '
                              'a second node or instances; take it down with '
                              '`tools/lab down`')
    return lab


def _attempt(story, chapter):
    """Run a part of the demo; returns the exit code."""
    try:
        chapter()
        return 0
    except KeyboardInterrupt:
        story.screen.line('\ndemo: interrupted')
        return 130
    except (Wrong, errors.LabError, user_module.ApiError) as e:
        story.screen.line('\ndemo: WRONG: %s' % e)
    except Exception:
        story.screen.line('\ndemo: WRONG: %s' % traceback.format_exc())
    return 1


def main(kind=Story):
    """Run a kind of demo; returns the exit code."""
    try:
        lab = _load(kind)
    except errors.LabError as e:
        sys.exit('demo: %s' % e)
    story = kind(lab, screen_module.Screen())
    code = _attempt(story, story.tell)
    if code and '--no-tidy' not in sys.argv:
        _attempt(story, story.tidy)
    return code


if __name__ == '__main__':
    sys.exit(main())
