# SPDX-License-Identifier: Apache-2.0
"""A restored database does not make nodes lose data.

The rows of volumes are restored to older ones, as by a backup, or by a
fail-over that loses the last transactions. The guests' data is kept, whatever
is done then. With the newest rows all moves continue.
"""

import dataclasses

from dmclone_driver.node.names import Names
from lab.common import user as user_module
from lab import wait
from tests.admin import backup
from tests.admin import hold
from tests.admin import logs
from tests.crash import base
from tests.crash import cases
from tests.crash import stops

#: When the rows were saved, and the states in which they are restored.
BEFORE, PREPARED, SWITCHED = 'before', 'prepared', 'switched'
HYDRATING, COMPLETE = 'hydrating', 'complete'
#: Seconds until the services have checked all their objects.
A_LOOK = 70
#: Seconds until all volumes have converged with the newest rows.
TO_CONVERGE = 180


@dataclasses.dataclass(eq=False)
class Life:
    """A volume whose rows are restored."""

    saved: str
    reality: str
    volume_id: str = None
    placeholder_id: str = None
    #: The attachment on the old home.
    first: str = None
    instance: str = dataclasses.field(default_factory=user_module.uuid4)
    #: {when: rows}
    backups: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        return '%s, %s' % (self.saved, self.reality)

    @property
    def forgotten(self):
        """Return whether the restored rows are from before the move."""
        return self.saved != SWITCHED


class ForgetfulTest(base.StoppingTest):
    """The database has older rows, and a node may have rebooted."""

    OPTIONS = hold.OPTIONS

    def setUp(self):
        super().setUp()
        self.logs = logs.Logs(self)

    def test_no_reboot(self):
        self.forget()

    def test_new_home_reboots(self):
        self.forget(self.peer)

    def test_old_home_reboots(self):
        self.forget(self.home)

    def forget(self, rebooted=None):
        lives = [Life(saved, reality)
                 for saved in (BEFORE, PREPARED, SWITCHED)
                 for reality in (HYDRATING, COMPLETE)]
        originals = self.move(lives)
        self.right = {life: [originals[life.volume_id][0], self.written(
            life.volume_id), originals[life.volume_id][2]] for life in lives}
        for life in lives:
            backup.put_back(life.volume_id, life.backups[life.saved])
        if rebooted:
            rebooted.cut_power()
            rebooted.start()
            rebooted.wait_ready()
        forgotten = [life for life in lives if life.forgotten]
        for life in forgotten:
            with self.subTest(life.name, step='the old guest is started'):
                self.start_old_guest(life)
        self.restart()
        self.assert_kept(lives, 'after a start')
        for life in forgotten:
            with self.subTest(life.name, step='a user deletes it'):
                self.delete(life)
        self.logs.wait_for(A_LOOK, lambda: all(
            self.logs.said(life.volume_id) for life in forgotten))
        for life in forgotten:
            with self.subTest(life.name, step='the log says so'):
                self.assertTrue(self.logs.said(life.volume_id))
                print(life.name, self.logs.said(life.volume_id)[-300:])
        self.restart()
        self.assert_kept(lives, 'after a deletion')
        self.remember(lives)
        self.assert_right(lives)

    # Before

    def move(self, lives):
        """Move volumes; returns their checksums from before."""
        self.create(lives)
        originals = self.fill(lives)
        for life in lives:
            life.first = self.user.attach(life.volume_id, self.home,
                                          life.instance)['id']
        self.save(lives, BEFORE)
        for life in lives:
            self.user.attach(life.volume_id, self.peer, life.instance)
            life.placeholder_id, = self.placeholders(life.volume_id)
            stops.hold_up(base.FOLDER, life.volume_id)
        self.save(lives, PREPARED)
        for life in lives:
            self.user.detach(life.first)
        wait.until(lambda: all(hold.is_held(self, life.placeholder_id)
                               for life in lives), 'all to hydrate', 60)
        self.save(lives, SWITCHED)
        for life in lives:
            self.peer.run(cases.WRITE.format(
                id=life.volume_id, path=Names(life.placeholder_id).path(),
                at=cases.GUEST_BLOCK, folder=stops.ON_NODE))
        wait.until(lambda: all(stops.durable(base.FOLDER, life.volume_id)
                               for life in lives), 'the guests to write', 30)
        for life in lives:
            if life.reality == COMPLETE:
                hold.let_go(self, life)
        wait.until(lambda: not any(
            self.placeholders(life.volume_id) for life in lives
            if life.reality == COMPLETE), 'half of them to be complete', 60)
        self.save(lives, 'newest')
        return originals

    @staticmethod
    def save(lives, when):
        for life in lives:
            life.backups[when] = backup.take(life.volume_id)

    # Requests with older rows

    def start_old_guest(self, life):
        """Start the guest on the old home, as Nova with old rows does."""
        code, _, said = self.home.try_run(
            'dd if=/dev/zero of=%s bs=4096 count=1 oflag=direct '
            'conv=nocreat,notrunc,fsync' % Names(life.volume_id).path())
        self.assertNotEqual(0, code, said)
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.attach(life.volume_id, self.home, life.instance)
        self.assertIn(life.volume_id, refused.exception.text)

    def restart(self):
        for node in (self.home, self.peer):
            node.restart('cinder-volume')
        for node in (self.home, self.peer):
            node.wait_ready()

    def delete(self, life):
        """Detach and delete a volume as a user.

        The new attachment is deleted first, which aborts the move.
        """
        for attachment in sorted(
                self.user.attachments(life.volume_id),
                key=lambda each: each['id'] == life.first):
            self.user.detach(attachment['id'])
        self.user.settled(life.volume_id, 'available')
        self.user.request('DELETE', '/volumes/' + life.volume_id)
        wait.until(lambda: not self.lab.sql(
            "SELECT id FROM volumes WHERE id = '%s' AND deleted = 0 AND "
            "status = 'deleting'" % life.volume_id), 'the deletion', 60)

    def assert_kept(self, lives, when):
        """Check that the guests' data is on the new home's disk."""
        for life in lives:
            with self.subTest(life.name, step=when):
                _, middle, _ = parts = self.parts_of(
                    self.peer, life.placeholder_id)
                self.assertEqual(self.right[life][1], middle)
                if life.reality == COMPLETE:
                    self.assertEqual(self.right[life], parts)
                elif life.forgotten:
                    self.assertIn('dmclone-metadata-' + life.placeholder_id,
                                  self.peer.run('lvs -o lv_name'))
                    before, _, after = self.parts_of(self.home,
                                                     life.volume_id)
                    self.assertEqual(self.right[life][::2], [before, after])

    def parts_of(self, node, name_id):
        """Return the checksums of a logical volume's parts."""
        return self.parts_on(node, {
            'it': '/dev/cinder-volumes/volume-' + name_id})['it']

    # Afterwards

    def remember(self, lives):
        """Restore the newest rows, as an operator with a backup does."""
        for node in (self.home, self.peer):
            node.stop('cinder-volume')
        for life in lives:
            if life.forgotten:
                backup.put_back(life.volume_id, life.backups['newest'])
        stops.go_on(base.FOLDER)
        for node in (self.home, self.peer):
            node.start_service('cinder-volume')
        for node in (self.home, self.peer):
            node.wait_ready()
        hold.resume_all(self.peer)

    def assert_right(self, lives):
        """Check that all volumes are complete, with the right data."""
        def wrong():
            states = self.states()
            return [(life.name, states.get(life.volume_id)) for life in lives
                    if len(states.get(life.volume_id, [])) != 1 or
                    states[life.volume_id][0][3]]
        wait.until(lambda: not wrong(), 'all to converge', TO_CONVERGE,
                   log=lambda: str(wrong()))
        now = self.parts()
        for life in lives:
            with self.subTest(life.name, step='the end'):
                self.assertEqual(self.peer, self.home_of(life))
                self.assertEqual(self.right[life], now[life.volume_id])
        for life in lives:
            self.end_volume(life.volume_id)
        self.nothing_left(base.TO_PREPARE)

    def home_of(self, life):
        row, = self.lab.sql("SELECT host FROM volumes WHERE id = '%s'"
                            % life.volume_id)
        return self.lab.node(row[0].partition('@')[0])
