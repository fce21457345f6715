# SPDX-License-Identifier: Apache-2.0
"""The Debian package's life on nodes whose Cinder is Debian's.

They were brought up with an older version. DMCLONE_PACKAGES names the folder
that lab/debian.py has built both in.
"""

import os
import pathlib
import shutil

from lab import debian
from tests.scenarios.lib import base

NAME = 'python3-dmclone-driver'
#: Prints what the service is: its user, and the package's file and version.
_SERVICE = """
ps -o user= -p "$(cat /run/lab/cinder-volume.pid)"
cd / && python3 -W ignore -c '
import dmclone_driver
print(dmclone_driver.__file__, dmclone_driver.__version__)'
dpkg-query -W -f '${{Version}}\\n' {0}
""".format(NAME)
#: What Cinder's services create, and keep, belongs to Cinder.
_LEFT = ("find / -xdev -name '*dmclone*' ! -path '/var/lib/cinder/*'; "
         'dmsetup ls | grep dmclone; lsmod | grep -e dm_clone; true')
#: Has root create the file of a volume's lock, which cinder-volume needs, too;
#: prints its owner.
_LOCK = ("find /var/lib/cinder -name '*%(id)s*' -delete && "
         'dmclone-reconcile dmclone --remove && '
         "find /var/lib/cinder -name '*%(id)s*' -printf '%%u'")


class InstalledTest(base.E2ETest):

    def assert_installed(self, version):
        """Check that the services of all nodes run that package.

        :param version: of the package, without Debian's revision
        """
        for node in self.lab.nodes.values():
            self.assertEqual(
                ['cinder',
                 '/usr/lib/python3/dist-packages/dmclone_driver/__init__.py '
                 + debian.version(), version + '-1'],
                node.run(_SERVICE).splitlines())


class UpgradeTest(InstalledTest, base.HydratingTest):
    """The older package is replaced while a volume is copied."""

    def test_upgrade(self):
        self.assert_installed(os.environ['DMCLONE_OLD_VERSION'])
        new = debian.version()
        package, = pathlib.Path(os.environ['DMCLONE_PACKAGES'],
                                new).glob('*_all.deb')
        with self.slow_storage_network(self.peer, mbit=20):
            path, expected = self.attach_and_write()
            for node in self.lab.nodes.values():
                shutil.copy(package, node.machine.share / 'newer.deb')
                node.run('dpkg -i /lab/newer.deb', timeout=300)
                node.restart('cinder-volume')
            for node in self.lab.nodes.values():
                node.wait_ready()
            self.assert_installed(new)
            self.assertNotEqual([], self.placeholders(self.volume_id))
            self.assertIn(' clone ', self.peer.run('dmsetup table'))
        self.hydrated(self.volume_id)
        self.assertIn('linear', self.clone_status(self.peer, path))
        self.assertEqual(expected, self.checksum(self.peer, path))


class PurgeTest(InstalledTest):
    """The package is used, then purged; the nodes reboot without it."""

    def test_purge(self):
        self.assert_installed(debian.version())
        volume_id, home, _checksum = self.filled_volume()
        self.user.attach(volume_id, self.other(home))
        self.hydrated(volume_id)
        self.assertEqual('cinder', self.other(home).run(
            _LOCK % {'id': volume_id}, timeout=120).strip())
        self.end_volumes()
        self.nothing_left()
        for node in self.lab.nodes.values():
            node.stop('cinder-volume')
            node.run('dpkg --purge %s && sync' % NAME, timeout=120)
            node.cut_power()
            node.start()
            self.assertEqual('', node.run(_LEFT))
