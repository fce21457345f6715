# SPDX-License-Identifier: Apache-2.0
"""The module dm-clone with the patch of contrib/linux, for the nodes' kernel.

It is built from Debian's sources of that kernel's version, with the kernel's
configuration and the compiler that this names. Debian may have newer sources
than those of the kernel, whose structures may differ. So the module is built
without the patch first, and its machine code has to be that of the kernel's
own module.
"""

import argparse
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from lab import apt
from lab import command
from lab import errors
from lab import kernel
from lab import paths
from lab import setup

KIND = kernel.DEFAULT
PATCH = (paths.CHECKOUT / 'contrib/linux' /
         '0001-dm-clone-add-a-message-to-hydrate-under-load.patch')
MODULE = 'drivers/md/dm-clone.ko'
_PACKAGES = ['make', 'flex', 'bison', 'bc', 'kmod', 'libc6-dev', 'libelf-dev',
             'patch', 'python3-minimal', 'xz-utils']
_SCRIPT = """\
cd /build
mkdir source
tar -xf /usr/src/linux-source-%(source)s.tar.xz -C source --strip-components=1
cd source
sed -i 's/^SUBLEVEL = .*/SUBLEVEL = %(sublevel)s/' Makefile
cp ../config .config
build() {
    make -j%(jobs)d ARCH=um CC=%(compiler)s HOSTCC=%(compiler)s \\
        KBUILD_MODPOST_WARN=1 "$@"
}
code() { objdump -dr --no-show-raw-insn "$1" | tail -n +4; }
build olddefconfig
build modules_prepare
build %(module)s
code %(module)s > ../code
code ../theirs.ko > ../theirs
cmp ../code ../theirs
patch -p1 < ../patch
build %(module)s
cp %(module)s ..
"""


def _prepare(work):
    """Write what the build needs into a folder; return its packages."""
    folder = kernel.folder(KIND)
    with gzip.open(folder / 'usr/share/doc/user-mode-linux/config.gz',
                   'rt') as stream:
        config = stream.read()
    compiler = 'gcc-%d' % (int(re.search(
        r'^CONFIG_GCC_VERSION=(\d+)$', config, re.MULTILINE)[1]) // 10000)
    source, _, sublevel = kernel.modules(KIND).name.rpartition('.')
    work.mkdir()
    (work / 'config').write_text(config)
    (work / 'patch').write_bytes(PATCH.read_bytes())
    (work / 'theirs.ko').write_bytes(
        (kernel.modules(KIND) / 'kernel' / MODULE).read_bytes())
    (work / 'run').write_text(_SCRIPT % {
        'source': source, 'sublevel': sublevel, 'compiler': compiler,
        'module': MODULE, 'jobs': len(os.sched_getaffinity(0))})
    return [compiler, 'linux-source-' + source, *_PACKAGES]


def _expired():
    """Return how this machine's apt handles an archive that is old."""
    out = command.run(['apt-config', 'shell', 'x',
                       'Acquire::Check-Valid-Until'])
    value = out.strip().partition('=')[2].strip("'")
    return ['--aptopt=Acquire::Check-Valid-Until "%s"' % value] \
        if value else []


def build(out):
    """Build the module into a folder.

    :raises LabError: if that fails, or if the sources are too different
    """
    setup.run(bare=True)
    setup.packages(['mmdebstrap'])
    out = pathlib.Path(out).absolute()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary, 'build')
        packages = _prepare(work)
        done = subprocess.run(
            ['mmdebstrap', '--mode=root', '--variant=apt', '--format=null',
             *_expired(), '--include=' + ','.join(packages),
             '--customize-hook=copy-in %s /' % work,
             '--customize-hook=chroot "$1" bash -ex /build/run',
             '--customize-hook=copy-out /build/%s %s' % (
                 pathlib.Path(MODULE).name, temporary),
             kernel.KINDS[KIND], '/dev/null', '-'],
            input='\n'.join(apt.lines_of(kernel.KINDS[KIND])), text=True)
        if done.returncode:
            raise errors.LabError('the module could not be built')
        out.mkdir(parents=True, exist_ok=True)
        built = pathlib.Path(temporary, pathlib.Path(MODULE).name)
        (out / built.name).write_bytes(built.read_bytes())


def main():
    parser = argparse.ArgumentParser(
        prog='contrib/linux/build-for-lab', description='Build dm-clone with '
        "the patch for the kernel of the laboratory's nodes. Needs root, 3 "
        'GiB of disk space for a while, and some ten minutes.')
    parser.add_argument('folder', help='for the module; the laboratory uses '
                        'it with %s=FOLDER' % kernel.MODULES)
    try:
        build(parser.parse_args().folder)
    except errors.LabError as e:
        print('build-for-lab: %s' % e, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
