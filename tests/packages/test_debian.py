# SPDX-License-Identifier: Apache-2.0
"""The Debian package, with the Cinder of Debian 13, in a root of its own.

No service runs there, and no kernel with dm-clone is needed. tests/installed
has the services. Its packages are kept in the folder DMCLONE_PACKAGES.
"""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

from lab import debian
from lab import paths

NAME = 'python3-dmclone-driver'
#: Built in the same way, to upgrade from.
OLD = os.environ.get('DMCLONE_OLD_VERSION') or '0.0.9'
#: What dpkg, apt and the triggers of other packages record of any package,
#: and modules that Python has compiled.
VOLATILE = re.compile(
    r'/(dev|proc|run|sys|tmp|var/(cache|log|lib/(apt|dpkg))|root)(/|$)'
    r'|.*/__pycache__(/|$)')


class DebianTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = pathlib.Path(tempfile.mkdtemp(dir='/var/tmp'))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        cls.new = debian.version()
        cls.packages = pathlib.Path(
            os.environ.get('DMCLONE_PACKAGES') or cls.work)
        debian.build(cls.packages, [OLD, cls.new])
        cls.root = cls.work / 'root'
        debian.make_root(cls.root, [
            'cinder-volume', 'kmod', 'open-iscsi', 'sudo', 'systemd', 'tgt',
            'udev'])
        # All that the package depends on is there, so that what appears and
        # goes is of the package.
        cls.before = cls.files()

    @classmethod
    def files(cls):
        """Return the paths of the root, except for volatile ones."""
        names = ('/%s' % path.relative_to(cls.root)
                 for path in cls.root.rglob('*'))
        return {name for name in names if not VOLATILE.match(name)}

    def run_in(self, *argv):
        code, out = debian.run_in(self.root, *argv)
        self.assertEqual(0, code, out)
        return out

    def install(self, version):
        package, = (self.packages / version).glob('*_all.deb')
        shutil.copy(package, self.root / 'var/tmp')
        self.addCleanup((self.root / 'var/tmp' / package.name).unlink,
                        missing_ok=True)
        self.run_in('dpkg', '-i', '/var/tmp/' + package.name)
        (self.root / 'var/tmp' / package.name).unlink()

    def installed(self):
        return self.run_in('dpkg-query', '-W', '-f',
                           '${Version} ${db:Status-Status}', NAME)

    def tearDown(self):
        debian.run_in(self.root, 'dpkg', '--purge', NAME)
        super().tearDown()

    def test_install_and_use(self):
        self.install(self.new)
        shutil.copy(paths.CHECKOUT / 'debian/tests/commands',
                    self.root / 'var/tmp/commands')
        self.addCleanup((self.root / 'var/tmp/commands').unlink)
        self.assertIn('LVM version', self.run_in('/var/tmp/commands'))

    def test_upgrade(self):
        self.install(OLD)
        edited = self.root / 'etc/multipath/conf.d/dmclone.conf'
        edited.write_text(edited.read_text() + '# by the operator\n')
        old = self.files()
        self.install(self.new)
        self.assertEqual('%s-1 installed' % self.new, self.installed())
        self.assertIn('# by the operator', edited.read_text())
        self.assertEqual(
            {name.replace(OLD, self.new) for name in old}, self.files())

    def test_remove_and_purge(self):
        self.install(self.new)
        there = self.files()
        self.assertGreater(len(there - self.before), 50)
        self.run_in('dpkg', '--remove', NAME)
        # Files in /etc are the operator's until the package is purged.
        self.assertEqual(
            {'/etc/cinder/rootwrap.d/dmclone.filters',
             '/etc/multipath/conf.d/dmclone.conf'},
            {name for name in self.files() - self.before
             if (self.root / name[1:]).is_file()})
        self.run_in('dpkg', '--purge', NAME)
        self.assertEqual(set(), self.files() ^ self.before)
        self.assertEqual([], [
            path for path in self.root.rglob('*dmclone*')
            if not str(path).startswith(str(self.root / 'proc'))])
