# SPDX-License-Identifier: Apache-2.0
"""Generic volume groups: snapshots of them, and groups from those."""

from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow
from tests.scenarios.lib import writers


class GroupsTest(writers.Writers, base.E2ETest):
    """A group with a volume at rest, and one that hydrates."""

    #: A node deletes the snapshots that volumes have read within a minute.
    TO_END = 150

    def setUp(self):
        super().setUp()
        type_id = self.user.as_admin('POST', '/group_types', {
            'group_type': {'name': 'plain-' + user_module.uuid4()}})[
                'group_type']['id']
        self.addCleanup(self.user.as_admin, 'DELETE',
                        '/group_types/' + type_id)
        self.moving, self.old, _ = self.filled_volume()
        kind = self.user.volume(self.moving)['volume_type']
        self.group_id = self.make('group', '/groups', {'group': {
            'name': 'scenario', 'group_type': type_id,
            'volume_types': [kind]}})
        self.resting = self.user.create_volume(
            group_id=self.group_id, volume_type=kind)['id']
        # Cinder's scheduler has chosen the node of the group.
        self.node = self.home(self.resting)
        if self.old is self.node:
            self.old = self.other(self.node)
            with self.attached(self.moving, self.old):
                self.hydrated(self.moving)
        with self.attached(self.resting, self.node) as path:
            self.fill(self.node, path, seed='resting')

    def make(self, kind, path, body):
        """Create a group or group snapshot; returns its id."""
        made_id = self.user.request('POST', path, body)[kind]['id']
        self.addCleanup(self.end, kind, made_id)
        self.until(kind, made_id, 'available')
        return made_id

    def until(self, kind, row_id, expected):
        """Wait until a group or group snapshot has a status."""
        def reached():
            found = self.user.request('GET', '/%ss/%s' % (kind, row_id))
            self.assertNotEqual('error', found[kind]['status'])
            return found[kind]['status'] == expected
        wait.until(reached, '%s %s to be %s' % (kind, row_id, expected), 60)

    def end(self, kind, row_id):
        """Delete a group with its volumes, or a group snapshot."""
        path = '/%ss/%s' % (kind, row_id)
        if not self.there(path):
            return
        if kind == 'group':
            for each in self.volumes(row_id):
                self.user.detach_all(each['id'])
                self.user.settled(each['id'], 'available', 'error')
            self.user.request('POST', path + '/action', {
                'delete': {'delete-volumes': True}})
        else:
            self.user.request('DELETE', path)
        wait.until(lambda: not self.there(path),
                   '%s %s to be deleted' % (kind, row_id), 60)

    def there(self, path):
        try:
            return self.user.request('GET', path)
        except user_module.ApiError as error:
            if error.status != 404:
                raise
            return None

    def volumes(self, group_id):
        return self.user.request(
            'GET', '/volumes/detail?group_id=' + group_id)['volumes']

    def add(self, volume_id):
        """Put a volume into the group."""
        self.user.request('PUT', '/groups/' + self.group_id, {
            'group': {'add_volumes': volume_id}})
        wait.until(lambda: self.user.volume(volume_id)['group_id'] ==
                   self.group_id, 'the volume to be in the group', 60)
        self.until('group', self.group_id, 'available')

    def remove(self, volume_id):
        """Take a volume out of the group."""
        self.user.request('PUT', '/groups/' + self.group_id, {
            'group': {'remove_volumes': volume_id}})
        wait.until(lambda: not self.user.volume(volume_id)['group_id'],
                   'the volume to be out of the group', 60)
        self.until('group', self.group_id, 'available')

    def change(self, at):
        """Write to both volumes; returns their checksums, sorted."""
        self.write(self.node, self.path, at, 'moving')
        with self.attached(self.resting, self.node) as path:
            self.write(self.node, path, at, 'resting')
            return sorted([self.checksum(self.node, path),
                           self.checksum(self.node, self.path)])

    def content(self, group_id):
        """Return the checksums of a group's volumes, sorted."""
        sums = []
        for volume in self.volumes(group_id):
            with self.attached(volume['id'], self.node) as path:
                sums.append(self.checksum(self.node, path))
        return sorted(sums)

    @slow
    def test_snapshot_and_groups_while_a_member_hydrates(self):
        with self.slow_network(self.node):
            self.path = user_module.path(self.user.attach(self.moving,
                                                          self.node))
            self.add(self.moving)
            at_snapshot = self.change(20)
            snapshot_id = self.make('group_snapshot', '/group_snapshots', {
                'group_snapshot': {'name': 'scenario',
                                   'group_id': self.group_id}})
            now = self.change(30)
            self.assertNotEqual(at_snapshot, now)
            from_snapshot = self.make('group', '/groups/action', {
                'create-from-src': {'name': 'from a snapshot',
                                    'group_snapshot_id': snapshot_id}})
            # Cinder copies no group with a volume in use.
            self.user.detach_all(self.moving)
            self.user.settled(self.moving, 'available')
            from_group = self.make('group', '/groups/action', {
                'create-from-src': {'name': 'from a group',
                                    'source_group_id': self.group_id}})
            self.assertIn('clone', self.clone_status(self.node, self.path))
        self.assertEqual(at_snapshot, self.content(from_snapshot))
        self.assertEqual(now, self.content(from_group))
        # Volumes still read it: its space follows.
        self.end('group_snapshot', snapshot_id)
        for volume in (*self.volumes(from_snapshot),
                       *self.volumes(from_group), {'id': self.moving}):
            self.hydrated(volume['id'], timeout=240)
        self.assertEqual(at_snapshot, self.content(from_snapshot))
        self.assertIn(self.checksum(self.node, self.path), now)

    @slow
    def test_from_a_snapshot_that_stayed(self):
        """A member has left the group, and its snapshot on this node."""
        self.path = user_module.path(self.user.attach(self.moving, self.node))
        self.hydrated(self.moving)
        self.add(self.moving)
        at_snapshot = self.change(20)
        snapshot_id = self.make('group_snapshot', '/group_snapshots', {
            'group_snapshot': {'name': 'scenario',
                               'group_id': self.group_id}})
        self.assertNotEqual(at_snapshot, self.change(30))
        self.user.detach_all(self.moving)
        self.user.settled(self.moving, 'available')
        self.remove(self.moving)
        with self.attached(self.moving, self.old) as path:
            with self.writing(self.old, path, self.moving) as writer:
                self.hydrated(self.moving)
                self.assertIs(self.old, self.home(self.moving))
                made = self.make('group', '/groups/action', {
                    'create-from-src': {'name': 'from a snapshot',
                                        'group_snapshot_id': snapshot_id}})
                self.assertEqual(at_snapshot, self.content(made))
                writer.goes_on()
            self.compare(self.old, path, self.moving, writer.last, mib=0)
        for volume in self.volumes(made):
            self.hydrated(volume['id'], timeout=240)
        self.assertEqual(at_snapshot, self.content(made))

    def test_member_stays_on_its_node(self):
        with self.assertRaises(user_module.ApiError) as refused:
            self.user.attach(self.resting, self.old)
        self.assertIn('in group ' + self.group_id, refused.exception.text)
        self.user.detach_all(self.resting)
        self.user.settled(self.resting, 'available')
        self.assertEqual(self.node, self.home(self.resting))
