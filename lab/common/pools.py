# SPDX-License-Identifier: Apache-2.0
"""Thin pools of the nodes, which their services make with lvm_type = thin."""

import contextlib

from lab import errors
from lab import wait

GROUP = 'cinder-volumes'
#: As Cinder names it.
NAME = GROUP + '-pool'
POOL = GROUP + '/' + NAME

# LVM reads this file after lvm.conf. A node copies its own at each boot, too.
_OWN = 'cp /lab/files/etc/lvm/lvmlocal.conf /etc/lvm/lvmlocal.conf'
_WITH = _OWN + " && echo '%s' >> /etc/lvm/lvmlocal.conf"
# Without it LVM chooses so that a pool's metadata has 128 MiB at most. With it
# the metadata has 64 bytes per chunk: 760 MiB for 760 GiB in chunks of 64 KiB
# (lib/metadata/thin_manip.c of LVM, update_thin_pool_params).
_CHUNK = 'allocation/thin_pool_chunk_size = %d'
_NO_CHECK = 'global/thin_check_executable = "/bin/false"'

# Prints the kind and the allocated part of each logical volume of volumes.
_VOLUMES = ("lvs --noheadings --separator , -o lv_name,pool_lv,lv_size,"
            "data_percent --units b --nosuffix -S 'lv_name=~volume-' " + GROUP)


def parse(text):
    """Return {logical volume: allocated bytes, None for a thick one}."""
    found = {}
    for line in text.split():
        name, pool, size, percent = line.split(',')
        found[name] = round(int(size) * float(percent) / 100) if pool else None
    return found


def volumes(node):
    """Return {logical volume: allocated bytes} of a node, see parse()."""
    return parse(node.run(_VOLUMES))


def chunk(node):
    """Return the bytes of a block of a node's pool."""
    return _of_pool(node, 'chunk_size')


def size(node):
    """Return the bytes of a node's pool."""
    return _of_pool(node, 'lv_size')


def _of_pool(node, column):
    return int(node.run('lvs --noheadings --units b --nosuffix -o %s %s' % (
        column, POOL)))


@contextlib.contextmanager
def on(nodes, end, kib=None, gib=None, debug=True, **options):
    """Have nodes make thin volumes meanwhile; afterwards they have no pools.

    :param end: function that deletes all volumes
    :param kib: of a block, for pools that are made anew, or None for pools
        that are there, or of LVM's choice
    :param gib: the size of pools that are made anew, or None for nearly all
        of the volume group
    :param debug: whether the services log what operators do not have logged
    :param options: of the backend, besides
    :raises LabError: if pools have other blocks
    """
    thin = {'DEFAULT': {'debug': str(debug)},
            'dmclone': {'lvm_type': 'thin', **options}}
    try:
        if kib:
            with _chunks(nodes, kib):
                configure(nodes, thin, remove)
        elif gib:
            configure(nodes, thin, lambda node: _make(node, gib))
        else:
            configure(nodes, thin)
        yield
    finally:
        end()
        for node in nodes:
            wait_empty(node)
        configure(nodes, {}, remove)


def _make(node, gib):
    """Make the pool of a node, before its service does that."""
    remove(node)
    node.run('lvcreate -qq --yes --type thin-pool --size %dg --name %s %s' % (
        gib, NAME, GROUP))


@contextlib.contextmanager
def _chunks(nodes, kib):
    """Have LVM make pools with blocks of this size meanwhile."""
    try:
        for node in nodes:
            node.run(_WITH % _CHUNK % kib)
        yield
    finally:
        for node in nodes:
            node.run(_OWN)
    for node in nodes:
        found = chunk(node)
        if found != kib * 1024:
            raise errors.LabError('the thin pool of %s has blocks of %d bytes'
                                  % (node.name, found))


@contextlib.contextmanager
def refused(node, *devices):
    """Have a node start with a pool that its check refuses meanwhile.

    :param devices: names in device-mapper of what uses its volumes
    """
    node.stop('cinder-volume')
    for name in devices:
        node.run('dmsetup remove ' + name)
    node.run('lvchange -an $(lvs --noheadings -o lv_full_name -S '
             'pool_lv=%s) %s' % (NAME, POOL))
    node.run(_WITH % _NO_CHECK)
    try:
        node.start_service('cinder-volume')
        node.wait_ready()
        yield
    finally:
        node.run(_OWN)


def configure(nodes, changes, meanwhile=lambda node: None):
    """Start services with other options.

    :param changes: as of the nodes' configure()
    :param meanwhile: called while the service of a node is stopped
    """
    for node in nodes:
        node.stop('cinder-volume')
        meanwhile(node)
        node.configure(changes)
        node.start_service('cinder-volume')
    for node in nodes:
        node.wait_ready()


def wait_empty(node):
    """Wait until no volume of a node is in its pool."""
    wait.until(lambda: all(size is None for size in volumes(node).values()),
               'the pool of %s to be empty' % node.name, 60)


def remove(node):
    """Remove the pool of a node, if it has one.

    A service that is started afterwards knows the free space of the group.

    :raises LabError: if there is a volume in it
    """
    left = [name for name, size in volumes(node).items() if size is not None]
    if left:
        raise errors.LabError('the thin pool of %s is kept: it has %s' % (
            node.name, ', '.join(left)))
    node.run('if lvs {0} >/dev/null 2>&1; then lvremove -qq --yes {0}; '
             'fi'.format(POOL))
