# SPDX-License-Identifier: Apache-2.0
"""Nodes without room for another volume."""

import contextlib

from lab.common import pools

#: The logical volume that takes all free space of a node with thick volumes.
FILLER = 'full'


@contextlib.contextmanager
def full(lab, node):
    """Have a node refuse further volumes meanwhile.

    With thin volumes the whole pool becomes its reserve.
    """
    if lab.settings.thin:
        pools.configure([node], {'dmclone': {'reserved_percentage': '100'}})
    else:
        node.run('lvcreate -qq --yes -l 100%%FREE -n %s %s' % (
            FILLER, pools.GROUP))
    try:
        yield
    finally:
        if lab.settings.thin:
            pools.configure([node], {})
        else:
            node.run('lvremove -qq --yes %s/%s' % (pools.GROUP, FILLER))


def needed(lab, gib):
    """Return what the refusal of a volume by such a node says."""
    return ('it has %d GiB, and volumes of only' if lab.settings.thin
            else 'it needs %d GiB') % gib
