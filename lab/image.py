# SPDX-License-Identifier: Apache-2.0
"""The disk image that all nodes boot from, shared by copy on write."""

import os
import pathlib
import shutil

from lab import apt
from lab import command
from lab import kernel
from lab import paths

IMAGE = paths.CACHE / 'root.img'
#: Of nodes that have Debian's Cinder: see lab/packaged.py.
PACKAGED = paths.CACHE / 'root-packaged.img'
PACKAGES = (
    'base-files base-passwd bash dash coreutils sed grep gawk findutils tar '
    'gzip hostname mount util-linux login passwd procps dpkg debianutils '
    'diffutils less netbase libc-bin ncurses-bin init-system-helpers '
    'udev lvm2 dmsetup open-iscsi tgt kmod iproute2 iputils-ping nftables '
    # LVM checks thin pools with it.
    'thin-provisioning-tools '
    'openssh-server e2fsprogs qemu-utils fio sg3-utils psmisc strace '
    'lsof openssl '
    # Instances.
    'qemu-system-x86 libvirt-daemon libvirt-daemon-driver-qemu '
    'libvirt-daemon-driver-secret libvirt-clients python3-libvirt '
    'cryptsetup-bin '
    'python3 libssl3 libffi8 libsqlite3-0 libreadline8 libbz2-1.0 liblzma5 '
    'libncursesw6 libuuid1').split()
# QEMU 7.2 without KVM loses pages that a guest dirties during a migration:
# on a slow network 12 of 24 guests crashed; with QEMU 10.0 none of 12 did.
# A newer QEMU needs a newer libvirt.
NEWER = ('qemu', 'seabios', 'libvirt')
# Debian's libvirt needs this user before it reads its configured user.
_LIBVIRT_USER = 'libvirt-qemu:x:64055:'
_INIT = paths.TEMPLATES / 'lab-init'
_SSHD = """\
PermitRootLogin prohibit-password
UseDNS no
UsePAM no
MaxStartups 100
MaxSessions 500
ClientAliveInterval 0
AcceptEnv LANG
"""


def inputs(packages=PACKAGES, *more):
    """Return an image's inputs, for the key of the cache.

    :param more: what else it depends on
    """
    return [' '.join(packages), ' '.join(NEWER), _SSHD, _LIBVIRT_USER,
            _INIT.read_text(), *more,
            *(str(kernel.modules(kind)) for kind in kernel.KINDS)]


def _write(root, name, text, mode=0o644):
    path = pathlib.Path(root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def make_key():
    """Create the ssh key for the nodes, once per cache."""
    if not paths.SSH_KEY.exists():
        command.run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '',
                     '-C', 'dmclone-lab', '-f', paths.SSH_KEY])


def fill(root):
    """Add the laboratory's files, and kernel modules, to a plain Debian."""
    make_key()
    _write(root, 'root/.ssh/authorized_keys',
           paths.SSH_KEY.with_suffix('.pub').read_text(), 0o600)
    (root / 'root/.ssh').chmod(0o700)
    _write(root, 'etc/ssh/sshd_config.d/lab.conf', _SSHD)
    _write(root, 'sbin/lab-init', _INIT.read_text(), 0o755)
    _write(root, 'etc/fstab', '')
    (root / 'lab').mkdir()
    for kind in kernel.KINDS:
        modules = kernel.modules(kind)
        shutil.copytree(modules, root / 'lib/modules' / modules.name,
                        symlinks=True)
        command.run(['depmod', '-b', root, modules.name], timeout=120)


def _prepare_libvirt(root):
    """Create libvirt's user; link its Python bindings into a folder.

    Debian's folder of Python packages would shadow packages of the
    laboratory's environment.
    """
    for name, rest in (('passwd', '64055::/nonexistent:/usr/sbin/nologin'),
                       ('group', '')):
        with open(root / 'etc' / name, 'a') as f:
            f.write(_LIBVIRT_USER + rest + '\n')
    folder = root / 'usr/lib/lab-python'
    folder.mkdir()
    for path in (root / 'usr/lib/python3/dist-packages').glob('libvirt*'):
        (folder / path.name).symlink_to(
            '/usr/lib/python3/dist-packages/' + path.name)


def make_disk(root, target):
    """Make the file target, a disk with the content of a folder."""
    with open(target, 'wb') as f:
        os.ftruncate(f.fileno(), 4 << 30)
    command.run(['mkfs.ext4', '-q', '-F', '-d', root, target], timeout=300)


def build(target):
    """Build the image as the file target."""
    root = target.with_suffix('.root')
    tarball = target.with_suffix('.tar')
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    try:
        apt.make_root(PACKAGES, NEWER, tarball, paths.CACHE / 'mmdebstrap.log')
        command.run(['tar', '-C', root, '--numeric-owner', '-xf', tarball,
                     '--exclude=./dev/*', '--exclude=./usr/share/doc/*'],
                    timeout=300)
        tarball.unlink()
        fill(root)
        _write(root, 'etc/tgt/conf.d/cinder.conf',
               'include /var/lib/cinder/volumes/*\n')
        _prepare_libvirt(root)
        make_disk(root, target)
    finally:
        shutil.rmtree(root, ignore_errors=True)
        tarball.unlink(missing_ok=True)
