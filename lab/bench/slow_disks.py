# SPDX-License-Identifier: Apache-2.0
"""Volume groups on disks with slow flushes.

A flush of a node's own disk is a flush of a file on the host, which takes
almost no time. Here each flush waits for the kernel's next tick, up to 10 ms,
as on a rotating disk.
"""

import contextlib

DATA, METADATA = 'bench-data', 'bench-metadata'
_MAKE = r"""
set -e
modprobe dm-delay
make() {
    lvcreate -qq --yes --wipesignatures n --size $3 --name $1 $2
    dmsetup create $1-slow --table "0 $(blockdev --getsz /dev/$2/$1) delay \
        /dev/$2/$1 0 0 /dev/$2/$1 0 0 /dev/$2/$1 0 10"
    vgcreate -qq $1 /dev/mapper/$1-slow
}
make %s cinder-volumes 5g
make %s cinder-metadata 100m
""" % (DATA, METADATA)
_REMOVE = r"""
for group in %s/cinder-volumes %s/cinder-metadata; do
    name=${group%%/*}
    vgremove -qq --yes $name
    dmsetup remove $name-slow
    lvremove -qq --yes ${group#*/}/$name
done
""" % (DATA, METADATA)


@contextlib.contextmanager
def on(node):
    """Create both groups on a node, and remove them at the end."""
    try:
        node.run(_MAKE)
        yield
    finally:
        node.run(_REMOVE)
