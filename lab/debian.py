# SPDX-License-Identifier: Apache-2.0
"""Debian packages of the driver, built and tried in a clean Debian.

The oldest Debian that has the needed Cinder and setuptools is 13, whatever
this machine is. mmdebstrap makes its root, from this machine's mirror.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lab import apt
from lab import command
from lab import errors
from lab import paths
from lab import setup

SUITE = 'trixie'
_NAME = 'dmclone-driver'
#: Of the newest entry of debian/changelog.
_VERSION = re.compile(r'(?<=^%s \()[^-]+(?=-)' % _NAME)
#: Builds each source in a folder of /build, and checks the newest package.
_SCRIPT = """\
cd /build
export DEBIAN_FRONTEND=noninteractive
apt-get build-dep -y -q --no-install-recommends ./*/%(name)s-*/
for source in */%(name)s-*/; do
    (cd "$source" && dpkg-buildpackage -us -uc)
done
found=$(lintian --allow-root --display-info --fail-on none %(new)s/*.changes)
test -z "$found" || { echo "$found"; exit 1; }
"""


def version():
    """Return the version of the driver's newest package."""
    changelog = (paths.CHECKOUT / 'debian/changelog').read_text()
    return _VERSION.search(changelog).group()


def _prepare(folder, wanted):
    """Make the source of a version from the checkout."""
    ignored = [line.strip('/') for line in (
        paths.CHECKOUT / '.gitignore').read_text().splitlines()
        if line[0] not in '#!']
    source = folder / ('%s-%s' % (_NAME, wanted))
    shutil.copytree(paths.CHECKOUT, source, symlinks=True,
                    ignore=shutil.ignore_patterns('.git', *ignored))
    changelog = source / 'debian/changelog'
    changelog.write_text(_VERSION.sub(wanted, changelog.read_text(), 1))
    command.run(['tar', '-C', folder, '--exclude=%s/debian' % source.name,
                 '-cJf', folder / ('%s_%s.orig.tar.xz' % (_NAME, wanted)),
                 source.name], timeout=300)


def _mmdebstrap(*arguments):
    """Make the root of a clean Debian; print what it does.

    :raises LabError: if it fails
    """
    setup.packages(['mmdebstrap'])
    done = subprocess.run(
        ['mmdebstrap', '--mode=root', '--variant=apt', *map(str, arguments),
         '-'], input='\n'.join(apt.lines_of(SUITE)), text=True)
    if done.returncode:
        raise errors.LabError('mmdebstrap failed')


def build(out, versions):
    """Build packages, and check the last one with lintian.

    :param out: folder for a folder per version
    :param versions: of the checkout's content, which stays the same
    :raises LabError: if anything fails
    """
    out = pathlib.Path(out).absolute()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary, 'build')
        for wanted in versions:
            _prepare(work / wanted, wanted)
        (work / 'run').write_text(_SCRIPT % {'name': _NAME,
                                             'new': versions[-1]})
        _mmdebstrap('--format=null', '--include=build-essential,lintian',
                    '--customize-hook=copy-in %s /' % work,
                    '--customize-hook=chroot "$1" sh -ex /build/run',
                    '--customize-hook=copy-out /build %s' % temporary,
                    SUITE, '/dev/null')
        for wanted in versions:
            (out / wanted).mkdir(parents=True, exist_ok=True)
            for path in (work / wanted).iterdir():
                if path.is_file():
                    shutil.copy(path, out / wanted)


def make_root(folder, packages):
    """Make a root with some packages, for :func:`run_in`."""
    _mmdebstrap('--format=directory', '--include=' + ','.join(packages),
                SUITE, folder)


def run_in(root, *argv):
    """Run a program in a root, without any daemon.

    :returns: exit code and output
    """
    done = subprocess.run(
        ['unshare', '--mount', '--pid', '--fork', '--kill-child',
         '--root=%s' % root, '--mount-proc', '--wd=/', *map(str, argv)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=900,
        env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': '/root',
             'LC_ALL': 'C.UTF-8', 'DEBIAN_FRONTEND': 'noninteractive'})
    return done.returncode, done.stdout


def main():
    parser = argparse.ArgumentParser(prog='tools/debian-package', description=(
        'Build the Debian package of this checkout for Debian 13, as root. '
        'Missing programs are installed first.'))
    parser.add_argument('out', nargs='?', default='dist',
                        help='folder for the packages (dist)')
    out = parser.parse_args().out
    try:
        build(out, [version()])
    except errors.LabError as error:
        return str(error)
    print('built: %s/%s' % (out, version()))
    return 0


if __name__ == '__main__':
    sys.exit(main())
