# SPDX-License-Identifier: Apache-2.0
"""The guest of a server: a small Debian kernel, and a writer.

The writer finds every Cinder volume of its server by the serial number that
Nova gives the disk. It writes numbered records to the volume until the volume
is detached. See templates/guest-writer.
"""

import shutil

from lab import apt
from lab import command
from lab import paths

FOLDER = paths.CACHE / 'guest'
KERNEL = FOLDER / 'kernel'
INITRD = FOLDER / 'initrd'
# For a quick boot, and a console that has only the writer's lines.
COMMAND_LINE = ('console=ttyS0 quiet loglevel=1 no_timer_check '
                'mitigations=off random.trust_cpu=on panic=5')
_PACKAGES = ['meta:linux-image-cloud-amd64', 'busybox-static', 'perl-base',
             'libc6', 'libcrypt1']
# In the order in which they are loaded.
_MODULES = ['virtio', 'virtio_ring', 'virtio_pci_legacy_dev',
            'virtio_pci_modern_dev', 'virtio_pci', 'virtio_blk']
_LIBRARIES = ['ld-linux-x86-64.so.2', 'libc.so.6', 'libm.so.6',
              'libcrypt.so.1']
_TEMPLATES = [paths.TEMPLATES / name for name in ('guest-init',
                                                  'guest-writer')]


def inputs():
    """Return the guest's inputs, for the key of the cache."""
    return [*_PACKAGES, *_MODULES, *(t.read_text() for t in _TEMPLATES)]


def build(target):
    """Build kernel and initial RAM disk in the folder target."""
    source = target / 'debian'
    apt.unpack(apt.codename(), _PACKAGES, source)
    root = target / 'root'
    for name in ('bin', 'dev', 'lib64', 'modules', 'proc', 'sys'):
        (root / name).mkdir(parents=True)
    shutil.copy(_found(source, 'busybox'), root / 'bin')
    shutil.copy(_found(source, 'perl'), root / 'bin')
    for name in _LIBRARIES:
        shutil.copy(_found(source, name), root / 'lib64' / name)
    for number, name in enumerate(_MODULES):
        shutil.copy(_found(source, name + '.ko'),
                    root / 'modules' / ('%d.ko' % number))
    for template, name in zip(_TEMPLATES, ('init', 'bin/writer')):
        shutil.copy(template, root / name)
        (root / name).chmod(0o755)
    command.run(['sh', '-c', ('find . | cpio --quiet -o -H newc | '
                              'gzip -9 > ../initrd')], cwd=root)
    shutil.copy(_found(source, 'vmlinuz-*'), target / 'kernel')
    shutil.rmtree(root)
    shutil.rmtree(source)


def _found(folder, pattern):
    return next(path for path in sorted(folder.rglob(pattern))
                if path.is_file())
