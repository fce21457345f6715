# SPDX-License-Identifier: Apache-2.0
"""The kernels of the nodes: User Mode Linux, as Debian packages it.

The one of Debian unstable is twice as fast and never hung, but needs a newer
C library than this machine has: the binary is taught to use its own.
"""

import pathlib

from lab import apt
from lab import command
from lab import paths

DEFAULT = 'unstable'
KINDS = {'unstable': 'unstable', '6.1': None}
# With unpinned kernels in one cache, 7.2 and later are all 'unstable'.
PACKAGES = ['user-mode-linux', 'libc6']


def folder(kind):
    return paths.CACHE / ('kernel-' + kind)


def binary(kind):
    return folder(kind) / 'linux'


def modules(kind):
    """The folder of modules, named after the kernel's version."""
    return next((folder(kind) / 'usr/lib/uml/modules').iterdir())


def build(kind, target):
    """Fetch a kernel and make it run here, in the folder target."""
    suite = KINDS[kind] or apt.codename()
    apt.unpack(suite, PACKAGES, target)
    linux = target / 'linux'
    (target / 'usr/bin/linux.uml').rename(linux)
    loader = next(target.glob('**/ld-linux-x86-64.so.2'))
    # The paths must hold after the folder got its final name.
    library = folder(kind) / pathlib.Path(loader).parent.relative_to(target)
    command.run(['patchelf', '--set-interpreter', library / loader.name,
                 '--set-rpath', library, linux])
