# SPDX-License-Identifier: Apache-2.0
"""Thin pools of the nodes, which their services make with lvm_type = thin."""

from lab import wait

GROUP = 'cinder-volumes'
#: As Cinder names it.
POOL = GROUP + '/' + GROUP + '-pool'

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


def empty(node):
    """Wait until no volume of a node is in its pool."""
    wait.until(lambda: all(size is None for size in volumes(node).values()),
               'the pool of %s to be empty' % node.name, 60)


def remove(node):
    """Remove the pool of a node, if it has one; its service is stopped."""
    node.run('if lvs {0} >/dev/null 2>&1; then lvremove -qq --yes {0}; '
             'fi'.format(POOL))
