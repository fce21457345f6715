# SPDX-License-Identifier: Apache-2.0
"""One volume per step of each flow, and the actions on it.

``before`` brings it to the beginning of the flow. ``act`` begins the flow, and
is interrupted. ``afterwards`` does what Nova or the user does after the fault,
and is repeated until it succeeds.
"""

import dataclasses
import enum
import time

from dmclone_driver.move import prepared_moves
from dmclone_driver.node import logical_volumes
from dmclone_driver.node.names import Names
from dmclone_driver import steps
from dmclone_driver.steps import Step
from lab.common import user as user_module
from lab import errors
from lab import wait
from tests.crash import stops

#: The offset of the guest's block, in blocks of 4 KiB.
GUEST_BLOCK = 2048
# Seconds until Cinder counts as having given up: a request that waits behind
# those of all other volumes, after a restart of the service, looks the same.
PATIENCE = 200
# In the background, since it may have to wait at a gate.
WRITE = (
    '(yes {id} | head -c 4096 | dd of={path} bs=4096 seek={at} count=1 '
    'iflag=fullblock oflag=direct conv=nocreat,notrunc,fsync && '
    'touch {folder}/{id}.durable) > /dev/null 2>&1 &')


class Stage(enum.IntEnum):
    """The order in which volumes are brought to their steps."""

    FIRST = 0
    PREPARES = 1
    COPIES = 2
    WATCHER_STOPS = 3


@dataclasses.dataclass(eq=False)
class Case:
    """A volume that stops at a step."""

    user: user_module.User
    home: object
    peer: object
    side: str
    step: object
    volume_id: str = None
    #: Whether the request from before the fault has succeeded.
    answered: bool = False
    #: Whether all requests of Nova and the user have ended.
    over: bool = False
    #: Whether a state that Cinder left was reset by hand.
    by_hand: bool = False
    #: Whether a guest has begun to write its block.
    wrote: bool = False
    #: Seconds from the fault until the volume had converged.
    took: float = None
    #: Whether it was interrupted at its step, and then had no defect.
    proven: bool = False
    instance: str = dataclasses.field(default_factory=user_module.uuid4)
    #: Successful attachments, {node: id}.
    attachments: dict = dataclasses.field(default_factory=dict)
    #: Snapshot of the volume, if the flow has one.
    snapshot_id: str = None

    #: Whether the volume is deleted in the end.
    GOES = False
    #: Whether the flow begins with the preparation of a move.
    PREPARES = False
    #: Whether a guest's write is durable at the step.
    WRITTEN = False

    def stumbles(self, kind):
        """Whether Cinder does not continue by itself after a fault."""
        return False

    def before(self):
        """Bring the volume to the beginning of the flow."""

    def act(self):
        """Begin the flow; raises an ApiError if it is interrupted."""
        raise NotImplementedError

    def afterwards(self):
        """Complete or undo the flow; raises an ApiError to be repeated."""

    def check(self, test, original):
        """Check more than the volume's data; raises an AssertionError.

        :param original: checksums of the volume's parts before the flow
        """

    @property
    def volume_ids(self):
        """Return the ids of all volumes that are there in the end."""
        return [] if self.GOES else [self.volume_id]

    def leave(self):
        """Delete the volume after the checks."""
        if self.GOES:
            return
        self.user.detach_all(self.volume_id)
        self.user.delete_volume(self.volume_id)

    @property
    def prepares(self):
        """Return whether the home waits for the peer's answer at the step."""
        return self.PREPARES and (self.side, self.step) in steps.PREPARE

    @property
    def stage(self):
        """Return the stage, so that no volume waits for a stopped one.

        Volumes in a preparation have little time, volumes that hydrate still
        less. If the peer's watcher switches over by itself the watcher is
        stopped: volumes that need the watcher have to be at their steps
        before.
        """
        if self.FLOW == LiveMigration.FLOW and self.step is Step.SWITCHED:
            return Stage.WATCHER_STOPS
        if self.step is Step.HYDRATING:
            return Stage.COPIES
        return Stage.PREPARES if self.prepares else Stage.FIRST

    @property
    def name(self):
        return '%s: %s, %s' % (self.FLOW, self.side, self.step.value)

    @property
    def node(self):
        """Return the node that does the step."""
        return self.home if self.side == steps.HOME else self.peer

    def attach(self, node):
        """Attach the volume as Nova does; returns its path."""
        attachment = self.user.attach(self.volume_id, node, self.instance)
        self.attachments[node] = attachment['id']
        return user_module.path(attachment)

    def detach(self, node):
        """Delete the volume's attachment on a node, if there is one.

        An attachment whose request had no answer counts as one on this node.
        """
        elsewhere = {attachment for other, attachment in
                     self.attachments.items() if other is not node}
        for attachment in self.user.attachments(self.volume_id):
            if attachment['id'] not in elsewhere:
                self.user.detach(attachment['id'])

    def reset_status(self, status, *left, of=None):
        """Reset a state that only operators end.

        :param left: the states that Cinder, not this driver, may have left
        :param of: the volume's id, if it is not the case's
        """
        volume_id = of or self.volume_id
        found = self.user.volume(volume_id)['status']
        assert found in left, found
        self.by_hand = True
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id,
                           {'os-reset_status': {'status': status}})

    def _name_id(self):
        return self.user.as_admin('GET', '/volumes/' + self.volume_id)[
            'volume']['os-vol-mig-status-attr:name_id']

    def placeholders(self):
        """Return the placeholders of the volume, as the API shows them."""
        return self.user.as_admin(
            'GET', '/volumes?all_tenants=1&name=dmclone%%20move%%20of%%20%s'
            % self.volume_id)['volumes']

    def become_clone(self):
        """Become a clone that does not hydrate, since its source is open.

        Then only a write on the peer moves the volume.
        """
        path = Names(self.volume_id).path()
        self.attach(self.home)
        self.home.run('sleep 1000 < %s > /dev/null 2>&1 & echo $! > '
                      '/run/open-%s' % (path, self.volume_id))
        self.write(self.attach(self.peer))
        wait.until(lambda: self._name_id() != self.volume_id, 'the switchover',
                   PATIENCE)
        self.detach(self.home)
        self.detach(self.peer)

    def close_source(self):
        """Let the clone hydrate; a reboot of the home has done so, too."""
        self.home.run('kill $(cat /run/open-%s) 2>/dev/null; true'
                      % self.volume_id)

    def write(self, path):
        """Write the guest's block, which may have to wait."""
        self.peer.run(WRITE.format(
            id=self.volume_id, path=path, at=GUEST_BLOCK,
            folder=stops.ON_NODE))
        self.wrote = True


class AttachAway(Case):
    FLOW = 'attach away'
    PREPARES = True

    def act(self):
        self.write(self.attach(self.peer))

    def afterwards(self):
        if not self.answered:
            self.detach(self.peer)


class Completion(AttachAway):
    FLOW = 'completion'
    PREPARES = False
    WRITTEN = True


class LiveMigration(Case):
    FLOW = 'live migration'
    PREPARES = True

    def before(self):
        self.attach(self.home)
        if not self.prepares:
            self.path = self.attach(self.peer)

    def act(self):
        if self.prepares:
            self.attach(self.peer)
        else:
            self.write(self.path)

    def afterwards(self):
        self.detach(self.peer if self.prepares else self.home)


class OldAttachmentGoes(Case):
    FLOW = 'old attachment goes'

    def before(self):
        self.attach(self.home)
        self.path = self.attach(self.peer)

    def act(self):
        self.detach(self.home)
        self.write(self.path)

    def afterwards(self):
        self.detach(self.home)


class RollBack(Case):
    FLOW = 'roll back'

    def before(self):
        self.attach(self.home)
        self.attach(self.peer)

    def act(self):
        self.detach(self.peer)

    def afterwards(self):
        self.detach(self.peer)


class Deletion(Case):
    FLOW = 'deletion'
    GOES = True

    def act(self):
        self.user.request('DELETE', '/volumes/' + self.volume_id)

    def afterwards(self):
        """Delete the volume again if Cinder does not continue by itself."""
        try:
            self.user.wait_gone(self.volume_id, PATIENCE)
        except (AssertionError, errors.LabError):
            self.reset_status('error', 'deleting', 'error_deleting')
            self.act()
            self.user.wait_gone(self.volume_id, PATIENCE)


class DeletionOfClone(Deletion):
    FLOW = 'deletion of a clone'
    #: Whether the deletion began before anything was copied.
    was_clone = False

    def before(self):
        self.become_clone()

    def act(self):
        """Delete the volume; then close the source, which can be deleted."""
        name_id = self._name_id()
        super().act()
        wait.until(lambda: self._deletion_has_begun(name_id), 'the deletion',
                   PATIENCE)
        self.was_clone = True
        self.close_source()

    def _deletion_has_begun(self, name_id):
        found = self.peer.run('lvs --noheadings -o lv_name,lv_tags -S '
                              'lv_name=volume-' + name_id).strip()
        return not found or logical_volumes.DELETED_TAG in found


class Extension(Case):
    FLOW = 'extension'

    def stumbles(self, kind):
        return True

    def act(self):
        self.user.request('POST', '/volumes/%s/action' % self.volume_id,
                          {'os-extend': {'new_size': 2}})

    def afterwards(self):
        """Reset a state that only operators end, and extend again."""
        try:
            self.user.settled(self.volume_id, 'available', timeout=PATIENCE)
        except (AssertionError, errors.LabError):
            self.reset_status('available', 'extending', 'error_extending')
        if self.user.volume(self.volume_id)['size'] == 1:
            self.act()
            self.user.settled(self.volume_id, 'available', timeout=PATIENCE)

    def check(self, test, original):
        size = int(self.home.run('blockdev --getsize64 ' + Names(
            self.volume_id).path()))
        assert size == 2 * stops.MIB << 20, size


class MigrationAtRest(Case):
    """Cinder's migration of a volume that is not attached."""

    FLOW = 'migration at rest'
    PREPARES = True

    def act(self):
        self.user.as_admin('POST', '/volumes/%s/action' % self.volume_id, {
            'os-migrate_volume': {
                'host': '{0}@{1}#{1}'.format(self.peer.name, 'dmclone')}})

    def afterwards(self):
        """Migrate the volume again unless it is on the peer."""
        try:
            wait.until(lambda: self._migration()[1] not in (
                'starting', 'migrating'), 'the migration', PATIENCE)
        except errors.LabError:
            self.by_hand = True
            self.user.as_admin(
                'POST', '/volumes/%s/action' % self.volume_id,
                {'os-reset_status': {'migration_status': 'error'}})
        if not self._migration()[0].startswith(self.peer.name + '@'):
            # The driver says that a move has failed before it asks the peer
            # to delete its destination. Cinder sets the error once more when
            # it has, and would set it of a migration that has begun by then.
            time.sleep(prepared_moves.DELETE_TIMEOUT)
            self.act()
            raise AssertionError('migrated again: %s' % (self._migration(),))

    def _migration(self):
        """Return (host, migration status)."""
        volume = self.user.as_admin('GET', '/volumes/' + self.volume_id)[
            'volume']
        return (volume['os-vol-host-attr:host'],
                volume['os-vol-mig-status-attr:migstat'])
