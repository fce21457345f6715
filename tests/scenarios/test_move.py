# SPDX-License-Identifier: Apache-2.0
"""Moves of a volume by attaching it on another node."""

from lab.common import leftovers
from lab.common import user as user_module
from lab import wait
from tests.scenarios.lib import base
from tests.scenarios.lib.marks import slow

_SIGNATURES = """
for d in /sys/block/sd*; do
    blkid --probe /dev/${d##*/} || test $? = 2
done
ls -l /dev/disk/by-uuid 2>/dev/null | grep -e sd -e dm- || true
"""
_STRANGER = """
iscsiadm -m iface -I stranger --op new
iscsiadm -m iface -I stranger --op update -n iface.initiatorname \\
    -v iqn.2026-01.org.example:stranger
{node} --op new
for setting in authmethod=CHAP username={user} password={password}; do
    {node} --op update -n node.session.auth.${{setting%%=*}} \\
        -v ${{setting#*=}}
done
{node} --op update -n node.session.initial_login_retry_max -v 1
{node} --login; code=$?
{node} --logout
{node} --op delete
iscsiadm -m iface -I stranger --op delete
[ $code = 19 ] || [ $code = 24 ]     # of tgt and of LIO: "login failure"
"""


class MoveTest(base.E2ETest):
    """Attach at home, attach away, and there and back."""

    def test_attach_at_home_exports_nothing(self):
        volume_id, home, checksum = self.filled_volume()
        attachment = self.user.attach(volume_id, home)
        self.assertEqual('local',
                         attachment['connection_info']['driver_volume_type'])
        self.assertEqual('', home.run(
            'tgtadm --op show --mode target; ls '
            '/sys/kernel/config/target/iscsi 2>/dev/null | grep ^iqn || '
            'true'))
        self.assertEqual(checksum, self.checksum(
            home, user_module.path(attachment)))

    def test_attach_away(self):
        volume_id, home, checksum = self.filled_volume(mib=1024)
        other = self.other(home)
        with self.attached(volume_id, other) as path:
            self.assertEqual(other, self.home(volume_id))
            self.assertEqual(checksum, self.checksum(other, path, 1024))
            expected = self.checksum_with(other, path, 50, 'moved', 1024)
            self.write(other, path, 50, 'moved')
            self.hydrated(volume_id)
            self.assertIn('linear', self.clone_status(other, path))
            self.assertEqual(expected, self.checksum(other, path, 1024))
        self.assertEqual([], leftovers.volumes(home))

    @slow
    def test_there_and_back_while_the_first_source_exists(self):
        volume_id, home, checksum = self.filled_volume()
        other = self.other(home)
        with self.slow_network(other):
            with self.attached(volume_id, other) as path:
                expected = self.checksum_with(other, path, 20, 'there')
                self.write(other, path, 20, 'there')
                # A boot does not wait for the source.
                self.assertEqual('node.startup = manual', other.run(
                    'iscsiadm -m node -o show | grep ^node.startup').strip())
            with self.attached(volume_id, home) as path:
                self.assertEqual(2, len(self.placeholders(volume_id)))
                self.assertEqual(expected, self.checksum(home, path))
                expected = self.checksum_with(home, path, 40, 'back')
                self.write(home, path, 40, 'back')
                self.assertEqual(expected, self.checksum(home, path))
        with self.attached(volume_id, other) as path:
            self.assertEqual(expected, self.checksum(other, path))
            self.hydrated(volume_id, timeout=240)
            self.assertEqual(expected, self.checksum(other, path))

    @slow
    def test_migration_by_the_api(self):
        """Cinder copies nothing; it may be migrated before it is complete."""
        volume_id, home, checksum = self.filled_volume(mib=1024)
        other = self.other(home)
        with self.slow_network(other):
            for node in other, home:
                self.migrate(volume_id, node)
                self.has_migrated(volume_id, node)
                self.assertNotEqual([], self.placeholders(volume_id))
        with self.attached(volume_id, other) as path:
            self.assertEqual(checksum, self.checksum(other, path, 1024))
            self.hydrated(volume_id)
            self.migrate(volume_id, home)
            wait.until(lambda: self.migration_status(volume_id) == 'error',
                       'the refusal', 60)
            self.assertEqual([], self.placeholders(volume_id))
            self.assertEqual(checksum, self.checksum(other, path, 1024))
        self.assertEqual([], leftovers.volumes(home))

    def migrate(self, volume_id, node):
        self.user.as_admin('POST', '/volumes/%s/action' % volume_id, {
            'os-migrate_volume': {'host': node.name + '@dmclone#dmclone'}})

    def has_migrated(self, volume_id, node):
        wait.until(lambda: self.home(volume_id) is node, 'the migration', 60)
        self.assertEqual('success', self.migration_status(volume_id))

    def migration_status(self, volume_id):
        return self.user.as_admin('GET', '/volumes/' + volume_id)['volume'][
            'os-vol-mig-status-attr:migstat']

    def test_others_see_nothing_of_a_move(self):
        """The placeholder, signatures and the source are hidden."""
        volume_id, home, checksum = self.filled_volume(whole=True)
        other = self.other(home)
        with self.attached(volume_id, home) as path:
            home.run('mkswap ' + path)
        with self.slow_network(other), self.attached(volume_id, other) as path:
            placeholder, = self.placeholders(volume_id)
            listed = self.user.request('GET', '/volumes')['volumes']
            self.assertEqual([volume_id], [v['id'] for v in listed])
            self.assertIn('swap', other.run('blkid --probe ' + path))
            self.assertEqual('', other.run(_SIGNATURES))
            self._cannot_log_in(home, placeholder)
        self.hydrated(volume_id)

    def _cannot_log_in(self, node, placeholder):
        """Check that another initiator with the password is refused."""
        (location, auth), = self.lab.sql(
            "SELECT provider_location, provider_auth FROM volumes "
            "WHERE id = '%s'" % placeholder)
        portal, iqn, lun = location.split()
        method, user, password = auth.split()
        node.run(_STRANGER.format(
            node='iscsiadm -m node -I stranger -T %s -p %s' % (
                iqn, portal.partition(',')[0]), user=user, password=password))
