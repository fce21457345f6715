# SPDX-License-Identifier: Apache-2.0
"""Requests about volumes with a snapshot elsewhere, or without a source."""

import sys
import time

from dmclone_driver.node.names import Names
from lab.common import user as user_module
from lab.common import volumes
from tests.admin import types
from tests.scenarios.lib import base
from tests.scenarios.lib import images
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import operations

# Seconds until what has waited for a source is done.
LATER = 300


@slow
class ElsewhereTest(operations.Operations, base.E2ETest):
    """A volume that has left its snapshot on its old node."""

    #: A node looks for snapshots to delete each minute.
    TO_END = 180

    def test_all_but_unmanage(self):
        types.make(self.user)
        volume_id, self.old, before = self.filled_volume(
            volume_type=self.limited_type())
        self.new = self.other(self.old)
        snapshot_id = self.take_snapshot(volume_id)
        with self.attached(volume_id, self.old) as path:
            moved = self.checksum_with(self.old, path, 20, 'one')
        with self.slow_network(self.new):
            attachment = self.user.attach(volume_id, self.new)
            # It hydrates.
            self.assertNotEqual([], self.placeholders(volume_id))
            self.assert_limited(attachment)
            self.write(self.new, user_module.path(attachment), 20, 'one')
            self._nothing_is_safe_to_manage(volume_id, snapshot_id)
        self.hydrated(volume_id)
        self._detach(volume_id)
        self._nothing_is_safe_to_manage(volume_id, snapshot_id)
        # At rest on its node, and its snapshot is on the other one.
        self.assert_limited(self.user.attach(volume_id, self.new))
        self._detach(volume_id)
        self.retype(volume_id, types.OTHER)
        self.retyped(volume_id, types.OTHER)
        self.assert_data(volume_id, moved)
        self.transfer_there_and_back(volume_id, moved)
        self.assert_unmanage_refused(snapshot_id)
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.as_admin('POST', '/volumes/%s/action' % volume_id,
                               {'os-unmanage': {}})
        self.assertEqual(400, refused.exception.status)
        self.assertIn('have snapshots', refused.exception.text)
        self.extend(volume_id)
        self.assertIs(self.new, self.home(volume_id))
        self.assert_data(volume_id, moved, 2)
        copy = self.user.create_volume(snapshot_id=snapshot_id)
        self.assert_data(copy['id'], before)

    def _nothing_is_safe_to_manage(self, volume_id, snapshot_id):
        """Check both nodes' lists, which have the volume and its snapshot."""
        self.assertIn(Names(self.column(volume_id, '_name_id')).volume,
                      self.unsafe_to_manage(self.new))
        on_old = self.unsafe_to_manage(self.old)
        self.assertIn(Names(volume_id).volume, on_old)
        self.assertTrue([name for name in on_old if snapshot_id in name],
                        on_old)

    def _detach(self, volume_id):
        self.user.detach_all(volume_id)
        self.user.settled(volume_id, 'available')


@slow
class DownTest(operations.Operations, images.ImageTest):
    """Volumes that hydrate while the node of their sources is off.

    What needs no data of the source is done. What needs some waits for the
    node, and is done then.
    """

    TO_END = 180

    def setUp(self):
        super().setUp()
        self.near = self.lab.node('node1')
        self.far = self.other(self.near)
        types.make(self.user)
        self.second_backend(self.near)

    def test_all(self):
        image = self.image()
        with_snapshot, in_snapshot, expected = self.make(self.far)
        snapshot_id = self.take_snapshot(with_snapshot)
        self.move(with_snapshot, self.near)
        self.hydrated(with_snapshot)
        volume_id, _, moved = self.make(self.far,
                                        volume_type=self.limited_type())
        (overwritten, _, _), (copied, _, of_copied) = (
            self.make(self.far), self.make(self.far))
        waiting = volume_id, overwritten, copied
        with self.slow_network(self.near):
            for each in waiting:
                self.move(each, self.near)
            for each in waiting:
                self.assertNotEqual([], self.placeholders(each))
            with self.power_cut(self.far):
                self._without_the_source(volume_id)
                self._with_a_snapshot_there(with_snapshot, snapshot_id,
                                            expected)
                uploaded = self.begin_upload(volume_id)
                self.user.request(
                    'POST', '/volumes/%s/action' % overwritten,
                    {'os-reimage': {'image_id': image.id}})
                self.retype(copied, operations.LVM, 'on-demand')
                time.sleep(operations.AWAY)
                self.assertEqual('uploading',
                                 self.user.volume(volume_id)['status'])
                self.assertEqual(
                    ('retyping', 'migrating'),
                    (self.user.volume(copied)['status'],
                     self.migration_status(copied)))
                # Only the first write to a part of a region waits.
                print('An image to a volume while its source is down: %s' %
                      self.user.volume(overwritten)['status'],
                      file=sys.stderr)
        self.user.settled(volume_id, 'available', timeout=LATER)
        self.assertEqual(moved, self.image_checksum(uploaded))
        self.assert_data(volume_id, moved)
        self.user.settled(overwritten, 'available', timeout=LATER)
        with self.attached(overwritten, self.near) as path:
            self.assertEqual(images.CHECKSUM, self.checksum(
                self.near, path, images.MIB))
        self.retyped(copied, operations.LVM, migration='success',
                     timeout=LATER)
        self.assertEqual(of_copied, self.checksum(*self.lvm_disk(copied)))
        copy = self.user.create_volume(snapshot_id=snapshot_id)
        self.assert_data(copy['id'], in_snapshot)
        self.assert_data(with_snapshot, expected, 2)

    def _without_the_source(self, volume_id):
        """Use a volume that needs its source, and change its type."""
        began = time.monotonic()
        attachment = self.user.attach(volume_id, self.near)
        print('Attached while its source is down, in %.1f s' %
              (time.monotonic() - began), file=sys.stderr)
        self.assert_limited(attachment)
        # What was written here is here.
        self.assertIn('one', self.near.run(
            'dd if=%s bs=1M skip=20 count=1 iflag=direct status=none | '
            'head -c 3' % user_module.path(attachment)))
        self.user.detach(attachment['id'])
        self.user.settled(volume_id, 'available')
        self.retype(volume_id, types.OTHER)
        self.retyped(volume_id, types.OTHER)
        self.transfer_there_and_back(volume_id, None)

    def _with_a_snapshot_there(self, volume_id, snapshot_id, expected):
        """Use a complete volume whose snapshot is on the node that is off."""
        self.assert_data(volume_id, expected)
        self.transfer_there_and_back(volume_id, expected)
        self.assert_unmanage_refused(snapshot_id)
        self.extend(volume_id)
        self.assert_data(volume_id, expected, 2)


@slow
class ImagesTest(operations.Operations, images.ImageTest):
    """Images of, and to, volumes that have left their snapshots."""

    TO_END = 180

    def setUp(self):
        super().setUp()
        self.near = self.lab.node('node1')
        self.far = self.other(self.near)

    def make_with_snapshot(self):
        """Create a volume on the node that it leaves, and its snapshot.

        :returns: (its id, the snapshot's, its checksum, and that of what is
            behind an image, both after :meth:`move`)
        """
        volume_id, self.before, moved = self.make(self.far)
        with self.attached(volume_id, self.far) as path:
            rest = self.checksum_with(self.far, path, 20, 'one',
                                      first=images.MIB)
        return volume_id, self.take_snapshot(volume_id), moved, rest

    @staticmethod
    def rest(node, path):
        """Return the checksum of what is behind an image."""
        return node.run('dd if=%s bs=1M skip=%d count=%d iflag=direct '
                        'status=none | sha256sum' % (
                            path, images.MIB,
                            volumes.DATA - images.MIB)).split()[0]

    def reimage(self, volume_id):
        self.user.request('POST', '/volumes/%s/action' % volume_id,
                          {'os-reimage': {'image_id': self.image_id}})
        self.user.settled(volume_id, 'available', timeout=LATER)

    def assert_reimaged(self, volume_id, rest):
        """Check for the image, and for the volume's own data behind it."""
        self.assertIs(self.near, self.home(volume_id))
        with self.attached(volume_id, self.near) as path:
            self.assertEqual((images.CHECKSUM, rest), (
                self.checksum(self.near, path, images.MIB),
                self.rest(self.near, path)))

    def assert_uploaded(self, volume_id, image_id, expected):
        self.user.settled(volume_id, 'available', timeout=LATER)
        self.assertIs(self.near, self.home(volume_id))
        self.assertEqual(expected, self.image_checksum(image_id))

    def test_at_rest_and_while_they_hydrate(self):
        self.image_id = self.image().id
        resting, of_resting, moved, rest = self.make_with_snapshot()
        self.move(resting, self.near)
        overwritten, of_overwritten, _, rest_of_overwritten = (
            self.make_with_snapshot())
        uploaded, _, moved_too, _ = self.make_with_snapshot()
        self.hydrated(resting)
        with self.slow_network(self.near):
            for each in overwritten, uploaded:
                self.move(each, self.near)
            self.reimage(overwritten)
            image_id = self.begin_upload(uploaded)
            for each in overwritten, uploaded:
                self.assertNotEqual([], self.placeholders(each))
        self.assert_uploaded(uploaded, image_id, moved_too)
        self.assert_reimaged(overwritten, rest_of_overwritten)
        self.assert_uploaded(resting, self.begin_upload(resting), moved)
        self.reimage(resting)
        self.assert_reimaged(resting, rest)
        for each in overwritten, uploaded:
            self.hydrated(each)
        self.assert_reimaged(overwritten, rest_of_overwritten)
        self.assert_data(uploaded, moved_too)
        # The snapshots show what the volumes had.
        for each in of_resting, of_overwritten:
            copy = self.user.create_volume(snapshot_id=each)
            self.assert_data(copy['id'], self.before)


@slow
class EncryptedTest(operations.Operations, base.E2ETest):
    """A volume with LUKS, opened as QEMU opens that of an instance."""

    TO_END = 180
    WORD = 'laboratory'
    #: Each MiB has a pattern of its own.
    PATTERNS = range(1, 41)

    def qemu_io(self, node, path, *commands):
        """Run commands on the decrypted volume; all have to succeed."""
        said = node.run(
            'qemu-io -t none --object secret,id=key,data=%s --image-opts '
            'driver=luks,key-secret=key,file.driver=host_device,'
            'file.filename=%s %s 2>&1' % (self.WORD, path, ' '.join(
                "-c '%s'" % command for command in commands)), timeout=180)
        self.assertNotIn('failed', said)
        self.assertNotIn('rror', said)

    def verify(self, node, path, patterns):
        """Compare the decrypted data."""
        self.qemu_io(node, path, *(
            'read -q -P %d %dM 1M' % (pattern, at)
            for at, pattern in enumerate(patterns)))

    def refuse_others(self):
        """Attach a volume that os-brick would have to decrypt."""
        self.user.encrypted_type('plain', 'plain')
        volume_id = self.user.create_volume(volume_type='plain')['id']
        node = self.home(volume_id)
        attachment_id = self.user.reserve(volume_id)
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.connect(attachment_id, self.user.connector(node))
        self.assertIn('only luks', refused.exception.text)
        self.user.detach(attachment_id)
        self.user.settled(volume_id, 'available')
        self.user.delete_volume(volume_id)

    def test_hydrates_and_with_a_snapshot_elsewhere(self):
        self.refuse_others()
        self.user.encrypted_type('luks')
        volume_id = self.user.create_volume(volume_type='luks')['id']
        old = self.home(volume_id)
        new = self.other(old)
        with self.attached(volume_id, old) as path:
            # As os-brick does for Nova.
            old.run('printf %s | cryptsetup --batch-mode luksFormat '
                    '--force-password --type luks1 --key-file=- '
                    '--cipher aes-xts-plain64 --key-size 256 '
                    '--iter-time 100 %s' % (self.WORD, path), timeout=120)
            self.qemu_io(old, path, *(
                'write -q -P %d %dM 1M' % (pattern, at)
                for at, pattern in enumerate(self.PATTERNS)), 'flush')
            self.verify(old, path, self.PATTERNS)
            before = self.checksum(old, path)
        snapshot_id = self.take_snapshot(volume_id)
        later = [200, *self.PATTERNS[1:]]
        with self.slow_network(new):
            attachment = self.user.attach(volume_id, new)
            path = user_module.path(attachment)
            self.assertTrue(attachment['connection_info']['encrypted'])
            self.assertEqual(before, self.checksum(new, path))
            self.verify(new, path, self.PATTERNS)
            self.qemu_io(new, path, 'write -q -P 200 0 1M', 'flush')
            self.verify(new, path, later)
            self.assertNotEqual([], self.placeholders(volume_id))
            self.user.detach(attachment['id'])
            self.user.settled(volume_id, 'available')
        self.hydrated(volume_id)
        with self.attached(volume_id, new) as path:
            self.assertIs(new, self.home(volume_id))
            self.verify(new, path, later)
        copy = self.user.create_volume(snapshot_id=snapshot_id)
        with self.attached(copy['id'], new) as path:
            self.assertEqual(before, self.checksum(new, path))
            self.verify(new, path, self.PATTERNS)
