# SPDX-License-Identifier: Apache-2.0
"""Valid and invalid configurations of a backend."""

import contextlib

from lab.bench import remote_disk
from lab.common import pools
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import named
from tests.scenarios.lib.marks import slow

REFUSALS = (
    ({'dmclone': {'volume_group': 'nowhere'}},
     'Option volume_group = nowhere'),
    ({'dmclone': {'dmclone_metadata_volume_group': 'nowhere'}},
     'Option dmclone_metadata_volume_group = nowhere'),
    ({'dmclone': {'target_helper': 'scstadmin'}},
     'Option target_helper = scstadmin'),
    ({'DEFAULT': {'volume_name_template': 'cinder-%s'}},
     'Option volume_name_template = cinder-%s'),
    # A refusal by Cinder itself.
    ({'DEFAULT': {'cluster': 'all'}}, 'Active-Active configuration is not'))


class SetupTest(base.SetupTest):
    """A backend's options, and its messages about them."""

    def _wait_for_line(self, node, seen, text):
        wait.until(lambda: text in node.log('cinder-volume')[seen:],
                   '%r in the log of %s' % (text, node.name), 90,
                   log=lambda: node.log('cinder-volume')[seen:][-2000:])

    def _refused(self, node, changes, *lines):
        """Start a service, and wait for lines in its log."""
        seen = len(node.log('cinder-volume'))
        node.configure(changes)
        node.start_service('cinder-volume')
        for line in lines:
            self._wait_for_line(node, seen, line)
        node.kill('cinder-volume')

    @contextlib.contextmanager
    def _stopped(self, node):
        """Stop a node's service; start it with its old options at the end."""
        node.stop('cinder-volume')
        try:
            yield
        finally:
            node.kill('cinder-volume')
            node.configure({})
            node.start_service('cinder-volume')
            node.wait_ready()

    @slow
    def test_wrong_configuration_is_named_at_start(self):
        node = self.lab.node('node1')
        with self._stopped(node):
            for changes, text in REFUSALS:
                changes = dict(changes)
                changes['DEFAULT'] = dict(changes.get('DEFAULT', {}),
                                          reinit_driver_count='0')
                self._refused(node, changes, text)

    @slow
    def test_two_backends_of_the_driver_are_refused(self):
        """A backend with another driver starts."""
        node = self.lab.node('node1')
        backend = {
            'volume_driver': 'dmclone_driver.driver.DMCloneVolumeDriver',
            'volume_group': 'cinder-metadata', 'lvm_type': 'default'}
        other = dict(backend, volume_driver='cinder.volume.drivers.lvm.'
                     'LVMVolumeDriver')
        with self._stopped(node):
            self._refused(node, {
                'DEFAULT': {'enabled_backends': 'dmclone,second,lvm',
                            'reinit_driver_count': '0'},
                'second': backend, 'lvm': other},
                '[dmclone] and [second] both use this driver',
                '[second] and [dmclone] both use this driver',
                'Starting volume driver LVMVolumeDriver',
                'Driver post RPC initialization completed successfully')
        self.lab.sql("UPDATE services SET deleted = 1 WHERE host LIKE "
                     "'%@second' OR host LIKE '%@lvm'")

    @slow
    def test_kernel_without_dm_clone_is_named_at_start(self):
        node = self.lab.node('node1')
        node.stop('cinder-volume')
        node.run('modprobe -r dm-clone; '
                 'echo "install dm-clone /bin/false" > '
                 '/etc/modprobe.d/no-clone.conf')
        try:
            seen = len(node.log('cinder-volume'))
            node.start_service('cinder-volume')
            self._wait_for_line(node, seen, 'this kernel has no dm-clone')
        finally:
            node.kill('cinder-volume')
            node.run('rm /etc/modprobe.d/no-clone.conf')
            node.start_service('cinder-volume')
            node.wait_ready()

    @slow
    def test_lio_under_native_threads(self):
        nodes = list(self.lab.nodes.values())
        for node in nodes:
            node.stop('tgtd')
            node.start_service('lio')
        try:
            with self.configured({'target_helper': 'lioadm'}, *nodes,
                                 mode='threads'):
                for node in nodes:
                    # The threading of its services.
                    self.assertIn('MODE="threads"',
                                  node.run('cat /lab/node.env'))
                volume_id, home, checksum = self.filled_volume()
                other = self.other(home)
                with self.slow_network(other, mbit=200):
                    attachment = self.user.attach(volume_id, other)
                    path = user_module.path(attachment)
                    source = home.run('ls /dev/mapper/*-export').strip()
                    self.assertEqual('1', home.run(
                        'blockdev --getro ' + source).strip())
                    other.run('test "$(cat /sys/block/sd*/ro)" = 1')
                    expected = self.checksum_with(other, path, 9, 'lio')
                    self.write(other, path, 9, 'lio')
                self.hydrated(volume_id)
                self.assertEqual(expected, self.checksum(other, path))
                self.user.detach(attachment['id'])
                self.user.settled(volume_id, 'available')
                self.user.delete_volume(volume_id)
                self.nothing_left()
        finally:
            for node in nodes:
                node.stop('lio')
                node.start_service('tgtd')

    @named
    def test_remote_attach_where_the_operator_allows_it(self):
        volume_id, home, checksum = self.filled_volume()
        stranger = self.other(home)
        connector = self.user.connector(stranger, host='stranger',
                                        ip='10.77.0.99')
        with self.configured({'dmclone_remote_attach': 'True'}, home):
            attachment = self.user.reserve(volume_id)
            info = self.user.connect(attachment, connector)[
                'connection_info']
            self.assertEqual('iscsi', info['driver_volume_type'])
            self.assertEqual(home, self.home(volume_id))
            self.user.detach(attachment)
            self.user.settled(volume_id, 'available')
        self.assertEqual('', home.run('tgtadm --op show --mode target'))

    @contextlib.contextmanager
    def full(self, node):
        """Have another logical volume fill the group of a node meanwhile."""
        node.run('lvcreate -qq -y -W n -l 100%FREE -n filler cinder-volumes')
        try:
            yield
        finally:
            node.run('lvremove -qq -y cinder-volumes/filler')

    def attach_remotely(self, volume_id, node, instance=None):
        """Attach a volume on a node without room; return the attachment."""
        home = self.home(volume_id)
        attachment = self.user.attach(volume_id, node, instance,
                                      complete=False)
        self.assertEqual('iscsi', attachment['connection_info'][
            'driver_volume_type'])
        self.assertEqual(home, self.home(volume_id))
        self.assertEqual([], self.placeholders(volume_id))
        self.assertEqual('filler', node.run(
            'lvs --noheadings -o lv_name cinder-volumes').strip())
        return attachment

    @slow
    def test_remote_attach_without_room(self):
        """The full node uses it over iSCSI, and the next time locally."""
        volume_id, home, checksum = self.filled_volume()
        node = self.other(home)
        with self.configured({'dmclone_remote_attach_without_room': 'True'},
                             home):
            with self.full(node):
                attachment = self.attach_remotely(volume_id, node)
                with remote_disk.volume(
                        node, attachment['connection_info']) as path:
                    self.user.complete(attachment['id'])
                    self.assertEqual(checksum, self.checksum(node, path))
                    expected = self.checksum_with(node, path, 20, 'remote')
                    self.write(node, path, 20, 'remote')
                    self.assertEqual(expected, self.checksum(node, path))
                    # The same session goes on after a boot of the home.
                    home.cut_power()
                    home.start()
                    home.wait_ready()
                    self.assertEqual(expected, self.checksum(node, path))
                self.user.detach(attachment['id'])
                self.user.settled(volume_id, 'available')
            self.assertEqual('', home.run(
                'tgtadm --op show --mode target'))
            with self.attached(volume_id, node) as path:
                self.assertEqual(node, self.home(volume_id))
                self.assertEqual(expected, self.checksum(node, path))
                self.hydrated(volume_id)
                self.assertEqual(expected, self.checksum(node, path))
        self.end_volume(volume_id)
        self.nothing_left()

    @slow
    def test_way_home_of_a_remote_attachment(self):
        """It is told that there is room; the way leads over its home."""
        volume_id, home, checksum = self.filled_volume()
        node, instance = self.other(home), user_module.uuid4()
        with self.configured({'dmclone_remote_attach_without_room': 'True'},
                             home):
            with self.full(node):
                first = self.attach_remotely(volume_id, node, instance)
            with remote_disk.volume(node, first['connection_info']) as path:
                self.user.complete(first['id'])
                self.assertEqual(checksum, self.checksum(node, path))
                expected = self.checksum_with(node, path, 20, 'remote')
                self.write(node, path, 20, 'remote')
                # Statistics each minute, and a look each five minutes.
                wait.until(lambda: 'There is room now' in ' '.join(
                    self.command(node, 'dmclone', 'show', volume_id)[1]),
                    'the room to be found', 480)
                self.assertNotEqual([], self.user.messages(volume_id))
                second = self.user.attach(volume_id, home, instance)
                path = user_module.path(second)
                self.assertEqual(expected, self.checksum(home, path))
                expected = self.checksum_with(home, path, 30, 'home')
                self.write(home, path, 30, 'home')
            self.user.detach(first['id'])
            self.assertEqual('', home.run(
                'tgtadm --op show --mode target'))
            third = self.user.attach(volume_id, node, instance)
            self.user.detach(second['id'])
            self.hydrated(volume_id)
            self.assertEqual(node, self.home(volume_id))
            self.assertEqual(expected, self.checksum(
                node, user_module.path(third)))
        self.end_volume(volume_id)
        self.nothing_left()

    @slow
    def test_idle_volumes_cost_nothing(self):
        for _number in range(3):
            home = self.home(self.user.create_volume()['id'])
        home.run('sleep 5')
        seen = len(home.log('cinder-volume'))
        # Three looks of the watcher, one each 10 s.
        home.run('sleep 30', timeout=45)
        self.assertEqual([], [
            line for line in home.log('cinder-volume')[seen:].splitlines()
            if 'Running cmd' in line and 'dmsetup' in line])

    def test_capabilities(self):
        admin = user_module.User(self.lab, 'admin')
        found = admin.request(
            'GET', '/scheduler-stats/get_pools?detail=true')['pools']
        self.assertEqual({n + '@dmclone#dmclone' for n in self.lab.nodes},
                         {pool['name'] for pool in found})
        thin = self.lab.settings.thin
        for pool in found:
            able = pool['capabilities']
            self.assertFalse(able['multiattach'])
            self.assertFalse(able['online_extend_support'])
            self.assertIs(thin, able['thin_provisioning_support'])
            self.assertIs(not thin, able['thick_provisioning_support'])
            node = self.lab.node(pool['name'].partition('@')[0])
            size = pools.size(node) if thin else int(node.run(
                'vgs --noheadings --nosuffix --units b -o vg_size ' +
                pools.GROUP))
            self.assertAlmostEqual(size / 2 ** 30,
                                   able['total_capacity_gb'], delta=1)

    def test_handles_after_a_reboot(self):
        volume_id, home, checksum = self.filled_volume()
        attachment = self.user.attach(volume_id, home)
        home.cut_power()
        home.start()
        home.wait_ready()
        self.assertEqual(checksum, self.checksum(
            home, user_module.path(attachment)))

    @slow
    def test_metadata_in_another_group(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        options = {'dmclone_metadata_volume_group': 'cinder-metadata',
                   'dmclone_region_size': '4'}
        with self.slow_network(other):
            with (self.configured(options, other),
                  self.attached(volume_id, other) as path):
                self.assertIn('dmclone-metadata', other.run(
                    'lvs --noheadings -o lv_name cinder-metadata'))
                self.assertIn(' 8 ', self.clone_status(other, path))
                self.assertEqual(checksum, self.checksum(other, path))
            # The option has its default again: the running move is not
            # affected.
            with self.attached(volume_id, other) as path:
                self.assertEqual(checksum, self.checksum(other, path))
        self.hydrated(volume_id)


@slow
class BlocksTest(base.SetupTest):
    """Volume groups with logical blocks of 4096 bytes."""

    GROUP = 'large-blocks'

    @contextlib.contextmanager
    def large_blocks(self, *nodes, **options):
        """Use such a volume group on nodes, and remove it at the end."""
        for node in nodes:
            node.run(
                'lvcreate -qq -y -n large -L 3g cinder-metadata && '
                'vgcreate -qq %s $(losetup -b 4096 --find --show '
                '/dev/cinder-metadata/large)' % self.GROUP)
        try:
            with self.configured(dict(options, volume_group=self.GROUP),
                                 *nodes):
                yield
        finally:
            for node in nodes:
                # udev opens a disk that changes, and an open loop device is
                # not detached.
                node.run('vgremove -qq %s && udevadm settle && '
                         'losetup --detach-all && udevadm settle && '
                         'lvremove -qq -y cinder-metadata/large' % self.GROUP)

    @staticmethod
    def block_size(node, path):
        return int(node.run('blockdev --getss ' + path))

    def _follows(self):
        """Move a volume between nodes, and delete it."""
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.slow_network(other, mbit=200):
            path = user_module.path(self.user.attach(volume_id, other))
            self.assertIn(' clone ', self.clone_status(other, path))
            self.assertEqual(4096, self.block_size(other, path))
            self.assertEqual(4096, self.block_size(
                other, '/dev/disk/by-path/*-iscsi-*'))
            self.assertEqual(checksum, self.checksum(other, path))
            expected = self.checksum_with(other, path, 20, 'large')
            self.write(other, path, 20, 'large')
        self.hydrated(volume_id)
        self.assertEqual(expected, self.checksum(other, path))
        self.end_volume(volume_id)

    def test_tgt(self):
        with self.large_blocks(*self.lab.nodes.values()):
            self._follows()

    def test_lio(self):
        nodes = list(self.lab.nodes.values())
        for node in nodes:
            node.stop('tgtd')
            node.start_service('lio')
        try:
            with self.large_blocks(*nodes, target_helper='lioadm'):
                self._follows()
        finally:
            for node in nodes:
                node.stop('lio')
                node.start_service('tgtd')

    def test_a_node_with_other_blocks(self):
        """The move is refused, and the error names both sizes."""
        with self.large_blocks(self.lab.node('node1')):
            volume_id, home, checksum = self.filled_volume()
            other = self.other(home)
            with self.attached(volume_id, home) as path:
                mine = self.block_size(home, path)
            with self.assertRaises(user_module.ApiError) as refused:
                self.user.attach(volume_id, other)
            there, = {512, 4096} - {mine}
            self.assertIn('blocks have %d bytes on this node and %d on the '
                          'source' % (there, mine), refused.exception.text)
            self.user.detach_all(volume_id)
            self.user.settled(volume_id, 'available')
            with self.attached(volume_id, home) as path:
                self.assertEqual(checksum, self.checksum(home, path))
            self.end_volume(volume_id)
