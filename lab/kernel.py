# SPDX-License-Identifier: Apache-2.0
"""The kernels of the nodes: Debian's packages of User Mode Linux.

The kernel of Debian unstable is twice as fast and never hung, but needs a
newer C library than this machine has: its binary is patched to use the
library that is unpacked with it.
"""

import os
import pathlib

from lab import apt
from lab import command
from lab import errors
from lab import paths

DEFAULT = 'unstable'
KINDS = {'unstable': 'unstable', '6.1': None}
# The version is not pinned: 7.2 and later are all called 'unstable'.
PACKAGES = ['user-mode-linux', 'libc6']
#: The variable with a folder of modules (*.ko), which replace those of the
#: nodes' kernel. Without it nothing is replaced.
MODULES = 'DMCLONE_LAB_MODULES'


def folder(kind):
    return paths.CACHE / ('kernel-' + kind)


def binary(kind):
    return folder(kind) / 'linux'


def modules(kind):
    """Return the folder of modules, named after the kernel's version."""
    return next((folder(kind) / 'usr/lib/uml/modules').iterdir())


def replacements(kind):
    """Return the paths of the modules that replace those of a kernel.

    :raises LabError: if there is one that cannot: nodes must not run with
        others than it seems
    """
    folder = os.environ.get(MODULES)
    if not folder:
        return []
    found = sorted(pathlib.Path(folder).glob('*.ko'))
    if not found:
        raise errors.LabError('%s: %s has no module (*.ko)' % (MODULES,
                                                               folder))
    for path in found:
        if not list(modules(kind).rglob(path.name)):
            raise errors.LabError("%s: the nodes' kernel has no module %s" % (
                MODULES, path.name))
        version = command.run(['modinfo', '-F', 'vermagic', path]).split()[0]
        if version != modules(kind).name:
            raise errors.LabError('%s: %s is for Linux %s, and the nodes have '
                                  '%s' % (MODULES, path, version,
                                          modules(kind).name))
    return found


def build(kind, target):
    """Download a kernel into the folder target, and patch its binary."""
    suite = KINDS[kind] or apt.codename()
    apt.unpack(suite, PACKAGES, target)
    linux = target / 'linux'
    (target / 'usr/bin/linux.uml').rename(linux)
    loader = next(target.glob('**/ld-linux-x86-64.so.2'))
    # The final path: the folder is renamed after this function.
    library = folder(kind) / pathlib.Path(loader).parent.relative_to(target)
    command.run(['patchelf', '--set-interpreter', library / loader.name,
                 '--set-rpath', library, linux])
