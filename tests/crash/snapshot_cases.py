# SPDX-License-Identifier: Apache-2.0
"""Cases of the crash matrix with snapshots, which are compared, too."""

import contextlib
import dataclasses

from dmclone_driver.steps import Step
from lab.common import commands
from lab.common import user as user_module
from lab import errors
from lab import wait
from tests.crash import cases
from tests.crash import stops

# The failures that end the service of the peer, which has the volume. Cinder
# resumes no revert, and no deletion of a snapshot: see steps.rst.
_ENDED = ('peer killed', 'peer off')


class SnapshotCase(cases.Case):
    """A case whose volume has a snapshot."""

    def request_snapshot(self):
        """Request the snapshot."""
        self.snapshot_id = self.user.request('POST', '/snapshots', {
            'snapshot': {'volume_id': self.volume_id,
                         'force': True}})['snapshot']['id']

    def take_snapshot(self):
        """Take the snapshot, and wait for it."""
        self.request_snapshot()
        self.wait_created()
        assert self.snapshot_status() == 'available', self.snapshot_status()

    def wait_created(self):
        """Wait until the snapshot has left the state *creating*."""
        wait.until(lambda: self.snapshot_status() != 'creating',
                   'snapshot %s' % self.snapshot_id, cases.PATIENCE)

    def snapshot_status(self):
        """Return the status of the snapshot, None if it is gone."""
        try:
            return self.user.request(
                'GET', '/snapshots/' + self.snapshot_id)['snapshot']['status']
        except user_module.ApiError as error:
            if error.status != 404:
                raise
            return None

    def delete_snapshot(self):
        """Delete the snapshot, if there is one, and wait until it is gone."""
        if self.snapshot_id and self.snapshot_status():
            self.user.request('DELETE', '/snapshots/' + self.snapshot_id)
            wait.until(lambda: not self.snapshot_status(),
                       'the deletion of snapshot %s' % self.snapshot_id,
                       cases.PATIENCE)
        self.snapshot_id = None

    def move(self):
        """Move the volume to the peer, where it is detached in the end."""
        self.attach(self.peer)
        wait.until(lambda: not self.placeholders(),
                   'volume %s to be complete' % self.volume_id,
                   cases.PATIENCE)
        self.detach(self.peer)

    def parts_of_snapshot(self, test):
        """Return the checksums of the snapshot's parts.

        They are read from a volume that is created from it, and deleted.
        """
        copy = self.user.create_volume(snapshot_id=self.snapshot_id)['id']
        parts = test.parts_of(copy)
        self.user.delete_volume(copy)
        return parts

    def leave(self):
        self.delete_snapshot()
        super().leave()


class ReleaseWithSnapshots(SnapshotCase, cases.Completion):
    """A volume moves away from its snapshot, and its source is kept."""

    FLOW = 'release with snapshots'

    def before(self):
        self.take_snapshot()

    def check(self, test, original):
        test.assertEqual(original, self.parts_of_snapshot(test))
        self.delete_snapshot()


@dataclasses.dataclass(eq=False)
class VolumeFromSnapshot(SnapshotCase):
    """A volume on the peer is created from a snapshot on the home.

    The steps are those of the new volume, whose name tells the nodes for which
    volume they stop.
    """

    FLOW = 'volume from a snapshot'

    copy_id: str = None

    @property
    def stage(self):
        if self.step is Step.EXPORTED:
            # The peer waits for the home for 20 seconds.
            return cases.Stage.WATCHER_STOPS
        return (cases.Stage.COPIES if self.step is Step.HYDRATING else
                cases.Stage.FIRST)

    @property
    def volume_ids(self):
        return [self.volume_id, self.copy_id]

    def before(self):
        self.take_snapshot()
        self.move()

    def act(self):
        self.copy_id = self.user.request('POST', '/volumes', {'volume': {
            'size': 1, 'snapshot_id': self.snapshot_id,
            'name': stops.COPY_OF + self.volume_id}})['volume']['id']

    def afterwards(self):
        """Create the volume again if Cinder has set it to error."""
        if self.copy_id and not self._is_available():
            self._delete_copy()
        if not self.copy_id:
            self.act()
            assert self._is_available()

    def _is_available(self):
        try:
            self.user.settled(self.copy_id, 'available',
                              timeout=cases.PATIENCE)
            return True
        except (AssertionError, errors.LabError):
            return False

    def _delete_copy(self):
        if self.user.volume(self.copy_id)['status'] != 'error':
            self.reset_status('error', 'creating', 'deleting',
                              'error_deleting', of=self.copy_id)
        copy_id, self.copy_id = self.copy_id, None
        self.user.delete_volume(copy_id, cases.PATIENCE)

    def check(self, test, original):
        test.assertEqual(original, test.parts_of(self.copy_id))
        test.assertEqual(original, self.parts_of_snapshot(test))
        self.user.delete_volume(self.copy_id)
        self.delete_snapshot()


class Revert(SnapshotCase):
    """A volume on the peer is reverted to a snapshot on the home.

    Cinder takes a snapshot of it before, and deletes that afterwards.
    """

    FLOW = 'revert'

    def stumbles(self, kind):
        """Whether the revert was ended, or the home did not serve it in time.

        Cinder has the volume in *error* then, though it was not changed in the
        latter case.
        """
        return kind in _ENDED or "Can't revert volume %s to snapshot" % (
            self.volume_id) in self.peer.log('cinder-volume')

    @property
    def stage(self):
        if self.step is Step.EXPORTED:
            # The peer waits for the home for 20 seconds.
            return cases.Stage.WATCHER_STOPS
        return super().stage

    def before(self):
        """Write what the revert has to undo."""
        self.take_snapshot()
        self.move()
        path = self.attach(self.peer)
        self.peer.run(
            'yes later | head -c 4096 | dd of=%s bs=4096 seek=%d count=1 '
            'iflag=fullblock oflag=direct conv=nocreat,notrunc,fsync' % (
                path, cases.GUEST_BLOCK))
        self.detach(self.peer)

    def act(self):
        self.user.request('POST', '/volumes/%s/action' % self.volume_id, {
            'revert': {'snapshot_id': self.snapshot_id}})

    def afterwards(self):
        """Revert the volume again unless Cinder has done that."""
        if not self.answered:
            self.act()
        try:
            self.user.settled(self.volume_id, 'available',
                              timeout=cases.PATIENCE)
        except (AssertionError, errors.LabError):
            self._reset()
            self.act()
            self.user.settled(self.volume_id, 'available',
                              timeout=cases.PATIENCE)

    def _reset(self):
        """Reset the states that only operators end.

        Cinder reverts to the latest snapshot only: its own has to go.
        """
        self.reset_status('available', 'reverting', 'error')
        self._delete_others()
        if self.snapshot_status() != 'available':
            self.user.as_admin(
                'POST', '/snapshots/%s/action' % self.snapshot_id,
                {'os-reset_status': {'status': 'available'}})

    def _delete_others(self):
        """Delete the snapshots that Cinder has taken, and left."""
        mine = self.snapshot_id
        for each in self.user.request(
                'GET', '/snapshots?volume_id=' + self.volume_id)['snapshots']:
            if each['id'] != mine:
                self.snapshot_id = each['id']
                self.delete_snapshot()
        self.snapshot_id = mine

    def check(self, test, original):
        test.assertEqual(original, self.parts_of_snapshot(test))
        self._delete_others()
        self.delete_snapshot()


class SnapshotThatFollows(SnapshotCase):
    """A snapshot on the home follows its volume, which is on the peer."""

    FLOW = 'snapshot that follows'

    def before(self):
        self.take_snapshot()
        self.move()

    def act(self):
        self._move()

    def afterwards(self):
        """Repeat the command until there is nothing left to copy."""
        code, out, err = self._move()
        assert (code, out) == (0, ''), out + err

    def _move(self):
        return commands.run(self.peer, 'move', '--with-snapshots',
                            self.volume_id, self.peer.name)

    def check(self, test, original):
        test.assertEqual(original, self.parts_of_snapshot(test))
        self.delete_snapshot()


class SnapshotWhileItHydrates(SnapshotCase):
    """A snapshot of a clone is taken on the peer, which is its home."""

    FLOW = 'snapshot while it hydrates'

    @property
    def node(self):
        return self.peer

    def before(self):
        self.become_clone()
        wait.until(lambda: self.peer.try_run('test -e %s/%s.durable' % (
            stops.ON_NODE, self.volume_id))[0] == 0, 'the write',
            cases.PATIENCE)

    def act(self):
        self.request_snapshot()

    def afterwards(self):
        """Take the snapshot again if Cinder has set it to error."""
        if not self.snapshot_id:
            self.take_snapshot()
        self._reset_if_creating()
        if self.snapshot_status() != 'available':
            self.delete_snapshot()
            self.take_snapshot()
        self.close_source()

    def check(self, test, original):
        test.compare_parts(original, self.parts_of_snapshot(test),
                           test.written(self.volume_id), True)
        self.delete_snapshot()

    def _reset_if_creating(self):
        """Reset a state that only operators end."""
        try:
            self.wait_created()
        except errors.LabError:
            self.by_hand = True
            self.user.as_admin(
                'POST', '/snapshots/%s/action' % self.snapshot_id,
                {'os-reset_status': {'status': 'error'}})


class DeferredDeletion(SnapshotCase):
    """A snapshot on the home is deleted while its volume is on the peer."""

    FLOW = 'deferred deletion'

    def stumbles(self, kind):
        return self.step is Step.DEFERRED and kind in _ENDED

    def before(self):
        self.take_snapshot()
        self.move()

    def act(self):
        self.user.request('DELETE', '/snapshots/' + self.snapshot_id)

    def afterwards(self):
        """Reset a state that only operators end, and delete it again."""
        if self.snapshot_id:
            if self.snapshot_status() not in (None, 'available'):
                self._wait_or_reset()
            self.delete_snapshot()

    def _wait_or_reset(self):
        with contextlib.suppress(errors.LabError):
            wait.until(lambda: self.snapshot_status() != 'deleting',
                       'the deletion of snapshot %s' % self.snapshot_id,
                       cases.PATIENCE)
        if self.snapshot_status():
            self.by_hand = True
            self.user.as_admin(
                'POST', '/snapshots/%s/action' % self.snapshot_id,
                {'os-reset_status': {'status': 'error'}})


@dataclasses.dataclass(eq=False)
class DeletionWhileItIsRead(cases.Deletion):
    """A volume is deleted on the peer while it hydrates, and a clone reads it.

    The copies of both wait for their turns, so that the volume is complete
    before the clone: its data is kept then.
    """

    FLOW = 'deletion while it is read'

    copy_id: str = None

    @property
    def volume_ids(self):
        return [self.copy_id]

    def before(self):
        for order in ('waits', 'clone_waits'):
            self.peer.run('touch ' + self._order(order))
        self.write(self.attach(self.peer))
        wait.until(lambda: self.peer.try_run('test -e %s/%s.durable' % (
            stops.ON_NODE, self.volume_id))[0] == 0, 'the write',
            cases.PATIENCE)
        self.detach(self.peer)
        self.copy_id = self.user.request('POST', '/volumes', {'volume': {
            'size': 1, 'source_volid': self.volume_id,
            'name': stops.CLONE_OF + self.volume_id}})['volume']['id']
        self.user.settled(self.copy_id, 'available', timeout=cases.PATIENCE)

    def _order(self, order):
        return '%s/%s.%s' % (stops.ON_NODE, self.volume_id, order)

    def act(self):
        """Delete the volume; let it hydrate if it stops later."""
        super().act()
        if self.by_hand:
            return
        wait.until(lambda: len(self.placeholders()) > 1, 'the deletion',
                   cases.PATIENCE)
        if self.step is not Step.DEFERRED:
            self.peer.run('rm -f ' + self._order('waits'))

    def check(self, test, original):
        test.compare_parts(original, test.parts_of(self.copy_id),
                           test.written(self.volume_id), True)

    def leave(self):
        self.user.delete_volume(self.copy_id)
