# SPDX-License-Identifier: Apache-2.0
"""The random history of a volume, and its expected content."""

import collections
import hashlib
import random
import time

from lab.common import leftovers
from lab.common import user as user_module
from lab import errors
from lab import wait

#: MiB per GiB of a volume's nominal size.
MIB = 256
BLOCK = 4096
#: Blocks that a guest writes, spread over the volume.
BLOCKS = range(0, (MIB << 20) // BLOCK, 4096)
#: MiB of a thin volume that are not filled, so that they read zeros. The guest
#: writes there, too.
GAP = range(64, 192)
#: Seconds that a request may take, a reboot of both nodes included.
PATIENCE = 300
#: Seconds until a volume can be used after the last fault, also on a slow
#: machine, where requests are answered too late for some time.
TO_REST = 600

_FILL = ('yes {text} | timeout -s KILL 100 dd of={path} bs=1M skip={at} '
         'seek={at} count={count} iflag=fullblock oflag=direct '
         'conv=nocreat,notrunc,fsync status=none')
_WRITE = ('yes {text} | head -c 4096 | timeout -s KILL 100 dd of={path} '
          'bs=4096 seek={at} count=1 iflag=fullblock oflag=direct '
          'conv=nocreat,notrunc,fsync status=none')
_READ = ('set -o pipefail; timeout -s KILL 100 dd if={path} bs={size} '
         'skip={at} count={count} iflag=direct status=none | sha256sum')


def _lines(text, at, size):
    """Return a part of the output of ``yes`` with a text, in bytes."""
    line = text.encode() + b'\n'
    return (line * (size // len(line) + 2))[at % len(line):][:size]


def _checksum(data):
    return hashlib.sha256(data).hexdigest()


class Cut(Exception):
    """An action failed; a node or a service may have been killed."""


class History:
    """Random actions of one user on one volume after the other.

    The order of the actions depends only on the seed; how far each action gets
    depends on the times of the faults.
    """

    def __init__(self, lab, user, seed, say):
        self._lab = lab
        self._user = user
        self._random = random.Random(seed)
        self._say = say
        self._thin = lab.settings.thin
        self._number = 0
        #: States that Cinder leaves and only operators end.
        self._left_by_cinder = ['extending', 'error_extending', 'attaching',
                                'detaching', 'reserved']
        if lab.settings.coordination == 'etcd':
            # Cinder's lock for the deletion could not be acquired.
            self._left_by_cinder.append('deleting')
        #: The number of completed actions per name.
        self.done = collections.Counter()
        self._begin()

    def _begin(self):
        self.volume_id = None
        #: The node on which the volume is attached, and its path there.
        self.node = self.path = None
        self._instance = user_module.uuid4()
        #: Whether the volume has been filled with its id.
        self._filled = False
        #: {block: possible texts}: the last acknowledged one, and all that
        #: were begun since; None stands for the initial content.
        self._expected = {}
        #: Whether it may be missing: not created yet, or being deleted.
        self._may_go = True
        #: The number of checks that found a state that Cinder does not end.
        self._stuck = 0

    # Actions

    def act(self):
        """Run one random action, and recover if it fails.

        :raises: AssertionError if data is lost
        """
        what = self._random.choice(self._choices())
        node = self._random.choice(list(self._lab.nodes.values()))
        block = self._random.choice(BLOCKS)
        self._say(what.__name__.strip('_'), self.volume_id, node.name)
        try:
            what(node, block)
            self.done[what.__name__.strip('_')] += 1
        except (Cut, user_module.ApiError, errors.LabError) as error:
            self._say('interrupted: %s' % str(error)[:300], self.volume_id)
            self.recover()

    def _choices(self):
        if self.volume_id is None:
            return [self._create]
        if not self._filled:
            return [self._fill]
        if self.node is None:
            return [self._attach] * 6 + [self._snapshot, self._extend,
                                         self._delete]
        return [self._write] * 4 + [self._read] * 2 + [
            self._migrate, self._migrate, self._abort, self._detach]

    def _create(self, node, block):
        body = {'volume': {'size': 1}}
        self.volume_id = self._user.request('POST', '/volumes',
                                            body)['volume']['id']
        volume = self._settled()
        if volume['status'] != 'available':
            raise Cut(volume['status'])
        self._may_go = False

    def _fill(self, node, block):
        """Attach a new volume on any node, and write all but its gap."""
        self._attach(node, block)
        parts = [range(MIB)] if not self._thin else [
            range(GAP.start), range(GAP.stop, MIB)]
        for part in parts:
            code, out, err = self.node.try_run(_FILL.format(
                text=self.volume_id, at=part.start, count=len(part),
                path=self.path), timeout=120)
            if code:
                raise Cut('filling: %s' % err)
        self._filled = True

    def _delete(self, node, block):
        self.read_all()
        self._detach(node, block)
        self._may_go = True
        self._user.request('DELETE', '/volumes/' + self.volume_id)
        wait.until(self._is_over, 'volume %s to be deleted' % self.volume_id,
                   PATIENCE)
        self._begin()

    def _is_over(self):
        """Return whether the volume is deleted.

        :raises: Cut if the deletion has failed
        """
        try:
            status = self._user.volume(self.volume_id)['status']
        except user_module.ApiError as error:
            if error.status == 404:
                return True
            raise
        if 'error' in status:
            raise Cut(status)
        return False

    def _attach(self, node, block):
        attachment = self._user.attach(self.volume_id, node, self._instance)
        self.node, self.path = node, user_module.path(attachment)
        if self._filled:
            self._read(node, block)

    def _detach(self, node, block):
        self._user.detach_all(self.volume_id)
        self.node = self.path = None
        self._settled()

    def _migrate(self, node, block):
        """Continue the guest on another node, as a live migration does."""
        if node is self.node:
            return
        old, = self._user.attachments(self.volume_id)
        new = self._user.attach(self.volume_id, node, self._instance)
        self.node, self.path = node, user_module.path(new)
        self._write(node, block)
        self._user.detach(old['id'])

    def _abort(self, node, block):
        """Begin a migration and abort it."""
        if node is self.node:
            return
        new = self._user.attach(self.volume_id, node, self._instance)
        self._write(node, block)
        self._user.detach(new['id'])

    def _snapshot(self, node, block):
        snapshot = self._user.request('POST', '/snapshots', {'snapshot': {
            'volume_id': self.volume_id}})['snapshot']
        path = '/snapshots/' + snapshot['id']
        status = wait.until(lambda: self._user.request('GET', path)[
            'snapshot']['status'].replace('creating', ''), 'a snapshot',
            PATIENCE)
        self._user.request('DELETE', path)
        wait.until(lambda: not self._snapshots(), 'a snapshot to go',
                   PATIENCE)
        if status != 'available':
            # A snapshot is refused while the volume is moving.
            raise Cut(status)

    def _snapshots(self):
        return self._user.request(
            'GET', '/snapshots/detail?volume_id=' + self.volume_id)[
                'snapshots']

    def _extend(self, node, block):
        size = self._user.volume(self.volume_id)['size'] + 1
        self._user.request('POST', '/volumes/%s/action' % self.volume_id,
                           {'os-extend': {'new_size': size}})
        volume = self._settled()
        if (volume['status'], volume['size']) != ('available', size):
            raise Cut(volume['status'])

    def _settled(self):
        return wait.until(
            lambda: self._user.unless_busy(self.volume_id),
            'volume %s to settle' % self.volume_id, PATIENCE)

    # Data

    def _write(self, node, block):
        """Write a block; after a failure both contents are possible."""
        self._number += 1
        text = '%s-%d' % (self.volume_id, self._number)
        known = self._expected.setdefault(block, [None])
        known.append(text)
        code, out, err = self.node.try_run(_WRITE.format(
            text=text, path=self.path, at=block), timeout=120)
        if code:
            raise Cut('write of block %d: %s' % (block, err))
        self._expected[block] = [text]

    def _read(self, node, block):
        """Read a block, and compare it with the last writes.

        :returns: the text that was found
        """
        found = self._checksum_of(BLOCK, block, 1)
        texts = {_checksum(self._block(block, text)): text
                 for text in self._expected.get(block, [None])}
        assert found in texts, (
            'block %d of volume %s is none of %s' % (
                block, self.volume_id, list(texts.values())))
        return texts[found]

    def _block(self, block, text):
        """Return the content of a block after a write of a text, or None."""
        return (_lines(text, 0, BLOCK) if text else
                self._initial(block, 1))

    def _initial(self, block, count):
        """Return the content of some blocks before the first write.

        They are all in the gap, or none of them is.
        """
        if self._thin and block * BLOCK >> 20 in GAP:
            return bytes(count * BLOCK)
        return _lines(self.volume_id, block * BLOCK, count * BLOCK)

    def _checksum_of(self, size, at, count):
        """Return the checksum of a number of blocks, with a size in bytes."""
        code, out, err = self.node.try_run(_READ.format(
            path=self.path, size=size, at=at, count=count), timeout=120)
        if code:
            raise Cut('read at %d: %s' % (at, err))
        return out.split()[0]

    def read_all(self):
        """Compare the whole volume; attach it on its home if necessary."""
        if not self._filled:
            return
        if self.node is None:
            home = self._user.as_admin('GET', '/volumes/' + self.volume_id)[
                'volume']['os-vol-host-attr:host'].partition('@')[0]
            self._attach(self._lab.node(home), BLOCKS[0])
        expected = hashlib.sha256()
        for block in BLOCKS:
            expected.update(self._block(block, self._read(self.node, block)))
            expected.update(self._initial(block + 1, BLOCKS.step - 1))
        assert expected.hexdigest() == self._checksum_of(1 << 20, 0, MIB), (
            'volume %s has changed between the written blocks' %
            self.volume_id)
        # LVM does not clear the extended part of a thick volume.
        more = self._user.volume(self.volume_id)['size'] - 1
        if self._thin and more:
            assert _checksum(bytes(more * MIB << 20)) == self._checksum_of(
                1 << 20, MIB, more * MIB), (
                    'the extended part of volume %s is not empty' %
                    self.volume_id)

    # After the last fault

    def check_without_faults(self):
        """Run each action once when there are no more faults.

        Consequences of earlier faults may prevent them for some time.

        :raises: LabError if they do not succeed in time
        """
        end = time.monotonic() + TO_REST
        while True:
            self.recover()
            try:
                self._act_without_faults()
                return
            except (Cut, user_module.ApiError) as error:
                self._say('no faults: %s' % str(error)[:300], self.volume_id)
                if time.monotonic() > end:
                    raise errors.LabError('volume %s is not usable: %s' % (
                        self.volume_id, error))

    def _act_without_faults(self):
        first, second, third, *_ = self._lab.nodes.values()
        if self.volume_id is None:
            self._create(first, 0)
        if not self._filled:
            self._fill(first, 0)
            self._detach(first, 0)
        wait.until(lambda: not leftovers.placeholders(
            self._lab, self.volume_id), 'volume %s to be complete' %
            self.volume_id, PATIENCE)
        self._extend(first, 0)
        self._attach(first, 0)
        self._write(first, BLOCKS[0])
        self._migrate(second, BLOCKS[1])
        self._write(second, BLOCKS[2])
        self._abort(third, BLOCKS[3])
        self.read_all()
        self._detach(second, 0)

    # After a fault

    def recover(self):
        """Detach the volume, as a user does after a failure.

        :raises: LabError if that does not succeed in time
        """
        self.node = self.path = None
        if self.volume_id is None:
            return
        end = time.monotonic() + PATIENCE
        while not self._try_to_recover():
            if time.monotonic() > end:
                raise errors.LabError('volume %s does not recover: %s' % (
                    self.volume_id, self._user.volume(self.volume_id)))
            time.sleep(5)

    def _try_to_recover(self):
        """Return whether the volume is available, or deleted."""
        try:
            volume = self._user.volume(self.volume_id)
        except user_module.ApiError as error:
            if error.status == 404:
                assert self._may_go, '%s is lost' % self.volume_id
                self._begin()
                return True
            return False
        try:
            self._user.detach_all(self.volume_id)
            for snapshot in self._snapshots():
                self._end_snapshot(snapshot)
            return self._is_free(volume) and not self._snapshots()
        except user_module.ApiError:
            return False

    def _is_free(self, volume):
        if volume['status'] == 'available':
            self._may_go = False
            return True
        if volume['status'] in ('error', 'error_deleting'):
            assert self._may_go, volume
            self._say(volume['status'], self.volume_id)
            self._user.request('DELETE', '/volumes/' + self.volume_id)
        elif volume['status'] in self._left_by_cinder:
            self._reset('/volumes/' + self.volume_id, 'error'
                        if volume['status'] == 'deleting' else 'available')
        return False

    def _end_snapshot(self, snapshot):
        path = '/snapshots/' + snapshot['id']
        if snapshot['status'] == 'deleting':
            self._reset(path, 'error')
        else:
            self._user.request('DELETE', path)

    def _reset(self, path, status):
        """Reset a state that only operators end, after some checks."""
        self._stuck += 1
        if self._stuck % 12 == 0:
            self._say('reset by hand', self.volume_id)
            self.done['reset by hand'] += 1
            self._user.as_admin('POST', path + '/action',
                                {'os-reset_status': {'status': status}})
