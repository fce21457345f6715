# SPDX-License-Identifier: Apache-2.0
"""Requests of users and operators whose outcome depends on a volume's state.

See the page "Support matrix".
"""

import contextlib
import hashlib

from dmclone_driver.node.names import Names
from lab.common import leftovers
from lab.common import user as user_module
from lab.common import volumes
from lab.tempest import backends
from lab import wait

#: A type of volumes whose instances get these limits from Nova, and the limits
#: in a connection: too high to delay a test.
LIMITED, LIMITS = 'dmclone.limited', {'total_iops_sec': '50000'}
#: The type of the second backend, which uses Cinder's LVM driver.
LVM = 'lvm'
#: Seconds for which a request that needs a source waits for it, at least.
AWAY = 20
_MIGSTAT = 'os-vol-mig-status-attr:migstat'


class Operations:
    """A mixin for test cases of :mod:`tests.scenarios.lib.base`."""

    # Volumes and nodes

    @contextlib.contextmanager
    def power_cut(self, node):
        """Cut a node's power; at the end it runs again."""
        node.cut_power()
        try:
            yield
        finally:
            node.start()
            node.wait_ready()

    def make(self, node, **attributes):
        """Create a volume with data on a node.

        :returns: (its id, checksum, checksum after :meth:`move`)
        """
        with self.created_on(node):
            volume_id, home, before = self.filled_volume(**attributes)
        self.assertIs(node, home)
        with self.attached(volume_id, node) as path:
            return volume_id, before, self.checksum_with(node, path, 20,
                                                         'one')

    def move(self, volume_id, node):
        """Attach a volume on a node, and write a MiB there."""
        with self.attached(volume_id, node) as path:
            self.write(node, path, 20, 'one')

    def assert_data(self, volume_id, checksum, gib=1):
        """Compare the data of a volume at its home, and its size."""
        node = self.home(volume_id)
        with self.attached(volume_id, node) as path:
            self.assertEqual(str(gib << 30), node.run(
                'blockdev --getsize64 ' + path).strip(), volume_id)
            self.assertEqual(checksum, self.checksum(node, path), volume_id)

    def take_snapshot(self, volume_id):
        """Take a snapshot, which is deleted at the end; returns its id."""
        snapshot_id = self.user.create_snapshot(volume_id)
        self.addCleanup(self.end_snapshot, snapshot_id)
        return snapshot_id

    def end_snapshot(self, snapshot_id):
        """Delete a snapshot, unless it is gone already."""
        try:
            self.user.delete_snapshot(snapshot_id)
        except user_module.ApiError as error:
            if error.status != 404:
                raise

    def extend(self, volume_id, status='available'):
        """Extend a volume to 2 GiB, and wait until it has this status."""
        self.user.request('POST', '/volumes/%s/action' % volume_id,
                          {'os-extend': {'new_size': 2}})
        self.user.settled(volume_id, status)

    def revert(self, volume_id, snapshot_id, status='available'):
        """Revert a volume, and wait until it has this status."""
        self.user.request('POST', '/volumes/%s/action' % volume_id,
                          {'revert': {'snapshot_id': snapshot_id}})
        self.user.settled(volume_id, status, timeout=240)

    def reset(self, volume_id):
        """Give a volume the status *available*, as an operator does."""
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id,
                           {'os-reset_status': {'status': 'available'}})

    def column(self, volume_id, name):
        """Return a column of a volume's row."""
        (value,), = self.lab.sql("SELECT %s FROM volumes WHERE id = '%s'" % (
            name, volume_id))
        return value

    # QoS

    def limited_type(self):
        """Create the type LIMITED unless it exists; returns its name."""
        types = self.user.as_admin('GET', '/types')['volume_types']
        if LIMITED not in (each['name'] for each in types):
            made = self.user.as_admin('POST', '/types', {'volume_type': {
                'name': LIMITED, 'extra_specs': {
                    'volume_backend_name': 'dmclone'}}})['volume_type']
            limits = self.user.as_admin('POST', '/qos-specs', {
                'qos_specs': dict(LIMITS, name=LIMITED,
                                  consumer='front-end')})['qos_specs']
            self.user.as_admin('GET', '/qos-specs/%s/associate?vol_type_id=%s'
                               % (limits['id'], made['id']))
        return LIMITED

    def assert_limited(self, attachment):
        """Check that a connection has the limits of the volume's type."""
        info = attachment['connection_info']
        self.assertEqual(('local', LIMITS), (
            info['driver_volume_type'], info['qos_specs']), info)

    # Types

    def retype(self, volume_id, name, policy='never'):
        """Request that a volume gets another type."""
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id, {
            'os-retype': {'new_type': name, 'migration_policy': policy}})

    def migration_status(self, volume_id):
        return self.user.as_admin('GET', '/volumes/' + volume_id)['volume'][
            _MIGSTAT]

    def retyped(self, volume_id, name, status='available',
                migration=None, timeout=60):
        """Wait until a volume has a type, and a status again.

        :param migration: the migration status that it has to end with, if
            Cinder copies the volume
        """
        def ended():
            volume = self.user.volume(volume_id)
            return volume['status'] != 'retyping' and (
                migration is None or self.migration_status(volume_id) in (
                    'success', 'error')) and volume
        volume = wait.until(
            ended, 'volume %s to be retyped' % volume_id, timeout,
            log=lambda: '%s, migration status %s' % (
                self.user.volume(volume_id),
                self.migration_status(volume_id)))
        self.assertEqual((status, name, migration), (
            volume['status'], volume['volume_type'],
            migration and self.migration_status(volume_id)), volume)

    def second_backend(self, *nodes):
        """Give nodes a second backend, with Cinder's LVM driver.

        All volumes are deleted before it goes, at the end of the test.
        """
        configured = backends.configured(self.lab, {
            node: backends.changes('dmclone', node, self.lab.settings)
            for node in nodes})
        configured.__enter__()
        self.addCleanup(configured.__exit__, None, None, None)
        self.addCleanup(self.end_volumes)

    def lvm_disk(self, volume_id):
        """Return (node, path) of a volume of the second backend."""
        host = self.column(volume_id, 'host')
        self.assertIn('@%s#' % LVM, host)
        return self.home(volume_id), '/dev/cinder-metadata/' + Names(
            self.column(volume_id, 'COALESCE(_name_id, id)')).volume

    # Transfers

    def transfer_there_and_back(self, volume_id, checksum):
        """Give a volume to another project, compare it, and take it back."""
        admin = user_module.User(self.lab, 'admin')
        mine = self.column(volume_id, 'project_id')
        self._transfer(volume_id, self.user, admin)
        self.assertNotEqual(mine, self.column(volume_id, 'project_id'))
        if checksum:
            self.assertEqual(checksum, self.checksum(
                self.home(volume_id), Names(self.column(
                    volume_id, 'COALESCE(_name_id, id)')).path()))
        self._transfer(volume_id, admin, self.user)
        self.assertEqual(mine, self.column(volume_id, 'project_id'))
        self.assertEqual('available', self.user.volume(volume_id)['status'])

    @staticmethod
    def _transfer(volume_id, giver, taker):
        transfer = giver.request('POST', '/volume-transfers', {
            'transfer': {'volume_id': volume_id}})['transfer']
        taker.request(
            'POST', '/volume-transfers/%s/accept' % transfer['id'],
            {'accept': {'auth_key': transfer['auth_key']}})

    # Management

    def unsafe_to_manage(self, node):
        """Return the names in a node's lists, of which none may be safe."""
        listed = [each for kind in ('volumes', 'snapshots')
                  for each in self.user.as_admin(
                      'GET', '/manageable_%s/detail?host=%s@dmclone%%23dmclone'
                      % (kind, node.name))['manageable-' + kind]]
        self.assertEqual([], [each for each in listed
                              if each['safe_to_manage']])
        return [each['reference']['source-name'] for each in listed]

    def unmanage_snapshot(self, snapshot_id):
        """Request that Cinder forgets a snapshot."""
        self.user.as_admin('POST', '/snapshots/%s/action' % snapshot_id,
                           {'os-unmanage': None})

    def snapshot_status(self, snapshot_id):
        """Return a snapshot's status, None if it is gone."""
        rows = self.lab.sql("SELECT status FROM snapshots WHERE NOT deleted "
                            "AND id = '%s'" % snapshot_id)
        return rows[0][0] if rows else None

    def unmanage_and_find(self, snapshot_id, node):
        """Have Cinder forget a snapshot; returns its logical volume."""
        self.unmanage_snapshot(snapshot_id)
        wait.until(lambda: self.snapshot_status(snapshot_id) is None,
                   'snapshot %s to be unmanaged' % snapshot_id, 60,
                   log=lambda: self.snapshot_status(snapshot_id))
        name, = [name for name in leftovers.volumes(node)
                 if snapshot_id in name]
        return name

    def assert_unmanage_refused(self, snapshot_id):
        """Check that a snapshot stays, and that its user gets a message."""
        said = len(self.user.messages(snapshot_id))
        self.unmanage_snapshot(snapshot_id)
        wait.until(lambda: self.snapshot_status(snapshot_id) != 'unmanaging',
                   'the refusal', 60)
        self.assertEqual('available', self.snapshot_status(snapshot_id))
        self.assertGreater(len(self.user.messages(snapshot_id)), said)

    def manage_snapshot(self, volume_id, name):
        """Manage a logical volume as a snapshot; returns the new id."""
        snapshot_id = self.user.as_admin('POST', '/manageable_snapshots', {
            'snapshot': {'volume_id': volume_id,
                         'ref': {'source-name': name}}})['snapshot']['id']
        self.addCleanup(self.end_snapshot, snapshot_id)
        wait.until(lambda: self.snapshot_status(snapshot_id) not in (
            'creating', 'managing'), 'the snapshot to be managed', 60)
        self.assertEqual('available', self.snapshot_status(snapshot_id))
        return snapshot_id

    # Images

    def begin_upload(self, volume_id):
        """Request an image of a volume; returns the image's id."""
        image_id = self.user.request(
            'POST', '/volumes/%s/action' % volume_id,
            {'os-volume_upload_image': {
                'image_name': 'dmclone-back', 'disk_format': 'raw',
                'container_format': 'bare'}})[
                    'os-volume_upload_image']['image_id']
        self.addCleanup(self.user.cloud.image.delete_image, image_id)
        return image_id

    def image_checksum(self, image_id, mib=volumes.DATA):
        """Return the checksum of an image's start."""
        digest, left = hashlib.sha256(), mib << 20
        for chunk in self.user.cloud.image.download_image(
                image_id, stream=True).iter_content(1 << 20):
            digest.update(chunk[:left])
            left -= min(left, len(chunk))
            if not left:
                break
        return digest.hexdigest()
