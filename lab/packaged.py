# SPDX-License-Identifier: Apache-2.0
"""Nodes with Debian 13, its Cinder, and the driver's Debian package.

As on an operator's machine: cinder-volume is Debian's, runs as the user
cinder, and becomes root by rootwrap. dpkg installs the package when a node
boots for the first time (templates/node-boot). Such nodes have neither the
checkout nor the laboratory's Python environment, so nothing that the package
lacks is there.
"""

import os
import pathlib
import shutil

from lab import debian
from lab import errors
from lab import image
from lab import setup

#: That of Cinder in this Debian, and so of the control plane.
RELEASE = '2025.1'
#: What the driver's package depends on or recommends, and what the
#: laboratory and its tests use.
PACKAGES = (
    'cinder-volume python3-pymysql dmsetup kmod lvm2 open-iscsi qemu-utils '
    'udev tgt thin-provisioning-tools '
    'systemd openssh-server iproute2 iputils-ping nftables e2fsprogs fio '
    'sg3-utils psmisc procps strace lsof openssl').split()


def check(choices):
    """Check that a laboratory with some settings can have such nodes.

    :raises LabError: if not
    """
    if not choices.package:
        return
    if not pathlib.Path(choices.package).is_file():
        raise errors.LabError('there is no package %s' % choices.package)
    if os.environ.get('DMCLONE_LAB_RELEASE') != RELEASE:
        raise errors.LabError(
            "Debian's Cinder is that of %s: --package needs "
            'DMCLONE_LAB_RELEASE=%s' % (RELEASE, RELEASE))
    if (choices.nova or choices.bare or choices.driver != 'dmclone'
            or choices.target != 'tgt' or choices.mode != 'eventlet'):
        raise errors.LabError('--package goes with none of --nova, --bare, '
                              '--driver, --target and --mode')


def make():
    """Make the image of such nodes unless it is current.

    It is without the driver's package, which each node installs.
    """
    setup.step('the image with Cinder', image.inputs(PACKAGES, debian.SUITE),
               image.PACKAGED, _build)


def _build(target):
    root = target.with_suffix('.root')
    shutil.rmtree(root, ignore_errors=True)
    try:
        debian.make_root(root, PACKAGES)
        for name in ('dev', 'usr/share/doc', 'var/cache/apt',
                     'var/lib/apt/lists'):
            shutil.rmtree(root / name)
            (root / name).mkdir()
        image.fill(root)
        image.make_disk(root, target)
    finally:
        shutil.rmtree(root, ignore_errors=True)
